"""A command of the user's file, run with a time limit: before or after a run of a suite, or during a run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError, printable
from loadsim.monitor.bounded_command import SBIN
from loadsim.processes.signals import delayed_signals

KILLED_S = 5.0
"""The time limit for a killed command to exit."""

LAST_LINE_BYTES = 400
"""The most bytes to show from the end of a failed command's output."""


def run_kept(
    words: Sequence[str], limit_s: float, directory: Path, output: Path, variables: Mapping[str, str] | None = None
) -> str | None:
    """Run a command in a directory, and keep its output in a new file `output`. Return its failure, or None.

    Its standard input is empty. Processes that it leaves behind keep running, such as a restarted server. If it fails
    or is interrupted, its process group is killed. A failure names the program without its arguments, which may contain
    passwords. Raises `ConfigError` if the output cannot be kept.
    """
    try:
        with output.open("wb") as file:
            failure = _failure(words, limit_s, directory, variables or {}, file.fileno())
    except OSError as error:
        raise ConfigError(f"{output}: expected to write it, found: {error.strerror}") from None
    if failure is None:
        return None
    last = _last_line(output)
    return f"{Path(words[0]).name}: {failure}{f': {last}' if last else ''}"


def _failure(
    words: Sequence[str], limit_s: float, directory: Path, variables: Mapping[str, str], output: int
) -> str | None:
    process, failed = None, True
    try:
        with delayed_signals():  # an exception within Popen would leave a process behind
            try:
                process = subprocess.Popen(  # noqa: S603 - the command of the user's file
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env={**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}", **variables},
                    start_new_session=True,  # out of reach of Ctrl-C: loadsim ends the command itself
                )
            except OSError as error:
                return f"expected a program that can be run, found: {error.strerror}"
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"expected it to end within {limit_s:g} s, found it still at work"
        failed = status != 0
        return f"signal {-status}" if status < 0 else f"exit status {status}" if failed else None
    finally:
        if process is not None and failed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # it runs as another user: we may not kill it
                process.wait(KILLED_S)


def _last_line(output: Path) -> str:
    with suppress(OSError), output.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_LINE_BYTES))
        lines = file.read(LAST_LINE_BYTES).decode("utf-8", "replace").strip().splitlines()
        if lines:
            return printable(lines[-1].strip())[:LAST_LINE_BYTES]
    return ""
