"""The mailbox port over IMAP: on real servers with imaplib as witness, and on scripted ones for what these never do."""

# ruff: noqa: E501 - what goes over the wire is easier to read unbroken

import asyncio
import imaplib
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from itertools import count, cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_script import PATIENCE_S, Ear, Peer, Script, playing
from mailservers import SITES, StartDovecotPostfix, StartEmbedded, logged_on, numbered_accounts
from provisioning import SERVERS_FLAGS

from loadsim.errors import InboxRenumbered, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import INBOX, SENT_ITEMS, Account, Flag, Part, SearchKey
from loadsim.model.state_checks import Violation
from loadsim.protocols.imap.grammar import MOST_SECTIONS
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.reading import header_of, origin_of, structure_of
from loadsim.protocols.imap.responses import Fetched, Leaf, Multipart
from loadsim.protocols.imap.session import ImapSession, NewMailAnnouncements
from loadsim.protocols.imap.under_way import Untagged
from loadsim.protocols.imap.wire import ImapWire
from loadsim.servers.running import RunningServer

ACCOUNTS = numbered_accounts(42)


def message(number: int, subject: str = "hello", tag: bool = True, body: bytes = b"text\r\n") -> bytes:
    head = "From: One <user1@example.test>\r\nTo: user2@example.test, Three <user3@example.test>\r\n"
    head += f"Subject: {subject}\r\n"
    head += f"Message-ID: <n1.{number}.initial@example.test>\r\nMIME-Version: 1.0\r\n"
    if tag:
        head += f"X-LoadSim: {tag_of(number, body).header()}\r\n"
    return head.encode() + b"\r\n" + body


def tag_of(number: int, body: bytes = b"text\r\n") -> MessageTag:
    return MessageTag("initial", 1, f"n1.{number}", "text-1k", 1_700_000_000_000_000, body_digest(body))


class Site:
    def __init__(self, server: RunningServer, accounts: Iterator[Account]) -> None:
        self.server = server
        self.accounts = accounts

    def user(self) -> Account:
        return next(self.accounts)

    def mailbox(self, account: Account, **named: float) -> tuple[ImapMailbox, Ear]:
        ear = Ear()
        endpoint = self.server.services.imap
        return ImapMailbox(ImapSession(endpoint, None, account, ear, PATIENCE_S, **named)), ear

    @asynccontextmanager
    async def session(self, account: Account, **named: float) -> AsyncIterator[tuple[ImapMailbox, Ear]]:
        box, ear = self.mailbox(account, **named)
        await box.log_on()
        yield box, ear
        await box.log_off()

    def witness(self, account: Account, folder: str, query: str = "(FLAGS BODY.PEEK[])") -> list[tuple[str, bytes]]:
        """Flags and message of everything in a folder, by imaplib, without flags that the server itself sets."""
        with logged_on(self.server, account) as client:
            client.select(f'"{folder}"', readonly=True)
            _, found = client.uid("SEARCH", "ALL")
            answers = [client.uid("FETCH", uid.decode(), query)[1][0] for uid in found[0].split()]
        return [
            (" ".join(sorted(flag for flag in flags if flag.lower() not in SERVERS_FLAGS)), body)
            for flags, body in (([flag.decode() for flag in imaplib.ParseFlags(head)], body) for head, body in answers)
        ]

    def subjects(self, account: Account, folder: str) -> list[str]:
        found = self.witness(account, folder)
        return [body.split(b"Subject: ")[1].split(b"\r\n")[0].decode() for _, body in found]


@pytest.fixture(scope="module")
def embedded_site(embedded_server: StartEmbedded) -> Site:
    return Site(embedded_server(ACCOUNTS), iter(ACCOUNTS))


@pytest.fixture(scope="module")
def dovecot_site(dovecot_postfix: StartDovecotPostfix) -> Site:
    return Site(dovecot_postfix(ACCOUNTS), iter(ACCOUNTS))


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest) -> Site:
    found = request.getfixturevalue(f"{request.param}_site")
    assert isinstance(found, Site)
    return found


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())


