"""The IMAP connection against scripted servers on real sockets: who is told what, and what goes out in one write."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from imap_script import ACCOUNT, PATIENCE_S, Client, Peer, Script, certificate, playing, skip

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Services
from loadsim.protocols.imap.commands import Literal
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.responses import Condition, Exists, Fetched
from loadsim.protocols.imap.under_way import Answer
from loadsim.provisioning.sessions import no_access

LIMIT_S = PATIENCE_S / 3
"""A time limit that a busy machine keeps, and that is over before the script's patience is."""


class Tap:
    """A transport that keeps what is written, write by write."""

    def __init__(self, connection: Connection) -> None:
        self.writes: list[bytes] = []
        self.inner = connection._transport
        connection._transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.inner.write(data)  # type: ignore[union-attr]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@asynccontextmanager
async def connected(script: Script, limit_s: float = PATIENCE_S) -> AsyncIterator[tuple[Client, Connection]]:
    client = Client()
    async with playing(script) as endpoint:
        connection = await client.connect(endpoint, limit_s)
        yield client, connection
        connection.close()
        await connection.wait_closed()


PLAIN = b64encode(b'\0user1\0se"cret-\\1')


async def failures(*calls: asyncio.Future[Answer]) -> list[BaseException]:
    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, BaseException) for each in found)
    return [each for each in found if isinstance(each, BaseException)]


async def test_a_lost_connection_fails_all_commands_under_way() -> None:
    """Three commands wait, the server goes: three `ServerLost`, one loss told, and nothing can be sent any more."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        for name in (rb"NOOP", rb"UID FETCH 1 UID", rb"CHECK"):
            await peer.expect(name)

    async with connected(script) as (client, connection):
        calls = [connection.send("NOOP"), connection.send("UID FETCH", b"1", b"UID"), connection.send("CHECK")]
        found = await failures(*calls)
        assert [(type(each), each.kind) for each in found if isinstance(each, ServerLost)] == [
            (ServerLost, "connection lost")
        ] * 3
        assert len({id(each) for each in found}) == 3
        with pytest.raises(ServerLost):
            connection.send("NOOP")
        await connection.wait_closed()
    assert len(client.broken) == 1
    assert [each[:2] for each in client.ear.commands[1:]] == [
        ("IMAP NOOP", "lost"),
        ("IMAP UID FETCH", "lost"),
        ("IMAP CHECK", "lost"),
    ]


async def test_bye_is_the_reason_of_a_loss() -> None:
    """After BYE nothing more is sent, and what waits fails with what the server said."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        await peer.expect(rb"NOOP")
        peer.say(b"* BYE shutting down")
        assert await peer.packet() == b""

    async with connected(script) as (client, connection):
        call = connection.send("NOOP")
        await client.until(Condition, 1)
        with pytest.raises(ServerLost, match="BYE: shutting down"):
            connection.send("CHECK")
        connection.close()
        (failure,) = await failures(call)
        assert str(failure) == "BYE: shutting down"


async def test_answers_are_matched_to_commands_in_any_order() -> None:
    """Pipelined commands may be answered out of order; each has the data that came while it was under way."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        first, second = await peer.expect(rb"UID FETCH 1 FLAGS"), await peer.expect(rb"UID FETCH 2 FLAGS")
        peer.say(
            b"* 2 FETCH (UID 2 FLAGS ())", second + b" OK", b"* 4 EXISTS", b"* 1 FETCH (UID 1 FLAGS ())", first + b" OK"
        )
        await peer.end()

    async with connected(script) as (client, connection):
        one, two = connection.send("UID FETCH", b"1", b"FLAGS"), connection.send("UID FETCH", b"2", b"FLAGS")
        first, second = await one, await two
        assert [each.uid for each in first.data if isinstance(each, Fetched)] == [2, 1]
        assert [each.uid for each in second.data if isinstance(each, Fetched)] == [2]
    assert [each for each in client.received if isinstance(each, Exists)] == [Exists(4)]
    assert not client.broken


async def test_data_before_the_end_of_a_select_is_no_data_of_later_commands() -> None:
    """Data before the end of a SELECT does not belong to a command sent after it."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        for folder, uid in ((b"A", b"1"), (b"B", b"2")):
            await peer.answer(b"SELECT " + folder, b"* 1 EXISTS")
            await peer.answer(rb"UID FETCH 1:\* UID", b"* 1 FETCH (UID " + uid + b")")
        await peer.end()

    async with connected(script) as (_, connection):
        calls = []
        for folder in (b"A", b"B"):
            calls.append(connection.send("SELECT", folder, resets=True))
            calls.append(connection.send("UID FETCH", b"1:*", b"UID"))
        answers = [await call for call in calls]
        assert [[each.uid for each in answer.data if isinstance(each, Fetched)] for answer in answers[1::2]] == [
            [1],
            [2],
        ]


