"""The spread between repeated runs of a scenario, and the confidence interval of the mean.

The run is the unit of replication. Runs vary with the start of the server, the layout of the disk, and the load of a
shared machine. The records of one run do not show this. As in `compare`, the mean is geometric, and the interval is
that of logarithms: no end of it is below zero.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, median, stdev

from loadsim.analysis.compare import RESOLUTION_MS, one_critical_t
from loadsim.analysis.score import MERGED, SCORED_PERCENT, ProtocolStatistics, score_parts
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

LEVEL = 0.95
"""The level of confidence intervals."""

_LARGEST = 700.0
"""About the logarithm of the largest float, to which an end of an interval is clipped."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A time of each run in ms (None if absent), with geometric mean, standard deviation, and t-interval of the mean.

    A single run has neither deviation nor interval.
    """

    each: tuple[float | None, ...]
    mean: float
    stddev: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Repeats:
    """The figures of several runs of one driver, in ms; None or absent if fewer than two runs have the figure.

    `runs` are their names; `tasks` have the percentile of the score. Scores over different tasks have no spread:
    `no_score` is the reason.
    """

    runs: tuple[str, ...]
    score: Spread | None
    tasks: Mapping[str, Spread]
    no_score: str | None = None


def spread(figures: Sequence[float | None]) -> Spread:
    """Return the spread of a figure over the runs that have it. Raises `ValueError` if none has."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        raise ValueError("no runs")
    if len(known) < 2:
        return Spread(tuple(figures), known[0])
    logarithms = [math.log(max(figure, RESOLUTION_MS)) for figure in known]
    middle = fmean(logarithms)
    reach = one_critical_t(1 - LEVEL, len(known) - 1) * stdev(logarithms) / math.sqrt(len(known))
    low, mean, high = (math.exp(min(end, _LARGEST)) for end in (middle - reach, middle, middle + reach))
    return Spread(tuple(figures), mean, stdev(known), low, high)


def repeats(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: Window,
    percent: int | Fraction = SCORED_PERCENT,
    method: str = MERGED,
) -> dict[str, Repeats]:
    """Return by driver the spread between the runs of a merged log; empty for one run."""
    if len(log.runs) < 2:
        return {}
    found: dict[str, list[tuple[str, ProtocolStatistics]]] = {}
    for (run,), protocols in score_parts(log, weights, window_s, ("run",), percent, method).items():
        for protocol in protocols:
            found.setdefault(protocol.protocol, []).append((log.strings[run], protocol))
    return {module: _repeats(sorted(runs, key=lambda run: run[0])) for module, runs in sorted(found.items())}


def _repeats(runs: Sequence[tuple[str, ProtocolStatistics]]) -> Repeats:
    statistics = [of_run for _, of_run in runs]
    alike = len({frozenset(of_run.scored) for of_run in statistics}) == 1
    return Repeats(
        runs=tuple(run for run, _ in runs),
        score=_between([of_run.score_ms for of_run in statistics]) if alike else None,
        tasks=_tasks(statistics),
        no_score=None if alike else "the runs' scores are over different tasks",
    )


def _between(figures: Sequence[float | None]) -> Spread | None:
    return spread(figures) if len(figures) - figures.count(None) > 1 else None


def _tasks(runs: Sequence[ProtocolStatistics]) -> dict[str, Spread]:
    figures: dict[str, list[float | None]] = {}
    for number, run in enumerate(runs):
        for task in run.tasks:
            figures.setdefault(task.task, [None] * len(runs))[number] = task.percentile_ms
    spreads = {task: _between(each) for task, each in sorted(figures.items())}
    return {task: found for task, found in spreads.items() if found is not None}


def medians_by(users: Sequence[float], figures: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return one value per run: the median of runs with equally many users at the first, None at the others."""
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for number, figure in zip(users, figures, strict=True):
        if figure is not None:
            alike[number].append(figure)
    return tuple(
        median(alike.pop(number)) if figure is not None and number in alike else None
        for number, figure in zip(users, figures, strict=True)
    )
