"""Decide by `max_regression`: on each figure that counts in a run, and on the runs that miss criteria.

A figure passes if the interval of its change lies within the limit, fails if it lies beyond, and is otherwise
undecided. All figures must pass, so intervals are corrected for the number of figures only before one counts as failed.
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
"""The probability that equal servers fail by times, and likewise by shares and by missed criteria: `ALPHA` in total."""

MOST_MORE_MISSES = 0.5
"""New must not pass if the share of its runs that miss a criterion may exceed base's by this much."""

_WORST_FIRST: tuple[Decision, ...] = ("failed", "undecided", "passed")


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision on a figure, from the interval of its change (base to new) and the largest change allowed.

    A `time` changes by a ratio, a `share` by a difference; `criteria` and `unmeasured` figures have no change. `low`,
    `high` and `limit` are None if unknown, `limit` also if base has a higher failure rate.
    """

    name: str
    kind: Literal["time", "share", "criteria", "unmeasured"]
    decision: Decision
    low: float | None = None
    high: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of all decisions: the allowed regression, the number of looks, and the factor of `run_order.stretch`.

    If the runs `alternate`, times stay undecided.
    """

    max_regression: float
    looks: int
    stretch: float
    alternate: bool = False


def decide(low: float, high: float, corrected_low: float, limit: float) -> Decision:
    """Decide by an interval, and by the lower end of the wider one, which is corrected for the number of figures."""
    if high < limit:
        return "passed"
    return "failed" if corrected_low > limit else "undecided"


def _corrected(figures: int) -> float:
    """Return the factor on the number of looks for a failing interval, among this many figures of one kind."""
    return ALPHA / 2 / ONE_SIDED * figures


def _decided(
    name: str, kind: Literal["time", "share"], sample: Sampled | FailureRates, limit: float, figures: int, terms: Terms
) -> Decided:
    """Decide on a figure by the interval of its change; undecided without one. `figures` is the number of its kind."""
    shown = sample.interval(ALPHA / terms.looks, terms.stretch)
    surely = sample.interval(ALPHA / (terms.looks * _corrected(figures)), terms.stretch)
    if shown is None or surely is None:
        return Decided(name, kind, "undecided", limit=limit)
    return Decided(name, kind, decide(*shown, surely[0], limit), *shown, limit)


def by_times(samples: Sequence[Sampled], more_failures: Mapping[str, Side | None], terms: Terms) -> list[Decided]:
    """Decide on each time by its ratio. `more_failures` names the side with more failures, for some of the times.

    If base has more failures, its slowest tasks are missing from its times, which then cannot prove that new is slower.
    """
    return [_by_time(sample, more_failures.get(sample.name), len(samples), terms) for sample in samples]


def _by_time(sample: Sampled, more_failures: Side | None, figures: int, terms: Terms) -> Decided:
    """Decide on the finite times; infinite times count as misses. Nothing can exceed a base without finite times."""
    limit = 1 + terms.max_regression
    if not sample.finite.base_ms:
        return Decided(sample.name, "time", "passed", limit=limit)
    decided = _decided(sample.name, "time", sample.finite, limit, figures, terms)
    if decided.decision == "failed" and more_failures == BASE:
        return replace(decided, decision="undecided", limit=None)
    return replace(decided, decision="undecided") if terms.alternate else decided


def shares(runs: Sides, scored: Mapping[str, FailureRates]) -> dict[str, FailureRates]:
    """Return, by name, the failure rates of scored tasks, and the shares and counts with a criterion."""
    rates = {f"failures of {name}": rate for name, rate in scored.items()}
    sides = {side: [_counted(run) for run in of_side] for side, of_side in runs.items()}
    criteria = (result for run in of_both(runs) for result in run.recorded.summary.criteria)
    never = {result.name for result in criteria if result.limits.get("max") == 0}
    for name in dict.fromkeys(name for of_run in of_both(sides) for name in of_run):
        rates[name] = FailureRates(
            *([of_run[name] for of_run in sides[side] if name in of_run] for side in (BASE, NEW)),
            never=name in never,
            partial=not all(name in of_run for of_run in of_both(sides)),
        )
    return rates


def _counted(run: ComparedRun) -> dict[str, Counts]:
    results = run.recorded.summary.criteria
    shares = (result for result in results if not result.each and kind_of(result.name) == "share")
    return {result.name: counts for result in shares if (counts := _counts(result, run.figures))}


