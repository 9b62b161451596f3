"""A log in parts: by who the users were, who simulated them, when tasks were due, or how they ended."""

from __future__ import annotations

from loadsim.results.gathering import MINUTE, Part
from loadsim.results.records import OUTCOMES
from loadsim.results.timinglog import TimingLog

OUTCOME = "outcome"

BY = {
    "group": ("profile", "protocol"),
    "profile": ("profile",),
    "module": ("protocol",),
    "client": ("client",),
    MINUTE: (MINUTE,),
    OUTCOME: (OUTCOME,),
}
"""What a log can be parted by, and the fields of its records that say it. A group is the users of one profile on one
client module."""


def in_order(log: TimingLog, by: str, parts: list[Part]) -> list[tuple[str, Part]]:
    """Parts with their names: in alphabetical order; minutes and outcomes in their own.

    Minutes count from the common start: 0:01 is what was due from 60 s to 120 s.
    """
    if by == MINUTE:
        return [(f"{minute // 60}:{minute % 60:02d}", (minute,)) for (minute,) in sorted(parts)]
    if by == OUTCOME:
        return [(OUTCOMES[outcome], (outcome,)) for (outcome,) in sorted(parts)]
    return sorted((" on ".join(log.strings[number] for number in part), part) for part in parts)
