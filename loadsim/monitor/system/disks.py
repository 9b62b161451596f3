"""Disk counters in /proc/diskstats, and the figures of `iostat -x`.

Sources: proc_diskstats(5), and the page `admin-guide/iostats` of the kernel's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from loadsim.errors import ConfigError

BY_DEFAULT = 4
"""The most disks sampled unless a scenario names some."""

SECTOR_BYTES = 512
"""The unit of /proc/diskstats, also for devices with larger sectors."""

MS_WRAP = 2**32
"""The kernel prints times in 32 bits: with a queue of ten requests, they wrap after five days."""


class DiskCounters(NamedTuple):
    """A disk's counters since the kernel found it: the first eleven fields after its name.

    `queue_ms` is the sum of all requests' times; those that waited at the same time all count.
    """

    reads: int
    reads_merged: int
    sectors_read: int
    read_ms: int
    writes: int
    writes_merged: int
    sectors_written: int
    write_ms: int
    in_progress: int
    busy_ms: int
    queue_ms: int


def disk_counters(diskstats: str) -> dict[str, DiskCounters]:
    """Return the counters of all block devices, including partitions, by their names in /proc/diskstats."""
    counters = {}
    for line in diskstats.splitlines():
        _, _, name, *fields = line.split()
        counters[name] = DiskCounters(*map(int, fields[:11]))
    return counters


def chosen_disks(
    names: Sequence[str], counters: Mapping[str, DiskCounters], block: Path = Path("/sys/block")
) -> tuple[str, ...]:
    """Return the disks to sample: those named or, by default, the physical disks with the most sectors read and
    written.

    `block` has a directory per whole disk, with a `device` link if it is hardware, not a partition, loop device, RAM
    disk, RAID or volume. Raises `ConfigError` for a name that is not a whole disk.
    """
    # Here, a slash in a device's name is an exclamation mark.
    whole = {path.name.replace("!", "/"): path for path in (block.iterdir() if block.is_dir() else ())}
    for name in names:
        if name not in whole or name not in counters:
            known = ", ".join(sorted(whole.keys() & counters.keys())) or "none"
            raise ConfigError(f"probe host: disks: expected whole disks ({known}), found {name!r:.60}")
    if names:
        return tuple(dict.fromkeys(names))
    used = {
        name: counters[name].sectors_read + counters[name].sectors_written
        for name, path in whole.items()
        if name in counters and (path / "device").exists()
    }
    most = sorted((name for name in used if used[name]), key=lambda name: (-used[name], name))
    return tuple(sorted(most[:BY_DEFAULT]))


def disk_figures(before: DiskCounters, now: DiskCounters, passed_ms: float) -> dict[str, float]:
    """Return a disk's figures over `passed_ms`.

    There are none after its counters were reset, and no mean latency without requests.
    """
    reads, writes = now.reads - before.reads, now.writes - before.writes
    sectors_read = now.sectors_read - before.sectors_read
    sectors_written = now.sectors_written - before.sectors_written
    if min(reads, writes, sectors_read, sectors_written) < 0:
        return {}
    read_ms, write_ms = (now.read_ms - before.read_ms) % MS_WRAP, (now.write_ms - before.write_ms) % MS_WRAP
    passed_s = passed_ms / 1000
    return {
        "reads_per_s": reads / passed_s,
        "writes_per_s": writes / passed_s,
        "read_bytes_per_s": sectors_read * SECTOR_BYTES / passed_s,
        "written_bytes_per_s": sectors_written * SECTOR_BYTES / passed_s,
        **({"read_ms": read_ms / reads} if reads else {}),
        **({"write_ms": write_ms / writes} if writes else {}),
        "queue_requests": (now.queue_ms - before.queue_ms) % MS_WRAP / passed_ms,
        # The kernel may count the last tick of an interval in the next one.
        "busy_share": min(1.0, (now.busy_ms - before.busy_ms) % MS_WRAP / passed_ms),
    }
