"""The file systems of a run's directory, and of the files that a mail server on this machine has open.

The kernel states the mount of each open file (proc_pid_fdinfo(5)), and the file system of the mount
(proc_pid_mountinfo(5)). Without permission to inspect the server's processes, their file systems are unknown.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.model.ports import Services
from loadsim.monitor.server_discovery import find_server
from loadsim.timinglog.facts import FileSystem

MOST_ALIKE = 8
"""The most processes of one name whose files are inspected: a server may have a process per session."""

DEVICE = "/sys/dev/block/{number}"
"""The place of a block device (`major:minor`)."""

NO_STORAGE = ("proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "mqueue", "nsfs")
"""Types of file systems without storage."""


def mounts(mountinfo: str) -> dict[int, FileSystem]:
    """Return the mounts in a /proc/PID/mountinfo by their numbers."""
    found = {}
    for line in mountinfo.splitlines():
        about, _, of_system = line.partition(" - ")
        number, _, device, _, mounted_at, options, *_ = about.split(" ")
        kind, source, *_ = of_system.split(" ")
        found[int(number)] = FileSystem(kind, _plain(source), _plain(mounted_at), options, _model(device))
    return found


def _plain(escaped: str) -> str:
    """Return a path without the kernel's octal escapes of blanks."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped)


def _model(device: str) -> str | None:
    """Return the model of the disk that a device (`major:minor`) is, or is a partition of; None if unknown."""
    place = Path(DEVICE.format(number=device))
    for disk in (place, place / ".."):
        with suppress(OSError):
            return (disk / "device" / "model").read_text(encoding="utf-8", errors="replace").strip() or None
    return None


def run_storage(directory: Path) -> dict[str, Any] | None:
    """Return a directory's file system for the machine's log; None if this system does not state it."""
    with suppress(OSError):
        opened = os.open(directory, os.O_PATH)
        try:
            found = mounts(_text("/proc/self/mountinfo")).get(_mount(f"/proc/self/fdinfo/{opened}"))
            return found._asdict() if found else None
        finally:
            os.close(opened)
    return None


def server_storage(services: Services) -> dict[str, Any]:
    """Return the fact `server_file_systems`: where a server on this machine has files open, and its processes' names.

    Call it while users are logged on: only then do the processes exist that serve mailboxes.
    """
    by_system = open_file_systems(find_server(*services.endpoints.values()).processes)
    return {
        "server_file_systems": [
            system._replace(open_by=tuple(sorted(names)))._asdict()
            for system, names in sorted(by_system.items(), key=lambda one: one[0].mounted_at)
        ]
    }


def open_file_systems(processes: Mapping[int, str]) -> dict[FileSystem, set[str]]:
    """Return the file systems on which these processes have files or directories open, with the processes' names."""
    found: defaultdict[FileSystem, set[str]] = defaultdict(set)
    alike = Counter[str]()
    seen: dict[str, dict[int, FileSystem]] = {}  # most processes see the same mounts
    for process, name in processes.items():
        if alike[name] == MOST_ALIKE:
            continue
        with suppress(OSError):  # it has exited, or permission is missing
            mountinfo = _text(f"/proc/{process}/mountinfo")
            known = seen.get(mountinfo) or seen.setdefault(mountinfo, mounts(mountinfo))
            used = set(_mounts_used(process))
            alike[name] += 1
            for number in used & known.keys():  # memory files are on no listed mount
                if known[number].type not in NO_STORAGE:
                    found[known[number]].add(name)
    return found


def _mounts_used(process: int) -> Iterator[int]:
    """Yield the mounts of a process's open files and directories."""
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            mode = file.stat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                yield _mount(f"/proc/{process}/fdinfo/{file.name}")


def _mount(fdinfo: str) -> int:
    found = re.search(r"^mnt_id:\s*(\d+)", _text(fdinfo), re.MULTILINE)
    assert found is not None, fdinfo
    return int(found[1])


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
