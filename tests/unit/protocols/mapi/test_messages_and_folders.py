"""Messages of loadsim as properties and back, folders of a hierarchy table, and new mail of the Inbox."""

from __future__ import annotations

import email
import email.policy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_runs import contents

from loadsim.model.content.compose import Answered, Attachment
from loadsim.model.content.templates import KINDS, base64_lines, encoded_bytes, encoded_text
from loadsim.model.message_tag import HEADER, MessageTag, body_digest
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, SENT_ITEMS, FolderSettings
from loadsim.model.provisioning_ports import FolderStatus
from loadsim.protocols.http.news import News
from loadsim.protocols.imap.folder_names import ASIDE
from loadsim.protocols.mapi import tags
from loadsim.protocols.mapi.composition import composed, message_id_of, sender_properties, whole_body
from loadsim.protocols.mapi.folders import read_folders
from loadsim.protocols.mapi.rops import LoggedOn
from loadsim.protocols.mapi.rows import part_of

NAMED = {key: 0x8000_0000 + (number << 16) + kind for number, (key, (_, kind)) in enumerate(tags.NAMED.items())}
TO = ["user2@example.test", "list.of-users@example.test", "user3@example.test"]


def message_of(kind: str, message_id: str = "n1.0") -> bytes:
    return contents().compose(
        run="run-1",
        sender=1,
        sender_address="user1@example.test",
        to=TO,
        id=message_id,
        kind=kind,
        sent_us=1_700_000_000_000_000,
        domain="example.test",
    )


