"""SMTP submission in all ways: against aiosmtpd, against Postfix, and against servers that misbehave."""

import asyncio
import gc
import ssl
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_script import Peer, playing
from imap_script import certificate as new_certificate
from smtp_peers import (
    ACCOUNT,
    LIMIT_S,
    MESSAGE,
    PASSWORD,
    Accepting,
    Observed,
    aiosmtpd,
    authenticator,
    endpoint,
    small_heap,
)

from loadsim.errors import ServerLost, ServerRefused
from loadsim.model.mail_program import AIOSMTPLIB, SUBMISSIONS
from loadsim.model.ports import Endpoint
from loadsim.protocols.smtp.submission import SmtpSubmission
from loadsim.protocols.tls import tls_context

__all__ = ["small_heap"]

pytestmark = pytest.mark.usefixtures("small_heap")


@pytest.fixture(scope="module", params=SUBMISSIONS)
def way(request: pytest.FixtureRequest) -> str:
    """Each way to submit; all servers offer PIPELINING."""
    return str(request.param)


def submission_to(target: Endpoint, way: str, observer: Observed | None = None) -> SmtpSubmission:
    return SmtpSubmission(target, ACCOUNT, observer or Observed(), LIMIT_S, tls_context(target), way)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return new_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([b".", b"..", b"", b".a", b"a.", b"* OK", b"\xc3\xa9"]), max_size=20))
def test_any_lines_arrive_unchanged(way: str, lines: list[bytes]) -> None:
    """The server gets exactly the lines of a body, 8-bit ones included."""
    message = b"Subject: any\r\n\r\n" + b"".join(line + b"\r\n" for line in lines)

    async def scenario() -> None:
        handler = Accepting()
        async with aiosmtpd(handler) as (port, _):
            submission = submission_to(endpoint(port), way)
            await submission.send("user1@sim.test", ["user2@sim.test"], message)
            await submission.close()
        assert [content for _, _, content in handler.delivered] == [message]
        assert ("BODY=8BITMIME" in handler.options[0]) == (not message.isascii())
        assert f"SIZE={len(message)}" in handler.options[0]

    asyncio.run(scenario())


async def test_counted_bytes_are_those_sent(way: str) -> None:
    """The observer's byte counts are what a server really sent and received, without QUIT.

    The library does not return the reply to DATA.
    """
    taken = bytearray()
    replies = [
        b"220 hi\r\n", b"250-mail\r\n250 SIZE 9\r\n", b"250 OK\r\n", b"250 OK\r\n", b"354 go\r\n", b"250 in\r\n",
    ]  # fmt: skip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply, ending in zip(replies, [b"\n"] * 4 + [b"\r\n.\r\n"] + [b"\n"], strict=True):
            writer.write(reply)
            taken.extend(await reader.readuntil(ending))
        writer.write(b"221 bye\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    observer = Observed()
    async with server:
        submission = submission_to(endpoint(server.sockets[0].getsockname()[1]), way, observer)
        await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        await submission.close()
    assert sum(sent for _, _, sent, _ in observer.commands) == len(taken) - len(b"QUIT\r\n")
    seen = [reply for reply in replies if way != AIOSMTPLIB or not reply.startswith(b"354")]
    assert sum(received for *_, received in observer.commands) == sum(map(len, seen))


def test_per_message_connections_are_closed_and_kept_ones_reused(way: str) -> None:
    """Three messages take three connections, or one; after `close` the server has none open."""

    async def scenario(connection: str, expected: int) -> None:
        handler = Accepting()
        async with aiosmtpd(handler) as (port, connections):
            submission = submission_to(endpoint(port, connection), way)
            for _ in range(3):
                await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
            await submission.close()
            assert not connections
        assert handler.connections == expected
        assert len(handler.delivered) == 3

    asyncio.run(scenario("per-message", 3))
    asyncio.run(scenario("kept", 1))


async def test_a_cancelled_send_leaves_no_connection(way: str) -> None:
    """The engine's time limit for a task cancels `send`: the connection goes with it."""
    handler = Accepting()
    stuck = asyncio.Event()

    async def hang(*_: object) -> str:
        stuck.set()
        await asyncio.Event().wait()
        return "250 never"

    handler.handle_DATA = hang  # type: ignore[method-assign, assignment]
    async with aiosmtpd(handler) as (port, _):
        submission = submission_to(endpoint(port, "kept"), way)
        sending = asyncio.create_task(submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE))
        await stuck.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        async with asyncio.timeout(LIMIT_S):
            await handler.gone.wait()


