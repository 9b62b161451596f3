"""TLS sessions are resumed: each user's own, by every driver, on both event loops, by every version of TLS."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import uvloop
from imap_script import Ear, Peer, certificate, playing
from mailservers import StartDovecotPostfix
from small_runs import written

from loadsim.engine.process import packed, unpacked
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.protocols import aioimaplib, imap
from loadsim.protocols.connect import connect
from loadsim.protocols.tls import ResumingContext, remember, tls_context
from loadsim.provisioning.sessions import services_of
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.sections import Client

LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)
ACCOUNT_PATTERN = {"user": "tls{index}", "password": "secret-{index}"}
ACCOUNTS = [Account(number, f"tls{number}", f"tls{number}@loadsim.test", f"secret-{number}") for number in (1, 2)]


@pytest.fixture(scope="module")
def localhost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for this machine, and a server's context with it."""
    return certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost,IP:127.0.0.1")


@pytest.fixture
def handshakes(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLObject]:
    """Every client's end of a TLS session, in the order of their handshakes."""
    made: list[ssl.SSLObject] = []
    wrap_bio = ResumingContext.wrap_bio

    def wrapped(self: ResumingContext, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        made.append(wrap_bio(self, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(ResumingContext, "wrap_bio", wrapped)
    return made


def on(loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main)


class _Greeted(asyncio.Protocol):
    def __init__(self) -> None:
        self.greeted = asyncio.get_running_loop().create_future()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.greeted.done():
            self.greeted.set_result(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("resumes", [True, False])
def test_users_resume_only_their_own_sessions(
    loop: Callable[[], asyncio.AbstractEventLoop],
    version: ssl.TLSVersion,
    resumes: bool,
    localhost: tuple[Path, ssl.SSLContext],
) -> None:
    """The second connection of user 1 is resumed, the first of user 2 is not; and none when it is switched off."""
    ca_file, context = localhost

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    async def main() -> None:
        context.minimum_version = context.maximum_version = version
        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint("127.0.0.1", port, "implicit", str(ca_file), resumes=resumes)
        own = tls_context(endpoint)
        resumed = []
        async with server:
            for user in (1, 1, 2, 1):
                protocol = _Greeted()
                await connect(protocol, endpoint, user, own, time.monotonic_ns)
                await protocol.greeted
                resumed.append(protocol.transport.get_extra_info("ssl_object").session_reused)
                remember(user, protocol.transport)
                protocol.transport.close()
                await protocol.closed
        assert resumed == [False, resumes, False, resumes]

    on(loop, main())


async def test_a_pickled_scenario_has_its_authorities(tmp_path: Path, localhost: tuple[Path, ssl.SSLContext]) -> None:
    """An engine elsewhere has no such file as `ca_file`: it trusts the file's contents only."""
    certified, context = localhost
    for name in ("imap.pem", "smtp.pem"):
        (tmp_path / name).write_text(f"# für alle\n{certified.read_text()}", encoding="utf-8")
    strange, _ = certificate(tmp_path, "DNS:localhost")
    endpoints = {
        service: {"host": "127.0.0.1", "tls": "implicit", "ca_file": f"{service}.pem"} for service in ("imap", "smtp")
    }
    scenario = load_scenario(str(written(tmp_path / "secured.yaml", server=endpoints, accounts=ACCOUNT_PATTERN)))
    services = services_of(scenario)
    for name in ("imap.pem", "smtp.pem"):
        (tmp_path / name).unlink()
    there = unpacked(packed(services))

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for endpoint in (there.imap, there.smtp):
            protocol = _Greeted()
            await connect(protocol, replace(endpoint, port=port), 1, tls_context(endpoint), time.monotonic_ns)
            await protocol.closed
        other = replace(there.imap, port=port, authorities=strange.read_text())
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(_Greeted(), other, 1, tls_context(other), time.monotonic_ns)


@pytest.mark.parametrize("driver", [imap, aioimaplib])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("tls", ["implicit", "starttls"])
def test_log_ons_resume_tls_sessions(
    driver: ModuleType,
    loop: Callable[[], asyncio.AbstractEventLoop],
    tls: str,
    localhost: tuple[Path, ssl.SSLContext],
    handshakes: list[ssl.SSLObject],
) -> None:
    """The second log-on of a user is resumed, another user's first is not."""
    ca_file, context = localhost

    async def script(peer: Peer) -> None:
        if tls == "starttls":
            peer.say(b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready")
            await peer.answer(rb"STARTTLS")
            await peer.writer.start_tls(context)
            await peer.answer(rb"CAPABILITY", b"* CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR")
            await peer.answer(rb"AUTHENTICATE PLAIN .*")
            await peer.answer(rb"CAPABILITY", b"* CAPABILITY IMAP4rev1")
        else:
            await peer.greet()
        await peer.end()

    async def main() -> None:
        immediate = context if tls == "implicit" else None
        async with playing(script, script, script, context=immediate, tls=tls) as endpoint:
            client = driver.open_driver(Services(replace(endpoint, ca_file=str(ca_file)), endpoint))
            for account in (ACCOUNTS[0], ACCOUNTS[0], ACCOUNTS[1]):
                mailbox = client.session(account, Ear()).mailbox
                await mailbox.log_on()
                mailbox.abandon()

    on(loop, main())
    assert [secured.session_reused for secured in handshakes] == [False, True, False]


@pytest.mark.system
@pytest.mark.parametrize("tls", ["implicit", "starttls"])
def test_submissions_to_postfix_resume_tls_sessions(
    tls: str, dovecot_postfix: StartDovecotPostfix, handshakes: list[ssl.SSLObject]
) -> None:
    """Each message has a connection of its own: the second of a user is resumed, another user's first is not."""
    server = dovecot_postfix(ACCOUNTS, {}, tls=tls)
    services = Client().using(server.services)

    async def main() -> None:
        module = imap.open_driver(services)
        for account in (ACCOUNTS[0], ACCOUNTS[1]):
            submission = module.session(account, Ear()).submission
            for _ in range(2):
                await submission.send(account.address, [ACCOUNTS[1].address], b"Subject: x\r\n\r\ny\r\n")
            await submission.close()

    for loop in LOOPS:
        del handshakes[:]
        on(loop, main())
        assert [secured.session_reused for secured in handshakes] == [False, True, False, True]
