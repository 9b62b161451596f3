"""What a kind of user does in a day: the canonical user profiles, as values, read from `profiles/`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter

from loadsim.errors import ConfigError
from loadsim.model.distribution import SpreadOfCounts, SpreadOfDurations, SpreadOfSizes
from loadsim.model.schema import (
    Amount,
    Count,
    Duration,
    Off,
    Positive,
    Share,
    SomeDuration,
    Switch,
    Text,
    strict,
    word,
)
from loadsim.model.yaml_reader import Origin, known, locate, merge, parse, read_file, refused, shipped, show

KINDS = ("ups1K", "ups2K", "ups4K", "ups10Kat", "upsBMobj", "upsWDatt", "upsXLatt", "upsXLobj")
"""The message kinds, in the order of Compaq 1997, Table 1; a draw of a kind goes through them in this order."""

OUTCOMES = ("reply", "reply_all", "forward", "move", "copy", "delete", "nothing")
"""What can follow the reading of a message, in the order of the tables; a draw goes through them in this order."""


# --- the sections of a profile ----------------------------------------------------------------------------------


@strict
@dataclass(frozen=True, slots=True)
class StartState:
    """What lies in a mailbox before the run: messages in the Inbox (unread), Deleted Items and new folders (read)."""

    inbox: Count
    deleted_items: Count
    folders: Count
    messages_per_folder: Count


@strict
@dataclass(frozen=True, slots=True)
class NewMail:
    """New messages: how many a day, to how many random users, and how often a distribution list besides."""

    per_day: Amount
    recipients: Positive
    list_chance: Share
    save_sent: Switch = True
    priority: Annotated[str, word("normal")] = "normal"
    delivery_receipt: Off = False
    read_receipt: Off = False


@strict
@dataclass(frozen=True, slots=True)
class ProcessInbox:
    """How often a day the Inbox is opened and all that is unread in it is read, and the delay between messages."""

    per_day: Amount
    read_note_delay_ms: SpreadOfDurations = field(metadata={"key": "read_note_delay"})


@strict
@dataclass(frozen=True, slots=True)
class Browse:
    """How often a day one old message of a random folder is read."""

    per_day: Amount


@strict
@dataclass(frozen=True, slots=True)
class Outcomes:
    """What follows the reading of a message: exclusive chances; what is left of 100% does `nothing`."""

    reply: Share = 0.0
    reply_all: Share = 0.0
    forward: Share = 0.0
    move: Share = 0.0
    copy: Share = 0.0
    delete: Share = 0.0
    nothing: Share = 0.0

    def __post_init__(self) -> None:
        """Refuse more than 100%; give the rest to `nothing`."""
        acts = math.fsum(getattr(self, name) for name in OUTCOMES[:-1])
        if acts + self.nothing > 1 + 1e-9:
            raise refused("outcomes of at most 100% together", f"{100 * (acts + self.nothing):.10g}%")
        object.__setattr__(self, "nothing", max(0.0, round(1 - acts, 12)))

    @property
    def cumulative(self) -> tuple[tuple[str, float], ...]:
        """Each outcome's name with the running sum of the chances, in the order of OUTCOMES; the last is 1."""
        sums = list(accumulate(getattr(self, name) for name in OUTCOMES))
        return (*zip(OUTCOMES[:-1], sums, strict=False), (OUTCOMES[-1], 1.0))


@strict
@dataclass(frozen=True, slots=True)
class ListRule:
    """Distribution lists: a `count` of them, or as many as `cover` a share of the users; and their sizes."""

    size: SpreadOfCounts
    count: Count | None = None
    cover: Share | None = None
    overlap: Off = False

    def __post_init__(self) -> None:
        """Refuse both rules, or none; and lists without members."""
        if (self.count is None) == (self.cover is None):
            raise refused("either count or cover", "neither" if self.count is None else "both")
        if self.size.min < 1:
            raise refused("lists of at least 1 member", show(self.size.min), at=("size", "min"))


@strict
@dataclass(frozen=True, slots=True)
class Schedule:
    """Changes of the user's schedule: each writes the schedule file anew."""

    per_day: Amount
    file_bytes: SpreadOfSizes = field(metadata={"key": "file_size"})
    free_busy: Off = False


@strict
@dataclass(frozen=True, slots=True)
class PublicFolders:
    """Public folders: not used by the canonical profiles, nor by loadsim yet."""

    post: Off = False
    browse: Off = False


@strict
@dataclass(frozen=True, slots=True)
class Calculated:
    """The published calculated load: messages per user and day, and recipients per message; None: not published."""

    received: Amount
    sent: Amount
    new: Amount | None = None
    reply: Amount | None = None
    reply_all: Amount | None = None
    forward: Amount | None = None
    recipients: Amount | None = None


