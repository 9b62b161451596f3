"""The spread of the scores of equal runs, in words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from loadsim.analysis.comparability import SAME
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.repeats import Spread, spread
from loadsim.report.differences import differing, facts_of
from loadsim.report.digits import duration

WIDEST = 100
"""The largest ratio of the ends of an interval between runs that is shown."""


def are_repeats(runs: Sequence[RecordedRun]) -> bool:
    """Return True if no run differs from the others in what loadsim knows of load and server."""
    scored = {tuple((name, module.covers.scored) for name, module in run.figures.by_protocol.items()) for run in runs}
    return (
        len(scored) == 1
        and all(run.log.header.get(key) == runs[0].log.header.get(key) for run in runs for key in SAME)
        and not differing(facts_of(runs, {}))
    )


def spreads(runs: Sequence[RecordedRun], loads: Sequence[str]) -> Iterator[str]:
    """Yield how far the scores of runs differ, by load, number of users and driver. Invalid runs have no score."""
    alike: defaultdict[tuple[str, float, str], list[tuple[float, bool]]] = defaultdict(list)
    for run, load in zip(runs, loads, strict=True):
        validity = run.summary.verdict.validity
        for name, module in run.figures.by_protocol.items():
            if validity != "invalid" and module.score_ms is not None:
                alike[load, run.figures.users, name].append((module.score_ms, validity == "degraded"))
    several = len({name for _, _, name in alike}) > 1
    for (load, users, name), found in alike.items():
        if len(found) > 1:
            scores = [score_ms for score_ms, _ in found]
            which = "".join([f"{load[:1].upper()}{load[1:]}: " if load else "", f"{name}: " if several else ""])
            degraded = sum(is_degraded for _, is_degraded in found)
            among = f" ({degraded} of them degraded)" if degraded else ""
            yield (
                f"{which}{len(scores)} runs with {users:,} users{among} have scores from {duration(min(scores))} to"
                f" {duration(max(scores))}{_apart(scores)}; {_mean(spread(scores))}."
            )


def _mean(found: Spread) -> str:
    """Return the mean of several runs with its interval, unless that is too wide to tell anything."""
    low, high = found.low, found.high
    narrow = low is not None and high is not None and high <= WIDEST * low
    interval = f"{duration(low)} to {duration(high)}" if narrow else "too wide to tell anything (make more runs)"
    return f"geometric mean {duration(found.mean)}, 95 % interval {interval}"


def _apart(scores: Sequence[float]) -> str:
    """Return by how much the greatest score is above the least, if that is a tenth or more."""
    more = max(scores) / min(scores) - 1 if min(scores) > 0 else math.inf
    return f" ({100 * more:,.0f} % more)" if 0.1 <= more < math.inf else ""


def only_one_way(scores: Sequence[float]) -> str:
    """Return "rise" or "fall" if the scores, as shown, do only so in the order of the runs, and else ""."""
    pairs = [pair for pair in pairwise(scores) if duration(pair[0]) != duration(pair[1])]
    rises = {one < another for one, another in pairs}
    if len(pairs) < len(scores) - 1 or len(rises) != 1:
        return ""
    return "rise" if rises == {True} else "fall"
