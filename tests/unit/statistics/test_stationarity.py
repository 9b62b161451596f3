"""Steadiness of a window: false alarms in simulated steady windows, trends that are found, and the findings."""

import math
from pathlib import Path

import numpy as np
import pytest
from findings_of import codes, warnings_of
from hit_series import autoregressive, hits_of
from numpy.typing import NDArray
from timing_samples import done, sample_log

from loadsim.analysis.summary import summarise
from loadsim.findings.catalogue import Code
from loadsim.model.terms import Window
from loadsim.statistics.bins import Hits
from loadsim.statistics.stationarity import FALSE_ALARMS, trends

LENGTH_S = 150


def task(random: np.random.Generator, course: NDArray[np.float64], hits: int = 2000, name: str = "READ") -> Hits:
    """Log-normal times of Poisson arrivals; their logarithm follows a course, second by second."""
    due_us = random.integers(0, LENGTH_S * 1_000_000, hits)
    took_us = np.exp(9 + course[due_us // 1_000_000] + 0.8 * random.normal(size=hits)).astype(np.int64)
    return hits_of(name, 1, due_us, took_us, Window(0, LENGTH_S))


STEADY = np.zeros(LENGTH_S)
RISING = np.linspace(0, 0.6, LENGTH_S)
EARLY = np.where(np.arange(LENGTH_S) < LENGTH_S / 5, 0.6, 0.0)


@pytest.mark.parametrize(("correlation", "windows"), [(0.0, 200), (0.5, 200)])
def test_steady_windows_are_rarely_called_unsteady(correlation: float, windows: int) -> None:
    """As often as is stated, and three standard deviations; twice that, where moods of the server last for seconds."""
    random = np.random.default_rng(11)
    alarms = 0
    for _ in range(windows):
        moods = 0.5 * autoregressive(random, LENGTH_S, correlation) if correlation else STEADY
        alarms += bool(trends([task(random, moods), task(random, moods, 500, "SEND")], Window(0, LENGTH_S)))
    nominal = FALSE_ALARMS * windows * (2 if correlation else 1)
    assert alarms <= nominal + 3 * math.sqrt(nominal)


@pytest.mark.parametrize(
    ("course", "went"),
    [(RISING, Code.RISING), (RISING[::-1], Code.FALLING), (EARLY, Code.FALLING), (-EARLY, Code.RISING)],
)
def test_trends_are_found(course: NDArray[np.float64], went: Code) -> None:
    """In nine of ten windows, and never the contrary. What is fast at first rises, what is slow at first falls."""
    random = np.random.default_rng(12)
    found = [{*codes(trends([task(random, course)], Window(0, LENGTH_S)))} for _ in range(40)]
    assert sum(went in each for each in found) >= 36
    assert not any(each - {went} for each in found)


def test_the_shares_are_those_of_the_hits() -> None:
    """Counted by hand, for the median: of one task, in the first quarter, and in what it is compared with."""
    random = np.random.default_rng(13)
    due_us = random.integers(0, LENGTH_S * 1_000_000, 3000)
    took_us = np.exp(9 + EARLY[due_us // 1_000_000] + 0.5 * random.normal(size=3000)).astype(np.int64)
    (trend, *_) = trends([hits_of("READ", 10, due_us, took_us, Window(0, LENGTH_S))], Window(0, LENGTH_S))
    slow = took_us > np.percentile(took_us, 50, method="inverted_cdf")
    second = due_us // 1_000_000
    first, last = second < LENGTH_S / 4, second >= LENGTH_S * 3 / 4
    shares = {"first_share": pytest.approx(slow[first].mean()), "last_share": pytest.approx(slow[last].mean())}
    assert (trend.code, trend.values) == (Code.FALLING, {"percentile": 50} | shares)


def test_only_tasks_with_a_weight_are_tested() -> None:
    """Unless none has one: then all."""
    random = np.random.default_rng(14)
    read, sync = task(random, STEADY), task(random, RISING)
    unscored = Hits("SYNC", 0, sync.timed)
    assert not trends([read, unscored], Window(0, LENGTH_S))
    assert trends([unscored], Window(0, LENGTH_S))


def test_too_few_hits_show_no_trend() -> None:
    """With fewer than 40 bins or 200 hits of any kind."""
    due_us = np.linspace(0, 40_000_000 - 1, 400).astype(np.int64)
    assert trends([hits_of("READ", 1, due_us, due_us + 1000, Window(0, 40))], Window(0, 40))
    assert not trends([hits_of("READ", 1, due_us, due_us + 1000, Window(0, 39.9))], Window(0, 39.9))
    assert trends([hits_of("READ", 1, due_us[::2], due_us[::2] + 1000, Window(0, 40))], Window(0, 40))
    assert not trends([hits_of("READ", 1, due_us[::2][:199], due_us[::2][:199] + 1000, Window(0, 40))], Window(0, 40))
    assert not trends([], Window(0, 40))


def test_an_unsteady_window_is_a_warning(tmp_path: Path) -> None:
    """In score.json and in the text; validity and criteria are as without the trend."""
    tasks = [done("READ", 200 * number, 10 + number / 10) for number in range(500)]
    header = {"criteria": {"score_ms": {"below": 1000}}}
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks, header=header)])
    assert (summary.score["verdict"]["validity"], summary.exit_status) == ("valid", 0)
    (warning,) = warnings_of(summary)
    values = {"percentile": 50, "first_share": 0.0, "last_share": 1.0}
    assert (warning.code, warning.values) == (Code.RISING, values)
    took_ms = np.random.default_rng(15).lognormal(3, 0.5, 500)
    steady = [done("READ", 200 * number, float(took)) for number, took in enumerate(took_ms)]
    assert warnings_of(summarise([sample_log(tmp_path / "b.tlog", steady)])) == ()
