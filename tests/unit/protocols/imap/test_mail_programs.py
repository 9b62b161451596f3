"""Mail programs with a header cache and whole messages, on servers that refuse and leave out."""

import asyncio

import pytest
from imap_script import PATIENCE_S, Ear, Peer, playing
from mailservers import numbered_accounts

from loadsim.errors import ServerRefused
from loadsim.model.mail_program import load_program
from loadsim.model.ports import INBOX
from loadsim.protocols.imap.header_lists import HeaderCache, Ref
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.requests import requests_of
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.imap.whole_message import MessageStore

(ACCOUNT,) = numbered_accounts(1)
HEADER = b"From: a@b.test\r\nTo: c@d.test\r\nSubject: x\r\n\r\n"
MESSAGE = HEADER + b"text\r\n"


def listed(uid: int) -> bytes:
    """A message in an answer to the program's list."""
    items = b"* 1 FETCH (UID %d RFC822.SIZE %d FLAGS () BODY[HEADER.FIELDS (FROM)] {%d}\r\n"
    return items % (uid, len(MESSAGE), len(HEADER)) + HEADER + b")"


def whole(uid: int) -> bytes:
    return b"* 1 FETCH (UID %d BODY[] {%d}\r\n" % (uid, len(MESSAGE)) + MESSAGE + b")"


def thunderbird(endpoint: object) -> ImapMailbox:
    session = ImapSession(endpoint, None, ACCOUNT, Ear(), PATIENCE_S)  # type: ignore[arg-type]
    return ImapMailbox(session, requests_of(load_program("thunderbird")), HeaderCache(), MessageStore())


def test_a_refused_prefetch_loses_no_mail() -> None:
    """The message is listed, and fetched when it is read; then it is kept."""

    async def server(peer: Peer) -> None:
        await peer.greet()
        await peer.inbox(exists=1, uid_next=5)
        await peer.answer(rb"UID FETCH 1:\* \(FLAGS\)", b"* 1 FETCH (UID 4 FLAGS ())")
        await peer.answer(rb"UID FETCH 4 \(UID RFC822.SIZE FLAGS BODY.PEEK\[HEADER.*", listed(4))
        await peer.answer(rb"UID FETCH 4 \(UID RFC822.SIZE BODY.PEEK\[\]\)", end=b"NO busy")
        await peer.answer(rb"UID FETCH 4 \(UID RFC822.SIZE BODY.PEEK\[\]\)", whole(4))
        await peer.end()

    async def user() -> None:
        async with playing(server) as endpoint:
            mailbox = thunderbird(endpoint)
            await mailbox.log_on()
            (header,) = await mailbox.arrived()
            structure = await mailbox.structure(header.ref)
            assert structure.text is not None
            assert await mailbox.part(header.ref, structure.text) == b"text\r\n"
            assert await mailbox.structure(header.ref) == structure
            mailbox.abandon()

    asyncio.run(user())


