"""Long answers and large literals: the loop's other work gets its turns with any of them. Nothing is timed."""

import asyncio
from collections import Counter

import pytest
from imap_dialogue import cut
from imap_script import ACCOUNT, PATIENCE_S, Client, Ear, Peer, certificate, playing

from loadsim.errors import ProtocolError, ServerLost
from loadsim.model.ports import INBOX
from loadsim.protocols.imap.connection import RESPONSES_A_TURN, Connection
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.responses import Exists, Fetched, Response
from loadsim.protocols.imap.session import ImapSession

MANY = 3000


class Turns:
    def __init__(self) -> None:
        self.taken = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.taken += 1
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


class Listener(Client):
    """Also notes the loop iteration of each response."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.heard_in: Counter[int] = Counter()

    def hear(self, response: Response) -> None:
        self.heard_in[self.turns.taken] += 1
        super().hear(response)


async def greeting(peer: Peer) -> None:
    peer.say(b"* OK ready")


async def many(peer: Peer) -> None:
    """A greeting, and thousands of responses to one command in one write."""
    peer.say(b"* OK ready")
    await peer.answer(rb"NOOP", *(b"* %d EXISTS" % number for number in range(1, MANY + 1)))
    await peer.end()


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
async def test_many_responses_are_processed_over_many_loop_iterations(secured: bool, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """In their order, and no more than a few in one turn of the loop; afterwards the connection reads on."""
    ca_file, context = certificate(tmp_path, "IP:127.0.0.1") if secured else (None, None)

    async with playing(many, context=context, tls="implicit" if secured else "none") as endpoint:
        client = Listener()
        where = endpoint if ca_file is None else type(endpoint)(endpoint.host, endpoint.port, "implicit", str(ca_file))
        connection = await client.connect(where)
        await connection.send("NOOP")
        client.turns.stop()
        assert client.received == [Exists(number) for number in range(1, MANY + 1)]
        assert max(client.heard_in.values()) <= RESPONSES_A_TURN
        await asyncio.sleep(0)
        assert connection._transport is not None
        assert connection._transport.is_reading()
        connection.abort()


async def test_responses_before_the_end_are_processed_before_it() -> None:
    """The server goes with responses still waiting for their turn: they and the answer count."""
    async with playing(greeting) as endpoint:
        client = Client()
        connection = await client.connect(endpoint)
        answer = connection.send("UID FETCH")
        lines = b"".join(b"* %d FETCH ()\r\n" % number for number in range(1, MANY + 1))
        connection.data_received(lines + b"t1 OK done\r\n")
        assert len(client.received) < MANY
        connection.connection_lost(None)
        assert (await answer).data == client.received
        assert [each.number for each in client.received if isinstance(each, Fetched)] == list(range(1, MANY + 1))
        assert isinstance(connection.failure, ServerLost)
        connection.abort()


async def test_data_received_during_a_pause_keeps_its_order() -> None:
    """A transport may have more at hand when it is told to pause; a response may even be cut there."""
    async with playing(greeting) as endpoint:
        client = Client()
        connection = await client.connect(endpoint)
        answer = connection.send("UID FETCH")
        stream = b"".join(b"* %d FETCH ()\r\n" % number for number in range(1, MANY + 1)) + b"t1 OK done\r\n"
        for piece in cut(stream, [9000, 20_005, 20_006, 30_000]):
            connection.data_received(piece)
        assert (await answer).data == client.received
        assert [each.number for each in client.received if isinstance(each, Fetched)] == list(range(1, MANY + 1))
        connection.abort()


async def test_a_protocol_error_among_many_responses_ends_the_connection() -> None:
    """Also in a later turn it is this connection's end, and told."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        await peer.answer(rb"NOOP", *[b"* 1 EXISTS"] * 1000, b"* 1 FETCH (", *[b"* 2 EXISTS"] * 1000)
        await peer.end()

    async with playing(script) as endpoint:
        client = Client()
        connection = await client.connect(endpoint)
        with pytest.raises(ProtocolError):
            await connection.send("NOOP")
        assert client.received == [Exists(1)] * 1000
        assert len(client.broken) == 1


def test_starttls_after_many_responses_leaves_the_socket_to_the_handshake() -> None:
    """Where a turn ends exactly with the agreement, what was put behind it is still seen before anybody goes on."""

    async def script(peer: Peer) -> None:
        peer.say(b"* OK ready")
        await peer.end()

    async def run(behind: bytes) -> Connection:
        async with playing(script) as endpoint:
            client = Client()
            connection = await client.connect(endpoint)
            agreed = connection.send("STARTTLS", then=connection._leave_socket)
            lines = b"* OK [ALERT] %b\r\n" % (b"x" * 100)
            connection.data_received(lines * (RESPONSES_A_TURN - 1) + b"t1 OK begin\r\n" + behind)
            await asyncio.wait((agreed,))
            assert connection._transport is not None
            assert isinstance(agreed.exception(), ProtocolError) == bool(behind)
            if not behind:
                assert not connection._transport.is_reading()
            connection.abort()
            return connection

    assert isinstance(asyncio.run(run(b"")).failure, ServerLost)
    assert isinstance(asyncio.run(run(b"* 1 EXISTS\r\n")).failure, ProtocolError)


def headers(count: int) -> list[bytes]:
    return [
        b'* %d FETCH (UID %d FLAGS () RFC822.SIZE 9 ENVELOPE (NIL "s%d" NIL NIL NIL NIL NIL NIL NIL NIL))'
        % (number, number, number)
        for number in range(1, count + 1)
    ]


async def test_lists_and_headers_are_read_over_many_loop_iterations() -> None:
    """The port processes many responses in portions, too, in their order."""

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.answer(rb"LIST .*", *(b'* LIST () "/" f%d' % number for number in range(MANY)))
        await peer.inbox(MANY, MANY + 1)
        await peer.answer(rb"FETCH 1:\* .*", *headers(MANY))
        await peer.end()

    async with playing(script) as endpoint:
        mailbox = ImapMailbox(ImapSession(endpoint, None, ACCOUNT, Ear(), PATIENCE_S))
        await mailbox.log_on()
        turns = Turns()
        assert await mailbox.folders() == [f"f{number}" for number in range(MANY)]
        listed = turns.taken
        found = await mailbox.headers(INBOX, None)
        turns.stop()
        assert [header.subject for header in found] == [f"s{number}" for number in range(1, MANY + 1)]
        # Taken in and made into values, each in so many portions.
        assert min(listed, turns.taken - listed) >= 2 * (MANY // RESPONSES_A_TURN)
        mailbox.abandon()
