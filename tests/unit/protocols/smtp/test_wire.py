"""Replies out of any stream, and commands and messages into bytes."""

import re
import smtplib
from base64 import b64encode
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadsim.errors import ProtocolError
from loadsim.model.ports import Account
from loadsim.protocols.sasl.exchange import Messages, login, plain
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.wire import Reply, SmtpWire

FAST = settings(deadline=None, max_examples=50)

TEXTS = st.binary(max_size=60).filter(lambda text: b"\n" not in text and not text.endswith(b"\r"))
REPLIES = st.tuples(st.integers(200, 599), st.lists(TEXTS, min_size=1, max_size=4))


def written(code: int, lines: list[bytes], end: bytes = b"\r\n") -> bytes:
    first = b"".join(b"%d-%b%b" % (code, line, end) for line in lines[:-1])
    return first + b"%d %b%b" % (code, lines[-1], end)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[begin:end] for begin, end in pairwise(at)]


def fed(wire: SmtpWire, arriving: list[bytes]) -> list[Reply]:
    return [reply for piece in arriving for reply in wire.feed(piece)]


@FAST
@given(st.lists(REPLIES, max_size=6), st.lists(st.integers(0, 2000)), st.sampled_from([b"\r\n", b"\n"]))
def test_replies_are_parsed_at_any_split(replies: list[tuple[int, list[bytes]]], cuts: list[int], end: bytes) -> None:
    """Codes, texts and lengths are those that were written, at any split, and nothing is held back at the end."""
    sent = [written(code, lines, end) for code, lines in replies]
    wire = SmtpWire()
    found = fed(wire, pieces(b"".join(sent), cuts))
    assert [(reply.code, list(reply.lines)) for reply in found] == replies
    assert [reply.size_bytes for reply in found] == [len(one) for one in sent]
    assert wire.held_bytes == 0


@pytest.mark.parametrize(
    ("stream", "code", "lines"),
    [
        (b"250\r\n", 250, (b"",)),  # RFC 5321 section 4.2: a code alone is a reply
        (b"250 \r\n", 250, (b"",)),
        (b"250-a\r\n250\r\n", 250, (b"a", b"")),
        (b"550 5.1.1 no such user\r\n", 550, (b"5.1.1 no such user",)),
        (b"220 a\rb\r\n", 220, (b"a\rb",)),
    ],
)
def test_a_reply_has_code_and_lines(stream: bytes, code: int, lines: tuple[bytes, ...]) -> None:
    """Single lines, many lines, and lines that are nothing but a code."""
    (reply,) = SmtpWire().feed(stream)
    assert (reply.code, reply.lines) == (code, lines)


def test_a_replys_text_contains_its_code_once() -> None:
    """Enhanced status codes stay in it; what is not UTF-8 is replaced."""
    (reply,) = SmtpWire().feed(b"550-5.7.1 not\r\n550 5.7.1 allowed \xff\r\n")
    assert reply.text == "550 5.7.1 not 5.7.1 allowed \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"* OK IMAP4rev1 ready\r\n",
        b"\r\n",
        b"25 OK\r\n",
        b"2500 OK\r\n",
        b"150 OK\r\n",
        b"650 OK\r\n",
        b"250_OK\r\n",
        b"250-a\r\n550 b\r\n",
        b"250-a\r\nb\r\n",
        b"\xd9\xa1\xd9\xa2\xd9\xa3 OK\r\n",  # digits, but not these
    ],
)
def test_malformed_replies_are_protocol_errors(stream: bytes) -> None:
    """Another protocol's greeting, codes out of range, a reply that changes its mind; the line is kept for errors."""
    wire = SmtpWire()
    with pytest.raises(ProtocolError):
        fed(wire, [stream])
    assert wire.rejected == stream.splitlines()[-1]


def offers(*lines: bytes) -> dict[str, str]:
    return dict(commands.extensions((b"mail.sim.test Hello", *lines)))


def test_extensions_are_known_by_their_keywords() -> None:
    """In any case; with their parameters; AUTH also in the spelling of old servers, and both together."""
    assert offers(b"PIPELINING", b"size 1000", b"8BITMIME") == {"PIPELINING": "", "SIZE": "1000", "8BITMIME": ""}
    assert offers(b"AUTH login plain")["AUTH"].split() == ["LOGIN", "PLAIN"]
    assert offers(b"AUTH=LOGIN")["AUTH"].split() == ["LOGIN"]
    assert set(offers(b"AUTH PLAIN", b"AUTH=LOGIN")["AUTH"].split()) == {"LOGIN", "PLAIN"}
    assert offers() == {}


