"""Pipelined submission: packets, refusals in the midst of them, ends of connections, STARTTLS."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from imap_script import PATIENCE_S, Peer, playing, skip
from skipping import turns
from smtp_peers import ACCOUNT, LIMIT_S, MESSAGE, Observed, small_heap

from loadsim.errors import ServerLost, ServerRefused, ServerSilent
from loadsim.model.ports import Endpoint
from loadsim.protocols.smtp.submission import SmtpSubmission
from loadsim.protocols.tls import tls_context

__all__ = ["small_heap"]

pytestmark = pytest.mark.usefixtures("small_heap")

SENDER, FIRST, SECOND = "user1@sim.test", "user2@sim.test", "user3@sim.test"
STUFFED = MESSAGE.replace(b"\r\n.", b"\r\n..")
ENVELOPE = b"MAIL FROM:<user1@sim.test> SIZE=%d\r\nRCPT TO:<user2@sim.test>\r\n" % len(MESSAGE)
ONE_PACKET = ENVELOPE + b"DATA\r\n"
FOR_TWO = ENVELOPE + b"RCPT TO:<user3@sim.test>\r\nDATA\r\n"
OFFERED = (b"250-mail.sim.test", b"250-PIPELINING", b"250 SIZE 1000000")


def run(loop: str, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on one of the loops; what it leaves open is told here."""
    factory = None if loop == "asyncio" else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())
    gc.collect()


def submission(target: Endpoint, observer: Observed | None = None, limit_s: float = LIMIT_S) -> SmtpSubmission:
    return SmtpSubmission(target, ACCOUNT, observer or Observed(), limit_s, tls_context(target), "pipelining")


async def expect(peer: Peer, packet: bytes) -> None:
    assert await peer.packet() == packet


async def hello(peer: Peer, *offered: bytes) -> None:
    peer.say(b"220 mail.sim.test ESMTP")
    await expect(peer, b"EHLO [127.0.0.1]\r\n")
    peer.say(*(offered or OFFERED))


async def message(peer: Peer, then: bytes = b"") -> None:
    """A whole message to one recipient, all accepted, and what is sent after the acceptance."""
    await expect(peer, ONE_PACKET)
    peer.say(b"250 sender", b"250 recipient", b"354 go on")
    await expect(peer, STUFFED + b".\r\n")
    peer.say(b"250 queued")
    if then:
        await expect(peer, then)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_message_takes_two_packets(loop: str) -> None:
    """Sender, recipients and DATA in one, the body in the other; QUIT waits for the acceptance."""
    observer = Observed()

    async def script(peer: Peer) -> None:
        await hello(peer)
        await expect(peer, FOR_TWO)
        peer.say(b"250 sender", b"250 first", b"250 second", b"354 go on")
        await expect(peer, STUFFED + b".\r\n")
        peer.say(b"250 queued")
        await expect(peer, b"QUIT\r\n")
        peer.say(b"221 bye")

    async def scenario() -> None:
        async with playing(script) as endpoint:
            driver = submission(endpoint, observer)
            await driver.send(SENDER, [FIRST, SECOND], MESSAGE)
            await driver.close()

    run(loop, scenario)
    assert [each[:2] for each in observer.commands] == [
        ("SMTP CONNECT", "ok"),
        ("SMTP EHLO", "ok"),
        ("SMTP MAIL", "ok"),
        ("SMTP RCPT", "ok"),
        ("SMTP RCPT", "ok"),
        ("SMTP DATA", "ok"),
        ("SMTP QUIT", "ok"),  # as `close` waits for it
    ]
    assert sum(sent for _, _, sent, _ in observer.commands) == len(
        b"EHLO [127.0.0.1]\r\n" + FOR_TWO + STUFFED + b".\r\n"
    )


async def test_without_the_extension_each_command_waits_for_its_answer() -> None:
    """A server that does not offer PIPELINING gets one command at a time."""
    commands = ENVELOPE.splitlines(keepends=True)

    async def script(peer: Peer) -> None:
        await hello(peer, b"250-mail.sim.test", b"250 SIZE 1000000")
        for command, reply in ((commands[0], b"250 sender"), (commands[1], b"250 recipient"), (b"DATA\r\n", b"354 go")):
            await expect(peer, command)
            peer.say(reply)
        await expect(peer, STUFFED + b".\r\n")
        peer.say(b"250 queued")
        await expect(peer, b"QUIT\r\n")

    async with playing(script) as endpoint:
        driver = submission(endpoint)
        await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()


async def test_the_times_of_a_packet_count_from_its_write() -> None:
    """MAIL, RCPT and DATA began at the same instant, after EHLO was answered."""
    begun: dict[str, int] = {}

    class Timed(Observed):
        def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
            super().command(name, since, outcome, sent_bytes, received_bytes)
            begun[name] = since

    async def script(peer: Peer) -> None:
        await hello(peer)
        await message(peer, b"QUIT\r\n")

    async with playing(script) as endpoint:
        driver = submission(endpoint, Timed())
        await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()
    assert begun["SMTP CONNECT"] < begun["SMTP EHLO"] < begun["SMTP MAIL"]
    assert begun["SMTP MAIL"] == begun["SMTP RCPT"] == begun["SMTP DATA"]


