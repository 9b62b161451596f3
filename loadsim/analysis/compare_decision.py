"""The decision on `max_regression`: by the score, the response score and the criteria of the new runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from loadsim.analysis.compare import (
    LOOKS_WITH_REPEATS,
    Decision,
    Difference,
    Sample,
    compare,
    decide,
    repeats_needed,
)
from loadsim.analysis.compared_run import BASE, NEW, Run, Sides
from loadsim.analysis.failure_rates import Side

Found = tuple[Decision, int | None]
"""A decision, and the further repeats of each side that decide if it is undecided; None if repeats do not help."""

_WORST_FIRST: tuple[Decision, ...] = ("failed", "undecided", "passed")


def by_score(sample: Sample, max_regression: float, looks: int, more_failures: Side | None, significant: bool) -> Found:
    """Decide by the interval. New runs with more failures do not pass, and fail if these are significant.

    Times of base without its slow, failed tasks do not prove that new is slower: then new has not failed yet.
    """
    (difference,) = compare([sample], looks)
    decision = decide(difference, max_regression)
    if more_failures == NEW and decision != "failed":
        return "failed" if significant else "undecided", None
    if more_failures == BASE and decision == "failed":
        return "undecided", None
    if decision != "undecided":
        return decision, None
    return decision, repeats_needed(sample, max_regression, max(looks, LOOKS_WITH_REPEATS))


def by_response(difference: Difference, max_regression: float) -> Found:
    """Object to a response score that is shown to be slower than allowed; one that is not shown to be so passes.

    It varies more between runs than the score, so it need not be shown to be within the limit. With a larger share of
    infinite runs, new fails if that is significant, and else does not pass.
    """
    if difference.low is None:
        infinite = difference.ratio == math.inf
        return ("failed" if difference.change else "undecided") if infinite else "passed", None
    return ("failed" if difference.low > 1 + max_regression else "passed"), None


def by_criteria(missed: Sequence[str], base_passed: bool) -> Found:
    """Object to criteria that more new runs missed. New fails if all runs of base met all of theirs."""
    if not missed:
        return "passed", None
    return ("failed" if base_passed else "undecided"), None


def missed_more(runs: Sides) -> list[str]:
    """Return the criteria that a larger share of new than of base missed, in the order of the new runs."""
    base, new = (_missed(runs[side]) for side in (BASE, NEW))
    return [name for name, share in new.items() if share > base.get(name, 0)]


def _missed(runs: Sequence[Run]) -> dict[str, Fraction]:
    """Return the share of runs that missed each criterion."""
    missed = Counter(one.name for run in runs for one in run.recorded.summary.criteria if not one.passed)
    return {name: Fraction(count, len(runs)) for name, count in missed.items()}


def together(found: Sequence[Found]) -> Found:
    """Return the worst decision; if it is undecided, with the repeats that decide all that are."""
    worst = next(decision for decision in _WORST_FIRST if decision in {each for each, _ in found})
    if worst != "undecided":
        return worst, None
    repeats = [more for decision, more in found if decision == worst]
    return worst, None if None in repeats else max(more for more in repeats if more is not None)
