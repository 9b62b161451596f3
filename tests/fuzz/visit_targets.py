"""Targets with a server: whole visits to a mailbox, and messages that are sent, in virtual time.

A case begins with the number of the server's first hostile answer. Its answers, that one and those behind it, follow
between the marks; all others are sound. In an answer `%t` is the tag of the command, `%s` the sound answer.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.mail_program import AIOSMTPLIB, PIPELINING, SEQUENTIAL
from loadsim.model.ports import INBOX, Account, Endpoint, Flag, Header, Services
from loadsim.protocols.aioimaplib import open_driver as open_library
from loadsim.protocols.imap import open_driver as open_own
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.smtp.submission import SmtpSubmission
from loadsim.users.inbox import Inbox

from .mail_targets import ENVELOPE, FETCHES, IMAP_WORDS, LINES, REPLIES, SMTP_WORDS, STRUCTURE, TAG
from .mutate import mutated
from .target import Target, pieces
from .virtual import Loop, Transport, play

MARK = b"@@"
LIMIT_S = 10.0
LONGEST_CALL_S = 100 * LIMIT_S
"""A call of the port has several commands, each with the limit; virtual time costs nothing."""

LONGEST_KIND = 60
"""Characters of the name of a failure."""

MOST_ANSWERS = 300
"""Then the server falls silent."""

ACCOUNT = Account(1, "user1", "user1@sim.test", "se cret")
SERVICES = Services(imap=Endpoint("mail.test", 143), smtp=Endpoint("mail.test", 25), command_limit_s=LIMIT_S)


class TooLong(AssertionError):
    """A call took longer than all its commands may."""


class NotAccepted(AssertionError):
    """A message counts as accepted that no reply has accepted."""


class Observer:
    """An observer with a user's Inbox, which keeps announcements."""

    def __init__(self) -> None:
        self.inbox = Inbox("run", 100, 10)
        self.own_faults: list[GeneratorFailed] = []
        self.lines = NO_LINES

    def now(self) -> int:
        return 1

    def command(self, *_: Any) -> None:
        pass

    def arrived(self, messages: int, at_ns: int | None = None) -> None:
        self.inbox.announce(messages, 1)

    def listed(self, headers: Sequence[Header], announced: int | None) -> None:
        """Take the messages of a list into the Inbox; the server had `announced` some of them before."""
        self.inbox.take_in(headers, self.inbox.stamps(len(headers), announced, 2))

    def lost(self, failure: Exception) -> None:
        assert isinstance(failure, TaskFailed)
        if isinstance(failure, GeneratorFailed):
            self.own_faults.append(failure)


class Script:
    """The answers of a server: those of the case from its first hostile one on, and sound ones."""

    def __init__(self, data: bytes, sound: Callable[[bytes], bytes]) -> None:
        number, *answers = data.split(MARK)
        self._first = int(b"0" + bytes(digit for digit in number[:3] if 48 <= digit <= 57)) % 40
        self._answers = answers
        self._sound = sound
        self._given = 0
        self._then_closes = crc32(data) % 2 == 0

    def answer(self, transport: Transport, command: bytes, tag: bytes = b"") -> bytes:
        place, self._given = self._given - self._first, self._given + 1
        if self._given > MOST_ANSWERS:
            return b""
        said = self._sound(command)
        hostile = 0 <= place < len(self._answers)
        if hostile:
            said = self._answers[place].replace(b"%s", said, 3)
        said = said.replace(b"%t", tag, 50)
        if place == len(self._answers) and self._then_closes:
            transport.end()
        elif said:
            transport.say(*(pieces(said) if hostile else [said]))
        return said


async def call(loop: Loop, work: Coroutine[Any, Any, Any]) -> Any:
    """Await a call of a port. It may fail as a task may, and takes no longer than its commands."""
    began_s = loop.time()
    try:
        return await work
    except TaskFailed as failure:
        assert len(failure.kind) < LONGEST_KIND, f"a long kind: {failure.kind}"
        raise
    finally:
        if loop.time() - began_s > LONGEST_CALL_S:
            raise TooLong(f"{loop.time() - began_s:.0f} s for {work.__qualname__}")


