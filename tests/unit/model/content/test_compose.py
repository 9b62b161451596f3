"""The contents of messages, read back by the standard library and by the programs of the attachments."""

import base64
import email
import hashlib
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from itertools import pairwise
from typing import Any

import docx
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from loadsim.model.content.compose import Answered, Attachment, Contents, least_bytes
from loadsim.model.content.prose import Writer
from loadsim.model.content.templates import KINDS, encoded_text
from loadsim.model.message_tag import HEADER, INITIAL_RUN, MessageTag, initial_id
from loadsim.model.ports import Header, Part

CONTENTS = Contents(42)
SENT_US = 1_790_000_000_123_456
FILE_BYTES = {
    "ups10Kat": 10 * 1024,
    "upsBMobj": 43 * 1024,
    "upsWDatt": 16 * 1024,
    "upsXLatt": 15 * 1024,
    "upsXLobj": 30 * 1024,
}
FILE_TYPES = {
    "ups10Kat": "text/plain",
    "upsBMobj": "image/bmp",
    "upsWDatt": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "upsXLatt": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "upsXLobj": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def compose(contents: Contents = CONTENTS, **changed: Any) -> bytes:
    given: dict[str, Any] = {
        "run": "20260101-1",
        "sender": 17,
        "sender_address": "user17@loadsim.example",
        "to": ["user2@loadsim.example", "list-3@loadsim.example"],
        "id": "n17.0",
        "kind": "ups1K",
        "sent_us": SENT_US,
        "domain": "loadsim.example",
    }
    return contents.compose(**(given | changed))


def parse(message: bytes) -> EmailMessage:
    """The message as the standard library reads it; it finds nothing wrong with it, nor with any of its parts."""
    parsed = email.message_from_bytes(message, policy=policy.default)
    assert isinstance(parsed, EmailMessage)
    for part in parsed.walk():
        assert part.defects == []
        for value in part.values():
            assert value.defects == ()
    return parsed


def leaves(parsed: EmailMessage) -> list[EmailMessage]:
    return [part for part in parsed.walk() if isinstance(part, EmailMessage) and not part.is_multipart()]


def decoded(part: EmailMessage) -> bytes:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content


def many(kind: str, count: int = 300) -> Iterator[bytes]:
    return (compose(kind=kind, id=f"n{user}.3") for user in range(count))


def as_found(message: bytes) -> bytes:
    """The encoded bytes of the last part, cut out by its boundary, as IMAP's BODY[n] gives them."""
    found = re.search(rb'boundary="([^"]+)"', message)
    assert found
    last = message.split(b"\r\n--" + found[1])[-2]
    return last.split(b"\r\n\r\n", 1)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("message_id", "quoted"), [("<a@b>", "<a@b>"), ("", None), ("<a@b>\r\nX: y", None)])
def test_an_answer_quotes_what_a_header_can_have(message_id: str, quoted: str | None) -> None:
    """Of a message with any header; an answer to one without a usable Message-ID refers to none."""
    header = Header(None, frozenset(), 9, "a@b", (), "one\r\ntwo\0", message_id, None)
    parsed = parse(compose(answers=Answered.of(header, "reply")))
    assert (parsed["In-Reply-To"], parsed["References"], parsed["Subject"]) == (quoted, quoted, "Re: one two")


