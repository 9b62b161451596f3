"""The ports between users and servers, in terms of mail: `Mailbox`, `Submission` and `Calendar`.

Tasks are written against these ports, without a protocol or a clock. A `Driver` implements them for a protocol. It has
no clock either: it reports its commands to an `Observer`, which has one. Each call to a port may raise `TaskFailed`
(refused, lost, silent) and nothing else. `ServerLost` and `ServerSilent` end the session; `log_on` starts a new one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from loadsim.errors import ConfigError
from loadsim.model.calendar_event import CalendarEvent
from loadsim.model.mail_program import OUTLOOK_LIKE, SUBMISSIONS, MailProgram
from loadsim.model.message_tag import MessageTag
from loadsim.model.records import Arrival, CommandFields, MailFields, TaskFields
from loadsim.model.state_checks import StateChecks
from loadsim.model.terms import ASSISTANT_TASKS, PUBLIC_TASKS, RECEIPT_TASKS, RESOLVE, SERVICES

MessageRef = Hashable
"""A message in one of a mailbox's folders: an opaque value, which stays valid in later sessions."""

INBOX = "INBOX"
SENT_ITEMS = "Sent Items"
DELETED_ITEMS = "Deleted Items"
DRAFTS = "Drafts"
CALENDAR = "Calendar"
PUBLIC = "Public Folder"
"""The folder that all users share (RFC 2342 section 2); it is no folder of any mailbox, and is not listed."""

OF_ALL_USERS = 0
"""The user's number that stands for the public folder in draws and records."""


class Flag(StrEnum):
    """Message flags; the values are IMAP's (RFC 9051 section 2.3.2)."""

    SEEN = "\\Seen"
    ANSWERED = "\\Answered"
    FORWARDED = "$Forwarded"
    DRAFT = "\\Draft"


RESET_FLAGS = (*Flag, "\\Flagged", "\\Deleted")
"""The flags that a start state determines. Others are the server's own: Dovecot 2.4.5 sets some at APPEND."""

SYSTEM_FLAGS = Flag.SEEN, Flag.ANSWERED
"""The system flags (RFC 9051 section 2.3.2) that tasks set in any folder; only drafts have another."""

USER_FLAGS = tuple(str(flag) for flag in RESET_FLAGS if flag != "\\Deleted")
"""The flags that show users what has been done with a message."""

_FLAGS = {flag.lower(): flag for flag in Flag}
_SETS: dict[frozenset[Flag], frozenset[Flag]] = {}


def flags_among(names: Iterable[str] | None) -> frozenset[Flag]:
    """Return the flags with these names, ignoring case. Equal sets are one object, shared by all messages."""
    flags = frozenset([_FLAGS[name.lower()] for name in names or () if name.lower() in _FLAGS])
    return _SETS.setdefault(flags, flags)


class Header(NamedTuple):
    """One line of a message list. `tag` is None for a message without a valid X-LoadSim header.

    The X-LoadSim header may be a copy: see `message_tag.vouched`. `size_bytes` is 0 if it was not listed.
    """

    ref: MessageRef
    flags: frozenset[Flag]
    size_bytes: int
    sender: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    tag: MessageTag | None

    @property
    def seen(self) -> bool:
        return Flag.SEEN in self.flags


class Part(NamedTuple):
    """One leaf of a MIME structure, addressed by `name` ("1", "2.1"); sizes are those of the encoded form.

    `encoding` is "" if the protocol has none.
    """

    name: str
    content_type: str
    size_bytes: int
    filename: str | None = None
    encoding: str = "7bit"


class Structure(NamedTuple):
    """A message's parts: the displayed text, None if absent, and attached or embedded parts."""

    text: Part | None
    attachments: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """The account of user `number` (from 1). The password never reaches a log, a report or an error.

    `manifest_key`, also secret, signs the mailbox's manifest; if it is None, the password does. `authcid` is the name
    that the password belongs to, such as a master user's, if it is not the login. `authzid` is the identity to act as,
    if one is sent. `token_file` has the token for methods that need one; the password may then be empty.
    `first_address` is the address of the scenario's first account, which all its manifests name; "" if there is none.
    `password_source` tells errors which scenario key leads to the password; "" if the scenario has it.
    """

    number: int
    login: str
    address: str
    password: str
    manifest_key: str | None = None
    authcid: str | None = None
    authzid: str | None = None
    token_file: str | None = None
    first_address: str = field(default="", compare=False)
    password_source: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The name to send with the password or token."""
        return self.login if self.authcid is None else self.authcid

    @property
    def domain(self) -> str:
        """The scenario's domain, in lower case."""
        return self.address.rpartition("@")[2].lower()

    def __repr__(self) -> str:
        return f"Account({self.number}, {self.login!r}, {self.address!r})"


