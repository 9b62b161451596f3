"""Records that no writer of ours makes: looked for in a group at a time, where a log is opened.

Figures are made of differences, sums and places in tables. Within these limits, none of them overflows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.results.records import COMMAND, EVENTS, FAILURES, KINDS, MAIL, MAKERS, NEVER, OUTCOMES, TASK, Kind

MOST_US = 1 << 50
"""Of an instant, from the beginning of its file: 35 years."""

LONGEST_LATE_S = float(1 << 25)
"""Of a task's lateness by one cause: more than a year."""

_ENDED = np.isin(OUTCOMES, ("ok", *FAILURES))
"""By the number of an outcome: the task began, and came to an end."""


class WrongRecord(ValueError):
    """A record that no writer of ours makes: field, expected, found."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")


def checked(kind: Kind, payload: memoryview, named: bool, most: dict[str, int]) -> NDArray[np.int64]:
    """Return the instants by which these records stand in time order (see `records.placed_us`).

    `most` is given the highest number of each name, and of each user, so far. Raises `WrongRecord`. The fields are
    copied in a few pieces first: numpy takes several times as long for each that is not aligned.
    """
    rows = np.frombuffer(payload, np.uint8).reshape(-1, (kind.named if named else kind.plain).itemsize)
    if named:
        _highest(most, MAKERS, rows[:, kind.plain.itemsize :])
    placed_us: NDArray[np.int64] = _CHECKS[kind.number](rows, most)
    return placed_us


def _tasks(rows: NDArray[np.uint8], most: dict[str, int]) -> NDArray[np.int64]:
    _highest(most, ("task", "profile", "protocol", "error"), rows[:, 48:56])
    _codes("outcome", rows[:, 56], OUTCOMES)
    lead = rows[:, :40].copy()
    instants_us, late_s = lead.view("<i8"), lead.view("<f4")[:, 6:9]
    due_us, started_us, ended_us = instants_us[:, 0].copy(), instants_us[:, 1].copy(), instants_us[:, 2].copy()
    never, endless = started_us == NEVER, ended_us == NEVER
    _instants("scheduled_us", due_us)
    some_never, some_endless = never.any(), endless.any()
    _instants("started_us", started_us[~never] if some_never else started_us)
    _instants("ended_us", ended_us[~endless] if some_endless else ended_us)
    before = ended_us < started_us
    if some_never or some_endless:
        before &= ~endless
        before |= never & ~endless
        before |= endless & _ENDED[rows[:, 56]]
    if before.any():
        place = int(np.argmax(before))
        found = f"{_instant(started_us[place])} to {_instant(ended_us[place])} ({OUTCOMES[rows[place, 56]]})"
        raise WrongRecord("ended_us", "an end after the start of what came to one", found)
    if not (late_s.min() >= 0 and late_s.max() <= LONGEST_LATE_S):  # NaN is neither
        wrong = late_s[~((late_s >= 0) & (late_s <= LONGEST_LATE_S))]
        raise WrongRecord("lateness", f"seconds from 0 to {LONGEST_LATE_S:.0f}", wrong[0])
    _user(most, lead.view("<u4")[:, 9])
    if some_never:
        started_us[never] = due_us[never]
    return started_us


def _mails(rows: NDArray[np.uint8], most: dict[str, int]) -> NDArray[np.int64]:
    _highest(most, ("folder",), rows[:, 40:42])
    _codes("event", rows[:, 42], EVENTS)
    lead = rows[:, :32].copy()
    at_us: NDArray[np.int64] = lead.view("<i8")[:, 0].copy()
    _instants("at_us", at_us)
    message = lead[:, 8:28]
    odd = (message - np.uint8(0x21) > 0x5D) & (message != 0)  # below 0x21 it is beyond that, too
    odd[:, :-1] |= (message[:, :-1] == 0) & (message[:, 1:] != 0)
    if odd.any():
        raise WrongRecord("message", "an id of printable ASCII", f"the byte {message[odd][0]}")
    _user(most, lead.view("<u4")[:, 7])
    return at_us


def _commands(rows: NDArray[np.uint8], most: dict[str, int]) -> NDArray[np.int64]:
    _highest(most, ("command",), rows[:, 24:26])
    _codes("outcome", rows[:, 26], OUTCOMES)
    lead = rows[:, :16].copy()
    started_us: NDArray[np.int64] = lead.view("<i8")[:, 0].copy()
    _instants("started_us", started_us)
    _user(most, lead.view("<u4")[:, 3])
    return started_us


_CHECKS = {KINDS["tasks"].number: _tasks, KINDS["mails"].number: _mails, KINDS["commands"].number: _commands}

OFFSETS: Sequence[tuple[str, np.dtype[Any], Mapping[str, int]]] = (
    ("tasks", TASK, {"scheduled_us": 0, "late_busy_s": 24, "user": 36, "task": 48, "outcome": 56}),
    ("mails", MAIL, {"at_us": 0, "message": 8, "user": 28, "folder": 40, "event": 42}),
    ("commands", COMMAND, {"started_us": 0, "user": 12, "command": 24, "outcome": 26}),
)
"""Where the fields are that are looked at."""


def _highest(most: dict[str, int], fields: tuple[str, ...], columns: NDArray[np.uint8]) -> None:
    for field, number in zip(fields, columns.copy().view("<u2").max(axis=0).tolist(), strict=True):
        most[field] = max(number, most.get(field, 0))


def _codes(field: str, codes: NDArray[np.uint8], known: tuple[str, ...]) -> None:
    if (found := int(codes.max())) >= len(known):
        raise WrongRecord(field, f"a number below {len(known)}", found)


def _instants(field: str, instants_us: NDArray[np.int64]) -> None:
    if len(instants_us) and not (instants_us.min() >= -MOST_US and instants_us.max() <= MOST_US):
        far = instants_us[(instants_us < -MOST_US) | (instants_us > MOST_US)]
        raise WrongRecord(field, "an instant within 35 years of the log's begin", f"{far[0]} microseconds")


def _instant(at_us: np.int64) -> str:
    return "never" if at_us == NEVER else str(at_us)


def _user(most: dict[str, int], users: NDArray[np.uint32]) -> None:
    most["user"] = max(int(users.max()), most.get("user", 0))
