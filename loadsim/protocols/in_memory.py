"""An in-memory mail system with seeded service times, shared by all users of a run; for tests and `plan`.

It keeps headers, structures and sizes, but no contents: a fetched part is composed again from the message's id. It
reports commands under the same names as `imap` and SMTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast, overload

from loadsim.errors import MailMissing, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.content.compose import Contents
from loadsim.model.content.sized import MEDIA_TYPE, layout
from loadsim.model.draws import draw, exponential
from loadsim.model.message_tag import INITIAL_RUN, MessageTag
from loadsim.model.ports import (
    ALL_TASKS,
    CALENDAR,
    DELETED_ITEMS,
    DRAFTS,
    INBOX,
    OF_ALL_USERS,
    PUBLIC,
    SENT_ITEMS,
    Account,
    Driver,
    Endpoint,
    Flag,
    Header,
    MessageRef,
    Observer,
    Part,
    SearchKey,
    Services,
    Session,
    Structure,
    Submission,
)
from loadsim.model.terms import COPIED, EMPTIED, RECEIVED, SAVED, SCHEDULES
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.in_memory_mail import MailInMemory, parse_mail, shared
from loadsim.scenario.mailboxes import LEAST_BYTES
from loadsim.scenario.workload import Initial, Workload

HEADER_BYTES = 600
"""The approximate size of a message's FETCH response with flags, size, envelope and tag."""

NO_FLAGS: frozenset[Flag] = frozenset()
SEEN = frozenset({Flag.SEEN})


@dataclass(slots=True, eq=False)
class _Message:
    folder: _Folder
    uid: int
    mail: MailInMemory
    flags: frozenset[Flag]


class _Folder:
    """Messages by UID, in order of arrival; the first `initial` UIDs are the start state's.

    A message of the start state is None until its first use; the last `unread` of them are unread.
    """

    def __init__(self, name: str, initial: int, unread: int = 0) -> None:
        self.name = name
        self.messages: dict[int, _Message | None] = dict.fromkeys(range(1, initial + 1))
        self.next_uid = initial + 1
        self.unread_from = self.next_uid - unread

    def add(self, mail: MailInMemory, flags: frozenset[Flag]) -> _Message:
        uid = self.next_uid
        self.next_uid += 1
        message = self.messages[uid] = _Message(self, uid, mail, flags)
        return message


Fault = Callable[[int, str, int], Exception | None]
"""Returns a command's failure, or None, given the user's number, the command's name, and the count of earlier commands.

An exception other than `TaskFailed` simulates an error in the driver itself.
"""

Pace = Callable[[int, str, int, float], float]
"""Returns a command's duration in seconds; infinite if no answer ever arrives.

The arguments are the user's number, the command's name, its start (ns), and the service time drawn for it (s).
"""

Post = Callable[[MailInMemory, Sequence[int]], None]
"""Takes a message accepted for these users, and later calls `arrive` for it."""