MIXED = (
    b"From: a@example.test\r\nTo: user2@example.test, Three <user3@example.test>\r\nSubject: coffee {3}\r\n"
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=o\r\n\r\n"
    b"--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\nContent-Type: text/plain\r\n\r\nplain\r\n"
    b"--i\r\nContent-Type: text/html\r\n\r\n<p>html</p>\r\n--i--\r\n"
    b"--o\r\nContent-Type: image/bmp\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: inline;"
    b" filename=dot.bmp\r\n\r\nQk0=\r\n"
    b"--o\r\nContent-Type: text/plain; name=\"note.txt\"\r\nContent-Disposition: attachment\r\n\r\nnote\r\n"
    b"--o\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=name.pdf\r\n\r\nPDF\r\n"
    b"--o--\r\n"
)  # fmt: skip


async def test_attachments_are_found_and_loaded(site: Site) -> None:
    """A text to show, its other form left out, and three attachments with their names and contents."""
    account = site.user()

    async with site.session(account) as (box, _):
        await box.append(INBOX, MIXED)
        (header,) = await box.arrived()
        assert (header.subject, header.tag) == ("coffee {3}", None)
        assert header.to == ("user2@example.test", "user3@example.test")
        structure = await box.structure(header.ref)
        assert structure.text is not None
        assert structure.text.name == "1.1"
        assert [(each.name, each.content_type, each.filename) for each in structure.attachments] == [
            ("2", "image/bmp", "dot.bmp"),
            ("3", "text/plain", "note.txt"),
            ("4", "application/pdf", "name.pdf"),
        ]
        assert structure.attachments[0].encoding == "base64"
        parts = [await box.part(header.ref, each) for each in (structure.text, *structure.attachments)]
        # Servers differ about the CRLF in front of a boundary (RFC 2046 section 5.1.1).
        assert [part.removesuffix(b"\r\n") for part in parts] == [b"plain", b"Qk0=", b"note", b"PDF"]


@pytest.mark.system
async def test_a_forwarded_message_has_its_keyword(dovecot_site: Site) -> None:
    """$Forwarded is a keyword: only servers that allow keywords keep it (the embedded one does not)."""
    account = dovecot_site.user()

    async with dovecot_site.session(account) as (box, _):
        await box.flag([await box.append(INBOX, message(1))], Flag.FORWARDED)
    assert [flags for flags, _ in dovecot_site.witness(account, "INBOX")] == ["$Forwarded"]


async def test_expunge_removes_no_other_deleted_message(site: Site) -> None:
    """A message that carries a deleted flag of somebody else survives an expunge of another one."""
    account = site.user()

    async with site.session(account) as (box, _):
        await box.append(INBOX, message(1, "foreign", tag=False))
        ref = await box.append(INBOX, message(2, "ours"))
        with logged_on(site.server, account) as client:
            client.select("INBOX")
            client.uid("STORE", "1:*", "+FLAGS", "(\\Flagged)")
            client.store("1", "+FLAGS", "(\\Deleted)")
        await box.expunge([ref])
    assert site.subjects(account, "INBOX") == ["foreign"]


def deliver(site: Site, account: Account, subject: str) -> None:
    with logged_on(site.server, account) as client:
        assert client.append("INBOX", None, None, message(9, subject))[0] == "OK"


async def test_without_idle_polling_announces_new_mail(embedded_site: Site) -> None:
    """Without IDLE the mailbox asks now and then, by itself."""
    account = embedded_site.user()

    async with embedded_site.session(account, poll_s=0.02) as (box, ear):
        box.session.offered -= {"IDLE"}
        await box.watch()
        await asyncio.to_thread(deliver, embedded_site, account, "polled")
        await ear.wait()
        assert ear.arrivals == [1]
        assert [each.subject for each in await box.arrived()] == ["polled"]
        asked = [name for name, *_ in ear.commands].count("IMAP NOOP")
        assert asked >= 1
        assert "IMAP IDLE" not in [name for name, *_ in ear.commands]


