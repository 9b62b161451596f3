"""Error rates of comparisons: a few pairs in each run, all of them in the nightly one."""

from __future__ import annotations

import re

import pytest

from bench.comparisons import CORRELATIONS, FAILURES, MARK, PAGE, TERMS, WORSE, Setting, decisions, row
from bench.table import END

MOST = 0.05
"""The most comparisons that may be wrong."""


@pytest.mark.parametrize("taking_turns", [True, False])
def test_few_comparisons_are_wrong(taking_turns: bool) -> None:
    """Correlated runs with a large spread, whose limit is small for it; three standard errors (2.8 %) more."""
    setting = Setting(5, 0.9, taking_turns, limit=0.1, spread=0.15)
    assert decisions(setting, worse=(None,), pairs=60)["failed"] <= 60 * (MOST + 0.084)
    assert decisions(setting, worse=WORSE, pairs=60)["passed"] <= 60 * (MOST + 0.084)


def test_a_higher_failure_rate_of_one_task_is_found() -> None:
    """In most pairs, by the failure rates alone."""
    setting = Setting(10, 0.0, taking_turns=True, limit=0.1, spread=0.03)
    assert decisions(setting, worse=(FAILURES,), pairs=20)["failed"] > 10


def test_the_page_states_few_wrong_comparisons() -> None:
    """The fifth cell of each row; `python -m bench.comparisons --write` puts the table there."""
    shown = PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition(END)[0]
    wrong = [float(line.split(" | ")[4]) for line in re.findall(r"^\| \d.*", shown, re.MULTILINE)]
    assert len(wrong) == 2 * len(TERMS) * len(CORRELATIONS)
    assert max(wrong) <= 100 * MOST


@pytest.mark.nightly(part="runs")
@pytest.mark.parametrize("taking_turns", [True, False])
def test_the_page_has_the_rows(taking_turns: bool) -> None:
    """Two of them, as they are simulated again."""
    cells = row(TERMS[1], taking_turns, CORRELATIONS[-1])
    assert f"\n| {' | '.join(cells)} |\n" in PAGE.read_text(encoding="utf-8")
