"""The spread between runs: the interval by hand, its coverage, and several runs in one answer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from timing_samples import done, write_sample

from loadsim.analysis.repeats import spread
from loadsim.analysis.summary import summarise
from loadsim.report.answer import full_answer


def test_the_spread_of_three_runs_by_hand() -> None:
    """Geometric mean 20, deviation 0.6931 of the logarithms, and 4.3027 * 0.6931 / sqrt(3) = 1.7219 to either side."""
    found = spread([10, 20, 40])
    assert found.each == (10, 20, 40)
    assert found.mean == pytest.approx(20)
    assert found.stddev == pytest.approx(15.2753, abs=1e-3)
    assert found.low == pytest.approx(20 / 5.5950, abs=1e-3)
    assert found.high == pytest.approx(20 * 5.5950, abs=1e-2)


def test_no_interval_reaches_below_zero() -> None:
    """Two runs that differ by a factor of 100, and one that took no time."""
    for figures in ([1, 100], [0, 5000]):
        found = spread(figures)
        assert found.low is not None and found.high is not None
        assert 0 < found.low < found.mean < found.high < math.inf


def test_one_run_has_no_spread() -> None:
    """A figure, and nothing that it could be held against; no run is an error."""
    found = spread([7.5])
    assert (found.mean, found.stddev, found.low, found.high) == (7.5, None, None, None)
    with pytest.raises(ValueError, match="no runs"):
        spread([])


def test_intervals_between_runs_hold_the_mean_as_often_as_they_say() -> None:
    """2,000 times four runs, log-normal: 95 % of them, but for four standard deviations."""
    runs = 50 * np.exp(np.random.default_rng(21).normal(0, 0.1, (2000, 4)))
    found = [spread(figures.tolist()) for figures in runs]
    covered = sum(one.low is not None and one.high is not None and one.low <= 50 <= one.high for one in found)
    assert abs(covered - 1900) < 4 * math.sqrt(2000 * 0.95 * 0.05)


def test_several_runs_say_how_they_spread(tmp_path: Path) -> None:
    """READ took 10, 20 and 30 ms, and MOVE was in two runs only: the answer has both, and no interval of one run."""
    for number, took_ms in enumerate((10, 20, 30)):
        tasks = [done("READ", 100 * at, took_ms) for at in range(10)]
        if number:
            tasks += [done("MOVE", 100 * at, 5) for at in range(10)]
        header = {"run": f"run-{number}", "weights": {"READ": 10}}
        write_sample(tmp_path / f"{number}.tlog", tasks, header=header)
    summary = summarise([tmp_path], rebase=True)
    module = summary.score["by_protocol"]["imap"]
    found = module["repeats"]
    assert found["runs"] == ["run-0", "run-1", "run-2"]
    assert found["score"]["each"] == [10, 20, 30]
    assert found["tasks"]["READ"]["each"] == [10, 20, 30]
    assert found["tasks"]["READ"]["stddev"] == 10
    assert found["tasks"]["MOVE"]["each"] == [None, 5, 5]
    assert module["score_interval_ms"] is None
    assert module["no_score_interval"] == "the logs are of several runs: see the spread between them"
    assert "\nBetween 3 runs: score 10.0, 20.0, 30.0; geometric mean 18.2, 95 % interval 4.6 to 72.2 ms. Quote" in (
        full_answer(summary)
    )


def test_scores_over_different_tasks_have_no_spread(tmp_path: Path) -> None:
    """READ takes 10 ms in every run; SEND, of 5 ms, is in two, whose scores are lower by that: no server is faster."""
    for number in range(3):
        tasks = [done("READ", 100 * at, 10) for at in range(10)]
        tasks += [done("SEND", 100 * at, 5) for at in range(10)] if number else []
        write_sample(tmp_path / f"{number}.tlog", tasks, header={"run": f"run-{number}"})
    summary = summarise([tmp_path], rebase=True)
    found = summary.score["by_protocol"]["imap"]["repeats"]
    assert (found["score"], found["no_score"]) == (None, "the runs' scores are over different tasks")
    assert found["tasks"]["READ"]["stddev"] == 0
    assert "\nNo spread of the score between 3 runs: the runs' scores are over different tasks.\n" in full_answer(
        summary
    )


def test_one_run_has_no_repeats(tmp_path: Path) -> None:
    """Nor have several logs of it."""
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)])
    write_sample(tmp_path / "b.tlog", [done("READ", 0, 1)], header={"client": "c2"})
    assert summarise([tmp_path]).score["by_protocol"]["imap"]["repeats"] is None
