"""The figures of a run over time: right, and few enough, however long the run lasts."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from growing_runs import second
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.cli.web.series import COLUMNS, Series

BEGIN, END, DONE, FAILED = map(COLUMNS.index, ("begin_s", "end_s", "done_per_s", "failed_per_s"))


def known(value: float | None) -> float:
    """A figure that must be there."""
    assert value is not None
    return value


def test_a_row_has_the_figures_of_its_second() -> None:
    """Counts become rates, and percentiles are those of this second alone."""
    series = Series()
    for each in (second(9, 100, bucket="2"), second(10, 140, 10, bucket="20")):
        series.add(each)
    row = dict(zip(COLUMNS, series.rows()[0], strict=True))
    assert (row["begin_s"], row["end_s"], row["done_per_s"], row["failed_per_s"]) == (9, 10, 40, 10)
    # 140 tasks of the second snapshot are in the bucket above 15.8 ms up to 20; none of them was there before.
    assert 15.8 < known(row["p50_ms"]) < 20
    assert row["late_generator_ms"] == pytest.approx(0.04 * 1000 / 50)
    assert (row["late_busy_ms"], row["users_on"], row["lag_p99_ms"], row["cpu_share"]) == (0, 199, 0.4, 0.1)


def test_log_ons_are_no_service_times() -> None:
    """A second with log-ons alone has none."""
    series = Series()
    for at_s in (1, 2):
        series.add(second(at_s, 0))
    assert series.rows()[0][COLUMNS.index("p95_ms")] is None


def test_nothing_counts_before_the_start_or_without_time() -> None:
    """Nor does a snapshot that has the time of the last one, or an older one."""
    series = Series()
    for at_s in (None, -3.0, -0.1, 5.0, 5.0, 4.0):
        series.add(second(at_s, 10))
    assert series.rows() == []


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.9, 3.0), st.integers(0, 1000), st.integers(0, 50)), min_size=2, max_size=400),
    st.integers(2, 40),
)
def test_every_task_is_in_one_row_and_rows_are_few(steps: list[tuple[float, int, int]], most: int) -> None:
    """Rows follow each other without a gap; together with what is not closed yet, they have all tasks."""
    series, at_s, done, failed = Series(most), 0.0, 0, 0
    series.add(second(0.0, 0))
    until: dict[float, tuple[int, int]] = {}
    for took_s, more_done, more_failed in steps:
        at_s, done, failed = at_s + took_s, done + more_done, failed + more_failed
        series.add(second(at_s, done, failed))
        until[at_s] = (done, failed)
    rows = series.rows()
    assert 1 <= len(rows) <= most
    assert known(rows[0][BEGIN]) == 0
    for one, other in pairwise(rows):
        assert one[END] == other[BEGIN]
    # The rows end where a snapshot was, and have what was done until then; figures have four digits.
    last = min(until, key=lambda at: abs(at - known(rows[-1][END])))
    assert known(rows[-1][END]) == pytest.approx(last, rel=1e-3)
    for column, count in ((DONE, until[last][0]), (FAILED, until[last][1])):
        total = sum(known(row[column]) * (known(row[END]) - known(row[BEGIN])) for row in rows)
        assert total == pytest.approx(count, rel=0.01, abs=0.5 + 0.001 * len(rows) * 1000)
    json.dumps(rows, allow_nan=False)


def test_old_seconds_are_thinned_out_with_a_new_generation() -> None:
    """The largest lag of a pair stays, and a page that has rows of the old generation can tell."""
    series = Series(4)
    for at_s in range(7):
        series.add(second(at_s, 10 * at_s, lag_ms=float(at_s)))
        assert series.generation == (at_s > 4)
    lag = COLUMNS.index("lag_p99_ms")
    assert [(row[BEGIN], row[END], row[DONE], row[lag]) for row in series.rows()] == [
        (0, 2, 10, 2),
        (2, 4, 10, 4),
        (4, 6, 10, 6),
    ]
    assert series.rows(2) == series.rows()[2:]


def test_samples_are_means_of_their_interval() -> None:
    """Of two joined seconds, over all their samples; a figure has no value before its first sample."""
    series = Series(2)
    one, other = ("host", "cpu_busy_share"), ("command/a", "a_count")
    series.add(second(0, 0), {one: [9.0]})
    for at_s, samples in enumerate(({}, {one: [1.0]}, {one: [0.0, 0.5], other: [-7.0]}, {other: [math.inf]}), 1):
        series.add(second(at_s, 0), samples)
        if at_s == 2:
            assert series.probed == [one]
            assert [len(row) - len(COLUMNS) for row in series.rows()] == [0, 1]
    assert series.probed == [one, other]
    assert [row[len(COLUMNS) :] for row in series.rows()] == [[1.0, None], [0.25, None]]


@pytest.mark.slow
def test_a_day_is_small() -> None:
    """Rows of a day, after three generations, are a fraction of a megabyte, and the last row is recent."""
    series = Series()
    for at_s in range(3600):
        series.add(second(at_s, 7 * at_s, at_s // 100, lag_ms=1.2345678))
    assert series.generation == 3
    assert 300 <= len(series) <= 600
    assert len(json.dumps(series.rows())) < 100_000
    assert known(series.rows()[-1][END]) >= 3600 - 2**3
