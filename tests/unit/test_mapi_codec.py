"""The MAPI codec, by the documents' examples in both directions."""

from __future__ import annotations

import pytest

from loadsim.protocols.mapi.layout import decode, encode
from loadsim.protocols.mapi.rops import QueryRows, Request, Sorting, SortOrder, SortTable, SubmitMessage

EXAMPLES: list[tuple[str, Request[object], str]] = [
    ("MS-OXOMSG 4.1.1", SubmitMessage(2), "32 00 02 00"),
    ("MS-OXCTABL 4.5.3.1", QueryRows(0, count=50), "15 00 00 00 01 32 00"),
    (
        "MS-OXCTABL 4.4",
        SortTable(0, sorting=Sorting((SortOrder(0x8008301F, 0), SortOrder(0x0E060040, 1)), 1, 1)),
        "13 00 00 00 02 00 01 00 01 00 1f 30 08 80 00 40 00 06 0e 01",
    ),
]


@pytest.mark.parametrize(("request_", "wire"), [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES])
def test_requests_of_the_documents(request_: Request[object], wire: str) -> None:
    expected = bytes.fromhex(wire)
    assert bytes((request_.rop.number, 0)) + encode(request_) == expected
    assert decode(type(request_), expected[2:]) == request_
