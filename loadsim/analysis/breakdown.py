"""A log in parts: by who the users were, who simulated them, when tasks were due, or how they ended."""

from __future__ import annotations

from loadsim.analysis.aggregate import GROUP, MINUTE, Part
from loadsim.timinglog.groups import Groups
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import OUTCOMES

OUTCOME = "outcome"

BY = {
    GROUP: (GROUP,),
    "profile": ("profile",),
    "module": ("protocol",),
    "client": ("client",),
    MINUTE: (MINUTE,),
    OUTCOME: (OUTCOME,),
}
"""What a log can be parted by, and the fields of its records that say it."""


def fields_of(log: TimingLog, by: str) -> tuple[str, ...]:
    """The same for this log: where it does not say who was in which group, a group is a profile on a client module."""
    return ("profile", "protocol") if by == GROUP and Groups.of(log.header) is None else BY[by]


def in_order(log: TimingLog, by: str, parts: list[Part]) -> list[tuple[str, Part]]:
    """Parts with their names: in alphabetical order; groups, minutes and outcomes in their own.

    Minutes count from the common start: 0:01 is what was due from 60 s to 120 s.
    """
    if by == MINUTE:
        return [(f"{minute // 60}:{minute % 60:02d}", (minute,)) for (minute,) in sorted(parts)]
    if by == GROUP and (groups := Groups.of(log.header)):
        return [(groups.name(group), (group,)) for (group,) in sorted(parts)]
    if by == OUTCOME:
        return [(OUTCOMES[outcome], (outcome,)) for (outcome,) in sorted(parts)]
    return sorted((" on ".join(log.strings[number] for number in part), part) for part in parts)
