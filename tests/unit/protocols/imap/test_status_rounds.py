"""Rounds of STATUS and questions about quotas, on servers that answer, refuse, or offer no quotas."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from imap_script import PATIENCE_S, Ear, Peer, Script, SkippingLoop, playing, skip
from mailservers import numbered_accounts

from loadsim.errors import ServerRefused
from loadsim.model.mail_program import KEPT, PER_VIEW, MailProgram, StatusRounds
from loadsim.model.ports import INBOX, Mailbox, Services
from loadsim.protocols.imap import open_driver

(ACCOUNT,) = numbered_accounts(1)
EVERY_S = 20.0
PROGRAM = MailProgram(name="own", status=StatusRounds(items=("MESSAGES", "UNSEEN"), every_s=EVERY_S), quota=True)
PLAIN = b"IMAP4rev1 SASL-IR AUTH=PLAIN IDLE"
WITH_QUOTA = PLAIN + b" QUOTA"
FOLDERS = (b'* LIST () "/" INBOX', b'* LIST (\\NoSelect) "/" above', b'* LIST () "/" a', b'* LIST () "/" "b c"')
STATUS_A = rb"STATUS a \(MESSAGES UNSEEN\)"
STATUS_B = rb'STATUS "b c" \(MESSAGES UNSEEN\)'

User = Callable[[Mailbox, Ear], Awaitable[None]]


def play(user: User, *scripts: Script, program: MailProgram = PROGRAM) -> list[tuple[str, str]]:
    """Run `user` against one script per connection. Return the commands with their outcomes."""
    ear = Ear()

    async def run() -> None:
        async with playing(*scripts) as endpoint:
            services = Services(endpoint, endpoint, PATIENCE_S, program=program)
            mailbox = open_driver(services).session(ACCOUNT, ear).mailbox
            try:
                await user(mailbox, ear)
            finally:
                mailbox.abandon()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(run())
    return [command[:2] for command in ear.commands]


async def idles(peer: Peer) -> bytes:
    tag = await peer.expect(b"IDLE")
    peer.say(b"+ idling")
    return tag


async def logged_on(peer: Peer, capabilities: bytes = PLAIN) -> None:
    await peer.greet(capabilities)
    await peer.answer(rb'LIST "" "\*"', *FOLDERS)
    await peer.inbox(exists=0, uid_next=1)


async def log_on(mailbox: Mailbox) -> None:
    await mailbox.log_on()
    await mailbox.folders()
    await mailbox.watch()


def test_a_refused_folder_ends_neither_the_call_nor_the_session() -> None:
    """In a call and between calls; the folder that holds only folders is not asked about."""
    second_round = asyncio.Event()

    async def server(peer: Peer) -> None:
        await logged_on(peer)
        await peer.answer(STATUS_A, end=b"NO [NONEXISTENT] gone")
        await peer.answer(STATUS_B, b'* STATUS "b c" (MESSAGES 3 UNSEEN 1)')
        tag = await idles(peer)
        assert await peer.reader.readline() == b"DONE\r\n"
        peer.say(tag + b" OK done")
        await peer.answer(STATUS_A, end=b"BAD what")
        await peer.answer(STATUS_B, b'* STATUS "b c" (MESSAGES 4 UNSEEN 2)')
        tag = await idles(peer)
        second_round.set()
        assert await peer.reader.readline() == b"DONE\r\n"
        peer.say(tag + b" OK done")
        await peer.answer(rb"NOOP")
        await peer.end()

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await log_on(mailbox)
        skip(EVERY_S + 1)
        async with asyncio.timeout(PATIENCE_S):
            await second_round.wait()
        assert not await mailbox.arrived()
        assert not ear.losses

    commands = play(user, server)
    rounds = [command for command in commands if command[0] == "IMAP STATUS"]
    assert [outcome for _, outcome in rounds] == ["refused", "ok"] * 2
    assert ("IMAP GETQUOTAROOT", "ok") not in commands


def test_a_new_session_asks_when_the_next_round_is_due() -> None:
    """Not earlier: what a program knows of the other folders outlives its connection."""

    async def first(peer: Peer) -> None:
        await logged_on(peer)
        await peer.answer(STATUS_A, b"* STATUS a (MESSAGES 0 UNSEEN 0)")
        await peer.answer(STATUS_B, b'* STATUS "b c" (MESSAGES 0 UNSEEN 0)')
        await idles(peer)
        await peer.end()

    async def soon(peer: Peer) -> None:
        await logged_on(peer)
        await idles(peer)
        await peer.end()

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await log_on(mailbox)
        mailbox.abandon()
        await log_on(mailbox)
        mailbox.abandon()
        skip(EVERY_S + 1)
        await log_on(mailbox)

    commands = play(user, first, soon, first)
    assert commands.count(("IMAP STATUS", "ok")) == 4


@pytest.mark.parametrize("session", [KEPT, PER_VIEW])
def test_each_list_comes_with_the_folders_quota(session: str) -> None:
    """Also of an empty folder; its refusal fails nothing. Looks before the next round ask about no folder."""
    own = replace(PROGRAM, idle=False, session=session)
    roots = (b'* QUOTAROOT INBOX "" user', b'* QUOTA "" ()', b"* QUOTA user (STORAGE 10 512 MESSAGE 2 100)")

    async def server(peer: Peer) -> None:
        await logged_on(peer, WITH_QUOTA)
        await peer.answer(STATUS_A, b"* STATUS a (MESSAGES 0 UNSEEN 0)")
        await peer.answer(STATUS_B, b'* STATUS "b c" (MESSAGES 0 UNSEEN 0)')
        await peer.answer(rb"NOOP")
        await peer.answer(rb"GETQUOTAROOT INBOX", *roots)
        await peer.answer(rb'SELECT "b c"', *peer.opened(0, 1))
        await peer.answer(rb'GETQUOTAROOT "b c"', end=b"NO busy")
        await peer.inbox(exists=0, uid_next=1)
        await peer.end()

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await log_on(mailbox)
        assert not await mailbox.arrived()
        assert not await mailbox.headers("b c", 50)
        await mailbox.watch()
        assert not ear.losses

    commands = play(user, server, program=own)
    assert [outcome for name, outcome in commands if name == "IMAP GETQUOTAROOT"] == ["ok", "refused"]


def test_only_the_first_connection_asks() -> None:
    """The folder open on another connection is asked about, too: STATUS is not for a connection's own open folder."""

    async def inbox(peer: Peer) -> None:
        await logged_on(peer)
        await peer.answer(STATUS_A, b"* STATUS a (MESSAGES 0 UNSEEN 0)")
        await peer.answer(STATUS_B, b'* STATUS "b c" (MESSAGES 0 UNSEEN 0)')
        await idles(peer)
        await peer.end()

    async def other(peer: Peer) -> None:
        await peer.greet(PLAIN)
        await peer.answer(rb"SELECT a", *peer.opened(0, 1))
        await idles(peer)
        await peer.end()

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await log_on(mailbox)
        await mailbox.headers("a", 50)
        await mailbox.watch()
        assert not ear.losses

    play(user, inbox, other, program=replace(PROGRAM, connections=2))


