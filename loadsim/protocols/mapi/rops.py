"""Remote operations: requests and responses as values (MS-OXCROPS section 2.2; their meaning is in the document named).

A request names places in the handle table: of its object, `input`, and of the object that it opens, `output`. It states
the structure of its response. Flags have the documents' values. The logon is that of number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

from loadsim.protocols.mapi.layout import (
    U8,
    U16,
    U32,
    U64,
    Bool,
    Guid,
    Kind,
    Maybe,
    Number,
    Reader,
    Sequential,
    Several,
    Sized,
    Unicode,
    ansi,
    boolean,
    int32,
    layout_of,
    malformed,
    structure,
    uint8,
    uint16,
    uint32,
    uint64,
    unicode,
)
from loadsim.protocols.mapi.properties import Named, PropertyName, PropertyRow, TaggedValue, Value

R_co = TypeVar("R_co", covariant=True)

LOGON_CODE_PAGE = 0x0FFF
"""The code page of the logon (MS-OXCROPS section 2.2.6.1.1)."""


@dataclass(frozen=True, slots=True)
class Rop(Generic[R_co]):
    """An operation: its RopId, and the kind of its response without RopId, index and ReturnValue."""

    number: int
    response: Kind


class Request(Protocol[R_co]):
    """A request whose response is `R_co`."""

    @property
    def rop(self) -> Rop[R_co]: ...


Ids = Annotated[tuple[int, ...], Several(uint16, uint64)]
Tags = Annotated[tuple[int, ...], Several(uint16, uint32)]


nothing = Sequential(())
PARTIAL: Kind = Number("?")
"""The response of an operation on several objects: True if it failed for some."""
rows_count = uint32
"""The number of a table's rows, which the server may not know exactly."""
table_status = uint8


class ShortString:
    """A TypedString of a response (MS-OXCDATA section 2.11.7)."""

    def read(self, reader: Reader) -> str:
        type_ = uint8.read(reader)
        if type_ > 4:
            raise malformed("a type of string", reader.at - 1)
        return "" if type_ < 2 else (unicode if type_ == 4 else ansi).read(reader)


# Logons: MS-OXCSTOR section 2.2.1.

ROOT, DEFERRED_ACTION, SPOOLER_QUEUE, IPM_SUBTREE, INBOX, OUTBOX, SENT_ITEMS, DELETED_ITEMS = range(8)
"""The places of some folders in `LoggedOn.folder_ids`."""


@structure
class LoggedOn:
    """A logon to a private mailbox."""

    flags: U8
    folder_ids: Annotated[tuple[int, ...], Several(13, uint64)]
    response_flags: U8
    mailbox: Guid
    replica_id: U16
    replica: Guid
    time: U64
    address_types_changed: U64
    store_state: U32


@structure
class Logon:
    """The logon to the mailbox with this distinguished name. Its flags are Private, HOME_LOGON and the like."""

    rop: ClassVar[Rop[LoggedOn]] = Rop(0xFE, layout_of(LoggedOn))
    output: U8
    flags: U8 = 0x01
    open_flags: U32 = 0x0100_0004  # USE_PER_MDB_REPLID_MAPPING, HOME_LOGON
    store_state: U32 = 0
    mailbox_dn: Annotated[str, Sized(uint16, ansi)] = ""


@structure
class Release:
    """The end of an object. It has no response."""

    rop: ClassVar[Rop[object]] = Rop(0x01, nothing)
    input: U8


# Folders: MS-OXCFOLD section 2.2.1.


@structure
class OpenedFolder:
    """A folder of a private mailbox; a `ghosted` one is public, and elsewhere."""

    has_rules: Bool
    ghosted: Bool


@structure
class OpenFolder:
    rop: ClassVar[Rop[OpenedFolder]] = Rop(0x02, layout_of(OpenedFolder))
    input: U8
    output: U8
    folder_id: U64
    mode: U8 = 0


@structure
class CreatedFolder:
    """`existing` is None for a folder that was created now."""

    folder_id: U64
    existing: Annotated[OpenedFolder | None, Maybe(layout_of(OpenedFolder))]


@structure
class CreateFolder:
    """A folder with a name in Unicode. Its type is 1 for a generic one, 2 for a search folder."""

    rop: ClassVar[Rop[CreatedFolder]] = Rop(0x1C, layout_of(CreatedFolder))
    input: U8
    output: U8
    _: KW_ONLY
    type: U8 = 1
    unicode: U8 = 1
    open_existing: Bool = False
    reserved: U8 = 0
    name: Unicode
    comment: Unicode = ""


@structure
class DeleteFolder:
    """Flags: 0x01 with its messages, 0x04 with its folders, 0x10 not to be recovered."""

    rop: ClassVar[Rop[bool]] = Rop(0x1D, PARTIAL)
    input: U8
    flags: U8
    folder_id: U64


