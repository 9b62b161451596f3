"""Whether a run is hopeless: judged each second by its snapshots, as the scenario's `abort_on` says."""

from __future__ import annotations

from loadsim.engine.snapshot import LiveSnapshot, Recent, Stretch
from loadsim.model.records import FAILURES
from loadsim.model.scenario_sections import AbortOn

FEWEST_TASKS = 20
"""The share that failed of fewer says nothing."""


class AbortCheck:
    """Looks at the snapshots of all engines together; `users` are those of the scenario, started or not."""

    def __init__(self, abort_on: AbortOn, users: int) -> None:
        self._abort_on = abort_on
        self._users = users
        self._recent = Recent(abort_on.period_s)

    def judge(self, snapshot: LiveSnapshot) -> str | None:
        """Why the run should end now, with figure and limit; None while there is hope, or too little time was at work.

        What comes before the common start, and after the work, is not judged.
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


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"
