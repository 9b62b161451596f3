"""The ports between users and servers, in terms of mail: `Mailbox`, `Submission` and `Calendar`.

Tasks are written against these ports; they know no protocol and no clock. A `Driver` implements them for a protocol. It
has no clock either: it reports its commands to an `Observer`, which has one. Each call of a port may raise `TaskFailed`
(refused, lost, silent) and nothing else. `ServerLost` and `ServerSilent` end the session; `log_on` makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from loadsim.errors import ConfigError
from loadsim.model.mail_program import OUTLOOK_LIKE, SUBMISSIONS, MailProgram
from loadsim.model.message_tag import MessageTag
from loadsim.model.records import CommandFields, MailFields, TaskFields
from loadsim.model.state_checks import StateChecks

MessageRef = Hashable
"""A message in a folder of one mailbox: an opaque value, which stays valid in later sessions."""

INBOX = "INBOX"
SENT_ITEMS = "Sent Items"
DELETED_ITEMS = "Deleted Items"
CALENDAR = "Calendar"


class Flag(StrEnum):
    """Flags of messages; the values are IMAP's (RFC 9051 section 2.3.2)."""

    SEEN = "\\Seen"
    ANSWERED = "\\Answered"
    FORWARDED = "$Forwarded"


RESET_FLAGS = (*Flag, "\\Flagged", "\\Deleted", "\\Draft")
"""The flags that a start state has or lacks. Others are the server's own: Dovecot 2.4.5 sets some at APPEND."""

SYSTEM_FLAGS = tuple(flag for flag in Flag if flag.startswith("\\"))
USER_FLAGS = tuple(str(flag) for flag in RESET_FLAGS if flag != "\\Deleted")
"""The flags by which users see what was done with a message that is there."""

_FLAGS = {flag.lower(): flag for flag in Flag}
_SETS: dict[frozenset[Flag], frozenset[Flag]] = {}


def flags_among(names: Iterable[str] | None) -> frozenset[Flag]:
    """Return the flags with these names, in upper or lower case. All messages share the sets."""
    flags = frozenset([_FLAGS[name.lower()] for name in names or () if name.lower() in _FLAGS])
    return _SETS.setdefault(flags, flags)


class Header(NamedTuple):
    """One line of a message list. `tag` is None for a message without a valid X-LoadSim header.

    The header may have been copied: see `message_tag.vouched`. `size_bytes` is 0 if it was not listed.
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
    """One leaf of a MIME structure, addressed by `name` ("1", "2.1"); sizes are of the encoded form.

    `encoding` is "" if the protocol has none.
    """

    name: str
    content_type: str
    size_bytes: int
    filename: str | None = None
    encoding: str = "7bit"


class Structure(NamedTuple):
    """The parts of a message: the displayed text (None without one), and attached or embedded parts."""

    text: Part | None
    attachments: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """The account of user `number` (from 1). The password never reaches a log, a report or an error.

    `manifest_key`, also secret, signs the manifest of the mailbox; if it is None, the password does. `authcid` is the
    name to which the password belongs, if it is not the login: a master user's. `authzid` is the identity to act as,
    if it is sent. `token_file` has the token of methods that need one; the password may then be empty.
    `first_address` is the address of the scenario's first account, which all its manifests name; "" without one.
    `password_source` is the key of the scenario that the password comes from, for errors; "" for a key that has it.
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
        """The name that is sent with the password or token."""
        return self.login if self.authcid is None else self.authcid

    @property
    def domain(self) -> str:
        """The scenario's domain, in lower case."""
        return self.address.rpartition("@")[2].lower()

    def __repr__(self) -> str:
        return f"Account({self.number}, {self.login!r}, {self.address!r})"


class KeptLines(Protocol):
    """Takes the protocol lines of one user, and keeps the last ones in case of a failure; `deque` implements it.

    An instant (ns) marks the next line as sent. Drivers cut lines to `protocols.lines.KEPT_BYTES`. Secrets are removed
    when lines become text.
    """

    def append(self, line: bytes | int, /) -> None: ...

    def __iter__(self) -> Iterator[bytes | int]: ...


class Observer(Protocol):
    """Receives reports from the drivers of one user. Its methods return at once and never raise."""

    @property
    def lines(self) -> KeptLines: ...

    def now(self) -> int:
        """Return the instant in nanoseconds, to be passed to `command`."""

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        """Report that a protocol command, which began at `since`, has ended now with ok, refused, lost or timeout.

        Names are the protocol's own: "IMAP UID FETCH", "SMTP DATA".
        """

    def arrived(self, messages: int) -> None:
        """Report that the server announced new messages in the Inbox; `Mailbox.arrived` returns their headers."""

    def lost(self, failure: Exception) -> None:
        """Report that the session broke while no call was waiting for it. (A waiting call raises instead.)"""


