"""A mailbox over several connections, on a scripted server: which connection has which command, losses and refusals."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from imap_script import PATIENCE_S, Ear, Peer, Script, SkippingLoop, playing, skip
from mailservers import numbered_accounts
from skipping import turns

from loadsim.errors import ServerLost, ServerRefused
from loadsim.model.mail_program import MailProgram
from loadsim.model.ports import INBOX, Flag, Services
from loadsim.protocols.imap import open_driver
from loadsim.protocols.imap.session import IDLE_AGAIN_S
from loadsim.protocols.imap.several_connections import SeveralConnections

(ACCOUNT,) = numbered_accounts(1)
CAPABILITIES = b"IMAP4rev1 SASL-IR AUTH=PLAIN IDLE LITERAL+ MOVE UIDPLUS UNSELECT"
LISTING = "FETCH 1:* (UID FLAGS RFC822.SIZE ENVELOPE BODY.PEEK[HEADER.FIELDS (X-LOADSIM)])"
ADDRESS = b'(("U" NIL "u" "x.test"))'
FIELDS = b" ".join([ADDRESS] * 4)
MESSAGE = (
    b'* 1 FETCH (UID 4 FLAGS () RFC822.SIZE 9 ENVELOPE ("d" "s" %b NIL NIL NIL "<m>")'
    b" BODY[HEADER.FIELDS (X-LOADSIM)] {2}\r\n\r\n)" % FIELDS
)
WHOLE = b"* 1 FETCH (UID 4 BODY[] {20}\r\nSubject: s\r\n\r\ntext\r\n)"


class Server:
    """A server with one message in each folder.

    `received` has the commands after log-on, each behind the number of its connection. `during` has calls for some
    commands, which run before the answer.
    """

    def __init__(self, capabilities: bytes = CAPABILITIES) -> None:
        self.received: list[str] = []
        self.peers: list[Peer] = []
        self.capabilities = capabilities
        self.during: dict[str, Callable[[], Awaitable[None]]] = {}

    async def connection(self, peer: Peer) -> None:
        self.peers.append(peer)
        await self.serve(peer, len(self.peers))

    async def serve(self, peer: Peer, number: int) -> None:
        await peer.greet(self.capabilities)
        idle = b""
        while line := await peer.reader.readline():
            tag, _, words = line.rstrip(b"\r\n").partition(b" ")
            if tag == b"DONE":
                self.received.append(f"{number} DONE")
                peer.say(idle + b" OK done")
                continue
            self.received.append(f"{number} {words.decode()}")
            if during := self.during.get(words.decode()):
                await during()
            if words == b"IDLE":
                idle = tag
                peer.say(b"+ waiting")
                continue
            if literal := re.search(rb"\{(\d+)\+?\}$", words):
                await peer.reader.readexactly(int(literal[1]) + 2)
            untagged = ()
            if words.startswith(b"SELECT"):
                untagged = peer.opened(1, 5)
            elif words == b"LOGOUT":
                untagged = (b"* BYE",)
            elif b"BODY.PEEK[])" in words:
                untagged = (WHOLE,)
            elif words.startswith(b"UID MOVE"):
                untagged = (b"* 1 EXPUNGE",)
            elif b"FETCH" in words:
                untagged = (MESSAGE,)
            peer.say(*untagged, tag + b" OK done")

    async def end_of_the_first(self) -> None:
        self.peers[0].writer.close()
        await self.peers[0].writer.wait_closed()
        await turns(50)

    def since(self) -> list[str]:
        received, self.received[:] = list(self.received), ()
        return received


async def refusing(peer: Peer) -> None:
    """Refuse the log-on, as a server with too many connections does."""
    peer.say(b"* OK [CAPABILITY IMAP4rev1 SASL-IR AUTH=PLAIN] ready")
    tag = (await peer.packet()).partition(b" ")[0]
    peer.say(tag + b" NO [LIMIT] too many connections")
    await peer.end()


async def parting(peer: Peer) -> None:
    """Say BYE in place of a greeting, as another server with too many connections does."""
    peer.say(b"* BYE too many connections")


async def closing(_: Peer) -> None:
    """Close without a word, as a third one does."""


User = Callable[[SeveralConnections, Server, Ear], Awaitable[None]]


def play(user: User, *scripts: Script | None, most: int = 3, capabilities: bytes = CAPABILITIES, **keys: Any) -> None:
    """Log on, and run `user`, over connections with these scripts; None is a connection to `Server`."""

    async def run() -> None:
        server, ear = Server(capabilities), Ear()
        async with playing(*(each or server.connection for each in scripts)) as endpoint:
            services = Services(
                endpoint, endpoint, PATIENCE_S, program=MailProgram(name="own", connections=most, **keys)
            )
            mailbox = open_driver(services).session(ACCOUNT, ear).mailbox
            assert isinstance(mailbox, SeveralConnections)
            await mailbox.log_on()
            await mailbox.headers(INBOX, 50)
            await mailbox.watch()
            server.since()
            try:
                await user(mailbox, server, ear)
            finally:
                mailbox.abandon()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(run())


def over(*scripts: Script | None, **keys: Any) -> Callable[[User], Callable[[], None]]:
    """Let a test be the user of `play` over these connections."""

    def decorate(user: User) -> Callable[[], None]:
        def test() -> None:
            play(user, *scripts, **keys)

        test.__doc__ = user.__doc__
        return test

    return decorate


def by_connection(received: list[str]) -> list[str]:
    """The commands of each connection in their order: those of two are not in a certain one."""
    return sorted(received, key=lambda command: command.split()[0])


@over(None, None, None)
async def test_each_folder_has_a_connection_up_to_the_limit(
    mailbox: SeveralConnections, server: Server, ear: Ear
) -> None:
    """The Inbox keeps its own, and waits all the time; at the limit, the newest connection opens other folders."""
    (header,) = await mailbox.headers("A", 50)
    await mailbox.open(INBOX)
    await mailbox.watch()
    assert server.since() == ["2 SELECT A", f"2 {LISTING}", "2 IDLE"]
    await mailbox.headers("B", 50)
    await mailbox.watch()
    assert server.since() == ["3 SELECT B", f"3 {LISTING}", "3 IDLE"]
    await mailbox.flag([header.ref], Flag.SEEN)  # in A, which is open
    assert server.since() == ["2 DONE", r"2 UID STORE 4 +FLAGS.SILENT (\Seen)"]
    await mailbox.headers("C", 50)
    await mailbox.watch()
    assert by_connection(server.since()) == ["2 IDLE", "3 DONE", "3 SELECT C", f"3 {LISTING}", "3 IDLE"]
    (shown,) = await mailbox.headers(INBOX, 50)
    await mailbox.move([shown.ref], "A")
    await mailbox.watch()
    assert server.since() == ["1 DONE", "1 NOOP", f"1 {LISTING}", "1 UID MOVE 4 A", "1 IDLE"]
    await mailbox.log_off()
    assert sorted(server.since()) == sorted(f"{n} {word}" for n in (1, 2, 3) for word in ("DONE", "LOGOUT"))
    assert not ear.losses


@over(None, None, None)
async def test_append_uses_any_connection_but_the_inboxs(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
    """Over the one that has the folder open; else over one without an open folder, else over the newest."""
    await mailbox.append("B", b"text")
    await mailbox.watch()
    assert server.since() == ["2 APPEND B {4+}"]  # a further connection; without an open folder, it has no IDLE
    await mailbox.headers("A", 50)
    await mailbox.append("B", b"text")
    assert by_connection(server.since()) == ["2 APPEND B {4+}", "3 SELECT A", f"3 {LISTING}", "3 IDLE"]
    await mailbox.append("A", b"text")
    await mailbox.headers("B", 50)  # at the limit
    await mailbox.append("C", b"text")
    await mailbox.append(INBOX, b"text")
    assert by_connection(server.since()) == [
        *("1 DONE", "1 APPEND INBOX {4+}", "2 APPEND C {4+}"),
        *("3 DONE", "3 APPEND A {4+}", "3 SELECT B", f"3 {LISTING}", "3 IDLE"),
    ]
    assert not ear.losses


@over(None, None, most=2, message_items=("UID", "BODY.PEEK[]"))
async def test_a_cached_message_needs_no_connection(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
    (header,) = await mailbox.headers("A", 50)
    structure = await mailbox.structure(header.ref)
    await mailbox.headers("B", 50)
    server.since()
    assert structure.text is not None
    assert await mailbox.structure(header.ref) == structure
    assert await mailbox.part(header.ref, structure.text) == b"text\r\n"
    assert server.since() == []
    assert not ear.losses


@pytest.mark.parametrize("number", [1, 2, 3])
def test_if_one_connection_breaks_between_calls_the_session_is_lost_once(number: int) -> None:
    """The observer gets the loss at once, and the next log-on makes one connection."""

    async def user(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
        await mailbox.headers("A", 50)
        await mailbox.headers("B", 50)
        await mailbox.watch()
        server.peers[number - 1].writer.close()
        await ear.wait()
        assert [type(each) for each in ear.losses] == [ServerLost]
        mailbox.abandon()
        await mailbox.log_on()
        await mailbox.headers("A", 50)
        assert server.since()[-2:] == ["5 SELECT A", f"5 {LISTING}"]
        assert len(ear.losses) == 1

    play(user, None, None, None, None, None)


@over(None, None)
async def test_a_connection_that_breaks_during_a_call_over_another_spares_the_call(
    mailbox: SeveralConnections, server: Server, ear: Ear
) -> None:
    """The task succeeds over its own connection. The next wait for mail reports the loss."""
    server.during["SELECT A"] = server.end_of_the_first
    assert len(await mailbox.headers("A", 50)) == 1
    assert ear.losses == []
    await mailbox.watch()
    assert [type(each) for each in ear.losses] == [ServerLost]
    with pytest.raises(ServerLost):
        await mailbox.arrived()


@over(None, None, None)
async def test_the_inbox_waits_during_calls_over_others(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
    """A user without pauses never waits between calls, and would never notice new mail."""
    (header,) = await mailbox.headers(INBOX, 50)
    await mailbox.flag([header.ref], Flag.SEEN)
    await mailbox.append("B", b"text")
    await mailbox.headers("A", 50)
    await mailbox.open(INBOX)
    assert by_connection(server.since()) == [
        *("1 DONE", "1 NOOP", f"1 {LISTING}", r"1 UID STORE 4 +FLAGS.SILENT (\Seen)", "1 IDLE"),
        *("2 APPEND B {4+}", "3 SELECT A", f"3 {LISTING}"),
    ]
    server.peers[0].say(b"* 2 EXISTS")
    await ear.wait()
    assert ear.arrivals == [1]
    assert not ear.losses


@over(None, None)
async def test_a_connection_that_breaks_while_another_begins_to_wait_is_lost(
    mailbox: SeveralConnections, server: Server, ear: Ear
) -> None:
    """No call may follow for hours, in which the user would wait for mail without a connection to the Inbox."""
    await mailbox.headers("A", 50)
    server.during["IDLE"] = server.end_of_the_first
    await mailbox.watch()
    assert [type(each) for each in ear.losses] == [ServerLost]


@over(None, refusing, parting, closing, None)
async def test_a_refused_connection_refuses_only_its_call(
    mailbox: SeveralConnections, server: Server, ear: Ear
) -> None:
    """As at the server's limit for each user. The session goes on, and the next call tries again."""
    for _ in range(3):
        with pytest.raises(ServerRefused):
            await mailbox.headers("A", 50)
    await mailbox.watch()
    assert server.since() == []
    assert len(await mailbox.headers(INBOX, 50)) == 1
    await mailbox.headers("A", 50)
    assert by_connection(server.since())[3:] == ["1 IDLE", "2 SELECT A", f"2 {LISTING}"]
    assert not ear.losses


