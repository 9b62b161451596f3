"""The figures of a run over time, in a bounded number of intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadsim.engine.latency_histogram import LABELS, about_ms
from loadsim.engine.snapshot import LiveSnapshot, Stretch
from loadsim.model.records import FAILURES
from loadsim.model.terms import WITHOUT_WINDOW

MOST_INTERVALS = 600
"""A chart is at most about 1000 pixels wide; 600 intervals take less than 100 kB of JSON."""

SHORTER_S = 0.5
"""An interval may be this much shorter: snapshots do not come at exact seconds."""

COLUMNS = (
    *("begin_s", "end_s", "done_per_s", "failed_per_s", "p50_ms", "p95_ms", "p99_ms"),
    *("late_busy_ms", "late_down_ms", "late_generator_ms", "lag_p99_ms", "lag_max_ms", "users_on", "cpu_share"),
)
"""The figures of a row. `late_` figures are means of the tasks that ended; None is unknown."""

Row = Sequence[float | None]

Figure = tuple[str, str]
"""The names of a probe, and of one of its figures."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The figures between two snapshots. Lags and the share of a core are the largest, `users_on` is the last."""

    begin_s: float
    end_s: float
    done: int
    failed: int
    service_times: Mapping[str, int]  # of ok tasks but log-ons and log-offs, by bucket
    late_s: tuple[float, float, float]  # the sums of lateness: user busy, session down, generator
    lag_p99_ms: float | None
    lag_max_ms: float | None
    users_on: int
    cpu_share: float | None
    sampled: Mapping[Figure, tuple[float, int]]  # the sums of samples, and their numbers

    @classmethod
    def of(cls, stretch: Stretch, samples: Mapping[Figure, Sequence[float]]) -> Interval:
        before, after = stretch.before, stretch.after
        causes = ("late_busy_s", "late_down_s", "late_generator_s")
        busy_s, down_s, generator_s = (max(0.0, getattr(after, each) - getattr(before, each)) for each in causes)
        return cls(
            begin_s=before.at_s or 0.0,
            end_s=after.at_s or 0.0,
            done=max(0, stretch.ended("ok")),
            failed=max(0, stretch.ended(*FAILURES)),
            service_times=together(
                [stretch.service_times(task) for task in after.service_times if task not in WITHOUT_WINDOW]
            ),
            late_s=(busy_s, down_s, generator_s),
            lag_p99_ms=after.lag_p99_ms,
            lag_max_ms=after.lag_max_ms,
            users_on=after.users_on,
            cpu_share=after.cpu_share,
            sampled={figure: (sum(values), len(values)) for figure, values in samples.items()},
        )

    def joined(self, later: Interval) -> Interval:
        """Return both intervals as one; `later` follows this one."""
        busy_s, down_s, generator_s = (one + other for one, other in zip(self.late_s, later.late_s, strict=True))
        return Interval(
            begin_s=self.begin_s,
            end_s=later.end_s,
            done=self.done + later.done,
            failed=self.failed + later.failed,
            service_times=together([self.service_times, later.service_times]),
            late_s=(busy_s, down_s, generator_s),
            lag_p99_ms=_larger(self.lag_p99_ms, later.lag_p99_ms),
            lag_max_ms=_larger(self.lag_max_ms, later.lag_max_ms),
            users_on=later.users_on,
            cpu_share=_larger(self.cpu_share, later.cpu_share),
            sampled={
                figure: (sum(total for total, _ in found), sum(number for _, number in found))
                for figure in {**self.sampled, **later.sampled}
                if (found := [each.sampled[figure] for each in (self, later) if figure in each.sampled])
            },
        )

    def row(self, probed: Sequence[Figure]) -> Row:
        """Return the figures in the order of `COLUMNS` and `probed`, rounded to what a chart shows."""
        length_s, ended = self.end_s - self.begin_s, self.done + self.failed
        figures = (
            *(self.begin_s, self.end_s, self.done / length_s, self.failed / length_s),
            *(about_ms(self.service_times, percentile) for percentile in (50, 95, 99)),
            *(each_s * 1000 / ended if ended else None for each_s in self.late_s),
            *(self.lag_p99_ms, self.lag_max_ms, self.users_on, self.cpu_share),
            *(total / number for total, number in (self.sampled.get(figure, (math.inf, 1)) for figure in probed)),
        )
        return [_rounded(each) for each in figures]


def _rounded(figure: float | None) -> float | None:
    if figure is None or not math.isfinite(figure):
        return None
    return float(f"{figure:.4g}") if abs(figure) < 1000 else round(figure)


def together(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by bucket; buckets without any are left out."""
    sums = {label: sum(each.get(label, 0) for each in counts) for label in LABELS}
    return {label: count for label, count in sums.items() if count > 0}


def _larger(one: float | None, other: float | None) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return max(known, default=None)


class Series:
    """The intervals of a run from the common start.

    An interval lasts a second or more. When there are more than `most`, each two become one, and from then on each new
    interval lasts twice as long. `generation` counts this: rows with the same generation never change.

    `probed` are the figures of probes, by when each was first seen; rows of before lack them.
    """

    def __init__(self, most: int = MOST_INTERVALS) -> None:
        self.generation = 0
        self.probed: list[Figure] = []
        self._most = most
        self._intervals: list[Interval] = []
        self._rows: list[Row] = []
        self._length_s = 1.0
        self._open: list[Interval] = []  # those of the interval that has not ended
        self._last: LiveSnapshot | None = None

    def add(self, snapshot: LiveSnapshot, samples: Mapping[Figure, Sequence[float]] | None = None) -> None:
        """Add a snapshot, and the samples since the last one, by figure.

        Those from before the common start are left out, and those whose clock has not advanced.
        """
        if snapshot.at_s is None or snapshot.at_s < 0:
            return
        before, at_s = self._last, snapshot.at_s
        if before is None or before.at_s is None:
            self._last = snapshot
            return
        if at_s <= before.at_s:
            return
        self._last = snapshot
        self.probed += [figure for figure in samples or {} if figure not in self.probed]
        self._open.append(Interval.of(Stretch(before, snapshot), samples or {}))
        if at_s - self._open[0].begin_s < self._length_s - SHORTER_S:
            return
        closed = _one(self._open)
        self._intervals.append(closed)
        self._rows.append(closed.row(self.probed))
        self._open = []
        if len(self._intervals) > self._most:
            self._halve()

    def _halve(self) -> None:
        whole = len(self._intervals) // 2 * 2
        rest = self._intervals[whole:]
        self._intervals = [_one(self._intervals[at : at + 2]) for at in range(0, whole, 2)]
        self._rows = [interval.row(self.probed) for interval in self._intervals]
        self._open = rest
        self._length_s *= 2
        self.generation += 1

    def rows(self, first: int = 0) -> list[Row]:
        """Return the rows from this one on."""
        return self._rows[first:]

    def __len__(self) -> int:
        return len(self._intervals)


def _one(intervals: Sequence[Interval]) -> Interval:
    joined = intervals[0]
    for each in intervals[1:]:
        joined = joined.joined(each)
    return joined