async def test_a_command_waits_for_the_end_of_idle() -> None:
    """The command that ends IDLE is sent when the server has answered DONE; none is sent before the server listens."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        idle = await peer.expect(rb"IDLE")
        peer.say(b"+ idling", b"* 1 EXISTS")
        for command in (b"t2 NOOP", b"t4 CHECK"):
            assert await peer.packet() == b"DONE\r\n"
            peer.say(idle + b" OK")
            assert await peer.packet() == command + b"\r\n"
            peer.say(command[:2] + b" OK")
            if command == b"t2 NOOP":
                idle = await peer.expect(rb"IDLE")
                # The next command is written now; it has to wait for this:
                peer.say(b"+ idling")
        await peer.end()

    async with connected(script) as (client, connection):
        tap = Tap(connection)
        await connection.idle()
        await connection.send("NOOP")
        connection.send_quietly("IDLE")
        await connection.send("CHECK")
        assert tap.writes == [
            *(b"t1 IDLE\r\n", b"DONE\r\n", b"t2 NOOP\r\n"),
            *(b"t3 IDLE\r\n", b"DONE\r\n", b"t4 CHECK\r\n"),
        ]
    names = [each[:3] for each in client.ear.commands[1:]]
    assert names == [
        ("IMAP IDLE", "ok", 9),
        ("IMAP DONE", "ok", 6),
        ("IMAP NOOP", "ok", 9),
        ("IMAP IDLE", "ok", 9),
        ("IMAP DONE", "ok", 6),
        ("IMAP CHECK", "ok", 10),
    ]


@pytest.mark.parametrize("at", ["idle", "done", "answer"])
async def test_a_second_continuation_of_idle_is_ignored(at: str) -> None:
    """A busy James 3.8 sends one, up to the command after IDLE. A third one has no command, and ends the connection."""

    async def script(peer: Peer) -> None:
        second = {name: [b"+ Idling"] if name == at else [] for name in ("idle", "done", "answer")}
        peer.say(b"* OK ready")
        idle = await peer.expect(rb"IDLE")
        peer.say(b"+ Idling", *second["idle"])
        assert await peer.packet() == b"DONE\r\n"
        peer.say(*second["done"], b"* 31 EXISTS", idle + b" OK", *second["answer"])
        noop = await peer.expect(rb"NOOP")
        peer.say(noop + b" OK", b"+ Idling")
        await peer.end()

    async with connected(script) as (_, connection):
        await connection.idle()
        answer = await connection.send("NOOP")
        assert answer.tagged.status == "OK"
        await connection.wait_closed()
        assert isinstance(connection.failure, ProtocolError)
        assert connection.failure.kind == "IMAP continuation"


async def silent_after_done(peer: Peer) -> None:
    peer.say(b"* OK ready")
    await peer.expect(rb"IDLE")
    peer.say(b"+ idling")
    assert await peer.packet() == b"DONE\r\n"
    await peer.end()


async def test_idle_may_last_longer_than_a_command() -> None:
    """While a session idles there is nothing to be late with; the end of it has a time limit again."""
    async with connected(silent_after_done, LIMIT_S) as (_, connection):
        await connection.idle()
        skip(LIMIT_S)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0, later.set)  # behind what is due before
        await later.wait()
        assert connection.failure is None
        silent = connection.send("NOOP")
        skip(LIMIT_S)
        (failure,) = await failures(silent)
        assert isinstance(failure, ServerSilent)


async def test_a_refused_literal_releases_the_next_command() -> None:
    """NO instead of "+" is the command's end; what was held back behind the literal is sent then."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        tag = await peer.expect(rb"APPEND Sent \{5\}")
        peer.say(tag + b" NO [OVERQUOTA] full")
        await peer.answer(rb"NOOP")
        tag = await peer.expect(rb"APPEND Sent \(\) \{5\}")
        peer.say(b"+ go")
        assert await peer.packet() == b"hello\r\n"
        peer.say(tag + b" OK")
        await peer.end()

    async with connected(script) as (client, connection):
        append = connection.send("APPEND", b"Sent", Literal(b"12345"))
        noop = connection.send("NOOP")
        (failure,) = await failures(append)
        assert isinstance(failure, ServerRefused)
        assert (failure.kind, failure.line) == ("NO [OVERQUOTA] APPEND", "NO [OVERQUOTA] full")
        await noop
        await connection.send("APPEND", b"Sent", b"()", Literal(b"hello"))
    assert client.ear.commands[-1][:3] == ("IMAP APPEND", "ok", len(b"t3 APPEND Sent () {5}\r\nhello\r\n"))