class KeptLines(Protocol):
    """Keeps one user's last protocol lines, in case of a failure; a `deque` implements it.

    An instant (ns) marks the next line as sent. Drivers truncate lines to `protocols.lines.KEPT_BYTES`. Secrets are
    removed when lines become text.
    """

    def append(self, line: bytes | int, /) -> None: ...

    def __iter__(self) -> Iterator[bytes | int]: ...


class Observer(Protocol):
    """Receives reports from one user's drivers. Its methods return at once and never raise."""

    @property
    def lines(self) -> KeptLines: ...

    def now(self) -> int:
        """Return the current instant in nanoseconds, to be passed to `command`."""

    def command(
        self,
        name: str,
        since: int,
        outcome: str,
        sent_bytes: int,
        received_bytes: int,
        arrival: Arrival | None = None,
        own_ns: int = 0,
    ) -> None:
        """Report that a protocol command, begun at `since`, has just ended with ok, refused, lost or timeout.

        Names are the protocol's own: "IMAP UID FETCH", "SMTP DATA". `arrival` is that of its last byte; a driver that
        states it reports everything that its tasks wait for. In `own_ns` the server was waiting for the driver.
        """

    def arrived(self, messages: int, at_ns: int | None = None) -> None:
        """Report that the server announced new messages in the Inbox (None: now).

        `Mailbox.arrived` returns their headers.
        """

    def lost(self, failure: Exception) -> None:
        """Report that the session broke while no call was waiting for it. (A waiting call raises instead.)"""


class SearchKey(StrEnum):
    """The place of a search's words; the values are IMAP's keys (RFC 9051 section 6.4.4)."""

    SENDER = "FROM"
    SUBJECT = "SUBJECT"
    TEXT = "TEXT"


class Mailbox(Protocol):
    """One user's mailbox: one session, over one or more connections, and one call at a time."""

    @property
    def messages(self) -> int:
        """The number of messages in the folder listed last, as last stated by the server."""

    async def log_on(self) -> None:
        """Connect, start TLS, and authenticate; start a new session if the previous one was lost."""

    async def folders(self) -> Sequence[str]:
        """Return the names of all folders that can hold messages, including INBOX."""

    async def open(self, folder: str) -> None:
        """Open a folder, unless it is open already. New messages are announced only while the Inbox is open."""

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """Open the folder, and return the headers of its `newest` messages (None: all), oldest first."""

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        """Open the folder, and have the server search it for ASCII words, ignoring case.

        Return the headers of the `newest` messages found, oldest first.
        """

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """Open the Inbox, and return the headers since the last `headers(INBOX)` or `arrived()`, oldest first.

        With `reopen`, reopen the Inbox, and return all since it was first opened: a session may miss mail.
        """

    async def watch(self) -> None:
        """Open the Inbox, and start waiting for announcements of new mail (IMAP IDLE, or polling).

        Returns once the wait has begun. Any other call ends it.
        """

    async def structure(self, ref: MessageRef) -> Structure:
        """Return a message's parts."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """Return one part as encoded in the message, without marking the message as seen."""

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """Set or clear a flag on messages in one folder."""

    def keeps(self, flag: str) -> bool:
        """Return whether, according to the server, the folder listed last keeps a flag permanently."""

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Move messages from one folder to another."""

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Copy messages from one folder to another."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        """Store a message (RFC 5322, CRLF) in a folder; return its reference if the server sends one (UIDPLUS)."""

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """Remove messages from one folder, and only these, even if others are flagged as deleted."""

    async def log_off(self) -> None:
        """Log off, and close the connection."""

    def abandon(self) -> None:
        """Close the connection immediately. May be called at any time, and repeatedly."""


class CopiedMailbox(Mailbox, Protocol):
    """A mailbox of which the mail program keeps a copy."""

    def batches(self, folder: str, size: int) -> AsyncGenerator[Sequence[Header], None]:
        """Open the folder, and yield the headers of all its messages, newest first, at most `size` at a time.

        Messages that arrive meanwhile are left out.
        """

    async def fetch_whole(self, headers: Sequence[Header]) -> int:
        """Fetch the first of these messages of one folder together, as many as fit into memory. Return their number.

        Until the next call, showing them takes no command.
        """


class Submission(Protocol):
    """Submission of one user's messages."""

    async def send(
        self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None = None
    ) -> bool:
        """Submit one message (RFC 5322, CRLF); return once the server has accepted it for all recipients.

        With `envelope_id`, request a delivery receipt with this ID (RFC 3461), if the server offers them; return
        whether it was requested. An empty `sender` is the null return path (RFC 5321 section 4.5.5).

        Raises `ServerRefused` if the server rejects the sender, any recipient or the message, which is then not sent.
        """

    async def check(self) -> None:
        """Connect, start TLS and authenticate as for a message, then disconnect without sending one."""

    async def close(self) -> None:
        """Close a connection that was kept open, after QUIT."""


