"""The examples of Microsoft's documents for remote operations, and buffers of responses made of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from loadsim.protocols.mapi import rops
from loadsim.protocols.mapi.codes import ErrorCode
from loadsim.protocols.mapi.rop_buffer import Table
from loadsim.protocols.mapi.rops import Handle, Request

AT = [Handle() for _ in range(10)]
"""Objects in these places."""


def table_of(*requests: Request[Any], opened: int = 1) -> Table:
    """Return a handle table with `AT`, and what the requests open in the same place."""
    return {each: place for place, each in enumerate(AT)} | {each.opened: opened for each in requests if each.opens}


class Example(NamedTuple):
    """A request with its bytes, and a response with its value; either may be missing in the document."""

    section: str
    request: Request[Any]
    sent: str = ""
    received: str = ""
    answer: object = None

    @property
    def table(self) -> Table:
        """The handle table of the response, which repeats a place."""
        return table_of(self.request, opened=bytes.fromhex(self.received)[1])


HELLO = (0x003D001F, ""), (0x0E1D001F, "Hello World")
RULE = (0x56F83F0100000001, bytes.fromhex("01 00 00 00 01 00 00 00 55 55 55 55 d1 44 e3 40"), "Project X")
NOT_FOUND = ErrorCode(0x8004010F)

EXAMPLES = (
    Example(
        "MS-OXCFOLD 4.1",
        rops.create_folder(AT[0], "Folder1"),
        "1C 00 00 01 01 01 00 00 46 00 6F 00 6C 00 64 00 65 00 72 00 31 00 00 00 00 00",
        "1C 01 00 00 00 00 01 00 00 00 0E 91 52 12 00",
        0x1252910E00000001,
    ),
    Example(
        "MS-OXCFOLD 4.2",
        rops.delete_folder(AT[1], 0x05, 0x36DF8E0E00000001),
        "1D 00 01 05 01 00 00 00 0E 8E DF 36",
        "1D 01 00 00 00 00 00",
    ),
    Example(
        "MS-OXCFOLD 4.3",
        rops.delete_messages(AT[0], (0x48F18E0E00000001, 0x02C38E0E00000001), notify=True),
        "1E 00 00 00 01 02 00 01 00 00 00 0E 8E F1 48 01 00 00 00 0E 8E C3 02",
        "1E 00 00 00 00 00 00",
    ),
    Example(
        "MS-OXCFOLD 4.4",
        rops.move_copy_messages(AT[0], AT[1], (0x5DEC8E0E00000001,)),
        "33 00 00 01 01 00 01 00 00 00 0E 8E EC 5D 00 00",
    ),
    Example(
        "MS-OXCFOLD 4.7.2", rops.get_hierarchy_table(AT[0], 0), received="04 02 00 00 00 00 15 00 00 00", answer=21
    ),
    Example("MS-OXCTABL 4.1.1", rops.get_contents_table(AT[0], 0), "05 00 00 01 00"),
    Example(
        "MS-OXCTABL 4.2.1",
        rops.set_columns(AT[1], (0x67480014, 0x674A0014, 0x674D0014, 0x674E0003, 0x0037001F, 0x0E060040)),
        "12 00 01 00 06 00 14 00 48 67 14 00 4a 67 14 00 4d 67 03 00 4e 67 1f 00 37 00 40 00 06 0e",
    ),
    Example("MS-OXCTABL 4.3.2", rops.sort_table(AT[1], ()), received="13 01 00 00 00 00 00", answer=0),
    Example(
        # The document sorts by a category: CategoryCount and ExpandedCount are 1 there.
        "MS-OXCTABL 4.5, without its category",
        rops.sort_table(AT[0], ((0x8008301F, 0), (0x0E060040, 1))),
        "13 00 00 00 02 00 00 00 00 00 1f 30 08 80 00 40 00 06 0e 01",
    ),
    Example("MS-OXCTABL 4.5.3.1", rops.query_rows(AT[0], 50, ()), "15 00 00 00 01 32 00"),
    Example(
        # The document shows the begin of 9 rows, and not all columns: here it is one row of 9 columns.
        "MS-OXCTABL 4.5.3.2",
        rops.query_rows(
            AT[0], 50, (0x67480014, 0x674A0014, 0x674D0014, 0x674E0003, 0x0FF50003, 0x30050003, *[0x0037001F] * 3)
        ),
        received="15 00 00 00 00 00 02 01 00 01 00 01 00 00 00 00 f1 1f 32 0a 0f 01 04 80 00 01 00 00 00 00 f1 88 bd "
        "00 00 00 00 00 00 03 00 00 00 00 00 00 00 00 0a 0f 01 04 80 0a 0f 01 04 80 0a 0f 01 04 80",
        answer=(2, [(0x321FF10000000001, NOT_FOUND, 0xBD88F10000000001 - 2**64, 0, 3, 0, *[NOT_FOUND] * 3)]),
    ),
    Example(
        "MS-OXORULE 4.2.2, columns", rops.set_columns(AT[1], (0x66740014,)), received="12 01 00 00 00 00 00", answer=0
    ),
    Example(
        "MS-OXORULE 4.2.2",
        rops.query_rows(AT[1], 50, (0x66740014, 0x66840102, 0x6682001F)),
        received="15 01 00 00 00 00 02 01 00 00 01 00 00 00 01 3f f8 56 10 00 01 00 00 00 01 00 00 00 55 55 55 55 "
        "d1 44 e3 40 50 00 72 00 6f 00 6a 00 65 00 63 00 74 00 20 00 58 00 00 00",
        answer=(2, [RULE]),
    ),
    Example(
        "MS-OXCPRPT 4.1.2",
        rops.get_property_ids_from_names(AT[0], ()),
        received="56 00 00 00 00 00 02 00 3E 86 3F 86",
        answer=(0x863E, 0x863F),
    ),
    Example(
        "MS-OXCPRPT 4.2",
        rops.set_properties(AT[0], HELLO),
        "0A 00 00 24 00 02 00 1F 00 3D 00 00 00 1F 00 1D 0E 48 00 65 00 6C 00 6C 00 6F 00 20 00 57 00 6F 00 72 00 6C "
        "00 64 00 00 00",
        "0A 00 00 00 00 00 00 00",
    ),
    Example(
        "MS-OXCPRPT 4.3.1",
        rops.get_properties_specific(AT[0], (0x863E000B, 0x863F0003, 0x65E20102)),
        "07 00 00 00 00 01 00 03 00 0B 00 3E 86 03 00 3F 86 02 01 E2 65",
    ),
    Example("MS-OXCPRPT 4.4.1.1", rops.open_stream(AT[0], 0x0E9A0102, 1), "2B 01 00 01 02 01 9A 0E 01"),
    Example("MS-OXOMSG 4.1.1", rops.submit_message(AT[2]), "32 00 02 00"),
)


FOLDER, MESSAGE, OTHER = (f"01 00 00 00 00 00 00 {number:02X}" for number in (1, 2, 3))
EVENTS = {
    name: "2A 07000000 00" + "".join(fields)
    for name, fields in {
        "folder created": ("0400", FOLDER, OTHER, "0200 0100 3700 0200 3700"),
        "message created": ("0480", FOLDER, MESSAGE, "FFFF"),
        "new mail": ("0280", FOLDER, MESSAGE, "01000000", "00", "49 00"),
        "new mail in Unicode": ("0280", FOLDER, MESSAGE, "01000000", "01", "4900 0000"),
    }.items()
}
"""RopNotify with each set of fields (MS-OXCNOTIF section 2.2.1.4.1.2), for handle 7."""


def buffer_of(responses: bytes, handles: Sequence[int] = ()) -> bytes:
    """Return the buffer of an Execute's response (MS-OXCRPC section 2.2.2.1, MS-OXCROPS section 2.2.1)."""
    size_bytes = 2 + len(responses) + 4 * len(handles)
    header = struct.pack("<HHHHH", 0, 4, size_bytes, size_bytes, 2 + len(responses))
    return header + responses + struct.pack(f"<{len(handles)}I", *handles)
