"""LMTP (RFC 2033): a reply for each accepted recipient, from servers that keep to it and servers that do not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from imap_script import Peer, playing, skip
from skipping import turns
from smtp_peers import ACCOUNT, LIMIT_S, MESSAGE, Observed, small_heap

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.mail_program import AIOSMTPLIB, SUBMISSIONS
from loadsim.model.ports import Endpoint
from loadsim.protocols.smtp.submission import SmtpSubmission

__all__ = ["small_heap"]

pytestmark = pytest.mark.usefixtures("small_heap")

SENDER = "sender1@outside.test"
TO = ["user1@sim.test", "user2@sim.test", "user3@sim.test"]
STUFFED = MESSAGE.replace(b"\r\n.", b"\r\n..") + b".\r\n"
PACKET = (
    b"MAIL FROM:<sender1@outside.test>\r\n" + b"".join(b"RCPT TO:<%b>\r\n" % to.encode() for to in TO) + b"DATA\r\n"
)
ACCEPTED = (b"250 sender", b"250 first", b"250 second", b"250 third", b"354 go on")


def submission(
    at: Endpoint, observer: Observed | None = None, way: str = SUBMISSIONS[0], **changes: str
) -> SmtpSubmission:
    endpoint = replace(at, lmtp=True, auth=False, **changes)  # type: ignore[arg-type]
    return SmtpSubmission(endpoint, ACCOUNT, observer or Observed(), LIMIT_S, None, way)


async def named(peer: Peer, *replies: bytes) -> None:
    """A new connection, and the replies to a message's commands, which arrive together."""
    peer.say(b"220 mail.sim.test LMTP")
    assert await peer.packet() == b"LHLO [127.0.0.1]\r\n"
    peer.say(b"250-mail.sim.test", b"250 PIPELINING")
    assert await peer.packet() == PACKET
    peer.say(*replies)


async def failure_after(
    *final: bytes, named_by: Sequence[bytes] = ACCEPTED, ends: bool = False, observer: Observed | None = None
) -> TaskFailed | None:
    """The failure of a message to three recipients, to whose end a server sends these replies."""

    async def script(peer: Peer) -> None:
        await named(peer, *named_by)
        assert await peer.packet() == STUFFED
        peer.say(*final)
        if not ends:
            await peer.packet()

    async with playing(script) as endpoint:
        driver = submission(endpoint, observer)
        try:
            await driver.send(SENDER, TO, MESSAGE)
        except TaskFailed as failure:
            return failure
        finally:
            await driver.close()
    return None


@pytest.mark.parametrize("way", SUBMISSIONS)
async def test_a_message_is_accepted_with_the_last_recipients_reply(way: str) -> None:
    """The submission of the scenario plays no part: aiosmtplib has no LMTP, and RFC 2033 demands PIPELINING."""
    assert AIOSMTPLIB in SUBMISSIONS
    observer = Observed()
    before_the_last: list[int] = []

    async def script(peer: Peer) -> None:
        await named(peer, *ACCEPTED)
        assert await peer.packet() == STUFFED
        peer.say(b"250 first", b"250-second", b"250 second")
        await turns(20)
        before_the_last.append(len(observer.commands))
        peer.say(b"250 third")
        assert await peer.packet() == b"QUIT\r\n"

    async with playing(script) as endpoint:
        driver = submission(endpoint, observer, way)
        await driver.send(SENDER, TO, MESSAGE)
        await driver.close()
    names = ["CONNECT", "LHLO", "MAIL", "RCPT", "RCPT", "RCPT", "DATA", "QUIT"]
    assert [name for name, *_ in observer.commands] == [f"LMTP {name}" for name in names]
    assert {outcome for _, outcome, *_ in observer.commands} == {"ok"}
    assert before_the_last == [6]


