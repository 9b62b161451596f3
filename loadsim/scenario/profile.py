"""User profiles: the daily activities of a kind of user, read from `profiles/`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from loadsim.documents.schema import (
    Amount,
    Count,
    Duration,
    Positive,
    PositiveDuration,
    Share,
    Switch,
    Text,
    with_nearest,
)
from loadsim.documents.typed import Reads, mismatch, show, strict
from loadsim.documents.yaml_reader import Origin, expected_file, known, locate, located, merge, parse, read_document
from loadsim.errors import ConfigError
from loadsim.files import real_path
from loadsim.model.ports import SearchKey
from loadsim.model.terms import MOST_USERS
from loadsim.scenario.distribution import CountDistribution, DurationDistribution, SizeDistribution
from loadsim.scenario.mailboxes import MessageSizes
from loadsim.scenario.weights import expected_plugin_task, may_name_plugin_task, read_weights

KINDS = ("ups1K", "ups2K", "ups4K", "ups10Kat", "upsBMobj", "upsWDatt", "upsXLatt", "upsXLobj")
"""The message kinds in the order of Compaq 1997, Table 1, which draws follow."""

SEARCH_KEYS = tuple(key.name.lower() for key in SearchKey)

OUTCOMES = ("reply", "reply_all", "forward", "move", "copy", "delete", "nothing")
"""The outcomes of reading a message in the order of the tables, which draws follow."""


# --- the sections of a profile ----------------------------------------------------------------------------------


@strict
@dataclass(frozen=True, slots=True)
class StartState:
    """The messages in a mailbox before the run: unread in the Inbox, read in Deleted Items and in own folders."""

    inbox: Count
    """Unread messages in the Inbox."""
    deleted_items: Count
    """Messages in Deleted Items."""
    folders: Positive
    """Number of the user's own folders."""
    messages_per_folder: Count
    """Read messages in each of these folders."""


@strict
@dataclass(frozen=True, slots=True)
class NewMail:
    per_day: Amount
    """New messages per day."""
    recipients: Positive
    """Number of random recipients."""
    list_chance: Share
    """Share of messages to which a distribution list is added."""
    save_sent: Switch = True
    """Save a copy in Sent Items."""


@strict
@dataclass(frozen=True, slots=True)
class ProcessInbox:
    per_day: Amount
    """Times a day that the user reads all unread messages."""
    read_note_delay_ms: DurationDistribution = field(metadata={"key": "read_note_delay"})
    """Pause between messages, `{min, average, max}`; scales with the day."""
    delete_unread: Share = 0.0
    """Share of new messages that are moved to Deleted Items instead of being read. Default: 0%."""


@strict
@dataclass(frozen=True, slots=True)
class Browse:
    per_day: Amount
    """Times a day that the user reads an old message from a random folder."""


def _weights_of_keys(value: object) -> dict[str, float]:
    return _some_of(read_weights(value, "search keys", SEARCH_KEYS), SEARCH_KEYS)


@strict
@dataclass(frozen=True, slots=True)
class SearchHabit:
    per_day: Amount
    """Times a day that the user has the server search the Inbox, and reads a message found."""
    by: Annotated[dict[str, float], Reads(_weights_of_keys, "mapping")] = field(
        default_factory=lambda: dict.fromkeys(SEARCH_KEYS, 1.0)
    )
    """Weights of the `sender`, `subject` and `text` (header and body) by which users search. Default: 1 each."""


@strict
@dataclass(frozen=True, slots=True)
class Receipts:
    delivery: Share = 0.0
    """Share of sent messages for which the user requests a delivery receipt (RFC 3461). Default: 0%."""
    read: Share = 0.0
    """Share of sent messages that request a read receipt (RFC 8098). Default: 0%."""
    returned: Share = 0.0
    """Share of the read receipts requested from the user that their program returns. Default: 0%."""

    @property
    def requested(self) -> bool:
        return bool(self.delivery or self.read)


@strict
@dataclass(frozen=True, slots=True)
class Outcomes:
    """The chances of the exclusive outcomes of reading a message; the rest up to 100% is `nothing`."""

    reply: Share = 0.0
    """Reply to the sender."""
    reply_all: Share = 0.0
    """Reply to sender and individual recipients."""
    forward: Share = 0.0
    """Forward it, addressed like a new message."""
    move: Share = 0.0
    """Move it to a random folder."""
    copy: Share = 0.0
    """Copy it to a random folder."""
    delete: Share = 0.0
    """Move it to Deleted Items."""
    nothing: Share = 0.0
    """Leave it. Default: the rest up to 100%."""

    def __post_init__(self) -> None:
        """Reject more than 100%; the rest is `nothing`."""
        acts = math.fsum(getattr(self, name) for name in OUTCOMES[:-1])
        if acts + self.nothing > 1 + 1e-9:
            raise mismatch("outcomes of at most 100% in total", f"{100 * (acts + self.nothing):.10g}%")
        object.__setattr__(self, "nothing", max(0.0, round(1 - acts, 12)))

    @property
    def cumulative(self) -> tuple[tuple[str, float], ...]:
        """Each outcome with the running sum of chances, in the order of `OUTCOMES`; the last sum is 1."""
        sums = list(accumulate(getattr(self, name) for name in OUTCOMES))
        return (*zip(OUTCOMES[:-1], sums, strict=False), (OUTCOMES[-1], 1.0))


