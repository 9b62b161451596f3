"""The coverage of the intervals of percentiles and of the score, simulated with a known truth.

Four tasks share a server's mood, which multiplies their service times: steady, log-normal (an Ornstein-Uhlenbeck
process), or slow spells of random length. Arrivals are Poisson. Service times are log-normal or have the tail of a
Pareto distribution. The true percentiles are those of the stationary distribution, computed by quadrature.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from multiprocessing import get_context
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.part import Part
from bench.processes import Cpus
from bench.table import table
from loadsim.findings.formats import length
from loadsim.model.figures import NoInterval
from loadsim.model.terms import Window
from loadsim.statistics.bins import Hits, bin_of, timed
from loadsim.statistics.intervals import intervals

Floats = NDArray[np.float64]
Row = Mapping[str, Any]

LEAST_SPELLS = 10
"""Windows with fewer slow spells are beyond the limit that is stated with each interval."""

SHOWN = ("READ", "score")

ENOUGH = 150
"""The intervals that give the coverage of one combination to 1.8 %."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: its weight in the score, its share of the arrivals, the logarithm of its usual time in microseconds, the
    standard deviation of the logarithm of a log-normal time, and the exponent of a Pareto tail.
    """

    name: str
    weight: float
    share: float
    log_us: float
    deviation: float
    tail: float


TASKS = (
    Task("READ", 10, 0.4, 9.0, 0.8, 2.0),
    Task("SEND", 1, 0.1, 11.0, 0.4, 1.5),
    Task("DELETE", 1, 0.3, 8.5, 0.6, 2.5),
    Task("MOVE", 1, 0.2, 9.5, 1.0, 2.0),
)


@dataclass(frozen=True, slots=True)
class Mood:
    """Slowness of a server: log-normal with a `deviation`, or `slowness` times as slow for a `share` of the time."""

    name: str
    deviation: float = 0.0
    share: float = 0.0
    slowness: float = 1.0

    def factors(self, random: np.random.Generator, due_s: Floats, window_s: int, tau_s: float) -> Floats:
        """Return the factor on each service time; `tau_s` is the mood's correlation time, 0 for independent times."""
        if self.share:
            slow = _slow(random, due_s, window_s, tau_s, self.share)
            return np.where(slow, self.slowness, 1.0)
        if not tau_s:
            return np.asarray(np.exp(self.deviation * random.standard_normal(len(due_s))))
        step_s = tau_s / 10
        series = _autoregressive(random, int(window_s / step_s) + 1, math.exp(-step_s / tau_s))
        return np.asarray(np.exp(self.deviation * series[(due_s / step_s).astype(np.int64)]))

    def distribution(self) -> tuple[Floats, Floats]:
        """Return the factors and their probabilities, for quadrature."""
        if self.share:
            return np.array([1.0, self.slowness]), np.array([1 - self.share, self.share])
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        return np.exp(self.deviation * nodes), weights / weights.sum()

    def spells(self, window_s: int, tau_s: float) -> float:
        """Return the expected number of slow spells in a window; infinite if the mood has no spells."""
        return window_s * self.share * (1 - self.share) / tau_s if self.share and tau_s else math.inf


MOODS = (
    Mood("log-normal, sigma 0.5", deviation=0.5),
    Mood("log-normal, sigma 1", deviation=1.0),
    Mood("4 times as slow for 20 % of the time", share=0.2, slowness=4.0),
    Mood("4 times as slow for 5 % of the time", share=0.05, slowness=4.0),
)
SERVICES = ("log-normal", "Pareto")
TAUS_S = (0, 1, 3, 6, 12)