@pytest.mark.parametrize(
    ("free", "size", "waits"), [(-1, 10, True), (4096, 4096, False), (4096, 4097, True), (1 << 60, 90_000, False)]
)
async def test_a_literal_is_sent_with_its_command_where_allowed(free: int, size: int, waits: bool) -> None:
    """LITERAL+ and LITERAL- (RFC 7888) save the wait for a continuation."""
    body = b"x" * size

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        await peer.expect(rb"APPEND Sent \{%d%b\}" % (size, b"" if waits else rb"\+"))
        if waits:
            peer.say(b"+")
        assert await peer.reader.readexactly(size + 2) == body + b"\r\n"
        peer.say(b"t1 OK")
        await peer.end()

    async with connected(script) as (_, connection):
        connection.free_literal_bytes = free
        tap = Tap(connection)
        await connection.send("APPEND", b"Sent", Literal(body))
        assert len(tap.writes) == (2 if waits else 1)


@pytest.mark.parametrize("echo", [b'se"cret-\\1', b'se\\"cret-\\\\1', PLAIN, b64encode(b'se"cret-\\1')])
@pytest.mark.parametrize("capabilities", [b"AUTH=PLAIN SASL-IR", b"AUTH=PLAIN", b""])
async def test_a_password_is_in_no_error(echo: bytes, capabilities: bytes) -> None:
    """A server that quotes what it was sent, in any form, does not bring the password into an error."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 " + capabilities + b"] ready")
        if capabilities == b"AUTH=PLAIN":
            tag = await peer.expect(rb"AUTHENTICATE PLAIN")
            peer.say(b"+")
            assert await peer.packet() == PLAIN + b"\r\n"
        else:
            tag = await peer.expect(rb"AUTHENTICATE PLAIN \S+" if capabilities else rb'LOGIN user1 "se\\"cret-\\\\1"')
        peer.say(tag + b" NO [AUTHENTICATIONFAILED] wrong: " + echo + b" " * 150 + echo)
        await peer.end()

    async with playing(script) as endpoint:
        with pytest.raises(ServerRefused) as caught:
            await Client().log_on(endpoint, ACCOUNT)
    shown = f"{caught.value} {caught.value.kind} {caught.value!r} {caught.value.__dict__}"
    assert echo.decode() not in shown
    assert "cret" not in shown
    assert "wrong: ***" in shown
    assert caught.value.kind == f"NO [AUTHENTICATIONFAILED] {'AUTHENTICATE' if capabilities else 'LOGIN'}"


async def test_logindisabled_is_respected() -> None:
    """LOGINDISABLED (RFC 9051 section 6.2.3): no password is sent."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 LOGINDISABLED] ready")
        assert await peer.packet() == b""

    async with playing(script) as endpoint:
        with pytest.raises(ServerRefused, match="LOGINDISABLED"):
            await Client().log_on(endpoint, ACCOUNT)


async def test_a_refusal_with_logindisabled_suggests_tls() -> None:
    """A server may offer AUTH=PLAIN without TLS, and then refuse it."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 LOGINDISABLED AUTH=PLAIN SASL-IR] ready")
        await peer.answer(rb"AUTHENTICATE PLAIN .*", end=b"NO no")

    async with playing(script) as endpoint:
        with pytest.raises(ServerRefused) as caught:
            await Client().log_on(endpoint, ACCOUNT)
    assert caught.value.kind == "NO AUTHENTICATE, LOGINDISABLED"
    advice = str(no_access("imap", Services(imap=endpoint), ACCOUNT, caught.value))
    assert "server.imap.tls" in advice and ACCOUNT.login in advice


async def test_capabilities_are_those_after_log_on() -> None:
    """Capabilities missing in the greeting are asked for; those after the log-on count."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        await peer.answer(rb"CAPABILITY", b"* CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR LITERAL-")
        await peer.answer(rb"AUTHENTICATE PLAIN " + PLAIN)
        await peer.answer(rb"CAPABILITY", b"* CAPABILITY IMAP4rev2")
        await peer.end()

    client = Client()
    async with playing(script) as endpoint:
        connection, offered = await client.log_on(endpoint, ACCOUNT)
        assert {"IDLE", "MOVE", "UIDPLUS"} <= offered  # IMAP4rev2 has them (RFC 9051, appendix E)
        assert connection.free_literal_bytes == 4096
        connection.close()
        await connection.wait_closed()
    assert [each[0] for each in client.ear.commands] == [
        "IMAP CONNECT", "IMAP CAPABILITY", "IMAP AUTHENTICATE", "IMAP CAPABILITY",
    ]  # fmt: skip
    assert client.ear.commands[0][2:] == (0, len(b"* OK ready\r\n"))
    assert client.ear.commands[2][2:] == (len(b"t2 AUTHENTICATE PLAIN \r\n") + len(PLAIN), len(b"t2 OK done\r\n"))


