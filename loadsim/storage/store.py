"""The port of the stores: messages by key in one directory, written durably or lazily, and every byte verified."""

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

STRIDE_BYTES = 256 * 1024  # the reads of maintenance and backup, as Exchange's


@unique
class Io(StrEnum):
    """A kind of input or output. Only `READ` and `WRITE` count as IOPS, as in Jetstress."""

    READ = "read"  # a read of the database that reached the device
    WRITE = "write"  # a write to the database
    LOG_WRITE = "log_write"  # a write to the log, from the call until the device has it
    SYNC = "sync"  # a wait until the device has the writes to the database, or a log that no change waits for
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

    def take(self) -> dict[str, dict[str, int]]:
        """Return the totals by kind since the last call, as JSON."""
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


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a store. `cache_bytes` is the size of its cache, which stands for the server's."""

    directory: Path
    new: bool  # it has no messages yet, and may be created
    mailboxes: int
    cache_bytes: int
    log_bytes: int  # the log may have this size before changed pages are written, if the store has such a log
    log_copies: int  # the times that each log is read for other copies of the database


@dataclass(frozen=True, slots=True)
class Checked:
    """A part of a store that was read: its bytes, and the place of damage in it, "" if its checksum is right."""

    bytes: int
    damaged: str = ""


class Damaged(Exception):
    """Stored bytes do not have their checksum; the text names the place."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OF_DISK = frozenset(
    {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ENODATA, errno.EILSEQ, errno.EBADE, errno.ENOLINK}
    | {errno.EREMOTEIO, errno.ETIMEDOUT, errno.ESTALE, errno.EUCLEAN, errno.EBADMSG}
    | {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
)
"""The errors of a disk (`blk_errors` in Linux, block/blk-core.c), of its file system, and for files that are lost.

Any other, such as those for a full disk or too few open files, is a fault of the machine or its user.
"""


@contextmanager
def added_to(damages: list[str]) -> Iterator[None]:
    """Add damage that ends the block, or a failure of the disk: what it cannot read is lost. Others are raised."""
    try:
        yield
    except Damaged as damage:
        damages.append(str(damage))
    except OSError as failure:
        if failure.errno not in OF_DISK:
            raise
        damages.append(str(failure.strerror))


class Store(Protocol):
    """A mail store in a directory of its own, opened with `StoreSettings` by an entry point of `loadsim.stores`.

    All methods raise `OSError` if the disk fails, and `Damaged`. Threads may use it at the same time, but never one
    message. A durable change is on the device when the method returns; a lazy one may be lost with the power.
    """

    io: IoTimes
    transactional: bool
    """A message is replaced by another version, and durable deletions last. Else, flags change, and only insertions
    wait for the device."""

    def insert(self, key: int, message: bytes, *, durable: bool) -> None: ...

    def read(self, key: int) -> bytes | None:
        """Return a message; None if the store has none with this key."""

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Store another version of a message, or change its flags if there is None."""

    def delete(self, key: int, *, durable: bool) -> None: ...

    @property
    def warm_share(self) -> float:
        """The filled part of the store's own cache, from 0 to 1; 1 for a store without one."""

    def settle(self) -> None:
        """Do what is due in the background, such as writing changed pages. Called several times a second."""

    def maintain(self) -> Checked:
        """Read and verify the next 256 KB of all files, in turn."""

    def check(self) -> Iterator[Checked]:
        """Read all files from begin to end, and verify every checksum."""

    def stored_keys(self) -> Iterator[int]:
        """Yield the keys of all messages."""

    def log_sizes(self) -> Mapping[str, int]:
        """Return the bytes of those files, by name, whose loss no message would show."""

    def recover(self) -> int:
        """Bring the store to a state that can be used, after a process or the power failed. Return the bytes of log."""

    def close(self) -> None:
        """Make all changes durable, and end."""
