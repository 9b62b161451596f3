"""Abort a hopeless run: judge its snapshots each second by the scenario's `abort_on`."""

from __future__ import annotations

from collections.abc import Collection

from loadsim.engine.snapshot import LiveSnapshot, Recent, Stretch
from loadsim.model.documents.scenario_sections import AbortOn
from loadsim.model.records import FAILURES
from loadsim.timinglog.early_end import ABORT_ON, USERS_LOST

FEWEST_TASKS = 20
"""The share of failed tasks among fewer is no evidence."""


class AbortCheck:
    """Judges the total of all engines' snapshots; `users` counts those of the scenario, also in lost engines."""

    def __init__(self, abort_on: AbortOn, users: int) -> None:
        self._abort_on = abort_on
        self._users = users
        self._recent = Recent(abort_on.period_s)

    def judge(self, snapshot: LiveSnapshot) -> str | None:
        """Return why the run should end now, with figure and limit; None if it should go on.

        Only the work phase is judged, once it has lasted for the whole period.
        """
        if snapshot.phase != "work":
            return None
        self._recent.add(snapshot)
        lately = self._recent.stretch
        if lately is None or lately.seconds < self._abort_on.period_s:
            return None
        return self._failed(lately) or self._lost_users() or self._sessions_lost(lately)

    def _failed(self, lately: Stretch) -> str | None:
        failed, ended = lately.ended(*FAILURES), lately.ended("ok", *FAILURES)
        most = self._abort_on.failed_share
        if most is None or ended < FEWEST_TASKS or failed <= most * ended:
            return None
        return f"failed share {_percent(failed / ended)} over {self._period}, at most {_percent(most)}"

    def _lost_users(self) -> str | None:
        lost, most = self._users - self._recent.most_users_on, self._abort_on.lost_users
        if most is None or lost / self._users <= most:
            return None
        share = _percent(lost / self._users)
        return f"{share} of the users without a session over {self._period}, at most {_percent(most)}"

    def _sessions_lost(self, lately: Stretch) -> str | None:
        lost = lately.after.sessions_lost - lately.before.sessions_lost
        most = self._abort_on.sessions_lost
        if most is None or lost <= most:
            return None
        return f"{lost} sessions lost over {self._period}, at most {most}"

    @property
    def _period(self) -> str:
        return f"{self._abort_on.period_s:g} s"


def ended_by(lost: Collection[str]) -> str:
    """Return what ended a run by `abort_on`, with these members lost: their users count as without a session."""
    return USERS_LOST if lost else ABORT_ON


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"
