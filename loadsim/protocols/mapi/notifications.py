"""Events of a mailbox: RopNotify (MS-OXCNOTIF section 2.2.1.4)."""

from __future__ import annotations

from typing import NamedTuple

from loadsim.protocols.mapi.layout import Reader, Sized, ansi, uint8, uint16, uint32, uint64, unicode

NEW_MAIL, CREATED, DELETED, MODIFIED, MOVED, COPIED = 0x0002, 0x0004, 0x0008, 0x0010, 0x0020, 0x0040
TABLE_MODIFIED, _EXTENDED = 0x0100, 0x0400
_HAS_TOTAL, _HAS_UNREAD, _IN_SEARCH_FOLDER, _OF_MESSAGE = 0x1000, 0x2000, 0x4000, 0x8000
_ROW_ADDED, _ROW_DELETED, _ROW_MODIFIED = 3, 4, 5


class Notified(NamedTuple):
    """An event such as `NEW_MAIL`; None if it does not concern one folder or message."""

    event: int
    folder_id: int | None = None
    message_id: int | None = None


def read_notification(reader: Reader) -> Notified:
    """Return the notification behind its RopId, without details."""
    reader.take(5)  # NotificationHandle, LogonId
    flags = uint16.read(reader)
    event, of_message = flags & 0x0FFF, bool(flags & _OF_MESSAGE)
    folder_id = message_id = None
    if event & TABLE_MODIFIED:
        table_event = uint16.read(reader)
        if table_event in (_ROW_ADDED, _ROW_DELETED, _ROW_MODIFIED):
            folder_id = uint64.read(reader)
            if of_message:
                message_id, _instance = uint64.read(reader), uint32.read(reader)
            if table_event != _ROW_DELETED:
                reader.take(20 if of_message else 8)  # the row before it
                Sized(uint16).read(reader)  # the row
    elif not event & _EXTENDED:
        folder_id = uint64.read(reader)
        if of_message:
            message_id = uint64.read(reader)
    if event & (CREATED | DELETED | MOVED | COPIED) and bool(flags & _IN_SEARCH_FOLDER) == of_message:
        reader.take(8)  # ParentFolderId
    if event & (MOVED | COPIED):
        reader.take(16)  # OldFolderId, and OldMessageId or OldParentFolderId
    if event & (CREATED | MODIFIED):
        count = uint16.read(reader)
        reader.take(0 if count == 0xFFFF else 4 * count)  # Tags
    if flags & _HAS_TOTAL:
        reader.take(4)
    if flags & _HAS_UNREAD:
        reader.take(4)
    if event & NEW_MAIL:
        reader.take(4)  # MessageFlags
        (unicode if uint8.read(reader) else ansi).read(reader)  # MessageClass
    return Notified(event, folder_id, message_id)