async def test_idle_is_renewed(site: Site) -> None:
    """Before a server would drop an idle session, IDLE begins again by itself, and still announces."""
    account = site.user()

    box, ear = site.mailbox(account, idle_again_s=0.02)
    await box.log_on()
    await box.watch()
    while [name for name, *_ in ear.commands].count("IMAP IDLE") < 3:
        await asyncio.to_thread(deliver, site, account, "news")
        await ear.wait()
    assert [each.subject for each in await box.arrived()] == ["news"] * sum(ear.arrivals)
    await box.log_off()
    assert not ear.losses


@pytest.mark.parametrize("lacking", [{"MOVE"}, {"MOVE", "UIDPLUS"}, {"MULTIAPPEND", "LITERAL+", "LITERAL-"}])
async def test_fallbacks_have_the_same_effect(site: Site, lacking: set[str]) -> None:
    """Commands that a server does not offer are not sent, and the messages end up in the same places."""
    account = site.user()

    async with site.session(account) as (box, ear):
        box.session.offered -= lacking
        assert box.session.connection is not None
        if "LITERAL+" in lacking:
            box.session.connection.free_literal_bytes = -1
        await box.create("Other")
        refs = await box.append_many(INBOX, [(message(each, f"m{each}"), [Flag.SEEN]) for each in range(4)])
        await box.move([refs[0], refs[2]], "Other")
        await box.expunge([refs[3]])
        names = {name for name, *_ in ear.commands}
        assert ("IMAP UID MOVE" in names) == ("MOVE" not in lacking)
        assert ("IMAP EXPUNGE" in names) == ("UIDPLUS" in lacking)
    assert site.subjects(account, "INBOX") == ["m1"]
    assert site.subjects(account, "Other") == ["m0", "m2"]


async def test_without_uidplus_foreign_deleted_messages_are_protected(site: Site) -> None:
    """A plain EXPUNGE would take them along: neither expunge nor move is done then, and nothing was changed."""
    account = site.user()

    async with site.session(account) as (box, _):
        box.session.offered -= {"UIDPLUS", "MOVE"}
        await box.create("Other")
        await box.append(INBOX, message(1, "foreign", tag=False))
        ours = await box.append(INBOX, message(2, "ours"))
        with logged_on(site.server, account) as client:
            client.select("INBOX")
            client.store("1", "+FLAGS", "(\\Deleted)")
        for call in (box.expunge([ours]), box.move([ours], "Other")):
            with pytest.raises(ServerRefused, match="EXPUNGE would delete others"):
                await call
    assert [flags for flags, _ in site.witness(account, "INBOX")] == ["\\Deleted", ""]
    assert site.subjects(account, "Other") == []


USER = Account(1, "user1", "user1@example.test", "pw")


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[tuple[ImapMailbox, Ear]]:
    async def whole(peer: Peer) -> None:
        await peer.greet()
        await script(peer)
        await peer.end()

    async with playing(whole) as endpoint:
        ear = Ear()
        box = ImapMailbox(ImapSession(endpoint, None, USER, ear, PATIENCE_S))
        await box.log_on()
        yield box, ear
        box.abandon()


def header_line(number: int, uid: int, name: bytes = b"HEADER.FIELDS (X-LOADSIM)") -> bytes:
    return (
        b'* %d FETCH (UID %d FLAGS () RFC822.SIZE 9 ENVELOPE (NIL "s%d" NIL NIL NIL NIL NIL NIL NIL NIL) BODY[%b] "")'
        % (number, uid, uid, name)
    )


