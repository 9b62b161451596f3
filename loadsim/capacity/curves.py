"""The charts of a capacity search: figures of its runs over the number of users, on one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from loadsim.analysis.statistics.repeats import medians_by
from loadsim.campaign.runs import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, CampaignRun, Result
from loadsim.campaign.tables import RESULTS
from loadsim.capacity.capacity import Capacity
from loadsim.report.document import Axis, Chart, Column, Limit, Line, Panel, drawable

DRAWN: tuple[Result, ...] = (FAILED, PASSED, UNDECIDED, GENERATOR, VOID)
"""The results in the order of their looks, which are the same in all reports: failures are orange, passes green."""

EXPLAINED = (
    "Each point is a run, and its colour and shape are the result; times of hollow points must not be quoted. The line"
    " joins the medians, of times up to the first number with an invalid run. All criteria decide, not only the limits"
    " that are drawn. A triangle at the upper edge is infinite."
)


def curves_of(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Chart]:
    """Yield the charts over users, all on one axis; `runs` are by rising users."""
    terms = capacity.terms
    times = (
        _panel(
            runs,
            lambda run: run.score_ms,
            "Score: weighted 95th percentile",
            limits=_limit("score", terms.score_limit_ms),
            intervals=True,
        ),
        _panel(
            runs,
            lambda run: run.response_score_ms,
            "Response score: the same, from when tasks were due",
            limits=_limit("response score", terms.response_score_limit_ms),
        ),
    )
    rate = _panel(runs, lambda run: run.tasks_per_s, "", "tasks per second")
    yield from _chart(capacity, runs, "Response time by number of users", *times)
    yield from _chart(capacity, runs, "Throughput by number of users, in successful tasks per second", rate)


def _chart(capacity: Capacity, runs: Sequence[CampaignRun], caption: str, *panels: Panel) -> Iterable[Chart]:
    """Yield the chart of these panels, unless they are empty."""
    low, high = (capacity.certain and capacity.interval) or (None, None)
    shaded = (float(low), float(high)) if low is not None and high is not None else None
    users = tuple(run.users for run in runs)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), users)
    if drawn := drawable(Chart(caption, axis, panels, across=2, shaded=shaded, shaded_names=("interval", ""))):
        yield drawn


def _panel(
    runs: Sequence[CampaignRun],
    figure: Callable[[CampaignRun], float | None],
    title: str,
    unit: str = "ms",
    limits: tuple[Limit, ...] = (),
    *,
    intervals: bool = False,
) -> Panel:
    """Return a marker for each run, of the colour and shape of its result, and the line of the medians.

    A marker is hollow if its run is invalid. Such a run made less load than planned: its time is no lower bound, so
    medians of times end there. `intervals` are those of the score.
    """
    is_time = unit == "ms"
    judged = [run.result not in (GENERATOR, VOID) for run in runs]
    invalid = [run.users for run, judges in zip(runs, judged, strict=True) if judges and run.validity == "invalid"]
    end = min(invalid, default=math.inf) if is_time else math.inf
    known = [figure(run) if judges and run.users < end else None for run, judges in zip(runs, judged, strict=True)]
    lines = [Line("median", medians_by([float(run.users) for run in runs], known))]
    for look, result in enumerate(DRAWN, start=1):
        for hollow in (False, True):
            own = [run if run.result == result and (run.validity == "invalid") == hollow else None for run in runs]
            lines.append(
                Line(
                    RESULTS[result] + (", run invalid" if hollow else ""),
                    tuple(figure(run) if run else None for run in own),
                    joined=False,
                    intervals=tuple(run.score_interval_ms if run and intervals and not hollow else None for run in own),
                    look=look,
                    hollow=hollow,
                )
            )
    return Panel(title, unit, tuple(lines), "log" if is_time else "linear", limits=limits)


def _limit(name: str, limit_ms: float | None) -> tuple[Limit, ...]:
    """Return a limit with all digits that a scenario may state."""
    return () if limit_ms is None else (Limit(f"limit of the {name}: {limit_ms:,.10g} ms", limit_ms),)
