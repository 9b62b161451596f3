"""Remote operations (MS-OXCROPS section 2.2; each group names the document that defines it): requests and responses.

Flags have the documents' values. The logon has the number 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Generic, NamedTuple, TypeVar

from loadsim.protocols.mapi.codes import ERRORS_RETURNED, PARTIAL, ErrorCode
from loadsim.protocols.mapi.wire import PropertyName, Reader, Value, counted, malformed, row, sized, string, tagged

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

CODE_PAGE = 0x0FFF
"""The code page of the logon (MS-OXCROPS section 2.2.6.1.1)."""


NO_HANDLE = 0xFFFFFFFF


@dataclass(slots=True, eq=False)
class Handle:
    """An object on the server, and its number once an operation has opened it."""

    number: int = NO_HANDLE


@dataclass(slots=True, eq=False)
class Request(Generic[R_co]):
    """A request and, once executed, its `answer`, or the reason why it `failed`.

    `body` follows the places of the `objects`, the last of which is the one opened, if any. `read` reads the response
    after ReturnValue; it returns `ErrorCode` if the operation was done only in part. The executing call also fails,
    unless the request `may_fail`.
    """

    name: str
    number: int
    objects: tuple[Handle, ...]
    body: bytes
    read: Callable[[Reader], R_co | ErrorCode]
    opens: bool = False
    may_fail: bool = field(default=False, init=False)
    failed: ErrorCode | None = field(default=None, init=False)
    answer: R_co = field(init=False)

    @property
    def opened(self) -> Handle:
        return self.objects[-1]


def _opening(
    name: str, number: int, handle: Handle, body: bytes, read: Callable[[Reader], R | ErrorCode]
) -> Request[R]:
    return Request(name, number, (handle, Handle()), body, read, opens=True)


def _nothing(reader: Reader) -> None:
    """Read a response without fields."""


def _number(form: str) -> Callable[[Reader], Any]:
    """Return the function that reads a number."""
    return lambda reader: reader.number(form)


def _partial_completion(reader: Reader) -> ErrorCode | None:
    """Read the PartialCompletion of an operation on several messages."""
    return ErrorCode(PARTIAL, "not for all") if reader.number("?") else None


# Logons: MS-OXCSTOR section 2.2.1.

ROOT, DEFERRED_ACTION, SPOOLER_QUEUE, IPM_SUBTREE, INBOX, OUTBOX, SENT_ITEMS, DELETED_ITEMS = range(8)
"""The places of some folders in `LoggedOn.folder_ids`."""


class LoggedOn(NamedTuple):
    """A logon to a private mailbox."""

    folder_ids: tuple[int, ...]
    mailbox: bytes
    replica: bytes


def logon(mailbox_dn: str) -> Request[LoggedOn]:
    """Log on to the mailbox with this distinguished name: Private, USE_PER_MDB_REPLID_MAPPING, HOME_LOGON."""

    def read(reader: Reader) -> LoggedOn:
        ids = reader.unpack("x13Q")
        mailbox, replica = reader.unpack("x16sxx16s8x8x4x")
        return LoggedOn(ids, mailbox, replica)

    body = pack("<BII", 1, 0x0100_0004, 0) + sized(string(mailbox_dn, "cp1252"))
    return Request("Logon", LOGON, (Handle(),), body, read, opens=True)


LOGON = 0xFE


def release(handle: Handle) -> Request[None]:
    """Release an object. There is no response."""
    return Request("Release", RELEASE, (handle,), b"", _nothing)


RELEASE = 0x01

# Folders: MS-OXCFOLD section 2.2.1.


def _check_not_ghosted(reader: Reader) -> None:
    """Read HasRules and IsGhosted; a ghosted folder is a public one elsewhere."""
    if reader.unpack("??")[1]:
        raise malformed("a private folder", reader.at - 1)


def open_folder(handle: Handle, folder_id: int) -> Request[None]:
    return _opening("OpenFolder", 0x02, handle, pack("<QB", folder_id, 0), _check_not_ghosted)


def create_folder(handle: Handle, name: str) -> Request[int]:
    """Create a generic folder with a name in Unicode and no comment. The answer is its number."""

    def read(reader: Reader) -> int:
        folder_id: int
        folder_id, exists = reader.unpack("Q?")
        if exists:
            _check_not_ghosted(reader)
        return folder_id

    body = bytes((1, 1, 0, 0)) + string(name) + string("")
    return _opening("CreateFolder", 0x1C, handle, body, read)


def delete_folder(handle: Handle, flags: int, folder_id: int) -> Request[None]:
    """Delete a folder. Flags: 0x01 with its messages, 0x04 with its folders, 0x10 beyond recovery."""
    return Request("DeleteFolder", 0x1D, (handle,), pack("<BQ", flags, folder_id), _partial_completion)


def move_copy_messages(source: Handle, target: Handle, message_ids: Sequence[int], copy: bool = False) -> Request[None]:
    body = counted(message_ids, "Q") + pack("<??", False, copy)
    return Request("MoveCopyMessages", MOVE_COPY_MESSAGES, (source, target), body, _partial_completion)


MOVE_COPY_MESSAGES = 0x33


def delete_messages(handle: Handle, message_ids: Sequence[int], notify: bool = False) -> Request[None]:
    """Delete messages. With `notify`, senders are told that their message was not read."""
    body = pack("<??", False, notify) + counted(message_ids, "Q")
    return Request("DeleteMessages", 0x1E, (handle,), body, _partial_completion)


def get_hierarchy_table(handle: Handle, flags: int) -> Request[int]:
    """Open the table of folders; the answer is its number of rows. Flags: 0x04 all levels, 0x40 strings in Unicode."""
    return _opening("GetHierarchyTable", 0x04, handle, bytes((flags,)), _number("I"))


def get_contents_table(handle: Handle, flags: int) -> Request[int]:
    """Open the table of messages; the answer is its number of rows. Flags: 0x40 strings in Unicode."""
    return _opening("GetContentsTable", 0x05, handle, bytes((flags,)), _number("I"))


# Tables: MS-OXCTABL section 2.2.2.


def set_columns(handle: Handle, columns: Sequence[int]) -> Request[int]:
    return Request("SetColumns", 0x12, (handle,), bytes(1) + counted(columns, "I"), _number("B"))


ASCENDING = 0


def sort_table(handle: Handle, keys: Sequence[tuple[int, int]]) -> Request[int]:
    """Sort rows by tags and directions, without categories, whose two counts are 0."""
    body = pack("<BHHH", 0, len(keys), 0, 0) + b"".join([pack("<IB", *key) for key in keys])
    return Request("SortTable", 0x13, (handle,), body, _number("B"))


def restrict(handle: Handle, texts: Sequence[int], words: str) -> Request[int]:
    """Leave only rows with the words in one of the columns, ignoring case (MS-OXCDATA sections 2.12.2, 2.12.4)."""
    wanted = [pack("<BHHI", 0x03, 0x0001, 0x0001, column) + tagged(column, words) for column in texts]
    any_of = pack("<BH", 0x01, len(wanted)) + b"".join(wanted)
    return Request("Restrict", 0x14, (handle,), bytes(1) + sized(any_of), _number("B"))


BEGINNING, CURRENT, END = range(3)


class Rows(NamedTuple):
    """The values of rows, in the order of the columns. `origin` is where the cursor is now."""

    origin: int
    rows: Sequence[tuple[Value, ...]]


def query_rows(handle: Handle, count: int, columns: Sequence[int]) -> Request[Rows]:
    """Ask for the next rows of a table that has these columns."""

    def read(reader: Reader) -> Rows:
        origin, rows = reader.unpack("BH")
        return Rows(origin, [row(reader, columns) for _ in range(rows)])

    return Request("QueryRows", 0x15, (handle,), pack("<BBH", 0, 1, count), read)


def seek_row(handle: Handle, origin: int, rows: int) -> Request[tuple[bool, int]]:
    """Move the cursor. The answer states whether it moved by fewer rows, and by how many."""
    return Request("SeekRow", 0x18, (handle,), pack("<BiB", origin, rows, 1), lambda reader: reader.unpack("?i"))


# Messages and attachments: MS-OXCMSG section 2.2.3.


def open_message(handle: Handle, folder_id: int, message_id: int, mode: int = 0) -> Request[None]:
    """Open a message. `mode`: 0 to read, 1 to write, 3 as permitted. The response is not used."""

    def read(reader: Reader) -> None:
        reader.number("?")
        for _ in ("SubjectPrefix", "NormalizedSubject"):
            type_ = reader.number("B")  # MS-OXCDATA section 2.11.7
            if type_ > 4:
                raise malformed("a type of string", reader.at - 1)
            if type_ > 1:
                reader.text(2 if type_ == 4 else 1)
        reader.number("H")
        reader.numbers("H", "I")
        for _ in range(reader.number("B")):
            reader.take(5)
            reader.sized()

    body = pack("<HQBQ", CODE_PAGE, folder_id, mode, message_id)
    return _opening("OpenMessage", 0x03, handle, body, read)


def create_message(handle: Handle, folder_id: int) -> Request[int | None]:
    def read(reader: Reader) -> int | None:
        return int(reader.number("Q")) if reader.number("?") else None

    return _opening("CreateMessage", 0x06, handle, pack("<HQ?", CODE_PAGE, folder_id, False), read)


def save_changes_message(handle: Handle, flags: int = 0) -> Request[int]:
    """Save a message. The answer is its number. Flags: 0x01 keep it open to read, 0x02 to write."""
    return Request(
        "SaveChangesMessage", 0x0C, (handle, handle), bytes((flags,)), lambda reader: int(reader.number("xQ"))
    )


TO = 1


def modify_recipients(handle: Handle, addresses: Sequence[str]) -> Request[None]:
    """Add recipients by their SMTP addresses, which also serve as names (MS-OXCDATA section 2.8.3)."""
    rows = []
    for number, address in enumerate(addresses):
        flags = 0x0003 | 0x0200 | 0x0008 | 0x0010  # SMTP, in Unicode; it has an address and a name
        one = pack("<H", flags) + 2 * string(address) + pack("<HB", 0, 0)  # no further properties
        rows.append(pack("<IB", number, TO) + sized(one))
    return Request("ModifyRecipients", 0x0E, (handle,), pack("<HH", 0, len(rows)) + b"".join(rows), _nothing)


def set_read_flags(handle: Handle, flags: int, message_ids: Sequence[int]) -> Request[None]:
    """Set read flags. Flags: 0x04 unread, 0x01 read without a receipt. No ids mean all messages in the folder."""
    body = pack("<?B", False, flags) + counted(message_ids, "Q")
    return Request("SetReadFlags", 0x66, (handle,), body, _partial_completion)


def get_attachment_table(handle: Handle, flags: int) -> Request[None]:
    return _opening("GetAttachmentTable", 0x21, handle, bytes((flags,)), _nothing)


def open_attachment(handle: Handle, number: int) -> Request[None]:
    return _opening("OpenAttachment", 0x22, handle, pack("<BI", 0, number), _nothing)


def create_attachment(handle: Handle) -> Request[int]:
    return _opening("CreateAttachment", 0x23, handle, b"", _number("I"))


def save_changes_attachment(message: Handle, handle: Handle) -> Request[None]:
    return Request("SaveChangesAttachment", 0x25, (message, handle), bytes(1), _nothing)


def submit_message(handle: Handle) -> Request[None]:
    """Submit a message to its recipients (MS-OXOMSG section 2.2.3.1)."""
    return Request("SubmitMessage", 0x32, (handle,), bytes(1), _nothing)


# Properties and streams: MS-OXCPRPT section 2.2.


def get_properties_specific(handle: Handle, columns: Sequence[int]) -> Request[tuple[Value, ...]]:
    """Get properties' values; one larger than the buffer is `ErrorCode`."""
    body = pack("<HH", 0, 1) + counted(columns, "I")
    return Request("GetPropertiesSpecific", 0x07, (handle,), body, lambda reader: row(reader, columns))


