"""Remote operations: their definition, and those on mailboxes, folders and tables."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from loadsim.servers.embedded_mapi.store import CREATED, NEW_MAIL, Folder, Mailbox, Store
from loadsim.servers.embedded_mapi.wire import DISPLAY_NAME, Error, RopError, Values, encode_row

PRIVATE, USE_PER_MDB_REPLID_MAPPING = 0x01, 0x01000000
"""Flags of a logon ([MS-OXCSTOR] section 2.2.1.1.1)."""
TABLE_BYTES = 510
"""The length at which tables truncate strings ([MS-OXCTABL] section 2.2.2.5)."""
CURRENT, END = 1, 2
"""Places in a table ([MS-OXCTABL] section 2.2.2.1.1)."""
DEPTH, ASSOCIATED = 0x04, 0x02
"""Flags of tables: all folders below, associated messages ([MS-OXCFOLD] sections 2.2.1.13.1 and 2.2.1.14.1)."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operation's context. `parent` is the object at the index `r`; the response may take `room_bytes`."""

    store: Store
    mailbox: Mailbox
    input_index: int
    parent: object
    room_bytes: int


Answer = bytes | tuple[object, bytes]
"""The response after its error code, or a pair of the new object and this response."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A ROP: its handle indexes in order, its fields as letters of `Reader.one`, and its function.

    Indexes are `i` (input), `o` (output), `r` (response) and `d` (destination). The input is one of `types`. Responses
    of a `partial` ROP end with PartialCompletion.
    """

    indexes: str
    fields: str
    types: tuple[type, ...]
    act: Callable[..., Answer]
    partial: bool = False


@dataclass(slots=True, eq=False)
class Table:
    """A table of rows that follows the folder's changes. `position` is the cursor, a row's number."""

    rows_now: Callable[[], list[Values]]
    version_now: Callable[[], int]
    columns: tuple[int, ...] = ()
    order: list[tuple[int, int]] = field(default_factory=list)
    wanted: list[tuple[int, str]] | None = None
    position: int = 0
    cached: tuple[int, list[Values]] | None = None

    def rows(self) -> list[Values]:
        version = self.version_now()
        if self.cached is None or self.cached[0] != version:
            rows = self.rows_now()
            if self.wanted is not None:
                rows = [row for row in rows if any(text in str(row.get(tag, "")).lower() for tag, text in self.wanted)]
            for tag, direction in reversed(self.order):
                rows.sort(key=partial(_sort_key, tag), reverse=direction == 1)
            self.cached = version, rows
        return self.cached[1]

    def reset(self) -> bytes:
        self.cached, self.position = None, 0
        return b"\0"


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscription to a folder's events."""

    events: int
    folder: int


def _sort_key(tag: int, row: Values) -> tuple[bool, Any]:
    value = row.get(tag)
    return value is not None, value.lower() if isinstance(value, str) else 0 if value is None else value


def logon(call: Call, flags: int, options: int, _: int, dn: bytes) -> Answer:
    """Open the session user's mailbox ([MS-OXCSTOR] section 3.2.5.1.1)."""
    if not flags & PRIVATE:
        raise RopError(Error.NOT_SUPPORTED)
    if not options & USE_PER_MDB_REPLID_MAPPING or not dn.endswith(b"\0"):
        raise RopError(Error.INVALID)
    mailbox = call.store.mailbox_at(dn[:-1].decode("ascii", "replace"))
    if mailbox is None:
        raise RopError(Error.UNKNOWN_USER)
    if mailbox is not call.mailbox:
        raise RopError(Error.ACCESS_DENIED)
    folders = struct.pack("<13Q", *(folder.number for folder in mailbox.special))
    identity = mailbox.guid + struct.pack("<H", 1) + mailbox.replica
    without_times = bytes(8 + 8 + 4)
    return mailbox, bytes((flags & 7,)) + folders + b"\x07" + identity + without_times


def get_property_ids(call: Call, on: object, flags: int, names: list[tuple[bytes, int | str]]) -> Answer:
    """Return the identifiers of names, creating them if needed."""
    if flags != 2:
        raise RopError(Error.NOT_SUPPORTED)
    numbers = [call.mailbox.named(*name) for name in names]
    return struct.pack(f"<H{len(numbers)}H", len(numbers), *numbers)


def register_notification(call: Call, mailbox: Mailbox, events: int, of_all: int, folder: int, _: int) -> Answer:
    if not events or events & ~(NEW_MAIL | CREATED) or of_all:
        raise RopError(Error.NOT_SUPPORTED)
    return Subscription(events, folder), b""


def open_folder(call: Call, on: object, number: int, mode: int) -> Answer:
    return call.mailbox.folder(number), bytes(2)


def create_folder(call: Call, parent: Folder, kind: int, name: str) -> Answer:
    """Create a folder unless one has this name; the comment and OpenExisting are ignored."""
    if kind != 1:
        raise RopError(Error.NOT_SUPPORTED)
    if not name:
        raise RopError(Error.INVALID)
    if name.lower() in {child.own[DISPLAY_NAME].lower() for child in parent.children.values()}:
        raise RopError(Error.DUPLICATE_NAME)
    folder = call.mailbox.add(parent, name)
    return folder, struct.pack("<QB", folder.number, 0)