@pytest.mark.parametrize(
    ("part", "labels"),
    [
        (Part("2", "image/bmp", 3, "a.bmp", "base64"), ("image/bmp", "a.bmp", "base64")),
        (Part("2", "image", 3, None, "7bit"), ("application/octet-stream", None, "7bit")),
        (Part("2", "text/plain\r\nX: y", 3, "a\r\n b", "7bit"), ("application/octet-stream", "a b", "7bit")),
        (Part("2", "text/plain", 3, "a" * 999, "x\r\ny"), ("application/octet-stream", "a" * 120, "binary")),
    ],
)
def test_a_forward_labels_what_a_header_can_have(part: Part, labels: tuple[str, str | None, str]) -> None:
    attachment = Attachment.of(part, b"one")
    assert (attachment.content_type, attachment.filename, attachment.encoding) == labels
    assert b"one" in compose(answers=Answered("<a@b>", "x", "forward"), attachment=attachment)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_have_their_published_sizes(kind: str) -> None:
    """The decoded text is exactly 1, 2 or 4 KB, whether it is plain ASCII or quoted-printable UTF-8."""
    charsets = Counter()
    for message in many(kind, 48):
        text = leaves(parse(message))[0]
        assert text.get_content_type() == "text/plain"
        assert len(decoded(text)) == {"ups2K": 2048, "ups4K": 4096}.get(kind, 1024)
        charsets[text.get_content_charset(), decoded(text).isascii()] += 1
        decoded(text).decode(text.get_content_charset() or "ascii")
    assert charsets["us-ascii", True] > 30
    assert charsets["utf-8", False] > 0


@pytest.mark.parametrize("kind", FILE_BYTES)
def test_files_have_their_published_sizes_and_types(kind: str) -> None:
    """Each kind has one file of the right type, within 1 % of its size, in four variants or more."""
    for message in many(kind, 20):
        _, file = leaves(parse(message))
        content = decoded(file)
        assert abs(len(content) - FILE_BYTES[kind]) <= FILE_BYTES[kind] / 100
        assert file.get_content_type() == FILE_TYPES[kind]
        assert file.get_filename()
        assert least_bytes(MessageTag("r", 1, "n1.0", kind, 0, ""))[1] <= len(file.get_payload()) + len("\r\n")


@pytest.mark.parametrize("kind", FILE_BYTES)
def test_files_open_in_their_programs(kind: str) -> None:
    """openpyxl, python-docx and Pillow read every variant of what is attached, and find something in it."""
    contents = {base64.b64decode(as_found(message)) for message in many(kind, 30)}
    assert len(contents) >= 4
    for content in contents:
        stream = io.BytesIO(content)
        if kind == "upsWDatt":
            document = docx.Document(stream)
            assert sum(len(paragraph.text) for paragraph in document.paragraphs) > 5_000
            assert len(document.tables) == 1
        elif kind == "upsBMobj":
            with Image.open(stream) as image:
                assert image.format == "BMP"
                image.load()
                assert len(image.getcolors() or ()) > 16
        elif kind == "ups10Kat":
            assert content.isascii() and content.endswith(b"\r\n")
        else:
            book = openpyxl.load_workbook(stream)
            assert book.active is not None and book.active.max_row > 100


@pytest.mark.parametrize("kind", KINDS)
def test_each_message_has_its_tag(kind: str) -> None:
    """The tag parses back, and its digest is SHA-256 of what follows the first empty line."""
    for message in many(kind, 20):
        tag = MessageTag.parse(str(parse(message)[HEADER]))
        assert tag is not None
        assert (tag.run, tag.sender, tag.kind, tag.sent_us) == ("20260101-1", 17, kind, SENT_US)
        body = message[message.index(b"\r\n\r\n") + 4 :]
        assert tag.body == hashlib.sha256(body).hexdigest()[:16]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_conform_to_rfc_5322(kind: str) -> None:
    """CRLF and nothing else, at most 76 characters, ASCII, no spaces before a line's end.

    Longer are the tag, and the one media type that cannot be folded but at its beginning.
    """
    longer = (HEADER.encode(), b"Content-Type: application/vnd.openxmlformats-officedocument.")
    for message in many(kind, 100):
        lines = message.split(b"\r\n")
        assert lines.pop() == b""
        for line in lines:
            assert b"\r" not in line and b"\n" not in line
            assert not line.endswith((b" ", b"\t"))
            assert len(line) <= 76 or (line.startswith(longer) and len(line) < 200)
        assert message.isascii()


