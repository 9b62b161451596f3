"""The simulation that intervals are held against: its moods, its truth and its tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bench.coverage import MOODS, SERVICES, Cell, Mood, by_window, truths_ms, window
from bench.table import NOTHING


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("mood", MOODS)
def test_true_percentiles_are_those_of_a_very_long_window(service: str, mood: Mood) -> None:
    """The percentile by quadrature, and numpy's of 40,000 simulated times and more, within 10 %."""
    random = np.random.default_rng(5)
    long = Cell(service, mood, 1, 20_000, 20, 1)
    truth_ms = truths_ms(service, mood)
    for task in window(random, long):
        assert task.percentile_us(95) / 1000 == pytest.approx(truth_ms[task.task], rel=0.1)


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize("tau_s", [1, 12])
def test_moods_have_the_given_correlation_time(mood: Mood, tau_s: int) -> None:
    """Of their logarithms, after a correlation time 1/e is left; slow spells have their share of the time."""
    window_s, step_s = 20_000 * tau_s, tau_s / 4
    at_s = np.arange(0, window_s, step_s)
    logs = np.log(mood.factors(np.random.default_rng(2), at_s, window_s, tau_s))
    assert np.corrcoef(logs[4:], logs[:-4])[0, 1] == pytest.approx(math.exp(-1), abs=0.05)
    if mood.share:
        assert np.mean(logs > 0) == pytest.approx(mood.share, rel=0.1)
        spells = float(np.sum(np.diff((logs > 0).astype(int)) > 0))
        assert spells == pytest.approx(mood.spells(window_s, tau_s), rel=0.25)  # short ones lie between two looks
    else:
        assert np.std(logs) == pytest.approx(mood.deviation, rel=0.1)


def row(mood: str, tau_s: int, window_s: int, read: int, score: int, shown: int = 400) -> dict[str, Any]:
    """A combination in which so many intervals of READ and of the score held the truth."""
    figures = {
        name: {"shown": shown, "covered": covered, "width": 1.5 if shown else None}
        for name, covered in (("READ", read), ("score", score))
    }
    return {"mood": mood, "tau_s": tau_s, "window_s": window_s, "windows": 500, "beyond": mood == "rare", **figures}


ROWS = [
    row("mood", 0, 3600, 390, 380),
    row("mood", 12, 3600, 380, 380),
    row("mood", 12, 3600, 376, 376),
    row("mood", 12, 3600, 20, 20, shown=50),
    row("mood", 12, 60, 0, 0, shown=0),
    row("rare", 12, 3600, 300, 300),
]


def test_rows_beyond_the_limit_are_in_no_summary() -> None:
    """The lowest coverage is that of a combination with enough intervals, if there is one."""
    lines = by_window(ROWS).splitlines()
    assert "| 1 h | READ | 62% | 93.3 | 94.0 of 400 | 1.50 |" in lines  # 1250 of 2000 shown, 1166 of them covered
    assert "| 1 h | READ | 10% | 40.0 | 40.0 of 50 | 1.50 |" in by_window(ROWS[3:]).splitlines()


def test_windows_without_intervals_are_not_in_the_table() -> None:
    """As all shorter ones than an hour are."""
    for rows in ([], ROWS[4:5]):
        assert by_window(rows).endswith(f"\n\n{NOTHING}")