async def test_the_last_message_is_announced_once() -> None:
    """ "n:*" always names the last message (RFC 9051 section 9): it is not brought a second time."""

    async def script(peer: Peer) -> None:
        await peer.inbox(exists=1, uid_next=6)
        await peer.answer(rb"UID FETCH 1:\* .*", header_line(1, 5))
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 6:\* .*", header_line(1, 5))
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 6:\* .*", b"* 2 EXISTS", header_line(2, 8), b"* 1 FETCH (UID 5 FLAGS (\\Seen))")

    async with scripted(script) as (box, ear):
        assert [each.subject for each in await box.arrived()] == ["s5"]
        assert await box.arrived() == []
        assert [each.subject for each in await box.arrived()] == ["s8"]
        assert ear.arrivals == [1]
        box.abandon()


def pieces(number: int, uid: int, order: str) -> tuple[bytes, ...]:
    """The answer to a request for the header of message `number`, an item in each response: f, e, s, h, in this order.

    Between them come changes of flags (c) with the message's number only, and of another message (o).
    """
    tag = b"X-LoadSim: " + tag_of(number).header().encode() + b"\r\n\r\n"
    people = b'(("One" NIL "user1" "example.test"))'
    envelope = b'ENVELOPE (NIL "s%d" %b NIL NIL NIL NIL NIL NIL "<n1.%d.initial@example.test>")' % (uid, people, number)
    items = {
        "f": b"UID %d FLAGS ()" % uid,
        "e": b"UID %d " % uid + envelope,
        "s": b"RFC822.SIZE 9 UID %d" % uid,
        "h": b"UID %d BODY[HEADER.FIELDS (X-LOADSIM)] {%d}\r\n%b" % (uid, len(tag), tag),
        "c": b"FLAGS (\\Seen)",
    }
    other = b"* %d FETCH (FLAGS (\\Flagged))" % (number + 50)
    return tuple(other if item == "o" else b"* %d FETCH (%b)" % (number, items[item]) for item in order)


@pytest.mark.parametrize("order", ["fesh", "hsef", "eohfs", "ecshf", "fechsoc"])
async def test_several_responses_on_a_message_are_merged(order: str) -> None:
    """In lists, new mail and start states: header, size, tag and the last flags are together."""
    both = (*pieces(1, 5, order), *pieces(2, 8, order))
    mixed = tuple(line for pair in zip(pieces(1, 5, order), pieces(2, 8, order), strict=True) for line in pair)

    async def script(peer: Peer) -> None:
        await peer.inbox(exists=2, uid_next=9)
        await peer.answer(rb"FETCH 1:\* .*", *both)
        await peer.answer(rb"NOOP", b"* 3 EXISTS")
        await peer.answer(rb"UID FETCH 9:\* .*", *pieces(3, 9, order))
        await peer.inbox(exists=3, uid_next=10)
        await peer.answer(rb"UID FETCH 1:\* .*", *mixed)

    async with scripted(script) as (box, _):
        headers = [*await box.headers(INBOX, None), *await box.arrived()]
        assert [each.subject for each in headers] == ["s5", "s8", "s9"]
        assert [each.tag for each in headers] == [tag_of(number) for number in (1, 2, 3)]
        assert [each.size_bytes for each in headers] == [9] * 3
        assert [each.seen for each in headers] == [order.rfind("c") > order.rfind("f")] * 3
        stored = (await box.listing([INBOX]))[INBOX]
        assert [(each.tag, each.sender, each.message_id) for each in stored] == [
            (tag_of(number), "user1@example.test", f"<n1.{number}.initial@example.test>") for number in (1, 2)
        ]


async def test_mail_that_a_session_missed_is_listed_when_the_inbox_is_opened_again() -> None:
    """UID 7 came before the last listed one, and the session never showed it. Mail of before is left out."""

    async def script(peer: Peer) -> None:
        await peer.inbox(exists=1, uid_next=6)
        await peer.answer(rb"FETCH 1:\* .*", header_line(1, 5), b"* 2 EXISTS")
        await peer.answer(rb"UID FETCH 6:\* .*", header_line(2, 8))
        await peer.inbox(exists=3, uid_next=9)
        await peer.answer(rb"UID FETCH 6:\* .*", header_line(2, 7), header_line(3, 8))
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 9:\* .*", header_line(3, 8))

    async with scripted(script) as (box, _):
        assert [each.subject for each in await box.headers(INBOX, None)] == ["s5"]
        assert [each.subject for each in await box.arrived()] == ["s8"]
        assert [each.subject for each in await box.arrived(reopen=True)] == ["s7", "s8"]
        assert await box.arrived() == []