def test_a_mailbox_is_copied_in_pieces_that_fit() -> None:
    """Two headers at a time, newest first; then two whole messages by one command, and a third alone.

    What is in memory is shown without a command. A batch of which nothing is left is an empty one.
    """

    async def server(peer: Peer) -> None:
        await peer.greet()
        await peer.answer(rb"SELECT a", *peer.opened(exists=4, uid_next=10))
        lines = [b"* %d FETCH (UID %d FLAGS ())" % (number, uid) for number, uid in enumerate((3, 4, 7, 9), start=1)]
        await peer.answer(rb"UID FETCH 1:\* \(FLAGS\)", *lines)
        await peer.answer(rb"UID FETCH 7,9 \(UID RFC822.SIZE FLAGS BODY.PEEK\[HEADER.*", listed(7), listed(9))
        await peer.answer(rb"UID FETCH 7,9 \(UID RFC822.SIZE BODY.PEEK\[\]\)", whole(7), whole(9))
        await peer.answer(rb"UID FETCH 7 \(UID RFC822.SIZE BODY.PEEK\[\]\)", whole(7))
        await peer.inbox(exists=0, uid_next=1)
        await peer.answer(rb"SELECT a", *peer.opened(exists=4, uid_next=10))
        await peer.answer(rb"UID FETCH 3:4 \(UID RFC822.SIZE FLAGS BODY.PEEK\[HEADER.*")
        await peer.end()

    async def user() -> None:
        async with playing(server) as endpoint:
            mailbox = thunderbird(endpoint)
            assert mailbox.store is not None
            mailbox.store.limit_bytes = 2 * len(MESSAGE)
            await mailbox.log_on()
            copy = mailbox.batches("a", 2)
            batch = [*await anext(copy)]
            assert [header.ref for header in batch] == [Ref("a", 7, 9), Ref("a", 7, 7)]
            assert await mailbox.fetch_whole([*batch, batch[0]]) == 2
            for header in batch:
                structure = await mailbox.structure(header.ref)
                assert structure.text is not None
                assert await mailbox.part(header.ref, structure.text) == b"text\r\n"
            mailbox.store.limit_bytes = 1
            assert await mailbox.fetch_whole(batch[1:]) == 0  # larger than the memory: fetched when it is shown
            mailbox.store.drop(batch[1].ref)
            await mailbox.structure(batch[1].ref)
            await mailbox.open(INBOX)
            assert [*await anext(copy)] == []
            with pytest.raises(StopAsyncIteration):
                await anext(copy)
            mailbox.abandon()

    asyncio.run(user())


def test_a_renumbered_folder_is_not_copied_further() -> None:
    async def server(peer: Peer) -> None:
        await peer.greet()
        await peer.answer(rb"SELECT a", *peer.opened(exists=1, uid_next=5))
        await peer.answer(rb"UID FETCH 1:\* \(FLAGS\)", b"* 1 FETCH (UID 4 FLAGS ())")
        await peer.answer(rb"UID FETCH 4 \(UID RFC822.SIZE FLAGS BODY.PEEK\[HEADER.*", listed(4))
        await peer.inbox(exists=0, uid_next=1)
        await peer.answer(rb"SELECT a", *peer.opened(exists=1, uid_next=5, validity=8))
        await peer.end()

    async def user() -> None:
        async with playing(server) as endpoint:
            mailbox = thunderbird(endpoint)
            await mailbox.log_on()
            (batch,) = [batch async for batch in mailbox.batches("a", 2)]
            await mailbox.open(INBOX)
            with pytest.raises(ServerRefused, match="UIDVALIDITY changed"):
                await mailbox.fetch_whole(batch)
            mailbox.abandon()

    asyncio.run(user())


def test_missing_data_is_server_refused() -> None:
    """No flags of a folder with messages, and no contents of a message; a header left out is no header."""

    async def server(peer: Peer) -> None:
        await peer.greet()
        await peer.inbox(exists=2, uid_next=5)
        await peer.answer(rb"UID FETCH 1:\* \(FLAGS\)")
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 1:\* \(FLAGS\)")
        await peer.answer(rb"NOOP")
        await peer.answer(rb"UID FETCH 1:\* \(FLAGS\)", b"* 1 FETCH (UID 3 FLAGS ())", b"* 2 FETCH (UID 4 FLAGS ())")
        await peer.answer(rb"UID FETCH 3:4 \(UID RFC822.SIZE FLAGS BODY.PEEK\[HEADER.*", listed(4))
        await peer.answer(rb"UID FETCH 4 \(UID RFC822.SIZE BODY.PEEK\[\]\)", b"* 1 FETCH (UID 4 BODY[] NIL)")
        await peer.end()

    async def user() -> None:
        async with playing(server) as endpoint:
            mailbox = thunderbird(endpoint)
            await mailbox.log_on()
            with pytest.raises(ServerRefused, match="FETCH without data"):
                await mailbox.headers(INBOX, 50)
            with pytest.raises(ServerRefused, match="FETCH without data"):
                await anext(mailbox.batches(INBOX, 50))
            (header,) = await mailbox.headers(INBOX, 50)
            with pytest.raises(ServerRefused, match="FETCH without data"):
                await mailbox.structure(header.ref)
            mailbox.abandon()

    asyncio.run(user())