@pytest.fixture(scope="module")
def localhost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return certificate(tmp_path_factory.mktemp("localhost"), "DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return certificate(tmp_path_factory.mktemp("elsewhere"), "DNS:mail.elsewhere.test")


def securing(context: ssl.SSLContext) -> Script:
    """A script that upgrades to TLS and goes on to the log-on."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED] ready")
        await peer.answer(rb"STARTTLS")
        try:
            await peer.writer.start_tls(context)
        except ssl.SSLError:
            return
        await peer.answer(rb"CAPABILITY", b"* CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR")
        await peer.answer(rb"AUTHENTICATE PLAIN .*")
        await peer.answer(rb"CAPABILITY", b"* CAPABILITY IMAP4rev1 IDLE")
        await peer.answer(rb"NOOP", b"* 3 EXISTS")
        await peer.end()

    return script


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop])
def test_starttls_secures_the_session(loop_factory: Any, localhost: tuple[Path, ssl.SSLContext]) -> None:
    """Offers in the clear are forgotten; the password goes through TLS only."""

    async def run() -> None:
        client = Client()
        async with playing(securing(localhost[1]), tls="starttls") as endpoint:
            connection, offered = await client.log_on(replace(endpoint, ca_file=str(localhost[0])), ACCOUNT)
            assert offered == {"IMAP4REV1", "IDLE"}
            await connection.send("NOOP")
            assert client.received[-1] == Exists(3)
            connection.close()
            await connection.wait_closed()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


@pytest.mark.parametrize("tls", ["implicit", "starttls"])
@pytest.mark.parametrize(
    ("served", "trusted", "shown"),
    [
        ("localhost", None, "self-signed"),
        ("localhost", "elsewhere", "self-signed|unable to get"),
        ("elsewhere", "elsewhere", "not valid for"),
    ],
)
async def test_a_wrong_certificate_is_refused(
    tls: str, served: str, trusted: str | None, shown: str, request: pytest.FixtureRequest
) -> None:
    """An unknown authority and another host's certificate are refused by default, before any password is sent."""
    _, context = request.getfixturevalue(served)
    ca_file = None if trusted is None else str(request.getfixturevalue(trusted)[0])

    client = Client()
    script = [] if tls == "implicit" else [securing(context)]
    async with playing(*script, context=context if tls == "implicit" else None, tls=tls) as endpoint:
        with pytest.raises(ServerLost) as caught:
            await client.log_on(replace(endpoint, ca_file=ca_file), ACCOUNT)
        assert caught.value.kind == "TLS certificate"
        assert any(each in caught.value.line for each in shown.split("|"))
    assert not any(each[0] in ("IMAP AUTHENTICATE", "IMAP LOGIN") for each in client.ear.commands)


async def test_a_server_without_tls_is_refused(localhost: tuple[Path, ssl.SSLContext]) -> None:
    """Where TLS was asked for, nothing is sent without it: STARTTLS not offered, refused, PREAUTH, or no TLS at all."""

    async def without(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN] ready")
        assert await peer.packet() == b""

    async def refusing(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready")
        await peer.answer(rb"STARTTLS", end=b"BAD not now")
        assert await peer.packet() == b""

    async def preauth(peer: Peer) -> None:
        peer.say(b"* PREAUTH [CAPABILITY IMAP4rev1 STARTTLS] at your service")
        assert await peer.packet() == b""

    async def plain(peer: Peer) -> None:
        peer.say(b"* OK ready")
        await peer.end()

    for script, tls, kind in (
        (without, "starttls", "STARTTLS not offered"),
        (refusing, "starttls", "BAD STARTTLS"),
        (preauth, "starttls", "PREAUTH before STARTTLS"),
        (plain, "implicit", "TLS handshake"),
    ):
        async with playing(script, tls=tls) as endpoint:
            with pytest.raises(TaskFailed) as caught:
                await Client().log_on(replace(endpoint, ca_file=str(localhost[0])), ACCOUNT)
            assert caught.value.kind == kind


@pytest.mark.parametrize("injected", [b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n", b"* OK half a li", b"t3 OK\r\n"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_plaintext_after_starttls_is_refused(
    injected: bytes, loop: str, localhost: tuple[Path, ssl.SSLContext]
) -> None:
    """Data injected after the server's OK is not taken for the server's in TLS (CVE-2011-0411)."""
    factory = None if loop == "asyncio" else uvloop.new_event_loop

    async def script(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready")
        tag = await peer.expect(rb"STARTTLS")
        peer.writer.write(tag + b" OK go ahead\r\n" + injected)
        await peer.end()

    async def run() -> None:
        client = Client()
        async with playing(script, tls="starttls") as endpoint:
            with pytest.raises(ProtocolError, match="in the clear"):
                await client.log_on(replace(endpoint, ca_file=str(localhost[0])), ACCOUNT)
        assert not client.received

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())
