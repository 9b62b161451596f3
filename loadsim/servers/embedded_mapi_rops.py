"""The remote operations of the embedded MAPI server: one session's handles, and a function for each ROP.

What the documents forbid is refused with the error code that they state: the driver is tested by it. There are neither
compressed buffers, nor search folders, nor notifications of tables.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from loadsim.servers.embedded_mapi_store import (
    COMPUTED,
    CREATED,
    DELETED,
    MESSAGE_FLAGS,
    MODIFIED,
    NEW_MAIL,
    READ,
    SUBMITTED,
    UNMODIFIED,
    UNSENT,
    Folder,
    Mailbox,
    Message,
    Store,
)
from loadsim.servers.embedded_mapi_wire import (
    BINARY,
    CODE_PAGE,
    INTEGER_32,
    INVALID,
    NOT_FOUND,
    RECIPIENT_COLUMNS,
    RECIPIENT_TYPE,
    STRING,
    STRING_8,
    Condition,
    MalformedError,
    Reader,
    RopError,
    Values,
    cut,
    data,
    encode,
    encode_recipient,
    encode_row,
    find,
    text_of,
    typed_string,
)

LARGEST_ROPS_BYTES = 0x8000
"""The most that the requests or responses of one buffer take ([MS-OXCRPC] section 3.1.4.2.1)."""
SMALL_BYTES = 64
"""Room for the response of each ROP that changes something; those with larger responses can be repeated."""
MOST_NOTIFICATIONS = 1000
TABLE_CHARACTERS = 255
"""Where tables cut strings ([MS-OXCTABL] section 2.2.2.5)."""
NO_HANDLE = 0xFFFFFFFF

NULL_OBJECT, NOT_SUPPORTED, ACCESS_DENIED = 0x4B9, 0x80040102, 0x80070005
UNKNOWN_USER, BUFFER_TOO_SMALL, DUPLICATE_NAME = 0x3EB, 0x47D, 0x80040604
OBJECT_MODIFIED, OBJECT_DELETED, NO_RECIPIENTS, COMPUTED_PROPERTY = 0x80040109, 0x8004010A, 0x80040607, 0x8004011A
NULL_DESTINATION, WITH_ERRORS, TOO_BIG, STREAM_ACCESS = 0x503, 0x40380, 0x80040305, 0x80030005
LARGEST_STREAM_BYTES = 32 * 1024 * 1024
"""Error codes ([MS-OXCDATA] section 2.4)."""

PRIVATE, USE_PER_MDB_REPLID_MAPPING = 0x01, 0x01000000
"""Flags of a logon ([MS-OXCSTOR] section 2.2.1.1.1)."""

ROP_RELEASE, ROP_NOTIFY, ROP_PENDING, ROP_LOGON, ROP_BUFFER_TOO_SMALL = 0x01, 0x2A, 0x6E, 0xFE, 0xFF


@dataclass(slots=True, eq=False)
class OpenMessage:
    """A message as its client sees it: `draft` has its unsaved changes."""

    folder: Folder
    draft: Message
    writable: bool
    saved: bool = False
    next_attachment: int = 0

    @property
    def values(self) -> Values:
        return self.draft.values


@dataclass(slots=True, eq=False)
class OpenAttachment:
    message: OpenMessage
    number: int
    values: Values
    writable: bool


@dataclass(slots=True, eq=False)
class Stream:
    """A property's bytes between open and commit."""

    owner: OpenMessage | OpenAttachment
    tag: int
    content: bytearray
    writable: bool
    position: int = 0


@dataclass(slots=True, eq=False)
class Table:
    """A table of rows, which follow the folder's changes. The cursor is the number of a row."""

    rows_now: Callable[[], list[Values]]
    version_now: Callable[[], int]
    columns: tuple[int, ...] = ()
    order: list[tuple[int, int]] = field(default_factory=list)
    condition: Condition | None = None
    position: int = 0
    sortable: bool = True
    cached: tuple[int, list[Values]] | None = None

    def rows(self) -> list[Values]:
        version = self.version_now()
        if self.cached is None or self.cached[0] != version:
            rows = [row for row in self.rows_now() if self.condition is None or self.condition(row)]
            for tag, direction in reversed(self.order):
                rows.sort(key=partial(_sort_key, tag), reverse=direction == 1)
            self.cached = version, rows
        return self.cached[1]

    def reset(self) -> bytes:
        self.cached, self.position = None, 0
        return b"\0"


