"""Remote operations (MS-OXCROPS section 2.2; their meaning is in the document named): requests, and their responses.

Objects are places in the handle table of a batch: `at` is that of the object, `output` that of one which is opened.
Flags have the documents' values. The logon is that of number 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Generic, NamedTuple, TypeVar

from loadsim.protocols.mapi.codes import ERRORS_RETURNED, PARTIAL, ErrorCode
from loadsim.protocols.mapi.wire import PropertyName, Reader, Value, malformed, row, several, sized, string, tagged

R = TypeVar("R")

CODE_PAGE = 0x0FFF
"""The code page of the logon (MS-OXCROPS section 2.2.6.1.1)."""


@dataclass(slots=True, eq=False)
class Request(Generic[R]):
    """A request without its RopId, and its answer once it was executed: `answer`, or the reason why it `failed`.

    `read` reads the response behind ReturnValue. It returns `ErrorCode` for what was done in part. The response repeats
    `place`.
    """

    name: str
    number: int
    body: bytes
    place: int
    read: Callable[[Reader], R | ErrorCode]
    failed: ErrorCode | None = field(default=None, init=False)
    answer: R = field(init=False)


def _nothing(reader: Reader) -> None:
    """Read a response without fields."""


def _of(form: str) -> Callable[[Reader], Any]:
    """Return the function that reads a number."""
    return lambda reader: reader.number(form)


def _of_all(reader: Reader) -> ErrorCode | None:
    """Read PartialCompletion, of an operation on several messages."""
    return ErrorCode(PARTIAL, "not for all") if reader.number("?") else None


# Logons: MS-OXCSTOR section 2.2.1.

ROOT, DEFERRED_ACTION, SPOOLER_QUEUE, IPM_SUBTREE, INBOX, OUTBOX, SENT_ITEMS, DELETED_ITEMS = range(8)
"""The places of some folders in `LoggedOn.folder_ids`."""


class LoggedOn(NamedTuple):
    """A logon to a private mailbox."""

    folder_ids: tuple[int, ...]
    mailbox: bytes
    replica: bytes


def logon(output: int, mailbox_dn: str) -> Request[LoggedOn]:
    """The logon to the mailbox with this distinguished name: Private, USE_PER_MDB_REPLID_MAPPING, HOME_LOGON."""

    def read(reader: Reader) -> LoggedOn:
        ids = reader.unpack("x13Q")
        mailbox, replica = reader.unpack("x16sxx16s8x8x4x")
        return LoggedOn(ids, mailbox, replica)

    body = pack("<BBII", output, 1, 0x0100_0004, 0) + sized(string(mailbox_dn, "cp1252"))
    return Request("Logon", LOGON, body, output, read)


LOGON = 0xFE


def release(at: int) -> Request[None]:
    """The end of an object. It has no response."""
    return Request("Release", RELEASE, bytes((at,)), at, _nothing)


RELEASE = 0x01

# Folders: MS-OXCFOLD section 2.2.1.


def _folder(reader: Reader) -> None:
    """Read HasRules and IsGhosted; a ghosted folder is public, and elsewhere."""
    if reader.unpack("??")[1]:
        raise malformed("a private folder", reader.at - 1)


def open_folder(at: int, output: int, folder_id: int) -> Request[None]:
    return Request("OpenFolder", 0x02, pack("<BBQB", at, output, folder_id, 0), output, _folder)


def create_folder(at: int, output: int, name: str) -> Request[int]:
    """A generic folder with a name in Unicode, and without a comment. Its number is the answer."""

    def read(reader: Reader) -> int:
        folder_id: int
        folder_id, exists = reader.unpack("Q?")
        if exists:
            _folder(reader)
        return folder_id

    body = pack("<BBBBBB", at, output, 1, 1, 0, 0) + string(name) + string("")
    return Request("CreateFolder", 0x1C, body, output, read)


def delete_folder(at: int, flags: int, folder_id: int) -> Request[None]:
    """Flags: 0x01 with its messages, 0x04 with its folders, 0x10 not to be recovered."""
    return Request("DeleteFolder", 0x1D, pack("<BBQ", at, flags, folder_id), at, _of_all)


def move_copy_messages(source: int, target: int, message_ids: Sequence[int], copy: bool = False) -> Request[None]:
    body = bytes((source, target)) + several(message_ids, "Q") + pack("<??", False, copy)
    return Request("MoveCopyMessages", MOVE_COPY_MESSAGES, body, source, _of_all)


MOVE_COPY_MESSAGES = 0x33


def delete_messages(at: int, message_ids: Sequence[int], notify: bool = False) -> Request[None]:
    """With `notify`, senders learn that a message was not read."""
    body = pack("<B??", at, False, notify) + several(message_ids, "Q")
    return Request("DeleteMessages", 0x1E, body, at, _of_all)


def get_hierarchy_table(at: int, output: int, flags: int) -> Request[int]:
    """The table of folders; the answer is its number of rows. Flags: 0x04 of all levels, 0x40 strings in Unicode."""
    return Request("GetHierarchyTable", 0x04, bytes((at, output, flags)), output, _of("I"))


def get_contents_table(at: int, output: int, flags: int) -> Request[int]:
    """The table of messages; the answer is its number of rows. Flags: 0x40 strings in Unicode."""
    return Request("GetContentsTable", 0x05, bytes((at, output, flags)), output, _of("I"))


# Tables: MS-OXCTABL section 2.2.2.


def set_columns(at: int, columns: Sequence[int]) -> Request[int]:
    return Request("SetColumns", 0x12, bytes((at, 0)) + several(columns, "I"), at, _of("B"))


ASCENDING, DESCENDING = 0, 1


def sort_table(at: int, keys: Sequence[tuple[int, int]]) -> Request[int]:
    """The order of the rows by tags and directions, without categories, whose two counts are 0."""
    body = pack("<BBHHH", at, 0, len(keys), 0, 0) + b"".join([pack("<IB", *key) for key in keys])
    return Request("SortTable", 0x13, body, at, _of("B"))


BEGINNING, CURRENT, END = range(3)


class Rows(NamedTuple):
    """The values of rows, in the order of the columns. `origin` says where the cursor is now."""

    origin: int
    rows: Sequence[tuple[Value, ...]]


def query_rows(at: int, count: int, columns: Sequence[int]) -> Request[Rows]:
    """The next rows of a table that has these columns."""

    def read(reader: Reader) -> Rows:
        origin, found = reader.unpack("BH")
        return Rows(origin, [row(reader, columns) for _ in range(found)])

    return Request("QueryRows", 0x15, pack("<BBBH", at, 0, 1, count), at, read)


def seek_row(at: int, origin: int, rows: int) -> Request[tuple[bool, int]]:
    """The answer says if the cursor moved by fewer rows, and by how many."""
    return Request("SeekRow", 0x18, pack("<BBiB", at, origin, rows, 1), at, lambda reader: reader.unpack("?i"))


# Messages and attachments: MS-OXCMSG section 2.2.3.


def open_message(at: int, output: int, folder_id: int, message_id: int, mode: int = 0) -> Request[None]:
    """Flags of `mode`: 0 to read, 1 to write, 3 as permitted. Nothing of the response is used."""

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

    body = pack("<BBHQBQ", at, output, CODE_PAGE, folder_id, mode, message_id)
    return Request("OpenMessage", 0x03, body, output, read)


def create_message(at: int, output: int, folder_id: int) -> Request[int | None]:
    def read(reader: Reader) -> int | None:
        return int(reader.number("Q")) if reader.number("?") else None

    body = pack("<BBHQ?", at, output, CODE_PAGE, folder_id, False)
    return Request("CreateMessage", 0x06, body, output, read)


def save_changes_message(handle: int, at: int, flags: int = 0) -> Request[int]:
    """The message's number is the answer. `handle` is any place. Flags: 0x01 keep it open to read, 0x02 to write."""
    body = bytes((handle, at, flags))
    return Request("SaveChangesMessage", 0x0C, body, handle, lambda reader: int(reader.number("xQ")))


