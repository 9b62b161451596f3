"""On which file systems a run is written, and a mail server on this machine keeps files open: seen, never guessed.

The kernel says of every open file through which mount it was opened (proc_pid_fdinfo(5)), and what that mount is
(proc_pid_mountinfo(5)). Without the right to look into the server's processes nothing is known of them.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadsim.model.ports import Services
from loadsim.monitor.server_discovery import find_server

MOST_ALIKE = 8
"""Of so many processes with the same name are the files looked at: sessions have one each."""

NO_STORAGE = ("proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "mqueue", "nsfs")
"""Types of file systems that keep nothing."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A mounted file system. `source` is what the mount names, a device as a rule; `model` the disk's own name of the
    device below, where the kernel knows one."""

    type: str
    source: str
    mounted_at: str
    options: str
    model: str | None


def mounts(mountinfo: str) -> dict[int, FileSystem]:
    """By its number, every mount in a /proc/PID/mountinfo."""
    found = {}
    for line in mountinfo.splitlines():
        about, _, of_system = line.partition(" - ")
        number, _, device, _, mounted_at, options, *_ = about.split(" ")
        kind, source, *_ = of_system.split(" ")
        found[int(number)] = FileSystem(kind, _plain(source), _plain(mounted_at), options, _model(device))
    return found


def _plain(escaped: str) -> str:
    """A path without the kernel's octal escapes of blanks."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped)


def _model(device: str) -> str | None:
    """What the disk calls itself that a device (`major:minor`) is, or is a part of."""
    place = Path(f"/sys/dev/block/{device}")
    for disk in (place, place / ".."):
        with suppress(OSError):
            return (disk / "device" / "model").read_text(encoding="utf-8", errors="replace").strip() or None
    return None


def file_system_of(directory: Path) -> FileSystem | None:
    """What a directory lies on; None where this system does not say it."""
    with suppress(OSError):
        opened = os.open(directory, os.O_PATH)
        try:
            return mounts(_text("/proc/self/mountinfo")).get(_mount(f"/proc/self/fdinfo/{opened}"))
        finally:
            os.close(opened)
    return None


def run_storage(directory: Path) -> dict[str, Any] | None:
    """What a directory lies on, for the machine's log; None where this system does not say it."""
    found = file_system_of(directory)
    return asdict(found) if found else None


def server_storage(services: Services) -> dict[str, Any]:
    """The fact of the machine's log on where a server on this machine has files open now, with the processes that do.

    To be asked while users are logged on: then those processes are there that serve mailboxes.
    """
    by_system = open_file_systems(find_server(services.imap, services.smtp).processes)
    return {
        "server_file_systems": [
            {**asdict(system), "open_by": sorted(names)}
            for system, names in sorted(by_system.items(), key=lambda one: one[0].mounted_at)
        ]
    }


def open_file_systems(processes: Mapping[int, str]) -> dict[FileSystem, set[str]]:
    """The file systems on which these processes have files or directories open, and the names of those that do."""
    found: defaultdict[FileSystem, set[str]] = defaultdict(set)
    alike = Counter[str]()
    seen: dict[str, dict[int, FileSystem]] = {}  # most processes see the same mounts
    for process, name in processes.items():
        if alike[name] == MOST_ALIKE:
            continue
        with suppress(OSError):  # gone, or not ours to look into
            mountinfo = _text(f"/proc/{process}/mountinfo")
            known = seen.get(mountinfo) or seen.setdefault(mountinfo, mounts(mountinfo))
            used = set(_mounts_used(process))
            alike[name] += 1
            for number in used & known.keys():  # what is in no list, such as memory, is mounted nowhere
                if known[number].type not in NO_STORAGE:
                    found[known[number]].add(name)
    return found


def _mounts_used(process: int) -> Iterator[int]:
    """The mounts through which a process has files and directories open."""
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