def set_properties(handle: Handle, properties: Sequence[tuple[int, Value]]) -> Request[None]:
    """Set properties of at most 64 KiB in total; larger ones go through a stream. Fails if a property is not set."""

    def read(reader: Reader) -> ErrorCode | None:
        problems = [reader.unpack("HII") for _ in range(reader.number("H"))]
        return ErrorCode(problems[0][2], f"property 0x{problems[0][1]:08X}") if problems else None

    values = b"".join([tagged(*each) for each in properties])
    body = sized(pack("<H", len(properties)) + values)
    return Request("SetProperties", 0x0A, (handle,), body, read)


def get_property_ids_from_names(handle: Handle, names: Sequence[PropertyName]) -> Request[tuple[int, ...]]:
    """Get the identifiers of property names, creating them if needed; 0 for a name that has none."""
    body = pack("<BH", 0x02, len(names)) + b"".join([name.encoded() for name in names])
    return Request("GetPropertyIdsFromNames", PROPERTY_IDS, (handle,), body, lambda reader: reader.numbers("H", "H"))


PROPERTY_IDS = 0x56


def open_stream(handle: Handle, tag: int, mode: int = 0) -> Request[int]:
    """Open a property's stream; the answer is its size in bytes. `mode`: 0 to read, 1 to write, 2 to create."""
    return _opening("OpenStream", 0x2B, handle, pack("<IB", tag, mode), _number("I"))


def read_stream(handle: Handle, most_bytes: int) -> Request[bytes]:
    """Read at most `most_bytes` of a stream; 0xBABE is not allowed."""
    return Request("ReadStream", 0x2C, (handle,), pack("<H", most_bytes), Reader.sized)


def write_stream(handle: Handle, data: bytes) -> Request[None]:
    def read(reader: Reader) -> ErrorCode | None:
        written = reader.number("H")
        return None if written == len(data) else ErrorCode(ERRORS_RETURNED, f"{written} of {len(data)} bytes")

    return Request("WriteStream", 0x2D, (handle,), sized(data), read)


def commit_stream(handle: Handle) -> Request[None]:
    return Request("CommitStream", 0x5D, (handle,), b"", _nothing)


def register_notification(handle: Handle, events: int, folder_id: int) -> Request[None]:
    """Subscribe to a folder's events (MS-OXCNOTIF section 2.2.1.2.1)."""
    return _opening("RegisterNotification", 0x29, handle, pack("<HBQQ", events, 0, folder_id, 0), _nothing)
