"""Rows of CSV exports, and numbers of them, for `recompute`: instants, durations, percentiles."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Row = dict[str, str]
Figures = dict[str, Any]

INF = math.inf
P95 = Fraction(95)
PERCENTILES = {
    "p50_ms": Fraction(50),
    "p90_ms": Fraction(90),
    "p95_ms": P95,
    "p99_ms": Fraction(99),
    "p99_9_ms": Fraction(999, 10),
}


def rows_of(export: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(export)))


def us(seconds: str) -> int:
    return round(float(seconds) * 1_000_000)


def us_of_ms(milliseconds: str) -> float:
    """Return a duration in microseconds; infinite if the cell is empty, as it never ended."""
    return round(float(milliseconds) * 1000) if milliseconds else INF


def duration_s(text: str | float) -> float:
    """Return the seconds of a duration as scenarios write it, such as `1h30m` or `500ms`."""
    if not isinstance(text, str):
        return float(text)
    unit_s = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    return sum(float(number) * unit_s[unit] for number, unit in re.findall(r"([\d.]+)(ms|[hms])", text))


def duration_of(run: Mapping[str, Any]) -> float:
    """Return how long a run without nights lasts, in seconds."""
    given = run.get("duration")
    return duration_s(run["day_length"]) * run["days"] if given is None else duration_s(given)


def nearest_rank(values_us: npt.ArrayLike, percent: Fraction) -> float:
    """Return the smallest value in ms that at least so many percent of the values do not exceed."""
    values = np.sort(np.asarray(values_us, dtype=float))
    rank = math.ceil(percent * len(values) / 100)
    return float(values[max(rank, 1) - 1]) / 1000


def times_of(values_us: Sequence[float]) -> Figures:
    """Return percentiles, maximum, mean and deviation in ms; an infinite time leaves no deviation."""
    if not values_us:
        return dict.fromkeys((*PERCENTILES, "max_ms", "mean_ms", "stddev_ms"))
    values = np.asarray(values_us, dtype=float)
    figures = {name: nearest_rank(values, percent) for name, percent in PERCENTILES.items()}
    stddev = None if math.isinf(values.max()) else float(values.std(ddof=1)) / 1000 if len(values) > 1 else 0.0
    return figures | {"max_ms": float(values.max()) / 1000, "mean_ms": float(values.mean()) / 1000, "stddev_ms": stddev}


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def mean_of(samples: Sequence[Row], column: str, weights: Sequence[float] | None = None) -> float:
    return float(np.average([float(row[column]) for row in samples], weights=weights))
