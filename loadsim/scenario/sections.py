"""The sections of a scenario file: a strict dataclass for each, with its defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Annotated, Any, get_args

from loadsim.documents.schema import (
    NAME_OR_PATH,
    Count,
    Duration,
    Positive,
    PositiveDuration,
    Share,
    Switch,
    Text,
    matching,
    text,
    word,
)
from loadsim.documents.typed import ReadAs, Reads, mismatch, show, strict
from loadsim.model.mail_program import MOST_PROGRAMS, OUTLOOK_LIKE, SUBMISSIONS
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, SENT_ITEMS, FolderSettings, Services
from loadsim.model.terms import CALENDARS, CANONICAL, IN_MAILBOX, MONITOR_NAME, STRESS, FaultOnPurpose, OutageCause
from loadsim.scenario.day_shape import MOST_WEIGHT, normalised
from loadsim.scenario.distribution import CountDistribution
from loadsim.scenario.log_on import Command


def _source(value: object) -> str:
    try:
        address = ip_address(value if isinstance(value, str) else "")
    except ValueError:
        address = None
    if address is None or address.is_unspecified or address.is_multicast:
        raise mismatch("an IP address of this machine such as 127.0.0.2")
    return str(address)


@strict
@dataclass(frozen=True, slots=True)
class Client:
    """The behaviour of users' mail programs with any driver; results state anything that changes the server's work."""

    submission: Annotated[str, word(*SUBMISSIONS)] | None = None
    """SMTP commands one at a time, pipelined, or sent by the library aiosmtplib; results state it. Default: the
    program's; aiosmtplib with the driver `aioimaplib`."""
    tls_resumption: Switch = True
    """Users resume their TLS sessions."""
    source_addresses: tuple[Annotated[str, Reads(_source, "text")], ...] = ()
    """Addresses of each client machine to connect from, in turn. Default: the system's choice."""
    check_state: Share = 0.02
    """Share of users, besides the first, for whom the server is checked against its earlier responses; by `imap` and
    `jmap` only."""
    trace: Positive | None = None
    """Number of a user whose protocol lines go to `events.jsonl`, without passwords and contents; at most 20,000."""

    def __post_init__(self) -> None:
        if len(set(self.source_addresses)) < len(self.source_addresses):
            raise mismatch("each address once", "a repeated one", at=("source_addresses",))

    def using(self, services: Services) -> Services:
        endpoints: dict[str, Any] = {
            service: replace(endpoint, sources=self.source_addresses, resumes=self.tls_resumption)
            for service, endpoint in services.endpoints.items()
        }
        return replace(services, submission=self.submission or services.submission, **endpoints)


def _probe_settings(value: object) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise mismatch("a mapping of settings")
    for key, setting in (value or {}).items():
        if not isinstance(key, str) or not isinstance(setting, str | int | float):
            raise mismatch("settings that are texts, numbers, yes or no", show(setting), at=(str(key),))
    return dict(value or {})


Probes = dict[Text, Annotated[dict[str, Any], Reads(_probe_settings, "mapping")]]
"""Settings of probes, by name, or by name and label."""


MOST_MONITORS = 16


@strict
@dataclass(frozen=True, slots=True)
class _Monitor:
    command: Command


_MonitorName = Annotated[
    str, matching(MONITOR_NAME.pattern, "the name of a monitor: a-z, 0-9 and -, at most 40 characters")
]


def _monitors(sections: dict[str, _Monitor]) -> dict[str, tuple[str, ...]]:
    if len(sections) > MOST_MONITORS:
        raise mismatch(f"at most {MOST_MONITORS} monitors", str(len(sections)))
    return {name: section.command for name, section in sections.items()}


Monitors = Annotated[dict[str, tuple[str, ...]], ReadAs(dict[_MonitorName, _Monitor], _monitors)]
"""The words of the commands that print monitors' streams, by monitor name."""


LONGEST_NAME = 200
"""The longest folder name, in characters."""

_TAKEN = re.compile(r"(?:INBOX|LoadSim|Sent Items|Deleted Items|Calendar|Folder \d+)(?:/.*)?", re.IGNORECASE)
"""Folder names that loadsim uses for something else."""


def _folder(value: object) -> str:
    good = isinstance(value, str) and value.isprintable() and "%" not in value and len(value) <= LONGEST_NAME
    if not good or not all(level.strip() for level in str(value).split("/")):
        raise mismatch("the name of a folder, such as Sent or Mail/Sent")
    return str(value)


