"""Sessions of the mapi driver with the embedded MAPI server: connections, the wait for mail, and whole messages."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import faulty_mapi
import pytest
from faulty_mapi import LIMIT_S, OWN, FaultyServer, faulty_server, logged_on, message_of
from imap_script import Ear, certificate, skip
from mailservers import numbered_accounts
from patience import PATIENCE_S
from skipping import turns, watched

from loadsim.audit.reading import read_mailbox
from loadsim.errors import MailMissing, ProtocolError, ServerLost, ServerRefused, ServerSilent
from loadsim.model.content.templates import KINDS
from loadsim.model.message_tag import AUTOMATIC_REPLY, body_digest
from loadsim.model.ports import CALENDAR, INBOX, SENT_ITEMS, Endpoint, Flag, Part, SearchKey, Services, Session
from loadsim.model.provisioning_ports import Provisioning
from loadsim.protocols.mapi import objects, tags
from loadsim.protocols.mapi.session import LONGEST_WAIT_S, PAUSE_S
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import no_access
from loadsim.servers.embedded_mapi.__main__ import EMSMDB, Request
from loadsim.servers.embedded_mapi.folders import Answer, Call, Table, query_rows
from loadsim.servers.embedded_mapi.messages import Stream, read_stream
from loadsim.servers.embedded_mapi.rops import OPERATIONS
from loadsim.servers.embedded_mapi.store import Message
from loadsim.users import tasks
from loadsim.users.mail import UserMail
from loadsim.users.tasks import Outgoing

PERIOD_S = 200.0


async def closes(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
    await server.answer(request, writer)
    writer.close()


async def begins(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Begin a response that never ends."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/mapi-http\r\nX-PendingPeriod: %d\r\n" % (1000 * PERIOD_S)
    writer.write(head + b"Transfer-Encoding: chunked\r\n\r\nc\r\nPROCESSING\r\n\r\n")


@watched
async def test_a_connection_that_the_server_ends_between_requests_is_made_again() -> None:
    """The session is in its cookies: nothing is lost, and nothing is reported but a connection."""
    async with logged_on() as (server, mailbox, ear):
        server.fail("Execute", closes)
        for _ in range(3):
            await mailbox.folders()
            await turns(60)
        assert {outcome for _, outcome, _, _ in ear.commands} == {"ok"}
        assert [name for name, *_ in ear.commands].count("MAPI connection") == 3
        assert not ear.losses


@pytest.mark.parametrize(
    ("fault", "still_s", "then_s"),
    [(begins, PATIENCE_S + 0.9 * PERIOD_S, 0.2 * PERIOD_S), (faulty_mapi.pending, PATIENCE_S, LONGEST_WAIT_S)],
)
@watched
async def test_a_wait_that_never_ends_is_a_lost_session(
    fault: faulty_mapi.Fault, still_s: float, then_s: float
) -> None:
    """Silence ends it a request's limit after the period of PENDING; PENDING without end, after the longest wait."""
    async with logged_on(PATIENCE_S) as (server, mailbox, ear):
        server.fail("NotificationWait", fault)
        await mailbox.watch()
        assert ear.commands[-1][:2] == ("MAPI NotificationWait", "ok")
        skip(still_s)
        await turns()
        assert not ear.losses
        skip(then_s)
        await ear.wait()
        assert [type(loss) for loss in ear.losses] == [ServerSilent]
        with pytest.raises(ServerSilent):
            await mailbox.folders()
        server.fault = None
        await mailbox.log_on()
        await mailbox.watch()


