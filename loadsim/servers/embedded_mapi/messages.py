"""Operations on messages, attachments and streams, and on properties."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from functools import partial

from loadsim.servers.embedded_mapi.folders import Answer, Call, Operation, Table
from loadsim.servers.embedded_mapi.store import (
    COMPUTED,
    MESSAGE_FLAGS,
    READ,
    SENT_MAIL_ENTRY_ID,
    SUBJECT,
    UNMODIFIED,
    UNSENT,
    Folder,
    Mailbox,
    Message,
    size_bytes,
)
from loadsim.servers.embedded_mapi.wire import (
    BINARY,
    STRING,
    TO,
    Error,
    Reader,
    RopError,
    Values,
    encode_recipient,
    encode_row,
    sized,
    typed_string,
)

LARGEST_STREAM_BYTES = 32 * 1024 * 1024


@dataclass(slots=True, eq=False)
class OpenMessage:
    """A message as its client sees it, with the client's unsaved changes in `draft`."""

    folder: Folder
    draft: Message
    writable: bool
    saved: bool = False

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


def open_message(call: Call, on: object, code_page: int, folder_number: int, mode: int, number: int) -> Answer:
    folder = call.mailbox.folder(folder_number)
    if mode > 1:
        raise RopError(Error.INVALID)
    if number not in folder.messages:
        raise RopError(Error.NOT_FOUND)
    draft = folder.messages[number].copy(number)
    message = OpenMessage(folder, draft, mode > 0, saved=True)
    head = bytes((any(tag >> 31 for tag in draft.values),)) + typed_string("")
    head += typed_string(draft.values.get(SUBJECT, ""))
    recipients = draft.recipients.values()
    head += struct.pack("<HH", len(recipients), 0)
    rows = _that_fit([encode_recipient(recipient) for recipient in recipients], call.room_bytes - 7 - len(head))
    return message, head + bytes((len(rows),)) + b"".join(rows)


def _that_fit(rows: list[bytes], room: int) -> list[bytes]:
    """Return the first rows that fit into this size; their number must fit into a byte."""
    fitting = []
    for row in rows[:0xFF]:
        room -= len(row)
        if room < 0:
            break
        fitting.append(row)
    return fitting


def create_message(call: Call, on: object, code_page: int, folder_number: int, associated: int) -> Answer:
    folder = call.mailbox.folder(folder_number)
    if associated:
        raise RopError(Error.NOT_SUPPORTED)
    draft = Message(call.mailbox.next_number(), {MESSAGE_FLAGS: READ | UNSENT})
    return OpenMessage(folder, draft, writable=True), b"\0"


def modify_recipients(
    call: Call, message: OpenMessage, wanted: tuple[tuple[int, ...], list[tuple[int, int, bytes]]]
) -> Answer:
    columns, rows = wanted
    _check_writable(message)
    if columns:
        raise RopError(Error.NOT_SUPPORTED)
    changes: dict[int, Values] = {}
    for row, kind, encoded in rows:
        reader = Reader(encoded)
        changes[row] = reader.recipient()
        reader.end()
        if kind != TO:
            raise RopError(Error.NOT_SUPPORTED)
    message.draft.recipients |= changes
    return b""


def save_changes(call: Call, message: OpenMessage, flags: int) -> Answer:
    """Store a copy of the draft; changes made by others in the meantime are lost."""
    _check_writable(message)
    message.folder.put(message.draft.copy(message.draft.number))
    message.saved, message.writable = True, bool(flags & 2)
    return bytes((call.input_index,)) + struct.pack("<Q", message.draft.number)


def _check_writable(on: OpenMessage | OpenAttachment) -> None:
    if not on.writable:
        raise RopError(Error.ACCESS_DENIED)


def submit_message(call: Call, message: OpenMessage, flags: int) -> Answer:
    """Deliver a message, then move it to the folder that it names, if any ([MS-OXOMSG] section 3.2.4.2)."""
    _check_writable(message)
    draft, folder = message.draft, message.folder
    if not draft.recipients:
        raise RopError(Error.NO_RECIPIENTS)
    sent_to = b"\x01\0" + draft.values.get(SENT_MAIL_ENTRY_ID, b"")[38:44]
    target = call.mailbox.folder(int.from_bytes(sent_to, "little")) if len(sent_to) == 8 else folder
    call.store.submit(call.mailbox, draft)
    draft.values[MESSAGE_FLAGS] = (draft.flags | READ | UNMODIFIED) & ~UNSENT
    target.take(draft)
    folder.drop(draft.number)
    return b""


def get_properties(
    call: Call, on: Folder | OpenMessage | OpenAttachment, limit: int, unicode: int, tags: tuple[int, ...]
) -> Answer:
    return encode_row(on.values, tags)