@dataclass(frozen=True, slots=True)
class Extent:
    """The lengths of windows, arrivals per second, and the limits of windows and of hits in each cell.

    Shorter windows than these have no intervals (`SHORTEST_WINDOW_S`). Cells with fewer windows than `least` are left
    out.
    """

    windows_s: Sequence[int]
    per_s: Sequence[int]
    windows: int
    hits: int
    least: int = 50


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination, and how many windows of it are simulated."""

    service: str
    mood: Mood
    tau_s: int
    window_s: int
    per_s: int
    windows: int


def measure(_: Cpus, extent: Extent) -> list[dict[str, Any]]:
    """Return a row for each cell. Independent times are simulated with the first mood only."""
    cells = [
        Cell(service, mood, tau_s, window_s, per_s, windows)
        for service, mood, tau_s, window_s, per_s in product(SERVICES, MOODS, TAUS_S, extent.windows_s, extent.per_s)
        if (windows := min(extent.windows, extent.hits // (window_s * per_s))) >= extent.least
        and (tau_s or mood is MOODS[0])
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(simulate, cells))


def simulate(cell: Cell) -> dict[str, Any]:
    """Simulate the windows of a cell: in how many an interval was shown, how many of these held the truth, and their
    mean width, in units of the range that holds 95 % of the figures themselves.
    """
    random = np.random.default_rng(zlib.crc32(repr(cell).encode()))
    truth_ms = truths_ms(cell.service, cell.mood)
    figures: dict[str, list[float]] = {name: [] for name in SHOWN}
    shown: dict[str, list[tuple[float, float]]] = {name: [] for name in SHOWN}
    for _ in range(cell.windows):
        hits = list(window(random, cell))
        found = intervals(hits, Window(0, cell.window_s))
        read_ms = {task.task: task.percentile_us(95) / 1000 for task in hits}
        figures["READ"].append(read_ms["READ"])
        figures["score"].append(_score(read_ms))
        for name, interval in (("READ", found.tasks["READ"]), ("score", found.score)):
            if interval is not None and not isinstance(interval, NoInterval):
                shown[name].append(interval)
    row: dict[str, Any] = {
        "service": cell.service,
        "mood": cell.mood.name,
        "tau_s": cell.tau_s,
        "window_s": cell.window_s,
        "per_s": cell.per_s,
        "windows": cell.windows,
        "beyond": cell.mood.spells(cell.window_s, cell.tau_s) < LEAST_SPELLS,
    }
    for name in SHOWN:
        low_ms, high_ms = np.percentile(figures[name], (2.5, 97.5))
        widths = [high - low for low, high in shown[name]]
        row[name] = {
            "shown": len(widths),
            "covered": sum(low <= truth_ms[name] <= high for low, high in shown[name]),
            "width": float(np.mean(widths) / (high_ms - low_ms)) if widths else None,
        }
    return row


def window(random: np.random.Generator, cell: Cell) -> Iterator[Hits]:
    """Yield the hits of each task in a window."""
    counts = [random.poisson(cell.per_s * cell.window_s * task.share) for task in TASKS]
    due_s = random.random(sum(counts)) * cell.window_s
    factors = cell.mood.factors(random, due_s, cell.window_s, cell.tau_s)
    ends = np.cumsum(counts)[:-1]
    for task, due, factor in zip(TASKS, np.split(due_s, ends), np.split(factors, ends), strict=True):
        if cell.service == "Pareto":
            own = random.random(len(due)) ** (-1 / task.tail)
        else:
            own = np.exp(task.deviation * random.standard_normal(len(due)))
        took_us = (math.exp(task.log_us) * factor * own).astype(np.int64)
        slot = bin_of((due * 1e6).astype(np.int64), Window(0, cell.window_s))
        yield Hits(task.name, task.weight, np.sort(timed(took_us, slot)))


@cache
def truths_ms(service: str, mood: Mood) -> dict[str, float]:
    """Return the true 95th percentiles of all tasks, and the score of these."""
    each = {task.name: _truth_ms(service, mood, task) for task in TASKS}
    return each | {"score": _score(each)}


def _truth_ms(service: str, mood: Mood, task: Task) -> float:
    """Bisect for the time that 5 % of a task's hits exceed."""
    factors, probabilities = mood.distribution()

    def exceeding(log_time: float) -> float:
        own = np.exp(log_time) / factors
        if service == "Pareto":
            beyond = np.maximum(own, 1.0) ** -task.tail
        else:
            beyond = np.array([1 - NormalDist(0, task.deviation).cdf(math.log(one)) for one in own])
        return float(probabilities @ beyond)

    low, high = -10.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeding(middle) > 0.05 else (low, middle)
    return math.exp(task.log_us + low) / 1000


