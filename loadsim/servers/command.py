"""Running a command of the operating system to its end, with its complaint turned into one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from loadsim.errors import ConfigError

PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where servers live; not on the PATH of every user."""


def find(command: str) -> str | None:
    """The path of a command, or None when it is not installed."""
    return shutil.which(command, path=os.environ.get("PATH", os.defpath) + os.pathsep + PLACES)


def run(command: str, arguments: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run it and return its standard output. Raises `ConfigError` when it is missing or fails.

    Its arguments, which may hold a password, do not appear in the error.
    """
    path = find(command)
    if path is None:
        raise ConfigError(f"server: expected the command {command} to be installed, found none")
    done = subprocess.run([path, *arguments], cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise ConfigError(f"server: {command} failed: {said[-1]}")
    return done.stdout
