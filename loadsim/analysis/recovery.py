"""The recovery of users from the outage that a scenario states (`run.outage`), from records of tasks alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.aggregate import read_tasks
from loadsim.model.figures import FailureCount, Recovery
from loadsim.model.records import FAILURES, NO_SESSION, OUTCOMES
from loadsim.model.terms import LOGON
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.header import StatedOutage
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

LOST_WITHIN_US = 120_000_000
"""A session lost later than this after the outage is not the outage's: its command takes up to a minute, and a silent
connection is noticed after up to another."""

STEADY_US = 10_000_000
"""Service that ends sooner has not recovered: users, too, treat such a log-on as failed (`session_state.STEADY_NS`)."""

_UNRECOVERED = np.iinfo(np.int64).max
_IS_FAILURE = np.isin(OUTCOMES, FAILURES)


def recovery_of(log: TimingLog) -> Interruptions | None:
    """Read the tasks of a log for the users that its outage interrupted; None if the scenario states none."""
    if log.header.outage is None:
        return None
    found = _Sessions(log)
    read_tasks(log, found.add)
    return found.interruptions(log.header.outage)


def _by_hand_us(losses_us: list[int]) -> int | None:
    """Return the first lost session after which the most are lost within the limit: others are lost by chance."""
    sinces_us = np.sort(np.asarray(losses_us, np.int64))
    if not len(sinces_us):
        return None
    followers = np.searchsorted(sinces_us, sinces_us + LOST_WITHIN_US, "right") - np.arange(len(sinces_us))
    return int(sinces_us[followers.argmax()])


class Interruptions:
    """The outage's instant, and each interrupted user's recovery; instants are in microseconds.

    `at_us` is None if sessions were to be ended by hand, but none was lost.
    """

    def __init__(
        self, at_us: int | None, since_us: Mapping[int, int], until_us: Mapping[int, int], log_ons: _LogOns
    ) -> None:
        self.at_us = at_us
        self._since_us, self._until_us = (np.full(max(until_us, default=0) + 1, NEVER) for _ in range(2))
        self._since_us[list(since_us)] = list(since_us.values())
        self._until_us[list(until_us)] = list(until_us.values())
        self._recovered_us = np.sort([until for until in until_us.values() if until != _UNRECOVERED])
        self._users, self._log_ons = len(until_us), log_ons

    def recovered_us(self, users: NDArray[Any]) -> NDArray[np.int64]:
        """Return when these users recovered: `NEVER` for users who were not interrupted."""
        return self._of(users, self._until_us)

    @staticmethod
    def _of(users: NDArray[Any], by_user: NDArray[np.int64]) -> NDArray[np.int64]:
        last = len(by_user) - 1
        return np.where(users <= last, by_user[np.minimum(users, last)], NEVER)

    def has(self, tasks: Columns) -> NDArray[np.bool_]:
        """Return a mask of the tasks that failed between the outage and their user's recovery, if there was one.

        Refusals to users who still had their session are not among them.
        """
        failed = self._failed(tasks["user"], tasks["ended_us"], tasks["outcome"])
        return np.asarray(failed & (self.recovered_us(tasks["user"]) != _UNRECOVERED))

    def down_us(
        self, users: NDArray[Any], since_us: NDArray[np.int64], until_us: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return how much of these periods without a session lies outside of the users' recoveries."""
        recovered_us = self.recovered_us(users)
        recovered_us = np.where(recovered_us == _UNRECOVERED, NEVER, recovered_us)
        at_us = np.where(recovered_us == NEVER, until_us, until_us if self.at_us is None else self.at_us)
        before_us = np.minimum(until_us, at_us) - since_us
        after_us = until_us - np.maximum(np.maximum(since_us, at_us), recovered_us)
        return np.maximum(before_us, 0) + np.maximum(after_us, 0)

    def figures(self) -> Recovery:
        if self.at_us is None or not self._users:
            at_s = None if self.at_us is None else self.at_us / 1e6
            return Recovery(at_s, 0, None, None, None, None, None, None, ())
        log_ons = self._log_ons
        unrecovered = self._users - len(self._recovered_us)

        def share_s(percent: int) -> float:
            after_us = self._recovered_us - self.at_us
            return percentile(after_us, Fraction(percent), unrecovered) / 1e6

        # Successful log-ons.
        last_us = int(self._recovered_us[-1]) if len(self._recovered_us) else self.at_us
        interrupted = self.recovered_us(log_ons.user) != NEVER
        on = interrupted & (log_ons.outcome == OUTCOME["ok"])
        on &= (log_ons.ended_us >= self.at_us) & (log_ons.ended_us <= last_us)
        by_second = np.bincount((log_ons.ended_us[on] - self.at_us) // 1_000_000, minlength=1)
        # Failed ones.
        failed = np.flatnonzero(self._failed(log_ons.user, log_ons.ended_us, log_ons.outcome))
        kinds = Counter((OUTCOMES[log_ons.outcome[at]], log_ons.error[at]) for at in failed)
        return Recovery(
            at_s=self.at_us / 1e6,
            users=self._users,
            unrecovered=unrecovered,
            p50_s=share_s(50),
            p95_s=share_s(95),
            max_s=share_s(100),
            log_ons_per_s=int(on.sum()) / ((last_us - self.at_us) / 1e6) if last_us > self.at_us else None,
            log_ons_peak_per_s=float(by_second.max()) if last_us > self.at_us else None,
            failures=[
                FailureCount(outcome, kind, times)
                for (outcome, kind), times in sorted(kinds.items(), key=lambda one: (-one[1], one[0]))
            ],
        )

    def _failed(
        self, users: NDArray[Any], ended_us: NDArray[np.int64], outcome: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        if self.at_us is None:
            return np.zeros(len(users), np.bool_)
        within = (ended_us >= self.at_us) & (ended_us <= self.recovered_us(users))
        answered = (outcome == OUTCOME["refused"]) & (ended_us < self._of(users, self._since_us))
        return np.asarray(_IS_FAILURE[outcome] & within & ~answered)


class _LogOns:
    """Columns of all log-ons; `error` has names."""

    def __init__(self, parts: list[Columns], strings: Any) -> None:
        def column(name: str, kind: Any) -> NDArray[Any]:
            return np.concatenate([np.zeros(0, kind), *(part[name] for part in parts)])

        self.user, self.ended_us = column("user", np.int64), column("ended_us", np.int64)
        self.outcome = column("outcome", np.uint8)
        self.error = [strings[number] for number in column("error", np.uint16)]


class _Sessions:
    """Collects log-ons, and periods without a session."""

    def __init__(self, log: TimingLog) -> None:
        self._strings = log.strings
        self._log_ons: list[Columns] = []
        self._downs: list[tuple[int, int, int]] = []  # user, since, until

    def add(self, tasks: Columns) -> None:
        name = self._strings[tasks["task"][0]]
        if name == LOGON:
            self._log_ons.append(tasks)
        elif name == NO_SESSION:
            columns = (tasks[column].tolist() for column in ("user", "scheduled_us", "ended_us"))
            self._downs += [
                (user, since, _UNRECOVERED if until == NEVER else until)
                for user, since, until in zip(*columns, strict=True)
            ]

    def interruptions(self, outage: StatedOutage) -> Interruptions:
        at_us: int | None = round(outage.at_s * 1e6)
        if outage.by == "hand":
            at_us = _by_hand_us([since for _, since, _ in self._downs if since >= round(outage.at_s * 1e6)])
        since_us: dict[int, int] = {}
        until_us: dict[int, int] = {}
        settled = set[int]()  # users whose recovery is known
        for user, since, until in sorted(self._downs) if at_us is not None else ():
            assert at_us is not None
            if user in settled or until <= at_us:
                continue
            if since <= (until_us[user] + STEADY_US if user in until_us else at_us + LOST_WITHIN_US):
                since_us.setdefault(user, since)
                until_us[user] = until
            else:
                settled.add(user)
        return Interruptions(at_us, since_us, until_us, _LogOns(self._log_ons, self._strings))
