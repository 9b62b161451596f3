"""The driver `aioimaplib` on the embedded server, behind a network that breaks, and on servers with a script."""

from __future__ import annotations

import asyncio
import gc
import imaplib
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from breaking_network import Network

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import (
    CALENDAR,
    DELETED_ITEMS,
    INBOX,
    Account,
    Endpoint,
    Flag,
    Header,
    Mailbox,
    Part,
    Services,
    Session,
    Structure,
)
from loadsim.protocols.aioimaplib import mailbox as mailbox_module
from loadsim.protocols.aioimaplib import open_driver
from loadsim.protocols.aioimaplib.mailbox import MESSAGES_PER_COMMAND, PIECE_BYTES, AioimaplibMailbox
from loadsim.servers.running import RunningServer

pytestmark = pytest.mark.nightly(part="drivers")

LIMIT_S = 30.0
PASSWORD = 'pa ss"w\\ord'
PEOPLE = 130
FOLDER = "Folder (1"


class Observed:
    """Hears the driver, keeps everything, and lets a test wait for what it hears."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str, int, int]] = []
        self.announced = 0
        self.losses: list[Exception] = []
        self._news = asyncio.Event()

    def now(self) -> int:
        return time.monotonic_ns()

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        assert 0 < since <= time.monotonic_ns()
        assert sent_bytes >= 0
        assert received_bytes >= 0
        self.commands.append((name, outcome, sent_bytes, received_bytes))
        self._news.set()

    def arrived(self, messages: int) -> None:
        assert messages > 0
        self.announced += messages
        self._news.set()

    def lost(self, failure: Exception) -> None:
        self.losses.append(failure)
        self._news.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something is so that the driver told us of."""
        async with asyncio.timeout(LIMIT_S):
            while not reached():
                self._news.clear()
                await self._news.wait()

    def names(self) -> list[str]:
        """The commands, in their order."""
        return [name.removeprefix("IMAP ") for name, *_ in self.commands]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario; asyncio must have nothing to complain of, and no task may be left."""
    complaints: list[str] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(f"{context}"))
        await scenario()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            _, pending = await asyncio.wait(rest, timeout=LIMIT_S)
            assert not pending

    asyncio.run(watched())
    gc.collect()
    assert not complaints


@pytest.fixture(scope="module", params=["embedded_server", "dovecot_postfix"])
def services(request: pytest.FixtureRequest) -> Services:
    """A server with accounts enough for a fresh one in each test."""
    accounts = [Account(number, f"user{number}", f"user{number}@sim.test", PASSWORD) for number in range(1, PEOPLE)]
    start: Callable[..., RunningServer] = request.getfixturevalue(request.param)
    return start(accounts).services


_numbers = iter(range(1, PEOPLE))


@pytest.fixture
def account(services: Services) -> Account:
    """An account that no other test uses, with the usual folders."""
    number = next(_numbers)
    account = Account(number, f"user{number}", f"user{number}@sim.test", PASSWORD)
    client = outside(services, account)
    for folder in (CALENDAR, f'"{DELETED_ITEMS}"', f'"{FOLDER}"'):
        assert client.create(folder)[0] == "OK"
    client.logout()
    return account


def outside(services: Services, account: Account) -> imaplib.IMAP4:
    """The same mailbox as imaplib sees it: the oracle."""
    client = imaplib.IMAP4(services.imap.host, services.imap.port)
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # it writes a literal in two packets
    client.login(account.login, account.password)
    return client


def put(services: Services, account: Account, folder: str, messages: list[bytes], flags: str = "") -> None:
    """Put messages into a folder, from outside."""
    client = outside(services, account)
    for message in messages:
        assert client.append(f'"{folder}"', flags, "", message)[0] == "OK"
    client.logout()


def texts(services: Services, account: Account, folder: str) -> list[bytes]:
    """The bodies of what lies in a folder, from outside."""
    client = outside(services, account)
    assert client.select(f'"{folder}"', readonly=True)[0] == "OK"
    found = []
    for number in client.search(None, "ALL")[1][0].split():
        data = client.fetch(number.decode(), "(BODY.PEEK[TEXT])")[1]
        assert isinstance(data[0], tuple)
        found.append(data[0][1])
    client.logout()
    return found


def evidence(number: int, body: bytes) -> MessageTag:
    """What message `number` says of itself."""
    return MessageTag("run-1", 7, f"n7.{number}", "new", 1_700_000_000_000_000 + number, body_digest(body))


def message(number: int, subject: str = "subject", body: bytes = b"") -> bytes:
    """A message of loadsim's, with a folded header."""
    body = body or b"body %d\r\n" % number
    lines = [
        'From: "One, User" <user1@sim.test>',
        "To: user2@sim.test,\r\n Three <user3@sim.test>",
        f"Subject: {subject}",
        f"Message-ID: <n7.{number}.run-1@sim.test>",
        f"X-LoadSim: {evidence(number, body).header()}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def session(services: Services, account: Account, observer: Observed) -> Session:
    """The drivers of this user."""
    return open_driver(services).session(account, observer)


@asynccontextmanager
async def logged_on(services: Services, account: Account) -> AsyncIterator[tuple[Mailbox, Observed]]:
    """A mailbox with a session, and its observer; logged off afterwards."""
    observer = Observed()
    mailbox = session(services, account, observer).mailbox
    try:
        await mailbox.log_on()
        yield mailbox, observer
        await mailbox.log_off()
    finally:
        mailbox.abandon()


# --- what it does ---


def test_no_mail_and_no_password_is_logged(
    services: Services, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """The library would log the whole conversation; with the root logger wide open nothing of it is seen."""
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, _):
            await mailbox.append(INBOX, message(1))
            await mailbox.headers(INBOX, None)

    run(scenario)
    assert not [record for record in caplog.records if record.name.startswith("aioimaplib")]


def test_log_on_lists_folders_and_headers(services: Services, account: Account) -> None:
    """A session begins as the other module's does, and a header holds what the message says."""
    subject = "* ((odd * subject"
    put(services, account, INBOX, [message(1, subject)], flags="\\Seen")
    put(services, account, INBOX, [b"From: x@y.test\r\nX-LoadSim: nonsense\r\n\r\nforeign\r\n", b"\r\nno header\r\n"])
    put(
        services, account, INBOX, [message(1).replace(b"<user1@", b"<anna@else."), message(1).replace(b"<n7.", b"<m7.")]
    )

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, observer):
            assert set(await mailbox.folders()) == {INBOX, CALENDAR, DELETED_ITEMS, FOLDER}
            ours, foreign, bare, *copies = await mailbox.headers(INBOX, newest=50)
            size = len(message(1, subject))
            assert ours == Header(
                ours.ref,
                flags=frozenset({Flag.SEEN}),
                size_bytes=size,
                sender="user1@sim.test",
                to=("user2@sim.test", "user3@sim.test"),
                subject=subject,
                message_id="<n7.1.run-1@sim.test>",
                evidence=evidence(1, b"body 1\r\n"),
            )
            assert (foreign.evidence, foreign.sender, foreign.seen) == (None, "x@y.test", False)
            assert [copy.evidence for copy in copies] == [None, None]  # another From, another Message-ID
            assert (bare.evidence, bare.sender, bare.to, bare.subject) == (None, "", (), "")
            names = [name for name in observer.names()[3:4] if name == "NAMESPACE"]  # if the server has it
            others = ["LIST", "SELECT", "FETCH"]
            assert observer.names() == ["CONNECT", "AUTHENTICATE", "CAPABILITY", *names, *others]
        assert observer.names()[-1] == "LOGOUT"
        assert not observer.losses

    run(scenario)


