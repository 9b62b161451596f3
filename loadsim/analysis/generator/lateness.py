"""The lateness of tasks by cause, over a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.aggregate import Growing
from loadsim.model.figures import Lateness
from loadsim.model.terms import Window
from loadsim.statistics.nearest_rank import rank
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.planned_load import LEFT_OUT
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER

LATENESS = ("busy", "down", "generator")
"""The causes of lateness: the user is still busy or the session is down (the server's fault), or the generator."""


def timed_names(log: TimingLog) -> NDArray[np.bool_]:
    """Return a mask of the log's names of planned tasks: others have no due time of their own."""
    return np.asarray(~np.isin(np.array(log.strings), LEFT_OUT))


def lateness(log: TimingLog, window_s: Window) -> Lateness:
    """Return the 95th percentile (ms) of each cause of lateness, over the tasks of the window that started."""
    late = {cause: Growing(np.float32) for cause in LATENESS}
    timed = timed_names(log)
    for tasks in log.pieces("tasks"):
        started = _started(tasks, timed, window_s)
        for cause, of_cause in late.items():
            of_cause.add(tasks[f"late_{cause}_s"][started])
    return Lateness(**{cause: p95_ms(of_cause) for cause, of_cause in late.items()})


def late_at_most(log: TimingLog, most_s: float) -> TimingLog:
    """Return the log with the tasks as if the generator had been late by this time at most."""
    tasks = [replace(each, most_late_s=most_s) for each in log.streams["tasks"]]
    return replace(log, streams={**log.streams, "tasks": tasks})


def lateness_of_clients_ms(log: TimingLog, window_s: Window, clients: Sequence[str]) -> dict[str, float | None]:
    """Return by client the 95th percentile of the generator's lateness, over the tasks of the window that started."""
    late = {client: Growing(np.float32) for client in clients}
    numbers = {name: number for number, name in enumerate(log.strings)}
    timed = timed_names(log)
    for tasks in log.pieces("tasks"):
        started = _started(tasks, timed, window_s)
        by, late_s = tasks["client"][started], tasks["late_generator_s"][started]
        for client, of_client in late.items():
            of_client.add(late_s[by == numbers.get(client, -1)])
    return {client: p95_ms(of_client) for client, of_client in late.items()}


def _started(tasks: Columns, timed: NDArray[np.bool_], window_s: Window) -> NDArray[np.bool_]:
    return np.asarray(
        timed[tasks["task"]] & in_window(tasks["scheduled_us"], window_s) & (tasks["started_us"] != NEVER)
    )


def p95_ms(late_s: Growing) -> float | None:
    """Return the nearest-rank percentile in milliseconds, to the microsecond; None without tasks."""
    every_s = late_s.taken()
    if not len(every_s):
        return None
    place = rank(len(every_s), 95) - 1
    return round(float(np.partition(every_s, place)[place]) * 1000, 3)