@dataclass(slots=True)
class InMemoryDriver:
    """The mail system and its driver in one, for a workload's users, lists and start state.

    Each command takes an exponentially distributed time with mean `service_s`, drawn from (seed, user, command number);
    `pace` may change it. With 0, no command ever waits. `empty` mailboxes have their folders but no mail.

    `fault` selects commands that fail. A refused command has no effect; a lost or silent one ends the session. A silent
    command, or one that would take longer, fails after `limit_s`.

    Mail arrives at once, or when `post` calls `arrive`. With `post`, some users' mailboxes may be in another process;
    each user then sees the public folder with their own posts only, wherever the others are.

    `endpoints` returns a user's SMTP endpoint, which determines how often they connect, and which commands precede a
    connection's first message. Without it, users send CONNECT and EHLO for each message.

    `mailbox_type` is the class of the mailboxes; a simulated faulty server has its own.

    `stored_bytes` counts the mailboxes' growth since the start state, by cause (`terms.STORED`).
    """

    workload: Workload
    contents: Contents
    service_s: float = 0.020
    empty: bool = False
    fault: Fault | None = None
    pace: Pace | None = None
    limit_s: float = 60.0
    name: str = "fake"
    supported_tasks: frozenset[str] = ALL_TASKS
    post: Post | None = None
    endpoints: Callable[[int], Endpoint] | None = None
    mailbox_type: type[InMemoryMailbox] | None = None
    stored_bytes: Counter[str] = field(default_factory=Counter)
    public: _Folder = field(init=False)
    mailboxes: dict[int, InMemoryMailbox] = field(default_factory=dict)  # by the user's number
    lists: Mapping[str, Sequence[int]] = field(init=False)  # members by list address
    _samples: dict[str, MailInMemory] = field(default_factory=dict)
    _sized_head_bytes: int = 0

    def __post_init__(self) -> None:
        lists = self.workload.population.lists
        self.public = self.public_folder()
        self.lists = {lists.address(index): lists.members(index) for index in range(len(lists))}

    def public_folder(self) -> _Folder:
        """Return the public folder in its start state."""
        count = 0 if self.empty else self.workload.start_state(OF_ALL_USERS)[PUBLIC]
        return _Folder(PUBLIC, count, count)

    def initial(self, account: Account, folder: str, index: int) -> MailInMemory:
        """Return a message of the start state, with the subject and structure of its kind's sample.

        A message of a stated size gets the structure for that size, assuming a header as long as the sample's.
        """
        initial = self.workload.initial(OF_ALL_USERS if folder == PUBLIC else account.number, folder, index)
        sample = self._samples.get(initial.kind) or self._sample(initial)
        if initial.size_bytes is not None:
            size_bytes = max(initial.size_bytes, sample.size_bytes)
            sample = sample._replace(size_bytes=size_bytes, structure=self._structure(size_bytes))
        return sample._replace(
            sender=self.workload.population.address(initial.sender),
            to=(account.address,),
            message_id=f"<{initial.id}>",
            tag=MessageTag(INITIAL_RUN, initial.sender, initial.id, initial.kind, 0, ""),
        )

    def _structure(self, size_bytes: int) -> Structure:
        text_bytes, file_bytes = layout(size_bytes - self._sized_head_bytes)
        attached = (Part("2", MEDIA_TYPE, file_bytes, "part2", "base64"),) if file_bytes else ()
        return Structure(shared(Part("1", "text/plain", text_bytes, None, "")), attached)

    def _sample(self, initial: Initial) -> MailInMemory:
        """Parse a sample of this kind: always user 1's, so that it does not depend on who needs it first."""
        population = self.workload.population
        message = self.contents.initial(
            user=1,
            address=population.address(1),
            sender=2,
            sender_address=population.address(2),
            folder=INBOX,
            index=0,
            kind=initial.kind,
            domain=self.workload.scenario.domain,
            size_bytes=None if initial.size_bytes is None else LEAST_BYTES,
        )
        sample = self._samples[initial.kind] = parse_mail(message)
        self._sized_head_bytes = message.index(b"Content-Type: ")
        return sample

    def session(self, account: Account, observer: Observer) -> Session:
        mailbox = (self.mailbox_type or InMemoryMailbox)(self, account, observer)
        self.mailboxes[account.number] = mailbox
        endpoint = self.endpoints(account.number) if self.endpoints is not None else None
        return Session(mailbox, InMemorySubmission(mailbox.dialogue, endpoint), MailboxCalendar(mailbox))

    def outside(self, account: Account, observer: Observer) -> Submission:
        endpoint = self.endpoints(account.number) if self.endpoints is not None else None
        endpoint = None if endpoint is None else replace(endpoint, auth=False)
        return InMemorySubmission(_Dialogue(self, account.number, observer), endpoint)

    def reached(self, recipients: Sequence[str]) -> Sequence[int]:
        """Return the users who get a message to these recipients. Raises `ServerRefused` if one is unknown."""
        reached: dict[int, None] = {}
        for address in recipients:
            user = self.workload.population.number(address)
            if user is not None:
                reached[user] = None
            elif address in self.lists:
                reached.update(dict.fromkeys(self.lists[address]))
            else:
                raise ServerRefused("550 RCPT", f"550 5.1.1 <{address}> unknown")
        return tuple(reached)

    def deliver(self, users: Sequence[int], message: bytes) -> None:
        """Accept a message for these users."""
        mail = parse_mail(message)
        if self.post is None:
            self.arrive(mail, users)
        else:
            self.post(mail, users)

    def arrive(self, mail: MailInMemory, users: Iterable[int]) -> None:
        for user in users:
            self.mailboxes[user].receive(mail)