@pytest.mark.parametrize("newest", [None, 1, 30, 1000])
def test_long_folders_come_in_small_batches(services: Services, account: Account, newest: int | None) -> None:
    """The newest headers come oldest first, complete, in as many FETCHes as it takes."""
    total = 3 * MESSAGES_PER_COMMAND + 7
    put(services, account, FOLDER, [message(number) for number in range(total)])

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, observer):
            found = await mailbox.headers(FOLDER, newest)
            shown = min(total, newest or total)
            expected = [f"n7.{number}" for number in range(total - shown, total)]
            assert [header.evidence.id for header in found if header.evidence] == expected
            assert observer.names().count("FETCH") == -(-shown // MESSAGES_PER_COMMAND)

    run(scenario)


def test_mail_that_came_while_another_folder_was_open_is_announced(services: Services, account: Account) -> None:
    """Going back to the Inbox announces what came meanwhile, however much, and `arrived` brings it."""
    many = MESSAGES_PER_COMMAND + 10
    put(services, account, INBOX, [message(0)])

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, observer):
            await mailbox.headers(INBOX, None)
            await mailbox.open(FOLDER)
            new = [message(number) for number in range(1, many + 1)]
            await asyncio.to_thread(put, services, account, INBOX, new)
            assert observer.announced == 0
            await mailbox.open(INBOX)
            assert observer.announced == many
            found = [header.message_id for header in await mailbox.arrived()]
            assert found == [f"<n7.{number}.run-1@sim.test>" for number in range(1, many + 1)]

    run(scenario)


