"""How often comparisons are wrong: a few pairs in each run, all of them in the nightly one."""

from __future__ import annotations

import re

import pytest

from bench import comparisons
from bench.comparisons import PAIRS, Setting, decisions, document
from bench.table import is_current

MOST = 0.05
"""The most comparisons that may be wrong."""


@pytest.mark.parametrize("in_turns", [True, False])
def test_few_comparisons_are_wrong(in_turns: bool) -> None:
    """Correlated runs with a large spread, whose limit is small for it; three standard errors (2.8 %) more."""
    setting = Setting(5, 0.9, in_turns, limit=0.1, spread=0.15)
    assert decisions(setting, worse=False, pairs=60)["failed"] <= 60 * (MOST + 0.084)
    assert decisions(setting, worse=True, pairs=60)["passed"] <= 60 * (MOST + 0.084)


@pytest.mark.nightly(part="runs")
def test_the_page_has_the_table_and_few_are_wrong() -> None:
    """`python -m bench.comparisons --write` puts it there."""
    text = document(PAIRS)
    assert is_current(comparisons.PAGE, text, comparisons.MARK)
    wrong = [float(share) for share in re.findall(r"\| ([\d.]+) / [\d.]+ (?=\|)", text)]
    assert len(wrong) == 72
    assert max(wrong) <= 100 * MOST