@dataclass(slots=True, eq=False)
class _Dialogue:
    """The commands of one user or outside sender, in any protocol; `commands` have been counted so far."""

    system: InMemoryDriver
    user: int
    observer: Observer
    commands: int = 0
    instant: bool = field(init=False)

    def __post_init__(self) -> None:
        self.instant = not self.system.service_s and self.system.fault is None and self.system.pace is None

    async def serve(self, name: str, sent_bytes: int, received_bytes: int) -> None:
        """Wait for the service time of one command, report it, and raise its failure, if any."""
        system, observer = self.system, self.observer
        since = observer.now()
        if self.instant:
            observer.command(name, since, "ok", sent_bytes, received_bytes)
            return
        number = self.commands
        self.commands += 1
        failure = system.fault(self.user, name, number) if system.fault is not None else None
        if failure is not None and not isinstance(failure, TaskFailed):
            raise failure
        took_s = 0.0
        if system.service_s:
            u = draw(system.workload.seed, self.user, "service", number)
            took_s = exponential(u) * system.service_s
        if system.pace is not None:
            took_s = system.pace(self.user, name, since, took_s)
        if took_s > system.limit_s:
            failure = ServerSilent(f"no answer to {name}")
        if failure is not None and failure.outcome == "timeout":
            took_s = system.limit_s
        if took_s:
            await asyncio.sleep(took_s)
        if failure is not None:
            observer.command(name, since, failure.outcome, sent_bytes, 0)
            raise failure
        observer.command(name, since, "ok", sent_bytes, received_bytes)