def test_headers_have_sender_date_recipients_and_subject() -> None:
    parsed = parse(compose())
    assert parsed["Date"].datetime == datetime.fromtimestamp(SENT_US // 1_000_000, UTC)
    assert parsed["From"].addresses[0].addr_spec == "user17@loadsim.example"
    assert [to.addr_spec for to in parsed["To"].addresses] == ["user2@loadsim.example", "list-3@loadsim.example"]
    assert parsed["Message-ID"] == "<n17.0.20260101-1@loadsim.example>"
    assert parsed["MIME-Version"] == "1.0"
    subjects = {parse(message)["Subject"] for message in many("ups1K", 100)}
    assert len(subjects) > 60
    assert all(subject and len(subject) < 78 for subject in subjects)


def test_a_slot_with_a_capital_is_capitalised() -> None:
    """Only the pattern decides on a capital; the words stay the same."""
    for variant in range(20):
        plain, *marked = (
            Writer(42, "slots", variant).sentence(pattern)
            for pattern in ("{modifier} {head}", "{Modifier} {head}", "{modifier} {Head}")
        )
        modifier, head = plain.split()
        assert plain.islower()
        assert marked == [f"{modifier.capitalize()} {head}", f"{modifier} {head.capitalize()}"]


def test_many_recipients_are_folded() -> None:
    """Fifty recipients stand on lines of at most 76 characters and are all there, in order."""
    to = [f"{'u' * (1 + number % 9)}{number}@a.example" for number in range(50)]
    message = compose(to=to)
    assert max(len(line) for line in message.split(b"\r\n\r\n")[0].split(b"\r\n") if b"X-LoadSim" not in line) <= 76
    assert [address.addr_spec for address in parse(message)["To"].addresses] == to


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=200))
def test_any_subject_comes_back(subject: str) -> None:
    """With any subject, the message is well-formed; a printable subject is read back unchanged."""
    message = compose(answers=Answered("", subject, "reply"))
    head, _, body = message.partition(b"\r\n\r\n")
    assert body == compose(answers=Answered("", "Budget", "reply")).partition(b"\r\n\r\n")[2]
    assert head.isascii() and all(len(line) <= 300 for line in head.split(b"\r\n"))
    if subject.isprintable() and subject == " ".join(subject.split()) and "=?" not in subject and ":" not in subject:
        assert parse(message)["Subject"] == f"Re: {subject}"


@pytest.mark.parametrize(
    "changed",
    [
        {"sender_address": "a@b\r\nBcc: c@d"},
        {"to": ["a@b, c@d"]},
        {"to": []},
        {"domain": "example\r\nX: y"},
        {"run": "1\n2"},
        {"answers": Answered("<a@b>", "one\r\nBcc: x@y", "reply")},
        {"id": "1>\r\nX: y"},
    ],
)
def test_invalid_header_values_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=":"):
        compose(**changed)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_arguments_make_equal_messages(kind: str) -> None:
    """Another instance makes the same bytes, prepared or not, after any other messages; another seed makes others."""
    wanted = compose(Contents(5), kind=kind)
    other = Contents(5)
    compose(other, kind="ups4K", id="n3.9")
    assert compose(other, kind=kind) == wanted
    assert compose(Contents(6), kind=kind) != wanted


def test_the_body_follows_from_the_id() -> None:
    one = compose(id="n4.4", kind="upsXLatt")
    two = compose(id="n4.4", kind="upsXLatt", run="other", sent_us=5, to=["x@loadsim.example"])
    assert one.split(b"\r\n\r\n", 1)[1] == two.split(b"\r\n\r\n", 1)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("ups1K", 200), ("ups2K", 110), ("ups4K", 110), ("ups10Kat", 700)])
