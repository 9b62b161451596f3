"""The figures of a storage test, from the samples of its databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadsim.statistics.latency_histogram import about_ms
from loadsim.storage.store import Io, IoTotals, summed

Sample = Mapping[str, Any]
"""A worker's figures of an interval; see `StoreLoad.take`."""


@dataclass(frozen=True, slots=True)
class IoFigures:
    """One kind of input or output in the window."""

    per_s: float
    ms: float | None  # the mean
    max_ms: float | None  # the largest mean of a sample, as the published logs have it
    slowest_ms: float | None  # the slowest single one
    bytes: float | None

    @classmethod
    def of(cls, totals: Sequence[IoTotals], sample_s: float) -> IoFigures:
        """Return the figures of samples, each of this length."""
        together = IoTotals()
        for each in totals:
            together.add(each)
        return cls(
            per_s=together.count / (len(totals) * sample_s) if totals else 0.0,
            ms=together.mean_ms,
            max_ms=max((mean_ms for each in totals if (mean_ms := each.mean_ms) is not None), default=None),
            slowest_ms=together.slowest_ns / 1e6 if together.count else None,
            bytes=together.bytes / together.count if together.count else None,
        )


@dataclass(frozen=True, slots=True)
class DatabaseFigures:
    """One database in the window, or several together."""

    name: str
    directory: str
    io: Mapping[Io, IoFigures]
    operations: Mapping[str, int]
    cpu_share: float  # the part of a core that its process used
    lag_p99_ms: float | None
    """The wait of its process for the interpreter, 99th percentile."""

    @classmethod
    def of(cls, name: str, directory: str, samples: Sequence[Sequence[Sample]], sample_s: float) -> DatabaseFigures:
        """Return the figures of samples, each of this length; with those of the same time together."""
        by_sample = [summed([each["io"] for each in together]) for together in samples]
        operations, lag, cpu_s = Counter[str](), Counter[str](), 0.0
        for each in (each for together in samples for each in together):
            operations.update(each["operations"])
            lag.update(each["lag"])
            cpu_s += each["cpu_s"]
        io = {kind: IoFigures.of([each[kind] for each in by_sample], sample_s) for kind in Io}
        cpu_share = cpu_s / (len(samples) * sample_s) if samples else 0.0
        return cls(name, directory, io, dict(operations), cpu_share, about_ms(lag, 99))

    @property
    def iops(self) -> float:
        return self.per_s((Io.READ, Io.WRITE))

    def per_s(self, kinds: Iterable[Io]) -> float:
        return sum(self.io[kind].per_s for kind in kinds)

    @property
    def document(self) -> dict[str, Any]:
        """The figures as JSON, such as `reads_per_s`, `read_ms`, `read_max_ms`, `read_slowest_ms`, `read_bytes`."""
        document = asdict(self)
        for kind, figures in document.pop("io").items():
            for name, value in figures.items():
                document[f"{kind}s_{name}" if name == "per_s" else f"{kind}_{name}"] = value
        return document
