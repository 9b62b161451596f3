"""The spread of the scores of equal runs, in words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from loadsim.analysis.compare import FIRST_LOOK, MOST_DETECTABLE, POWER, Sample, compare
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.digits import duration, percent


def spreads(runs: Sequence[RecordedRun], loads: Sequence[str]) -> Iterator[str]:
    """Yield how far the scores of repeats differ, by load, number of users and driver. Invalid runs have no score."""
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
                f" {duration(max(scores))}, with a median of {duration(median(scores))}.{_trend(scores)}"
                f"{_detectable(scores)}"
            )


def _trend(scores: Sequence[float]) -> str:
    """Return that the scores of runs, in the order in which they were made, only rise or only fall."""
    steps = [(one < another) - (one > another) for one, another in pairwise(scores)]
    if len(scores) < FIRST_LOOK or abs(sum(steps)) < len(steps):
        return ""
    return f" Each is {'higher' if steps[0] > 0 else 'lower'} than that of the run before."


def _detectable(scores: Sequence[float]) -> str:
    """Return how far apart the scores of two servers must be, for a comparison of runs that vary so to show it."""
    if len(scores) < FIRST_LOOK or not all(map(math.isfinite, scores)):
        return ""
    ratio = compare([Sample("score", scores, scores)])[0].detectable
    least = f"{MOST_DETECTABLE:g}" if ratio is None else f"{ratio:.2f}"
    return (
        f" Of two servers with {len(scores)} such runs each, loadsim compare would probably ({percent(POWER)}) show a"
        f" difference only if the score of one were at least {least} times that of the other."
    )