def _counts(criterion: Result, figures: Figures) -> Counts | None:
    """Return a share or a count as a number of bad events; None if it was not measured.

    A count with `min` has no known maximum: there, only the runs that miss the criterion count.
    """
    group, _, last = criterion.name.rpartition(".")
    if last in ("failed_share", "done_share", "attempted_share"):
        total = figure(figures, f"{group}.planned".lstrip("."))
    elif last == "logon_failed_share":
        total = figures.log_ons
    else:
        total = figures.users if last.endswith("share") else figures.totals.planned
    if criterion.figure is None or not total or not math.isfinite(criterion.figure):
        return None
    is_share, has_most = last.endswith("share"), bool(criterion.limits.keys() & {"max", "below"})
    if not (is_share or has_most):
        return None
    count = criterion.figure * total if is_share else criterion.figure
    return Counts(total, count if has_most else total - count)


def by_shares(rates: Mapping[str, FailureRates], terms: Terms) -> list[Decided]:
    """Decide on each share by its difference, which is harmless up to `FailureRates.allowed`."""
    return [_by_share(name, rate, len(rates), terms) for name, rate in rates.items()]


def _by_share(name: str, rate: FailureRates, figures: int, terms: Terms) -> Decided:
    """Decide on a share. One that only some runs have, such as faults in audited mail, does not pass."""
    if rate.never and not rate.new_share:  # `by_criteria` checks that enough runs show this
        decided = Decided(name, "share", "passed", limit=0.0)
    else:
        decided = _decided(name, "share", rate, rate.allowed, figures, terms)
    return replace(decided, decision="undecided") if rate.partial and decided.decision == "passed" else decided


Missed = Mapping[str, Sequence[Sequence[str]]]
"""The criteria that each run misses, by side."""


_FINITE = {name: {"below": math.inf} for name in ("response_score_ms", "delivery.p95_ms")}
"""Criteria that only infinite times miss."""


def misses(runs: Sides) -> Missed:
    """Return what each run misses: criteria, and other faults by their codes; a degraded run misses `validity`.

    Infinite times miss `_FINITE`, even where these criteria are off. Unmeasured figures miss nothing.
    """

    def missed(summary: Summary) -> list[str]:
        results = (*summary.criteria, *judge_each(_FINITE, summary.figures))
        names = dict.fromkeys(result.name for result in results if result.figure is not None and not result.passed)
        names |= {fault.code.id: None for fault in summary.verdict.faults}
        return [*names, *(["validity"] if summary.verdict.validity == "degraded" else [])]

    return {side: [missed(run.recorded.summary) for run in of_side] for side, of_side in runs.items()}


def missed_more(missed: Missed) -> list[str]:
    """Return the criteria that a larger share of new than of base missed, in the order of the new runs."""
    base, new = (Counter(name for names in missed[side] for name in names) for side in (BASE, NEW))
    return [name for name, count in new.items() if count * len(missed[BASE]) > base[name] * len(missed[NEW])]


def by_criteria(missed: Missed, terms: Terms) -> Decided:
    """Decide on the runs that miss criteria.

    New fails if its share of such runs is significantly larger. It passes if no criterion is missed by a larger share,
    and if it is certain that none, even one that no run missed, is missed more often by `MOST_MORE_MISSES`. New does
    not fail by a criterion that all of base's runs miss.
    """
    always = set.intersection(*map(set, missed[BASE]))
    runs = len(missed[BASE]), len(missed[NEW])
    base, new = (sum(not always.issuperset(names) for names in missed[side]) for side in (BASE, NEW))
    if stretched(larger_share_p((base, new), runs), terms.stretch) <= ONE_SIDED / terms.looks:
        return Decided("criteria", "criteria", "failed")
    by_name = [Counter(name for names in missed[side] for name in names) for side in (BASE, NEW)]
    pairs = {(0, 0), (base, new), *((by_name[0][name], by_name[1][name]) for name in by_name[0])}
    unsure = missed_more(missed) or any(
        not_more_p(pair, runs, MOST_MORE_MISSES) > ALPHA / terms.looks for pair in pairs
    )
    return Decided("criteria", "criteria", "undecided" if unsure else "passed")


def together(decisions: Sequence[Decided]) -> Decision:
    return next(decision for decision in _WORST_FIRST if decision in {decided.decision for decided in decisions})


def more_repeats(decisions: Sequence[Decided], times: Sequence[Sampled], terms: Terms) -> int | None:
    """Return how many more repeats per side would settle all open decisions; None if repeats may not suffice."""
    undecided = [decided for decided in decisions if decided.decision == "undecided"]
    by_name = {time.name: time for time in times if all(map(math.isfinite, (*time.base_ms, *time.new_ms)))}
    if terms.alternate or not all(decided.low and decided.limit and decided.name in by_name for decided in undecided):
        return None
    looks, corrected = max(terms.looks, LOOKS_WITH_REPEATS), _corrected(len(times))
    more = [
        repeats_needed(by_name[decided.name], terms.max_regression, looks, corrected, terms.stretch)
        for decided in undecided
    ]
    return max(filter(None, more), default=None) if all(more) else None