@pytest.mark.parametrize(
    ("at_rcpt", "final", "kind", "accepted"),
    [
        (b"550 unknown", (b"250 first", b"250 third"), "550 RCPT", [TO[0], TO[2]]),
        (b"550 unknown", (b"250 first", b"452 full"), "550 RCPT", [TO[0]]),
        (b"250 second", (b"250 first", b"452 full", b"250 third"), "452 DATA", [TO[0], TO[2]]),
        (b"250 second", (b"452 full", b"550 no", b"250 third"), "452 DATA", [TO[2]]),
        (b"250 second", (b"552 full", b"552 full", b"552 full"), "552 DATA", []),
    ],
)
async def test_each_recipients_outcome_is_known(
    at_rcpt: bytes, final: tuple[bytes, ...], kind: str, accepted: list[str]
) -> None:
    """Of three recipients, one is refused at RCPT: two replies follow the message.

    DATA succeeds if anyone gets the message, so it counts among the accepted ones.
    """
    observer = Observed()
    failure = await failure_after(*final, named_by=(*ACCEPTED[:2], at_rcpt, *ACCEPTED[3:]), observer=observer)
    (of_data,) = [outcome for name, outcome, *_ in observer.commands if name == "LMTP DATA"]
    assert of_data == ("ok" if accepted else "refused")
    assert isinstance(failure, ServerRefused)
    assert (failure.kind, [*failure.accepted]) == (kind, accepted)


@pytest.mark.parametrize("at_data", [b"503 no valid recipients", b"354 go on"])
async def test_a_message_without_an_accepted_recipient_is_not_sent(at_data: bytes) -> None:
    left: list[bytes] = []

    async def script(peer: Peer) -> None:
        await named(peer, b"250 sender", *[b"550 unknown"] * 3, at_data)
        left.append(await peer.packet())

    async with playing(script) as endpoint:
        driver = submission(endpoint)
        with pytest.raises(ServerRefused) as refusal:
            await driver.send(SENDER, TO, MESSAGE)
        await driver.close()
    assert (refusal.value.kind, refusal.value.accepted) == ("550 RCPT", {})
    assert left == [b"QUIT\r\n" if at_data.startswith(b"503") else b""]


@pytest.mark.parametrize(
    ("final", "accepted"),
    [
        ((b"250 first", b"221 bye"), 1),
        ((b"250 first", b"250 second", b"354 go on"), 2),
        ((b"250 first", b"250-second", b"452 second"), 1),
        ((b"250 first", b"LHLO"), 1),
        ((b"354 go on",), 0),
    ],
)
async def test_replies_that_are_none_end_the_connection(final: tuple[bytes, ...], accepted: int) -> None:
    """Those before them hold."""
    failure = await failure_after(*final)
    assert isinstance(failure, ProtocolError)
    assert [*failure.accepted] == TO[:accepted]


async def test_a_server_may_close_between_two_replies() -> None:
    failure = await failure_after(b"250 first", b"452 full", ends=True)
    assert isinstance(failure, ServerLost)
    assert [*failure.accepted] == [TO[0]]
    closing = await failure_after(b"250 first", b"421 closing", ends=True)
    assert isinstance(closing, ServerRefused)
    assert [*closing.accepted] == [TO[0]]


async def test_a_server_that_answers_for_too_few_is_silent() -> None:
    """Its replies keep their instants."""
    observer = Observed()
    waits_since: list[int] = []

    async def script(peer: Peer) -> None:
        await named(peer, *ACCEPTED)
        assert await peer.packet() == STUFFED
        peer.say(b"250 first", b"250 second")
        await turns(20)
        waits_since.append(observer.now())
        skip(LIMIT_S + 1)
        await peer.packet()

    async with playing(script) as endpoint:
        driver = submission(endpoint, observer)
        with pytest.raises(ServerSilent) as silence:
            await driver.send(SENDER, TO, MESSAGE)
        await driver.close()
    assert [*silence.value.accepted] == TO[:2]
    assert 0 < max(silence.value.accepted.values()) <= waits_since[0]


async def test_a_surplus_reply_is_not_the_next_messages() -> None:
    """The message is accepted; the next one goes over another connection, though this one would be kept."""

    async def script(peer: Peer) -> None:
        await named(peer, *ACCEPTED)
        assert await peer.packet() == STUFFED
        peer.say(b"250 first", b"250 second", b"250 third", b"250 fourth")
        await peer.packet()

    async def next_one(peer: Peer) -> None:
        await named(peer, *ACCEPTED)
        assert await peer.packet() == STUFFED
        peer.say(b"250 first", b"250 second", b"452 full")
        assert await peer.packet() == b"RSET\r\n"
        peer.say(b"250 reset")
        assert await peer.packet() == b"QUIT\r\n"

    async with playing(script, next_one) as endpoint:
        driver = submission(endpoint, connection="kept")
        await driver.send(SENDER, TO, MESSAGE)
        with pytest.raises(ServerRefused) as refusal:
            await driver.send(SENDER, TO, MESSAGE)
        await driver.close()
    assert [*refusal.value.accepted] == TO[:2]
