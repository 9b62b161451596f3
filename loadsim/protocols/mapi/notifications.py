"""Events of a mailbox: RopNotify (MS-OXCNOTIF section 2.2.1.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadsim.protocols.mapi.layout import Reader, Several, ansi, uint8, uint16, uint32, uint64, unicode

NEW_MAIL, CREATED, DELETED, MODIFIED, MOVED, COPIED = 0x0002, 0x0004, 0x0008, 0x0010, 0x0020, 0x0040
TABLE_MODIFIED, EXTENDED = 0x0100, 0x0400
_HAS_TOTAL, _HAS_UNREAD, _IN_SEARCH_FOLDER, _OF_MESSAGE = 0x1000, 0x2000, 0x4000, 0x8000

ROW_ADDED, ROW_DELETED, ROW_MODIFIED = 3, 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """An event for the subscription or table with this handle.

    `event` is one such as `NEW_MAIL`. For `TABLE_MODIFIED`, `table_event` is one such as `ROW_ADDED`, and `row` holds
    the bytes of a row. None is a field that the event does not have.
    """

    handle: int
    logon: int
    event: int
    table_event: int | None = None
    row: bytes | None = None
    folder_id: int | None = None
    message_id: int | None = None
    parent_id: int | None = None
    old_folder_id: int | None = None
    old_message_id: int | None = None
    old_parent_id: int | None = None
    tags: tuple[int, ...] = ()
    total: int | None = None
    unread: int | None = None
    message_flags: int | None = None
    message_class: str | None = None


def read_notification(reader: Reader) -> Notified:
    """Return the notification behind its RopId."""
    handle, logon, flags = uint32.read(reader), uint8.read(reader), uint16.read(reader)
    event, of_message = flags & 0x0FFF, bool(flags & _OF_MESSAGE)
    found: dict[str, Any] = {}
    if event & TABLE_MODIFIED:
        found["table_event"] = table_event = uint16.read(reader)
        if table_event in (ROW_ADDED, ROW_DELETED, ROW_MODIFIED):
            found["folder_id"] = uint64.read(reader)
            if of_message:
                found["message_id"], _instance = uint64.read(reader), uint32.read(reader)
            if table_event != ROW_DELETED:
                reader.take(20 if of_message else 8)  # the row before it
                found["row"] = reader.take(uint16.read(reader))
    elif not event & EXTENDED:
        found["folder_id"] = uint64.read(reader)
        if of_message:
            found["message_id"] = uint64.read(reader)
    if event & (CREATED | DELETED | MOVED | COPIED) and bool(flags & _IN_SEARCH_FOLDER) == of_message:
        found["parent_id"] = uint64.read(reader)
    if event & (MOVED | COPIED):
        found["old_folder_id"] = uint64.read(reader)
        found["old_message_id" if of_message else "old_parent_id"] = uint64.read(reader)
    if event & (CREATED | MODIFIED):
        count = uint16.read(reader)
        found["tags"] = Several(0 if count == 0xFFFF else count, uint32).read(reader)
    if flags & _HAS_TOTAL:
        found["total"] = uint32.read(reader)
    if flags & _HAS_UNREAD:
        found["unread"] = uint32.read(reader)
    if event & NEW_MAIL:
        found["message_flags"] = uint32.read(reader)
        found["message_class"] = (unicode if uint8.read(reader) else ansi).read(reader)
    return Notified(handle=handle, logon=logon, event=event, **found)
