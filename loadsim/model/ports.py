"""The seams between what users do and how it reaches a server: mail in the words of mail.

A *client module* composes drivers for `Mailbox`, `Submission` and `Calendar`. Tasks are written against these;
they know no protocol and no clock. A driver knows no clock either: it tells its `Observer` what it does, and
the observer holds the clock. Every call of a driver may raise `TaskFailed` (refused, lost, silent) and nothing
else; after `ServerLost` or `ServerSilent` the session is gone, until `log_on` makes a new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from loadsim.model.message_tag import MessageTag
from loadsim.model.records import MailRecord, TaskRecord

MessageRef = Hashable
"""A message in a folder of one mailbox; opaque, valid over re-established sessions."""

INBOX = "INBOX"
SENT_ITEMS = "Sent Items"
DELETED_ITEMS = "Deleted Items"
CALENDAR = "Calendar"


class Flag(StrEnum):
    """What a message can be marked with; the values are IMAP's (RFC 9051 section 2.3.2)."""

    SEEN = "\\Seen"
    ANSWERED = "\\Answered"
    FORWARDED = "$Forwarded"


class Header(NamedTuple):
    """One line of a message list. `evidence` is None when loadsim did not make it.

    It may have been copied: see `message_tag.vouched`.
    """

    ref: MessageRef
    seen: bool
    size_bytes: int
    sender: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    evidence: MessageTag | None


class Part(NamedTuple):
    """One leaf of a MIME structure. `name` addresses it ("1", "2.1"); sizes are of the encoded form."""

    name: str
    content_type: str
    size_bytes: int
    filename: str | None = None
    encoding: str = "7bit"


class Structure(NamedTuple):
    """What a message consists of: the text to show (None when it has none), and what is attached or embedded."""

    text: Part | None
    attachments: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """The account of user `number` (from 1). The password never reaches a log, a report or an error.

    `manifest_key`, also secret, signs the manifest of the mailbox; if it is None, the password does.
    """

    number: int
    login: str
    address: str
    password: str
    manifest_key: str | None = None

    @property
    def domain(self) -> str:
        """The scenario's domain, in lower case."""
        return self.address.rpartition("@")[2].lower()

    def __repr__(self) -> str:
        return f"Account({self.number}, {self.login!r}, {self.address!r})"


class Observer(Protocol):
    """Hears what the drivers of one user do. Its methods return at once and never raise."""

    def now(self) -> int:
        """The instant, in nanoseconds; to be given back to `command`."""
        ...

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        """A protocol command that began at `since` has ended now, with ok, refused, lost or timeout.

        Names are the protocol's own: "IMAP UID FETCH", "SMTP DATA".
        """
        ...

    def arrived(self, messages: int) -> None:
        """The server announced this many new messages in the Inbox; `Mailbox.arrived` will bring their headers."""
        ...

    def lost(self, failure: Exception) -> None:
        """The session broke while no call was waiting for it. (A waiting call raises instead.)"""
        ...


class Mailbox(Protocol):
    """One user's mailbox, over one session at a time. One call at a time."""

    async def log_on(self) -> None:
        """Connect, secure, authenticate. Also makes a new session when the old one was lost."""
        ...

    async def folders(self) -> Sequence[str]:
        """The names of all folders that can hold messages, INBOX included."""
        ...

    async def open(self, folder: str) -> None:
        """Make this the open folder, unless it is. Only an open Inbox announces new messages."""
        ...

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """Open the folder; the headers of its `newest` messages, oldest of them first; None for all."""
        ...

    async def arrived(self) -> Sequence[Header]:
        """Open the Inbox; headers of what came since the last `headers(INBOX)` or `arrived()`, oldest first."""
        ...

    async def watch(self) -> None:
        """Ask the server to announce new mail while nothing else is done (IMAP IDLE, or polling).

        Returns when this is under way. Opens the Inbox if another folder is open; any other call ends it.
        """
        ...

    async def structure(self, ref: MessageRef) -> Structure:
        """What the message consists of."""
        ...

    async def part(self, ref: MessageRef, part: Part) -> bytes | bytearray:
        """One part, as it is encoded in the message; perhaps a bytearray when it is large, to be read only.

        Does not mark the message as seen.
        """
        ...

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """Set or clear a flag on messages of one folder."""
        ...

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Move messages of one folder to another."""
        ...

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Copy messages of one folder to another."""
        ...

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        """Put a message (RFC 5322, CRLF) into a folder; its reference when the server tells it (UIDPLUS)."""
        ...

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """Delete messages of one folder for good: these, and no others that carry a deleted flag."""
        ...

    async def log_off(self) -> None:
        """Say goodbye and close."""
        ...

    def abandon(self) -> None:
        """Close at once, without a word. May be called at any time, and twice."""
        ...