def _score(percentiles_ms: Mapping[str, float]) -> float:
    return sum(task.weight * percentiles_ms[task.name] for task in TASKS) / sum(task.weight for task in TASKS)


def _slow(random: np.random.Generator, due_s: Floats, window_s: int, tau_s: float, share: float) -> NDArray[np.bool_]:
    """Return which instants lie in slow spells: a Markov chain of two states, slow for a share of the time."""
    if not tau_s:
        return random.random(len(due_s)) < share
    means_s = np.array([tau_s / share, tau_s / (1 - share)])  # of usual spells, of slow ones
    state = int(random.random() < share)
    pairs = 20 + int(3 * window_s / means_s.sum())
    lengths_s = random.exponential(np.tile(means_s[[state, 1 - state]], pairs))
    changes = np.searchsorted(np.cumsum(lengths_s), due_s)
    return np.asarray((changes + state) % 2 == 1)


_AT_ONCE = 100


def _autoregressive(random: np.random.Generator, length: int, correlation: float) -> Floats:
    """Return an AR(1) series of standard normal variables, computed in pieces by a triangular matrix."""
    pieces = -(-length // _AT_ONCE)
    shocks = random.standard_normal((pieces, _AT_ONCE)) * math.sqrt(1 - correlation**2)
    lags = np.subtract.outer(np.arange(_AT_ONCE), np.arange(_AT_ONCE))
    series = shocks @ np.where(lags >= 0, correlation ** np.maximum(lags, 0), 0.0).T
    decay = correlation ** np.arange(1, _AT_ONCE + 1)
    last = random.standard_normal()
    for piece in series:
        piece += last * decay
        last = piece[-1]
    return series.ravel()


# --- as tables ---


EXPLAINED_BY_WINDOW = f"""\
Combinations with at least ten slow spells in the window. *Lowest* is the coverage of one combination with at least
{ENOUGH} intervals. Widths are relative to the central 95 % of the figures of all windows."""


def by_window(rows: Sequence[Row]) -> str:
    """Return the share of windows with intervals, their coverage and their width, for each length of window."""
    within = [row for row in rows if not row["beyond"]]
    of_length = _grouped(within, "window_s")
    body = []
    for (window_s, of), some in sorted(_grouped(_with_intervals(within), "window_s", "of").items()):
        share = sum(row["shown"] for row in some) / sum(row["windows"] for row in of_length[window_s,])
        lowest = min(some, key=lambda row: (row["shown"] < ENOUGH, _covered([row])))
        width = np.mean([row["width"] for row in some])
        figures = [f"{share:.0%}", f"{_covered(some):.1f}", f"{_covered([lowest]):.1f} of {lowest['shown']:,}"]
        body.append([_length(window_s), of, *figures, f"{width:.2f}"])
    return f"{EXPLAINED_BY_WINDOW}\n\n{table(['window', 'of', 'shown', 'coverage, %', 'lowest, %', 'width'], body)}"


def _with_intervals(rows: Iterable[Row]) -> list[Row]:
    """Return a row for READ (`of`) and for the score of each combination, if it has any interval."""
    return [{**row, **row[of], "of": of} for row in rows for of in SHOWN if row[of]["shown"]]


def _grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by their values of these keys; no group is empty."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _covered(rows: Iterable[Row]) -> float:
    """Return the coverage in %, of rows with intervals."""
    covered, shown = np.sum([(row["covered"], row["shown"]) for row in rows], axis=0)
    return float(100 * covered / shown)


def _length(window_s: int) -> str:
    return length(window_s) if window_s >= 900 else f"{window_s} s"


COVERAGE = Part(
    "coverage",
    measure,
    {"Coverage of intervals, by length of window": by_window},
    smallest=Extent((3600,), (2,), 2, 10**6, 1),
    short=Extent((3600,), (2, 20), 200, 4_000_000),
    full=Extent((3600, 14_400), (2, 20, 100), 600, 18_000_000),
)
