"""The charts of a capacity search: figures of its runs over the number of users, on one axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from loadsim.analysis.campaign import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, CampaignRun, Result, Time
from loadsim.analysis.capacity import Capacity
from loadsim.analysis.criteria import Result as CriterionResult
from loadsim.analysis.criteria import unit_of
from loadsim.analysis.repeats import medians_by
from loadsim.analysis.verdict import FULL_LOAD
from loadsim.report.campaign_runs import RESULTS
from loadsim.report.capacity_words import in_full
from loadsim.report.criterion_words import wanted
from loadsim.report.digits import percent
from loadsim.report.document import (
    Axis,
    Block,
    Chart,
    Column,
    Limit,
    Line,
    Panel,
    drawable,
)
from loadsim.report.figure_words import named

Figure = Callable[[CampaignRun], float | None]
"""Returns a figure of a run; None if it has none."""

DRAWN: tuple[Result, ...] = (FAILED, PASSED, UNDECIDED, GENERATOR, VOID)
"""The results in the order of their looks, which are the same in all reports: failures are orange, passes green."""

MOST_CRITERIA = 6
"""The most criteria that are drawn."""

MOST_RESOURCES = 5
"""The most resources whose utilisation is drawn: those that came nearest to full."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of all runs over their users, drawn in a panel of its own."""

    title: str
    unit: str
    figure: Figure
    scale: Literal["linear", "near", "log"] = "linear"
    limits: tuple[Limit, ...] = ()
    intervals: bool = False
    digits: int = 1

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
        return Panel(self.title, self.unit, (median, *of_results), self.scale, self.digits, self.limits)

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


def curves_of(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Block]:
    """Yield the charts over users, all on one axis; `runs` are by rising users."""
    terms = capacity.terms
    yield (
        "Each point is a run, and its colour and shape are the result. A hollow point is an invalid run, whose times"
        " must not be quoted. The line joins the medians, for which an invalid run is slower than all others, and ends"
        " where half of the runs are invalid. The dashed line is the limit of the figure. All other criteria"
        " decide, too; those that were missed follow. Vertical bars are the 95 % intervals of scores, which"
        " windows of 1 h and more have. A triangle at the upper edge is infinite: too many tasks failed. The interval"
        " of the capacity is shaded."
    )
    response = (
        Curve(
            "Score: weighted 95th percentile",
            "ms",
            lambda run: in_ms(run.score_ms),
            "log",
            _limit("score", terms.score_limit_ms),
            intervals=True,
        ),
        Curve(
            "Response score: the same, from when tasks were due",
            "ms",
            lambda run: in_ms(run.response_score_ms),
            "log",
            _limit("response score", terms.response_score_limit_ms),
        ),
    )
    rate = Curve("", "tasks per second", lambda run: run.tasks_per_s)
    yield from _charted(capacity, runs, "Response time by number of users", response)
    yield from _criteria_of(capacity, runs)
    yield from _charted(capacity, runs, "Throughput by number of users, in successful tasks per second", (rate,))
    yield from _utilisation_of(capacity, runs)


def _criteria_of(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Block]:
    """Yield a panel for each criterion on a time or a share that a run missed, and for the load made if it was little.

    Those that the smallest failed number missed most often come first. Runs that say nothing about the server do not
    count.
    """
    judged = [run for run in runs if run.result not in (GENERATOR, VOID)]
    failed_users = capacity.found.high if capacity.found else None
    decided, missed = Counter[str](), dict[str, CriterionResult]()
    for run in judged:
        for each in run.criteria:
            result = each.result
            if result.figure is None or result.passed or unit_of(each.name) not in ("ms", "%"):
                continue
            missed[each.name] = result
            decided[each.name] += run.result == FAILED and run.users == failed_users
    names = sorted(missed.keys() - {"score_ms", "response_score_ms"}, key=lambda name: (-decided[name], name))
    curves = [_of_criterion(missed[name]) for name in names[:MOST_CRITERIA]]
    if any(run.load_share is not None and run.load_share < FULL_LOAD for run in judged):
        curves.append(_LOAD_MADE)
    yield from _charted(capacity, runs, "Criteria that runs missed, by number of users", curves, across=2)
    if others := names[MOST_CRITERIA:]:
        yield f"{len(others)} more: {'; '.join(_words(missed[name]) for name in others)}."


