"""The decisions on `max_regression`: one for each figure that decides a run, and one for the runs that miss criteria.

A figure passes if the interval of its change lies within the limit, fails if it lies beyond, and else is undecided.
Passing needs all figures. So only the intervals that fail are corrected for the number of figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loadsim.analysis.criteria import Result, figure, judge_each
from loadsim.analysis.summary import Summary
from loadsim.comparison.compared_run import BASE, NEW, ComparedRun, Sides, kind_of, of_both
from loadsim.comparison.failure_rates import Counts, FailureRates, Side
from loadsim.comparison.run_order import stretched
from loadsim.model.figures import Figures
from loadsim.statistics.comparison import (
    ALPHA,
    LOOKS_WITH_REPEATS,
    Decision,
    Sampled,
    larger_share_p,
    not_more_p,
    repeats_needed,
)

ONE_SIDED = ALPHA / 3
"""The probability of failing equal servers by times; by shares; and by missed criteria: `ALPHA` in all."""

MOST_MORE_MISSES = 0.5
"""The difference of the shares of runs that miss a criterion, from which on new must not pass."""

_WORST_FIRST: tuple[Decision, ...] = ("failed", "undecided", "passed")


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision on a figure, by the interval of its change from base to new and the largest change allowed.

    The change of a `time` is a ratio, that of a `share` a difference; `criteria` and what is `unmeasured` have none.
    `low` and `high` are None if unknown, `limit` also if base has a higher failure rate.
    """

    name: str
    kind: Literal["time", "share", "criteria", "unmeasured"]
    decision: Decision
    low: float | None = None
    high: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of all decisions: the allowed share, the number of looks, and the factor of `run_order.stretch`.

    Times decide nothing if the runs `alternate`.
    """

    max_regression: float
    looks: int
    stretch: float
    alternate: bool = False


def decide(low: float, high: float, corrected_low: float, limit: float) -> Decision:
    """Decide by an interval, and by the lower end of the wider one that is corrected for the number of figures."""
    if high < limit:
        return "passed"
    return "failed" if corrected_low > limit else "undecided"


def _corrected(figures: int) -> float:
    """Return the factor of the number of looks for the intervals that fail, of so many figures of one kind."""
    return ALPHA / 2 / ONE_SIDED * figures


def _decided(
    name: str, kind: Literal["time", "share"], of: Sampled | FailureRates, limit: float, figures: int, terms: Terms
) -> Decided:
    """Decide on one of so many figures of a kind by the interval of its change; without one, it is undecided."""
    shown = of.interval(ALPHA / terms.looks, terms.stretch)
    surely = of.interval(ALPHA / (terms.looks * _corrected(figures)), terms.stretch)
    if shown is None or surely is None:
        return Decided(name, kind, "undecided", limit=limit)
    return Decided(name, kind, decide(*shown, surely[0], limit), *shown, limit)


def by_times(samples: Sequence[Sampled], more_failures: Mapping[str, Side | None], terms: Terms) -> list[Decided]:
    """Decide on each time by its ratio. `more_failures` has the side with more failures of some.

    Times of base without its slow, failed tasks do not prove that new is slower: then new has not failed yet.
    """
    return [_by_time(sample, more_failures.get(sample.name), len(samples), terms) for sample in samples]


def _by_time(sample: Sampled, more_failures: Side | None, figures: int, terms: Terms) -> Decided:
    """Decide on the finite times; infinite ones are misses. A base without finite ones cannot be exceeded."""
    limit = 1 + terms.max_regression
    if not sample.finite.base_ms:
        return Decided(sample.name, "time", "passed", limit=limit)
    one = _decided(sample.name, "time", sample.finite, limit, figures, terms)
    if one.decision == "failed" and more_failures == BASE:
        return replace(one, decision="undecided", limit=None)
    return replace(one, decision="undecided") if terms.alternate else one


def shares(runs: Sides, scored: Mapping[str, FailureRates]) -> dict[str, FailureRates]:
    """Return the failure rates of scored tasks, and the shares and counts that have a criterion, by name."""
    found = {f"failures of {name}": one for name, one in scored.items()}
    sides = {side: [_counted(run) for run in of_side] for side, of_side in runs.items()}
    criteria = (one for of_side in runs.values() for run in of_side for one in run.recorded.summary.criteria)
    never = {one.name for one in criteria if one.limits.get("max") == 0}
    for name in dict.fromkeys(name for of_side in sides.values() for of_run in of_side for name in of_run):
        found[name] = FailureRates(
            *([of_run[name] for of_run in sides[side] if name in of_run] for side in (BASE, NEW)),
            never=name in never,
            partial=not all(name in of_run for of_run in of_both(sides)),
        )
    return found


def _counted(run: ComparedRun) -> dict[str, Counts]:
    criteria = (one for one in run.recorded.summary.criteria if not one.each and kind_of(one.name) == "share")
    return {one.name: counts for one in criteria if (counts := _counts(one, run.figures))}


def _counts(criterion: Result, figures: Figures) -> Counts | None:
    """Return a share or a count as a number of events, those that are worse; None if it was not measured.

    Of a count with `min` it is unknown how many more there could have been: only who misses the criterion decides.
    """
    group, _, last = criterion.name.rpartition(".")
    if last in ("failed_share", "done_share", "attempted_share"):
        of = figure(figures, f"{group}.planned".lstrip("."))
    elif last == "logon_failed_share":
        of = figures.log_ons
    else:
        of = figures.users if last.endswith("share") else figures.totals.planned
    if criterion.figure is None or not of or not math.isfinite(criterion.figure):
        return None
    is_share, has_most = last.endswith("share"), bool(criterion.limits.keys() & {"max", "below"})
    if not (is_share or has_most):
        return None
    count = criterion.figure * of if is_share else criterion.figure
    return Counts(of, count if has_most else of - count)


def by_shares(rates: Mapping[str, FailureRates], terms: Terms) -> list[Decided]:
    """Decide on each share by its difference, of which `FailureRates.allowed` is no harm."""
    return [_by_share(name, one, len(rates), terms) for name, one in rates.items()]


def _by_share(name: str, one: FailureRates, figures: int, terms: Terms) -> Decided:
    """Decide on a share. What only some runs have, such as faults of audited mail, has not passed."""
    if one.never and not one.new_share:  # `by_criteria` asks if enough runs show it
        found = Decided(name, "share", "passed", limit=0.0)
    else:
        found = _decided(name, "share", one, one.allowed, figures, terms)
    return replace(found, decision="undecided") if one.partial and found.decision == "passed" else found


Missed = Mapping[str, Sequence[Sequence[str]]]
"""By side, the criteria that each run misses."""


_FINITE = {name: {"below": math.inf} for name in ("response_score_ms", "delivery.p95_ms")}
"""Criteria that only infinite times miss."""


def misses(runs: Sides) -> Missed:
    """Return what the runs miss: criteria, and further findings by their codes; a degraded run misses `validity`.

    Infinite times miss those of `_FINITE` even if they are switched off. What was not measured is not missed.
    """

    def missed(summary: Summary) -> list[str]:
        results = (*summary.criteria, *judge_each(_FINITE, summary.figures))
        names = dict.fromkeys(one.name for one in results if one.figure is not None and not one.passed)
        names |= {one.code.id: None for one in summary.verdict.faults}
        return [*names, *(["validity"] if summary.verdict.validity == "degraded" else [])]

    return {side: [missed(run.recorded.summary) for run in of_side] for side, of_side in runs.items()}


def missed_more(missed: Missed) -> list[str]:
    """Return the criteria that a larger share of new than of base missed, in the order of the new runs."""
    base, new = (Counter(name for names in missed[side] for name in names) for side in (BASE, NEW))
    return [name for name, count in new.items() if count * len(missed[BASE]) > base[name] * len(missed[NEW])]


def by_criteria(missed: Missed, terms: Terms) -> Decided:
    """Decide on the runs that miss criteria.

    New fails if the larger share of such runs is significant. It passes if it misses no criterion in a larger share,
    and if no share is larger by `MOST_MORE_MISSES`, also of criteria that no run misses.
    Criteria that all runs of base miss do not fail new.
    """
    always = set.intersection(*map(set, missed[BASE]))
    runs = len(missed[BASE]), len(missed[NEW])
    base, new = (sum(not always.issuperset(names) for names in missed[side]) for side in (BASE, NEW))
    if stretched(larger_share_p((base, new), runs), terms.stretch) <= ONE_SIDED / terms.looks:
        return Decided("criteria", "criteria", "failed")
    by_name = [Counter(name for names in missed[side] for name in names) for side in (BASE, NEW)]
    each = {(0, 0), (base, new), *((by_name[0][name], by_name[1][name]) for name in by_name[0])}
    unsure = missed_more(missed) or any(not_more_p(one, runs, MOST_MORE_MISSES) > ALPHA / terms.looks for one in each)
    return Decided("criteria", "criteria", "undecided" if unsure else "passed")


def together(found: Sequence[Decided]) -> Decision:
    return next(decision for decision in _WORST_FIRST if decision in {one.decision for one in found})


def more_repeats(found: Sequence[Decided], times: Sequence[Sampled], terms: Terms) -> int | None:
    """Return the further repeats of each side that decide all that is undecided; None if repeats alone may not."""
    undecided = [one for one in found if one.decision == "undecided"]
    by_name = {one.name: one for one in times if all(map(math.isfinite, (*one.base_ms, *one.new_ms)))}
    if terms.alternate or not all(one.low and one.limit and one.name in by_name for one in undecided):
        return None
    looks, corrected = max(terms.looks, LOOKS_WITH_REPEATS), _corrected(len(times))
    more = [
        repeats_needed(by_name[one.name], terms.max_regression, looks, corrected, terms.stretch) for one in undecided
    ]
    return max((each for each in more if each), default=None) if all(more) else None
