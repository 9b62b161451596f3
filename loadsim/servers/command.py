"""Operating system commands, and their errors as single lines."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from loadsim.errors import ConfigError

PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of server commands, which are not on every user's PATH."""


def find(command: str) -> str | None:
    return shutil.which(command, path=os.environ.get("PATH", os.defpath) + os.pathsep + PLACES)


def run(command: str, arguments: Sequence[str], *, cwd: Path | None = None, stdin: str | None = None) -> str:
    """Run a command and return its standard output. Raises `ConfigError` if it is missing or fails.

    The error omits the arguments, which may include a password.
    """
    path = find(command)
    if path is None:
        raise ConfigError(f"server: expected the command {command} to be installed, found none")
    done = subprocess.run(  # noqa: S603
        [path, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise ConfigError(f"server: {command} failed: {output[-1]}")
    return done.stdout
