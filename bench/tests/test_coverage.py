"""The simulation that intervals are held against: its moods, its truth and its tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bench.coverage import MOODS, SERVICES, Cell, Mood, document, truths_ms, window


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("mood", MOODS)
def test_the_truth_of_the_simulation_is_that_of_a_very_long_window(service: str, mood: Mood) -> None:
    """The percentile by quadrature, and numpy's of 40,000 simulated times and more, within 10 %."""
    random = np.random.default_rng(5)
    long = Cell(service, mood, 1, 20_000, 20, 1)
    truth_ms = truths_ms(service, mood)
    for task in window(random, long):
        assert np.percentile(task.took_us, 95) / 1000 == pytest.approx(truth_ms[task.task], rel=0.1)


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize("tau_s", [1, 12])
def test_moods_have_the_correlation_time_that_they_are_given(mood: Mood, tau_s: int) -> None:
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


def test_tables_have_what_is_beyond_the_limit_in_brackets() -> None:
    """Coverage is of the intervals shown, over all services and rates; rows beyond the limit are in no summary."""

    def row(mood: str, tau_s: int, window_s: int, covered: int, **other: Any) -> dict[str, Any]:
        figures = {"shown": 400, "covered": covered, "width": 1.5}
        shown = {"READ": figures, "score": figures} | other
        return {"mood": mood, "tau_s": tau_s, "window_s": window_s, "windows": 500, "beyond": mood == "rare"} | shown

    none = {"shown": 0, "covered": 0, "width": None}
    rows = [
        row("mood", 0, 900, 390),
        row("mood", 12, 900, 380),
        row("mood", 12, 900, 376),
        row("mood", 12, 60, 0, READ=none, score=none),
        row("rare", 12, 900, 300),
    ]
    lines = document({"full": True, "coverage": rows}).splitlines()
    assert "| independent times | 0 s | 97.5 / 97.5 |" in lines
    assert "| mood | 12 s | 94.5 / 94.5 |" in lines
    assert "| rare | 12 s | (75.0 / 75.0) |" in lines
    assert "| 15 min | READ | 80% | 95.5% | 94.0% of 400 | 1.50 |" in lines
    assert lines[0].endswith("Without any interval: windows of 60 s.")
    assert document({"full": True}) == ""