def filetime(at: datetime) -> int:
    """MS-DTYP section 2.3.3: units of 100 ns since 1601."""
    return (at - datetime(1601, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("message_id", [f"n1.{number}" for number in range(12)])
def test_a_composed_message_has_the_parts_that_the_standard_library_finds(kind: str, message_id: str) -> None:
    """Text and file, decoded; header fields as properties; encoded again as they were in the message."""
    message = message_of(kind, message_id)
    parsed = email.message_from_bytes(message, policy=email.policy.default)
    made = composed(message, NAMED)
    values = dict(made.properties)
    assert values[tags.SUBJECT] == parsed["Subject"]
    assert values[tags.INTERNET_MESSAGE_ID] == parsed["Message-ID"] == made.message_id == message_id_of(message)
    assert values[tags.MESSAGE_CLASS] == "IPM.Note"
    assert values[tags.CLIENT_SUBMIT_TIME] == filetime(parsed["Date"].datetime)
    assert MessageTag.parse(str(values[NAMED["tag"]])) == MessageTag.parse(parsed[HEADER])
    assert (made.sender, made.to) == ("user1@example.test", TO)
    text, *files = [part for part in parsed.walk() if not part.is_multipart()]
    assert made.body == text.get_payload(decode=True).decode()  # type: ignore[union-attr]
    assert [file.content for file in made.files] == [each.get_payload(decode=True) for each in files]
    for file, part in zip(made.files, files, strict=True):
        named = dict(file.properties)
        assert named[tags.ATTACH_LONG_FILENAME] == part.get_filename()
        assert named[tags.ATTACH_MIME_TAG] == part.get_content_type()
        assert named.get(tags.ATTACH_CONTENT_ID) == (part["Content-ID"] and part["Content-ID"].strip("<>"))
        encoded = base64_lines(file.content)
        assert encoded in message
        assert encoded_bytes(len(file.content)) == len(encoded)
    assert encoded_text(made.body) in message


def body_by_properties(message: bytes, drops_last_line_end: bool) -> bytes | None:
    """Return the body that is made from properties alone, after a server that may drop the text's last line end."""
    made = composed(message, NAMED)
    header = str(dict(made.properties)[NAMED["tag"]])
    tag = MessageTag.parse(header)
    assert tag is not None
    files = [(dict(file.properties), file.content) for file in made.files]
    parts = [
        (part_of((0, len(data), named[tags.ATTACH_LONG_FILENAME], named[tags.ATTACH_MIME_TAG])), data)
        for named, data in files
    ]
    text = made.body.removesuffix("\r\n") if drops_last_line_end else made.body
    assert len(header) < 255  # tables cut longer values
    return whole_body(header, tag, text, parts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_body_is_rebuilt_from_properties(kind: str) -> None:
    """So the digest of the tag can be checked; every eighth text may be no ASCII, and is in quoted-printable."""
    for number in range(48):
        message = message_of(kind, f"i{number}x")
        body = message.partition(b"\r\n\r\n")[2]
        assert body_by_properties(message, drops_last_line_end=False) == body
        dropped = body_by_properties(message, drops_last_line_end=True)
        assert dropped is not None
        assert body in (dropped, dropped + b"\r\n")


@pytest.mark.parametrize("size_bytes", [2000, 20_000, 200_000])
def test_the_body_of_a_sized_message_is_rebuilt(size_bytes: int) -> None:
    message = contents().initial(
        user=1,
        address="user1@example.test",
        sender=2,
        sender_address="user2@example.test",
        folder=INBOX,
        index=0,
        kind="ups1K",
        domain="example.test",
        size_bytes=size_bytes,
    )
    assert body_by_properties(message, drops_last_line_end=True) is not None
    assert body_by_properties(message, drops_last_line_end=False) == message.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("filename", ["notes-1.txt", "müller.txt", None])
def test_the_body_of_a_forwarded_message_is_rebuilt(filename: str | None) -> None:
    attachment = Attachment("text/plain", filename, "base64", base64_lines(b"some file" * 100))
    message = contents().compose(
        run="run-1",
        sender=1,
        sender_address="user1@example.test",
        to=TO,
        id="rabcdefghijklmnop",
        kind="ups10Kat",
        sent_us=0,
        domain="example.test",
        answers=Answered("<a@b>", "a subject", "forward"),
        attachment=attachment,
    )
    made = body_by_properties(message, drops_last_line_end=False)
    assert (made == message.partition(b"\r\n\r\n")[2]) == (filename is not None and filename.isascii())


def test_a_changed_file_or_unknown_mark_is_not_rebuilt() -> None:
    message = message_of("ups10Kat")
    made = composed(message, NAMED)
    header = str(dict(made.properties)[NAMED["tag"]])
    tag = MessageTag.parse(header)
    assert tag is not None
    part = part_of((0, 10, "notes-1.txt", "text/plain"))
    changed = whole_body(header, tag, made.body, [(part, b"another")])
    assert changed is not None
    assert body_digest(changed) != tag.body
    assert whole_body(header, tag, made.body, [(part, b"")] * 2) is None
    assert whole_body(header.replace("mark=", "mark=x"), tag, made.body, [(part, b"")]) is None
    assert whole_body(tag.header(), tag, made.body, [(part, b"")]) is None


def test_an_answer_keeps_its_thread_and_a_foreign_subject() -> None:
    message = message_of("ups1K").replace(
        b"Subject: ", b"In-Reply-To: <a@b>\r\nReferences: <x@y>\r\n <a@b>\r\nSubject: =?utf-8?B?w7xiZXI=?= ", 1
    )
    values = dict(composed(message, NAMED).properties)
    assert values[tags.IN_REPLY_TO_ID] == "<a@b>"
    assert values[tags.INTERNET_REFERENCES] == "<x@y> <a@b>"
    assert str(values[tags.SUBJECT]).startswith("über")


def test_a_schedule_is_an_appointment() -> None:
    """MS-OXOCAL section 2.2.1: the times of the first event, its place, and the whole calendar as its text."""
    schedule = contents().schedule(
        run="run-1",
        user=1,
        address="user1@example.test",
        id="s1.0",
        size_bytes=20_000,
        sent_us=1_700_000_000_000_000,
        domain="example.test",
    )
    lines = schedule.decode().replace("\r\n ", "").split("\r\n")
    times = [
        datetime.strptime(line.partition(":")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        for line in lines
        if line.startswith(("DTSTART", "DTEND"))
    ]
    place = next(line for line in lines if line.startswith("LOCATION:")).partition(":")[2].replace("\\,", ",")
    made = composed(schedule, NAMED)
    values = dict(made.properties)
    assert values[tags.MESSAGE_CLASS] == "IPM.Appointment"
    assert values[NAMED["begin"]] == values[NAMED["common_begin"]] == values[tags.START_DATE] == filetime(times[0])
    assert values[NAMED["end"]] == values[NAMED["common_end"]] == values[tags.END_DATE] == filetime(times[1])
    assert values[NAMED["minutes"]] == (times[1] - times[0]) / timedelta(minutes=1)
    assert values[NAMED["location"]] == place
    assert made.body.encode() == schedule.partition(b"\r\n\r\n")[2]


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_composed(data: bytes, has_parts: bool) -> None:
    """A forward holds what others have written."""
    head = b'Content-Type: multipart/mixed; boundary="b"\r\nDate: Fri, 99 Zzz\r\n' if has_parts else b""
    made = composed(head + b"\r\n--b\r\n" + data + b"\r\n--b--\r\n", NAMED)
    assert isinstance(made.body, str)


def test_a_stored_message_names_its_sender_by_address() -> None:
    values = dict(sender_properties("user9@example.test"))
    assert values.pop(tags.SENDER_ADDRESS_TYPE) == values.pop(tags.SENT_REPRESENTING_ADDRESS_TYPE) == "SMTP"
    assert set(values.values()) == {"user9@example.test"}
    assert tags.SENT_REPRESENTING_SMTP_ADDRESS in values


# --- folders ---

TOP, INBOX_ID, SENT_ID, DELETED_ID = 10, 11, 12, 13
LOGON = LoggedOn((1, 2, 3, TOP, INBOX_ID, 14, SENT_ID, DELETED_ID, 4, 5, 6, 7, 8), bytes(16), bytes(16))


def row(number: int, parent: int, name: str, kind: str = "IPF.Note", messages: int = 0) -> tuple[Any, ...]:
    return (number, parent, name, kind, messages, 1, 900 + number)


MAIL = (row(INBOX_ID, TOP, "Posteingang"), row(SENT_ID, TOP, "Gesendet"), row(DELETED_ID, TOP, "Papierkorb"))
AGENDA = row(20, TOP, "Kalender", "IPF.Appointment")


def test_special_folders_are_found_by_the_logon_and_the_calendar_by_its_class() -> None:
    number = int.from_bytes(b"\1\0" + (222).to_bytes(6, "big"), "little")  # MS-OXCDATA section 2.2.1.1
    rows = (*MAIL, AGENDA, row(21, 20, "Mine", "IPF.Appointment"), row(number, TOP, "Folder 01", messages=7))
    folders = read_folders((*rows, row(30, 1, "Elsewhere")), LOGON, FolderSettings())
    assert folders.numbers == {
        INBOX: INBOX_ID,
        SENT_ITEMS: SENT_ID,
        DELETED_ITEMS: DELETED_ID,
        CALENDAR: 20,
        "Kalender/Mine": 21,
        "Folder 01": number,
    }
    assert folders.names.path(SENT_ITEMS) == "Gesendet"
    assert folders.names.folder_at("Gesendet") == SENT_ITEMS
    assert folders.names.path("Folder 01") == folders.names.folder_at("Folder 01") == "Folder 01"
    assert folders.status["Folder 01"] == FolderStatus(222, 900 + number, 7, 1, 900 + number)


def test_taken_folder_names_are_avoided_and_settings_override_them() -> None:
    rows = (*MAIL, AGENDA, row(21, TOP, SENT_ITEMS), row(22, TOP, "50%/year"))
    folders = read_folders(rows, LOGON, FolderSettings())
    assert folders.numbers[ASIDE + SENT_ITEMS] == 21
    assert folders.names.path(ASIDE + SENT_ITEMS) == SENT_ITEMS
    assert folders.numbers["50%25%2Fyear"] == 22
    stated = read_folders(rows, LOGON, FolderSettings(sent=SENT_ITEMS))
    assert (stated.numbers[SENT_ITEMS], stated.numbers["Gesendet"]) == (21, SENT_ID)


def test_a_calendar_may_be_missing_and_a_status_unknown() -> None:
    folders = read_folders((*MAIL, (22, TOP, "Folder 01", None, 3, None, 5)), LOGON, FolderSettings())
    assert CALENDAR not in folders.numbers
    assert folders.status["Folder 01"] is None


@given(st.lists(st.tuples(st.integers(9, 25), st.integers(9, 25), st.text(max_size=3)), max_size=20))
def test_any_hierarchy_is_read_to_an_end(found: list[tuple[int, int, str]]) -> None:
    """Folders may be their own parents; each that is named can be found by its path."""
    folders = read_folders([row(*each) for each in found], LOGON, FolderSettings())
    for name in folders.numbers:
        assert folders.names.folder_at(folders.names.path(name)) == name


# --- new mail ---


def test_messages_of_events_are_announced_once_and_listed_once() -> None:
    news: News[int, int] = News(0)
    news.take([(1, 100), (2, 200)])
    news.event(3)
    news.event(3)
    news.event(2)
    assert (news.tell(), news.tell()) == (1, 0)
    rows = [(0, 50), (1, 100), (2, 200), (3, 300), (4, 400)]
    assert [each[0] for each in rows if news.is_new(*each)] == [3, 4]  # 0 is below the first list
    news.event(4)
    news.take(rows[3:])
    assert (news.tell(), len(news.expected)) == (0, 0)
    assert [each[0] for each in rows if news.is_new(*each, reopen=True)] == [3, 4]
    assert not any(news.is_new(*each) for each in rows)


def test_the_first_list_of_the_inbox_is_not_restricted() -> None:
    news: News[int, int] = News(0)
    news.take([(5, 500)], is_whole=True)
    assert news.is_new(6, 0)
    news.event(7)
    news.forget_events()
    assert (news.tell(), len(news.expected)) == (0, 0)