@pytest.mark.parametrize("ends", ["log off", "log on again"])
@watched
async def test_a_session_may_end_while_the_wait_fetches_events(ends: str) -> None:
    """The log-off comes after them; a new session does not suffer from the end of the old one."""
    async with faulty_server([OWN], LIMIT_S) as (server, services):
        driver, ear, let = open_driver("mapi", services), Ear(), asyncio.Event()
        session, other = driver.session(OWN, ear), driver.session(OWN, Ear())
        await session.mailbox.log_on()
        await session.mailbox.watch()
        await other.mailbox.log_on()
        await other.mailbox.folders()

        async def held(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
            await let.wait()
            await server.answer(request, writer)

        async def held_but_one(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
            server.fail("Execute", held)
            await server.answer(request, writer)

        server.fail("Execute", held_but_one)
        await other.mailbox.append(INBOX, message_of("ups1K", "n1.0"))
        await server.met.wait()
        if ends == "log off":
            leaving = asyncio.create_task(session.mailbox.log_off())
            await turns()
            let.set()
            await leaving
        else:
            session.mailbox.abandon()
            let.set()
            await session.mailbox.log_on()
            assert len(await session.mailbox.headers(INBOX, None)) == 1
        assert not ear.losses
        session.mailbox.abandon()
        other.mailbox.abandon()


@pytest.mark.parametrize("pending", [True, False])
@watched
async def test_waits_that_end_at_once_are_repeated_with_pauses(pending: bool) -> None:
    """Each says that an event is pending, or that none is, and none comes: then they pause."""

    async def at_once(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
        held, waits = struct.pack("<3I", 0, 0, 1), struct.pack("<3I", 0, 0, pending)
        for session in server.sessions.values():
            session.news.set()
        await faulty_mapi.changes(lambda sent: sent.replace(held, waits))(server, request, writer)

    async with logged_on() as (server, mailbox, ear):
        server.fail("NotificationWait", at_once)
        await mailbox.watch()
        counts = []
        for _ in range(3):
            await turns(400)
            counts.append([name for name, *_ in ear.commands].count("MAPI NotificationWait"))
            skip(PAUSE_S + 0.1)
        assert counts == [4, 5, 6] and not ear.losses


@watched
async def test_messages_of_each_kind_are_read_back() -> None:
    """Those above one request are written and read through streams; their bodies have the digests of their tags."""
    async with faulty_server([OWN], LIMIT_S) as (_, services):
        session = open_driver("mapi", services).session(OWN, Ear())
        mailbox = cast(Provisioning, session.mailbox)
        await mailbox.log_on()
        sent = {f"n1.{number}": message_of(kind, f"n1.{number}") for number, kind in enumerate(KINDS)}
        for number, message in enumerate(sent.values()):
            if number % 2:
                await mailbox.append(INBOX, message)
            else:
                await session.submission.send(OWN.address, [OWN.address], message)
        headers = await mailbox.headers(INBOX, None)
        assert {header.tag.id for header in headers if header.tag} == set(sent)
        for header in headers:
            assert header.tag is not None
            structure = await mailbox.structure(header.ref)
            parts = (structure.text, *structure.attachments)
            assert len(parts) == (2 if KINDS[header.tag.kind].attached else 1)
            for part in parts:
                assert part is not None
                data = bytes(await mailbox.part(header.ref, part))
                assert len(data) > 1000
                assert data.removesuffix(b"\r\n") in sent[header.tag.id]
        bodies = await mailbox.texts([header.ref for header in headers])
        assert {header.ref: header.tag and header.tag.body for header in headers} == {
            ref: body and body_digest(body) for ref, body in bodies.items()
        }
        await mailbox.expunge([headers[0].ref])
        assert headers[0].ref not in await mailbox.texts([headers[0].ref])
        with pytest.raises(MailMissing):
            await mailbox.flag([headers[0].ref], Flag.SEEN)
        await mailbox.log_off()


@watched
async def test_an_automatic_reply_is_known_by_its_header() -> None:
    """In-Reply-To is a column; the header is a property of mail that came by SMTP (MS-OXOMSG section 2.2.1.61)."""
    ours = f"<n1.0.run-1@{OWN.domain}>"
    header = "From: away@example.test\r\nAuto-Submitted: %s\r\n\r\n"
    async with faulty_server([OWN], LIMIT_S) as (server, services):
        mailbox = cast(Provisioning, open_driver("mapi", services).session(OWN, Ear()).mailbox)
        await mailbox.log_on()
        inbox = server.store.mailboxes[OWN.login].inbox
        for answers, submitted in ((ours, "auto-replied"), (ours, "no"), (ours, ""), ("<a@b>", "auto-replied")):
            head = {tags.TRANSPORT_MESSAGE_HEADERS: header % submitted} if submitted else {}
            inbox.put(Message(inbox.mailbox.next_number(), {tags.IN_REPLY_TO_ID: answers, **head}))
        _, bounces = await read_mailbox(OWN, mailbox, "run-1")
        assert bounces == {AUTOMATIC_REPLY: 1}
        await mailbox.log_off()


@watched
async def test_a_sent_message_that_ends_the_session_is_reported_once() -> None:
    """Once: users log on again, and no task on the mailbox fails for it."""
    async with faulty_server([OWN], LIMIT_S) as (server, services):
        ear = Ear()
        session = open_driver("mapi", services).session(OWN, ear)
        await session.mailbox.log_on()
        server.fail("Execute", faulty_mapi.TRUNCATED)
        for _ in range(2):
            with pytest.raises(ServerLost):
                await session.submission.send(OWN.address, [OWN.address], message_of("ups1K", "n1.0"))
            assert [type(loss) for loss in ear.losses] == [ProtocolError]
        session.mailbox.abandon()


@watched
async def test_a_text_behind_many_recipients_is_read_whole() -> None:
    """The response of OpenMessage leaves less room than the first piece takes (MS-OXCRPC section 3.1.4.2)."""
    async with logged_on() as (_, mailbox, _):
        lines = b"".join([b"%06d\r\n" % number for number in range(1500)])
        to = ", ".join([f"user{number}@example.test" for number in range(150)])
        await mailbox.append(INBOX, f"To: {to}\r\n\r\n".encode() + lines)
        (header,) = await mailbox.headers(INBOX, None)
        read = bytes(await mailbox.part(header.ref, Part("1", "text/plain", 0)))
        assert read == lines


def shortly(call: Call, stream: Stream, count: int) -> Answer:
    return read_stream(call, stream, min(count, 1000))


def endlessly(call: Call, stream: Stream, count: int) -> Answer:
    stream.position = 0
    return read_stream(call, stream, count)


def emptily(call: Call, stream: Stream, count: int) -> Answer:
    return read_stream(call, stream, min(count, 30_000 - stream.position))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("reads", "is_whole"), [(shortly, True), (endlessly, False), (emptily, False)])
@watched
async def test_a_stream_is_read_to_the_size_that_it_states(
    reads: Callable[..., Answer], is_whole: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of any size; one without an end, or that ends too early, is refused. Its size may be `known` before."""
    monkeypatch.setitem(OPERATIONS, 0x2C, replace(OPERATIONS[0x2C], act=reads))

    async with logged_on() as (_, mailbox, _):
        lines = b"".join([b"%06d\r\n" % number for number in range(5000)])
        await mailbox.append(INBOX, b"To: user2@example.test\r\n\r\n" + lines)
        (header,) = await mailbox.headers(INBOX, None)
        part = Part("1", "text/plain", len(lines), None, "")
        if known:
            assert (await mailbox.structure(header.ref)).text == part
        if is_whole:
            assert bytes(await mailbox.part(header.ref, part)) == lines
        else:
            with pytest.raises(ServerRefused, match="ReadStream of another size"):
                await mailbox.part(header.ref, part)


PROBLEM = struct.pack("<HHII", 1, 0, tags.SUBJECT, 0x8004011A)


@pytest.mark.parametrize("number", [0x0A, 0x66, 0x33, 0x1E])
@watched
async def test_partial_completion_is_no_success(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of SetProperties, and PartialCompletion of the others, though the operations return success."""
    async with faulty_server([OWN], LIMIT_S) as (_, services):
        session = open_driver("mapi", services).session(OWN, Ear())
        mailbox = cast(Provisioning, session.mailbox)
        await mailbox.log_on()
        await mailbox.append(INBOX, message_of("ups1K", "n1.0"))
        (header,) = await mailbox.headers(INBOX, None)
        answer = PROBLEM if number == 0x0A else b"\1"
        monkeypatch.setitem(OPERATIONS, number, replace(OPERATIONS[number], act=lambda *_: answer))
        calls: dict[int, list[Callable[[], Awaitable[object]]]] = {
            0x0A: [
                lambda: mailbox.flag([header.ref], Flag.ANSWERED),
                lambda: mailbox.create(CALENDAR),
                lambda: mailbox.append(INBOX, message_of("ups1K", "n1.1")),
                lambda: session.submission.send(OWN.address, [OWN.address], message_of("ups1K", "n1.2")),
            ],
            0x66: [lambda: mailbox.flag([header.ref], Flag.SEEN)],
            0x33: [lambda: mailbox.move([header.ref], SENT_ITEMS), lambda: mailbox.copy([header.ref], SENT_ITEMS)],
            0x1E: [lambda: mailbox.expunge([header.ref])],
        }
        for call in calls[number]:
            with pytest.raises(ServerRefused if number == 0x0A else MailMissing):
                await call()
        mailbox.abandon()


@watched
async def test_mail_sent_without_a_property_is_recorded_as_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server submits it in the request that says that a property is missing: SEND fails, and the mail arrives."""
    set_ = OPERATIONS[0x0A].act
    monkeypatch.setitem(OPERATIONS, 0x0A, replace(OPERATIONS[0x0A], act=lambda *each: set_(*each) and PROBLEM))

    async with faulty_server([OWN], LIMIT_S) as (_, services):
        session = open_driver("mapi", services).session(OWN, Ear())
        await session.mailbox.log_on()
        recorded: list[tuple[str, str]] = []
        user = SimpleNamespace(
            submission=session.submission,
            account=OWN,
            unless_stored=lambda *each: UserMail.unless_stored(cast(UserMail, user), *each),
            unless_submitted=lambda *each: UserMail.unless_submitted(cast(UserMail, user), *each),
            group=SimpleNamespace(protocol="mapi"),
            number=1,
            now=lambda: 0,
            _record=lambda event, message, *_: recorded.append((event, message)),
        )
        sent = Outgoing(message_of("ups1K", "n1.0"), "n1.0", [OWN.address], {1}, (1,))
        with pytest.raises(ServerRefused, match="SetProperties"):
            await tasks.submit(cast(UserMail, user), sent)
        assert recorded == [("unsure", "n1.0")]
        assert len(await session.mailbox.headers(INBOX, None)) == 1
        session.mailbox.abandon()


@watched
async def test_cookies_have_a_limit() -> None:
    """Each request repeats them: a server must not make it grow for ever."""
    numbers = iter(range(10**6))

    def more(sent: bytes) -> bytes:
        lines = b"".join([b"Set-Cookie: c%d=1\r\n" % next(numbers) for _ in range(20)])
        return sent.replace(b"\r\n", b"\r\n" + lines, 1)

    async with logged_on() as (server, mailbox, _):
        server.fail("Execute", faulty_mapi.changes(more))
        for _ in range(3):
            await mailbox.folders()
        with pytest.raises(ProtocolError, match="cookies"):
            await mailbox.folders()


@watched
async def test_a_table_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LARGEST_TABLE", 1000)

    def endless(call: Call, table: Table, flags: int, forward: int, count: int) -> Answer:
        table.position = 0
        answer = query_rows(call, table, flags, forward, count)
        assert isinstance(answer, bytes)
        return b"\1" + answer[1:]

    async with logged_on() as (_, mailbox, _):
        monkeypatch.setitem(OPERATIONS, 0x15, replace(OPERATIONS[0x15], act=endless))
        with pytest.raises(ServerRefused, match="table without end"):
            await mailbox.folders()


@watched
async def test_the_server_files_what_is_sent() -> None:
    """Its copy is in Sent Items and seen; the driver sends no other, but stores a message that was not sent."""
    accounts = numbered_accounts(2)
    async with faulty_server(accounts, LIMIT_S) as (_, services):
        driver, ear = open_driver("mapi", services), Ear()
        session: Session = driver.session(OWN, ear)
        mailbox, sent = session.mailbox, message_of("ups1K", "n1.0", accounts[1])
        await mailbox.log_on()
        await session.submission.send(OWN.address, [accounts[1].address], sent)
        commands = len(ear.commands)
        await mailbox.append(SENT_ITEMS, sent, [Flag.SEEN])
        assert len(ear.commands) == commands
        await mailbox.append(SENT_ITEMS, message_of("ups1K", "n1.1"), [Flag.SEEN])
        filed = await mailbox.headers(SENT_ITEMS, None)
        assert {(header.tag.id, header.seen) for header in filed if header.tag} == {("n1.0", True), ("n1.1", True)}
        assert await mailbox.headers(INBOX, None) == []
        other = driver.session(accounts[1], Ear()).mailbox
        await other.log_on()
        (received,) = await other.headers(INBOX, None)
        assert (received.sender, received.to, received.seen) == (OWN.address, (accounts[1].address,), False)
        await other.log_off()
        await mailbox.log_off()


@pytest.mark.parametrize("method", ["ntlm", "negotiate"])
@pytest.mark.parametrize("password", [OWN.password, "another"])
@watched
async def test_a_connection_logs_on_by_ntlm(
    method: str, password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: two requests, and no credentials with those that follow. A wrong password is refused."""
    account = replace(OWN, login=f"EXAMPLE\\{OWN.login}")
    accept = faulty_mapi.Acceptor({"ntlm": "NTLM"}.get(method, "Negotiate"), account, tmp_path, password, monkeypatch)

    async with faulty_server([account], LIMIT_S) as (server, services):
        server.fail(faulty_mapi.ANY, accept)
        endpoint = replace(services.endpoint("mapi"), methods=(method,))
        mailbox = open_driver("mapi", replace(services, mapi=endpoint)).session(account, Ear()).mailbox
        if password != OWN.password:
            with pytest.raises(ServerRefused, match="401 Bind"):
                await mailbox.log_on()
            assert [*accept.requests.values()] == [2]
            return
        await mailbox.log_on()
        await mailbox.watch()
        requests = ["Bind", "ResolveNames", "Connect", "Logon", "GetHierarchyTable", "GetContentsTable"]
        logged_on = [*accept.requests.values()]
        mailbox.abandon()
        assert logged_on == [1 + len(requests), 1 + 1]


@watched
async def test_a_proxy_that_authenticates_each_request_is_no_wrong_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bind has succeeded; the next request on its connection is refused."""
    account = replace(OWN, login=f"EXAMPLE\\{OWN.login}")
    accept = faulty_mapi.Acceptor("NTLM", account, tmp_path, OWN.password, monkeypatch)
    accept.forgets = True

    async with faulty_server([account], LIMIT_S) as (server, services):
        server.fail(faulty_mapi.ANY, accept)
        of_ntlm = replace(services, mapi=replace(services.endpoint("mapi"), methods=("ntlm",)))
        mailbox = open_driver("mapi", of_ntlm).session(account, Ear()).mailbox
        with pytest.raises(ServerRefused) as caught:
            await mailbox.log_on()
        mailbox.abandon()
    assert caught.value.kind == "log-on not kept"
    assert "password" not in str(no_access("mapi", of_ntlm, account, caught.value))


@watched
async def test_a_malformed_challenge_ends_the_session() -> None:
    challenge = b"HTTP/1.1 401 No\r\nWWW-Authenticate: NTLM AAAA\r\nContent-Length: 0\r\n\r\n"

    async with faulty_server([OWN], LIMIT_S) as (server, services):
        server.fail(faulty_mapi.ANY, faulty_mapi.says(challenge))
        endpoint = replace(services.endpoint("mapi"), methods=("ntlm",))
        mailbox = open_driver("mapi", replace(services, mapi=endpoint)).session(OWN, Ear()).mailbox
        with pytest.raises(ProtocolError, match="HTTP NTLM"):
            await mailbox.log_on()


@pytest.mark.parametrize("methods", [(), ("ntlm",)])
@watched
async def test_a_session_over_tls_checks_the_certificate(
    methods: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both connections are secured; a server of another name is not reached. NTLM is bound to the certificate."""
    certificate_file, context = certificate(tmp_path, "DNS:mail.example.test")
    der = ssl.PEM_cert_to_DER_cert(certificate_file.read_text(encoding="ascii"))
    bound = b"tls-server-end-point:" + sha256(der).digest()  # RFC 5929 section 4.1

    server = FaultyServer([OWN])
    if methods:
        server.fail(faulty_mapi.ANY, faulty_mapi.Acceptor("NTLM", OWN, tmp_path, OWN.password, monkeypatch, bound))
    listening = await asyncio.start_server(server.connection, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    named = Endpoint("127.0.0.1", port, "implicit", str(certificate_file), path=EMSMDB)
    endpoint = replace(named, tls_server_name="mail.example.test", methods=methods)
    mailbox = open_driver("mapi", Services(mapi=endpoint, command_limit_s=LIMIT_S)).session(OWN, Ear()).mailbox
    for _ in range(2):
        await mailbox.log_on()
        await mailbox.watch()
        await mailbox.log_off()
    stranger = open_driver("mapi", Services(mapi=named, command_limit_s=LIMIT_S)).session(OWN, Ear()).mailbox
    with pytest.raises(ServerLost, match="TLS certificate"):
        await stranger.log_on()
    listening.close()
    await server.end()


@pytest.mark.parametrize(
    ("key", "words", "expected"),
    [
        (SearchKey.SENDER, "USER1@", ["n1.0", "n1.1", "n1.2"]),
        (SearchKey.SUBJECT, "{0}", ["n1.1"]),
        (SearchKey.TEXT, "{1}", ["n1.2"]),
        (SearchKey.TEXT, "nothing of the kind", []),
    ],
)
async def test_a_search_finds_messages_by_their_words(key: SearchKey, words: str, expected: list[str]) -> None:
    """Words of one message, as the standard library reads them; the open folder keeps its own list."""
    ids = ["n1.0", "n1.1", "n1.2"]
    sent = [email.message_from_bytes(message_of("ups1K", one), policy=email.policy.default) for one in ids]
    said = max(sent[2].get_content().splitlines(), key=len)
    async with logged_on() as (_, mailbox, _):
        for one in ids:
            await mailbox.append(SENT_ITEMS, message_of("ups1K", one), [Flag.SEEN])
        await mailbox.headers(SENT_ITEMS, None)
        found = await mailbox.search(SENT_ITEMS, key, words.format(sent[1]["Subject"].upper(), said), 50)
        assert [header.tag.id for header in found if header.tag] == expected
        assert list(await mailbox.search(SENT_ITEMS, key, words.format(sent[1]["Subject"], said), 1)) == found[-1:]
        assert len(await mailbox.headers(SENT_ITEMS, None)) == 3