TO = 1


def modify_recipients(at: int, addresses: Sequence[str]) -> Request[None]:
    """The recipients to add, by SMTP addresses, which are their names, too (MS-OXCDATA section 2.8.3)."""
    rows = []
    for number, address in enumerate(addresses):
        flags = 0x0003 | 0x0200 | 0x0008 | 0x0010  # SMTP, in Unicode; it has an address and a name
        one = pack("<H", flags) + 2 * string(address) + pack("<HB", 0, 0)  # no further properties
        rows.append(pack("<IB", number, TO) + sized(one))
    body = pack("<BHH", at, 0, len(rows)) + b"".join(rows)
    return Request("ModifyRecipients", 0x0E, body, at, _nothing)


def set_read_flags(at: int, flags: int, message_ids: Sequence[int]) -> Request[None]:
    """Flags: 0x04 unread, 0x01 read, without a receipt. An empty list of messages means all of the folder."""
    body = pack("<B?B", at, False, flags) + several(message_ids, "Q")
    return Request("SetReadFlags", 0x66, body, at, _of_all)


def get_attachment_table(at: int, output: int, flags: int) -> Request[None]:
    return Request("GetAttachmentTable", 0x21, bytes((at, output, flags)), output, _nothing)


def open_attachment(at: int, output: int, number: int) -> Request[None]:
    return Request("OpenAttachment", 0x22, pack("<BBBI", at, output, 0, number), output, _nothing)


