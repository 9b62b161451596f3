"""Recipients of a message (MS-OXCDATA section 2.8.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from loadsim.protocols.mapi.layout import (
    U8,
    U16,
    U32,
    Optional,
    Reader,
    Sized,
    ansi,
    malformed,
    structure,
    uint16,
    unicode,
)
from loadsim.protocols.mapi.properties import Value, row_bytes, row_from

TO, CC, BCC = 1, 2, 3

_NO_TYPE, _X500, _SMTP, _LISTS = 0, 1, 3, (6, 7)
_HAS_TYPE, _UNICODE, _HAS_ADDRESS, _HAS_NAME = 0x8000, 0x0200, 0x0008, 0x0010
_STRINGS = (("address", _HAS_ADDRESS), ("name", _HAS_NAME), ("simple_name", 0x0400), ("transmitted_name", 0x0020))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipientRow:
    """A recipient. `flags` are RecipientFlags (section 2.8.3.1), which say which fields are on the wire.

    `properties` are tags and values, of the first of the columns that come with the recipients.
    """

    flags: int
    dn: str = ""
    dn_prefix_used: int = 0
    display_type: int = 0
    entry_id: bytes = b""
    search_key: bytes = b""
    address_type: str = ""
    address: str = ""
    name: str = ""
    simple_name: str = ""
    transmitted_name: str = ""
    properties: tuple[tuple[int, Value], ...] = ()


def smtp_recipient(address: str, name: str = "", properties: tuple[tuple[int, Value], ...] = ()) -> RecipientRow:
    """Return a one-off recipient, who need not be in the address book. Without a name, it is the address."""
    flags = _SMTP | _UNICODE | _HAS_ADDRESS | _HAS_NAME
    return RecipientRow(flags=flags, address=address, name=name or address, properties=properties)


class _Row:
    """The kind of a `RecipientRow`."""

    def write(self, value: Any) -> bytes:
        flags = value.flags
        type_, text = flags & 7, unicode if flags & _UNICODE else ansi
        written = uint16.write(flags)
        if type_ == _X500:
            written += bytes([value.dn_prefix_used, value.display_type]) + ansi.write(value.dn)
        elif type_ in _LISTS:
            written += Sized(uint16).write(value.entry_id) + Sized(uint16).write(value.search_key)
        elif type_ == _NO_TYPE and flags & _HAS_TYPE:
            written += ansi.write(value.address_type)
        for name, flag in _STRINGS:
            if flags & flag:
                written += text.write(getattr(value, name))
        tags, values = [each for each, _ in value.properties], [each for _, each in value.properties]
        return written + uint16.write(len(tags)) + row_bytes(tags, values)

    def read(self, reader: Reader) -> RecipientRow:
        flags = uint16.read(reader)
        type_, text = flags & 7, unicode if flags & _UNICODE else ansi
        found: dict[str, Any] = {}
        if type_ == _X500:
            found["dn_prefix_used"], found["display_type"] = reader.take(2)
            found["dn"] = ansi.read(reader)
        elif type_ in _LISTS:
            found["entry_id"], found["search_key"] = Sized(uint16).read(reader), Sized(uint16).read(reader)
        elif type_ == _NO_TYPE and flags & _HAS_TYPE:
            found["address_type"] = ansi.read(reader)
        for name, flag in _STRINGS:
            if flags & flag:
                found[name] = text.read(reader)
        count = uint16.read(reader)
        if count > len(reader.columns):
            raise malformed(f"at most {len(reader.columns)} values of a recipient", reader.at - 2)
        columns = reader.columns[:count]
        properties = tuple(zip(columns, row_from(reader, columns), strict=True))
        return RecipientRow(flags=flags, properties=properties, **found)


SizedRow = Annotated[RecipientRow | None, Sized(uint16, Optional(_Row()))]


@structure
class StoredRecipient:
    """A recipient in the response of OpenMessage (MS-OXCROPS section 2.2.6.1.2.1)."""

    kind: U8
    code_page: U16
    reserved: U16
    row: SizedRow


@structure
class ModifiedRecipient:
    """A recipient to add or change, or with None as its row to delete (MS-OXCROPS section 2.2.6.5.1.1)."""

    row_id: U32
    kind: U8
    row: SizedRow
