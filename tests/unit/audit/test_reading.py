"""Reading a mailbox for the audit, on scripted servers: what one message does, and which flags a folder keeps."""

from __future__ import annotations

import asyncio
import re

import pytest
from imap_script import PATIENCE_S, Ear, Peer

from loadsim.audit.judged import HeldCopy
from loadsim.audit.reading import read_mailbox
from loadsim.errors import ServerLost
from loadsim.findings.catalogue import Code
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.session import ImapSession

ACCOUNT = Account(1, "user1", "user1@example.test", "secret-1")
BODY = b"text\r\n\r\nmore text\r\n"
MESSAGES = 70  # more than are fetched at once


class Server:
    """An Inbox with a `broken` message (its UID), or one whose header is broken, too, which is not `listed`.

    A FETCH of it is refused with NO, or `ends` the session.
    """

    def __init__(
        self,
        broken: int = 0,
        listed: bool = True,
        ends: bool = True,
        lasting: bytes | None = rb"\Seen \*",
        most_sessions: int = 1 << 20,
        body: bytes = BODY,
    ) -> None:
        self.broken = broken
        self.listed = listed
        self.ends = ends
        self.lasting = lasting
        self.most_sessions = most_sessions
        self.body = body
        self.sessions = 0
        self.serving: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        self.serving.append(asyncio.current_task())
        try:
            if self.sessions <= self.most_sessions:
                await self.converse(Peer(reader, writer))
        except ConnectionError:
            pass  # the client went first
        finally:
            writer.close()

    async def converse(self, peer: Peer) -> None:
        await peer.greet()
        while data := await peer.packet():
            for line in data.splitlines():
                tag, _, command = line.partition(b" ")
                answers = self.answers(command)
                if answers is None:
                    peer.say(b"* BYE Internal error")
                    return
                peer.say(*answers[:-1], tag + answers[-1])

    def answers(self, command: bytes) -> tuple[bytes, ...] | None:
        """The answer to a command, whose end lacks the tag; None for the end of the session."""
        if command.startswith(b"LIST"):
            return b'* LIST () "/" INBOX', b" OK"
        if command.startswith(b"SELECT"):
            permanent = b"* FLAGS ()" if self.lasting is None else b"* OK [PERMANENTFLAGS (%b)] these" % self.lasting
            return b"* %d EXISTS" % MESSAGES, b"* OK [UIDVALIDITY 7] valid", permanent, b" OK"
        if fetched := re.fullmatch(rb"UID FETCH (\S+) \((.+)\)", command):
            ends = [[*map(int, part.split(b":"))] for part in fetched[1].replace(b"*", b"%d" % MESSAGES).split(b",")]
            uids = [uid for first, *last in ends for uid in range(first, (last or [first])[0] + 1)]
            if fetched[2] == b"UID FLAGS":
                return (*(b"* %d FETCH (UID %d FLAGS (\\Seen))" % (uid, uid) for uid in uids), b" OK")
            lists = b"ENVELOPE" in fetched[2]
            if self.broken in uids and not (lists and self.listed):
                return None if self.ends else (b" NO cannot read it",)
            return (*map(listed if lists else self.read_one, uids), b" OK")
        return (b" OK",)

    def read_one(self, uid: int) -> bytes:
        return b"* %d FETCH (UID %d BODY[TEXT] {%d}\r\n%b)" % (uid, uid, len(self.body), self.body)

    def read(self) -> list[HeldCopy]:
        async def reading() -> list[HeldCopy]:
            async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
                endpoint = Endpoint(*server.sockets[0].getsockname()[:2], tls="none")
                mailbox = ImapMailbox(ImapSession(endpoint, None, ACCOUNT, Ear(), PATIENCE_S))
                try:
                    await mailbox.log_on()
                    return (await read_mailbox(ACCOUNT, mailbox, "run-1"))[0]
                finally:
                    mailbox.abandon()
                    await asyncio.gather(*filter(None, self.serving))

        return asyncio.run(reading())


def listed(uid: int) -> bytes:
    """A message of this run, as the audit lists it."""
    tag = MessageTag("run-1", 1, f"n1.{uid}", "ups1K", 0, body_digest(BODY))
    envelope = (
        b'(NIL NIL ((NIL NIL "user1" "example.test")) NIL NIL NIL NIL NIL NIL "<n1.%d.run-1@example.test>")' % uid
    )
    field = f"X-LoadSim: {tag.header()}\r\n\r\n".encode()
    return b"* %d FETCH (UID %d FLAGS (\\Seen) ENVELOPE %b BODY[HEADER.FIELDS (X-LoadSim)] {%d}\r\n%b)" % (
        *(uid, uid, envelope),
        *(len(field), field),
    )


@pytest.mark.parametrize("broken", [1, 33, MESSAGES])
@pytest.mark.parametrize("ends", [True, False])
def test_an_unreadable_message_does_not_hide_others(ends: bool, broken: int) -> None:
    """One whose header cannot be read either is as good as lost."""
    copies = Server(broken, ends=ends).read()
    assert [copy.message for copy in copies] == [f"n1.{uid}" for uid in range(1, MESSAGES + 1)]
    assert [(copy.message, copy.fault) for copy in copies if copy.fault] == [(f"n1.{broken}", Code.MAIL_LOST)]
    copies = Server(broken, listed=False, ends=ends).read()
    assert [copy.message for copy in copies] == [f"n1.{uid}" for uid in range(1, MESSAGES + 1) if uid != broken]
    assert not any(copy.fault for copy in copies)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (BODY, None),
        (BODY.rstrip(), None),  # as servers may drop the last line end, and keep all others
        (BODY.replace(b"\r\n", b"\n"), Code.LINE_ENDS),
        (BODY.replace(b"\r\n", b"\n", 1), Code.LINE_ENDS),
        (BODY.replace(b"\r\n", b"\r").rstrip(), Code.LINE_ENDS),
        (BODY.replace(b"\r\n\r\n", b"\r\n"), Code.MAIL_ALTERED),
        (BODY.replace(b"\r\n", b"\n").replace(b"more", b"less"), Code.MAIL_ALTERED),
    ],
)
def test_changed_line_ends_alter_no_body(body: bytes, fault: Code | None) -> None:
    assert {copy.fault for copy in Server(body=body).read()} == {fault}


def test_a_lost_server_is_not_an_unreadable_message() -> None:
    for listed in (True, False):
        with pytest.raises(ServerLost):
            Server(broken=33, listed=listed, most_sessions=1).read()


@pytest.mark.parametrize(
    ("lasting", "never"),
    [
        (None, set()),  # a server that states none keeps all (RFC 9051 section 6.3.2)
        (rb"\Seen \*", {"\\answered", "\\flagged", "\\draft"}),
        (rb"\Answered \Seen \Flagged \Draft $forwarded", set()),
        (rb"\Answered \Seen \Draft", {"$forwarded", "\\flagged"}),
        (b"", {"\\seen", "\\answered", "$forwarded", "\\flagged", "\\draft"}),
    ],
)
def test_flags_that_a_folder_never_keeps_are_returned(lasting: bytes | None, never: set[str]) -> None:
    held = {(copy.flags, copy.never_kept) for copy in Server(lasting=lasting).read()}
    assert held == {(frozenset({"\\seen"}), frozenset(never))}