@strict
@dataclass(frozen=True, slots=True)
class ListRule:
    """Distribution lists: either their `count`, or the share of users that they `cover`; and their sizes."""

    size: CountDistribution
    """Members of a list, `{min, average, max}`."""
    count: Count | None = None
    """Number of lists; this or `cover`."""
    cover: Share | None = None
    """Share of users who are on lists; this or `count`."""

    def __post_init__(self) -> None:
        if (self.count is None) == (self.cover is None):
            raise mismatch("either count or cover", "neither" if self.count is None else "both")
        if self.size.min < 1:
            raise mismatch("lists of at least 1 member", show(self.size.min), at=("size", "min"))


@strict
@dataclass(frozen=True, slots=True)
class Schedule:
    per_day: Amount
    """Changes to the schedule per day."""
    file_bytes: SizeDistribution = field(metadata={"key": "file_size"})
    """Size of the schedule file, `{min, average, max}`."""


@strict
@dataclass(frozen=True, slots=True)
class PostHabit:
    per_day: Amount
    """Times a day that the user posts a message to the public folder."""


@strict
@dataclass(frozen=True, slots=True)
class BrowsePublic:
    per_day: Amount
    """Times a day that the user lists the public folder, and reads one of its newest messages."""


@strict
@dataclass(frozen=True, slots=True)
class PluginTask:
    per_day: Amount


def _plugin_task(name: object) -> object:
    if not may_name_plugin_task(name):
        raise mismatch(expected_plugin_task())
    return name


@strict
@dataclass(frozen=True, slots=True)
class Calculated:
    """The published calculated load: messages per user and day, and recipients per message; None if unpublished."""

    received: Amount
    """Messages received per day."""
    sent: Amount
    """Messages sent per day."""
    new: Amount | None = None
    """New messages per day."""
    reply: Amount | None = None
    """Replies per day."""
    reply_all: Amount | None = None
    """Replies to all per day."""
    forward: Amount | None = None
    """Forwards per day."""
    recipients: Amount | None = None
    """Mean number of recipients of a message."""


def _weights_of_kinds(value: object) -> dict[str, float]:
    return _some_of(read_weights(value, "message kinds", KINDS), KINDS)


MessageKinds = Annotated[dict[str, float], Reads(_weights_of_kinds, "mapping")]


def _check_messages(kinds: dict[str, float] | None, sizes: MessageSizes | None) -> None:
    if kinds is None and sizes is None:
        raise mismatch("messages or message_sizes", "neither", at=("messages",))
    if kinds is not None and sizes is not None:
        raise mismatch("either messages or message_sizes", "both", at=("message_sizes",))


def _some_of(weights: dict[str, float], names: Sequence[str]) -> dict[str, float]:
    if not any(weights.values()):
        raise mismatch("a weight above 0", "none")
    return {name: weights.get(name, 0.0) for name in names}


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of user. Rates are per user and day of `day_s` seconds.

    A night of `night_s` seconds follows each day, during which users stay logged on but start no activities.
    """

    name: Text
    """Name of these users in results."""
    day_s: PositiveDuration
    """Length of a user's day."""
    night_s: Duration = 0.0
    """Time after each day in which users start no activities."""
    empty_deleted_items_on_log_off: Switch = True
    """Empty Deleted Items before logging off."""
    inbox_limit: Count | None = None
    """Number of messages in the Inbox above which the oldest are moved to Deleted Items. Default: no limit."""
    load_attachment: Share
    """Share of messages with an attachment whose attachment is loaded after reading."""
    start_state: StartState
    """The mailbox before the run."""
    new_mail: NewMail
    """New messages."""
    process_inbox: ProcessInbox
    """Reading new mail."""
    browse: Browse
    """Reading old mail."""
    after_reading: Outcomes
    """Outcomes of reading a new message, which are exclusive."""
    after_browsing: Outcomes = field(default_factory=Outcomes)
    """Outcomes of reading an old message, likewise exclusive."""
    messages: MessageKinds | None = None
    """Weights of the kinds of messages: texts of 1, 2, 4 KiB (`ups1K`, `ups2K`, `ups4K`), or of 1 KiB with an
    attachment of 10 KiB (`ups10Kat`), of Word or Excel (`upsWDatt`, `upsXLatt`), an embedded bitmap or Excel object
    (`upsBMobj`, `upsXLobj`); this or `message_sizes`."""
    message_sizes: MessageSizes | None = None
    """Sizes of new messages, as in a scenario's `mailbox.sizes`; this or `messages`. Above 8 KiB, most of a message
    is an attachment."""
    lists: ListRule
    """Distribution lists."""
    search: SearchHabit = field(default_factory=lambda: SearchHabit(0.0))
    """Searching. Default: never."""
    receipts: Receipts = field(default_factory=Receipts)
    """Receipts that users request and return. Default: none."""
    schedule: Schedule
    """The user's calendar."""
    post: PostHabit = field(default_factory=lambda: PostHabit(0.0))
    """Posting to the public folder, which the scenario's `folders` name. Default: never."""
    browse_public: BrowsePublic = field(default_factory=lambda: BrowsePublic(0.0))
    """Reading in the public folder. Default: never."""
    tasks: dict[Annotated[str, Reads(_plugin_task, "text")], PluginTask] = field(default_factory=dict)
    """Tasks of plug-ins, `{NAME: {per_day: 10}}`."""
    calculated: Calculated | None = None
    """Published load, which `loadsim plan` compares with its own."""

    def __post_init__(self) -> None:
        _check_messages(self.messages, self.message_sizes)