@dataclass(slots=True, eq=False)
class Subscription:
    mailbox: Mailbox
    logon: int
    events: int
    folder: int | None


def _sort_key(tag: int, row: Values) -> tuple[bool, Any]:
    value = find(row, tag)
    return value is not None, value.lower() if isinstance(value, str) else 0 if value is None else value


Answer = bytes | tuple[object, bytes]


@dataclass(frozen=True, slots=True)
class Operation:
    """A ROP: its handle indexes in their order, the layout of its fields, and its function.

    Indexes are `i` (input), `o` (output), `r` (of the response) and `d` (destination). `partial`: each response ends
    with PartialCompletion.
    """

    indexes: str
    layout: str
    types: tuple[type, ...]
    partial: bool
    act: Callable[..., Answer]


OPERATIONS: dict[int, Operation] = {}


def rop(
    number: int, indexes: str, layout: str = "", *types: type, partial: bool = False
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a function, which gets the input object if there is one, and the fields."""

    def register(act: Callable[..., Answer]) -> Callable[..., Answer]:
        OPERATIONS[number] = Operation(indexes, layout, types or (object,), partial, act)
        return act

    return register


class Rops:
    """One session's objects, its subscriptions, and the notifications that wait for its next response."""

    def __init__(self, store: Store, mailbox: Mailbox, arrived: Callable[[], None]) -> None:
        """`arrived` is called when a notification begins to wait."""
        self.store = store
        self.mailbox = mailbox
        self.objects: dict[int, object] = {}
        self.logons: set[int] = set()
        self.waiting: deque[bytes] = deque(maxlen=MOST_NOTIFICATIONS)
        self.reader = Reader(b"")
        self.room = 0
        self.logon_id = 0
        self.input_index = 0
        self._arrived = arrived
        self._last_handle = 0
        mailbox.listeners.add(self._notify)

    def close(self) -> None:
        self.mailbox.listeners.discard(self._notify)

    def execute(self, buffer: bytes, most_bytes: int) -> bytes:
        """Perform the requests of a ROP input buffer, and return the output buffer, each behind an RPC_HEADER_EXT.

        Raises `MalformedError` for what cannot be parsed ([MS-OXCROPS] section 3.2.5.1).
        """
        header = Reader(buffer)
        version, flags, size, actual = header.unpack("4H")
        if version or flags != 4 or size != actual or size != len(buffer) - 8 or size < 2:
            raise MalformedError
        rops_size = header.one("H")
        if not 2 <= rops_size <= min(size, LARGEST_ROPS_BYTES) or (size - rops_size) % 4:
            raise MalformedError
        self.reader = Reader(header.take(rops_size - 2))
        handles = list(header.unpack(f"{(size - rops_size) // 4}I"))
        most_bytes = min(most_bytes - 8, LARGEST_ROPS_BYTES) - 2 - 4 * len(handles)

        responses = bytearray()
        while self.reader.at < len(self.reader.data):
            start, self.room = self.reader.at, most_bytes - len(responses)
            response = self._perform(handles) if self.room >= SMALL_BYTES else None
            if response is None or len(response) > self.room:
                responses += struct.pack("<BH", ROP_BUFFER_TOO_SMALL, LARGEST_ROPS_BYTES) + self.reader.data[start:]
                break
            responses += response
        while self.waiting and len(responses) + len(self.waiting[0]) + 3 <= most_bytes:
            responses += self.waiting.popleft()
        if self.waiting and len(responses) + 3 <= most_bytes:
            responses += struct.pack("<BH", ROP_PENDING, 0)
        payload = struct.pack("<H", len(responses) + 2) + responses + struct.pack(f"<{len(handles)}I", *handles)
        return struct.pack("<4H", 0, 4, len(payload), len(payload)) + payload

    def _perform(self, handles: list[int]) -> bytes:
        """Parse and perform the next request, and return its response."""
        number, self.logon_id = self.reader.unpack("BB")
        if number not in OPERATIONS:
            raise MalformedError
        operation = OPERATIONS[number]
        places = dict(zip(operation.indexes, self.reader.take(len(operation.indexes)), strict=True))
        fields = [
            FIELDS[layout](self.reader) if layout in FIELDS else self.reader.one(layout) for layout in operation.layout
        ]
        self.input_index = places.get("i", 0)
        made, code = None, 0
        try:
            if number != ROP_LOGON and self.logon_id not in self.logons:
                raise RopError(NULL_OBJECT)
            inputs = [self._object(handles, places[place]) for place in "id" if place in places]
            if inputs and not isinstance(inputs[0], operation.types):
                raise RopError(NOT_SUPPORTED)
            if number == ROP_RELEASE:
                self._release(handles[places["i"]])
                return b""
            answer = operation.act(self, *inputs, *fields)
            made, body = answer if isinstance(answer, tuple) else (None, answer)
        except RopError as refused:
            code, body = refused.code, refused.body or (b"\0" if operation.partial else b"")
            if number == ROP_RELEASE:
                return b""
        if places.get("o", len(handles)) < len(handles):
            handles[places["o"]] = NO_HANDLE if made is None else self._handle(made)
        place = next(places[place] for place in "roi" if place in places)
        return struct.pack("<BBI", number, place, code) + body

    def _object(self, handles: list[int], index: int) -> object:
        if index >= len(handles) or handles[index] not in self.objects:
            raise RopError(NULL_OBJECT)
        return self.objects[handles[index]]

    def _handle(self, made: object) -> int:
        self._last_handle += 1
        self.objects[self._last_handle] = made
        return self._last_handle

    def _release(self, handle: int) -> None:
        if isinstance(self.objects.pop(handle), Mailbox):
            self.logons.discard(self.logon_id)
            self.objects.clear()

    def _notify(self, event: int, folder: Folder, message: Message) -> None:
        """Keep a notification for each subscription to this event ([MS-OXCNOTIF] section 2.2.1.4.1.2)."""
        for handle, subscription in self.objects.items():
            if not isinstance(subscription, Subscription) or not subscription.events & event:
                continue
            if subscription.folder not in (None, folder.number):
                continue
            body = b""
            if event == NEW_MAIL:
                body = struct.pack("<IB", message.flags, 1) + encode(STRING, text_of(message.values, 0x001A))
            elif event in (CREATED, MODIFIED):
                body = struct.pack("<H", 0)
            head = struct.pack(
                "<BIBHQQ", ROP_NOTIFY, handle, subscription.logon, 0x8000 | event, folder.number, message.number
            )
            self.waiting.append(head + body)
            self._arrived()


def _sort_orders(reader: Reader) -> list[tuple[int, int]]:
    count, categories, _ = reader.unpack("3H")
    orders = [reader.unpack("IB") for _ in range(count)]
    return [(tag, direction | (0x80 if categories else 0)) for tag, direction in orders]


def _names(reader: Reader) -> list[tuple[int, bytes, int | str]]:
    """Return named properties ([MS-OXCDATA] section 2.6.1)."""
    names: list[tuple[int, bytes, int | str]] = []
    for _ in range(reader.one("H")):
        kind, group = reader.one("B"), reader.take(16)
        if kind > 1:
            raise MalformedError
        key = reader.one("I") if kind == 0 else Reader(reader.take(reader.one("B"))).one("w")
        names.append((kind, group, key))
    return names


def _recipients(reader: Reader) -> tuple[tuple[int, ...], list[tuple[int, int, bytes]]]:
    """Return the further columns, and of each row its number, the recipient's type and the sized rest."""
    columns = reader.one("T")
    return columns, [(*reader.unpack("IB"), reader.one("D")) for _ in range(reader.one("H"))]


def _new_folder(reader: Reader) -> tuple[int, str]:
    """Return OpenExisting and the name; the comment is left out."""
    wide, existing, _ = reader.unpack("3B")
    name, _ = [reader.one("w" if wide else "z") for _ in range(2)]
    return existing, name


def _byte_count(reader: Reader) -> int:
    count = reader.one("H")
    return int(reader.one("I")) if count == 0xBABE else int(count)


def _scope(reader: Reader) -> int | None:
    """Return the folder of a subscription; None for the whole store."""
    return None if reader.one("B") else int(reader.unpack("QQ")[0])


FIELDS: dict[str, Callable[[Reader], Any]] = {
    "S": _sort_orders,
    "N": _names,
    "R": _recipients,
    "F": _new_folder,
    "C": _byte_count,
    "W": _scope,
    "L": lambda reader: reader.take(24),
}
"""Letters of layouts beyond those of `Reader.one`."""


@rop(ROP_RELEASE, "i")
def _release(rops: Rops, released: object) -> Answer:
    raise NotImplementedError  # `Rops` does it, as there is no response


@rop(ROP_LOGON, "o", "BIID")
def _logon(rops: Rops, flags: int, options: int, _: int, dn: bytes) -> Answer:
    """Open the mailbox of the session's user ([MS-OXCSTOR] section 3.2.5.1.1)."""
    if not flags & PRIVATE:
        raise RopError(NOT_SUPPORTED)
    if not options & USE_PER_MDB_REPLID_MAPPING or not dn.endswith(b"\0"):
        raise RopError(INVALID)
    mailbox = rops.store.mailbox_at(dn[:-1].decode("ascii", "replace"))
    if mailbox is None:
        raise RopError(UNKNOWN_USER)
    if mailbox is not rops.mailbox:
        raise RopError(ACCESS_DENIED)
    rops.logons.add(rops.logon_id)
    folders = struct.pack("<13Q", *(folder.number for folder in mailbox.special))
    day = datetime.now(UTC)
    weekday = (day.weekday() + 1) % 7
    date = struct.pack("<6BH", day.second, day.minute, day.hour, weekday, day.day, day.month, day.year)
    identity = mailbox.guid + struct.pack("<H", 1) + mailbox.replica
    return mailbox, bytes((flags & 7,)) + folders + b"\x07" + identity + date + struct.pack("<QI", 1, 0)


@rop(0x27, "i", "z", Mailbox)
def _get_receive_folder(rops: Rops, mailbox: Mailbox, message_class: str) -> Answer:
    if not message_class.isascii() or ".." in message_class or len(message_class) > 254:
        raise RopError(INVALID)
    explicit = next((name for name in ("IPM.Note", "IPM") if message_class.upper().startswith(name.upper())), "")
    return struct.pack("<Q", mailbox.inbox.number) + encode(STRING_8, explicit)


@rop(0x44, "i", "L", Mailbox)
def _id_from_long_term_id(rops: Rops, mailbox: Mailbox, long_term: bytes) -> Answer:
    if long_term[:16] != mailbox.replica or long_term[22:] != b"\0\0":
        raise RopError(NOT_FOUND)
    return b"\x01\0" + long_term[16:22]


@rop(0x56, "i", "BN")
def _get_property_ids(rops: Rops, on: object, flags: int, names: list[tuple[int, bytes, int | str]]) -> Answer:
    numbers = [rops.mailbox.named(name, create=bool(flags & 2)) for name in names]
    body = struct.pack(f"<H{len(numbers)}H", len(numbers), *numbers)
    if 0 in numbers:
        raise RopError(WITH_ERRORS, body)
    return body


@rop(0x29, "io", "BBW", Mailbox)
def _register_notification(rops: Rops, mailbox: Mailbox, events: int, _: int, folder: int | None) -> Answer:
    if not events or events & ~(NEW_MAIL | CREATED | DELETED | MODIFIED):
        raise RopError(NOT_SUPPORTED)
    return Subscription(mailbox, rops.logon_id, events, folder), b""


@rop(0x02, "io", "QB", Mailbox, Folder)
def _open_folder(rops: Rops, on: object, number: int, mode: int) -> Answer:
    return rops.mailbox.folder(number), bytes(2)


@rop(0x1C, "io", "BF", Folder)
def _create_folder(rops: Rops, parent: Folder, kind: int, wanted: tuple[int, str]) -> Answer:
    existing, name = wanted
    if kind != 1:
        raise RopError(NOT_SUPPORTED)
    if not name:
        raise RopError(INVALID)
    same = next((child for child in parent.children.values() if child.name.lower() == name.lower()), None)
    if same is None:
        folder = rops.mailbox.add(parent, name)
        return folder, struct.pack("<QB", folder.number, 0)
    if not existing:
        raise RopError(DUPLICATE_NAME)
    return same, struct.pack("<QBBB", same.number, 1, 0, 0)


@rop(0x1D, "i", "BQ", Folder, partial=True)
def _delete_folder(rops: Rops, parent: Folder, flags: int, number: int) -> Answer:
    folder = rops.mailbox.folder(number)
    if folder.parent is not parent:
        raise RopError(NOT_FOUND)
    if folder.special:
        raise RopError(ACCESS_DENIED)
    if (folder.messages and not flags & 1) or (folder.children and not flags & 4):
        return b"\1"
    rops.mailbox.remove(folder)
    return b"\0"


@rop(0x58, "i", "BB", Folder, partial=True)
def _empty_folder(rops: Rops, folder: Folder, asynchronous: int, associated: int) -> Answer:
    for number in [each.number for each in folder.messages.values() if associated or not each.associated]:
        folder.drop(number)
    for child in [child for child in folder.children.values() if not child.special]:
        rops.mailbox.remove(child)
    return b"\0"


@rop(0x04, "io", "B", Folder)
def _get_hierarchy_table(rops: Rops, folder: Folder, flags: int) -> Answer:
    def below() -> list[Values]:
        deepest = 0xFFFF if flags & 4 else 1
        return [each.values | {0x3005: (INTEGER_32, depth)} for depth, each in folder.below() if depth <= deepest]

    table = Table(below, lambda: folder.version + sum(each.version for _, each in folder.below()), sortable=False)
    return table, struct.pack("<I", len(table.rows()))


@rop(0x05, "io", "B", Folder)
def _get_contents_table(rops: Rops, folder: Folder, flags: int) -> Answer:
    table = Table(lambda: [message.values for message in folder.contents(bool(flags & 2))], lambda: folder.version)
    return table, struct.pack("<I", len(table.rows()))


@rop(0x12, "i", "BT", Table)
def _set_columns(rops: Rops, table: Table, flags: int, tags: tuple[int, ...]) -> Answer:
    if flags > 1 or not tags:
        raise RopError(INVALID)
    table.columns = tags
    return b"\0"


@rop(0x13, "i", "BS", Table)
def _sort_table(rops: Rops, table: Table, flags: int, orders: list[tuple[int, int]]) -> Answer:
    if not table.sortable:
        raise RopError(NOT_SUPPORTED)
    if flags > 1 or any(direction > 1 for _, direction in orders):
        raise RopError(INVALID)
    table.order = orders
    return table.reset()


@rop(0x14, "i", "BD", Table)
def _restrict(rops: Rops, table: Table, flags: int, encoded: bytes) -> Answer:
    if flags > 1:
        raise RopError(INVALID)
    reader = Reader(encoded)
    table.condition = reader.restriction() if encoded else None
    reader.end()
    return table.reset()


@rop(0x15, "i", "BBH", Table)
def _query_rows(rops: Rops, table: Table, flags: int, forward: int, count: int) -> Answer:
    if not table.columns:
        raise RopError(NULL_OBJECT)
    if flags > 1 or forward > 1:
        raise RopError(INVALID)
    rows = table.rows()
    position = min(table.position, len(rows))
    left = rows[position : position + count] if forward else rows[max(position - count, 0) : position][::-1]
    sent: list[bytes] = []
    room = rops.room - 9
    for row in left:
        encoded = encode_row(cut(row, TABLE_CHARACTERS), table.columns, 0xFFFF)
        room -= len(encoded)
        if room < 0:
            break
        sent.append(encoded)
    if left and not sent:
        return bytes(rops.room + 1)  # too large: the client asks again
    position += len(sent) if forward else -len(sent)
    if not flags:
        table.position = position
    origin = 2 if position == len(rows) and forward else 0 if position == 0 else 1
    return struct.pack("<BH", origin, len(sent)) + b"".join(sent)


@rop(0x18, "i", "BiB", Table)
def _seek_row(rops: Rops, table: Table, origin: int, wanted: int, count: int) -> Answer:
    if origin > 2:
        raise RopError(INVALID)
    rows = len(table.rows())
    start = (0, min(table.position, rows), rows)[origin]
    table.position = min(max(start + wanted, 0), rows)
    moved = table.position - start
    return struct.pack("<Bi", moved != wanted, moved)


@rop(0x03, "io", "HQBQ", Mailbox, Folder)
def _open_message(rops: Rops, on: object, code_page: int, folder_number: int, mode: int, number: int) -> Answer:
    folder = rops.mailbox.folder(folder_number)
    if mode not in (0, 1, 3):
        raise RopError(INVALID)
    if number not in folder.messages:
        raise RopError(NOT_FOUND)
    message = OpenMessage(folder, folder.messages[number].copy(), writable=mode > 0, saved=True)
    values, recipients = message.values, list(message.draft.recipients.values())
    head = bytes((any(number >= 0x8000 for number in values),)) + b"".join(
        typed_string(text_of(values, name)) for name in (0x003D, 0x0E1D)
    )
    head += struct.pack(f"<HH{len(RECIPIENT_COLUMNS)}I", len(recipients), len(RECIPIENT_COLUMNS), *RECIPIENT_COLUMNS)
    rows = _that_fit([encode_recipient(each) for each in recipients], rops.room - 7 - len(head))
    return message, head + bytes((len(rows),)) + b"".join(rows)


def _that_fit(rows: list[bytes], room: int) -> list[bytes]:
    """Return the first rows, of at most this size and number of a byte."""
    fitting = []
    for row in rows[:0xFF]:
        room -= len(row)
        if room < 0:
            break
        fitting.append(row)
    return fitting


@rop(0x06, "io", "HQB", Mailbox, Folder)
def _create_message(rops: Rops, on: object, code_page: int, folder_number: int, associated: int) -> Answer:
    folder = rops.mailbox.folder(folder_number)
    draft = Message(rops.mailbox.next_number(), {}, associated=bool(associated))
    draft.set_flags(READ | UNSENT)
    return OpenMessage(folder, draft, writable=True), b"\0"


@rop(0x0E, "i", "R", OpenMessage)
def _modify_recipients(
    rops: Rops, message: OpenMessage, wanted: tuple[tuple[int, ...], list[tuple[int, int, bytes]]]
) -> Answer:
    columns, rows = wanted
    _check_writable(message)
    changes: dict[int, Values | None] = {}
    for row, kind, encoded in rows:
        reader = Reader(encoded)
        changes[row] = reader.recipient(columns) | {RECIPIENT_TYPE: (INTEGER_32, kind)} if encoded else None
        reader.end()
        if kind & 0x0F not in (1, 2, 3):
            raise RopError(INVALID)
    for row, values in changes.items():
        if values is None:
            message.draft.recipients.pop(row, None)
        else:
            message.draft.recipients[row] = values
    return b""


@rop(0x0C, "ri", "B", OpenMessage)
def _save_changes(rops: Rops, message: OpenMessage, flags: int) -> Answer:
    _check_writable(message)
    _save(message, force=bool(flags & 4))
    message.writable = bool(flags & 2)
    return bytes((rops.input_index,)) + struct.pack("<Q", message.draft.number)


def _save(message: OpenMessage, *, force: bool = False) -> None:
    stored = message.folder.messages.get(message.draft.number)
    if message.saved:
        if stored is None:
            raise RopError(OBJECT_DELETED)
        if stored.values[0x67A4] != message.values[0x67A4] and not force:
            raise RopError(OBJECT_MODIFIED)
        message.draft.set_flags(message.draft.flags & ~READ | stored.flags & READ)
    kept = message.draft.copy()
    message.folder.put(kept)
    message.draft, message.saved = kept.copy(), True


def _check_writable(on: OpenMessage | OpenAttachment) -> None:
    if not on.writable:
        raise RopError(ACCESS_DENIED)


@rop(0x32, "i", "B", OpenMessage)
def _submit_message(rops: Rops, message: OpenMessage, flags: int) -> Answer:
    """Deliver a message, then copy and delete it as its properties state ([MS-OXOMSG] section 3.2.4.2)."""
    _check_writable(message)
    draft, folder = message.draft, message.folder
    if not draft.recipients:
        raise RopError(NO_RECIPIENTS)
    sent_to = (find(draft.values, 0x674000FB) or b"")[1:9] or b"\x01\0" + (find(draft.values, 0x0E0A0102) or b"")[38:44]
    target = rops.mailbox.folder(int.from_bytes(sent_to, "little")) if len(sent_to) == 8 else None
    rops.store.submit(rops.mailbox, draft)
    draft.set_flags((draft.flags | READ | UNMODIFIED) & ~(UNSENT | SUBMITTED))
    if target is not None:
        target.take(draft)
    if target is not None or find(draft.values, 0x0E01000B):
        folder.drop(draft.number)
    else:
        _save(message, force=True)
    return b""


@rop(0x11, "ri", "B", OpenMessage)
def _set_message_read_flag(rops: Rops, message: OpenMessage, flags: int) -> Answer:
    if flags & 5 == 4:
        raise RopError(INVALID)
    changed = _mark(message.folder, message.draft.number, flags)
    message.draft.set_flags(message.draft.flags & ~READ | (0 if flags & 4 else READ))
    return bytes((changed,))


@rop(0x66, "i", "BBM", Folder, partial=True)
def _set_read_flags(rops: Rops, folder: Folder, asynchronous: int, flags: int, numbers: tuple[int, ...]) -> Answer:
    missing = [number for number in numbers if number not in folder.messages]
    if flags & 5 == 4:
        raise RopError(INVALID)
    for number in numbers:
        _mark(folder, number, flags)
    return bytes((bool(missing),))


def _mark(folder: Folder, number: int, flags: int) -> bool:
    """Set or clear the read flag of a stored message, and return if it changed ([MS-OXCMSG] section 2.2.3.10.1)."""
    message = folder.messages.get(number)
    if message is None or flags & 0x70:
        return False
    before = message.flags
    message.set_flags(before & ~READ | (0 if flags & 4 else READ))
    if message.flags != before:
        folder.touch()
        folder.mailbox.notify(MODIFIED, folder, message)
    return message.flags != before


@rop(0x33, "id", "MBB", Folder, partial=True)
def _move_copy_messages(
    rops: Rops, source: Folder, target: object, numbers: tuple[int, ...], asynchronous: int, copy: int
) -> Answer:
    if not isinstance(target, Folder):
        raise RopError(NOT_SUPPORTED)
    missing = False
    for number in numbers:
        message = source.messages.get(number) if copy else source.drop(number)
        if message is None:
            missing = True
        else:
            target.take(message)
    return bytes((missing,))


@rop(0x1E, "i", "BBM", Folder, partial=True)
def _delete_messages(rops: Rops, folder: Folder, asynchronous: int, notify: int, numbers: tuple[int, ...]) -> Answer:
    dropped = [folder.drop(number) for number in numbers]
    return bytes((None in dropped,))


@rop(0x07, "i", "HHT", Mailbox, Folder, OpenMessage, OpenAttachment)
def _get_properties(rops: Rops, on: Any, limit: int, wide: int, tags: tuple[int, ...]) -> Answer:
    """Return the values of these properties; those above the limit, or together too large, need a stream."""
    row = encode_row(on.values, tags, limit or 0xFFFF)
    if len(row) > rops.room - 6:
        row = encode_row(on.values, tags, (rops.room - 6 - 7 * len(tags)) // max(len(tags), 1))
    return row


@rop(0x0A, "i", "D", Folder, OpenMessage, OpenAttachment)
def _set_properties(rops: Rops, on: Folder | OpenMessage | OpenAttachment, encoded: bytes) -> Answer:
    """Set properties, and return those that only the server sets as problems ([MS-OXCPRPT] section 2.2.5)."""
    reader = Reader(encoded)
    wanted = [reader.tagged_value() for _ in range(reader.one("H"))]
    reader.end()
    if not isinstance(on, Folder):
        _check_writable(on)
    problems = []
    for index, (number, kind, value) in enumerate(wanted):
        late = isinstance(on, OpenMessage) and on.saved and number == MESSAGE_FLAGS
        if late or number in COMPUTED:
            problems.append(struct.pack("<HII", index, number << 16 | kind, COMPUTED_PROPERTY))
        elif isinstance(on, Folder):
            on.set(number, kind, value)
        else:
            on.values[number] = (kind, value)
    return struct.pack("<H", len(problems)) + b"".join(problems)


@rop(0x21, "io", "B", OpenMessage)
def _get_attachment_table(rops: Rops, message: OpenMessage, flags: int) -> Answer:
    return Table(lambda: list(message.draft.attachments.values()), partial(next, itertools.count())), b""


@rop(0x22, "io", "BI", OpenMessage)
def _open_attachment(rops: Rops, message: OpenMessage, mode: int, number: int) -> Answer:
    if number not in message.draft.attachments:
        raise RopError(NOT_FOUND)
    if mode == 1:
        _check_writable(message)
    values = dict(message.draft.attachments[number])
    return OpenAttachment(message, number, values, writable=mode in (1, 3) and message.writable), b""


@rop(0x23, "io", "", OpenMessage)
def _create_attachment(rops: Rops, message: OpenMessage) -> Answer:
    _check_writable(message)
    number = message.next_attachment
    message.next_attachment += 1
    return OpenAttachment(message, number, {}, writable=True), struct.pack("<I", number)


@rop(0x25, "ri", "B", OpenAttachment)
def _save_attachment(rops: Rops, attachment: OpenAttachment, flags: int) -> Answer:
    """Put an attachment into its message, which has yet to be saved."""
    _check_writable(attachment)
    size = sum(len(encode(kind, value)) for kind, value in attachment.values.values())
    attachment.values |= {0x0E21: (INTEGER_32, attachment.number), 0x0E20: (INTEGER_32, size)}
    attachment.message.draft.attachments[attachment.number] = dict(attachment.values)
    attachment.writable = bool(flags & 2)
    return b""


@rop(0x2B, "io", "IB", OpenMessage, OpenAttachment)
def _open_stream(rops: Rops, on: OpenMessage | OpenAttachment, tag: int, mode: int) -> Answer:
    """Open a property as a stream to read (0), to change (1), or from nothing (2) ([MS-OXCPRPT] section 2.2.14)."""
    if tag & 0xFFFF not in (BINARY, STRING, STRING_8):
        raise RopError(NOT_SUPPORTED)
    if mode > 2:
        raise RopError(INVALID)
    if mode and not on.writable:
        raise RopError(STREAM_ACCESS)
    value = b"" if mode == 2 else find(on.values, tag)
    if value is None:
        raise RopError(NOT_FOUND)
    if isinstance(value, str):
        value = encode(tag & 0xFFFF, value)[: -2 if tag & 0xFFFF == STRING else -1]
    return Stream(on, tag, bytearray(value), writable=mode > 0), struct.pack("<I", len(value))


@rop(0x2C, "i", "C", Stream)
def _read_stream(rops: Rops, stream: Stream, count: int) -> Answer:
    count = min(count, rops.room - 8)
    taken = bytes(stream.content[stream.position : stream.position + count])
    stream.position += len(taken)
    return data(taken)


@rop(0x2D, "i", "D", Stream, Stream)
def _write_stream(rops: Rops, stream: Stream, written: bytes) -> Answer:
    _check_stream(stream, stream.position + len(written))
    stream.content[stream.position : stream.position + len(written)] = written
    stream.position += len(written)
    return struct.pack("<H", len(written))


def _check_stream(stream: Stream, size: int) -> None:
    if not stream.writable:
        raise RopError(STREAM_ACCESS)
    if size > LARGEST_STREAM_BYTES:
        raise RopError(TOO_BIG)


@rop(0x5D, "i", "", Stream)
def _commit_stream(rops: Rops, stream: Stream) -> Answer:
    """Set the property from the stream's bytes; a string may end with its terminator."""
    if stream.writable:
        kind, content = stream.tag & 0xFFFF, bytes(stream.content)
        if kind == BINARY:
            stream.owner.values[stream.tag >> 16] = (BINARY, content)
        else:
            text = content.decode("utf-16-le" if kind == STRING else CODE_PAGE, "replace")
            stream.owner.values[stream.tag >> 16] = (STRING, text.removesuffix("\0"))
    return b""