def create_attachment(at: int, output: int) -> Request[int]:
    return Request("CreateAttachment", 0x23, bytes((at, output)), output, _of("I"))


def save_changes_attachment(handle: int, at: int) -> Request[None]:
    """`handle` is the place of the message, which the response repeats."""
    return Request("SaveChangesAttachment", 0x25, bytes((handle, at, 0)), handle, _nothing)


def submit_message(at: int) -> Request[None]:
    """The message goes to its recipients (MS-OXOMSG section 2.2.3.1)."""
    return Request("SubmitMessage", 0x32, bytes((at, 0)), at, _nothing)


# Properties and streams: MS-OXCPRPT section 2.2.


def get_properties_specific(at: int, columns: Sequence[int]) -> Request[tuple[Value, ...]]:
    """The values of properties; one that is larger than the buffer is `ErrorCode`."""
    body = pack("<BHH", at, 0, 1) + several(columns, "I")
    return Request("GetPropertiesSpecific", 0x07, body, at, lambda reader: row(reader, columns))


def set_properties(at: int, properties: Sequence[tuple[int, Value]]) -> Request[None]:
    """Tags and values, of at most 64 KiB in all; larger ones go through a stream. A property that is not set fails."""

    def read(reader: Reader) -> ErrorCode | None:
        problems = [reader.unpack("HII") for _ in range(reader.number("H"))]
        return ErrorCode(problems[0][2], f"property 0x{problems[0][1]:08X}") if problems else None

    values = b"".join([tagged(*each) for each in properties])
    body = bytes((at,)) + sized(pack("<H", len(properties)) + values)
    return Request("SetProperties", 0x0A, body, at, read)


def get_property_ids_from_names(at: int, names: Sequence[PropertyName]) -> Request[tuple[int, ...]]:
    """The identifiers of names, which are created; 0 for one that has none."""
    body = pack("<BBH", at, 0x02, len(names)) + b"".join([name.encoded() for name in names])
    return Request("GetPropertyIdsFromNames", PROPERTY_IDS, body, at, lambda reader: reader.numbers("H", "H"))


PROPERTY_IDS = 0x56


def open_stream(at: int, output: int, tag: int, mode: int = 0) -> Request[int]:
    """The answer is the size in bytes. Flags of `mode`: 0 to read, 1 to write, 2 to create."""
    return Request("OpenStream", 0x2B, pack("<BBIB", at, output, tag, mode), output, _of("I"))


def read_stream(at: int, most_bytes: int) -> Request[bytes]:
    """At most `most_bytes` of a stream, which may not be 0xBABE."""
    return Request("ReadStream", 0x2C, pack("<BH", at, most_bytes), at, Reader.sized)


def write_stream(at: int, data: bytes) -> Request[None]:
    def read(reader: Reader) -> ErrorCode | None:
        written = reader.number("H")
        return None if written == len(data) else ErrorCode(ERRORS_RETURNED, f"{written} of {len(data)} bytes")

    return Request("WriteStream", 0x2D, bytes((at,)) + sized(data), at, read)


def commit_stream(at: int) -> Request[None]:
    return Request("CommitStream", 0x5D, bytes((at,)), at, _nothing)


def register_notification(at: int, output: int, events: int, folder_id: int) -> Request[None]:
    """Events of a folder (MS-OXCNOTIF section 2.2.1.2.1)."""
    body = pack("<BBHBQQ", at, output, events, 0, folder_id, 0)
    return Request("RegisterNotification", 0x29, body, output, _nothing)