class Calendar(Protocol):
    """One user's calendar."""

    async def replace(self, schedule: bytes) -> None:
        """Replace the schedule file with a new one (a whole message, RFC 5322, CRLF)."""


class UserCalendar(Protocol):
    """One user's calendar on a calendar server. A failure leaves the mailbox's session alone."""

    async def store(self, event: CalendarEvent, changes: bool) -> bool:
        """Add an event, or change the one with its UID. Read it back, and return whether it is as it was sent.

        Raises `MailMissing` if it should be there, but is not.
        """

    async def remove(self, event: CalendarEvent) -> None:
        """Remove an event. Raises `MailMissing` if it is not there."""

    async def follow(self) -> None:
        """List the changes since the last call, and read and remove the invitations of loadsim's users.

        Raises `ServerRefused` if an event that was stored in between is not among the changes.
        """

    async def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""


OpenCalendar = Callable[[Account, Observer], UserCalendar]
"""Returns a user's calendar on a calendar server; nothing is connected yet."""


class UserDirectory(Protocol):
    """One user's address book."""

    async def resolve(self, addresses: Sequence[str]) -> Sequence[str]:
        """Look up addresses as a mail program does: first what a user has typed so far, then the whole address.

        Return those without an entry. A failure leaves the mailbox's session alone.
        """

    async def close(self) -> None:
        """Leave the server, if connected."""


OpenDirectory = Callable[[Account, Observer], UserDirectory]
"""Returns a user's address book; nothing is connected yet."""


class PublicFolder(Protocol):
    """The folder that all users share, as one of them sees it: in the mailbox, or a newsgroup."""

    @property
    def is_apart(self) -> bool:
        """True if it has a session of its own, whose failure leaves the mailbox's session alone."""

    async def newest(self, count: int) -> Sequence[Header]:
        """Return the headers of the newest messages, oldest first; without their tags if they are not listed."""

    async def with_tag(self, header: Header) -> Header:
        """Return a listed message's header with its tag, if it has one."""

    async def structure(self, ref: MessageRef) -> Structure:
        """Return a message's parts."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """Return one part as encoded in the message."""

    async def post(self, message: bytes) -> None:
        """Add a message (RFC 5322, CRLF), without flags: those may be each user's own, or shared by all."""

    async def leave(self) -> None:
        """Reopen the Inbox, if another folder is open."""

    async def close(self) -> None:
        """Leave the server, if connected apart from the mailbox."""


OpenPublicFolder = Callable[[Account, Observer], PublicFolder]
"""Returns the public folder of a user for whom it is not in the mailbox; nothing is connected yet."""


@dataclass(frozen=True, slots=True)
class PortsApart:
    """Openers of a user's ports on servers apart from that of the mailbox; nothing is connected yet.

    None: there is no address book, the public folder or the calendar is in the mailbox.
    """

    directory: OpenDirectory | None = None
    newsgroup: OpenPublicFolder | None = None
    calendar: OpenCalendar | None = None


NOTHING_APART = PortsApart()