class Submission(Protocol):
    """The way of one user's new messages to the server."""

    async def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Submit one message (RFC 5322, CRLF); returns when the server has accepted it for every recipient.

        Raises `ServerRefused` when it refused the sender, any recipient or the message; then nobody gets it.
        """
        ...

    async def check(self) -> None:
        """Connect, secure, authenticate as for a message, and leave: nothing is sent."""
        ...

    async def close(self) -> None:
        """Close a connection that was kept, politely."""
        ...


class Calendar(Protocol):
    """Where one user's schedule lies."""

    async def replace(self, schedule: bytes) -> None:
        """Put the new schedule file (a whole message, RFC 5322, CRLF) in place of the old one."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """The drivers of one user, as a client module composed them."""

    mailbox: Mailbox
    submission: Submission
    calendar: Calendar


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service listens. `tls` is none, starttls or implicit; `ca_file` None means the system's authorities.

    `authorities` is what stands in `ca_file`, for those who have no such file: PEM certificates. None: not read yet.

    `connection` (SMTP) is per-message or kept; `auth` (SMTP) says whether to authenticate when the server offers it.
    `sources` are the local addresses to connect from; none leave it to the system. `resumes` says whether clients
    offer their last TLS session when they connect again.
    """

    host: str
    port: int
    tls: str = "none"
    ca_file: str | None = None
    connection: str = "per-message"
    auth: bool = True
    sources: tuple[str, ...] = ()
    resumes: bool = True
    authorities: str | None = None

    def source(self, user: int) -> str | None:
        """The local address that this user's connections start from; None leaves it to the system."""
        return self.sources[user % len(self.sources)] if self.sources else None


SUBMISSIONS = ("aiosmtplib", "pipelining")
"""The ways of submitting mail: a command at a time, as most mail programs do, or all of a message's in one packet."""


VISIT_COMMANDS = 20
"""The time limit of a visit to a mailbox, as a multiple of the time limit of a command."""


@dataclass(frozen=True, slots=True)
class Services:
    """The mail server under test, as its clients reach it, and the time limit of a single command in seconds.

    `submission` is how they submit mail, one of `SUBMISSIONS`.
    """

    imap: Endpoint
    smtp: Endpoint
    command_limit_s: float = 60.0
    submission: str = SUBMISSIONS[0]

    @property
    def visit_limit_s(self) -> float:
        """The time limit of one visit to a mailbox, by `init` or `clean`, from connecting to the end."""
        return VISIT_COMMANDS * self.command_limit_s


@runtime_checkable
class Driver(Protocol):
    """What an entry point of the group `loadsim.protocols` returns when it is called with `Services`.

    One instance serves all users of an engine; it is where a TLS context or a connection pool lives.
    """

    name: str
    supported_tasks: frozenset[str]
    """The tasks that its sessions can do, of `ALL_TASKS`; a driver without this attribute supports all."""

    def session(self, account: Account, observer: Observer) -> Session:
        """The drivers of one user; nothing is connected yet."""
        ...


ALL_TASKS = frozenset(
    (
        *("LOGON", "SYNC", "READ", "LOAD ATTACHMENT", "SEND", "REPLY", "REPLY ALL", "FORWARD", "SAVE SENT", "MOVE"),
        *("COPY", "DELETE", "BROWSE", "SCHEDULE", "EVICT", "LOGOFF"),
    )
)
"""The names of all tasks, of which a driver may support some."""


class Clock(Protocol):
    """The one clock of a run."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds; only differences mean anything."""
        ...


class Recorder(Protocol):
    """Takes measurements. Instants are nanoseconds of the run's clock; None means "never happened"."""

    def task(self, record: TaskRecord) -> None:
        """Record a task that has ended, or that the end of the run left undone."""
        ...

    def mail(self, record: MailRecord) -> None:
        """Record an event of a message."""
        ...

    def command(
        self,
        command: str,
        user: int,
        started_ns: int,
        ended_ns: int,
        outcome: str,
        sent_bytes: int,
        received_bytes: int,
    ) -> None:
        """Record a protocol command that has ended."""
        ...


class Stored(Protocol):
    """A message as it lies in a folder."""

    @property
    def ref(self) -> MessageRef:
        """Its reference."""
        ...

    @property
    def flags(self) -> frozenset[str]:
        """The server's flags, in lower case."""
        ...

    @property
    def evidence(self) -> MessageTag | None:
        """The evidence in its X-LoadSim header; None if it has none. A header can be copied."""
        ...

    @property
    def sender(self) -> str:
        """The address in From."""
        ...

    @property
    def message_id(self) -> str:
        """The Message-ID, with its angle brackets."""
        ...


class FolderCounts(Protocol):
    """What a server says of a folder without opening it."""

    @property
    def messages(self) -> int:
        """How many messages lie in it."""
        ...


class Provisioning(Mailbox, Protocol):
    """A mailbox that can also be brought to a wanted state, many messages at a time.

    None of this changes anything that it is not told to change: listing a folder marks nothing as seen.
    """

    async def create(self, folder: str) -> None:
        """Create a folder."""
        ...

    async def delete(self, folder: str) -> None:
        """Delete a folder, and what is in it."""
        ...

    async def status(self, folder: str) -> FolderCounts:
        """Ask for the number of messages in a folder, which is left first: a session's view of it may be stale.

        Raises `ServerRefused` if the answer lacks the number.
        """
        ...

    async def listing(self, folders: Iterable[str]) -> Mapping[str, Sequence[Stored]]:
        """All messages of these folders, each folder's in the order in which they came into it."""
        ...

    async def append_many(
        self, folder: str, messages: Sequence[tuple[bytes, Sequence[Flag]]]
    ) -> Sequence[MessageRef | None]:
        """Put messages (RFC 5322, CRLF) into a folder, in this order and without waiting for each; as `append`."""
        ...

    async def set_flags(self, refs: Sequence[MessageRef], flags: Sequence[Flag]) -> None:
        """Give messages of one folder exactly these flags."""
        ...