def test_bodies_vary_and_resemble_natural_text(kind: str, least: int) -> None:
    """Hundreds of different bodies; words and compressibility like those of text, a few words far ahead."""
    bodies = {message.split(b"\r\n\r\n", 1)[1] for message in many(kind, 800)}
    assert len(bodies) >= least
    texts = [decoded(leaves(parse(message))[0]) for message in many(kind, 100)]
    assert 2 < len(b"".join(texts)) / len(zlib.compress(b"".join(texts))) < 6
    words = Counter(re.findall(rb"[a-z]+", b" ".join(texts).lower()))
    assert len(words) > 500
    counts = sorted(words.values(), reverse=True)
    assert counts[0] > 3 * counts[20] > 6 * counts[200]


def test_bodies_have_lines_that_need_escaping() -> None:
    """Some lines begin with a dot (one is nothing but a dot), "* " or "From "."""
    lines = {line for message in many("ups4K") for line in message.split(b"\r\n\r\n", 1)[1].split(b"\r\n")}
    assert b"." in lines
    for start in (b"..", b".d", b"* ", b"From "):
        assert any(line.startswith(start) for line in lines), start


@pytest.mark.parametrize("how", ["reply", "reply_all", "forward"])
def test_answers_are_threaded(how: str) -> None:
    message = compose(answers=Answered("<n9.1.run@loadsim.example>", "Budget", how), kind="ups4K")
    parsed = parse(message)
    assert parsed["In-Reply-To"] == parsed["References"] == "<n9.1.run@loadsim.example>"
    assert parsed["Subject"] == ("Fwd: Budget" if how == "forward" else "Re: Budget")
    assert len(decoded(parsed)) == 1024
    tag = MessageTag.parse(str(parsed[HEADER]))
    assert tag is not None and tag.kind == "ups4K"


@pytest.mark.parametrize(
    ("subject", "how", "wanted"),
    [
        ("RE: re: Budget", "reply_all", "Re: Budget"),
        ("FW: Re: Budget", "reply", "Re: Budget"),
        ("Rest: Budget", "reply", "Re: Rest: Budget"),
        ("", "reply", "Re:"),
    ],
)
def test_subject_prefixes_do_not_accumulate(subject: str, how: str, wanted: str) -> None:
    assert parse(compose(answers=Answered("<a@b>", subject, how)))["Subject"].strip() == wanted


@pytest.mark.parametrize("kind", FILE_BYTES)
def test_forward_carries_the_attachment_as_it_was(kind: str) -> None:
    """Encoded bytes, type and name of the original's file are those of the forward's, also twice forwarded."""
    original = compose(kind=kind)
    file = leaves(parse(original))[1]
    message = original
    for sender in (5, 6):
        attachment = Attachment(file.get_content_type(), file.get_filename(), "base64", as_found(message))
        message = compose(
            id=f"r{sender}", answers=Answered("<a@b>", "Budget", "forward"), attachment=attachment, kind=kind
        )
        text, passed = leaves(parse(message))
        assert as_found(message) == as_found(original)
        assert decoded(passed) == decoded(file)
        assert (passed.get_content_type(), passed.get_filename()) == (file.get_content_type(), file.get_filename())
        assert passed.get_content_disposition() == "attachment"
        assert len(decoded(text)) == 1024
    assert base64.b64decode(as_found(message)) == decoded(file)


def test_forward_of_a_file_without_an_ascii_name() -> None:
    for name in ("Übersicht März.txt", 'a "b".txt', None):
        attachment = Attachment("text/plain", name, "7bit", b"one\r\n")
        parsed = parse(compose(answers=Answered("<a@b>", "x", "forward"), attachment=attachment))
        assert leaves(parsed)[1].get_filename() == name
        assert decoded(leaves(parsed)[1]) == b"one\r\n"


def part_of(leaf: EmailMessage, at: int) -> tuple[Part, bytes]:
    """A leaf as a driver states it, and its encoded bytes."""
    data = str(leaf.get_payload()).replace("\r\n", "\n").replace("\n", "\r\n").encode()
    encoding = str(leaf["Content-Transfer-Encoding"])
    return Part(str(1 + at), leaf.get_content_type(), len(data), leaf.get_filename(), encoding), data


