"""New mail in the plan of a run: due times, and the number of recipients.

Logs lack the recipients of messages that were due and never sent. So the scenario is planned again, and the plan is
used only if it has the digest of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.recorded_run import SCENARIO, RecordedRun
from loadsim.errors import ConfigError
from loadsim.model.scenario import load_scenario
from loadsim.model.terms import Window
from loadsim.model.workload import Workload, combine_digests, digest_of
from loadsim.timinglog.merge import in_window


@dataclass(frozen=True, slots=True)
class PlannedMail:
    """The new messages of users with logs: the due time (us from the common start), and the number of recipients."""

    due_us: NDArray[np.int64]
    copies: NDArray[np.int64]

    def within(self, window_s: Window) -> tuple[int, int]:
        """Return the number of messages due in [begin, end), and of their copies."""
        inside = in_window(self.due_us, window_s)
        return int(np.count_nonzero(inside)), int(self.copies[inside].sum())


def planned_mail(run: RecordedRun) -> PlannedMail | None:
    """Return the planned mail; None for a closed loop, or without the scenario."""
    path = Path(run.place) / SCENARIO
    if run.figures.stress or not path.is_file():
        return None
    try:
        scenario = load_scenario(str(path), passwords=False)
        if scenario.digest() != run.log.header.get("scenario_digest"):
            return None
        workload = Workload(scenario)
    except ConfigError:
        return None
    digests: list[bytes] = []
    due_us: list[int] = []
    copies: list[int] = []
    users = _users(run, len(workload.population))

    def lines(user: int) -> Iterator[str]:
        for activity, to, line in workload.planned(user):
            if to is not None and user in users:
                due_us.append(activity.due_us)
                copies.append(len(workload.recipients(to)))
            yield line

    for user in range(1, len(workload.population) + 1):
        digests.append(digest_of(lines(user)))
    if combine_digests(digests) != run.log.header.get("plan_digest"):
        return None
    return PlannedMail(np.array(due_us, np.int64), np.array(copies, np.int64))


def _users(run: RecordedRun, many: int) -> Collection[int]:
    """Return the users with logs, or all if the assignment of a log is unknown."""
    assignments = [source.assignment for source in run.log.sources if source.simulates]
    if None in assignments:
        return range(1, many + 1)
    return {user for assignment in assignments if assignment is not None for user in assignment}
