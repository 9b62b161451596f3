"""Tools that read /proc and /sys, such as `iostat`, run on recorded files in a mount namespace of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from loadsim.errors import ConfigError

PACKAGES = {
    "iostat": "sysstat",
    "mpstat": "sysstat",
    "vmstat": "procps",
    "unshare": "util-linux",
    "stdbuf": "coreutils",
}


def check_proc_tools() -> None:
    """Raise `ConfigError` unless the tools are installed, and the user is root."""
    if missing := [package for tool, package in PACKAGES.items() if shutil.which(tool) is None]:
        raise ConfigError(f"expected {', '.join(missing)} to be installed")
    if os.geteuid() != 0:
        raise ConfigError("expected to be root, for mounts")


def on_recorded(place: Path, *command: str) -> list[str]:
    """The words that run a command with the directories `proc` and `sys` of this place as /proc and /sys."""
    mount = f"mount --bind {place}/sys /sys && mount --bind {place}/proc /proc"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