def answer(how: str, kind: str) -> tuple[bytes, Contents]:
    original = part_of(leaves(parse(compose(kind=kind)))[-1], 1)
    about = Answered("<n17.0.20260101-1@loadsim.example>", "Figures", how)
    carried = Attachment.of(*original) if how == "forward" and KINDS[kind].attached else None
    return compose(id="rabcdefghijklmnop", kind=kind, answers=about, attachment=carried), CONTENTS


FOREIGN = [f"n17.{at}" for at in range(40)]


@pytest.mark.parametrize(
    ("message", "contents"),
    [
        *((compose(kind=kind), CONTENTS) for kind in KINDS),
        *((compose(id=name), CONTENTS) for name in FOREIGN),
        answer("reply", "ups1K"),
        *(answer("forward", kind) for kind in KINDS),
        (compose(), Contents(43)),
    ],
)
def test_a_part_with_other_bytes_is_altered(message: bytes, contents: Contents) -> None:
    """Of each kind, new or an answer. A server may drop the last line's end, and MAPI decodes texts."""
    tag, parts = tagged_parts(message)
    for at, (part, data) in enumerate(parts):
        kinds = {"is_text": at == 0, "alone": len(parts) == 1}
        assert not contents.is_altered(tag, part, data, **kinds)
        assert not contents.is_altered(tag, part, data.rstrip(b"\r\n"), **kinds)
        if at == 0:
            as_mapi = encoded_text(decoded(leaves(parse(message))[0]).decode())
            assert not contents.is_altered(tag, part._replace(encoding=""), as_mapi, **kinds)
        if contents is CONTENTS:
            other = "7bit" if part.encoding == "base64" else "BASE64"
            assert contents.is_altered(tag, part._replace(encoding=other), data, **kinds)
            assert not contents.is_altered(tag, part._replace(encoding=part.encoding.upper()), data, **kinds)
        for wrong in (data[::-1], bytes([data[0] ^ 1]) + data[1:], data[:-5] + b"x" + data[-4:], data + data[:100]):
            assert contents.is_altered(tag, part, wrong, **kinds)
        assert not contents.is_altered(tag._replace(body=""), part, data[::-1], **kinds)


@pytest.mark.parametrize("kind", [kind for kind, spec in KINDS.items() if spec.attached])
def test_another_file_in_a_forward_is_altered(kind: str) -> None:
    """A server that states its fields otherwise than to the sender, as in capitals, changes nothing."""
    message, contents = answer("forward", kind)
    tag, (_, (part, data)) = tagged_parts(message)
    files = {bytes(each.body) for each in contents.sent(tag, is_text=False)}
    assert data in files
    for each in files:
        assert contents.is_altered(tag, part, each, is_text=False, alone=False) == (each != data)
    stated = part._replace(content_type=part.content_type.upper(), encoding="BASE64")
    assert not contents.is_altered(tag, stated, data, is_text=False, alone=False)


def test_a_forwarded_file_of_any_bytes_is_compared() -> None:
    """Such a file is of a message of a stated size. Servers may drop the last line's end or, as pymap does, add one."""
    _, (_, (part, data)) = tagged_parts(compose(kind="sized", size_bytes=40_000))
    about = Answered("<n17.0.20260101-1@loadsim.example>", "Figures", "forward")
    for sent in (data, data + b"\r\n"):
        file = Attachment.of(part, sent)
        forward = compose(id="rabcdefghijklmnop", kind="sized", answers=about, attachment=file)
        tag, (_, (stated, _)) = tagged_parts(forward)
        for shown in (sent, sent + b"\r\n", sent.removesuffix(b"\r\n")):
            assert not CONTENTS.is_altered(tag, stated, shown, is_text=False, alone=False)
        assert CONTENTS.is_altered(tag, stated, sent[:-4] + b"x" + sent[-3:], is_text=False, alone=False)