@dataclass(frozen=True, slots=True)
class Session:
    """One user's ports, as implemented by a driver.

    With `poll_s`, the mailbox has a session for each view, and none in between: the user ends a view with
    `Mailbox.log_off`, and looks for new mail with `Mailbox.watch` every `poll_s`. If it is None, the session lasts
    until log-off, and the driver watches for mail. `copied` is the mailbox, too, if the driver supports a first sync.

    A `maildrop` (RFC 1939) is an Inbox alone, without flags, of which a session is a snapshot. There, a view lasts for
    as long as a task is due, and `Mailbox.expunge` ends the session, as the server removes messages at its end.
    """

    mailbox: Mailbox
    submission: Submission
    calendar: Calendar
    poll_s: float | None = None
    copied: CopiedMailbox | None = None
    maildrop: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's turn to do a plug-in's task: the argument of entry points in the group `loadsim.tasks`.

    `index` counts the user's turns at this task from 0. `folders` are the user's own folders. `observer` is for
    commands that a plug-in sends over its own connections. `draw` returns a number in [0, 1) that depends only on its
    argument, the turn, the user and the seed, so it is the same in every run.
    """

    account: Account
    session: Session
    observer: Observer
    folders: Sequence[str]
    index: int
    draw: Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service's address, and how to connect: the keys of `server.imap` and so on, and values derived from them.

    `authorities` is the content of `ca_file` (PEM certificates), for machines without the file; None until it is read.
    `connection` (SMTP) is per-message or kept; None leaves it to the mail program. `auth` (SMTP): authenticate if the
    server offers it. `sources` are the local addresses to connect from; if empty, the system chooses. `resumes`:
    clients offer their last TLS session when they reconnect. `methods` are the log-on methods in order of preference
    (`log_on.METHODS`); if empty, `log_on.AUTO`. `ignored` (IMAP) lists capabilities not to use. `path` (MAPI over HTTP)
    is the mailboxes' path, such as /mapi/emsmdb, with its query, if any; LDAP's is the name below which users' entries
    are. `bind_dn` (LDAP) is the pattern of a user's distinguished name; None for users who do not log on.
    `lmtp`: the service speaks LMTP, not SMTP.
    """

    host: str
    port: int
    tls: str = "none"
    ca_file: str | None = None
    connection: str | None = "per-message"
    auth: bool = True
    sources: tuple[str, ...] = ()
    resumes: bool = True
    authorities: str | None = None
    methods: tuple[str, ...] = ()
    tls_server_name: str | None = None
    tls_verify: bool = True
    client_certificate: str | None = None
    client_key: str | None = None
    preparation_connections: int = 32
    ignored: frozenset[str] = frozenset()
    path: str = ""
    bind_dn: str | None = None
    lmtp: bool = False

    @property
    def tls_name(self) -> str:
        return self.tls_server_name or self.host

    def source(self, user: int) -> str | None:
        """Return the local address for this user's connections; None if the system chooses."""
        return self.sources[user % len(self.sources)] if self.sources else None


VISIT_COMMANDS = 20
"""The time limit for a visit to a mailbox, as a multiple of a command's."""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The names of loadsim's folders on the server; None leaves a name to the driver.

    All names but INBOX begin with `prefix`, such as "INBOX.". The other settings are names below it, with "/" between
    levels; `public` is one below the shared namespace, or a newsgroup, and None without a public folder.
    """

    prefix: str | None = None
    sent: str | None = None
    trash: str | None = None
    calendar: str | None = None
    public: str | None = None

    @property
    def paths(self) -> dict[str, str]:
        given = {SENT_ITEMS: self.sent, DELETED_ITEMS: self.trash, CALENDAR: self.calendar}
        return {folder: path for folder, path in given.items() if path is not None}


OF_SERVER = FolderSettings()
"""Settings that leave all names to the driver, which then asks the server."""


def stated_endpoints(owner: object) -> dict[str, Endpoint]:
    """Return the owner's attributes of `SERVICES`, in that order, leaving out any that are None."""
    return {name: endpoint for name in SERVICES if (endpoint := getattr(owner, name)) is not None}


