"""The driver `aioimaplib` on servers that break the protocol or the connection: each call ends, in little memory."""

import asyncio
import contextlib
import logging
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from imap_script import Ear
from skipping import run_watched, turns, within

from loadsim.errors import GeneratorFailed, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Account, Endpoint, Part, Services
from loadsim.protocols.aioimaplib import connection as connections
from loadsim.protocols.aioimaplib import open_driver
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.mailbox import ImapMailbox

pytestmark = pytest.mark.nightly(part="drivers")

ACCOUNT = Account(1, "user1", "user1@sim.test", 's3cret "w\\ord')
LIMIT_S = 60.0
SELECTED = b"* 3 EXISTS\r\n* OK [UIDVALIDITY 7] x\r\n* OK [UIDNEXT 4] x\r\n"
REF = Ref(INBOX, 7, 1)
PART = Part("1", "text/plain", 10, None, "7bit")
CAPABILITIES = b"* CAPABILITY IMAP4rev1 IDLE UIDPLUS MOVE\r\n"

Call = Callable[[ImapMailbox], Awaitable[object]]


def mailbox_of(endpoint: Endpoint, ear: Ear | None = None) -> ImapMailbox:
    mailbox = open_driver(Services(endpoint, endpoint, LIMIT_S)).session(ACCOUNT, ear or Ear()).mailbox
    assert isinstance(mailbox, ImapMailbox)
    return mailbox


@asynccontextmanager
async def server(answers: dict[str, bytes]) -> AsyncIterator[tuple[Endpoint, list[int]]]:
    """A server that answers commands as told: `%t` is the command's tag, and OK follows unless a tag is in it.

    Lists the number of lines that it got.
    """
    usual = {"CAPABILITY": CAPABILITIES, "SELECT": SELECTED, "IDLE": b"+ idling\r\n"}
    sent = [0]
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(OSError):
            writer.write(b"* OK hello\r\n")
            idling = b""
            while line := await reader.readline():
                sent[0] += 1
                tag, _, command = line.strip().partition(b" ")
                if tag == b"DONE":
                    writer.write(idling + b" OK done\r\n")
                    continue
                name = command.decode("utf-8", "replace")
                name = next((each for each in (*answers, *usual) if name.startswith(each)), name)
                answer = answers.get(name, usual.get(name, b"")).replace(b"%t", tag)
                if name == "IDLE":
                    idling = tag
                    writer.write(answer)
                else:
                    writer.write(answer if tag + b" " in answer else answer + tag + b" OK done\r\n")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]), sent
    finally:
        listening.close()
        for writer in writers:
            writer.transport.abort()
        await listening.wait_closed()
        await turns()


async def called(endpoint: Endpoint, sent: list[int], call: Call, ear: Ear | None = None) -> TaskFailed | object:
    """Log on, and the result of a call or the failure of either; they end within their limits."""
    ear = ear or Ear()
    mailbox = mailbox_of(endpoint, ear)

    async def both() -> object:
        await mailbox.log_on()
        return await call(mailbox)

    def progress() -> tuple[int, int]:
        return sent[0], len(ear.commands)

    task = asyncio.create_task(both())
    try:
        await within(20 * LIMIT_S, task, progress, LIMIT_S / 4)
        error = task.exception()
        assert error is None or isinstance(error, TaskFailed), repr(error)
        assert ACCOUNT.password not in str(error)
        return task.result() if error is None else error
    finally:
        mailbox.abandon()
        await turns()