class InMemoryMailbox:
    """One user's mailbox (`ports.Mailbox`)."""

    def __init__(self, system: InMemoryDriver, account: Account, observer: Observer) -> None:
        self._system = system
        self._account = account
        self._observer = observer
        writes_drafts = system.workload.population.group(account.number).writes_drafts
        self._names = _folders(system.workload.own_folders(account.number), writes_drafts)
        self._initial = {} if system.empty else system.workload.start_state(account.number)
        unread = 0 if system.empty else system.workload.initially_unread(account.number)
        self._inbox = _Folder(INBOX, self._initial.get(INBOX, 0), unread)
        self._folders = {INBOX: self._inbox}
        self.dialogue = _Dialogue(system, account.number, observer)
        self._sessions = 0  # made so far
        self._on = False
        self._calling = False  # a command is under way
        self._open: str | None = None
        self._shown_uid = 0  # the newest message of the Inbox whose header was returned
        self._announced_uid = 0

    def folder(self, name: str) -> _Folder:
        """Return a folder, created in its start state at its first use. Raises `ServerRefused` for an unknown name."""
        folder = self._folders.get(name)
        if folder is None and name == PUBLIC:
            system = self._system
            folder = self._folders[PUBLIC] = system.public if system.post is None else system.public_folder()
        if folder is None:
            if name not in self._names:
                raise ServerRefused("NO SELECT", f"no folder {name}")
            folder = self._folders[name] = _Folder(name, self._initial.get(name, 0))
        return folder

    def receive(self, mail: MailInMemory) -> None:
        """Add a message to the Inbox, and announce it if the Inbox is open."""
        self._inbox.add(mail, NO_FLAGS)
        self._system.stored_bytes[RECEIVED] += mail.size_bytes
        if self._open == INBOX:
            self._announce()

    def break_off(self, failure: TaskFailed) -> None:
        """Break the connection. A command under way fails at its end; if there is none, the observer gets `failure`."""
        if self._on:
            self.abandon()
            if not self._calling:
                self._observer.lost(failure)

    def _announce(self) -> None:
        new = self._inbox.next_uid - 1 - self._announced_uid
        if new > 0:
            self._announced_uid += new
            self._observer.arrived(new)

    async def _command(self, name: str, sent_bytes: int = 40, received_bytes: int = 40) -> None:
        """Wait for the service time of one of the session's commands, report it, and raise its failure, if any."""
        if not self._on:
            raise ServerLost("not logged on")
        if self.dialogue.instant:
            self._observer.command(name, self._observer.now(), "ok", sent_bytes, received_bytes)
            return
        session = self._sessions
        self._calling = True
        try:
            await self.dialogue.serve(name, sent_bytes, received_bytes)
        except TaskFailed as failure:
            if failure.outcome != "refused":
                self.abandon()
            raise
        finally:
            self._calling = False
        if not self._on or session != self._sessions:
            raise ServerLost("connection broken")

    async def log_on(self) -> None:
        self.abandon()
        self._on = True
        self._sessions += 1
        try:
            await self._command("IMAP AUTHENTICATE")
            await self._command("IMAP CAPABILITY")
        except TaskFailed:
            self.abandon()
            raise

    async def folders(self) -> Sequence[str]:
        await self._command("IMAP LIST", 40, 40 * len(self._names))
        return self._names

    async def open(self, folder: str) -> None:
        """SELECT, unless the folder is open. Announces the mail that arrived while the Inbox was closed."""
        if self._open != folder:
            await self._select(folder)
            if folder == INBOX:
                self._announce()

    async def _select(self, folder: str) -> None:
        self.folder(folder)
        await self._command("IMAP SELECT", 40, 300)
        self._open = folder

    @property
    def messages(self) -> int:
        return 0 if self._open is None else len(self.folder(self._open).messages)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        if self._open != folder:
            await self._select(folder)
        listed = self.folder(folder)
        uids = list(listed.messages)
        if newest is not None:
            uids = uids[max(0, len(uids) - newest) :]
        if uids:
            if folder == INBOX:
                self._announced_uid = listed.next_uid - 1
            await self._command("IMAP FETCH", 120, HEADER_BYTES * len(uids))
            if folder == INBOX:
                self._shown_uid = max(self._shown_uid, uids[-1])
        return _Headers(self, listed, uids)

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        if self._open != folder:
            await self._select(folder)
        listed, sought = self.folder(folder), words.lower()
        found = [uid for uid in listed.messages if sought in self._searched(self.header(listed, uid), key).lower()]
        await self._command("IMAP UID SEARCH", 40 + len(words), 20 + 5 * len(found))
        if uids := found[-newest:]:
            await self._command("IMAP UID FETCH", 120, HEADER_BYTES * len(uids))
        return [self.header(listed, uid) for uid in uids if uid in listed.messages]  # the others have been moved

    def _searched(self, header: Header, key: SearchKey) -> str:
        """Return what a search by this key looks at; for texts, also what an answer may have been."""
        if key is not SearchKey.TEXT:
            return header.sender if key is SearchKey.SENDER else header.subject
        texts = self._system.contents.sent(header.tag, True) if header.tag else ()
        return " ".join([header.sender, header.subject, *(text.body.decode("ascii") for text in texts)])

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """UID FETCH of messages since the last listing of the Inbox, or with `reopen`, since the start state."""
        if self._open != INBOX or reopen:
            await self._select(INBOX)
        inbox = self._inbox
        shown = self._initial.get(INBOX, 0) if reopen else self._shown_uid
        new = [uid for uid in range(shown + 1, inbox.next_uid) if uid in inbox.messages]
        self._announced_uid = inbox.next_uid - 1
        await self._command("IMAP UID FETCH", 120, HEADER_BYTES * len(new))
        if new:
            self._shown_uid = max(self._shown_uid, new[-1])
        return [self.header(inbox, uid) for uid in new]

    async def watch(self) -> None:
        await self.open(INBOX)
        if not self._on:
            raise ServerLost("not logged on")
        self._observer.command("IMAP IDLE", self._observer.now(), "ok", 12, 10)

    async def structure(self, ref: MessageRef) -> Structure:
        (message,) = await self._run_on("IMAP UID FETCH", (ref,), 50, 200)
        return message.mail.structure

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """FETCH of a part: what was sent under the message's id if its size is right, else filler."""
        (message,) = await self._run_on("IMAP UID FETCH", (ref,), 50, part.size_bytes + 60)
        text, tag = message.mail.structure.text, message.mail.tag
        is_text = text is not None and part.name == text.name
        if tag and tag.body:
            contents = self._system.contents
            for sent in contents.sent(tag, is_text):
                if len(sent.body) == part.size_bytes and not contents.is_altered(tag, part, sent.body, is_text, False):
                    return bytes(sent.body)
        return _blank(part.size_bytes)

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        for message in await self._run_on("IMAP UID STORE", refs):
            message.flags = message.flags | {flag} if on else message.flags - {flag}

    def keeps(self, flag: str) -> bool:
        return True

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        _remove(await self._copy("IMAP UID MOVE", refs, folder))

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        copied = await self._copy("IMAP UID COPY", refs, folder)
        self._system.stored_bytes[COPIED] += _size_bytes(copied)

    async def _copy(self, command: str, refs: Sequence[MessageRef], folder: str) -> Sequence[_Message]:
        target = self.folder(folder)
        messages = await self._run_on(command, refs, 60, 100)
        for message in messages:
            target.add(message.mail, message.flags)
        return messages

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        target = self.folder(folder)
        await self._command("IMAP APPEND", len(message) + 60, 60)
        if folder != PUBLIC:
            self._system.stored_bytes[SCHEDULES if folder == CALENDAR else SAVED] += len(message)
        return target.add(parse_mail(message), frozenset(flags))

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        if messages := await self._run_on("IMAP UID STORE", refs):
            await self._command("IMAP UID EXPUNGE")
            cause = SCHEDULES if messages[0].folder.name == CALENDAR else EMPTIED
            self._system.stored_bytes[cause] -= _size_bytes(messages)
            _remove(messages)

    async def log_off(self) -> None:
        await self._command("IMAP LOGOUT")
        self.abandon()

    def abandon(self) -> None:
        self._on = False
        self._open = None

    def header(self, folder: _Folder, uid: int) -> Header:
        message = folder.messages[uid]
        if message is None:
            mail = self._system.initial(self._account, folder.name, uid - 1)
            flags = SEEN if uid < folder.unread_from else NO_FLAGS
            message = folder.messages[uid] = _Message(folder, uid, mail, flags)
        mail = message.mail
        return Header(
            message, message.flags, mail.size_bytes, mail.sender, mail.to, mail.subject, mail.message_id, mail.tag
        )

    async def _run_on(
        self, command: str, refs: Sequence[MessageRef], sent_bytes: int = 40, received_bytes: int = 40
    ) -> Sequence[_Message]:
        """Open the messages' folder, and run a command on them, if any. Raises `MailMissing` if one is gone."""
        if not refs:
            return ()
        if not isinstance(refs[0], _Message):
            raise TypeError(f"expected references that this mailbox gave out, found {refs[0]!r}")
        messages = cast("Sequence[_Message]", refs)
        folder = messages[0].folder
        if self._open != folder.name:
            await self.open(folder.name)
        for message in messages:
            if folder.messages.get(message.uid) is not message:
                raise MailMissing("FETCH without data")
        await self._command(command, sent_bytes, received_bytes)
        return messages