async def test_new_mail_announced_after_select_is_not_lost() -> None:
    """EXISTS in the same packet as the end of SELECT is new mail, before anybody has woken up."""

    async def script(peer: Peer) -> None:
        tag = await peer.expect(rb"SELECT INBOX")
        peer.say(*peer.opened(3, 10), tag + b" OK", b"* 5 EXISTS", b"* 1 EXPUNGE", b"* 5 EXISTS")
        await peer.answer(rb"SELECT Other", *peer.opened(9, 4))
        await peer.answer(rb"SELECT INBOX", *peer.opened(5, 13))
        await peer.answer(rb"SELECT Other", *peer.opened(9, 4))
        await peer.answer(rb"SELECT INBOX", *peer.opened(6, 14))

    async with scripted(script) as (box, ear):
        await box.open("inbox")
        assert ear.arrivals == [2, 1]
        for told in ([2, 1], [2, 1, 1]):
            await box.open("Other")
            await box.open("INBOX")
            assert ear.arrivals == told


@settings(deadline=None, max_examples=60)
@given(
    rounds=st.lists(st.tuples(*[st.integers(-1, 2)] * 6), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=8),
)
def test_new_mail_is_announced_wherever_exists_arrives(rounds: list[tuple[int, ...]], sizes: list[int]) -> None:
    """All growth is announced: before and behind the ends of IDLE and FETCH, amid data, and however it is cut."""
    grown: list[int] = []

    async def script(peer: Peer) -> None:
        held, uid, pieces = 3, 3, cycle(sizes)

        def news(growth: int) -> bytes:
            nonlocal held, uid
            if growth < 0 and held > 1:
                held -= 1
                return b"* 1 EXPUNGE\r\n"
            if growth > 0:
                held, uid = held + growth, uid + growth
                grown.append(growth)
                return b"* %d EXISTS\r\n" % held
            return b""

        async def say(stream: bytes) -> None:
            while stream:
                size = next(pieces)
                peer.writer.write(stream[:size])
                stream = stream[size:]
                await peer.writer.drain()
                for _ in range(3):  # the client, on the same loop, reads this piece before the next comes
                    await asyncio.sleep(0)

        await peer.inbox(exists=3, uid_next=4)
        for growths in rounds:
            idle = await peer.expect(rb"IDLE")
            await say(news(growths[0]) + b"+ idling\r\n" + news(growths[1]))
            assert await peer.reader.readline() == b"DONE\r\n"
            await say(news(growths[2]) + idle + b" OK\r\n" + news(growths[3]))
            asked = await peer.reader.readline()
            if asked.endswith(b" NOOP\r\n"):  # no growth has been read yet
                peer.say(asked.partition(b" ")[0] + b" OK")
                asked = await peer.reader.readline()
            fetch = asked.partition(b" UID FETCH ")[0]
            stream = header_line(held, uid) + b"\r\n"
            await say(stream + news(growths[4]) + fetch + b" OK\r\n" + news(growths[5]))
        await peer.answer(rb"LIST .*")

    async def work() -> None:
        async with scripted(script) as (box, ear):
            for _ in rounds:
                await box.watch()
                await box.arrived()
            await box.folders()
        assert ear.arrivals == grown

    run(work())


