"""Events of a mailbox: RopNotify (MS-OXCNOTIF section 2.2.1.4)."""

from __future__ import annotations

from typing import NamedTuple

from loadsim.protocols.mapi.layout import Reader, ansi, malformed, uint8, uint16, uint64, unicode

NEW_MAIL, CREATED = 0x0002, 0x0004
"""The events that the driver subscribes to."""

_OF_MESSAGE = 0x8000


class Notified(NamedTuple):
    """An event of a folder, or of a message in it."""

    event: int
    folder_id: int
    message_id: int | None


def read_notification(reader: Reader) -> Notified:
    """Return the notification behind its RopId, without details. Raises `ProtocolError` for another event."""
    reader.take(5)  # NotificationHandle, LogonId
    flags = uint16.read(reader)
    event, of_message = flags & ~_OF_MESSAGE, bool(flags & _OF_MESSAGE)
    if event not in (NEW_MAIL, CREATED):
        raise malformed("an event that was subscribed to", reader.at - 2)
    folder_id = uint64.read(reader)
    message_id = uint64.read(reader) if of_message else None
    if event == NEW_MAIL:
        reader.take(4)  # MessageFlags
        (unicode if uint8.read(reader) else ansi).read(reader)  # MessageClass
    else:
        if not of_message:
            reader.take(8)  # ParentFolderId
        count = uint16.read(reader)
        reader.take(0 if count == 0xFFFF else 4 * count)  # Tags
    return Notified(event, folder_id, message_id)
