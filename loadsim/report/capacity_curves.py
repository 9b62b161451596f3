"""The charts of a capacity search: figures of its runs over the number of users, on one axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, Result
from loadsim.analysis.capacity_step import MeasuredStep, Time
from loadsim.analysis.json_values import finite
from loadsim.analysis.repeats import medians_by
from loadsim.report import capacity_words as words
from loadsim.report.document import (
    Axis,
    Block,
    Cell,
    Chart,
    Column,
    Digits,
    Limit,
    Line,
    Panel,
    Table,
    drawable,
    table_of,
)

Figure = Callable[[MeasuredStep], float | None]
"""Returns a figure of a run; None if it has none."""

DRAWN: tuple[Result, ...] = (FAILED, PASSED, UNDECIDED, GENERATOR, VOID)
"""The results in the order of their looks, which are the same in all reports: failures are orange, passes green."""

MOST_RESOURCES = 5
"""The most resources whose utilisation is drawn: those that came nearest to full."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of all runs over their users, drawn in a panel of its own. `name` is its title in a table."""

    title: str
    name: str
    unit: str
    figure: Figure
    scale: Literal["linear", "near", "log"] = "linear"
    limits: tuple[Limit, ...] = ()
    intervals: bool = False
    digits: int = 1

    def panel(self, steps: Sequence[MeasuredStep]) -> Panel:
        """Return a marker for each run, of the colour and shape of its result, and the line of the medians.

        A marker is hollow if its run is invalid.
        """
        values = [self.figure(step) for step in steps]
        of_results = []
        for look, result in enumerate(DRAWN, start=1):
            for invalid in (False, True):
                own = [step.result == result and (step.validity == "invalid") == invalid for step in steps]
                of_results.append(
                    Line(
                        words.RESULTS[result] + (", run invalid" if invalid else ""),
                        tuple(value if mine else None for mine, value in zip(own, values, strict=True)),
                        joined=False,
                        intervals=tuple(
                            step.score_interval_ms if self.intervals and mine and not invalid else None
                            for mine, step in zip(own, steps, strict=True)
                        ),
                        look=look,
                        hollow=invalid,
                    )
                )
        known = _times_to_join(steps, values) if self.is_time else _without(steps, values, VOID)
        median = Line("median", medians_by([float(step.users) for step in steps], known))
        return Panel(self.title, self.unit, (median, *of_results), self.scale, self.digits, self.limits)

    @property
    def is_time(self) -> bool:
        return self.unit == "ms"

    def cell(self, step: MeasuredStep) -> Cell:
        """Return the figure for a table, which has no time of an invalid run."""
        value = finite(self.figure(step))
        return words.NOT_SHOWN if self.is_time and value is not None and step.validity == "invalid" else value


def _without(steps: Sequence[MeasuredStep], values: Sequence[float | None], *results: Result) -> list[float | None]:
    return [None if step.result in results else value for step, value in zip(steps, values, strict=True)]


def _times_to_join(steps: Sequence[MeasuredStep], values: Sequence[float | None]) -> list[float | None]:
    """Return the times of which medians are joined: those below the first number of which half of the runs are invalid.

    An invalid run has less load, so its time is no lower bound: it counts as slower than all others. A run that says
    nothing about the server does not count.
    """
    judged = _without(steps, values, GENERATOR, VOID)
    balance: Counter[int] = Counter()
    for step, value in zip(steps, judged, strict=True):
        if value is not None:
            balance[step.users] += -1 if step.validity == "invalid" else 1
    ends = min((users for users, valid in balance.items() if valid <= 0), default=math.inf)
    return [
        None if value is None or step.users >= ends else math.inf if step.validity == "invalid" else value
        for step, value in zip(steps, judged, strict=True)
    ]


def scores_of(capacity: Capacity, steps: Sequence[MeasuredStep]) -> Iterable[Block]:
    """Yield the chart of score and response score; `steps` are by rising users."""
    terms = capacity.terms
    yield (
        "Each point is a run, and its colour and shape are the result. A hollow point is an invalid run, whose times"
        " must not be quoted. The line joins the medians, for which an invalid run is slower than all others, and ends"
        " where half of the runs are invalid. The dashed line is the limit of the figure. All other criteria"
        " decide, too; those that did, or nearly did, follow. Vertical bars are the 95 % intervals of scores, which"
        " windows of 1 h and more have. A triangle at the upper edge is infinite: too many tasks failed. The interval"
        " of the capacity is shaded."
    )
    response = (
        Curve(
            "Score: weighted 95th percentile",
            "Score",
            "ms",
            lambda step: in_ms(step.score_ms),
            "log",
            _limit("score", terms.score_limit_ms),
            intervals=True,
        ),
        Curve(
            "Response score: the same, from when tasks were due",
            "Response score",
            "ms",
            lambda step: in_ms(step.response_score_ms),
            "log",
            _limit("response score", terms.response_score_limit_ms),
        ),
    )
    yield from charted(capacity, steps, "Response time by number of users", response)


