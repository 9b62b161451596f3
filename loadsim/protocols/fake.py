"""An in-memory mail system with a seeded service time, shared by all users of a run: for tests and for `plan`.

It keeps headers, structures and sizes, not contents: a part that is fetched has the right length and no meaning.
Commands are reported under the names that the `imap` and SMTP drivers report them, one for one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from loadsim.errors import ServerRefused
from loadsim.model.content import Contents
from loadsim.model.draw import draw
from loadsim.model.evidence import INITIAL_RUN, Evidence
from loadsim.model.population import distribution_lists
from loadsim.model.ports import (
    CALENDAR,
    DELETED_ITEMS,
    INBOX,
    SENT_ITEMS,
    SUPPORT,
    Account,
    ClientModule,
    Flag,
    Header,
    MessageRef,
    Observer,
    Part,
    Services,
    Session,
    Structure,
)
from loadsim.model.workload import Workload, own_folders
from loadsim.protocols.calendar import MailboxCalendar

HEADER_BYTES = 600
"""About what a message's line in an answer to a FETCH of flags, size, envelope and evidence takes."""


class _Ref(NamedTuple):
    folder: str
    uid: int


@dataclass(frozen=True, slots=True)
class _Mail:
    """What is kept of a message; shared by all mailboxes that hold it."""

    sender: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    evidence: Evidence | None
    size_bytes: int
    structure: Structure


@dataclass(slots=True)
class _Folder:
    """Messages by UID, in order of arrival, each with its flags."""

    messages: dict[int, tuple[_Mail, frozenset[Flag]]] = field(default_factory=dict)
    next_uid: int = 1

    def add(self, mail: _Mail, flags: Iterable[Flag]) -> int:
        uid = self.next_uid
        self.next_uid += 1
        self.messages[uid] = (mail, frozenset(flags))
        return uid


@dataclass(slots=True)
class FakeModule:
    """The mail system and its client module in one, for the users, lists and start state of a workload.

    Each command takes an exponentially distributed time of mean `service_s` (0: none, and no command ever waits),
    drawn from (seed, user, number of the command). `empty` mailboxes have their folders and no mail.
    """

    workload: Workload
    contents: Contents
    service_s: float = 0.020
    empty: bool = False
    name: str = "fake"
    supports: frozenset[str] = SUPPORT
    mailboxes: dict[str, FakeMailbox] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(init=False)
    _samples: dict[str, _Mail] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Learn the lists."""
        self.lists = distribution_lists(self.workload.scenario)

    def folders(self, user: int) -> list[str]:
        """The folders of a user's mailbox."""
        return [INBOX, SENT_ITEMS, DELETED_ITEMS, CALENDAR, *own_folders(self.workload.profile(user))]

    def start_state(self, account: Account, folder: str) -> Iterable[tuple[_Mail, tuple[Flag, ...]]]:
        """What lies in a folder at the start. Messages of one kind share the structure of one that was made."""
        if self.empty:
            return
        for index in range(self.workload.start_state(account.number).get(folder, 0)):
            initial = self.workload.initial(account.number, folder, index)
            sender = self.workload.population.address(initial.sender)
            sample = self._samples.get(initial.kind)
            if sample is None:
                message = self.contents.initial(
                    user=account.number,
                    address=account.address,
                    sender=initial.sender,
                    sender_address=sender,
                    folder=folder,
                    index=index,
                    kind=initial.kind,
                    domain=self.workload.scenario.domain,
                )
                sample = self._samples[initial.kind] = _examine(message)
            evidence = Evidence(INITIAL_RUN, initial.sender, initial.id, initial.kind, 0, "")
            mail = replace(
                sample, sender=sender, to=(account.address,), message_id=f"<{initial.id}>", evidence=evidence
            )
            yield mail, (Flag.SEEN,) if initial.seen else ()

    def session(self, account: Account, observer: Observer) -> Session:
        """The drivers of one user, who is known to the system from now on."""
        mailbox = FakeMailbox(self, account, observer)
        self.mailboxes[account.address.lower()] = mailbox
        return Session(mailbox, FakeSubmission(self, mailbox), MailboxCalendar(mailbox))

    def deliver(self, recipients: Sequence[str], message: bytes) -> None:
        """Put a message into the Inbox of each recipient, once. Raises `ServerRefused` when one is unknown."""
        reached: dict[str, FakeMailbox] = {}
        for address in recipients:
            for member in self.lists.get(address, (address,)):
                mailbox = self.mailboxes.get(member.lower())
                if mailbox is None:
                    raise ServerRefused("550 RCPT", f"550 5.1.1 <{member}> unknown")
                reached[member.lower()] = mailbox
        mail = _examine(message)
        for mailbox in reached.values():
            mailbox.receive(mail)