async def test_a_changed_uidvalidity_fails_the_call() -> None:
    """References from before are refused; what is listed afterwards can be used."""

    async def script(peer: Peer) -> None:
        await peer.inbox(exists=1, uid_next=6, validity=7)
        await peer.answer(rb"FETCH 1:\* .*", header_line(1, 5))
        await peer.answer(rb"SELECT Other", *peer.opened(0, 1))
        await peer.inbox(exists=1, uid_next=2, validity=8)
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 1:\* .*", header_line(1, 1))
        await peer.answer(rb"UID STORE 1 \+FLAGS.SILENT \(\\Seen\)")
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 2:\* .*", header_line(1, 1))

    named: list[Violation] = []
    async with scripted(script) as (box, _):
        box.session.broken = named.append
        (old,) = await box.headers(INBOX, 50)
        await box.open("Other")
        for error in (InboxRenumbered, ServerRefused):
            with pytest.raises(ServerRefused) as caught:
                await box.structure(old.ref)
            assert (type(caught.value), caught.value.kind, caught.value.line) == (error, "UIDVALIDITY changed", INBOX)
        assert [(each.rule, each.user, each.folder) for each in named] == [("uidvalidity-changed", 1, INBOX)]
        (new,) = await box.arrived()
        await box.flag([new.ref], Flag.SEEN)
        assert await box.arrived() == []


async def test_special_uses_in_a_plain_list_name_folders() -> None:
    """Also without SPECIAL-USE (RFC 6154 section 2), and wherever the folder is in the list. Views are left out."""

    async def script(peer: Peer) -> None:
        listed = (b'() "/" INBOX', b'() "/" "Sent Items"', b'(\\Sent) "/" Sent', b'(\\ALL) "/" All')
        await peer.answer(rb"LIST .*", *(b"* LIST " + each for each in listed))
        await peer.answer(rb"STATUS Sent .*", b"* STATUS Sent (MESSAGES 7)")

    async with scripted(script) as (box, _):
        assert await box.folders() == [INBOX, "%=Sent Items", SENT_ITEMS]
        assert await box.message_count(SENT_ITEMS) == 7


async def test_a_session_lost_right_after_an_answer_is_reported() -> None:
    """The call has succeeded; that there is no session any more must not go unnoticed."""

    async def script(peer: Peer) -> None:
        await peer.answer(rb"LIST .*", b'* LIST () "/" INBOX', end=b"OK\r\nnonsense")

    async with scripted(script) as (box, ear):
        assert await box.folders() == [INBOX]
        assert [type(each) for each in ear.losses] == [ProtocolError]