def _prefix(value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_NAME or (value and not value.isprintable()):
        raise mismatch('the beginning of the names of folders, such as "INBOX."')
    return value


FolderName = Annotated[str, Reads(_folder, "text")]


@strict
@dataclass(frozen=True, slots=True)
class _Folders:
    prefix: Annotated[str, Reads(_prefix, "text")] | None = None
    """Beginning of all names but INBOX, such as `INBOX.`. Default: from NAMESPACE."""
    sent: FolderName | None = None
    """Folder of sent mail, below the prefix, with `/` between levels. Default: by special use, else Sent Items."""
    trash: FolderName | None = None
    """Folder of deleted mail. Default: by special use, else Deleted Items."""
    calendar: FolderName | None = None
    """Folder of the calendar; choose another if the server reserves Calendar. Default: Calendar."""
    public: FolderName | None = None
    """Folder in which all users post and browse, below the first shared namespace that NAMESPACE names, or a newsgroup
    of `server.nntp`. It must exist: `init` and `clean` change only loadsim's messages there, as the first user.
    Default: none."""

    def __post_init__(self) -> None:
        for key, usual in (("sent", SENT_ITEMS), ("trash", DELETED_ITEMS), ("calendar", CALENDAR)):
            name = getattr(self, key)
            if name not in (None, usual) and _TAKEN.fullmatch(name):
                raise mismatch("a folder that loadsim does not use for something else", show(name), at=(key,))
        names = [name for name in (self.sent, self.trash, self.calendar) if name is not None]
        if len(set(names)) < len(names):
            raise mismatch("a separate folder for each use", "a shared one")


Folders = Annotated[
    FolderSettings,
    ReadAs(_Folders, lambda read: FolderSettings(read.prefix, read.sent, read.trash, read.calendar, read.public)),
]


def _programs(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return (text(value),)
    if not 1 <= len(value) <= MOST_PROGRAMS:
        raise mismatch(f"from 1 to {MOST_PROGRAMS} mail programs", f"a list of {len(value)}")
    if strange := [entry for entry in value if not isinstance(entry, str)]:
        raise mismatch("names or paths of mail programs", show(strange[0]))
    references = tuple(map(text, value))
    if twice := [entry for entry in references if references.count(entry) > 1]:
        raise mismatch("each mail program once", f"{show(twice[0])} twice")
    return references


@strict
@dataclass(frozen=True, slots=True)
class GroupSection:
    """A group as in a file. `program` has the users' mail program, followed by their companions."""

    profile: Annotated[str, Reads(text, NAME_OR_PATH)]
    """Profile of the users, which says what they do, or of [outside senders](profiles.md#outside-senders)."""
    users: Positive
    """Number of users or outside senders."""
    protocol: Annotated[str, matching(r"[a-z][a-z0-9_-]*", "the name of a driver such as imap")] = "imap"
    """Driver: `imap`, `pop3`, `mapi`, `jmap`, `aioimaplib`, a plug-in's, or `fake`, the in-memory mail system."""
    program: Annotated[tuple[str, ...], Reads(_programs, f"{NAME_OR_PATH}, or a list")] = (OUTLOOK_LIKE.name,)
    """Mail program, or a list of up to four; all but the first only watch, or are assistants."""
    calendar: Annotated[str, word(*CALENDARS)] = IN_MAILBOX
    """Calendar that SCHEDULE changes: a message in the mailbox, or events on `server.caldav`."""


@strict
@dataclass(frozen=True, slots=True)
class ListsSection:
    count: Count | None = None
    """Number of lists; with 0, mail goes only to individuals. Default: the profiles'."""
    cover: Share | None = None
    """Instead of `count`: share of the population on lists. Default: the profiles'."""
    size: CountDistribution | None = None
    """Number of members of a list. Default: the profiles'."""
    population: Positive | None = None
    """Number of users from whom lists are made; only lists of active users are addressed. Default: all users."""
    seed: Count = 1
    """Seed of the lists, separate from the run's."""

    def __post_init__(self) -> None:
        if self.count is not None and self.cover is not None:
            raise mismatch("either count or cover", "both")
        if self.size is not None and self.size.min < 1:
            raise mismatch("lists of at least 1 member", show(self.size.min), at=("size", "min"))


FLAT = "flat"
MOST_PARTS = 24 * 60
"""The most parts in a day's shape: one per minute of 24 h."""


def _weights(value: object) -> tuple[float, ...]:
    """Read the weights of the parts of a day or ramp-up, and normalise them; () is flat."""
    if value == FLAT:
        return ()
    weights: list[Any] = value if isinstance(value, list) and 1 < len(value) <= MOST_PARTS else [None]
    if any(
        isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= MOST_WEIGHT
        for weight in weights
    ):
        raise mismatch(f"{FLAT}, or a list of 2 to {MOST_PARTS:,} weights from 0 to 1e6")
    if not any(weights):
        raise mismatch("a weight above 0")
    return normalised(weights)


@strict
@dataclass(frozen=True, slots=True)
class Outage:
    """An outage in the window, after which users log on again by their program's rule."""

    at_s: PositiveDuration
    """Time after the common start. Without the other keys, someone ends sessions by hand, at that time or later."""
    command: Command | None = field(default=None, repr=False)
    """Command that restarts the server, such as `systemctl restart dovecot`. It runs without a shell, in the run
    directory of the machine that conducts the run, for at most a minute. If it fails, the run ends."""
    drop_sessions: Switch = False
    """Abort the connections of all users and companions, as a failing load balancer does; not those of assistants."""

    def __post_init__(self) -> None:
        if self.command is not None and self.drop_sessions:
            raise mismatch("either command or drop_sessions", "both")

    @property
    def by(self) -> OutageCause:
        return "command" if self.command is not None else "drop" if self.drop_sessions else "hand"


@strict
@dataclass(frozen=True, slots=True)
class RunSection:
    day_length_s: PositiveDuration | None = None
    """Length of a day in the run, to which rates, delays and nights are scaled. Default: the profiles'."""
    days: Positive | None = None
    """Number of days, each with its night. Default: 1."""
    duration_s: PositiveDuration | None = None
    """Instead of `days`: length of the run."""
    ramp_up_s: Duration | None = None
    """Time over which log-ons are spread. Default: 1 s per 50 users, at least 1 s."""
    ramp_shape: Annotated[tuple[float, ...], Reads(_weights, f"{FLAT}, or a list")] = ()
    """Log-ons over the ramp-up, as on a morning: weights of its equal parts, as in `day_shape`. Default: `flat`."""
    warm_up_s: Duration | None = None
    """Time after the common start that is not scored. Default: a quarter of the run; with nights, everything before the
    last whole day, and a quarter of that day."""
    window_s: PositiveDuration | None = None
    """Time after the warm-up that is scored. Default: half of the run, or of that day."""
    seed: Count = 1
    """Seed of everything that users do."""
    mode: Annotated[str, word(CANONICAL, STRESS)] = CANONICAL
    """Do tasks when they are due; with `stress`, each user's next activity begins at once, and there is no score."""
    day_shape: Annotated[tuple[float, ...], Reads(_weights, f"{FLAT}, or a list")] = ()
    """Activity over a day: weights of 2 to 1,440 equal parts; only their ratios count. Default: `flat`."""
    outage: Outage | None = None
    """An outage, and the [recovery](../how-to/log-on-storm.md) from it. Default: none."""
    audit: Switch | None = None
    """Read all mailboxes after the run, and account for each message. Default: if there are at most 100,000 messages,
    and on one machine."""
    audit_allow: tuple[Annotated[str, word(*get_args(FaultOnPurpose))], ...] = ()
    """Codes of faults that an audit counts, but that miss no criterion: `mail-altered` if the server adds footers."""

    def __post_init__(self) -> None:
        if self.days is not None and self.duration_s is not None:
            raise mismatch("either days or duration", "both")
        if self.day_shape and self.mode == STRESS:
            raise mismatch(f"{FLAT} with run.mode {STRESS}, where nothing is due", at=("day_shape",))
        if self.outage is not None and self.mode == STRESS:
            raise mismatch(f"no outage with run.mode {STRESS}", "one", at=("outage",))


@strict
@dataclass(frozen=True, slots=True)
class AbortOn:
    """Conditions that end a run early, as Ctrl-C would; None switches one off."""

    failed_share: Share | None = None
    """End the run if a larger share fails among at least 20 tasks that ended within `abort_on.period`."""
    lost_users: Share | None = None
    """End it if a larger share of users has no session throughout that period."""
    period_s: PositiveDuration = 30.0
    """Period over which these conditions are judged, each second."""


@strict
@dataclass(frozen=True, slots=True)
class Losses:
    """Reactions to losing the controller, in a run on several machines."""

    control_limit_s: PositiveDuration = 60.0
    """Time without a message after which the controller counts as lost; the client machine then finishes its load."""
