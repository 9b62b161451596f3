"""The charts of a capacity search: figures of its runs over the number of users, on one axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from loadsim.analysis.statistics.repeats import medians_by
from loadsim.campaign.runs import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, CampaignRun, Result
from loadsim.campaign.tables import RESULTS
from loadsim.capacity.capacity import Capacity
from loadsim.report.document import Axis, Chart, Column, Limit, Line, Panel, drawable

Figure = Callable[[CampaignRun], float | None]
"""Returns a figure of a run; None if it has none."""

DRAWN: tuple[Result, ...] = (FAILED, PASSED, UNDECIDED, GENERATOR, VOID)
"""The results in the order of their looks, which are the same in all reports: failures are orange, passes green."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of all runs over their users, drawn in a panel of its own."""

    title: str
    unit: str
    figure: Figure
    limits: tuple[Limit, ...] = ()
    intervals: bool = False

    def panel(self, runs: Sequence[CampaignRun]) -> Panel:
        """Return a marker for each run, of the colour and shape of its result, and the line of the medians.

        A marker is hollow if its run is invalid.
        """
        values = [self.figure(run) for run in runs]
        of_results = []
        for look, result in enumerate(DRAWN, start=1):
            for invalid in (False, True):
                own = [run.result == result and (run.validity == "invalid") == invalid for run in runs]
                of_results.append(
                    Line(
                        RESULTS[result] + (", run invalid" if invalid else ""),
                        tuple(value if mine else None for mine, value in zip(own, values, strict=True)),
                        joined=False,
                        intervals=tuple(
                            run.score_interval_ms if self.intervals and mine and not invalid else None
                            for mine, run in zip(own, runs, strict=True)
                        ),
                        look=look,
                        hollow=invalid,
                    )
                )
        known = _times_to_join(runs, values) if self.is_time else _without(runs, values, VOID)
        median = Line("median", medians_by([float(run.users) for run in runs], known))
        scale: Literal["linear", "log"] = "log" if self.is_time else "linear"
        return Panel(self.title, self.unit, (median, *of_results), scale, limits=self.limits)

    @property
    def is_time(self) -> bool:
        return self.unit == "ms"


def _without(runs: Sequence[CampaignRun], values: Sequence[float | None], *results: Result) -> list[float | None]:
    return [None if run.result in results else value for run, value in zip(runs, values, strict=True)]


def _times_to_join(runs: Sequence[CampaignRun], values: Sequence[float | None]) -> list[float | None]:
    """Return the times of which medians are joined: those below the first number of which half of the runs are invalid.

    An invalid run has less load, so its time is no lower bound: it counts as slower than all others. A run that says
    nothing about the server does not count.
    """
    judged = _without(runs, values, GENERATOR, VOID)
    balance: Counter[int] = Counter()
    for run, value in zip(runs, judged, strict=True):
        if value is not None:
            balance[run.users] += -1 if run.validity == "invalid" else 1
    ends = min((users for users, valid in balance.items() if valid <= 0), default=math.inf)
    return [
        None if value is None or run.users >= ends else math.inf if run.validity == "invalid" else value
        for run, value in zip(runs, judged, strict=True)
    ]


EXPLAINED = (
    "Each point is a run, and its colour and shape are the result; times of hollow points must not be quoted. The line"
    " joins the medians, for which an invalid run is slower than all others, and ends where half of the runs are"
    " invalid. All criteria decide, not only the limits that are drawn. A triangle at the upper edge is infinite."
)


def curves_of(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Chart]:
    """Yield the charts over users, all on one axis; `runs` are by rising users."""
    terms = capacity.terms
    response = (
        Curve(
            "Score: weighted 95th percentile",
            "ms",
            lambda run: run.score_ms,
            _limit("score", terms.score_limit_ms),
            intervals=True,
        ),
        Curve(
            "Response score: the same, from when tasks were due",
            "ms",
            lambda run: run.response_score_ms,
            _limit("response score", terms.response_score_limit_ms),
        ),
    )
    rate = Curve("", "tasks per second", lambda run: run.tasks_per_s)
    yield from _chart(capacity, runs, "Response time by number of users", *(one.panel(runs) for one in response))
    caption = "Throughput by number of users, in successful tasks per second"
    yield from _chart(capacity, runs, caption, rate.panel(runs))


def _chart(capacity: Capacity, runs: Sequence[CampaignRun], caption: str, *panels: Panel) -> Iterable[Chart]:
    """Yield the chart of these panels, unless they are empty."""
    low, high = (capacity.certain and capacity.interval) or (None, None)
    shaded = (float(low), float(high)) if low is not None and high is not None else None
    users = tuple(run.users for run in runs)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), users)
    if drawn := drawable(Chart(caption, axis, panels, across=2, shaded=shaded, shaded_names=("interval", ""))):
        yield drawn


def _limit(name: str, limit_ms: float | None) -> tuple[Limit, ...]:
    return () if limit_ms is None else (Limit(f"limit of the {name}: {in_full(limit_ms)}", limit_ms),)


def in_full(limit_ms: float) -> str:
    """Return a limit with all digits that a scenario may state."""
    return f"{limit_ms:,.10g} ms"
