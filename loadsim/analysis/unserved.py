"""Users without usable service: for too much of the window, their tasks failed or were late, or their mail was late.

Tasks and mail come in bursts, so each sixtieth of the window counts once, with its share of bad ones. The mean of `n`
independent shares, each expected to be at most `p`, reaches `x` with a probability of at most exp(-n KL(x, p)): theorem
1 of W. Hoeffding, J. Am. Stat. Assoc. 58, 1963. KL is the Kullback-Leibler divergence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.aggregate import UserRows
from loadsim.analysis.criteria import Limits
from loadsim.analysis.delivery import Journeys
from loadsim.model.records import FAILURES, GENERATOR, OUTCOMES
from loadsim.model.terms import INJECT, WITHOUT_WINDOW, Window
from loadsim.scenario.criteria import SCORED
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

PARTS = 60
"""The number of parts of the window; even a long stall affects only a few."""

LEAST_PARTS = 3
"""Users with scored tasks in fewer parts of the window are not judged by them; likewise for mail."""

LATE_SHARE = 0.05
"""The share of tasks or messages that may exceed a limit on the 95th percentile."""

CHANCE = 0.001
"""The largest share of users whose tasks are this bad by chance, if the server just meets the limits for each user."""

MOST_NAMED = 5

_COLUMNS = PARTS + 1
"""Rounding may place the last microsecond of the window beyond its last part."""

OF_NO_USER = (*WITHOUT_WINDOW, INJECT)

_P95 = "response_p95_ms"
_IS_FAILURE = np.isin(OUTCOMES, FAILURES)


@dataclass(frozen=True, slots=True)
class Unserved:
    """The number of users without usable service; `first` has the numbers of some of them.

    `share` is the larger of two shares: among users judged by their tasks, and among users judged by their mail.
    """

    users: int
    share: float
    first: tuple[str, ...]


class _Shares:
    """Counts of tasks or messages by user and part of the window: all, late and failed ones; 732 bytes per user.

    New users take the next rows, so no count moves.
    """

    def __init__(self, window_s: Window) -> None:
        self._begin_us, self._length_us = round(window_s.begin_s * 1e6), round(window_s.length_s * 1e6)
        self.users = UserRows()
        self._counts = np.zeros((0, 3, _COLUMNS), np.uint32)

    def count(
        self, users: NDArray[Any], due_us: NDArray[np.int64], late: NDArray[np.bool_], failed: NDArray[np.bool_]
    ) -> None:
        rows, known = self.users.add(users), len(self._counts)
        if len(self.users) > known:  # twice as many: the memory of unused rows is not touched
            counts = np.zeros((2 * len(self.users), 3, _COLUMNS), np.uint32)
            counts[:known] = self._counts
            self._counts = counts
        at = rows.astype(np.intp) * (3 * _COLUMNS) + (due_us - self._begin_us) * PARTS // self._length_us
        for place, some in enumerate((at, at[late], at[failed])):
            np.add.at(self._counts.reshape(-1), some + place * _COLUMNS, np.uint32(1))

    def judged(self, failed_most: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the users who can be judged, and those of them without usable service."""
        active, late, failed = (np.zeros(len(self.users)) for _ in range(3))
        for part in range(_COLUMNS):
            planned, late_ones, failed_ones = self._counts[: len(self.users), :, part].T
            active += planned > 0
            late += late_ones / np.maximum(planned, 1)
            failed += failed_ones / np.maximum(planned, 1)
        late, failed = late / np.maximum(active, 1), failed / np.maximum(active, 1)
        judged = active >= LEAST_PARTS
        bad = _beyond(late, active, LATE_SHARE) | _beyond(failed, active, failed_most)
        return self.users.users[judged], self.users.users[judged & bad]


class TasksByUser:
    """Counts the scored tasks of each user in the window.

    A task is late if its response time exceeds the limit of `criteria` on its 95th percentile; without a hit, that time
    is infinite. The criterion on `failed_share` limits a user's failed tasks. Tasks in which the generator failed do
    not count.
    """

    def __init__(
        self, log: TimingLog, window_s: Window, weights: Mapping[str, float], criteria: Mapping[str, Limits | None]
    ) -> None:
        self._log, self._window_s, self._criteria = log, window_s, criteria
        self._scored = {name for name, weight in weights.items() if weight > 0 and name not in OF_NO_USER}
        self.shares = _Shares(window_s)

    def add(self, tasks: Columns) -> None:
        protocol, task = (self._log.strings[tasks[name][0]] for name in ("protocol", "task"))
        if task not in self._scored:
            return
        inside = in_window(tasks["scheduled_us"], self._window_s)
        tasks = tasks.kept(inside & (tasks["outcome"] != OUTCOME[GENERATOR]))
        outcome, took_us = tasks["outcome"], tasks["ended_us"] - tasks["scheduled_us"]
        is_late = np.where(outcome == OUTCOME["ok"], took_us, np.inf) > self._limit_us(protocol, task)
        self.shares.count(tasks["user"], tasks["scheduled_us"], is_late, _IS_FAILURE[outcome])

    def _limit_us(self, protocol: str, task: str) -> float:
        names = (f"by_protocol.{protocol}.tasks.{task}.{_P95}", f"tasks.{task}.{_P95}", f"{SCORED}{_P95}")
        return 1000 * _most(next((self._criteria[name] for name in names if name in self._criteria), None))


class MailByUser:
    """Counts the mail to each user in the window: late if it exceeded the limit on delivery, or never arrived."""

    def __init__(self, window_s: Window, criteria: Mapping[str, Limits | None]) -> None:
        self._window_s, self._limit_us = window_s, 1000 * _most(criteria.get("delivery.p95_ms"))
        self.shares = _Shares(window_s)

    def add(self, mail: Journeys) -> None:
        counted = in_window(mail.accepted_us, self._window_s) & ~mail.unwatched
        took_us = np.where(mail.arrived_us == NEVER, np.inf, mail.arrived_us - mail.accepted_us)[counted]
        late = took_us > self._limit_us
        self.shares.count(mail.recipient[counted], mail.accepted_us[counted], late, np.zeros_like(late))


def unserved(tasks: TasksByUser, mail: MailByUser, criteria: Mapping[str, Limits | None]) -> Unserved | None:
    """Return the users without usable service, by their tasks and mail; None without scored tasks in the window."""
    if not len(tasks.shares.users):
        return None
    judged, bad = tasks.shares.judged(_most(criteria.get("failed_share")))
    receiving, waiting = mail.shares.judged(math.inf)
    users = sorted({*bad.tolist(), *waiting.tolist()})
    share = max(len(bad) / max(1, len(judged)), len(waiting) / max(1, len(receiving)))
    return Unserved(len(users), share, tuple(str(user) for user in users[:MOST_NAMED]))


def _most(limits: Limits | None) -> float:
    return min((most for limit, most in (limits or {}).items() if limit != "min"), default=math.inf)


def _beyond(share: NDArray[np.float64], parts: NDArray[np.float64], allowed: float) -> NDArray[np.bool_]:
    """Return a mask of the mean shares of bad tasks that exceed the allowed one by more than chance (`CHANCE`)."""
    if allowed >= 1:
        return np.zeros(len(share), np.bool_)
    with np.errstate(divide="ignore", invalid="ignore"):  # the limit of x log(x) at 0 is 0
        divergence = sum(
            np.where(each > 0, each * np.log(each / of_limit), 0.0)
            for each, of_limit in ((share, np.float64(allowed)), (1 - share, np.float64(1 - allowed)))
        )
    return np.asarray((share > allowed) & (parts * divergence >= -math.log(CHANCE)))