def delete_folder(call: Call, parent: Folder, flags: int, number: int) -> Answer:
    folder = call.mailbox.folder(number)
    if folder.parent is not parent:
        raise RopError(Error.NOT_FOUND)
    if folder.special:
        raise RopError(Error.ACCESS_DENIED)
    if (folder.messages and not flags & 1) or (folder.children and not flags & 4):
        return b"\1"
    call.mailbox.remove(folder)
    return b"\0"


def delete_messages(call: Call, folder: Folder, asynchronous: int, notify: int, numbers: tuple[int, ...]) -> Answer:
    dropped = [folder.drop(number) for number in numbers]
    return bytes((None in dropped,))


def move_copy_messages(
    call: Call, source: Folder, target: object, numbers: tuple[int, ...], asynchronous: int, copy: int
) -> Answer:
    if not isinstance(target, Folder):
        raise RopError(Error.NOT_SUPPORTED)
    missing = False
    for number in numbers:
        message = source.messages.get(number) if copy else source.drop(number)
        if message is None:
            missing = True
        else:
            target.take(message)
    return bytes((missing,))


def set_read_flags(call: Call, folder: Folder, asynchronous: int, flags: int, numbers: tuple[int, ...]) -> Answer:
    if flags & 5 == 4:
        raise RopError(Error.INVALID)
    marked = [folder.mark(number, flags) for number in numbers]
    return bytes((not all(marked),))


def get_hierarchy_table(call: Call, folder: Folder, flags: int) -> Answer:
    if not flags & DEPTH:
        raise RopError(Error.NOT_SUPPORTED)
    table = Table(
        lambda: [child.values for child in folder.below()],
        lambda: folder.version + sum(child.version for child in folder.below()),
    )
    return table, struct.pack("<I", len(table.rows()))


def get_contents_table(call: Call, folder: Folder, flags: int) -> Answer:
    if flags & ASSOCIATED:
        raise RopError(Error.NOT_SUPPORTED)
    table = Table(lambda: [message.values for message in folder.messages.values()], lambda: folder.version)
    return table, struct.pack("<I", len(table.rows()))


def set_columns(call: Call, table: Table, flags: int, tags: tuple[int, ...]) -> Answer:
    if flags > 1 or not tags:
        raise RopError(Error.INVALID)
    table.columns = tags
    return b"\0"


def sort_table(call: Call, table: Table, flags: int, wanted: tuple[int, list[tuple[int, int]]]) -> Answer:
    categories, orders = wanted
    if flags > 1 or categories or any(direction > 1 for _, direction in orders):
        raise RopError(Error.INVALID)
    table.order = orders
    return table.reset()


def restrict(call: Call, table: Table, flags: int, wanted: list[tuple[int, str]]) -> Answer:
    """Leave only rows with one of the texts in its column ([MS-OXCTABL] section 2.2.2.4)."""
    if flags > 1:
        raise RopError(Error.INVALID)
    table.wanted = [(column, text.lower()) for column, text in wanted]
    return table.reset()


def query_rows(call: Call, table: Table, flags: int, forward: int, count: int) -> Answer:
    if not table.columns:
        raise RopError(Error.NULL_OBJECT)
    if flags or not forward:
        raise RopError(Error.NOT_SUPPORTED)
    rows = table.rows()
    left = rows[table.position : table.position + count]
    sent: list[bytes] = []
    room = call.room_bytes - 9
    for row in left:
        encoded = encode_row(row, table.columns, TABLE_BYTES)
        room -= len(encoded)
        if room < 0:
            break
        sent.append(encoded)
    if left and not sent:
        return bytes(call.room_bytes + 1)  # too large: the client asks again
    table.position += len(sent)
    return struct.pack("<BH", END if table.position >= len(rows) else CURRENT, len(sent)) + b"".join(sent)


def seek_row(call: Call, table: Table, origin: int, wanted: int, count: int) -> Answer:
    if origin > 2:
        raise RopError(Error.INVALID)
    rows = len(table.rows())
    start = (0, min(table.position, rows), rows)[origin]
    table.position = min(max(start + wanted, 0), rows)
    moved = table.position - start
    return struct.pack("<Bi", moved != wanted, moved)


OPERATIONS = {
    0xFE: Operation("o", "BIID", (object,), logon),
    0x56: Operation("i", "BN", (object,), get_property_ids),
    0x29: Operation("io", "HBQQ", (Mailbox,), register_notification),
    0x02: Operation("io", "QB", (Mailbox, Folder), open_folder),
    0x1C: Operation("io", "BF", (Folder,), create_folder),
    0x1D: Operation("i", "BQ", (Folder,), delete_folder, partial=True),
    0x1E: Operation("i", "BBM", (Folder,), delete_messages, partial=True),
    0x33: Operation("id", "MBB", (Folder,), move_copy_messages, partial=True),
    0x66: Operation("i", "BBM", (Folder,), set_read_flags, partial=True),
    0x04: Operation("io", "B", (Folder,), get_hierarchy_table),
    0x05: Operation("io", "B", (Folder,), get_contents_table),
    0x12: Operation("i", "BT", (Table,), set_columns),
    0x13: Operation("i", "BS", (Table,), sort_table),
    0x14: Operation("i", "BO", (Table,), restrict),
    0x15: Operation("i", "BBH", (Table,), query_rows),
    0x18: Operation("i", "BiB", (Table,), seek_row),
}