def _weights_of_kinds(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        raise refused("a mapping")
    for kind, weight in value.items():
        if kind not in KINDS:
            raise refused(f"one of the message kinds {', '.join(KINDS)}", show(kind), at=(str(kind),))
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= sys.float_info.max:
            raise refused("a weight of at least 0", show(weight), at=(kind,))
    if not any(value.values()):
        raise refused("a weight above 0", "none")
    return {kind: float(value.get(kind, 0)) for kind in KINDS}


def _sources(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise refused("a mapping")
    for row, source in value.items():
        if not isinstance(row, str) or not isinstance(source, str):
            raise refused("a row's name and the text that names its source", show(source), at=(str(row),))
    return dict(value)


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of user. Rates are per user and day of `day_s` seconds; `sources` names document and table of each row.

    After each day comes a night of `night_s` seconds, in which users stay logged on and set out to do nothing.
    """

    name: Text
    source: Text = "not stated"
    sources: Annotated[Mapping[str, str], PlainValidator(_sources)] = field(default_factory=dict)
    day_s: SomeDuration
    night_s: Duration = 0.0
    log_on: Annotated[str, word("once")] = "once"
    log_off_daily: Off = False
    empty_deleted_items_on_log_off: Switch = True
    inbox_limit: Count | None = None
    load_attachment: Share
    start_state: StartState
    new_mail: NewMail
    process_inbox: ProcessInbox
    browse: Browse
    after_reading: Outcomes
    after_browsing: Outcomes = field(default_factory=Outcomes)
    messages: Annotated[dict[str, float], PlainValidator(_weights_of_kinds)]
    lists: ListRule
    schedule: Schedule
    public_folders: PublicFolders = field(default_factory=PublicFolders)
    calculated: Calculated | None = None


_PROFILE = TypeAdapter(Profile)


# --- files ------------------------------------------------------------------------------------------------------


def load_profile(reference: str, relative_to: Path | None = None) -> Profile:
    """Read the profile that a bare name (`loadsim-5.5/medium`) or a path means.

    `relative_to` is the directory that a path starts from. Raises ConfigError, one line.
    """
    found = locate("profiles", reference, relative_to)
    if found is None:
        raise ConfigError(f"profile: expected {expected_profile()}, found {show(reference)}")
    return _shipped(*found) if reference in known("profiles") else _load(*found, ())[0]


@cache
def _shipped(path: Path, name: str) -> Profile:
    """What is shipped does not change while a program runs."""
    return _load(path, name, ())[0]


def expected_profile() -> str:
    """The words for what names a profile: the shipped ones, or a path."""
    return f"one of {', '.join(known('profiles'))}, or the path of a .yaml file"


def _load(path: Path, name: str, above: tuple[Path, ...]) -> tuple[Profile, dict[str, Any]]:
    """Read a file and what it starts from; the profile, and the merged document for those that start from it."""
    document = _with_sources(read_file(path, name), Origin(name))
    origin = Origin(name)
    if "from" in document:
        reference = document.pop("from")
        found = locate("profiles", reference, path.parent) if isinstance(reference, str) else None
        if found is None:
            raise origin.refuse(("from",), expected_profile(), reference)
        above = (*above, path.resolve())
        if found[0].resolve() in above:
            raise origin.refuse(("from",), "a profile that does not start from this one", reference)
        document = _override(_load(*found, above)[1], document)
    return parse(_PROFILE, document, origin), document


def _with_sources(document: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """Collect what each section says of its source into the one mapping `sources`, by section."""
    sources = document.get("sources", {})
    if not isinstance(sources, dict):
        raise origin.refuse(("sources",), "a mapping", sources)
    sections = dict(document)
    for row, section in document.items():
        if isinstance(section, dict) and "source" in section and row != "sources":
            if not isinstance(section["source"], str):
                raise origin.refuse((row, "source"), "a text", section["source"])
            sources = {**sources, row: section["source"]}
            sections[row] = {key: value for key, value in section.items() if key != "source"}
    return {**sections, "sources": sources} if sources else sections


def _override(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Put a profile's own rows over those it starts from.

    A name stands for one profile, a source vouches for the rows that it published, and the calculated load for
    the whole table: none of them is inherited by what was changed.
    """
    kept = {key: value for key, value in base.items() if key not in ("name", "source", "calculated")}
    gone = {*over, "calculated"}
    kept["sources"] = {row: source for row, source in base.get("sources", {}).items() if row not in gone}
    for row in ("after_reading", "after_browsing"):  # what is left of 100% does nothing
        if isinstance(over.get(row), dict) and isinstance(kept.get(row), dict):
            kept[row] = {key: value for key, value in kept[row].items() if key != "nothing"}
    merged: dict[str, Any] = merge(kept, over)
    return merged


def load_weights(path: Path | None = None) -> dict[str, float]:
    """The weights of the scored tasks, by task; this project's own (`profiles/weights.yaml`) unless given."""
    name = str(path) if path else "profiles/weights.yaml"
    document = read_file(path or shipped("profiles") / "weights.yaml", name)
    return parse(_WEIGHTS, document, Origin(name)).weights


def read_weights(value: object) -> dict[str, float]:
    """Check a mapping of tasks to weights; at least one is above 0."""
    if not isinstance(value, dict):
        raise refused("a mapping")
    for task, weight in value.items():
        if not isinstance(task, str):
            raise refused("the name of a task", show(task))
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= sys.float_info.max:
            raise refused("a weight of at least 0", show(weight), at=(task,))
    return {task: float(weight) for task, weight in value.items()}


@strict
@dataclass(frozen=True, slots=True)
class _WeightsFile:
    source: Text
    weights: Annotated[dict[str, float], PlainValidator(read_weights)]


_WEIGHTS = TypeAdapter(_WeightsFile)