class Mailbox(Protocol):
    """One user's mailbox: one session, over one connection or several, and one call at a time."""

    @property
    def messages(self) -> int:
        """The number of messages in the folder that was last listed, by the server's last word."""

    async def log_on(self) -> None:
        """Connect, start TLS, authenticate. Makes a new session if the old one was lost."""

    async def folders(self) -> Sequence[str]:
        """Return the names of all folders that can hold messages, including INBOX."""

    async def open(self, folder: str) -> None:
        """Open a folder, unless it is open. New messages are announced only while the Inbox is open."""

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """Open the folder, and return the headers of its `newest` messages (None: all), oldest first."""

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """Open the Inbox, and return the headers since the last `headers(INBOX)` or `arrived()`, oldest first.

        With `reopen`, it opens the Inbox again, and returns all since it was first opened: a session may miss mail.
        """

    async def watch(self) -> None:
        """Open the Inbox, and start to wait for announcements of new mail (IMAP IDLE, or polling).

        Returns when the wait has begun. Any other call ends it.
        """

    async def structure(self, ref: MessageRef) -> Structure:
        """Return the parts of a message."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """Return one part as encoded in the message, without marking the message as seen."""

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """Set or clear a flag on messages of one folder."""

    def keeps(self, flag: str) -> bool:
        """Return whether the folder that was listed last keeps a flag for good, as the server states."""

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Move messages of one folder to another."""

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        """Copy messages of one folder to another."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        """Store a message (RFC 5322, CRLF) in a folder; return its reference if the server sends it (UIDPLUS)."""

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """Remove messages of one folder, but no others that have a deleted flag."""

    async def log_off(self) -> None:
        """Log off, and close the connection."""

    def abandon(self) -> None:
        """Close the connection at once. May be called at any time and repeatedly."""


class Submission(Protocol):
    """Submission of one user's messages."""

    async def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Submit one message (RFC 5322, CRLF); return when the server has accepted it for all recipients.

        Raises `ServerRefused` if the server rejects the sender, any recipient or the message; then it is not sent.
        """

    async def check(self) -> None:
        """Connect, start TLS and authenticate as for a message, then disconnect without sending one."""

    async def close(self) -> None:
        """Close a kept connection, after QUIT."""


class Calendar(Protocol):
    """The calendar of one user."""

    async def replace(self, schedule: bytes) -> None:
        """Replace the schedule file by a new one (a whole message, RFC 5322, CRLF)."""


@dataclass(frozen=True, slots=True)
class Session:
    """The ports of one user, implemented by a driver.

    With `poll_s`, the mailbox has a session for each view, and none between views: the user ends a view by
    `Mailbox.log_off`, and looks for new mail by `Mailbox.watch` each `poll_s`. None: the session lasts until log-off,
    and the driver watches.
    """

    mailbox: Mailbox
    submission: Submission
    calendar: Calendar
    poll_s: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One task of a plug-in, done once by one user: the argument of the entry points of the group `loadsim.tasks`.

    `index` counts the user's turns of this task from 0. `folders` are the user's own folders. `observer` is for
    commands that a plug-in sends over connections of its own. `draw` returns a number in [0, 1) that depends on its
    argument, the turn, the user and the seed only: the same in each run.
    """

    account: Account
    session: Session
    observer: Observer
    folders: Sequence[str]
    index: int
    draw: Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a service, and how to connect: the keys of `server.imap` and its like, and what is added.

    `authorities` is the content of `ca_file` (PEM certificates), for machines without the file; None if not read yet.
    `connection` (SMTP) is per-message or kept; None leaves it to the mail program. `auth` (SMTP): authenticate if the
    server offers it. `sources` are the local addresses to connect from; if empty, the system chooses. `resumes`:
    clients offer their last TLS session when they connect again. `methods` are the log-on methods in order of
    preference (`log_on.METHODS`); if empty, `log_on.AUTO`. `ignored` (IMAP) are capabilities that are not used. `path`
    (MAPI over HTTP) is that of the mailboxes, such as /mapi/emsmdb, with its query, if any.
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

    @property
    def tls_name(self) -> str:
        return self.tls_server_name or self.host

    def source(self, user: int) -> str | None:
        """Return the local address for this user's connections; None if the system chooses."""
        return self.sources[user % len(self.sources)] if self.sources else None


