"""Control groups of version 1 that limit a server's processor and disk, with root's permission.

Version 1 has a directory for each kind of limit. A group limits the processes that are started in it, and their
children. `blkio` limits the requests that a process waits for, such as those of fsync, and not the kernel's delayed
writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadsim.errors import ConfigError

ROOT = Path("/sys/fs/cgroup")
SYS = Path("/sys/dev/block")
FIRST_SERVED = "262144"
"""The largest weight: the server gets its quota before other programs of the machine."""

PERIOD_US = 20_000
"""The period of a processor quota. A fifth of the kernel's default: servers stand still for shorter times."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a group: cores, and requests per second to the disk of a directory. None means no limit."""

    cores: float | None = None
    writes_per_s: int | None = None
    reads_per_s: int | None = None

    def settings(self, directory: Path) -> Mapping[str, Mapping[str, str]]:
        """Return the content of the group's files by controller and file."""
        found: dict[str, dict[str, str]] = {"cpu": {"cpu.shares": FIRST_SERVED}, "cpuacct": {}, "blkio": {}}
        if self.cores is not None:
            found["cpu"]["cpu.cfs_period_us"] = str(PERIOD_US)
            found["cpu"]["cpu.cfs_quota_us"] = str(round(self.cores * PERIOD_US))
        if self.writes_per_s is not None:
            found["blkio"]["blkio.throttle.write_iops_device"] = f"{disk_of(directory)} {self.writes_per_s}"
        if self.reads_per_s is not None:
            found["blkio"]["blkio.throttle.read_iops_device"] = f"{disk_of(directory)} {self.reads_per_s}"
        return found


@dataclass(frozen=True, slots=True)
class Group:
    """A control group in all hierarchies that it limits."""

    name: str
    places: Mapping[str, Path] = field(default_factory=dict)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Put this process into the group meanwhile: processes that it starts stay there."""
        before = {controller: place.parent / "cgroup.procs" for controller, place in self.places.items()}
        try:
            for place in self.places.values():
                (place / "cgroup.procs").write_text(str(os.getpid()))
            yield
        finally:
            for processes in before.values():
                processes.write_text(str(os.getpid()))


@contextmanager
def limited(name: str, limits: Limits, directory: Path) -> Iterator[Group]:
    """Make a group with these limits, and remove it afterwards, when its processes have ended.

    Raises `ConfigError` if the machine has no control groups of version 1, or this process may not make one.
    """
    places: dict[str, Path] = {}
    try:
        for controller, files in limits.settings(directory).items():
            place = ROOT / controller / name
            try:
                place.mkdir()
                places[controller] = place
                for file, content in files.items():
                    (place / file).write_text(content)
            except OSError as error:
                raise ConfigError(
                    f"{place}: expected control groups of version 1 that root may make, found: {error.strerror}"
                ) from error
        yield Group(name, places)
    finally:
        for place in places.values():
            place.rmdir()


def disk_of(path: Path) -> str:
    """Return the numbers `MAJOR:MINOR` of the disk that has the file system of a path; of a partition, its disk's."""
    device = path.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    block = (SYS / numbers).resolve()
    if (block / "partition").exists():
        numbers = (block.parent / "dev").read_text(encoding="ascii").strip()
    elif not block.exists():
        raise ConfigError(f"{path}: expected a file system on one disk, found device {numbers}")
    return numbers