@dataclass(frozen=True, slots=True)
class Services:
    """The endpoints of the mail server under test, a command's time limit, and the way to submit.

    An endpoint is None if the scenario does not state the service; drivers get theirs from `endpoint`. `submission` is
    one of `SUBMISSIONS`. `program` is the mail program of these sessions. `companions` are the users' other programs,
    which have services of their own; here, they only complete the driver's name in results. `state_checks` are the
    engine's, if it makes any. `outside` is for mail from outside; without it, that mail goes to `smtp`.
    """

    imap: Endpoint | None = None
    smtp: Endpoint | None = None
    command_limit_s: float = 60.0
    submission: str = SUBMISSIONS[0]
    folders: FolderSettings = OF_SERVER
    program: MailProgram = OUTLOOK_LIKE
    companions: tuple[MailProgram, ...] = ()
    mapi: Endpoint | None = None
    jmap: Endpoint | None = None
    pop3: Endpoint | None = None
    ldap: Endpoint | None = None
    nntp: Endpoint | None = None
    caldav: Endpoint | None = None
    state_checks: StateChecks | None = None
    outside: Endpoint | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The stated endpoints by service, in the order of `SERVICES`."""
        return stated_endpoints(self)

    def endpoint(self, service: str) -> Endpoint:
        """Return the endpoint of a service, one of `SERVICES`. Raises `ConfigError` if it is not stated."""
        endpoint = self.endpoints.get(service)
        if endpoint is None:
            raise ConfigError(f"server: expected {service}, found {' and '.join(self.endpoints) or 'no service'}")
        return endpoint

    @property
    def address(self) -> str:
        """The first service's host and port, by which results name the server."""
        first = next(iter(self.endpoints.values()))
        return f"{first.host}:{first.port}"

    @property
    def visit_limit_s(self) -> float:
        """The time limit for one visit to a mailbox by `init` or `clean`, including log-on and log-off."""
        return VISIT_COMMANDS * self.command_limit_s


@runtime_checkable
class Driver(Protocol):
    """The result of an entry point in the group `loadsim.protocols`, which is called with `Services`.

    An entry point that needs services other than IMAP and SMTP names them in an attribute `needs`, such as `("mapi",)`.
    One instance serves all users of an engine; it holds shared objects, such as a TLS context. If a driver behaves as
    `Services.program` says, its attribute `takes_programs` is true. Others get only the default program.
    """

    name: str
    supported_tasks: frozenset[str]
    """The tasks, among `ALL_TASKS`, that its sessions can do."""

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session for one user; nothing is connected yet."""


class DriverOfSenders(Protocol):
    """A driver by which outside senders can submit, too."""

    def outside(self, account: Account, observer: Observer) -> Submission:
        """Return the submission of an outside sender, which does not authenticate; nothing is connected yet."""


ALL_TASKS = frozenset(
    (
        *(
            "LOGON",
            "FIRST SYNC",
            "SYNC",
            "READ",
            "LOAD ATTACHMENT",
            "SEND",
            "REPLY",
            "REPLY ALL",
            "FORWARD",
            "SAVE SENT",
            "MOVE",
        ),
        *("COPY", "DELETE", "DELETE UNREAD", "BROWSE", "SEARCH", "SCHEDULE", "EVICT", "LOGOFF"),
        RESOLVE,
        *RECEIPT_TASKS,
        *PUBLIC_TASKS,
        *ASSISTANT_TASKS,
    )
)
"""The names of all tasks; a driver may support only some."""

MAILDROP_TASKS = ALL_TASKS - {
    *("FIRST SYNC", "SAVE SENT", "MOVE", "COPY", "BROWSE", "SEARCH", "SCHEDULE", *PUBLIC_TASKS, *ASSISTANT_TASKS)
}
"""The tasks that need an Inbox only, without flags or a search."""


class Probe(Protocol):
    """The result of an entry point in the group `loadsim.probes`: a function that returns the figures at this moment.

    The entry point is called once with `Services`, and with the scenario's settings by name. Its name is the probe's.
    The name of each figure ends with its unit, such as `_bytes`, `_ms` or `_share`; without a unit, a figure counts the
    things in its name. A figure that cannot be read is left out. Any exception is a failed sample.
    """

    def __call__(self) -> Mapping[str, float]:
        """Return the figures by name. This is called each second in the probe's own thread, so it may block."""


class Clock(Protocol):
    """The only clock in a run."""

    def now_ns(self) -> int:
        """Return monotonic nanoseconds; only differences mean anything."""


class Recorder(Protocol):
    """Records measurements. Instants are nanoseconds of the run's clock; None means "never happened"."""

    def task(self, record: TaskFields) -> None:
        """Record a task that has ended, or was left undone at the end of the run."""

    def mail(self, record: MailFields) -> None:
        """Record something that happened to a message."""

    def command(self, record: CommandFields) -> None:
        """Record a protocol command that has ended."""