class FakeMailbox:
    """One user's mailbox (`ports.Mailbox`)."""

    def __init__(self, system: FakeModule, account: Account, observer: Observer) -> None:
        self._system = system
        self._account = account
        self._observer = observer
        self._folders: dict[str, _Folder] = {}
        self._commands = 0
        self._open: str | None = None
        self._shown_uid = 0  # the newest message of the Inbox whose header was given out
        self._announced_uid = 0

    def folder(self, name: str) -> _Folder:
        """A folder, filled with its start state when it is first used. Raises `ServerRefused` when there is none."""
        folder = self._folders.get(name)
        if folder is None:
            if name not in self._system.folders(self._account.number):
                raise ServerRefused("NO SELECT", f"no folder {name}")
            folder = self._folders[name] = _Folder()
            for mail, flags in self._system.start_state(self._account, name):
                folder.add(mail, flags)
        return folder

    def receive(self, mail: _Mail) -> None:
        """A message has come."""
        self.folder(INBOX).add(mail, ())
        if self._open == INBOX:
            self._announce()

    def _announce(self) -> None:
        newest = self.folder(INBOX).next_uid - 1
        if newest > self._announced_uid:
            count = newest - self._announced_uid
            self._announced_uid = newest
            self._observer.arrived(count)

    async def command(self, name: str, sent_bytes: int = 40, received_bytes: int = 40) -> None:
        """Take the service time of one command, and report it."""
        since = self._observer.now()
        if self._system.service_s:
            u = draw(self._system.workload.seed, self._account.number, "service", self._commands)
            await asyncio.sleep(-math.log1p(-u) * self._system.service_s)
        self._commands += 1
        self._observer.command(name, since, "ok", sent_bytes, received_bytes)

    async def log_on(self) -> None:
        """AUTHENTICATE and CAPABILITY."""
        await self.command("IMAP AUTHENTICATE")
        await self.command("IMAP CAPABILITY")

    async def folders(self) -> Sequence[str]:
        """All folders of this mail system; every mailbox has them."""
        names = self._system.folders(self._account.number)
        await self.command("IMAP LIST", 40, 40 * len(names))
        return names

    async def open(self, folder: str) -> None:
        """SELECT, unless the folder is open."""
        if self._open != folder:
            self.folder(folder)
            await self.command("IMAP SELECT", 40, 300)
            self._open = folder
            if folder == INBOX:
                self._announce()

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """The newest headers of a folder."""
        await self.open(folder)
        messages = self.folder(folder).messages
        uids = list(messages)
        if newest is not None:
            uids = uids[max(0, len(uids) - newest) :]
        if folder == INBOX:
            self._shown_uid = self._announced_uid = self.folder(INBOX).next_uid - 1
        if messages:
            await self.command("IMAP FETCH", 120, HEADER_BYTES * len(uids))
        return [_header(folder, uid, *messages[uid]) for uid in uids if uid in messages]

    async def arrived(self) -> Sequence[Header]:
        """What came to the Inbox since the last time."""
        await self.open(INBOX)
        inbox = self.folder(INBOX)
        new = [uid for uid in range(self._shown_uid + 1, inbox.next_uid) if uid in inbox.messages]
        self._shown_uid = self._announced_uid = inbox.next_uid - 1
        await self.command("IMAP UID FETCH", 120, HEADER_BYTES * len(new))
        return [_header(INBOX, uid, *inbox.messages[uid]) for uid in new]

    async def watch(self) -> None:
        """IDLE."""
        await self.open(INBOX)
        self._observer.command("IMAP IDLE", self._observer.now(), "ok", 12, 10)

    async def structure(self, ref: MessageRef) -> Structure:
        """BODYSTRUCTURE."""
        mail, _ = await self._message(ref)
        await self.command("IMAP UID FETCH", 50, 200)
        return mail.structure

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """As many bytes as the part has."""
        await self._message(ref)
        await self.command("IMAP UID FETCH", 50, part.size_bytes + 60)
        return _blank(part.size_bytes)

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """Set or clear a flag."""
        for ref in refs:
            mail, flags = await self._message(ref)
            folder, uid = _place(ref)
            self.folder(folder).messages[uid] = (mail, flags | {flag} if on else flags - {flag})
        await self.command("IMAP UID STORE")

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Out of one folder, into another."""
        target = self.folder(folder)
        for ref in refs:
            target.add(*await self._message(ref))
            self._remove(ref)
        await self.command("IMAP UID MOVE", 60, 100)

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Into another folder as well."""
        target = self.folder(folder)
        for ref in refs:
            target.add(*await self._message(ref))
        await self.command("IMAP UID COPY", 60, 80)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        """A message that the user has made."""
        uid = self.folder(folder).add(_examine(message), flags)
        await self.command("IMAP APPEND", len(message) + 60, 60)
        return _Ref(folder, uid)

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """Gone for good."""
        for ref in refs:
            await self._message(ref)
            self._remove(ref)
        await self.command("IMAP UID STORE")
        await self.command("IMAP UID EXPUNGE")

    async def log_off(self) -> None:
        """LOGOUT."""
        await self.command("IMAP LOGOUT")
        self.abandon()

    def abandon(self) -> None:
        """No session any more; the mailbox stays."""
        self._open = None

    async def _message(self, ref: MessageRef) -> tuple[_Mail, frozenset[Flag]]:
        folder, uid = _place(ref)
        await self.open(folder)
        try:
            return self.folder(folder).messages[uid]
        except KeyError:
            raise ServerRefused("FETCH without data") from None

    def _remove(self, ref: MessageRef) -> None:
        folder, uid = _place(ref)
        del self.folder(folder).messages[uid]


