"""Limits for records and their names, checked when a log is opened.

Within these limits, differences and sums in the analysis do not overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.model.records import CLOCKS, EVENTS, FAILURES, GENERATOR, OUTCOMES
from loadsim.timinglog.documents import LONGEST_S, read_as
from loadsim.timinglog.records import KINDS, NAMES, NEVER, RecordKind, Records

MOST_US = 1 << 50
"""The furthest that an instant may be from its file's start: 35 years."""

LONGEST_LATE_S = float(LONGEST_S)
"""The longest that one cause can make a task late."""

LONGEST_NAME = 1000
"""The most characters in a name in the string table."""

MOST_CHARACTERS = 2**25
"""The most characters in all names together: numpy pads each name to the longest."""

MOST_NUMBERED = 2**16
"""The number of names that 16 bits can index; a writer uses one fewer."""

_ENDED = np.isin(OUTCOMES, ("ok", GENERATOR, *FAILURES))
"""By outcome number, True if a task with this outcome has started and ended."""


class WrongRecord(ValueError):
    """A record that loadsim does not write; the text has the field, expected and found."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")


def check_records(kind: RecordKind, payload: bytearray, most: dict[str, int]) -> None:
    """Check records. Raises `WrongRecord`. `most` has the highest number so far of each kind of name, and of users."""
    records: Records = np.frombuffer(payload, kind.plain)
    for field in (*NAMES, "user"):
        if field in (records.dtype.names or ()):
            most[field] = max(int(records[field].max()), most.get(field, 0))
    _CHECKS[kind.number](records)


def _tasks(records: Records) -> None:
    _codes("outcome", records["outcome"], OUTCOMES)
    _codes("clock", records["clock"], CLOCKS)
    # Copies: numpy takes several times as long with unaligned fields.
    due_us, started_us, ended_us = (records[field].copy() for field in ("scheduled_us", "started_us", "ended_us"))
    never, endless = started_us == NEVER, ended_us == NEVER
    some_never, some_endless = never.any(), endless.any()
    _instants("scheduled_us", due_us)
    _instants("started_us", started_us[~never] if some_never else started_us)
    _instants("ended_us", ended_us[~endless] if some_endless else ended_us)
    wrong = ended_us < started_us
    if some_never or some_endless:
        wrong &= ~endless
        wrong |= never & ~endless
        wrong |= endless & _ENDED[records["outcome"]]
    if wrong.any():
        place = int(np.argmax(wrong))
        outcome = OUTCOMES[records["outcome"][place]]
        found = f"{_instant(started_us[place])} to {_instant(ended_us[place])} ({outcome})"
        raise WrongRecord("ended_us", "an end after the start for a task that ended", found)
    for cause in ("busy", "down", "generator", "between", "own"):
        late_s = records[f"late_{cause}_s"].copy()
        if not (late_s.min() >= 0 and late_s.max() <= LONGEST_LATE_S):  # NaN fails both comparisons
            found = late_s[~((late_s >= 0) & (late_s <= LONGEST_LATE_S))][0]
            raise WrongRecord(f"late_{cause}_s", f"seconds from 0 to {LONGEST_LATE_S:.0f}", found)


def _mails(records: Records) -> None:
    _codes("event", records["event"], EVENTS)
    _instants("at_us", records["at_us"].copy())
    message = records["message"].copy().view(np.uint8).reshape(len(records), -1)
    odd = (message - np.uint8(0x21) > 0x5D) & (message != 0)  # a byte below 0x21 wraps around to a large one
    odd[:, :-1] |= (message[:, :-1] == 0) & (message[:, 1:] != 0)
    if odd.any():
        raise WrongRecord("message", "an id of printable ASCII", f"the byte {message[odd][0]}")


def _commands(records: Records) -> None:
    _codes("outcome", records["outcome"], OUTCOMES)
    _instants("started_us", records["started_us"].copy())


_CHECKS = {KINDS["tasks"].number: _tasks, KINDS["mails"].number: _mails, KINDS["commands"].number: _commands}


def _codes(field: str, codes: NDArray[np.uint8], known: tuple[str, ...]) -> None:
    if (found := int(codes.max())) >= len(known):
        raise WrongRecord(field, f"a number below {len(known)}", found)


def _instants(field: str, instants_us: NDArray[np.int64]) -> None:
    if len(instants_us) and not (instants_us.min() >= -MOST_US and instants_us.max() <= MOST_US):
        far = instants_us[(instants_us < -MOST_US) | (instants_us > MOST_US)]
        raise WrongRecord(field, "an instant within 35 years of the log's start", f"{far[0]} microseconds")


def _instant(at_us: np.int64) -> str:
    return "never" if at_us == NEVER else str(at_us)


def check_names(name: str, names: Any) -> None:
    """Raise `LogError`, naming the file, if names are not texts, are too many, or are too long."""
    read_as(tuple[str, ...], names, f"{name}: names")
    if len(names) > MOST_NUMBERED:
        raise LogError(f"{name}: names: expected at most {MOST_NUMBERED}, found {len(names)}")
    if (longest := max(map(len, names), default=0)) > LONGEST_NAME:
        raise LogError(f"{name}: names: expected at most {LONGEST_NAME} characters each, found {longest}")
    if longest * len(names) > MOST_CHARACTERS:
        found = f"{len(names)} names of up to {longest}"
        raise LogError(f"{name}: names: expected at most {MOST_CHARACTERS} characters together, found {found}")