def multipart(attachment: bytes) -> bytes:
    """A text that looks like IMAP, and an attachment."""
    body = (
        b"--x\r\nContent-Type: text/plain\r\n\r\n* 1 EXISTS ((\r\n* text\r\nA1 OK done\r\n"
        b'--x\r\nContent-Type: application/octet-stream; name="a (1.bin"\r\n'
        b'Content-Disposition: attachment; filename="a (1.bin"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
        + attachment
        + b"\r\n--x--\r\n"
    )
    return b"Subject: parts\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n" + body


@pytest.mark.parametrize("lines", [1, 1800, 3600])
def test_parts_come_as_they_lie_in_the_message(services: Services, account: Account, lines: int) -> None:
    """Text that looks like IMAP, and attachments smaller and larger than one piece, come as imaplib gets them."""
    attachment = b"\r\n".join(b"%075d" % number for number in range(lines))
    put(services, account, INBOX, [multipart(attachment)])
    client = outside(services, account)
    client.select(INBOX, readonly=True)
    text, attached_bytes = (client.fetch("1", f"(BODY.PEEK[{name}])")[1][0][1] for name in ("1", "2"))  # type: ignore[index]
    client.logout()
    assert attachment in attached_bytes

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, observer):
            header = (await mailbox.headers(INBOX, None))[0]
            structure = await mailbox.structure(header.ref)
            assert structure.text is not None
            assert structure.text.name == "1"
            assert await mailbox.part(header.ref, structure.text) == text
            (attached,) = structure.attachments
            assert (attached.name, attached.filename, attached.encoding) == ("2", "a (1.bin", "base64")
            before = len(observer.commands)
            assert await mailbox.part(header.ref, attached) == attached_bytes
            assert len(observer.commands) - before == len(attached_bytes) // PIECE_BYTES + 1
            assert not (await mailbox.headers(INBOX, None))[0].seen

    run(scenario)


def test_flags_moves_copies_and_expunges(services: Services, account: Account) -> None:
    """imaplib finds every message where it was put, more of them than one command takes; nothing else has moved."""
    total = 2 * MESSAGES_PER_COMMAND + 3
    put(services, account, INBOX, [message(number) for number in range(total)])
    put(services, account, DELETED_ITEMS, [b"\r\nforeign\r\n"], flags="\\Deleted")

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, _):
            refs = [header.ref for header in await mailbox.headers(INBOX, None)]
            await mailbox.flag(refs[:3], Flag.SEEN)
            await mailbox.flag(refs[:1], Flag.SEEN, on=False)
            assert [header.seen for header in await mailbox.headers(INBOX, None)][:4] == [False, True, True, False]
            await mailbox.copy(refs[:2], FOLDER)
            await mailbox.move(refs[1:], DELETED_ITEMS)
            assert len(await mailbox.headers(INBOX, None)) == 1
            deleted = await mailbox.headers(DELETED_ITEMS, None)
            await mailbox.expunge([header.ref for header in deleted if header.evidence])
            for nothing in (mailbox.expunge([]), mailbox.move([], FOLDER), mailbox.copy([], FOLDER)):
                await nothing
            await mailbox.flag([], Flag.ANSWERED)

    run(scenario)
    assert texts(services, account, INBOX) == [b"body 0\r\n"]
    assert texts(services, account, FOLDER) == [b"body 0\r\n", b"body 1\r\n"]
    assert texts(services, account, DELETED_ITEMS) == [b"foreign\r\n"]