@dataclass(slots=True, eq=False)
class _Headers(Sequence[Header]):
    """A list of headers, each made on access, since users often list a folder to read a single message."""

    mailbox: InMemoryMailbox
    folder: _Folder
    uids: Sequence[int]

    def __len__(self) -> int:
        return len(self.uids)

    @overload
    def __getitem__(self, index: int) -> Header: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Header]: ...
    def __getitem__(self, index: int | slice) -> Header | Sequence[Header]:
        if isinstance(index, slice):
            return _Headers(self.mailbox, self.folder, self.uids[index])
        return self.mailbox.header(self.folder, self.uids[index])


@dataclass(slots=True)
class InMemorySubmission:
    """One user's submission (`ports.Submission`), with a connection per message or a kept one.

    Losing a connection does not affect the mailbox's session.
    """

    dialogue: _Dialogue
    endpoint: Endpoint | None = None  # None: without AUTH and TLS
    _connected: bool = field(default=False, init=False)

    async def send(
        self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None = None
    ) -> bool:
        """Deliver a message once the dialogue's service times have elapsed. Return False: there are no receipts."""
        system, serve = self.dialogue.system, self.dialogue.serve
        greeting = () if self._connected else _greeting(self.endpoint)
        self._connected = False  # a failure ends the connection
        mail, rcpt, data = _OF_LMTP if self.endpoint is not None and self.endpoint.lmtp else _OF_SMTP
        for name in (*greeting, mail, *[rcpt] * len(recipients)):
            await serve(name, 40, 40)
        users = system.reached(recipients)
        await serve(data, len(message), 40)
        self._connected = self.endpoint is not None and self.endpoint.connection == "kept"
        system.deliver(users, message)
        return False

    async def check(self) -> None:
        """Do nothing: there is no server to reach."""

    async def close(self) -> None:
        self._connected = False