@pytest.mark.parametrize("connection", ["per-message", "kept"])
@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ((b"250 sender", b"250 first", b"550 unknown", b"354 go on"), "550 RCPT"),
        ((b"250 sender", b"550 unknown", b"250 second", b"354 go on"), "550 RCPT"),
        ((b"250 sender", b"550 unknown", b"451 later", b"354 go on"), "550 RCPT"),
        ((b"451 later", b"503 no", b"503 no", b"354 go on"), "451 MAIL"),
    ],
)
async def test_no_message_is_sent_after_refused_recipients(
    replies: tuple[bytes, ...], kind: str, connection: str
) -> None:
    """Not even an empty one (RFC 2920 section 3.1 would deliver it to the accepted): the connection ends instead."""
    left: list[bytes] = []

    async def script(peer: Peer) -> None:
        await hello(peer)
        await expect(peer, FOR_TWO)
        peer.say(*replies)
        left.append(await peer.reader.read())

    async def next_one(peer: Peer) -> None:
        await hello(peer)
        await message(peer, b"QUIT\r\n" if connection == "per-message" else b"")
        if connection == "kept":
            await expect(peer, b"QUIT\r\n")

    observer = Observed()
    async with playing(script, next_one) as endpoint:
        driver = submission(replace(endpoint, connection=connection), observer)
        with pytest.raises(ServerRefused) as refusal:
            await driver.send(SENDER, [FIRST, SECOND], MESSAGE)
        assert refusal.value.kind == kind
        assert observer.commands[-1][:2] == ("SMTP DATA", "refused")
        await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()
    assert left == [b""]


@pytest.mark.parametrize("connection", ["per-message", "kept"])
@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ((b"451 later", b"503 no", b"503 no", b"503 no"), "451 MAIL"),
        ((b"250 sender", b"550 unknown", b"450 busy", b"554 no recipients"), "550 RCPT"),
        ((b"250 sender", b"250 first", b"250 second", b"452 no room"), "452 DATA"),
    ],
)
async def test_a_transaction_that_was_refused_is_reset_or_left(
    replies: tuple[bytes, ...], kind: str, connection: str
) -> None:
    """The first refusal is told when all answers are there; a kept connection serves on after RSET."""

    async def script(peer: Peer) -> None:
        await hello(peer)
        await expect(peer, FOR_TWO)
        for reply in replies:
            peer.say(reply)
        if connection == "per-message":
            await expect(peer, b"QUIT\r\n")
        else:
            await expect(peer, b"RSET\r\n")
            peer.say(b"250 flushed")
            await message(peer)
            await expect(peer, b"QUIT\r\n")

    async with playing(script) as endpoint:
        driver = submission(replace(endpoint, connection=connection))
        with pytest.raises(ServerRefused) as refusal:
            await driver.send(SENDER, [FIRST, SECOND], MESSAGE)
        assert refusal.value.kind == kind
        if connection == "kept":
            await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()


async def test_a_refused_log_on_is_not_kept() -> None:
    """After a refused AUTH the connection is left; the next message meets a new one."""

    async def script(peer: Peer) -> None:
        await hello(peer, b"250-mail.sim.test", b"250-PIPELINING", b"250 AUTH PLAIN")
        await peer.packet()
        peer.say(b"535 5.7.8 wrong")
        await expect(peer, b"QUIT\r\n")

    async with playing(script, script) as endpoint:
        driver = submission(replace(endpoint, connection="kept"))
        for _ in range(2):
            with pytest.raises(ServerRefused, match="535 AUTH"):
                await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()


@pytest.mark.parametrize("answered", range(4))
async def test_commands_under_way_fail_with_the_connection(answered: int) -> None:
    """After any number of answers to a packet: the loss is told at once, and each command still out is counted lost."""
    replies = (b"250 sender", b"250 recipient", b"354 go on")
    observer = Observed()

    async def script(peer: Peer) -> None:
        await hello(peer)
        await expect(peer, ONE_PACKET)
        peer.say(*replies[:answered])
        if answered == len(replies):
            await peer.packet()

    async with playing(script) as endpoint, asyncio.timeout(PATIENCE_S):
        driver = submission(endpoint, observer, 3600.0)
        with pytest.raises(ServerLost, match=f"lost at {('MAIL', 'RCPT', 'DATA', 'DATA')[answered]}"):
            await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()
    done = min(answered, 2)
    assert [outcome for _, outcome, _, _ in observer.commands[2:]] == ["ok"] * done + ["lost"] * (3 - done)


async def test_each_answer_has_the_full_time_limit() -> None:
    """A packet's answers may take longer than one command may, if each of them keeps within its own time."""

    async def script(peer: Peer) -> None:
        await hello(peer)
        await expect(peer, ONE_PACKET)
        for reply in (b"250 sender", b"250 recipient", b"354 go on"):
            await turns()
            skip(0.6 * LIMIT_S)
            peer.say(reply)
        await expect(peer, STUFFED + b".\r\n")
        await turns()
        skip(LIMIT_S)
        await peer.end()

    observer = Observed()
    async with playing(script) as endpoint:
        driver = submission(endpoint, observer)
        with pytest.raises(ServerSilent, match="no answer to DATA"):
            await driver.send(SENDER, [FIRST], MESSAGE)
        await driver.close()
    assert [each[:2] for each in observer.commands[2:]] == [
        ("SMTP MAIL", "ok"),
        ("SMTP RCPT", "ok"),
        ("SMTP DATA", "timeout"),
    ]