def _words(criterion: CriterionResult) -> str:
    return f"{named(criterion.name)}, {wanted(criterion)}"


def _of_criterion(criterion: CriterionResult) -> Curve:
    is_time = unit_of(criterion.name) == "ms"
    factor = 1 if is_time else 100
    title = named(criterion.name)

    def figure(run: CampaignRun) -> float | None:
        figures = [each.result.figure for each in run.criteria if each.name == criterion.name]
        return factor * figures[0] if figures and figures[0] is not None else None

    return Curve(
        title=f"{title[:1].upper()}{title[1:]}",
        unit="ms" if is_time else "%",
        figure=figure,
        scale="log" if is_time else "near" if "min" in criterion.limits else "linear",
        limits=tuple(
            Limit(wanted(CriterionResult(criterion.name, {name: limit}, None)), factor * limit)
            for name, limit in criterion.limits.items()
        ),
        digits=1 if is_time else 2,
    )


_LOAD_MADE = Curve(
    title="Load made, share of the plan",
    unit="%",
    figure=lambda run: None if run.load_share is None else 100 * run.load_share,
    scale="near",
    limits=(Limit(f"at least {percent(FULL_LOAD)} in a valid run", 100 * FULL_LOAD),),
)


def _charted(
    capacity: Capacity, runs: Sequence[CampaignRun], caption: str, curves: Sequence[Curve], across: int = 1
) -> Iterable[Chart]:
    """Yield the chart of these curves, if any run has a figure of one."""
    yield from _chart(capacity, runs, caption, tuple(curve.panel(runs) for curve in curves), across)


def _chart(
    capacity: Capacity, runs: Sequence[CampaignRun], caption: str, panels: tuple[Panel, ...], across: int = 1
) -> Iterable[Chart]:
    """Yield the chart of these panels, unless they are empty."""
    low, high = (capacity.certain and capacity.interval) or (None, None)
    shaded = (float(low), float(high)) if low is not None and high is not None else None
    users = tuple(run.users for run in runs)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), users)
    if drawn := drawable(Chart(caption, axis, panels, across, shaded=shaded, shaded_names=("interval", ""))):
        yield drawn


def _utilisation_of(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Chart]:
    """Yield the chart of the resources that came nearest to full, with the median of each number of users."""
    highest: dict[tuple[str, str], float] = {}
    for run in runs:
        for one in run.resources:
            if one.share is not None:
                key = (one.probe, one.name)
                highest[key] = max(highest.get(key, 0.0), one.share)
    chosen = sorted(highest, key=lambda key: -highest[key])[:MOST_RESOURCES]
    probes = {probe for probe, _ in highest}
    names = {key: key[1] if len(probes) == 1 else f"{key[1]} ({key[0]})" for key in chosen}
    users = [float(run.users) for run in runs]
    # A number has no median if one of its runs lacks the figure: it may have been nearer to full.
    lines = [Line(names[key], medians_by(users, [_if_all_measured(run, runs, key) for run in runs])) for key in chosen]
    panel = Panel("", "% of full", tuple(lines), limits=(Limit("full", 100.0),))
    caption = "Utilisation of resources by number of users, the nearest to full"
    yield from _chart(capacity, runs, caption, (panel,))


def _if_all_measured(run: CampaignRun, runs: Sequence[CampaignRun], key: tuple[str, str]) -> float | None:
    figure = _utilised(*key)
    alike = [figure(one) for one in runs if one.users == run.users and one.result != VOID]
    return None if None in alike or run.result == VOID else figure(run)


def _utilised(probe: str, name: str) -> Figure:
    """Return the function of a resource's share of saturation, in per cent."""

    def figure(run: CampaignRun) -> float | None:
        shares = [one.share for one in run.resources if (one.probe, one.name) == (probe, name)]
        return 100 * shares[0] if shares and shares[0] is not None else None

    return figure


def _limit(name: str, limit_ms: float | None) -> tuple[Limit, ...]:
    return () if limit_ms is None else (Limit(f"limit of the {name}: {in_full(limit_ms)}", limit_ms),)


def in_ms(time: Time | None) -> float | None:
    return None if time is None else float(time)
