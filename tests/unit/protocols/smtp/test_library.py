"""Submission through aiosmtplib, beyond what all ways of submission do."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from smtp_peers import ACCOUNT, LIMIT_S, MESSAGE, Accepting, Observed, aiosmtpd, endpoint

from loadsim.errors import ServerRefused
from loadsim.model.mail_program import AIOSMTPLIB, SEQUENTIAL
from loadsim.protocols.smtp.submission import SmtpSubmission

SENDER, RECIPIENTS = "user1@sim.test", ["user2@sim.test", "user3@sim.test"]

LONG_ID = b"<" + b"0123456789abcdef" * 12 + b"@sim.test>"
"""In a message that the library formats itself, it would be encoded."""

MESSAGES = {
    "dots": MESSAGE,
    "long id": b"In-Reply-To: " + LONG_ID + b"\r\nReferences: " + LONG_ID + b"\r\n\r\nhello\r\n",
    "8 bits": b"Subject: x\r\n\r\n\xc3\xa9\xff\r\n",
    "no last line end": b"Subject: x\r\n\r\n.",
    "bare line ends": b"Subject: x\r\n\r\na\rb\nc\r\n",
    "long": b"Subject: x\r\n\r\n" + (b"." * 70 + b"\r\n") * 1500,
}

REPLIES = {
    b"EHLO": b"250-mail\r\n250-SIZE 1000000\r\n250-8BITMIME\r\n250-PIPELINING\r\n250 AUTH PLAIN\r\n",
    b"AUTH": b"235 in\r\n",
    b"DATA": b"354 go\r\n",
    b"QUIT": b"221 bye\r\n",
}


async def received(
    way: str, connection: str, message: bytes, envelope_id: str | None = None, offers: bytes = b""
) -> tuple[list[bytes], list[bool]]:
    """Return what a server receives on each connection: two messages to two recipients; and the answers of `send`."""
    connections: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken, text, word = b"", False, b""
        writer.write(b"220 hi\r\n")
        while word != b"QUIT":
            line = await reader.readuntil(b"\r\n.\r\n" if text else b"\n")
            taken, word = taken + line, b"" if text else line.split()[0]
            text = word == b"DATA"
            writer.write(REPLIES.get(word, b"250 ok\r\n").replace(b"250-mail\r\n", b"250-mail\r\n" + offers))
        connections.append(taken)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    async with server:
        target = endpoint(server.sockets[0].getsockname()[1], connection)
        submission = SmtpSubmission(target, ACCOUNT, Observed(), LIMIT_S, None, way)
        requested = [await submission.send(SENDER, RECIPIENTS, message, envelope_id) for _ in range(2)]
        await submission.close()
    return connections, requested


@pytest.mark.parametrize("connection", ["per-message", "kept"])
@pytest.mark.parametrize("message", MESSAGES.values(), ids=list(MESSAGES))
async def test_the_server_receives_the_same_bytes_from_both_clients(connection: str, message: bytes) -> None:
    """From EHLO to QUIT, with the log-on: the library adds, folds and encodes nothing."""
    own, library = [await received(way, connection, message) for way in (SEQUENTIAL, AIOSMTPLIB)]
    assert own == library
    assert len(own[0]) == (1 if connection == "kept" else 2)


@pytest.mark.parametrize("offers", [b"250-DSN\r\n", b"250-DSNX\r\n"], ids=["offered", "not offered"])
async def test_both_clients_request_a_delivery_receipt_only_if_it_is_offered(offers: bytes) -> None:
    """The server receives the same bytes; the caller learns whether a receipt was requested."""
    ways = (SEQUENTIAL, AIOSMTPLIB)
    own, library = [await received(way, "kept", MESSAGE, "n1.0.run-1", offers) for way in ways]
    offered = offers == b"250-DSN\r\n"
    assert own == library
    ((taken,), requested) = own
    assert requested == [offered] * 2
    assert (taken.count(b" RET=HDRS ENVID=n1.0.run-1"), taken.count(b" NOTIFY=")) == ((2, 4) if offered else (0, 0))


@pytest.mark.parametrize("connection", ["per-message", "kept"])
async def test_a_refused_recipient_ends_the_transaction(connection: str) -> None:
    """The library's `sendmail` would send to the rest; here, no recipient gets the message, and the next is sent."""
    handler, observer = Accepting({"user3@sim.test": "550 5.1.1 unknown"}), Observed()
    async with aiosmtpd(handler) as (port, _):
        submission = SmtpSubmission(endpoint(port, connection), ACCOUNT, observer, LIMIT_S, None, AIOSMTPLIB)
        with pytest.raises(ServerRefused) as refusal:
            await submission.send(SENDER, RECIPIENTS, MESSAGE)
        assert str(refusal.value) == "550 RCPT: 550 5.1.1 unknown"
        await submission.send(SENDER, RECIPIENTS[:1], MESSAGE)
        await submission.close()
    assert [to for _, to, _ in handler.delivered] == [RECIPIENTS[:1]]
    assert (handler.connections, handler.resets) == ((1, 1) if connection == "kept" else (2, 0))


