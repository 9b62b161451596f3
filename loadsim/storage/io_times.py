"""Counts, bytes and times of the inputs and outputs of a store, by kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum, unique


@unique
class Io(StrEnum):
    """A kind of input or output. Only `READ` and `WRITE` count as IOPS, as in Jetstress."""

    READ = "read"  # a read of the database that reached the device
    WRITE = "write"  # a write to the database
    LOG_WRITE = "log_write"  # a write to the log, from the call until the device has it
    SYNC = "sync"  # a wait until the device has the writes to the database
    MAINTENANCE = "maintenance_read"  # a sequential read of the background maintenance
    REPLICATION = "replication_read"  # a read of the log for another copy


@dataclass(slots=True)
class IoTotals:
    """The inputs and outputs of one kind in a span of time."""

    count: int = 0
    bytes: int = 0
    total_ns: int = 0
    slowest_ns: int = 0

    def add(self, other: IoTotals) -> None:
        self.count += other.count
        self.bytes += other.bytes
        self.total_ns += other.total_ns
        self.slowest_ns = max(self.slowest_ns, other.slowest_ns)

    @property
    def mean_ms(self) -> float | None:
        return self.total_ns / self.count / 1e6 if self.count else None

    @property
    def slowest_ms(self) -> float | None:
        return self.slowest_ns / 1e6 if self.count else None


Counted = dict[str, dict[str, int]]
"""IoTotals by kind, as JSON."""


class IoTimes:
    """The inputs and outputs of one store, which its threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = {kind: IoTotals() for kind in Io}

    def add(self, kind: Io, began_ns: int, size_bytes: int) -> None:
        """Add an input or output that has just ended; `began_ns` is of `time.perf_counter_ns`."""
        took_ns = time.perf_counter_ns() - began_ns
        with self._lock:
            self._totals[kind].add(IoTotals(1, size_bytes, took_ns, took_ns))

    def take(self) -> Counted:
        """Return the totals since the last call."""
        with self._lock:
            totals, self._totals = self._totals, {kind: IoTotals() for kind in Io}
        return {kind.value: asdict(each) for kind, each in totals.items() if each.count}


def summed(samples: list[Mapping[str, Mapping[str, int]]]) -> dict[Io, IoTotals]:
    """Return the totals of some samples by kind, all kinds."""
    totals = {kind: IoTotals() for kind in Io}
    for sample in samples:
        for name, each in sample.items():
            totals[Io(name)].add(IoTotals(**each))
    return totals
