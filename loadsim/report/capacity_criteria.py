"""The criteria that decided a capacity search, or nearly did: their figures over the number of users."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import FAILED, GENERATOR, VOID
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.criteria import Result, unit_of
from loadsim.analysis.verdict import FULL_LOAD
from loadsim.report.capacity_curves import Curve, Figure, charted
from loadsim.report.criterion_words import wanted
from loadsim.report.digits import percent
from loadsim.report.document import Block, Limit
from loadsim.report.figure_words import named

NEAR = 0.8
"""A criterion is near from this part of its limit on, or of what a least share leaves."""

MOST_CRITERIA = 6
"""The most criteria that are drawn."""

DRAWN = ("score_ms", "response_score_ms")
"""The names of the criteria that have a panel in any case."""


def criteria_of(capacity: Capacity, steps: Sequence[MeasuredStep]) -> Iterable[Block]:
    """Yield a panel for each criterion on a time or a share that a run missed or nearly missed.

    Those that decided come first. Further ones are named.
    """
    found = _decisive(capacity, steps)
    drawn, others = found[:MOST_CRITERIA], found[MOST_CRITERIA:]
    curves = [*map(_curve, drawn), *_load_made(steps)]
    caption = "Criteria that decided, or nearly did, by number of users"
    yield from charted(capacity, steps, caption, curves, across=2)
    if not drawn:
        return
    yield (
        f"These are the criteria on a time or a share that a run missed, or of whose limit it used {100 * NEAR:.0f} %."
        " Those that the smallest failed number missed most often come first."
    )
    if others:
        yield f"{len(others)} more: {'; '.join(_words(each) for each in others)}."


def _load_made(steps: Sequence[MeasuredStep]) -> Iterable[Curve]:
    """Yield the curve of the load made, if a run that judges the server made less than a valid run does."""
    judged = [step.load_share for step in steps if step.result not in (GENERATOR, VOID)]
    if any(share is not None and share < FULL_LOAD for share in judged):
        yield Curve(
            title="Load made, share of the plan",
            name=f"Load made, at least {percent(FULL_LOAD)} of the plan in a valid run",
            unit="%",
            figure=lambda step: None if step.load_share is None else 100 * step.load_share,
            scale="near",
            limits=(Limit(f"at least {percent(FULL_LOAD)} in a valid run", 100 * FULL_LOAD),),
            digits=1,
        )


def _decisive(capacity: Capacity, steps: Sequence[MeasuredStep]) -> list[Result]:
    """Return the criteria that runs missed or nearly missed, those that decided first.

    Their figures are those of the last run. Runs that say nothing about the server do not count.
    """
    standings: dict[str, _Standing] = {}
    last: dict[str, Result] = {}
    failed_users = capacity.found.high if capacity.found else None
    for step in steps:
        if step.result in (GENERATOR, VOID):
            continue
        for result in (each.result for each in step.criteria):
            if result.name in DRAWN or unit_of(result.name) not in ("ms", "%") or result.figure is None:
                continue
            standing = standings.setdefault(result.name, _Standing())
            standing.used = max(standing.used, used_of_limit(result))
            if not result.passed:
                standing.missed_by.append(step.users)
                standing.decided += step.result == FAILED and step.users == failed_users
            last[result.name] = result
    near = [name for name, standing in standings.items() if standing.missed_by or standing.used >= NEAR]
    return [last[name] for name in sorted(near, key=lambda name: standings[name].order)]


@dataclass(slots=True)
class _Standing:
    """The runs that missed a criterion. `decided` counts those with the smallest failed number.

    `used` is the largest part of the limit.
    """

    missed_by: list[int] = field(default_factory=list)
    decided: int = 0
    used: float = 0.0

    @property
    def order(self) -> tuple[float, float, float]:
        """A key that is smaller for a criterion that decided more."""
        return (-self.decided, min(self.missed_by, default=math.inf), -self.used)


def used_of_limit(criterion: Result) -> float:
    """Return the part of its limits that a measured figure uses: 1 at a limit, more beyond it.

    Of a least share, it is what is missing, as a part of what may be. A limit that leaves nothing is kept or missed.
    """
    figure, limits = criterion.figure, criterion.limits
    assert figure is not None
    used = [_part(figure, limits[name]) for name in ("max", "below") if name in limits]
    if (least := limits.get("min")) is not None:
        used.append(_part(1 - figure, 1 - least) if unit_of(criterion.name) == "%" else _part(least, figure))
    return max(used, default=0.0)


def _part(found: float, allowed: float) -> float:
    if allowed > 0:
        return found / allowed
    return math.inf if found > allowed else 0.0


def _words(criterion: Result) -> str:
    return f"{named(criterion.name)}, {wanted(criterion)}"


def _curve(criterion: Result) -> Curve:
    is_time = unit_of(criterion.name) == "ms"
    factor = 1 if is_time else 100
    title = named(criterion.name)
    return Curve(
        title=f"{title[:1].upper()}{title[1:]}",
        name=_words(criterion),
        unit="ms" if is_time else "%",
        figure=_figure(criterion.name, factor),
        scale="log" if is_time else "near" if "min" in criterion.limits else "linear",
        limits=tuple(
            Limit(wanted(Result(criterion.name, {name: limit}, None)), factor * limit)
            for name, limit in criterion.limits.items()
        ),
        digits=1 if is_time else 2,
    )


def _figure(name: str, factor: int) -> Figure:
    """Return the function of a criterion's figure, in milliseconds or per cent."""

    def figure(step: MeasuredStep) -> float | None:
        figures = [each.result.figure for each in step.criteria if each.name == name]
        return factor * figures[0] if figures and figures[0] is not None else None

    return figure
