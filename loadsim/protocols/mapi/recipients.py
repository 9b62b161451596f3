"""Recipients of a message, who need not be in the address book (MS-OXCDATA section 2.8.3)."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated

from loadsim.protocols.mapi.layout import U8, U16, U32, Sized, Unicode, layout_of, structure, uint16

TO = 1

_SMTP, _UNICODE, _HAS_ADDRESS, _HAS_NAME = 0x0003, 0x0200, 0x0008, 0x0010
"""RecipientFlags (section 2.8.3.1)."""


@structure
class RecipientRow:
    """A recipient with an SMTP address (section 2.8.3.2), and a row of no further properties."""

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