async def test_a_kept_connection_closed_by_the_server_is_replaced(way: str) -> None:
    """Between two messages the server may close without a word: the second goes over a new connection."""
    handler = Accepting()
    async with aiosmtpd(handler) as (port, connections):
        submission = submission_to(endpoint(port, "kept"), way)
        await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        for transport in connections:
            transport.close()
        await submission.send("user1@sim.test", ["user3@sim.test"], MESSAGE)
        await submission.close()
    assert handler.connections == 2
    assert [to for _, to, _ in handler.delivered] == [["user2@sim.test"], ["user3@sim.test"]]


async def test_a_kept_connection_ended_by_421_is_replaced_once(way: str) -> None:
    handler, observer = Accepting(), Observed()
    async with aiosmtpd(handler) as (port, _):
        submission = submission_to(endpoint(port, "kept"), way, observer)
        await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        handler.refuse["user1@sim.test"] = "421 4.7.0 too many messages on this connection"
        with pytest.raises(ServerRefused) as refusal:
            await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        assert refusal.value.kind == "421 MAIL"
        await submission.close()
    assert handler.connections == 2
    assert observer.names.count("CONNECT") == 2


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("excluded", [[], ["PLAIN"]])
async def test_users_authenticate_where_auth_is_offered(way: str, excluded: list[str]) -> None:
    """A server that requires AUTH (PLAIN, or LOGIN when it has no other) takes the message."""
    handler, observer = Accepting(), Observed()
    options = {"authenticator": authenticator, "auth_required": True, "auth_require_tls": False}
    async with aiosmtpd(handler, auth_exclude_mechanism=excluded, **options) as (port, _):
        submission = submission_to(endpoint(port), way, observer)
        await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        await submission.close()
    assert len(handler.delivered) == 1
    assert observer.names == ["CONNECT", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "QUIT"]


async def test_without_auth_in_the_endpoint_users_do_not_authenticate(way: str) -> None:
    """`auth: false` sends without authentication although it is offered."""
    handler, observer = Accepting(), Observed()
    async with aiosmtpd(handler, authenticator=authenticator, auth_require_tls=False) as (port, _):
        target = Endpoint("127.0.0.1", port, auth=False)
        submission = submission_to(target, way, observer)
        await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        await submission.close()
    assert "AUTH" not in observer.names


async def test_a_password_that_the_server_echoes_is_masked(way: str) -> None:
    """No refusal shows the password or its Base64 forms, with any words of the server."""
    plain, password = b64encode(f"\0user1\0{PASSWORD}".encode()), PASSWORD.encode()

    async def script(peer: Peer) -> None:
        peer.say(b"220 hi")
        await peer.packet()
        peer.say(b"250-mail", b"250 AUTH PLAIN")
        await peer.packet()
        peer.say(b"535-bad password " + password, b"535 in AUTH PLAIN " + plain + b" " + b64encode(password))
        await peer.packet()
        peer.say(b"221 bye")

    async with playing(script) as target:
        submission = submission_to(target, way)
        with pytest.raises(ServerRefused) as refusal:
            await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        await submission.close()
    assert refusal.value.kind == "535 AUTH"
    assert str(refusal.value) == "535 AUTH: 535 bad password *** in AUTH PLAIN *** ***"


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_mail_is_sent_over_tls(way: str, certificate: tuple[Path, ssl.SSLContext], tls: str) -> None:
    handler, observer = Accepting(), Observed()
    ca_file, context = certificate
    options: dict[str, object] = {"authenticator": authenticator, "auth_required": True}
    if tls == "starttls":
        options |= {"tls_context": context, "require_starttls": True}
    else:
        options |= {"auth_require_tls": False}
    async with aiosmtpd(handler, context if tls == "implicit" else None, **options) as (port, _):
        target = endpoint(port, tls=tls, ca_file=str(ca_file))
        submission = submission_to(target, way, observer)
        await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        await submission.close()
    assert [content for _, _, content in handler.delivered] == [MESSAGE]
    secured = ["STARTTLS", "EHLO"] if tls == "starttls" else []
    assert observer.names == ["CONNECT", "EHLO", *secured, "AUTH", "MAIL", "RCPT", "DATA", "QUIT"]
    gc.collect()


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_an_untrusted_certificate_is_refused(
    way: str, certificate: tuple[Path, ssl.SSLContext], tls: str
) -> None:
    """Without its authority the server's certificate is refused, and nothing is sent."""
    handler = Accepting()
    _, context = certificate
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # aiosmtpd complains of the alert
    implicit = context if tls == "implicit" else None
    starttls = {} if implicit else {"tls_context": context}
    async with aiosmtpd(handler, implicit, **starttls) as (port, _):
        submission = submission_to(endpoint(port, tls=tls), way)
        with pytest.raises(ServerLost, match="TLS certificate: self-signed certificate"):
            await submission.send("user1@sim.test", ["user2@sim.test"], MESSAGE)
        await submission.close()
    assert not handler.delivered