@structure
class MoveCopyMessages:
    rop: ClassVar[Rop[bool]] = Rop(0x33, PARTIAL)
    source: U8
    target: U8
    message_ids: Ids
    asynchronous: Bool = False
    copy: Bool = False


@structure
class DeleteMessages:
    rop: ClassVar[Rop[bool]] = Rop(0x1E, PARTIAL)
    input: U8
    _: KW_ONLY
    asynchronous: Bool = False
    notify_non_read: Bool = False
    message_ids: Ids


@structure
class GetHierarchyTable:
    """The table of folders. Flags: 0x04 of all levels, 0x40 strings in Unicode."""

    rop: ClassVar[Rop[int]] = Rop(0x04, rows_count)
    input: U8
    output: U8
    flags: U8 = 0


@structure
class GetContentsTable:
    """The table of messages. Flags: 0x02 associated ones, 0x40 strings in Unicode."""

    rop: ClassVar[Rop[int]] = Rop(0x05, rows_count)
    input: U8
    output: U8
    flags: U8 = 0


# Tables: MS-OXCTABL section 2.2.2.


@structure
class SetColumns:
    rop: ClassVar[Rop[int]] = Rop(0x12, table_status)
    input: U8
    _: KW_ONLY
    flags: U8 = 0
    columns: Tags


ASCENDING, DESCENDING = 0, 1


@structure
class SortOrder:
    tag: U32
    order: U8


@structure
class SortTable:
    """The order of the rows, without categories, whose two counts of 16 bits are 0."""

    rop: ClassVar[Rop[int]] = Rop(0x13, table_status)
    input: U8
    _: KW_ONLY
    flags: U8 = 0
    keys: Annotated[tuple[SortOrder, ...], Several(Number("H4x"), layout_of(SortOrder))]


BEGINNING, CURRENT, END = range(3)


@structure
class Rows:
    """The values of rows, in the order of the columns. `origin` says where the cursor is now."""

    origin: U8
    rows: Annotated[tuple[tuple[Any, ...], ...], Several(uint16, PropertyRow())]


@structure
class QueryRows:
    """The next rows of a table whose columns are these. Flags: 0x01 the cursor stays."""

    rop: ClassVar[Rop[Rows]] = Rop(0x15, layout_of(Rows))
    input: U8
    _: KW_ONLY
    flags: U8 = 0
    forward: Bool = True
    count: U16
    columns: tuple[int, ...] = ()


@structure
class SeekRow:
    rop: ClassVar[Rop[Sequence[int]]] = Rop(0x18, Sequential((boolean, int32)))
    input: U8
    origin: U8
    rows: Annotated[int, int32]
    want_moved: Bool = True


# Messages and attachments: MS-OXCMSG section 2.2.3.


@structure
class OpenedMessage:
    """A message; `recipients` are the first of `recipient_count`, in rows that are not parsed."""

    has_named_properties: Bool
    subject_prefix: Annotated[str, ShortString()]
    subject: Annotated[str, ShortString()]
    recipient_count: U16
    columns: Tags
    recipients: Annotated[tuple[Any, ...], Several(uint8, Sequential((Number("5s"), Sized(uint16))))]


@structure
class OpenMessage:
    """Flags of `mode`: 0 to read, 1 to write, 3 as permitted."""

    rop: ClassVar[Rop[OpenedMessage]] = Rop(0x03, layout_of(OpenedMessage))
    input: U8
    output: U8
    _: KW_ONLY
    code_page: U16 = LOGON_CODE_PAGE
    folder_id: U64
    mode: U8 = 0
    message_id: U64


@structure
class CreateMessage:
    rop: ClassVar[Rop[int | None]] = Rop(0x06, Maybe(uint64))
    input: U8
    output: U8
    _: KW_ONLY
    code_page: U16 = LOGON_CODE_PAGE
    folder_id: U64
    associated: Bool = False


@structure
class SavedMessage:
    input: U8
    message_id: U64


@structure
class SaveChangesMessage:
    """Flags: 0x01 keep it open to read, 0x02 to write, 0x04 overwrite. The response repeats `handle`, any place."""

    rop: ClassVar[Rop[SavedMessage]] = Rop(0x0C, layout_of(SavedMessage))
    handle: U8
    input: U8
    flags: U8 = 0


TO = 1

_SMTP, _UNICODE, _HAS_ADDRESS, _HAS_NAME = 0x0003, 0x0200, 0x0008, 0x0010
"""RecipientFlags (MS-OXCDATA section 2.8.3.1)."""


@structure
class RecipientRow:
    """A recipient with an SMTP address (MS-OXCDATA section 2.8.3.2), who need not be in the address book."""

    _: KW_ONLY
    flags: U16 = _SMTP | _UNICODE | _HAS_ADDRESS | _HAS_NAME
    address: Unicode
    name: Unicode
    columns: U16 = 0
    lacks: U8 = 0


