"""The score: what users waited for, task by task, over the merged records of a window.

Percentiles are nearest rank over all records: times that were really measured, never an average of percentiles.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.results.merge import WITHOUT_WINDOW, in_window
from loadsim.results.records import MAKERS, NEVER, OUTCOME, Records
from loadsim.results.timinglog import Source, TimingLog

DEFAULT_WEIGHTS: Mapping[str, float] = {
    "READ": 10,
    "SEND": 1,
    "REPLY": 1,
    "REPLY ALL": 1,
    "FORWARD": 1,
    "MOVE": 1,
    "COPY": 1,
    "DELETE": 1,
    "BROWSE": 1,
    "SCHEDULE": 1,
}
"""This project's own, as LoadSim's was not published; with all of them, READ "accounts for over half of the score"."""

LATENESS = ("busy", "down", "generator")
"""Why a task may begin late: its user was still busy, its session was down (both the server's doing), or ours."""


def percentile(ordered: NDArray[Any], percent: int | Fraction) -> float:
    """The nearest-rank percentile of sorted samples: the smallest that at least `percent` % of them do not exceed.

    "95 percent of all response times recorded for that action were equal to or below that value" (IBM 1998, Appendix
    A). The rank is computed in whole numbers: 7 % of 100 samples are 7, where floating point would say 8.
    Raises `ValueError` when there are no samples.
    """
    if not len(ordered):
        raise ValueError("no samples")
    return float(ordered[max(1, math.ceil(Fraction(percent) * len(ordered) / 100)) - 1])


def standard_deviation(samples: NDArray[Any]) -> float:
    """Of a sample (divided by n - 1, LsLog's own choice is not published); 0 for a single one."""
    return float(np.std(samples, ddof=1)) if len(samples) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """What samples of a time come to, in milliseconds; all None when there are none."""

    p50_ms: float | None = None
    p95_ms: float | None = None
    mean_ms: float | None = None
    stddev_ms: float | None = None

    @classmethod
    def of(cls, samples_us: NDArray[Any]) -> Times:
        """The statistics of times in microseconds."""
        if not len(samples_us):
            return cls()
        ordered = np.sort(samples_us)
        return cls(
            percentile(ordered, 50) / 1000,
            percentile(ordered, 95) / 1000,
            float(np.mean(ordered)) / 1000,
            standard_deviation(ordered) / 1000,
        )


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """One task of one client module. `service` is over the hits, the records with outcome ok.

    Service time counts from the start, response time from the due time. A weight of 0: not scored.
    """

    task: str
    weight: float
    counts: Mapping[str, int]
    service: Times
    response_p95_ms: float | None

    @property
    def hits(self) -> int:
        """Records with outcome ok."""
        return self.counts["ok"]

    @property
    def failed(self) -> int:
        """Records with outcome refused, lost or timeout."""
        return self.counts["refused"] + self.counts["lost"] + self.counts["timeout"]

    @property
    def done(self) -> int:
        """Hits and failures: what was begun and came to an end."""
        return self.hits + self.failed

    @property
    def planned(self) -> int:
        """All records: what was done, was still running at the end, or never started."""
        return sum(self.counts.values())

    @property
    def windowed(self) -> bool:
        """Whether the task is held against the window at all."""
        return self.task not in WITHOUT_WINDOW


@dataclass(frozen=True, slots=True)
class ProtocolStatistics:
    """What one client module came to: its tasks (heaviest first, then by name), and its score, or None without hits.

    `users` are those with any record that counts, of each run.
    """

    protocol: str
    users: int
    tasks: tuple[TaskStatistics, ...]
    score_ms: float | None

    @property
    def scored(self) -> tuple[str, ...]:
        """The tasks that the score covers."""
        return tuple(task.task for task in self.tasks if task.weight > 0 and task.hits)


@dataclass(frozen=True, slots=True)
class CommandStatistics:
    """One protocol command: how often it succeeded and failed, and how long successful ones took."""

    command: str
    hits: int
    failed: int
    times: Times


def weighted_score(tasks: Iterable[TaskStatistics]) -> float | None:
    """The weighted average of the 95th percentiles, in ms, over the tasks with a weight and hits; lower is better."""
    parts = [(task.weight, task.service.p95_ms) for task in tasks if task.weight > 0]
    covered = [(weight, p95_ms) for weight, p95_ms in parts if p95_ms is not None]
    if not covered:
        return None
    return math.fsum(weight * p95_ms for weight, p95_ms in covered) / math.fsum(weight for weight, _ in covered)


def score_protocols(
    log: TimingLog, weights: Mapping[str, float], window_s: tuple[float, float]
) -> tuple[ProtocolStatistics, ...]:
    """The statistics of every client module in the log, by name: one's times are never mixed with another's.

    A record counts when its due time lies in [begin, end); LOGON and LOGOFF always do.
    """
    names = np.array(log.strings)
    without_window = np.isin(names, WITHOUT_WINDOW)[log.tasks["task"]]
    counted = log.tasks[without_window | in_window(log.tasks["scheduled_us"], window_s)]
    protocols = []
    for protocol in np.unique(counted["protocol"]):
        of_protocol = counted[counted["protocol"] == protocol]
        tasks = [
            _task_statistics(str(names[task]), of_protocol[of_protocol["task"] == task], weights)
            for task in np.unique(of_protocol["task"])
        ]
        tasks.sort(key=lambda task: (-task.weight, task.task))
        users = len(np.unique(of_protocol[["run", "user"]]))
        protocols.append(ProtocolStatistics(str(names[protocol]), users, tuple(tasks), weighted_score(tasks)))
    return tuple(sorted(protocols, key=lambda one: one.protocol))


def _task_statistics(task: str, records: Records, weights: Mapping[str, float]) -> TaskStatistics:
    occurred = np.bincount(records["outcome"], minlength=len(OUTCOME))
    hits = records[records["outcome"] == OUTCOME["ok"]]
    return TaskStatistics(
        task=task,
        weight=float(weights.get(task, 0)),
        counts={name: int(occurred[code]) for name, code in OUTCOME.items()},
        service=Times.of(hits["ended_us"] - hits["started_us"]),
        response_p95_ms=Times.of(hits["ended_us"] - hits["scheduled_us"]).p95_ms,
    )


TIMED = ("READ", "SEND", "BROWSE", "SCHEDULE")
"""The tasks that the clock begins. All others follow at once from another, are due when the generator says so itself,
and would only water down how late it is."""


def lateness_p95_ms(log: TimingLog, window_s: tuple[float, float]) -> dict[str, float | None]:
    """The 95th percentile of each cause of lateness (to the microsecond), over the tasks of the window that started."""
    names = np.array(log.strings)
    without_window, by_clock = np.isin(names, WITHOUT_WINDOW), np.isin(names, TIMED)
    late_s: dict[str, list[NDArray[np.float32]]] = {cause: [] for cause in LATENESS}
    for tasks in log.pieces("tasks"):
        counted = ~without_window[tasks["task"]] & in_window(tasks["scheduled_us"], window_s)
        started = counted & (tasks["started_us"] != NEVER)
        for cause, late in late_s.items():
            late.append(
                tasks[f"late_{cause}_s"][started & by_clock[tasks["task"]] if cause == "generator" else started]
            )
    return {
        cause: round(percentile(np.sort(np.concatenate(late)), 95) * 1000, 3) if any(map(len, late)) else None
        for cause, late in late_s.items()
    }


def command_statistics(log: TimingLog, window_s: tuple[float, float]) -> Sequence[CommandStatistics]:
    """Every protocol command that started in the window, by name."""
    took_us: defaultdict[int, list[NDArray[np.uint32]]] = defaultdict(list)
    failed: defaultdict[int, int] = defaultdict(int)
    for records in log.pieces("commands"):
        counted = records[in_window(records["started_us"], window_s)]
        for command in np.unique(counted["command"]):
            of_command = counted[counted["command"] == command]
            hits = of_command["took_us"][of_command["outcome"] == OUTCOME["ok"]]
            took_us[command].append(hits)
            failed[command] += len(of_command) - len(hits)
    statistics = []
    for command, parts in took_us.items():
        times_us = np.concatenate(parts)
        statistics.append(CommandStatistics(log.strings[command], len(times_us), failed[command], Times.of(times_us)))
    return sorted(statistics, key=lambda one: one.command)


def lost_users(log: TimingLog) -> int:
    """How many of the run's users were not there at the end, as far as the logs know.

    Those of engines whose log is missing or has no end; of the others, those that the engine says had no session
    at the end (`lost_users`), at least those that never got on.
    """
    lost = max(0, int(log.header.get("users", 0)) - sum(source.users for source in log.sources))
    logons = _logons(log)
    for source in log.sources:
        if not source.ended:
            lost += source.users
        else:
            lost += max(int(source.facts.get("lost_users", 0)), _never_on(log, logons, source))
    return lost


def _logons(log: TimingLog) -> Records:
    """All log-ons."""
    number = log.strings.index("LOGON") if "LOGON" in log.strings else -1
    return np.concatenate([tasks[tasks["task"] == number] for tasks in log.pieces("tasks")])


def _never_on(log: TimingLog, logons: Records, source: Source) -> int:
    """How many users of an engine tried to log on and never succeeded."""
    number = {name: index for index, name in enumerate(log.strings)}
    of_source = np.logical_and.reduce([logons[maker] == number.get(getattr(source, maker), -1) for maker in MAKERS])
    own = logons[of_source]
    got_on = np.unique(own["user"][own["outcome"] == OUTCOME["ok"]])
    return len(np.setdiff1d(own["user"], got_on))