def test_parts_of_another_seed_cannot_be_compared(kind: str = "upsWDatt") -> None:
    """Of its parts alone; a text that is the whole body has the digest of the tag."""
    message = compose(kind=kind)
    tag = MessageTag.parse(str(parse(message)[HEADER]))
    assert tag is not None
    for at, (part, data) in enumerate(part_of(leaf, at) for at, leaf in enumerate(leaves(parse(message)))):
        assert not Contents(43).is_altered(tag, part, data[::-1], is_text=at == 0, alone=False)


@pytest.mark.parametrize("make", [lambda **sized: initial(3, **sized), compose])
@pytest.mark.parametrize("size_bytes", [3000, 40_000])
def test_sized_messages_are_compared_if_they_are_texts(size_bytes: int, make: Callable[..., bytes]) -> None:
    message = make(kind="sized", size_bytes=size_bytes)
    assert len(message) == size_bytes
    tag, parts = tagged_parts(message)
    for at, (part, data) in enumerate(parts):
        kinds = {"is_text": at == 0, "alone": len(parts) == 1}
        assert not CONTENTS.is_altered(tag, part, data, **kinds)
        assert CONTENTS.is_altered(tag, part, data[::-1], **kinds) == (len(parts) == 1)


def tagged_parts(message: bytes) -> tuple[MessageTag, list[tuple[Part, bytes]]]:
    """Return the tag of a message, and each part with its bytes."""
    tag = MessageTag.parse(str(parse(message)[HEADER]))
    assert tag is not None
    return tag, [part_of(leaf, at) for at, leaf in enumerate(leaves(parse(message)))]


def initial(index: int, **changed: Any) -> bytes:
    given: dict[str, Any] = {
        "user": 3,
        "address": "user3@loadsim.example",
        "sender": 9,
        "sender_address": "user9@loadsim.example",
        "folder": "INBOX",
        "index": index,
        "kind": "ups1K",
        "domain": "loadsim.example",
    }
    return Contents(42).initial(**(given | changed))


def test_initial_messages_never_change() -> None:
    """A message of the start state has the same bytes always, its own id, a date in late 2025, in order."""
    assert initial(4) == initial(4)
    assert initial(4) != initial(4, folder="Deleted Items")
    dates = []
    for index in range(60):
        parsed = parse(initial(index))
        tag = MessageTag.parse(str(parsed[HEADER]))
        assert tag is not None
        assert (tag.run, tag.id) == (INITIAL_RUN, initial_id(3, "INBOX", index))
        assert [to.addr_spec for to in parsed["To"].addresses] == ["user3@loadsim.example"]
        dates.append(parsed["Date"].datetime)
    assert dates == sorted(dates)
    assert {(date.year, date.month) for date in dates} == {(2025, 11)}
    many = [parse(initial(index))["Date"].datetime for index in (59, 1438, 1439, 1440, 1441, 5000, 100_000)]
    assert all(earlier < later for earlier, later in pairwise(many)), "servers may list mail by whole seconds"
    assert many[-1].month == 12


def schedule(size_bytes: int, id: str = "s3.1", **changed: Any) -> bytes:  # noqa: A002
    given: dict[str, Any] = {"run": "run", "user": 3, "address": "user3@loadsim.example", "domain": "loadsim.example"}
    return CONTENTS.schedule(**(given | changed), id=id, size_bytes=size_bytes, sent_us=SENT_US)


@settings(deadline=None, max_examples=40)
@given(st.integers(2_000, 60_000), st.integers(0, 1_000))
def test_schedule_has_the_size_asked_for(size_bytes: int, index: int) -> None:
    assert len(schedule(size_bytes, f"s3.{index}")) == size_bytes