def smtp_recipient(address: str) -> RecipientRow:
    """Return a recipient whose name is the address."""
    return RecipientRow(address=address, name=address)


@structure
class ModifiedRecipient:
    """A recipient to add (MS-OXCROPS section 2.2.6.5.1.1)."""

    row_id: U32
    kind: U8
    row: Annotated[RecipientRow, Sized(uint16, layout_of(RecipientRow))]


@structure
class ModifyRecipients:
    """The recipients to add, without further columns."""

    rop: ClassVar[Rop[object]] = Rop(0x0E, nothing)
    input: U8
    columns: Tags
    recipients: Annotated[tuple[ModifiedRecipient, ...], Several(uint16, layout_of(ModifiedRecipient))]


@structure
class SetReadFlags:
    """Flags: 0x04 unread, 0x01 read, without a receipt. An empty list of messages means all of the folder."""

    rop: ClassVar[Rop[bool]] = Rop(0x66, PARTIAL)
    input: U8
    _: KW_ONLY
    asynchronous: Bool = False
    flags: U8
    message_ids: Ids


@structure
class GetAttachmentTable:
    rop: ClassVar[Rop[object]] = Rop(0x21, nothing)
    input: U8
    output: U8
    flags: U8 = 0


@structure
class OpenAttachment:
    rop: ClassVar[Rop[object]] = Rop(0x22, nothing)
    input: U8
    output: U8
    _: KW_ONLY
    flags: U8 = 0
    number: U32


@structure
class CreateAttachment:
    rop: ClassVar[Rop[int]] = Rop(0x23, uint32)
    input: U8
    output: U8


@structure
class SaveChangesAttachment:
    """Flags as in `SaveChangesMessage`. `handle` is the place of the message, which the response repeats."""

    rop: ClassVar[Rop[object]] = Rop(0x25, nothing)
    handle: U8
    input: U8
    flags: U8 = 0


@structure
class SubmitMessage:
    """The message goes to its recipients (MS-OXOMSG section 2.2.3.1)."""

    rop: ClassVar[Rop[object]] = Rop(0x32, nothing)
    input: U8
    flags: U8 = 0


# Properties and streams: MS-OXCPRPT section 2.2.


@structure
class GetPropertiesSpecific:
    """The values of properties; one that is larger than `most_bytes`, or than the buffer, is `ErrorCode`."""

    rop: ClassVar[Rop[tuple[Any, ...]]] = Rop(0x07, PropertyRow())
    input: U8
    _: KW_ONLY
    most_bytes: U16 = 0
    unicode: U16 = 1
    columns: Tags


@structure
class Problem:
    """A property that was not set."""

    index: U16
    tag: U32
    code: U32


@structure
class SetProperties:
    """Tags and values, of at most 64 KiB in all; larger ones go through a stream."""

    rop: ClassVar[Rop[tuple[Problem, ...]]] = Rop(0x0A, Several(uint16, layout_of(Problem)))
    input: U8
    properties: Annotated[tuple[tuple[int, Value], ...], Sized(uint16, Several(uint16, TaggedValue()))]


@structure
class GetPropertyIdsFromNames:
    """The identifiers of names, 0 for one that has none. Flags: 0x02 creates identifiers of unknown names."""

    rop: ClassVar[Rop[tuple[int, ...]]] = Rop(0x56, Several(uint16, uint16))
    input: U8
    _: KW_ONLY
    flags: U8 = 0x02
    names: Annotated[tuple[PropertyName, ...], Several(uint16, Named())]


@structure
class OpenStream:
    """The response is the size in bytes. Flags of `mode`: 0 to read, 1 to write, 2 to create."""

    rop: ClassVar[Rop[int]] = Rop(0x2B, uint32)
    input: U8
    output: U8
    tag: U32
    mode: U8 = 0


@structure
class ReadStream:
    """At most `most_bytes` of a stream, which may not be 0xBABE."""

    rop: ClassVar[Rop[bytes]] = Rop(0x2C, Sized(uint16))
    input: U8
    most_bytes: U16


@structure
class WriteStream:
    """The response is the number of bytes that were written."""

    rop: ClassVar[Rop[int]] = Rop(0x2D, uint16)
    input: U8
    data: Annotated[bytes, Sized(uint16)]


@structure
class CommitStream:
    rop: ClassVar[Rop[object]] = Rop(0x5D, nothing)
    input: U8


@structure
class RegisterNotification:
    """Events of a folder and a message, whose identifiers follow a byte 0 (MS-OXCNOTIF section 2.2.1.2.1)."""

    rop: ClassVar[Rop[object]] = Rop(0x29, nothing)
    input: U8
    output: U8
    events: U16
    scope: Annotated[tuple[int, int], Sequential((Number("xQ"), uint64))]
