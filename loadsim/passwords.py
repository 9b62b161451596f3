"""Passwords from a file or the environment."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.files import read_text

_taken: dict[str, str] = {}
"""Variables that were read and removed from the environment, so that child processes do not inherit them."""


def from_file(path: Path, name: str) -> str:
    """Return the only line of a file. Raises `ConfigError`, which calls the file `name`."""
    return _line(read_text(path, name), name)


def from_environment(variable: str, name: str) -> str:
    """Return an environment variable, and remove it. Raises `ConfigError`, which never shows the value."""
    with suppress(KeyError):
        _taken[variable] = os.environ.pop(variable)
    if variable not in _taken:
        raise ConfigError(
            f"{name}: expected an environment variable, found none called {variable}; {_how_to_set(variable, name)}"
        )
    return _line(_taken[variable], name, f" in the variable {variable}", f"; {_how_to_set(variable, name)}")


def _how_to_set(variable: str, name: str) -> str:
    numbers = "; {index} in it becomes the user's number" if name.endswith("accounts.password_env") else ""
    return f"set it: export {variable}='...'{numbers}"


def _line(text: str, name: str, place: str = "", advice: str = "") -> str:
    line = text.removesuffix("\n").removesuffix("\r")
    if not line.strip() or not line.isprintable():
        found = "nothing" if not line.strip() else "several, or other characters"
        raise ConfigError(f"{name}: expected one line of printable characters{place}, found {found}{advice}")
    return line


def open_to_others(path: Path) -> bool:
    """Return whether users other than its owner may read a file."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))
    return False


# --- the command line -----------------------------------------------------------------------------------------------

SECRET_SETTING = re.compile(
    rb"(?:accounts(?:\.password|\.manifest_key)?|monitors(?:\.[a-z0-9-]+(?:\.command)?)?|run\.outage(?:\.command)?)\s*="
)
"""Settings with a secret value; a whole section may contain one, too."""


def blot_command_line() -> None:
    """Overwrite passwords in this process's own arguments, which all users can read (proc_pid_cmdline(5))."""
    with suppress(OSError, ValueError):
        title = Path("/proc/self/cmdline").read_bytes()
        stat_fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        start, end = int(stat_fields[45]), int(stat_fields[46])  # arg_start and arg_end, see proc_pid_stat(5)
        if end - start != len(title):  # the title has been changed
            return
        at = 0
        for argument in title.split(b"\0"):
            if match := SECRET_SETTING.search(argument):
                import ctypes  # few command lines contain secrets

                ctypes.memset(start + at + match.end(), ord("*"), len(argument) - match.end())
            at += len(argument) + 1
