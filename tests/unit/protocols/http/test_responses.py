"""Responses of HTTP/1.1 and the content of MAPI over HTTP; the oracle is the standard library's client."""

from __future__ import annotations

import http.client
import io
import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.errors import ProtocolError
from loadsim.protocols.http.responses import LARGEST_BODY_BYTES, LONGEST_HEAD_BYTES, Response, ResponseParser
from loadsim.protocols.mapi.http import whole

MAPI = b"HTTP/1.1 200 OK\r\nContent-Type: application/mapi-http\r\nX-ResponseCode: 0\r\n"


def parsed(*pieces: bytes, ended: bool = False) -> Response | None:
    parser = ResponseParser()
    for piece in pieces:
        parser.feed(piece)
    if ended:
        parser.end()
    return None if parser.response is None else whole(parser.response)


def chunks(*contents: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in contents if each) + b"0\r\n\r\n"


class Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def by_standard_library(data: bytes) -> tuple[int, str, bytes]:
    answer = http.client.HTTPResponse(cast(Any, Socket(data)), method="POST")
    answer.begin()
    return answer.status, answer.reason, answer.read()


@given(
    st.sampled_from([200, 401, 403, 500, 503]),
    st.lists(st.binary(max_size=40), max_size=5),
    st.sampled_from(["chunked", "length", "close"]),
    st.lists(st.integers(0, 400), max_size=8),
    st.booleans(),
)
def test_a_response_is_read_as_the_standard_library_reads_it(
    status: int, contents: list[bytes], framing: str, cuts: list[int], continues: bool
) -> None:
    """In any pieces, with each framing of the body."""
    body = b"".join(contents)
    framed = {
        "chunked": b"transfer-encoding: Chunked\r\n\r\n" + chunks(*contents),
        "length": b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        "close": b"Connection: close\r\n\r\n" + body,
    }[framing]
    data = (b"HTTP/1.1 100 Continue\r\n\r\n" if continues else b"") + b"HTTP/1.1 %d some reason\r\n" % status + framed
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    parser = ResponseParser()
    for begin, end in itertools.pairwise(places):
        parser.feed(data[begin:end])
    assert (parser.response is None) == (framing == "close")
    if framing == "close":
        parser.end()
    response = parser.response
    assert response is not None
    assert (response.status, response.reason, response.body) == by_standard_library(data)
    assert parser.keeps_connection == (framing != "close")


@pytest.mark.parametrize(("version", "keeps"), [(b"1.1", True), (b"1.0", False)])
def test_a_connection_of_http_1_0_is_not_kept(version: bytes, keeps: bool) -> None:
    """RFC 9112 section 9.3: it ends with the response."""
    parser = ResponseParser()
    parser.feed(b"HTTP/%b 200 OK\r\nContent-Length: 1\r\n\r\na" % version)
    assert parser.response is not None and parser.keeps_connection == keeps


def test_cookies_are_separate_and_field_names_lower_case() -> None:
    response = parsed(
        MAPI
        + b"Set-Cookie: sid=abc; path=/mapi; HttpOnly\r\nSET-COOKIE: sequence=1=2\r\nX-PendingPeriod:15000\r\n"
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + chunks(b"PROCESSING\r\nDONE\r\n\r\n")
    )
    assert response is not None
    assert response.cookies == {"sid": "abc", "sequence": "1=2"}
    assert response.fields["x-pendingperiod"] == "15000"


def test_meta_tags_end_with_done_and_its_fields_replace_those_of_the_header() -> None:
    """MS-OXCMAPIHTTP section 2.2.7; gromox repeats PROCESSING in its last piece."""
    content = (
        b"PROCESSING\r\nPENDING\r\nPENDING\r\nPROCESSING\r\nDONE\r\nX-ElapsedTime: 4\r\nX-ResponseCode: 15\r\n\r\n"
    )
    for body in (b"", b"\0\1\2\r\n\r\nDONE\r\n\r\n"):
        response = parsed(MAPI + b"Transfer-Encoding: chunked\r\n\r\n" + chunks(content[:20], content[20:] + body))
        assert response is not None
        assert response.body == body
        assert (response.fields["x-responsecode"], response.fields["x-elapsedtime"]) == ("15", "4")


def test_the_head_is_available_before_the_body() -> None:
    parser = ResponseParser()
    parser.feed(MAPI + b"Transfer-Encoding: chunked\r\n\r\nc\r\nPROCESSING\r\n\r\n")
    assert parser.response is None
    assert parser.head is not None
    assert parser.head.fields["x-responsecode"] == "0"


WRONG = {
    "no HTTP": b"* OK IMAP4rev1 ready\r\n\r\n",
    "another version": b"HTTP/2 200\r\n\r\n",
    "no field": b"HTTP/1.1 200 OK\r\nno field\r\n\r\n",
    "a folded field": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "a large length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGEST_BODY_BYTES + 1),
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a size that is no number": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a large chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
    "a line instead of a size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
    "a chunk of another size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
    "an endless header": b"HTTP/1.1 200 OK\r\nA: " + b"a" * LONGEST_HEAD_BYTES,
    "an endless trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na" + b"a" * LONGEST_HEAD_BYTES,
    "bytes behind the end": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
    "no meta-tags": MAPI + b"Content-Length: 3\r\n\r\nabc",
    "no DONE": MAPI + b"Content-Length: 12\r\n\r\nPROCESSING\r\n",
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_a_malformed_response_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parsed(data)


@pytest.mark.parametrize("framing", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc"])
def test_a_truncated_response_is_an_error(framing: bytes) -> None:
    with pytest.raises(ProtocolError, match="truncated"):
        parsed(b"HTTP/1.1 200 OK\r\n" + framing, ended=True)


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", MAPI + b"Transfer-Encoding: chunked\r\n\r\n"]),
)
def test_any_bytes_are_a_response_or_an_error(data: bytes, prefix: bytes) -> None:
    try:
        parsed(prefix + data, ended=True)
    except ProtocolError as error:
        assert error.kind