def _recipients(value: object) -> int:
    if value == "all":
        return MOST_USERS
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise mismatch("a whole number from 1, or all")
    return value


@strict
@dataclass(frozen=True, slots=True)
class OutsideMail:
    per_day: Amount
    """New messages per day of the users' profiles."""
    recipients: Annotated[int, Reads(_recipients, "from 1, or all")] = 1
    """Number of random recipients, or all users at once."""
    list_chance: Share = 0.0
    """Share of messages to which a distribution list is added."""


def _no_mailbox(value: object) -> bool:
    if value is not False:
        raise mismatch("no; users with a mailbox do not state it")
    return False


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class SenderProfile:
    """A kind of outside sender: they have no mailbox on the server, and only send new mail."""

    name: Text
    """Name of these senders in results."""
    mailbox: Annotated[bool, Reads(_no_mailbox, "no")]
    """Marks the profile of senders without a mailbox."""
    new_mail: OutsideMail
    """New messages."""
    unknown_recipients: Share = 0.0
    """Share of messages to an address that does not exist."""
    messages: MessageKinds | None = None
    """Weights of the kinds of messages, as for users; this or `message_sizes`."""
    message_sizes: MessageSizes | None = None
    """Sizes of messages, as for users; this or `messages`."""

    def __post_init__(self) -> None:
        _check_messages(self.messages, self.message_sizes)


# --- files ------------------------------------------------------------------------------------------------------


AnyProfile = Profile | SenderProfile


def load_profile(reference: str, relative_to: Path | None = None) -> Profile:
    """Read a profile as `load_any_profile` does. Raises `ConfigError` for that of outside senders, too."""
    profile = load_any_profile(reference, relative_to)
    if isinstance(profile, SenderProfile):
        raise ConfigError(f"profile {reference}: expected users with mailboxes, found mailbox: no")
    return profile


def load_any_profile(reference: str, relative_to: Path | None = None) -> AnyProfile:
    """Read a profile from its shipped name (`loadsim-5.5/medium`), or from a path relative to `relative_to`.

    Raises a one-line `ConfigError`.
    """
    place = located("profiles", reference, relative_to)
    return _shipped(*place) if reference in known("profiles") else _load(*place, ())[0]


@cache
def _shipped(path: Path, name: str) -> AnyProfile:
    """Read a shipped profile once; it does not change while a program is running."""
    return _load(path, name, ())[0]


def _load(path: Path, name: str, above: tuple[Path, ...]) -> tuple[AnyProfile, dict[str, Any]]:
    """Read a file and its base (`from`); return the profile, and the merged document for profiles based on it."""
    document, origin = read_document(path, name)
    if "from" in document:
        document = _override(_base(document.pop("from"), origin, path, above), document)
    return parse(SenderProfile if "mailbox" in document else Profile, document, origin), document


def _base(reference: object, origin: Origin, path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Return the document of the profile on which a file is based; `above` are the files based on this file."""
    place = locate("profiles", reference, path.parent) if isinstance(reference, str) else None
    if place is None:
        raise origin.error_saying(("from",), expected_file("profiles"), with_nearest(reference, known("profiles")))
    above = (*above, real_path(path))
    if real_path(place[0]) in above:
        raise origin.error(("from",), "a profile that does not start from this one", reference)
    return _load(*place, above)[1]


def _override(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Override the rows of a profile's base with the profile's own.

    The name is not inherited; nor is the calculated load, which was published for the whole table.
    """
    kept = {key: value for key, value in base.items() if key not in ("name", "calculated")}
    for row in ("after_reading", "after_browsing"):  # recomputed from the rest
        if isinstance(over.get(row), dict) and isinstance(kept.get(row), dict):
            kept[row] = {key: value for key, value in kept[row].items() if key != "nothing"}
    merged: dict[str, Any] = merge(kept, over)
    return merged