def result_of(answers: dict[str, bytes], call: Call) -> TaskFailed | object:
    found: list[TaskFailed | object] = []

    async def scenario() -> None:
        async with server(answers) as (endpoint, sent):
            found.append(await called(endpoint, sent, call))

    run_watched(scenario)
    return found[0]


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_answers_are_acknowledged_at_once(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """`TCP_QUICKACK` is 0 in a dialogue, in which Linux delays acknowledgements; each command would end it."""

    async def main() -> list[int]:
        async with server({}) as (endpoint, _):
            mailbox = mailbox_of(endpoint)
            await mailbox.log_on()
            states = []
            for _ in range(5):
                await mailbox.open(INBOX)
                session: Any = mailbox.session
                sock = session.connection._protocol.sock
                states.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
            mailbox.abandon()
            return states

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == [1] * 5


async def listing(mailbox: ImapMailbox) -> object:
    return await mailbox.headers(INBOX, None)


async def folders(mailbox: ImapMailbox) -> object:
    return await mailbox.folders()


async def news(mailbox: ImapMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.arrived()


async def appending(mailbox: ImapMailbox) -> object:
    return await mailbox.append("Sent", b"Subject: x\r\n\r\nbody\r\n")


async def copying(mailbox: ImapMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.copy([REF], "Other")


async def reading(mailbox: ImapMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.part(REF, PART)


@pytest.mark.parametrize(
    ("command", "answer", "call"),
    [
        ("UID COPY", b"%t OK [COPYUID 1 1:4294967295 1:4294967295] done\r\n", copying),
        ("UID FETCH", b"* 1 FETCH (UID 1 BODY[1] " + b"(" * 100_000 + b")\r\n", reading),
        ("FETCH", b"* 1 FETCH (FLAGS (\\Seen))\r\n" * 9000, listing),
        ("FETCH", b"* 1 FETCH (" + b"x\r\n" * 9000, listing),
        ("LIST", b'* LIST () "/" {1}\r\na\r\n' * 9000, folders),
        ("LIST", b"* LIST () " + b"{1}\r\na" * 9000 + b"\r\n", folders),
        ("FETCH", b"* 1 EXPUNGE\r\n" * 9000, listing),
    ],
)
def test_a_few_bytes_take_little_memory(command: str, answer: bytes, call: Call) -> None:
    """Short notations are not expanded, and long ones are bounded."""
    tracemalloc.start()
    try:
        result_of({command: answer}, call)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size_bytes", [0, 1, 70_000, 1 << 20])
def test_a_part_of_any_size_is_one_literal(size_bytes: int) -> None:
    """Also one that looks like IMAP, and one that arrives in many pieces."""
    part = (b"* 1 EXISTS ((\r\nA1 OK done\r\n{3}\r\n" * (size_bytes // 30 + 1))[:size_bytes]
    fetched = b"* 1 FETCH (UID 1 BODY[1] {%d}\r\n%b FLAGS ())\r\n" % (size_bytes, part)
    assert result_of({"UID FETCH": fetched}, reading) == part


async def test_an_idle_session_keeps_no_pushed_data() -> None:
    """The library queues it, and no reader takes it."""
    pushed = b"".join(b"* %d EXISTS\r\n" % number for number in range(4, 2000))
    async with server({"IDLE": b"+ idling\r\n" + pushed}) as (endpoint, _):
        ear = Ear()
        mailbox = mailbox_of(endpoint, ear)
        await mailbox.log_on()
        await mailbox.watch()
        while sum(ear.arrivals) < 1996:
            await turns()
        connection = mailbox.session.connection
        assert isinstance(connection, connections.LibraryConnection)
        assert connection._protocol.idle_queue.empty()
        mailbox.abandon()
        await turns()


@pytest.mark.parametrize("capabilities", [CAPABILITIES, b"* CAPABILITY IMAP4rev1\r\n"], ids=["IDLE", "NOOP"])
async def test_the_watch_is_renewed(capabilities: bytes) -> None:
    """IDLE or NOOP is sent again and again; a call in between works, and a refusal is the observer's."""
    answers = {"CAPABILITY": capabilities}
    async with server(answers) as (endpoint, _):
        ear = Ear()
        mailbox = mailbox_of(endpoint, ear)
        mailbox = replace(mailbox, session=replace(mailbox.session, poll_s=0.01, idle_again_s=0.01))
        await mailbox.log_on()
        again = "IMAP IDLE" if b"IDLE" in capabilities else "IMAP NOOP"
        for times in (3, 6):
            await mailbox.watch()
            while [name for name, *_ in ear.commands].count(again) < times:
                await turns()
            assert await mailbox.folders() == []
        answers[again.removeprefix("IMAP ")] = b"%t NO not now\r\n"
        await mailbox.watch() if again == "IMAP NOOP" else mailbox.session.keep_watching()
        await ear.wait()
        assert [failure.kind for failure in ear.losses if isinstance(failure, TaskFailed)] == [
            f"NO {again.removeprefix('IMAP ')}"
        ]
        mailbox.abandon()
        await turns()


async def test_a_cancelled_call_leaves_no_task() -> None:
    """The session has ended then; the next log-on works."""
    async with server({"LIST": b"* LIST () {100}\r\n"}) as (endpoint, _):
        mailbox = mailbox_of(endpoint)
        await mailbox.log_on()
        listing = asyncio.create_task(mailbox.folders())
        await turns(20)
        listing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listing
        with pytest.raises(ServerLost):
            await mailbox.open(INBOX)
        await mailbox.log_on()
        await mailbox.watch()
        mailbox.abandon()
        await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_nothing_of_the_conversation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The library would log each line, with mail and passwords."""
    caplog.set_level(logging.DEBUG)
    assert result_of({"APPEND": b"+ go\r\n%t OK done\r\n"}, appending) is None
    assert not [record for record in caplog.records if record.name.startswith("aioimaplib")]


def test_a_password_that_the_server_echoes_is_masked() -> None:
    quoted = ACCOUNT.password.replace("\\", "\\\\").replace('"', '\\"')
    failure = result_of({"LOGIN": f"%t NO {ACCOUNT.password} or {quoted}\r\n".encode()}, folders)
    assert isinstance(failure, ServerRefused)
    assert str(failure) == "NO LOGIN: NO *** or ***"


async def test_mail_announced_in_the_answer_to_a_fetch_is_noticed() -> None:
    """The library loses an EXISTS that comes while it waits for a FETCH."""
    ear = Ear()

    async with server({"UID FETCH": b"* 5 EXISTS\r\n", "NOOP": b"* 4 EXISTS\r\n"}) as (endpoint, sent):
        await called(endpoint, sent, news, ear)

    assert sum(ear.arrivals) == 2


def test_quoted_strings_are_as_the_server_sent_them() -> None:
    """The library takes "* " out of them."""
    structure = b'("text" "plain" ("name" "a * b") NIL NIL "7bit" 3 1)'

    async def call(mailbox: ImapMailbox) -> object:
        await mailbox.open(INBOX)
        return (await mailbox.structure(REF)).text

    answers = {"UID FETCH": b"* 1 FETCH (UID 1 BODYSTRUCTURE %b)\r\n" % structure}
    assert result_of(answers, call) == Part("1", "text/plain", 3, "a * b", "7bit")


async def test_an_internal_error_is_generator_failed() -> None:
    """It ends this user's session, and escapes neither to the caller nor into asyncio."""

    class Broken(Ear):
        def arrived(self, messages: int, at_ns: int | None = None) -> None:
            raise KeyError("secret of a message")

    async with server({"NOOP": b"* 4 EXISTS\r\n", "UID FETCH": b"* 5 EXISTS\r\n"}) as (endpoint, sent):
        failure = await called(endpoint, sent, news, Broken())
        assert isinstance(failure, GeneratorFailed)
        assert failure.kind == "internal error: KeyError"