@pytest.mark.parametrize(
    ("said", "failure", "kind"),
    [
        ((), ServerRefused, "FETCH without data"),
        ((b"* 1 FETCH (UID 5 BODY[1] NIL)",), ServerRefused, "FETCH without data"),
        ((b'* 1 FETCH (UID 6 BODY[1] "other")',), ServerRefused, "FETCH without data"),
        ((b"* 1 FETCH (UID 5 BODY[1]",), ProtocolError, "IMAP syntax"),
    ],
)
async def test_ok_without_data_is_no_success(said: tuple[bytes, ...], failure: type[TaskFailed], kind: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.inbox(exists=1, uid_next=6)
        await peer.answer(rb"UID FETCH 5 \(BODY.PEEK\[1\]\)", *said)

    async with scripted(script) as (box, _):
        with pytest.raises(failure) as caught:
            await box.part(Ref(INBOX, 7, 5), Part("1", "text/plain", 9))
        assert caught.value.kind == kind


@pytest.mark.parametrize("copied", [b"<n1.1.initial@example.test>", b"<user1@example.test>"])
async def test_a_copied_tag_with_another_sender_is_ignored(embedded_site: Site, copied: bytes) -> None:
    """A person wrote a message with our X-LoadSim and another From or Message-ID: users leave it alone."""
    account = embedded_site.user()

    async with embedded_site.session(account) as (box, _):
        await box.append(INBOX, message(1).replace(copied, b"<anna@elsewhere.test>"))
        (header,) = await box.headers(INBOX, None)
        assert header.tag is None


@pytest.mark.parametrize("said", [(), (b"* 1 FETCH (FLAGS (\\Seen))",), (b"* 1 EXPUNGE",)])
async def test_a_list_without_messages_of_a_full_folder_is_refused(said: tuple[bytes, ...]) -> None:
    """The folder holds two: somebody who is shown none has not seen it."""

    async def script(peer: Peer) -> None:
        await peer.inbox(exists=2, uid_next=6)
        await peer.answer(rb"FETCH 1:\* .*", *said)

    async with scripted(script) as (box, _):
        with pytest.raises(ServerRefused, match="FETCH without data"):
            await box.headers(INBOX, None)


@pytest.mark.parametrize(("first", "second"), [("Other", INBOX), (INBOX, "Other")])
async def test_a_late_answer_to_an_abandoned_call_does_not_affect_the_next(first: str, second: str) -> None:
    """A SELECT whose caller has gone is answered after the next was sent: that one's numbers are no news of its own."""

    async def script(peer: Peer) -> None:
        slow = await peer.expect(b"SELECT " + first.encode())
        given_up.set()
        tag = await peer.expect(b"SELECT " + second.encode())
        peer.say(*peer.opened(2, 7), slow + b" OK", *peer.opened(4, 9), tag + b" OK")
        await peer.answer(rb"NOOP")
        await peer.answer(rb"FETCH 1:\* .*", header_line(1, 5), header_line(2, 6))

    given_up = asyncio.Event()

    async with scripted(script) as (box, ear):
        task = asyncio.create_task(box.open(first))
        await given_up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await box.open(second)
        assert box.session.count == 4
        assert ear.arrivals == []
        assert [each.subject for each in await box.headers(second, None)] == ["s5", "s6"]


async def test_a_log_off_without_an_answer_succeeds() -> None:
    """Some servers close after BYE; the session is over, and nothing is lost."""

    async def script(peer: Peer) -> None:
        await peer.expect(rb"LOGOUT")
        peer.say(b"* BYE see you")
        peer.writer.close()

    async with scripted(script) as (box, ear):
        await box.log_off()
        assert not ear.losses
        with pytest.raises(ServerLost, match="not logged on"):
            await box.log_off()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["arrive", "arrive", "leave", "open", "fetch", "remove"]), max_size=40))
def test_each_arrival_is_announced_once(events: list[str]) -> None:
    """After any events in any order, announcements add up to the arrivals if UIDs have no gaps."""
    arrivals = NewMailAnnouncements()
    uids: list[int] = []
    numbers = count(1)
    announced = arrived = arrivals.opened(0, 1)
    is_open = True
    for event in events:
        if event == "arrive":
            uids.append(next(numbers))
            arrived += 1
            if is_open:
                arrivals.grew(1)
                announced += 1
        elif event == "leave" and is_open:
            arrivals.left(len(uids))
            is_open = False
        elif event == "open" and not is_open:
            announced += arrivals.opened(len(uids), arrived + 1)
            is_open = True
        elif event == "fetch" and is_open and uids:
            arrivals.listed(uids[-1])
        elif event == "remove" and is_open and uids:
            uids.pop(0)
    if not is_open:
        announced += arrivals.opened(len(uids), arrived + 1)
    assert announced == arrived


def test_after_an_expunge_only_uids_name_messages() -> None:
    """A message goes on under another number; data that has the old number, or no UID, is not joined to it."""
    data = Untagged()
    lines = (
        b"* 2 FETCH (UID 5 RFC822.SIZE 9)", b"* 3 FETCH (UID 7 RFC822.SIZE 8)", b"* 1 EXPUNGE",
        b"* 1 FETCH (UID 5 FLAGS (a))", b"* 2 FETCH (FLAGS (b))", b"* 2 EXPUNGE", b'* 1 FETCH (UID 5 BODY[1] "x")',
    )  # fmt: skip
    for response in ImapWire().feed(b"".join(line + b"\r\n" for line in lines)):
        data.take(response)
    fetched = [each for each in data.responses if isinstance(each, Fetched)]
    assert [(each.uid, each.size_bytes, each.flags, dict(each.sections)) for each in fetched] == [
        (5, 9, {"a"}, {"1": b"x"}),
        (7, 8, None, {}),
        (None, None, {"b"}, {}),
    ]