def test_an_appended_message_lies_there_unchanged(services: Services, account: Account) -> None:
    """Also one that looks like IMAP and SMTP; its bytes are counted as sent."""
    body = b"* OK\r\n.\r\n{3}\r\nA1 OK\r\n"

    async def scenario() -> None:
        async with logged_on(services, account) as (mailbox, observer):
            await mailbox.append(FOLDER, message(5, body=body))
            assert observer.commands[-1][2] > len(message(5, body=body))

    run(scenario)
    assert texts(services, account, FOLDER) == [body]


def test_it_works_over_implicit_tls(dovecot_postfix: Callable[..., RunningServer]) -> None:
    """With TLS from the first byte mail is sent, announced and read; a certificate of nobody's is refused."""
    user = Account(1, "user1", "user1@sim.test", PASSWORD)
    services = dovecot_postfix([user], {}, tls="implicit").services

    async def scenario() -> None:
        observer = Observed()
        drivers = session(services, user, observer)
        await drivers.mailbox.log_on()
        await drivers.mailbox.watch()
        await drivers.submission.send(user.address, [user.address], message(1))
        await observer.until(lambda: observer.announced == 1)
        (header,) = await drivers.mailbox.arrived()
        assert header.evidence == evidence(1, b"body 1\r\n")
        await drivers.submission.close()
        await drivers.mailbox.log_off()
        untrusted = Services(Endpoint(services.imap.host, services.imap.port, tls="implicit"), services.smtp)
        with pytest.raises(ServerLost, match="TLS certificate"):
            await session(untrusted, user, Observed()).mailbox.log_on()

    run(scenario)


# --- the network ---


def test_a_connection_that_breaks_in_a_literal_fails_the_append(services: Services, account: Account) -> None:
    """Long before its limit; the next log-on works."""

    async def scenario() -> None:
        network, observer = Network(services), Observed()
        async with network(limit_s=3600) as through:
            mailbox = session(through, account, observer).mailbox
            async with asyncio.timeout(LIMIT_S):
                await mailbox.log_on()
                network.cut_at = b"X-LoadSim"
                with pytest.raises(ServerLost):
                    await mailbox.append(FOLDER, message(2))
                assert observer.commands[-1][1] == "lost"
                network.cut_at = None
                await mailbox.log_on()
                await mailbox.log_off()

    run(scenario)


def test_a_log_on_that_breaks_behind_the_password_is_lost(services: Services, account: Account) -> None:
    """At the CAPABILITY that follows it; at once."""

    async def scenario() -> None:
        network = Network(services)
        network.cut_at = b" CAPABILITY"
        async with network(limit_s=3600) as through:
            mailbox = session(through, account, Observed()).mailbox
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises(ServerLost):
                    await mailbox.log_on()

    run(scenario)


def test_abandoning_in_the_middle_leaves_nothing(services: Services, account: Account) -> None:
    """A call that is cancelled, and a session that is abandoned while it idles or connects, leave no task behind."""

    async def scenario() -> None:
        network, observer = Network(services), Observed()
        async with network() as through:
            mailbox = session(through, account, observer).mailbox
            connecting = asyncio.create_task(mailbox.log_on())
            await asyncio.sleep(0)
            mailbox.abandon()
            with pytest.raises(ServerLost):
                await connecting
            await mailbox.log_on()
            network.swallow_at = b" LIST "
            listing = asyncio.create_task(mailbox.folders())
            await asyncio.sleep(0)
            listing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listing
            await mailbox.log_on()
            await mailbox.watch()
            mailbox.abandon()
        assert not observer.losses

    run(scenario)


