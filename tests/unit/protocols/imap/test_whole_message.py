"""Whole messages and header fields, as mail programs read them: the standard library's parser as witness."""

import email
import email.policy
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.model.mail_program import OUTLOOK_LIKE, MailProgram
from loadsim.model.ports import Flag, Header, Part, Structure
from loadsim.protocols.imap.header_lists import HeaderCache
from loadsim.protocols.imap.requests import LONGEST_FIELDS_BYTES, addresses_of, fields_of, header_of_fields, requests_of
from loadsim.protocols.imap.responses import Fetched
from loadsim.protocols.imap.whole_message import DEEPEST, MessageStore, WholeMessage, message_of


def leaves(message: Message, name: str = "") -> dict[str, bytes]:
    """The encoded parts of a message by the standard library, by their names in IMAP."""
    parts = message.get_payload()
    if not isinstance(parts, list):
        return {name or "1": parts.encode("ascii", "surrogateescape")}
    found: dict[str, bytes] = {}
    for number, part in enumerate(parts, 1):
        assert isinstance(part, Message)
        found |= leaves(part, f"{name}.{number}" if name else f"{number}")
    return found


TEXTS = st.text("ab -=\n", max_size=12).map(lambda text: text.replace("\n", "\r\n") + "\r\n")


@st.composite
def entities(draw: st.DrawFn, within: int = 0) -> str:
    if within > 2 or draw(st.booleans()):
        kind = draw(st.sampled_from(["", "Content-Type: text/html\r\n", "Content-Type: image/png; name=a\r\n"]))
        return f"{kind}\r\n{draw(TEXTS)}"
    boundary = f"x{within}{draw(st.sampled_from(['', ' y', '-']))}z"
    parts = draw(st.lists(entities(within + 1), min_size=1, max_size=3))
    body = "".join(f"--{boundary}\r\n{part}\r\n" for part in parts)
    return f'Content-Type: multipart/mixed; boundary="{boundary}"\r\n\r\n{draw(TEXTS)}{body}--{boundary}--\r\n'


@given(entities())
def test_parts_are_those_of_the_standard_library(entity: str) -> None:
    """Each part has the same name and the same bytes."""
    raw = f"Subject: x\r\n{entity}".encode()
    message = message_of(raw)
    expected = leaves(email.message_from_bytes(raw, policy=email.policy.compat32.clone(linesep="\r\n")))
    assert {name: message.part(name) for name in message.places} == expected
    assert message.part("9.9") is None


@given(st.binary(max_size=200) | st.text('-b\r\n:; ="/mulipartxody', max_size=200).map(str.encode))
def test_any_bytes_are_parsed_as_a_message(raw: bytes) -> None:
    """A sender chooses them; parts lie within the message."""
    message = message_of(raw)
    assert all(0 <= begin <= end <= len(raw) for begin, end in message.places.values())


def test_depth_is_limited() -> None:
    """Multiparts within too many multiparts are one part."""
    raw = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\r\n\r\n--b%d\r\n' % (i, i) for i in range(200))
    assert list(message_of(raw).places) == [".".join("1" * DEEPEST)]


def test_a_store_drops_the_oldest_but_never_the_last() -> None:
    """Its size is limited; one message above the limit is kept alone."""
    store = MessageStore(limit_bytes=100)
    for ref, size in enumerate((40, 40, 40, 400)):
        store.add(ref, WholeMessage(bytes(size), Structure(None), {}))
        assert [kept for kept in range(4) if store.get(kept)] == [[0], [0, 1], [1, 2], [3]][ref]
    store.take(4, None)
    assert store.get(4) is None
    headers = [Header(ref, frozenset(), 60, "", (), "", "", None) for ref in range(3)]
    assert store.fitting(headers) == headers[:1]


@pytest.mark.parametrize(
    ("field", "found"),
    [
        (b"a@b.test", ("a@b.test",)),
        (b'"One, the <x@y>" <a@b.test>, c@d.test (home)', ("a@b.test", "c@d.test")),
        (b"people: a@b.test, c@d.test;", ("a@b.test", "c@d.test")),
        (b"undisclosed-recipients:;", ()),
        (b"@b.test, a@, a@b@c", ()),
        (b"", ()),
        (b'"' * 9999, ()),
        (b"(" * 9999, ()),
    ],
)
def test_addresses_are_extracted_from_a_field(field: bytes, found: tuple[str, ...]) -> None:
    """Names, comments and groups are left out."""
    assert addresses_of(field) == found


def test_fields_are_unfolded_and_limited() -> None:
    """The first of several counts; a header of a hostile length is cut."""
    header = b"To: a@b.test,\r\n\tc@d.test\r\nSUBJECT: one\r\nSubject: two\r\nno field\r\n\r\n"
    assert fields_of(header) == {"to": b"a@b.test,\tc@d.test", "subject": b"one"}
    assert len(fields_of(b"X: " + b"y" * (1 << 20))["x"]) < LONGEST_FIELDS_BYTES


def test_a_flag_response_is_not_a_header() -> None:
    """A FETCH of flags that the server sends by itself is not listed."""
    assert header_of_fields(Fetched(1, 7, frozenset({"\\Seen"}), None, None, None, {}), 7, "x.test") is None


def test_requests_include_the_tags_field_once() -> None:
    """The default's items are those of all versions; MODSEQ goes to servers with CONDSTORE only."""
    default = requests_of(OUTLOOK_LIKE)
    assert default.list_items == b"(UID FLAGS RFC822.SIZE ENVELOPE BODY.PEEK[HEADER.FIELDS (X-LOADSIM)])"
    assert (default.flags, default.message) == (None, None)
    own = requests_of(
        MailProgram(name="own", list_items=("UID", "FLAGS", "BODY.PEEK[HEADER.FIELDS (From To)]", "MODSEQ"))
    )
    assert own.listing(frozenset()) == b"(UID FLAGS BODY.PEEK[HEADER.FIELDS (From To X-LoadSim)])"
    assert own.listing(frozenset({"CONDSTORE"})) == b"(UID FLAGS BODY.PEEK[HEADER.FIELDS (From To X-LoadSim)] MODSEQ)"


def test_a_cache_drops_removed_messages() -> None:
    """Removed messages, and all of a folder with another UIDVALIDITY; flags are the server's."""
    cache = HeaderCache()
    cache.of("a", 7).update({uid: Header(uid, frozenset(), 1, "", (), "", "", None) for uid in (1, 2)})
    kept = cache.compared("a", 7, {2: frozenset({Flag.SEEN}), 3: frozenset()})
    assert {uid: header.seen for uid, header in kept.items()} == {2: True}
    assert cache.of("a", 7) is kept
    assert cache.of("a", 8) == {}


def test_the_body_structure_is_read() -> None:
    """Text and attachment, with names and sizes of the encoded form."""
    raw = (
        b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\n\r\nshown\r\n--b\r\nContent-Type: image/png\r\n'
        b"Content-Disposition: attachment; filename=a.png\r\nContent-Transfer-Encoding: BASE64\r\n\r\nQUJD\r\n--b--\r\n"
    )
    assert message_of(raw).structure == Structure(
        Part("1", "text/plain", 5, None, "7bit"), (Part("2", "image/png", 4, "a.png", "base64"),)
    )