def test_the_first_ehlo_line_is_no_extension() -> None:
    """A server's name is no keyword, even if it looks like one."""
    assert commands.extensions((b"PIPELINING",)) == {}


def test_commands_are_written_as_rfc_5321_has_them() -> None:
    """EHLO names an address, by either version of IP; MAIL has what is offered and applies."""
    assert commands.ehlo("192.0.2.1").line == b"EHLO [192.0.2.1]\r\n"
    assert commands.ehlo("fe80::1%eth0").line == b"EHLO [IPv6:fe80::1]\r\n"
    assert commands.rcpt("b@sim.test").line == b"RCPT TO:<b@sim.test>\r\n"
    offered = {"SIZE": "", "8BITMIME": ""}
    assert commands.mail("a@sim.test", b"abc", {}).line == b"MAIL FROM:<a@sim.test>\r\n"
    assert commands.mail("a@sim.test", b"abc", offered).line == b"MAIL FROM:<a@sim.test> SIZE=3\r\n"
    assert commands.mail("a@sim.test", b"\xe9", offered).line == b"MAIL FROM:<a@sim.test> SIZE=1 BODY=8BITMIME\r\n"
    assert commands.mail("", b"abc", {}).line == b"MAIL FROM:<>\r\n"


def test_delivery_receipts_are_requested_as_rfc_3461_has_it() -> None:
    assert commands.mail("a@sim.test", b"abc", {}, "n1.0.r").line == b"MAIL FROM:<a@sim.test> RET=HDRS ENVID=n1.0.r\r\n"
    assert commands.rcpt("b@sim.test", True).line == b"RCPT TO:<b@sim.test> NOTIFY=SUCCESS,FAILURE\r\n"


def test_passwords_are_encoded_by_mechanism() -> None:
    """The examples of RFC 4616 section 4 and of AUTH LOGIN, encoded by hand."""
    account = Account(1, "tim", "tim@sim.test", "tanstaaftanstaaf")
    words = commands.dialogue_of(Messages("PLAIN", plain(account))).words
    assert commands.auth(words).line == b"AUTH PLAIN AHRpbQB0YW5zdGFhZnRhbnN0YWFm\r\n"
    exchange = login(account)
    assert commands.auth(commands.dialogue_of(exchange).words).line == b"AUTH LOGIN\r\n"
    sent = [b64encode(exchange.respond(challenge)) for challenge in (b"Username:", b"Password:")]
    assert sent == [b"dGlt", b"dGFuc3RhYWZ0YW5zdGFhZg=="]


LINES = [b".", b"..", b"", b".a", b"a.", b"\xc3\xa9", b"x" * 2000, b"\r", b"\n", b"\r\n", b"\n.", b"\r.", b"a\r\n."]


@FAST
@given(st.lists(st.sampled_from(LINES)).map(b"".join))
@example(b"")
@example(b".")
@example(b"\n")
@example(b"\r")
@example(b"a\r\n.\r\nb")
@example(b"a\n.\nb")
def test_a_message_is_encoded_as_by_smtplib(message: bytes) -> None:
    """Line ends, leading dots and the end are, byte for byte, those that the library would have sent."""
    _check_wire_format(message)


@FAST
@given(st.lists(st.sampled_from(LINES)).map(b"".join), st.lists(st.sampled_from(LINES)).map(b"".join))
@example(b"\n", b"")
@example(b"", b"\r")
@example(b"", b"\r\n.")
@example(b".", b"")
def test_a_long_message_is_encoded_as_by_smtplib(before: bytes, behind: bytes) -> None:
    """A long message is searched in another way, with the same result."""
    _check_wire_format(before + b"A dot. And another.\r\n" * 1000 + behind)


def _check_wire_format(message: bytes) -> None:
    expected = smtplib._quote_periods(re.sub(rb"\r\n|\r|\n", b"\r\n", message))  # type: ignore[attr-defined]
    expected += b".\r\n" if expected.endswith(b"\r\n") else b"\r\n.\r\n"
    assert b"".join(commands.wire_format(message)) == expected


def test_a_message_that_needs_no_encoding_is_not_copied() -> None:
    """However long it is, the very object goes to the transport."""
    message = b"Subject: long\r\n\r\nA dot. And another.\r\n" + b"QUJD\r\n" * 20_000
    assert commands.wire_format(message)[0] is message