VISIT_COMMANDS = 20
"""The time limit of a visit to a mailbox, as a multiple of the time limit of a command."""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The names of loadsim's folders on the server; None leaves a name to the driver.

    `prefix` begins the names of all folders but INBOX, such as "INBOX.". The others are names below it, with "/"
    between levels.
    """

    prefix: str | None = None
    sent: str | None = None
    trash: str | None = None
    calendar: str | None = None

    @property
    def paths(self) -> dict[str, str]:
        given = {SENT_ITEMS: self.sent, DELETED_ITEMS: self.trash, CALENDAR: self.calendar}
        return {folder: path for folder, path in given.items() if path is not None}


OF_SERVER = FolderSettings()
"""Settings that leave all names to the driver, which asks the server."""


SERVICES = ("imap", "smtp", "mapi")
"""The services of a mail server that drivers may need, by their keys in `server`."""


def stated_endpoints(*endpoints: Endpoint | None) -> dict[str, Endpoint]:
    """Return those of the endpoints of `SERVICES` that are not None, by service."""
    return {name: each for name, each in zip(SERVICES, endpoints, strict=True) if each is not None}


@dataclass(frozen=True, slots=True)
class Services:
    """The endpoints of the mail server under test, the time limit of a command, and the way to submit.

    An endpoint is None if the scenario does not state the service; drivers get theirs by `endpoint`.

    `submission` is one of `SUBMISSIONS`. `program` is the mail program of these sessions. `companions` are the users'
    others, which have services of their own; here, they only name the driver in results. `state_checks` are those of an
    engine, if it makes some.
    """

    imap: Endpoint | None = None
    smtp: Endpoint | None = None
    command_limit_s: float = 60.0
    submission: str = SUBMISSIONS[0]
    folders: FolderSettings = OF_SERVER
    program: MailProgram = OUTLOOK_LIKE
    companions: tuple[MailProgram, ...] = ()
    mapi: Endpoint | None = None
    state_checks: StateChecks | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Return the endpoints that are stated, by service, in the order of `SERVICES`."""
        return stated_endpoints(self.imap, self.smtp, self.mapi)

    def endpoint(self, service: str) -> Endpoint:
        """Return the endpoint of a service, one of `SERVICES`. Raises `ConfigError` if it is not stated."""
        found = self.endpoints.get(service)
        if found is None:
            raise ConfigError(f"server: expected {service}, found {' and '.join(self.endpoints) or 'no service'}")
        return found

    @property
    def address(self) -> str:
        """Return host and port of the first service, by which results name the server."""
        first = next(iter(self.endpoints.values()))
        return f"{first.host}:{first.port}"

    @property
    def visit_limit_s(self) -> float:
        """Return the time limit of one visit to a mailbox by `init` or `clean`, including log-on and log-off."""
        return VISIT_COMMANDS * self.command_limit_s


@runtime_checkable
class Driver(Protocol):
    """The result of an entry point of the group `loadsim.protocols`, which is called with `Services`.

    An entry point that needs other services than IMAP and SMTP names them in an attribute `needs`, such as `("mapi",)`.
    One instance serves all users of an engine; it holds shared objects, such as a TLS context. A driver that behaves as
    `Services.program` states has an attribute `takes_programs`, which is true. Others get the default program only.
    """

    name: str
    supported_tasks: frozenset[str]
    """The tasks that its sessions can do, of `ALL_TASKS`."""

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session of one user; nothing is connected yet."""


ALL_TASKS = frozenset(
    (
        *("LOGON", "SYNC", "READ", "LOAD ATTACHMENT", "SEND", "REPLY", "REPLY ALL", "FORWARD", "SAVE SENT", "MOVE"),
        *("COPY", "DELETE", "BROWSE", "SCHEDULE", "EVICT", "LOGOFF"),
    )
)
"""The names of all tasks, of which a driver may support some."""


class Probe(Protocol):
    """The result of an entry point of the group `loadsim.probes`: a function that returns the figures of this moment.

    The entry point is called once with `Services`, and with the scenario's settings by name. Its name is the probe's.
    The name of each figure ends with its unit, such as `_bytes`, `_ms` or `_share`; a figure without a unit is a count
    of what the name says. A figure that cannot be seen is left out. Any exception is a failed sample.
    """

    def __call__(self) -> Mapping[str, float]:
        """Return the figures by name. Called each second in a thread of the probe's own, so it may block."""


class Clock(Protocol):
    """The one clock of a run."""

    def now_ns(self) -> int:
        """Return monotonic nanoseconds; only differences mean anything."""


class Recorder(Protocol):
    """Takes measurements. Instants are nanoseconds of the run's clock; None means "never happened"."""

    def task(self, record: TaskFields) -> None:
        """Record a task that has ended, or that the end of the run left undone."""

    def mail(self, record: MailFields) -> None:
        """Record an event of a message."""

    def command(self, record: CommandFields) -> None:
        """Record a protocol command that has ended."""