def set_properties(call: Call, on: Folder | OpenMessage | OpenAttachment, encoded: bytes) -> Answer:
    """Set properties, and return as problems those that only the server sets ([MS-OXCPRPT] section 2.2.5)."""
    reader = Reader(encoded)
    wanted = [reader.tagged_value() for _ in range(reader.one("H"))]
    reader.end()
    if not isinstance(on, Folder):
        _check_writable(on)
    problems = []
    for index, (tag, value) in enumerate(wanted):
        if tag in COMPUTED or (tag == MESSAGE_FLAGS and isinstance(on, OpenMessage) and on.saved):
            problems.append(struct.pack("<HII", index, tag, Error.COMPUTED))
        else:
            (on.own if isinstance(on, Folder) else on.values)[tag] = value
    if isinstance(on, Folder):
        on.touch()
    return struct.pack("<H", len(problems)) + b"".join(problems)


def get_attachment_table(call: Call, message: OpenMessage, flags: int) -> Answer:
    return Table(lambda: list(message.draft.attachments.values()), partial(next, itertools.count())), b""


def open_attachment(call: Call, message: OpenMessage, mode: int, number: int) -> Answer:
    if number not in message.draft.attachments:
        raise RopError(Error.NOT_FOUND)
    if mode:
        raise RopError(Error.NOT_SUPPORTED)
    return OpenAttachment(message, number, dict(message.draft.attachments[number]), writable=False), b""


def create_attachment(call: Call, message: OpenMessage) -> Answer:
    """Open a new attachment; any earlier one has been saved."""
    _check_writable(message)
    number = len(message.draft.attachments)
    return OpenAttachment(message, number, {}, writable=True), struct.pack("<I", number)


def save_attachment(call: Call, attachment: OpenAttachment, flags: int) -> Answer:
    """Add an attachment to its message, which has yet to be saved ([MS-OXCMSG] section 2.2.3.15)."""
    if call.parent is not attachment.message:
        raise RopError(Error.NOT_SUPPORTED)
    _check_writable(attachment)
    attachment.values |= {0x0E210003: attachment.number, 0x0E200003: size_bytes(attachment.values)}
    attachment.message.draft.attachments[attachment.number] = dict(attachment.values)
    attachment.writable = bool(flags & 2)
    return b""


def open_stream(call: Call, on: OpenMessage | OpenAttachment, tag: int, mode: int) -> Answer:
    """Open a property as a stream, to read (0) or to replace it (2) ([MS-OXCPRPT] section 2.2.14)."""
    if tag & 0xFFFF not in (BINARY, STRING) or mode not in (0, 2):
        raise RopError(Error.NOT_SUPPORTED)
    if mode and not on.writable:
        raise RopError(Error.STREAM_ACCESS)
    value = b"" if mode == 2 else on.values.get(tag)
    if value is None:
        raise RopError(Error.NOT_FOUND)
    if isinstance(value, str):
        value = value.encode("utf-16-le", "replace")
    return Stream(on, tag, bytearray(value), writable=mode > 0), struct.pack("<I", len(value))


def read_stream(call: Call, stream: Stream, count: int) -> Answer:
    count = min(count, call.room_bytes - 8)
    taken = bytes(stream.content[stream.position : stream.position + count])
    stream.position += len(taken)
    return sized(taken)


def write_stream(call: Call, stream: Stream, written: bytes) -> Answer:
    if not stream.writable:
        raise RopError(Error.STREAM_ACCESS)
    if stream.position + len(written) > LARGEST_STREAM_BYTES:
        raise RopError(Error.TOO_BIG)
    stream.content[stream.position : stream.position + len(written)] = written
    stream.position += len(written)
    return struct.pack("<H", len(written))


def commit_stream(call: Call, stream: Stream) -> Answer:
    """Set the property from the stream's bytes; a string may end with its terminator."""
    if stream.writable:
        content = bytes(stream.content)
        is_text = stream.tag & 0xFFFF == STRING
        value = content.decode("utf-16-le", "replace").removesuffix("\0") if is_text else content
        stream.owner.values[stream.tag] = value
    return b""


OPERATIONS = {
    0x03: Operation("io", "HQBQ", (Mailbox, Folder), open_message),
    0x06: Operation("io", "HQB", (Mailbox, Folder), create_message),
    0x0E: Operation("i", "R", (OpenMessage,), modify_recipients),
    0x0C: Operation("ri", "B", (OpenMessage,), save_changes),
    0x32: Operation("i", "B", (OpenMessage,), submit_message),
    0x07: Operation("i", "HHT", (Folder, OpenMessage, OpenAttachment), get_properties),
    0x0A: Operation("i", "D", (Folder, OpenMessage, OpenAttachment), set_properties),
    0x21: Operation("io", "B", (OpenMessage,), get_attachment_table),
    0x22: Operation("io", "BI", (OpenMessage,), open_attachment),
    0x23: Operation("io", "", (OpenMessage,), create_attachment),
    0x25: Operation("ri", "B", (OpenAttachment,), save_attachment),
    0x2B: Operation("io", "IB", (OpenMessage, OpenAttachment), open_stream),
    0x2C: Operation("i", "H", (Stream,), read_stream),
    0x2D: Operation("i", "D", (Stream,), write_stream),
    0x5D: Operation("i", "", (Stream,), commit_stream),
}