@contextmanager
def forgiving(forgiven: type[Exception]) -> Iterator[None]:
    """Let a task fail by what the server does. `GeneratorFailed` is no such failure, but a fault of our own."""
    try:
        yield
    except GeneratorFailed:
        raise
    except forgiven:
        pass


OFFERED = b"CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR IDLE MOVE UIDPLUS LITERAL+ UNSELECT"
HEADER = b"UID %d FLAGS (\\Seen) RFC822.SIZE 99 ENVELOPE " + ENVELOPE + b" BODY[HEADER.FIELDS (X-LOADSIM)] {%d}\r\n%b"
FIELD = b"X-LoadSim: " + TAG + b"\r\n\r\n"

SOUND = (
    (rb"", b"* OK [%b] ready\r\n" % OFFERED),
    (rb"CAPABILITY", b"* %b\r\n%%t OK done\r\n" % OFFERED),
    (rb"LIST", LINES[1] + b"%t OK done\r\n"),
    (
        rb"SELECT",
        b"* FLAGS (\\Seen)\r\n* 2 EXISTS\r\n* OK [UIDVALIDITY 7] v\r\n* OK [UIDNEXT 9] n\r\n%t OK [READ-WRITE] x\r\n",
    ),
    (
        rb"(?:UID )?FETCH \S+ \(UID FLAGS",
        b"".join(b"* %d FETCH (%b)\r\n" % (each, HEADER % (each + 6, len(FIELD), FIELD)) for each in (1, 2))
        + b"%t OK done\r\n",
    ),
    (rb"UID COPY", b"%t OK [COPYUID 7 7:8 1:2] done\r\n"),
    (rb"UID MOVE", b"* OK [COPYUID 7 7 1] x\r\n* 1 EXPUNGE\r\n%t OK done\r\n"),
    (rb"UID EXPUNGE", b"* 1 EXPUNGE\r\n* 1 EXPUNGE\r\n%t OK done\r\n"),
    (rb"APPEND", b"%t OK [APPENDUID 7 9] done\r\n"),
    (rb"STATUS", b"* STATUS Archive (MESSAGES 0)\r\n%t OK done\r\n"),
    (rb"UID SEARCH", b"* SEARCH 7\r\n%t OK done\r\n"),
    (rb"IDLE", b"+ idling\r\n"),
    (rb"LOGOUT", b"* BYE bye\r\n%t OK done\r\n"),
)
_SOUND = [(re.compile(pattern, re.IGNORECASE), answer) for pattern, answer in SOUND]
_LITERAL_NEXT = re.compile(rb"\{\d+\}\r\n\Z")
_COMMAND = re.compile(rb"(?:\A|\r\n)(\w+) ([A-Z][^\r]*)")


_ONE = re.compile(rb"UID FETCH (\d+) .*?(?:BODY\.PEEK\[([0-9.]+)\]|BODYSTRUCTURE)")


def _sound_imap(command: bytes) -> bytes:
    if not command:
        return SOUND[0][1]
    if one := _ONE.match(command):
        found = b"BODY[%b] {5}\r\nhello" % one[2] if one[2] else b"BODYSTRUCTURE " + STRUCTURE
        return b"* 1 FETCH (UID %b %b)\r\n%%t OK done\r\n" % (one[1], found)
    return next((answer for pattern, answer in _SOUND[1:] if pattern.match(command)), b"%t OK done\r\n")


def _imap_peer(data: bytes) -> Callable[[Transport, bytes], None]:
    script = Script(data, _sound_imap)
    last_tag = b"t0"
    begun = b""  # the command whose literal is to come

    def peer(transport: Transport, written: bytes) -> None:
        nonlocal last_tag, begun
        if not written:
            script.answer(transport, b"")
        elif written.strip().upper() == b"DONE":
            script.answer(transport, b"DONE", last_tag)
        elif _LITERAL_NEXT.search(written):
            begun = begun or written
            transport.say(b"+ go on\r\n")
        else:
            for match in _COMMAND.finditer(begun or written):
                last_tag = match[1]
                script.answer(transport, match[2], last_tag)
            begun = b""

    return peer