def throughput_of(capacity: Capacity, steps: Sequence[MeasuredStep]) -> Iterable[Block]:
    throughput = Curve("", "Tasks per second", "tasks per second", lambda step: step.tasks_per_s)
    caption = "Throughput by number of users, in successful tasks per second"
    yield from charted(capacity, steps, caption, (throughput,))


def charted(
    capacity: Capacity, steps: Sequence[MeasuredStep], caption: str, curves: Sequence[Curve], across: int = 1
) -> Iterable[Chart]:
    """Yield the chart of these curves, if any run has a figure of one."""
    kept = [curve for curve in curves if any(curve.figure(step) is not None for step in steps)]
    columns: list[_Column] = [(curve.name, "time" if curve.is_time else curve.digits, curve.cell) for curve in kept]
    panels = tuple(curve.panel(steps) for curve in kept)
    yield from _chart(capacity, steps, caption, panels, _table(caption, steps, columns), across)


def _chart(
    capacity: Capacity,
    steps: Sequence[MeasuredStep],
    caption: str,
    panels: tuple[Panel, ...],
    figures: Table,
    across: int = 1,
) -> Iterable[Chart]:
    """Yield the chart of these panels, unless they are empty."""
    low, high = (capacity.certain and capacity.interval) or (None, None)
    shaded = (float(low), float(high)) if low is not None and high is not None else None
    chart = Chart(
        caption,
        Axis(
            "users",
            "count",
            tuple(float(step.users) for step in steps),
            Column("Users", 0),
            tuple(step.users for step in steps),
        ),
        panels,
        across,
        shaded=shaded,
        shaded_names=("interval", ""),
        figures=figures,
    )
    if drawn := drawable(chart):
        yield drawn


def utilisation_of(capacity: Capacity, steps: Sequence[MeasuredStep]) -> Iterable[Chart]:
    """Yield the chart of the resources that came nearest to full, with the median of each number of users."""
    highest: dict[tuple[str, str], float] = {}
    for step in steps:
        for one in step.resources:
            if one.share is not None:
                key = (one.probe, one.name)
                highest[key] = max(highest.get(key, 0.0), one.share)
    chosen = sorted(highest, key=lambda key: -highest[key])[:MOST_RESOURCES]
    probes = {probe for probe, _ in highest}
    names = {key: key[1] if len(probes) == 1 else f"{key[1]} ({key[0]})" for key in chosen}
    users = [float(step.users) for step in steps]
    # A number has no median if one of its runs lacks the figure: it may have been nearer to full.
    lines = [
        Line(names[key], medians_by(users, [_if_all_measured(step, steps, key) for step in steps])) for key in chosen
    ]
    panel = Panel("", "% of full", tuple(lines), limits=(Limit("full", 100.0),))
    caption = "Utilisation of resources by number of users, the nearest to full"
    columns: list[_Column] = [(names[key], 1, _finite(_utilised(*key))) for key in chosen]
    yield from _chart(capacity, steps, caption, (panel,), _table(f"{caption} (%)", steps, columns))


def _if_all_measured(step: MeasuredStep, steps: Sequence[MeasuredStep], key: tuple[str, str]) -> float | None:
    figure = _utilised(*key)
    alike = [figure(one) for one in steps if one.users == step.users and one.result != VOID]
    return None if None in alike or step.result == VOID else figure(step)


def _utilised(probe: str, name: str) -> Figure:
    """Return the function of a resource's share of saturation, in per cent."""

    def figure(step: MeasuredStep) -> float | None:
        shares = [one.share for one in step.resources if (one.probe, one.name) == (probe, name)]
        return 100 * shares[0] if shares and shares[0] is not None else None

    return figure


def _finite(figure: Figure) -> Callable[[MeasuredStep], Cell]:
    return lambda step: finite(figure(step))


_Column = tuple[str, Digits, Callable[[MeasuredStep], Cell]]
"""The title of a column, its digits, and the cell of a run in it."""


def _table(caption: str, steps: Sequence[MeasuredStep], columns: Sequence[_Column]) -> Table:
    """Return a row for each run: its users, its result, and its figures."""
    return table_of(
        caption,
        steps,
        ("Users", 0, lambda step: step.users),
        ("Result", None, lambda step: words.RESULTS[step.result]),
        *columns,
    )


def _limit(name: str, limit_ms: float | None) -> tuple[Limit, ...]:
    return () if limit_ms is None else (Limit(f"limit of the {name}: {words.in_full(limit_ms)}", limit_ms),)


def in_ms(time: Time | None) -> float | None:
    return None if time is None else float(time)
