"""Mail programs with a header cache and whole messages, on servers that refuse and leave out."""

import asyncio

import pytest
from imap_script import PATIENCE_S, Ear, Peer, playing
from mailservers import numbered_accounts

from loadsim.errors import ServerRefused
from loadsim.model.mail_program import load_program
from loadsim.model.ports import INBOX
from loadsim.protocols.imap.header_lists import HeaderCache
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


def test_missing_data_is_server_refused() -> None:
    """No flags of a folder with messages, and no contents of a message; a header left out is no header."""

    async def server(peer: Peer) -> None:
        await peer.greet()
        await peer.inbox(exists=2, uid_next=5)
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
            (header,) = await mailbox.headers(INBOX, 50)
            with pytest.raises(ServerRefused, match="FETCH without data"):
                await mailbox.structure(header.ref)
            mailbox.abandon()

    asyncio.run(user())