def test_without_uidplus_nothing_of_others_is_expunged(services: Services, account: Account) -> None:
    """Where only a plain EXPUNGE is left and others' messages are marked, it is refused and nothing is lost."""
    put(services, account, INBOX, [b"\r\nforeign\r\n"], flags="\\Deleted")
    put(services, account, INBOX, [message(1)])

    async def scenario() -> None:
        network = Network(services)
        network.instead = {b" UIDPLUS": b" XIDPLUS"}
        async with network() as through, logged_on(through, account) as (mailbox, _):
            ours = (await mailbox.headers(INBOX, None))[1]
            with pytest.raises(ServerRefused, match="would delete others"):
                await mailbox.expunge([ours.ref])

    run(scenario)
    assert texts(services, account, INBOX) == [b"foreign\r\n", b"body 1\r\n"]


@pytest.mark.parametrize("hidden", [{}, {b" IDLE": b" XDLE"}], ids=["IDLE", "no IDLE"])
def test_the_watch_goes_on_by_itself(services: Services, account: Account, hidden: dict[bytes, bytes]) -> None:
    """IDLE is begun anew, or the server asked again and again; a call in between works, and mail is announced."""

    async def scenario() -> None:
        network, observer = Network(services), Observed()
        network.instead = hidden
        async with network() as through:
            mailbox = AioimaplibMailbox(through.imap, account, observer, LIMIT_S, poll_s=0.02, idle_again_s=0.02)
            await mailbox.log_on()
            await mailbox.watch()
            again = "NOOP" if hidden else "IDLE"
            await observer.until(lambda: observer.names().count(again) >= 3)
            await asyncio.to_thread(put, services, account, INBOX, [message(1)])
            await observer.until(lambda: observer.announced == 1)
            assert len(await mailbox.arrived()) == 1
            await mailbox.watch()
            network.cut()
            await observer.until(lambda: bool(observer.losses))
            assert mailbox._connection is not None
            await mailbox._renew(mailbox._connection)  # as its timer may, before the user has heard of the loss
            mailbox.abandon()
            assert len(observer.losses) == 1

    run(scenario)


# --- servers with a script, and the library's defects ---