class Stored(NamedTuple):
    """A message in a folder, with the server's flags in lower case, the address in From, Message-ID and In-Reply-To.

    `tag` is the content of its X-LoadSim header, which may be a copy; None if it has none.
    """

    ref: MessageRef
    flags: frozenset[str]
    tag: MessageTag | None
    sender: str = ""
    message_id: str = ""
    in_reply_to: str = ""


class FolderStatus(NamedTuple):
    """The numbers by which a changed folder is recognised (RFC 9051 section 6.3.11).

    `modseq` changes with each change of a flag, too (RFC 7162); None on servers without it.
    """

    validity: int
    uid_next: int
    messages: int
    unseen: int
    modseq: int | None = None


class NewMessage(NamedTuple):
    """A message to store (RFC 5322, CRLF), with its flags, and its internal date in microseconds since 1970.

    With None, the server sets the date.
    """

    message: bytes
    flags: Sequence[Flag] = ()
    received_us: int | None = None


def batches(messages: Iterable[NewMessage], most: int, most_bytes: int) -> Iterator[list[NewMessage]]:
    """Yield messages in batches of at most this number and size; a larger message is alone."""
    batch: list[NewMessage] = []
    size_bytes = 0
    for message in messages:
        if batch and (len(batch) == most or size_bytes + len(message[0]) > most_bytes):
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += len(message[0])
    if batch:
        yield batch


class ServerOffer(NamedTuple):
    """The offer of a server to a user after log-on.

    `features` are IMAP capabilities or SMTP extensions with their parameters, in capitals. `method` is the log-on
    method that was used; "" for none. `permanent_flags` are those of the open folder, as the server states them.
    """

    features: frozenset[str]
    method: str
    permanent_flags: str = ""

    def limit(self, *names: str) -> int | None:
        """Return the number in a feature such as "SIZE 1000" or "APPENDLIMIT=1000"; None if it states none."""
        for feature in self.features:
            name, _, value = feature.replace("=", " ").partition(" ")
            if name in names and value.isascii() and value.isdigit() and int(value):
                return int(value)
        return None


class Quota(NamedTuple):
    """A resource of a mailbox, used and at most: STORAGE in KiB, or MESSAGE (RFC 9208 section 5)."""

    resource: str
    used: int
    limit: int


class Probing(Submission, Protocol):
    """A submission service that can be asked if it takes a message."""

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """Connect and log on, name sender and recipient, and disconnect without a message. Raises as `send` does."""


class Provisioning(Mailbox, Protocol):
    """A mailbox with operations on many messages and on folders, for `init`, `clean` and `check`.

    Reading has no side effects: listing a folder marks no message as seen.
    """

    def path(self, folder: str) -> str:
        """Return a name of a folder that does not depend on how the server or the scenario names special folders."""

    def folder_at(self, path: str) -> str:
        """Return the folder with this path: the inverse of `path`."""

    def name_on_server(self, folder: str) -> str:
        """Return the server's name of a folder. Raises `ServerRefused` for a level that the server cannot have."""

    @property
    def offer(self) -> ServerOffer:
        """The offer of the server at the last log-on."""

    async def quotas(self) -> Sequence[Quota]:
        """Return the limits of the Inbox's quota; none if the server states none."""

    async def status(self) -> Mapping[str, FolderStatus | None]:
        """Close the open folder, and return the status of all folders; None for one that the server does not state."""

    async def create(self, folder: str) -> None:
        """Create a folder."""

    async def delete(self, folder: str) -> None:
        """Delete a folder with its messages."""

    async def message_count(self, folder: str) -> int:
        """Return the number of messages. The folder is closed before, because the view of an open one may be stale.

        Raises `ServerRefused` if the answer lacks the number.
        """

    async def folder_status(self, folder: str) -> FolderStatus | None:
        """Return the status of a folder, which is closed before; None if the server leaves a number out."""

    async def listing(self, folders: Iterable[str]) -> Mapping[str, Sequence[Stored]]:
        """Return all messages of these folders, each folder's in the order of their arrival.

        One that the server cannot read is without tag and sender.
        """

    async def texts(self, refs: Sequence[MessageRef]) -> Mapping[MessageRef, bytes | None]:
        """Return what follows the header of messages of one folder, which are few; without those that are gone.

        None stands for a text that the mailbox does not keep as it was composed.
        """

    async def append_many(self, folder: str, messages: Sequence[NewMessage]) -> Sequence[MessageRef | None]:
        """Store messages in a folder, in this order. Return their references, each as from `append`."""

    async def set_flags(self, refs: Sequence[MessageRef], flags: Sequence[Flag]) -> None:
        """Give messages of one folder these flags, and no others of `RESET_FLAGS`."""