def test_the_sections_of_a_message_are_bounded() -> None:
    data = Untagged()
    with pytest.raises(ProtocolError):
        for number in range(MOST_SECTIONS + 1):
            data.take(Fetched(1, 5, None, None, None, None, {str(number): b""}))


def test_gaps_in_uids_are_not_new_messages() -> None:
    """UIDNEXT with gaps announces no more than came; arrivals hidden by removals announce one; no UIDNEXT: the growth."""
    arrivals = NewMailAnnouncements()
    assert arrivals.opened(10, 100) == 0
    arrivals.left(10)
    assert arrivals.opened(12, 150) == 2
    arrivals.left(12)
    assert arrivals.opened(12, 150) == 0
    arrivals.left(12)
    assert arrivals.opened(7, 153) == 1
    arrivals.left(7)
    assert arrivals.opened(9, None) == 2


def test_folded_header_fields_are_one_line() -> None:
    """Exchange folds each Message-ID, and its envelope may keep the fold."""
    subject, message_id = b"one\r\n two", b"\r\n <n1.1.initial@example.test>"
    tag = b"X-LoadSim:\r\n " + tag_of(1).header().encode().replace(b"; ", b";\r\n ") + b"\r\n"
    people = b'((NIL NIL "user1" "example.test"))'
    values = b"{%d}\r\n%b %b NIL NIL NIL NIL NIL NIL" % (len(subject), subject, people)
    (fetched,) = ImapWire().feed(
        b"* 1 FETCH (ENVELOPE (NIL %b {%d}\r\n%b) BODY[HEADER.FIELDS (X-LOADSIM)] {%d}\r\n%b)\r\n"
        % (values, len(message_id), message_id, len(tag), tag)
    )
    assert isinstance(fetched, Fetched)
    header = header_of(fetched, None, "example.test")
    assert header is not None
    assert (header.subject, header.message_id) == ("one two", "<n1.1.initial@example.test>")
    assert header.tag == tag_of(1)
    assert origin_of(fetched) == ("user1@example.test", "<n1.1.initial@example.test>", "")


def test_html_is_the_text_if_there_is_no_plain_text() -> None:
    html = Leaf("text/html", {}, "7bit", 5, None, {})
    note = Leaf("text/plain", {}, "7bit", 6, "attachment", {})
    structure = structure_of(Multipart("mixed", (note, html)))
    assert structure.text == Part("2", "text/html", 5)
    assert [each.name for each in structure.attachments] == ["1"]


@pytest.mark.parametrize(
    ("key", "words"),
    [(SearchKey.SENDER, "user1@example.test"), (SearchKey.SUBJECT, "COFFEE"), (SearchKey.TEXT, 'the "usual" beans')],
)
async def test_a_search_finds_what_the_witness_finds(site: Site, key: SearchKey, words: str) -> None:
    """The newest messages found, with their headers; the folder has others, too."""
    account = site.user()
    kept = [
        (1, "coffee", b"see above\r\n"),
        (2, "tea", b'the "usual" beans\r\n'),
        (3, "Re: coffee", b"none\r\n"),
        (4, "more coffee", b'The "Usual" Beans\r\n'),
    ]
    async with site.session(account) as (box, _):
        for number, subject, body in kept:
            await box.append(INBOX, message(number, subject, body=body))
        await box.append(INBOX, MIXED)
        await box.headers(INBOX, None)
        found = await box.search(INBOX, key, words, 50)
        newest = await box.search(INBOX, key, words, 1)
        assert not await box.search(INBOX, key, "nothing of the kind", 50)
    with logged_on(site.server, account) as client:
        client.select(INBOX, readonly=True)
        quoted = words.replace('"', '\\"')
        _, (uids,) = client.uid("SEARCH", key, f'"{quoted}"')
    expected = [int(uid) for uid in uids.split()]
    assert len(expected) > 1
    assert [header.ref.uid for header in found] == expected
    assert list(newest) == list(found[-1:])