@pytest.mark.parametrize("end", ["abandon", "cancel"])
def test_an_unfinished_connection_ends_with_the_session(end: str) -> None:
    async def user(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
        task = asyncio.create_task(mailbox.headers("A", 50))  # type: ignore[arg-type]
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        mailbox.abandon() if end == "abandon" else task.cancel()
        answer.set()
        with pytest.raises((ServerLost, asyncio.CancelledError)):
            await task
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
        mailbox.abandon()

    async def slow(peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY IMAP4rev1 SASL-IR AUTH=PLAIN] ready")
        tag = (await peer.packet()).partition(b" ")[0]
        asked.set()
        await answer.wait()
        peer.say(tag + b" OK [CAPABILITY IMAP4rev1] done")
        try:
            while line := await peer.packet():
                peer.say(b"* CAPABILITY IMAP4rev1", line.partition(b" ")[0] + b" OK done")
        finally:
            gone.set()

    asked, answer, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    play(user, None, slow)


@over(None, None, None)
async def test_all_connections_are_kept_alive(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
    """With an open folder by IDLE, otherwise by NOOP, in less than servers' limit of 30 minutes without commands."""
    await mailbox.append("B", b"text")
    await mailbox.headers("A", 50)
    await mailbox.watch()
    server.since()
    skip(IDLE_AGAIN_S + 1)
    await turns(50)
    assert sorted(server.since()) == ["1 DONE", "1 IDLE", "2 NOOP", "3 DONE", "3 IDLE"]
    assert not ear.losses


@over(None, None, capabilities=b"IMAP4rev1 SASL-IR AUTH=PLAIN", poll_s=600.0)
async def test_without_idle_all_connections_poll(mailbox: SeveralConnections, server: Server, ear: Ear) -> None:
    """Each in its folder, at the program's interval."""
    await mailbox.headers("A", 50)
    await mailbox.watch()
    server.since()
    skip(601)
    await turns(50)
    assert sorted(server.since()) == ["1 NOOP", "2 NOOP"]