def visiting(open_driver: Any, forgiven: type[Exception] = TaskFailed) -> Callable[[bytes], None]:
    """Return what makes a whole visit; after each failure it logs on again."""

    def visit(data: bytes) -> None:
        async def main(loop: Loop) -> None:
            observer = Observer()
            session = open_driver(SERVICES).session(ACCOUNT, observer)
            mailbox = session.mailbox
            try:
                for work in (mailbox.log_on, *_reading(mailbox, observer), *_writing(mailbox)):
                    for attempt in (work, mailbox.log_on, work):
                        break_off = False
                        with forgiving(forgiven):
                            await call(loop, attempt())
                            break_off = attempt is work
                        if break_off:
                            break
            finally:
                mailbox.abandon()
                await asyncio.sleep(LIMIT_S * 2)
            for fault in observer.own_faults:
                raise fault

        play(_imap_peer(data), main)

    return visit


def _reading(mailbox: Any, observer: Observer) -> Iterator[Callable[[], Coroutine[Any, Any, Any]]]:
    found: list[Any] = []

    async def headers() -> None:
        headers = await mailbox.headers(INBOX, 5)
        observer.listed(headers, None)
        found.extend(headers[:2])

    async def arrived() -> None:
        announced = observer.inbox.announced
        observer.listed(await mailbox.arrived(), announced)

    async def parts() -> None:
        for header in found:
            structure = await mailbox.structure(header.ref)
            for part in (structure.text, *structure.attachments[:2]):
                if part is not None:
                    await mailbox.part(header.ref, part)

    async def change() -> None:
        refs = [header.ref for header in found]
        if refs and len({(ref.folder, ref.validity) for ref in refs}) == 1:
            await mailbox.flag(refs, Flag.SEEN)
            await mailbox.copy(refs, "Archive")
            await mailbox.move(refs[:1], "Archive")
            await mailbox.expunge(refs)

    yield from (mailbox.folders, headers, parts, change, arrived)


def _writing(mailbox: Any) -> Iterator[Callable[[], Coroutine[Any, Any, Any]]]:
    async def watch() -> None:
        await mailbox.watch()
        await asyncio.sleep(2)
        await mailbox.arrived()

    async def provision() -> None:
        if hasattr(mailbox, "listing"):
            await mailbox.listing([INBOX, "Archive"])
            await mailbox.message_count("Archive")
            await mailbox.append_many("Archive", [(b"A: b\r\n\r\nc\r\n", ()), (b"x", (Flag.SEEN,))])

    async def append() -> None:
        await mailbox.append("Sent Items", b"Subject: x\r\n\r\nhello\r\n", (Flag.SEEN,))

    yield from (watch, append, provision, mailbox.log_off)


def _visits() -> tuple[bytes, ...]:
    """One hostile answer, or two, at each place of the visit."""
    answers = (b"%s", b"%t OK done\r\n", b"%t NO [OVERQUOTA] x\r\n", b"* BYE x\r\n", b"", *LINES, *FETCHES)
    return tuple(
        b"%d" % at + MARK + answer + (MARK + b"%s" if at % 2 else b"") for at in range(24) for answer in answers
    )


VISIT_WORDS = (
    *IMAP_WORDS, b"%t", b"%s", MARK, b"%t OK ", b"%t OK x\r\n", b"+ \r\n", b"* 2 EXISTS\r\n", b"* 1 EXPUNGE\r\n",
)  # fmt: skip

DOT = b"\r\n.\r\n"
MESSAGE = b"Subject: x\r\n\r\nhello\r\n"
_ACCEPTS = re.compile(rb"(?m)^2\d\d(?: |\r?$)")
_EHLO = b"250-mail.test\r\n250-PIPELINING\r\n250-SIZE\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME\r\n"
_SMTP_SOUND = {
    b"": b"220 ready\r\n",
    b"EHLO": _EHLO,
    b"DATA": b"354 go\r\n",
    b"AUTH": b"235 ok\r\n",
    b"QUIT": b"221 bye\r\n",
}


