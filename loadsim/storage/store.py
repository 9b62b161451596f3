"""The port for mail stores: messages by key in a directory, written durably or lazily, with every byte verified."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum, unique
from pathlib import Path
from typing import Protocol

STRIDE_BYTES = 256 * 1024  # the size of a read by maintenance or backup, as in Exchange


@unique
class Io(StrEnum):
    """A kind of disk I/O. Only `READ` and `WRITE` count as IOPS, as in Jetstress."""

    READ = "read"  # a read of the database that reached the device
    WRITE = "write"  # a write to the database
    LOG_WRITE = "log_write"  # a write to the log, from the call until the device has it
    SYNC = "sync"  # a wait until the device has the writes to the database, or to a log that no change waits for
    MAINTENANCE = "maintenance_read"  # a sequential read of the background maintenance
    REPLICATION = "replication_read"  # a read of the log for another copy


@dataclass(slots=True)
class IoTotals:
    """The inputs and outputs of one kind in an interval."""

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


class IoTimes:
    """A store's inputs and outputs, recorded by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = {kind: IoTotals() for kind in Io}

    def add(self, kind: Io, began_ns: int, size_bytes: int) -> None:
        """Add an input or output that ends now; `began_ns` is from `time.perf_counter_ns`."""
        took_ns = time.perf_counter_ns() - began_ns
        with self._lock:
            self._totals[kind].add(IoTotals(1, size_bytes, took_ns, took_ns))

    def take(self) -> dict[str, dict[str, int]]:
        """Return the totals by kind since the last call, as JSON."""
        with self._lock:
            totals, self._totals = self._totals, {kind: IoTotals() for kind in Io}
        return {kind.value: asdict(total) for kind, total in totals.items() if total.count}


def summed(samples: list[Mapping[str, Mapping[str, int]]]) -> dict[Io, IoTotals]:
    """Return the samples' totals for every kind."""
    totals = {kind: IoTotals() for kind in Io}
    for sample in samples:
        for name, total in sample.items():
            totals[Io(name)].add(IoTotals(**total))
    return totals


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A store's settings. Its cache, of `cache_bytes`, stands in for the server's."""

    directory: Path
    new: bool  # it may be created
    mailboxes: int
    cache_bytes: int
    log_bytes: int  # the size of the log, if there is one, at which changed pages are written
    log_copies: int  # the number of times each log is read, for other copies of the database


@dataclass(frozen=True, slots=True)
class Checked:
    """A part of a store that was read: its bytes, and the place of its damage, "" if the checksum is right."""

    bytes: int
    damaged: str = ""


class Damaged(Exception):
    """Stored bytes do not match their checksum; the text names the place."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OF_DISK = frozenset(
    {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ENODATA, errno.EILSEQ, errno.EBADE, errno.ENOLINK}
    | {errno.EREMOTEIO, errno.ETIMEDOUT, errno.ESTALE, errno.EUCLEAN, errno.EBADMSG}
    | {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
)
"""The errors of a disk (`blk_errors` in Linux, block/blk-core.c), of its file system, and of lost files.

Other errors, such as a full disk or too many open files, are faults of the machine or its user.
"""


@contextmanager
def added_to(damages: list[str]) -> Iterator[None]:
    """Catch damage or a disk failure that ends the block, and add its text. Other errors are raised."""
    try:
        yield
    except Damaged as damage:
        damages.append(str(damage))
    except OSError as failure:
        if failure.errno not in OF_DISK:
            raise
        damages.append(str(failure.strerror))


class Store(Protocol):
    """A mail store in its own directory, opened with `StoreSettings` by an entry point of `loadsim.stores`.

    All methods raise `OSError` if the disk fails, and `Damaged` if they find damage. Several threads may use a store,
    but not the same message. A durable change is on the device when the method returns; a power failure may lose a lazy
    one.
    """

    io: IoTimes
    transactional: bool
    """True if messages are replaced by other versions, and deletions can be durable.

    Otherwise, replacing only changes flags, and only insertions wait for the device.
    """

    def insert(self, key: int, message: bytes, *, durable: bool) -> None: ...

    def read(self, key: int) -> bytes | None:
        """Return a message; None if the key is missing."""

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Store another version of a message; None changes its flags."""

    def delete(self, key: int, *, durable: bool) -> None: ...

    @property
    def warm_share(self) -> float:
        """The filled share of the store's cache; 1 for a store without one."""

    def settle(self) -> None:
        """Do background work, such as writing changed pages. Called several times a second."""

    def maintain(self) -> Checked:
        """Read and verify the next 256 KB of the files, in turn."""

    def check(self) -> Iterator[Checked]:
        """Read all files from beginning to end, and verify every checksum."""

    def stored_keys(self) -> Iterator[int]: ...

    def log_sizes(self) -> Mapping[str, int]:
        """Return the sizes, by name, of files whose loss would go unnoticed when messages are read."""

    def recover(self) -> int:
        """Make the store usable after a killed process or a power failure. Return how many bytes of log were read."""

    def close(self) -> None:
        """Make all changes durable, and close the files."""