def test_a_server_that_stops_answering_ends_the_session() -> None:
    async def server(peer: Peer) -> None:
        await logged_on(peer)
        await peer.expect(STATUS_A)
        peer.say(b"* BYE going down")

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await mailbox.log_on()
        await mailbox.folders()
        with pytest.raises(Exception, match="BYE") as lost:
            await mailbox.watch()
        assert not isinstance(lost.value, ServerRefused)

    play(user, server)


def test_folders_are_asked_about_once_they_are_listed() -> None:
    async def server(peer: Peer) -> None:
        await peer.greet(PLAIN)
        await peer.inbox(exists=0, uid_next=1)
        await idles(peer)
        await peer.end()

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await mailbox.log_on()
        await mailbox.open(INBOX)
        await mailbox.watch()

    assert ("IMAP STATUS", "ok") not in play(user, server)


def test_a_mailbox_without_other_folders_is_watched_quietly() -> None:
    """No round is due, so nothing ends the IDLE before its own interval."""

    async def server(peer: Peer) -> None:
        await peer.greet(PLAIN)
        await peer.answer(rb'LIST "" "\*"', FOLDERS[0])
        await peer.inbox(exists=0, uid_next=1)
        tag = await idles(peer)
        assert await peer.reader.readline() == b"DONE\r\n"
        peer.say(tag + b" OK done")
        await peer.answer(rb"NOOP")
        await peer.end()

    async def user(mailbox: Mailbox, ear: Ear) -> None:
        await log_on(mailbox)
        for _ in range(3):
            await asyncio.sleep(0)  # a timer that is due strikes in the loop's next turn
        assert not await mailbox.arrived()

    assert play(user, server).count(("IMAP IDLE", "ok")) == 1