class _Submission:
    def __init__(self, data: bytes) -> None:
        self._script = Script(data, lambda command: _SMTP_SOUND.get(command[:4].upper(), b"250 ok\r\n"))
        self.connections: list[Transport] = []

    def __call__(self, transport: Transport, written: bytes) -> None:
        if not written:
            self.connections.append(transport)
            self._script.answer(transport, b"")
            return
        _, dot, rest = written.rpartition(DOT)
        if dot:
            self._script.answer(transport, b".")
        for line in rest.split(b"\r\n")[:-1]:
            self._script.answer(transport, line)

    def messages(self) -> list[bytes]:
        """Return what had arrived in answer to each message by now: all that came behind its final dot."""
        return [
            bytes(connection.delivered[connection.delivered.rfind(b"\n", 0, before) + 1 :])
            for connection in self.connections
            for before, written in connection.written
            if DOT in written
        ]


def sending(way: str, connection: str, forgiven: type[Exception] = TaskFailed) -> Callable[[bytes], None]:
    endpoint = Endpoint("mail.test", 25, connection=connection)

    def send(data: bytes) -> None:
        server = _Submission(data)

        async def main(loop: Loop) -> None:
            submission = SmtpSubmission(endpoint, ACCOUNT, Observer(), LIMIT_S, None, way)
            for recipients in (["a@sim.test"], ["a@sim.test", "b@sim.test"], ["c@sim.test"]):
                before = len(server.messages())
                with forgiving(forgiven):
                    await call(loop, submission.send("user1@sim.test", recipients, MESSAGE))
                    answers = server.messages()[before:]
                    if way != AIOSMTPLIB and not any(map(_ACCEPTS.search, answers)):
                        raise NotAccepted(f"behind the final dot: {answers!r:.200}")
            with forgiving(forgiven):
                await call(loop, submission.close())
            await asyncio.sleep(LIMIT_S * 3)

        play(server, main)

    return send


def sendings() -> tuple[bytes, ...]:
    """One hostile answer, or two, at each place of a message."""
    answers = (
        b"%s", b"250 ok\r\n", b"354 go\r\n", b"550 no\r\n", b"421 x\r\n", b"250 x\r\n%s", b"%s250 x\r\n", b"",
        b"221 bye\r\n", b"OK\r\n", b"2500 x\r\n", b"250-x\r\n550 x\r\n", b"%s250", b"250-x\r\n", b"250 \0\n", *REPLIES,
    )  # fmt: skip
    return tuple(
        b"%d" % at + MARK + answer + further
        for at in range(20)
        for answer in answers
        for further in (b"", MARK + b"%s", MARK + b"550 no\r\n", MARK)
    )


SEND_WORDS = (*SMTP_WORDS, b"%s", MARK, b"250 ok\r\n", b"354 x\r\n", b"503 x\r\n")

TARGETS = (
    Target("imap-visit", mutated(_visits(), VISIT_WORDS), visiting(open_own), share=3),
    Target("aioimaplib-visit", mutated(_visits(), VISIT_WORDS), visiting(open_library), share=1),
    Target("smtp-pipelining", mutated(sendings(), SEND_WORDS), sending(PIPELINING, "kept")),
    Target("smtp-pipelining-each", mutated(sendings(), SEND_WORDS), sending(PIPELINING, "per-message")),
    Target("smtp-sequential", mutated(sendings(), SEND_WORDS), sending(SEQUENTIAL, "kept")),
    Target("smtp-sequential-each", mutated(sendings(), SEND_WORDS), sending(SEQUENTIAL, "per-message")),
    Target("aiosmtplib", mutated(sendings(), SEND_WORDS), sending(AIOSMTPLIB, "kept")),
    Target("aiosmtplib-each", mutated(sendings(), SEND_WORDS), sending(AIOSMTPLIB, "per-message")),
)