async def test_connections_that_the_server_ended_are_forgotten() -> None:
    """By a close between two messages, or by 421: otherwise, each would stay in memory until the user leaves."""
    handler = Accepting()
    async with aiosmtpd(handler) as (port, connections):
        submission = SmtpSubmission(endpoint(port, "kept"), ACCOUNT, Observed(), LIMIT_S, None, AIOSMTPLIB)
        for _ in range(3):
            await submission.send(SENDER, RECIPIENTS, MESSAGE)
            for transport in connections:
                transport.close()
        handler.refuse[SENDER] = "421 4.7.0 too many messages"
        with pytest.raises(ServerRefused, match="421 MAIL"):
            await submission.send(SENDER, RECIPIENTS, MESSAGE)
        handler.refuse.clear()
        await submission.send(SENDER, RECIPIENTS, MESSAGE)
        assert len(submission._open) == 1
        await submission.close()
        assert not submission._open
    assert (handler.connections, len(handler.delivered)) == (5, 4)


async def test_a_message_that_the_server_repeats_is_masked() -> None:
    handler, secret = Accepting(), "words of a message"

    async def refuse(*_: object) -> str:
        return f"554-no spam:\r\n554 {secret}"

    handler.handle_DATA = refuse  # type: ignore[method-assign, assignment]
    async with aiosmtpd(handler) as (port, _):
        submission = SmtpSubmission(endpoint(port), ACCOUNT, Observed(), LIMIT_S, None, AIOSMTPLIB)
        with pytest.raises(ServerRefused) as refusal:
            await submission.send(SENDER, RECIPIENTS, b"Subject: x\r\n\r\n" + secret.encode() + b"\r\n")
        await submission.close()
    assert str(refusal.value) == "554 DATA: 554 no spam: ***"


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_replies_are_acknowledged_at_once(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """`TCP_QUICKACK` is 0 in a dialogue, in which Linux delays acknowledgements; the library writes DATA's message."""
    states = []

    class Looking(Observed):
        def command(self, name: str, *figures: Any) -> None:
            super().command(name, *figures)
            if name in ("SMTP EHLO", "SMTP MAIL", "SMTP RCPT"):
                sock = submissions[0]._open[0]._sock  # type: ignore[attr-defined]
                states.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    submissions: list[SmtpSubmission] = []

    async def main() -> None:
        async with aiosmtpd(Accepting()) as (port, _):
            submissions.append(SmtpSubmission(endpoint(port, "kept"), ACCOUNT, Looking(), LIMIT_S, None, AIOSMTPLIB))
            for _ in range(2):
                await submissions[0].send(SENDER, RECIPIENTS, MESSAGE)
            await submissions[0].close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert states == [1] * 7
