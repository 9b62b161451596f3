"""Targets without I/O: what servers send, and what an e-mail holds."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from loadsim.errors import ProtocolError, TaskFailed
from loadsim.model.message_tag import MessageTag
from loadsim.protocols.imap.grammar import number_of, numbers_of
from loadsim.protocols.imap.reading import has_tag_section, header_of, origin_of, structure_of, tag_of
from loadsim.protocols.imap.responses import Condition, Fetched, Search, Tagged
from loadsim.protocols.imap.wire import ImapWire
from loadsim.protocols.ldap import messages as ldap
from loadsim.protocols.line_based.wire import CHALLENGE, ERROR, OK, LineDialect, LineResponse, LineWire
from loadsim.protocols.nntp.log_on import DIALECT as NNTP
from loadsim.protocols.nntp.overview import articles_in, marks_in
from loadsim.protocols.pop3.log_on import DIALECT as POP3
from loadsim.protocols.pop3.log_on import numbered_lines
from loadsim.protocols.smtp.wire import SmtpWire

from .mutate import mutated
from .target import Target, pieces

MOST_NUMBERS = 1000
"""Of a set that a server sent, this many are looked at."""

MOST_WORDS = 20
"""Of a response code, this many are taken for numbers."""

MOST_COPIES = 6
"""The most copies of each byte of a stream; the most found in 4,500 cases are 3."""


class Copied(bytes):
    """Bytes that count what their slices copy: a slice of all that is left is one call, however long it is."""

    total_bytes = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if isinstance(place, slice):
            Copied.total_bytes += len(found)
            return Copied(found)
        return found


class Different(AssertionError):
    """Bytes had another meaning when the network cut them."""


def whole_and_cut(feed: Callable[[], Callable[[bytes], Iterable[Any]]], data: bytes) -> list[Any]:
    """Feed the data at once and in pieces. Return what came of it, a `TaskFailed` last if there was one.

    Which of two errors comes first may depend on the cuts. At once, copies are counted.
    """
    Copied.total_bytes = 0
    whole = _fed(feed(), [Copied(data)])
    assert Copied.total_bytes <= 1000 + MOST_COPIES * len(data), f"{Copied.total_bytes} bytes copied of {len(data)}"
    cut = _fed(feed(), pieces(data))
    if [_meaning(each) for each in whole] != [_meaning(each) for each in cut]:
        raise Different(f"at once {repr(whole)[-80:]}, in pieces {repr(cut)[-80:]}")
    return whole


def _meaning(found: Any) -> object:
    return type(found) if isinstance(found, TaskFailed) else repr(found)


def _fed(feed: Callable[[bytes], Iterable[Any]], cut: list[bytes]) -> list[Any]:
    found: list[Any] = []
    try:
        for piece in cut:
            found += feed(piece)
    except TaskFailed as failure:
        found.append(failure)
    return found


ADDRESS = b'("Ann \\"A\\"" NIL "ann" "sim.test")'
TAG = b"run=initial; from=12; id=iabcdefghijklmnop; kind=new; sent=1761955200000000; body=0123456789abcdef"
ENVELOPE = (
    b'("Sat, 01 Nov 2025 00:00:00 +0000" "=?utf-8?B?w6Q=?= =?utf-8?Q?=C3=A4_x?=" (%b) (%b) (%b) (%b%b) NIL NIL NIL '
    b'"<iabc.initial@sim.test>")' % ((ADDRESS,) * 5)
)
STRUCTURE = (
    b'(("text" "plain" ("charset" "utf-8") NIL NIL "quoted-printable" 1234 33 NIL ("inline" NIL) NIL)'
    b'(("text" "html" NIL NIL NIL "7bit" 5 1)("image" "png" ("name*" "utf-8\'\'%e4") "<id>" NIL "base64" 99) '
    b'"alternative" ("boundary" "=_x") NIL)'
    b'("application" "pdf" ("name" "=?utf-8?q?a?=") NIL NIL "base64" 5000 NIL '
    b'("attachment" ("filename*0*" "utf-8\'\'a%20" "filename*1" "b.pdf")) NIL)'
    b'("message" "rfc822" NIL NIL NIL "7bit" 300 ' + ENVELOPE + b' ("text" "plain" NIL NIL NIL "7bit" 3 1) 9) '
    b'"mixed" ("boundary" "x") NIL NIL)'
)
FETCHES = (
    b"* 1 FETCH (UID 7 FLAGS (\\Seen $Forwarded) RFC822.SIZE 2048 ENVELOPE " + ENVELOPE + b" "
    b"BODY[HEADER.FIELDS (X-LOADSIM)] {%d}\r\nX-LoadSim: %b\r\n\r\n)\r\n" % (len(TAG) + 15, TAG),
    b"* 2 FETCH (UID 8 BODYSTRUCTURE " + STRUCTURE + b")\r\n",
    b'* 3 FETCH (UID 9 BODYSTRUCTURE ("text" "plain" ("charset" "x") NIL NIL "7bit" 5 1))\r\n',
    b"* 4 FETCH (BODY[1] {11}\r\nhello\r\nwor\r UID 10)\r\n* 5 FETCH (UID 11 BODY[1.2] NIL)\r\n",
    b'* 6 FETCH (UID 12 ENVELOPE (NIL NIL NIL NIL NIL ((NIL NIL "group" NIL)) NIL NIL NIL {3}\r\n<x>))\r\n',
    b"* 7 FETCH (FLAGS ())\r\n* 8 FETCH (UID 1 BODY[] ~{4}\r\n\0\1\2\3)\r\n",
)
LINES = (
    b"* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR IDLE MOVE UIDPLUS LITERAL+] ready\r\n",
    b'* LIST (\\HasNoChildren \\Sent) "/" "Sent Items"\r\n* LIST (\\Noselect) NIL "&AOQ-"\r\n',
    b"* STATUS INBOX (MESSAGES 3 UIDNEXT 4294967295)\r\n* 12 EXISTS\r\n* 0 RECENT\r\n* 3 EXPUNGE\r\n",
    b"* OK [UIDVALIDITY 1761955200] ok\r\n* OK [UIDNEXT 12] x\r\nt1 OK [READ-WRITE] done\r\n",
    b'* SEARCH 1 2 3 (MODSEQ 5)\r\n* ESEARCH (TAG "t1") UID COUNT 3 ALL 1:3,7,4294967290:4294967295\r\n',
    b"t1 OK [APPENDUID 7 12:13] done\r\nt2 OK [COPYUID 7 1:3,5 11:13,15] done\r\n+ go on\r\n* BYE bye\r\n",
    b"t3 NO [OVERQUOTA] full\r\nt4 BAD\r\n* PREAUTH x\r\n* CAPABILITY IMAP4rev2\r\n* ENABLED X\r\n+ \r\n",
)
IMAP_WORDS = (
    b"* ", b"+ ", b"\r\n", b"t1 OK ", b"t2 NO ", b"NIL", b'""', b"{0}\r\n", b"{1}\r\nx", b"{5+}\r\n",
    b"{99999999}\r\n", b"{67108865}\r\n", b"{18446744073709551616}\r\n", b"~{3}\r\nabc", b'"\\"', b"BODY[",
    b"BODY[]<0> ", b" FETCH (", b"ENVELOPE ", b"BODYSTRUCTURE ", b"FLAGS (\\Seen)", b"UID 5 ",
    b"* 4294967295 EXISTS\r\n", b"1:4294967295", b"1:999999,", b"4294967295:1", b"1:*", b"* ESEARCH ALL 1:999999\r\n",
    b"[COPYUID 1 1:999999 1:999999] ", b"[APPENDUID 1 1] ", b"[UIDVALIDITY abc] ", b"* LIST () NIL ", b"&AAA-&2AE-&",
    b"* BYE ", b"text", b"message", b"rfc822", b"attachment", b"=?utf\xa38?b?w6Q=?=", b"filename*", b"idna''abc",
    ADDRESS,
)  # fmt: skip


def _imap_wire(data: bytes) -> None:
    for response in whole_and_cut(lambda: ImapWire().feed, data):
        if isinstance(response, Search):
            list(islice(_allowed(iter, response.numbers) or (), MOST_NUMBERS))
        elif isinstance(response, Condition | Tagged) and response.code is not None:
            for word in response.code.arguments.split(" ")[:MOST_WORDS]:
                _allowed(numbers_of, word)
                _allowed(number_of, word)
        elif isinstance(response, Fetched):
            _show(response)


def _allowed(read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except ProtocolError:
        return None


def _show(fetched: Fetched) -> None:
    header = header_of(fetched, None, "sim.test")
    origin_of(fetched)
    tag_of(fetched)
    has_tag_section(fetched)
    if header is not None:
        assert len(header.subject) <= 10_000, "a long subject"
    if fetched.structure is not None:
        structure = structure_of(fetched.structure)
        for part in (structure.text, *structure.attachments):
            assert part is None or part.filename is None or isinstance(part.filename, str)


def _evidence(data: bytes) -> None:
    found = MessageTag.parse(data.decode("utf-8", "replace"))
    assert found is None or MessageTag.parse(found.header()) == found


REPLIES = (
    b"220 mail.test ESMTP\r\n",
    b"250-mail.test\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-AUTH PLAIN LOGIN\r\n250-AUTH=LOGIN\r\n250 8BITMIME\r\n",
    b"235 2.7.0 ok\r\n250 2.1.0 ok\n250 2.1.5 ok\r\n354 go\r\n250 2.0.0 queued\r\n221 bye\r\n",
    b"550-5.1.1 no\r\n550 5.1.1 such user\r\n421 4.3.2 closing\r\n",
)
SMTP_WORDS = (
    *b"250 |250-|354 |421 4.0.0 x|550 5.1.1 |\r\n|\n|221 bye\r\n|250\r\n|199 |600 |250\tx|-|2 50 ".split(b"|"),
    b"AUTH PLAIN",
    b"SIZE 99",
    b"x" * 600,
    b"250-x\r\n" * 400,
)


def _smtp_wire(data: bytes) -> None:
    for reply in whole_and_cut(lambda: SmtpWire().feed, data):
        if not isinstance(reply, TaskFailed):
            assert 200 <= reply.code < 600 and isinstance(reply.text, str)


LDAP_RESPONSES = (
    bytes.fromhex("300c02010161070a010004000400"),
    bytes.fromhex("302b020102642604046e616d65301e301c04046d61696c311404116f6e65406578616d706c652e74657374"),
    bytes.fromhex("300c02010265070a010404000400300c02010078070a013404000400"),
)
LDAP_WORDS = (b"\x30\x80", b"\x84\0\0\0\1", b"\x02\1\1", b"\x64\0", b"\x65\x03\x0a\1\0", b"\x04\0", b"\x31\x82\1\0")


def _ldap(data: bytes) -> None:
    """Take whole messages, and read each as an entry and as a result."""
    for message in ldap.split(bytearray(data)):
        assert 0 < message.size_bytes <= len(data)
        for read in (ldap.addresses_of, ldap.result_of):
            with suppress(ProtocolError):
                read(message.content)


POP3_RESPONSES = (
    b"+OK ready\r\n",
    b"-ERR [IN-USE] locked\r\n",
    b"+OK\r\n1 one\r\n2 two\r\n.\r\n",
    b"+OK 120 octets\r\nSubject: x\r\n\r\n..\r\n...dots\r\nend\r\n.\r\n",
)
POP3_WORDS = (
    b".\r\n",
    b"\r\n.\r\n",
    b"\r\n..",
    b"\r\n.\r",
    b"+OK",
    b"-ERR ",
    b"+ ",
    b"\n",
    b"1 ",
    b"99999999999 x\r\n",
)


def _lines(dialect: LineDialect, data: bytes) -> Iterator[LineResponse]:
    """Take one response with lines, whole and in pieces."""

    def feed() -> Callable[[bytes], Iterable[LineResponse]]:
        wire = LineWire(dialect)
        wire.expect(1 << 16)

        def take(piece: bytes) -> Iterator[LineResponse]:
            if response := wire.feed(piece):
                yield response
            if wire.surplus_bytes:
                raise ProtocolError("unasked response")

        return take

    for response in whole_and_cut(feed, data):
        if not isinstance(response, TaskFailed):
            assert response.status in (OK, ERROR, CHALLENGE) and len(response.lines) < len(data)
            yield response


def _pop3(data: bytes) -> None:
    """Read a response as a list."""
    for response in _lines(POP3, data):
        with suppress(ProtocolError):
            assert all(number > 0 and word for number, word in numbered_lines(response.lines, "UIDL").items())


NNTP_RESPONSES = (
    b"200 ready\r\n",
    b"480 log on\r\n",
    b"211 3 1 9 a.b\r\n",
    b"224 overview\r\n1\tsubject\ta <b@c>\tdate\t<1@c>\t\t100\t3\r\n9\t\xc3\xbc\t\td\t<2@c>\t\t\t\txref\r\n.\r\n",
)
NNTP_WORDS = (b".\r\n", b"\r\n.\r\n", b"\t", b"\r", b"340 ", b"224", b"0", b"99999999999999999", b"<a@b>", b"\xff")


def _nntp(data: bytes) -> None:
    """Read a response as a newsgroup's numbers, and as an overview."""
    for response in _lines(NNTP, data):
        with suppress(ProtocolError):
            assert max(marks_in(response.text)) < 10**16
        with suppress(ProtocolError):
            numbers = [header.ref.number for header in articles_in(response.lines, 1, 9)]  # type: ignore[attr-defined]
            assert numbers == sorted({*numbers} & {*range(1, 10)})


TARGETS = (
    Target("pop3", mutated(POP3_RESPONSES, POP3_WORDS), _pop3, (ProtocolError,)),
    Target("nntp", mutated(NNTP_RESPONSES, NNTP_WORDS), _nntp, (ProtocolError,)),
    Target("ldap", mutated(LDAP_RESPONSES, LDAP_WORDS), _ldap, (ProtocolError,)),
    Target("imap-wire", mutated(LINES + FETCHES, IMAP_WORDS), _imap_wire, (ProtocolError,), 2),
    Target("imap-fetch", mutated(FETCHES, IMAP_WORDS), _imap_wire, (ProtocolError,), 2),
    Target(
        "tag",
        mutated((TAG, TAG.replace(b"; ", b";\r\n\t")), (b"from=", b"sent=", b"run=", b";", b"=", b"id=", b"\xc2\xb2")),
        _evidence,
        (),
    ),
    Target("smtp-wire", mutated(REPLIES, SMTP_WORDS), _smtp_wire, (ProtocolError,)),
)
