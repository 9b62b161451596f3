"""A directory's file system.

The kernel reports each open file's mount (proc_pid_fdinfo(5)), and each mount's file system (proc_pid_mountinfo(5)).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.timinglog.facts import FileSystem

DEVICE = "/sys/dev/block/{number}"
"""The path of a block device (`major:minor`)."""


def mounts(mountinfo: str) -> dict[int, FileSystem]:
    """Return the mounts in a /proc/PID/mountinfo by number."""
    mounted = {}
    for line in mountinfo.splitlines():
        about, _, of_system = line.partition(" - ")
        number, _, device, _, mounted_at, options, *_ = about.split(" ")
        kind, source, *_ = of_system.split(" ")
        mounted[int(number)] = FileSystem(kind, _plain(source), _plain(mounted_at), options, _model(device))
    return mounted


def _plain(escaped: str) -> str:
    """Return a path without the kernel's octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped)


def _model(device: str) -> str | None:
    """Return the model of the disk behind a device (`major:minor`) or a partition; None if unknown."""
    place = Path(DEVICE.format(number=device))
    for disk in (place, place / ".."):
        with suppress(OSError):
            return (disk / "device" / "model").read_text(encoding="utf-8", errors="replace").strip() or None
    return None


def run_storage(directory: Path) -> dict[str, Any] | None:
    """Return a directory's file system for the machine's log; None if this system does not report it."""
    with suppress(OSError):
        opened = os.open(directory, os.O_PATH)
        try:
            system = mounts(_text("/proc/self/mountinfo")).get(_mount(f"/proc/self/fdinfo/{opened}"))
            return system._asdict() if system else None
        finally:
            os.close(opened)
    return None


def _mount(fdinfo: str) -> int:
    mount = re.search(r"^mnt_id:\s*(\d+)", _text(fdinfo), re.MULTILINE)
    assert mount is not None, fdinfo
    return int(mount[1])


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
