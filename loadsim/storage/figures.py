"""The figures of a storage test, from the samples of its databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadsim.engine.latency_histogram import about_ms
from loadsim.storage.io_times import Io, IoTotals, summed


@dataclass(frozen=True, slots=True)
class IoFigures:
    """One kind of input or output in the window."""

    per_s: float
    mean_ms: float | None
    max_ms: float | None
    """The largest mean of a sample, as the published logs have it."""
    slowest_ms: float | None
    """The slowest single one."""
    mean_bytes: float | None

    @classmethod
    def of(cls, totals: Sequence[IoTotals], sample_s: float) -> IoFigures:
        """Return the figures of samples, each of this length."""
        together = IoTotals()
        for each in totals:
            together.add(each)
        means = [each.mean_ms for each in totals if each.mean_ms is not None]
        return cls(
            per_s=together.count / (len(totals) * sample_s) if totals else 0.0,
            mean_ms=together.mean_ms,
            max_ms=max(means, default=None),
            slowest_ms=together.slowest_ms,
            mean_bytes=together.bytes / together.count if together.count else None,
        )


@dataclass(frozen=True, slots=True)
class DatabaseFigures:
    """One database in the window."""

    name: str
    directory: str
    io: Mapping[Io, IoFigures]
    operations: Mapping[str, int]
    cpu_share: float
    """The part of a core that its process used."""
    lag_p99_ms: float | None
    """The wait of its process for the interpreter, 99th percentile."""

    @property
    def iops(self) -> float:
        return self.io[Io.READ].per_s + self.io[Io.WRITE].per_s

    @property
    def document(self) -> dict[str, Any]:
        """The figures as JSON, such as `reads_per_s`, `read_ms`, `read_max_ms`, `read_slowest_ms`, `read_bytes`."""
        figures: dict[str, Any] = {"name": self.name, "directory": self.directory}
        for kind, each in self.io.items():
            figures[f"{kind}s_per_s"] = each.per_s
            figures[f"{kind}_ms"] = each.mean_ms
            figures[f"{kind}_max_ms"] = each.max_ms
            figures[f"{kind}_slowest_ms"] = each.slowest_ms
            figures[f"{kind}_bytes"] = each.mean_bytes
        return {
            **figures,
            "operations": dict(self.operations),
            "cpu_share": self.cpu_share,
            "lag_p99_ms": self.lag_p99_ms,
        }


Sample = Mapping[str, Any]
"""A worker's figures of an interval; see `StoreLoad.take`."""


def database_figures(
    name: str, directory: str, samples: Sequence[Sequence[Sample]], sample_s: float
) -> DatabaseFigures:
    """Return the figures of the samples of the window, each of this length; with those of the same time together."""
    by_sample = [summed([each["io"] for each in together]) for together in samples]
    operations: Counter[str] = Counter()
    lag: Counter[str] = Counter()
    cpu_s = 0.0
    for together in samples:
        for each in together:
            operations.update(each["operations"])
            lag.update(each["lag"])
            cpu_s += each["cpu_s"]
    return DatabaseFigures(
        name=name,
        directory=directory,
        io={kind: IoFigures.of([each[kind] for each in by_sample], sample_s) for kind in Io},
        operations=operations,
        cpu_share=cpu_s / (len(samples) * sample_s) if samples else 0.0,
        lag_p99_ms=about_ms(lag, 99),
    )


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over a database: bytes or messages that were read, the time, and the places of damage, the first ones."""

    bytes: int
    took_s: float
    messages: int = 0
    damaged: int = 0
    damages: Sequence[str] = ()
