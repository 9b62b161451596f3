"""Error rates of `loadsim compare`: simulated runs of equal servers, and of servers worse by twice the limit.

The spread between runs is normal in logarithms, shared in half by all figures, and correlated from run to run (AR(1)).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.table import put_into, table
from loadsim.comparison.compared_run import BASE, DELIVERY, NEW, RESPONSE_SCORE, SCORE
from loadsim.comparison.decision import Terms, by_criteria, by_shares, by_times, together
from loadsim.comparison.failure_rates import Counts, FailureRates
from loadsim.comparison.run_order import stretch
from loadsim.statistics.comparison import Decision, Sampled

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "measurement.md"
MARK = "<!-- Made by `python -m bench.comparisons --write`; do not edit. -->"

PAIRS = 1_000
SIZES = (3, 5, 10)
CORRELATIONS = (0.0, 0.9)
TERMS = ((0.05, 0.03), (0.1, 0.03), (0.1, 0.15))
"""The limits, each with a standard deviation of the logarithms of times."""

TIMES = {SCORE: 50.0, RESPONSE_SCORE: 100.0, DELIVERY: 600.0}
TASKS, PLANNED, FAILING, FAILING_SPREAD = 9, 500, 0.003, 0.4
"""The scored tasks, how often each is due in a run, the share that fails, and its logarithm's standard deviation."""

MISSES = 1.96
"""The deviation from which a run misses a criterion by chance: one in forty."""

FAILURES = "failures"
WORSE = (*TIMES, FAILURES)
"""The figures that may be worse, one in each pair."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The common terms of the pairs in a cell of the table. Runs take turns, or all of base come first."""

    size: int
    correlation: float
    taking_turns: bool
    limit: float
    spread: float

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of the runs of base and of new in the order of time."""
        places = np.arange(2 * self.size)
        second = places[::2] // 2 % 2  # new is first in each second pair
        return (
            (places[::2] + second, places[1::2] - second)
            if self.taking_turns
            else (places[: self.size], places[self.size :])
        )


def decisions(setting: Setting, worse: Sequence[str | None], pairs: int, seed: int = 31) -> Counter[Decision]:
    """Count the decisions on pairs; pair `n` differs in the `n`th figure of `worse`, which repeats (None: in none)."""
    draw = np.random.default_rng(seed)
    return Counter(_decision(setting, worse[pair % len(worse)], draw) for pair in range(pairs))


def _decision(setting: Setting, worse: str | None, draw: np.random.Generator) -> Decision:
    # 1. The deviations of each run: of each time, of the failure rates, and of a criterion.
    rows = _correlated(draw, len(TIMES) + 3, 2 * setting.size, setting.correlation)
    deviations = (rows[:-1] + rows[-1]) / np.sqrt(2)
    base, new = setting.places
    terms = Terms(setting.limit, 1, stretch([[f"{at:03d}" for at in side] for side in (base, new)]))

    # 2. The figures.
    samples = []
    for row, (name, time_ms) in zip(deviations, TIMES.items(), strict=False):
        times_ms = time_ms * np.exp(setting.spread * row)
        factor = 1 + 2 * setting.limit if name == worse else 1.0
        samples.append(Sampled(name, times_ms[base].tolist(), (factor * times_ms[new]).tolist()))
    shares = np.tile(FAILING * np.exp(FAILING_SPREAD * deviations[-2]), (TASKS, 1))
    if worse == FAILURES:
        shares[0, new] += 2 * FailureRates([], [Counts(PLANNED, 0)] * setting.size).allowed
    failed = draw.binomial(PLANNED, np.minimum(shares, 1.0))
    rates = {
        str(task): FailureRates(*([Counts(PLANNED, count) for count in of_task[side].tolist()] for side in (base, new)))
        for task, of_task in enumerate(failed)
    }
    missed = {
        name: [[FAILURES] if deviations[-1, at] > MISSES else [] for at in side]
        for name, side in ((BASE, base), (NEW, new))
    }
    return together([*by_times(samples, {}, terms), *by_shares(rates, terms), by_criteria(missed, terms)])


def _correlated(draw: np.random.Generator, rows: int, runs: int, correlation: float) -> NDArray[np.float64]:
    """Return standard normal rows in which neighbours are correlated."""
    found: NDArray[Any] = draw.standard_normal((rows, runs))
    for at in range(1, runs):
        found[:, at] = correlation * found[:, at - 1] + np.sqrt(1 - correlation**2) * found[:, at]
    return found


def row(terms: tuple[float, float], taking_turns: bool, correlation: float) -> list[str]:
    """Return a row of the table: the most wrong ones of any size; the equal pairs that pass / the others that fail."""
    limit, spread = terms
    order = "taking turns" if taking_turns else "base first"
    shown, wrong = [], 0
    for size in SIZES:
        setting = Setting(size, correlation, taking_turns, limit, spread)
        equal, worse = (decisions(setting, of, PAIRS) for of in ((None,), WORSE))
        shown.append(f"{_per_cent(equal['passed'])} / {_per_cent(worse['failed'])}")
        wrong = max(wrong, equal["failed"], worse["passed"])
    return [f"{100 * limit:g} %", f"{100 * spread:g} %", order, str(correlation), _per_cent(wrong), *shown]


def _per_cent(pairs: int) -> str:
    return f"{100 * pairs / PAIRS:.1f}"


def document() -> str:
    """Return the table."""
    head = ["limit", "spread", "order", "correlation", "wrong", *(f"{size} and {size}" for size in SIZES)]
    return table(head, (row(*each) for each in product(TERMS, (True, False), CORRELATIONS)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.comparisons", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    args = parser.parse_args(arguments)
    text = document()
    if args.write:
        put_into(PAGE, text, MARK)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