@pytest.mark.parametrize("kilobytes", [5, 22, 40])
def test_schedule_is_a_calendar(kilobytes: int) -> None:
    """RFC 5545: CRLF, lines of at most 75 octets, balanced components, each event with what it must have."""
    message = schedule(kilobytes * 1024)
    parsed = parse(message)
    assert parsed.get_content_type() == "text/calendar"
    body = message.split(b"\r\n\r\n", 1)[1]
    tag = MessageTag.parse(str(parsed[HEADER]))
    assert tag is not None and tag.body == hashlib.sha256(body).hexdigest()[:16]
    assert body.endswith(b"\r\n")
    assert all(len(line) <= 75 and b"\r" not in line and b"\n" not in line for line in body.split(b"\r\n"))
    lines = body.decode().replace("\r\n ", "").split("\r\n")[:-1]
    assert (lines[0], lines[-1]) == ("BEGIN:VCALENDAR", "END:VCALENDAR")
    assert "VERSION:2.0" in lines and any(line.startswith("PRODID:") for line in lines)
    events = "\n".join(lines).split("BEGIN:VEVENT\n")[1:]
    assert len(events) >= kilobytes
    uids = set()
    for event in events:
        assert event.count("END:VEVENT") == 1
        values = dict(line.partition(":")[::2] for line in event.split("\n"))
        begin, end = (datetime.strptime(values[key], "%Y%m%dT%H%M%SZ") for key in ("DTSTART", "DTEND"))
        assert begin < end
        assert datetime.strptime(values["DTSTAMP"], "%Y%m%dT%H%M%SZ") == datetime.fromtimestamp(
            SENT_US // 1_000_000, UTC
        ).replace(tzinfo=None)
        assert values["SUMMARY"] and not re.search(r"(?<!\\)[,;]", values["SUMMARY"] + values["DESCRIPTION"])
        uids.add(values["UID"])
    assert len(uids) == len(events)


def test_schedules_differ() -> None:
    assert schedule(5_000) == schedule(5_000)
    assert schedule(5_000).split(b"\r\n\r\n", 1)[1] != schedule(5_000, "s3.2").split(b"\r\n\r\n", 1)[1]
    with pytest.raises(ValueError, match="schedule"):
        schedule(600)
    with pytest.raises(ValueError, match="address"):
        schedule(5_000, address="a@b\r\nX: y")


def test_a_read_receipt_has_the_form_of_rfc_8098() -> None:
    """It names the message and its reader; with the null return path, no receipt can be requested for it."""
    about = Answered("<n2.0.r@loadsim.example>", "Budget", "read_receipt")
    parsed = parse(compose(id="m" + "a" * 16, kind="receipt", to=["user2@loadsim.example"], answers=about))
    assert (parsed.get_content_type(), parsed.get_param("report-type")) == (
        "multipart/report",
        "disposition-notification",
    )
    text, notification = parsed.iter_parts()
    assert (text.get_content_type(), notification.get_content_type()) == (
        "text/plain",
        "message/disposition-notification",
    )
    (fields,) = notification.get_payload()
    assert fields["Final-Recipient"] == "rfc822;user17@loadsim.example"
    assert fields["Original-Message-ID"] == "<n2.0.r@loadsim.example>"
    assert fields["Disposition"] == "manual-action/MDN-sent-automatically; displayed"
    assert parsed["Subject"] == "Read: Budget" and "Disposition-Notification-To" not in parsed


@pytest.mark.parametrize("size_bytes", [None, 3000, 30_000])
def test_a_request_for_a_read_receipt_is_a_header(size_bytes: int | None) -> None:
    """The rest stays as it was; a stated size includes the request."""
    message, plain = (compose(size_bytes=size_bytes, requests_receipt=asks) for asks in (True, False))
    assert parse(message)["Disposition-Notification-To"] == "user17@loadsim.example"
    if size_bytes is None:
        line = b"Disposition-Notification-To: user17@loadsim.example\r\n"
        assert message.replace(line, b"") == plain
    else:
        assert len(message) == len(plain) == size_bytes