_OF_SMTP = ("SMTP MAIL", "SMTP RCPT", "SMTP DATA")
_OF_LMTP = ("LMTP MAIL", "LMTP RCPT", "LMTP DATA")


def _greeting(endpoint: Endpoint | None) -> tuple[str, ...]:
    """Return the commands that precede a connection's first message, as reports name them."""
    if endpoint is None:
        return ("SMTP CONNECT", "SMTP EHLO")
    service, hello = ("LMTP", "LHLO") if endpoint.lmtp else ("SMTP", "EHLO")
    secured = ("STARTTLS", hello) if endpoint.tls == "starttls" else ()
    names = ("CONNECT", hello, *secured, *(("AUTH",) if endpoint.auth else ()))
    return tuple([f"{service} {name}" for name in names])


@lru_cache
def _folders(own: tuple[str, ...], writes_drafts: bool) -> tuple[str, ...]:
    """Return a mailbox's folders; users of the same profile share the tuple."""
    return (INBOX, SENT_ITEMS, DELETED_ITEMS, CALENDAR, *([DRAFTS] if writes_drafts else []), *own)


def _size_bytes(messages: Iterable[_Message]) -> int:
    return sum([message.mail.size_bytes for message in messages])


def _remove(messages: Iterable[_Message]) -> None:
    for message in messages:
        del message.folder.messages[message.uid]


@lru_cache(maxsize=64)
def _blank(size_bytes: int) -> bytes:
    return b"." * size_bytes


def open_driver(_: Services, *, workload: Workload, contents: Contents, **options: Any) -> Driver:
    """Return the driver (entry point `fake`), which needs the workload. `options` are `InMemoryDriver`'s fields."""
    return InMemoryDriver(workload, contents, **options)