@dataclass(slots=True)
class FakeSubmission:
    """The way of one user's messages into the system (`ports.Submission`), by one connection per message."""

    system: FakeModule
    mailbox: FakeMailbox

    async def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Deliver at once, after the service times of the dialogue."""
        for name in ("CONNECT", "EHLO", "MAIL", *["RCPT"] * len(recipients)):
            await self.mailbox.command(f"SMTP {name}")
        await self.mailbox.command("SMTP DATA", len(message), 40)
        self.system.deliver(recipients, message)

    async def check(self) -> None:
        """There is nothing that could be wrong."""

    async def close(self) -> None:
        """Nothing is kept."""


def _place(ref: MessageRef) -> _Ref:
    if not isinstance(ref, _Ref):
        raise TypeError(f"expected a reference that this mailbox gave out, found {ref!r}")
    return ref


def _header(folder: str, uid: int, mail: _Mail, flags: frozenset[Flag]) -> Header:
    return Header(
        ref=_Ref(folder, uid),
        seen=Flag.SEEN in flags,
        size_bytes=mail.size_bytes,
        sender=mail.sender,
        to=mail.to,
        subject=mail.subject,
        message_id=mail.message_id,
        evidence=mail.evidence,
    )


def _examine(message: bytes) -> _Mail:
    """What is kept of a message (as loadsim makes them: ASCII headers, at most one level of parts)."""
    head, _, body = message.partition(b"\r\n\r\n")
    fields = _fields(head)
    return _Mail(
        sender=_bare(fields.get("from", "")),
        to=tuple(_bare(address) for address in fields.get("to", "").split(",")),
        subject=fields.get("subject", ""),
        message_id=fields.get("message-id", ""),
        evidence=Evidence.parse(fields.get("x-loadsim", "")),
        size_bytes=len(message),
        structure=_structure(fields.get("content-type", "text/plain"), body),
    )


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("ascii", "replace").replace("\r\n ", " ").replace("\r\n\t", " ").split("\r\n")
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _bare(address: str) -> str:
    return address[address.rfind("<") + 1 :].strip(" >")


def _structure(content_type: str, body: bytes) -> Structure:
    media_type = content_type.partition(";")[0]
    if not media_type.startswith("multipart/"):
        return Structure(_part("1", media_type, len(body)))
    boundary = b"--" + content_type.partition("boundary=")[2].partition(";")[0].strip(' "').encode()
    text: Part | None = None
    attachments = []
    for number, piece in enumerate((b"\r\n" + body).split(b"\r\n" + boundary)[1:-1], start=1):
        head, _, content = piece.partition(b"\r\n\r\n")
        fields = _fields(head)
        part = _part(str(number), fields.get("content-type", "text/plain").partition(";")[0], len(content))
        if text is None and part.content_type.startswith("text/"):
            text = part
        else:
            encoding = fields.get("content-transfer-encoding", "7bit")
            attachments.append(replace(part, encoding=encoding, filename=f"part{number}"))
    return Structure(text, tuple(attachments))


@lru_cache(maxsize=4096)
def _part(name: str, content_type: str, size_bytes: int) -> Part:
    return Part(name, content_type, size_bytes)


@lru_cache(maxsize=64)
def _blank(size_bytes: int) -> bytes:
    return b"." * size_bytes


def open_module(_: Services, *, workload: Workload, contents: Contents, **options: Any) -> ClientModule:
    """The entry point `fake`; it also needs to know whose mail system it is. Options are `FakeModule`'s fields."""
    return FakeModule(workload, contents, **options)
