"""Abort a hopeless run: judge its snapshots each second by the scenario's `abort_on`."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.engine.snapshot import LiveSnapshot, Recent
from loadsim.findings.formats import percent
from loadsim.model.records import FAILURES
from loadsim.scenario.sections import AbortOn
from loadsim.timinglog.facts import ABORT_ON, USERS_LOST, EarlyEnd

FEWEST_TASKS = 20
"""The fewest tasks for which the share of failures is judged."""


class AbortCheck:
    """Judges the total of all engines' snapshots; `users` is the scenario's number, including those of lost engines."""

    def __init__(self, abort_on: AbortOn, users: int) -> None:
        self._abort_on = abort_on
        self._users = users
        self._recent = Recent(abort_on.period_s)

    def judge(self, snapshot: LiveSnapshot, lost: Sequence[str] = ()) -> EarlyEnd | None:
        """Return why the run should end now, with figure and limit; None if it should go on.

        Only the work phase is judged, once it has lasted for the whole period. Users of `lost` members count as having
        no session.
        """
        if snapshot.phase != "work":
            return None
        self._recent.add(snapshot)
        lately = self._recent.stretch
        if lately is None or lately.seconds < self._abort_on.period_s:
            return None
        by = USERS_LOST if lost else ABORT_ON
        limits, over = self._abort_on, f"over {self._abort_on.period_s:g} s"
        failed, ended = lately.ended(*FAILURES), lately.ended("ok", *FAILURES)
        if limits.failed_share is not None and ended >= FEWEST_TASKS and failed > limits.failed_share * ended:
            return EarlyEnd(
                by, f"failed share {percent(failed / ended)} {over}, at most {percent(limits.failed_share)}"
            )
        lost_share = (self._users - self._recent.most_users_on) / self._users
        if limits.lost_users is not None and lost_share > limits.lost_users:
            share, most = percent(lost_share), percent(limits.lost_users)
            return EarlyEnd(by, f"{share} of the users without a session {over}, at most {most}")
        return None