@asynccontextmanager
async def scripted(answers: dict[str, bytes | None], greeting: bytes = b"* OK hello\r\n") -> AsyncIterator[Services]:
    """A server that answers a command with these lines (None: closes) and OK; `%t` in them is the command's tag."""
    usual = {"CAPABILITY": b"* CAPABILITY IMAP4rev1 IDLE UIDPLUS MOVE\r\n", "LOGOUT": b"* BYE\r\n"}
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        writer.write(greeting)
        while line := await _line(reader):
            tag, _, command = line.strip().partition(b" ")
            name = next((each for each in answers if command.decode().startswith(each)), command.decode())
            answer = answers.get(name, usual.get(name, b""))
            if answer is None:
                break
            answer = answer.replace(b"%t", tag)
            if answer.startswith(b"* BYE") and name != "LOGOUT":
                writer.write(answer)
                break
            writer.write(answer if tag + b" " in answer else answer + tag + b" OK done\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Services(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), Endpoint("127.0.0.1", 9), LIMIT_S)
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await server.wait_closed()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """A line, or nothing when the client has gone."""
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


SCRIPTED = Account(1, "user1", "user1@sim.test", PASSWORD)


def failing(
    answers: dict[str, bytes | None], call: Callable[[Mailbox], Awaitable[object]], greeting: bytes = b"* OK hello\r\n"
) -> TaskFailed:
    """What a call raises on a scripted server."""
    raised: list[TaskFailed] = []

    async def scenario() -> None:
        async with scripted(answers, greeting) as services:
            mailbox = session(services, SCRIPTED, Observed()).mailbox
            with pytest.raises(TaskFailed) as failure:
                await mailbox.log_on()
                await call(mailbox)
            raised.append(failure.value)
            mailbox.abandon()

    run(scenario)
    return raised[0]


def test_a_greeting_of_bye_is_lost_with_its_reason() -> None:
    """A server that is full says BYE: ServerLost, with its words."""
    failure = failing({}, lambda mailbox: mailbox.folders(), b"* BYE too many connections\r\n")
    assert isinstance(failure, ServerLost)
    assert (failure.kind, failure.line) == ("BYE", "too many connections")


def test_a_bye_in_the_middle_is_lost_with_its_reason() -> None:
    """BYE before the connection closes is the reason that is given."""
    failure = failing({"LIST": b"* BYE shutting down\r\n"}, lambda mailbox: mailbox.folders())
    assert (failure.kind, failure.line) == ("BYE", "shutting down")


def test_a_password_that_the_server_echoes_is_masked() -> None:
    """Neither the password nor its quoted form comes out of a refusal."""
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    failure = failing(
        {"LOGIN": f"%t NO [AUTHENTICATIONFAILED] {PASSWORD} or {quoted}\r\n".encode()},
        lambda mailbox: mailbox.folders(),
    )
    assert isinstance(failure, ServerRefused)
    assert str(failure) == "NO [AUTHENTICATIONFAILED] LOGIN: NO [AUTHENTICATIONFAILED] *** or ***"


def test_mail_announced_in_the_answer_to_a_fetch_is_heard() -> None:
    """The library loses an EXISTS that comes while it waits for a FETCH; we do not."""
    select = b"* 0 EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 1] x\r\n"

    async def scenario() -> None:
        answers = {"SELECT": select, "NOOP": b"* 1 EXISTS\r\n", "UID FETCH": b"* 2 EXISTS\r\n"}
        async with scripted(answers) as services:
            observer = Observed()
            mailbox = session(services, SCRIPTED, observer).mailbox
            await mailbox.log_on()
            await mailbox.open(INBOX)
            await mailbox.arrived()
            assert observer.announced == 2
            mailbox.abandon()

    run(scenario)


def test_long_answers_reach_the_library_a_response_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 messages in one answer: by itself the library recurses over its lines, and breaks off."""
    monkeypatch.setattr(mailbox_module, "MESSAGES_PER_COMMAND", 2000)
    lines = b"".join(b"* %d FETCH (UID %d BODY[HEADER.FIELDS (TO)] {2}\r\n\r\n)\r\n" % (n, n) for n in range(1, 2001))
    select = b"* 2000 EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 2001] x\r\n"

    async def scenario() -> None:
        async with scripted({"SELECT": select, "FETCH": lines}) as services:
            mailbox = session(services, SCRIPTED, Observed()).mailbox
            await mailbox.log_on()
            assert len(await mailbox.headers(FOLDER, None)) == 2000
            mailbox.abandon()

    run(scenario)


def test_the_library_alters_quoted_strings() -> None:
    """It takes "* " out of them: a file's name comes out shorter; what is in literals is left alone."""
    structure = b'("text" "plain" ("name" "a * b") NIL NIL "7bit" 3 1)'
    marked = evidence(1, b"x").header().encode()
    block = (
        b"From: user1@sim.test\r\nMessage-ID: <n7.1.run-1@sim.test>\r\nSubject: a * b\r\nX-LoadSim: %b\r\n\r\n" % marked
    )

    async def scenario() -> None:
        answers = {
            "SELECT": b"* 1 EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 2] x\r\n",
            "FETCH": b"* 1 FETCH (UID 1 BODY[HEADER.FIELDS (X-LOADSIM)] {%d}\r\n%b)\r\n" % (len(block), block),
            "UID FETCH": b"* 1 FETCH (UID 1 BODYSTRUCTURE %b)\r\n" % structure,
        }
        async with scripted(answers) as services:
            mailbox = session(services, SCRIPTED, Observed()).mailbox
            await mailbox.log_on()
            (header,) = await mailbox.headers(INBOX, None)
            assert (header.subject, header.evidence) == ("a * b", evidence(1, b"x"))
            assert await mailbox.structure(header.ref) == Structure(Part("1", "text/plain", 3, "a b", "7bit"))
            mailbox.abandon()

    run(scenario)
