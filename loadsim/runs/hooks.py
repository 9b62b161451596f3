"""Commands before and after each run of a suite, with limits of time and output."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from loadsim.analysis.campaign import HookResult
from loadsim.engine.signals import delayed_signals
from loadsim.errors import ConfigError, printable
from loadsim.model.suite import Hook
from loadsim.monitor.bounded_command import SBIN, exit_words

MOST_OUTPUT_BYTES = 16 << 20
"""A command that prints more is killed."""

LOOK_S = 0.1
"""The interval at which a running command's output is measured."""

KILLED_S = 5.0
"""The time limit for the exit of a killed command."""

LAST_LINE_BYTES = 400
"""At most this much of the end of a failed command's output is shown."""


def run_hook(hook: Hook, directory: Path, variables: Mapping[str, str], output: Path) -> HookResult:
    """Run a command in a directory, and keep what it prints in a new file `output`.

    Its standard input is empty. A process that it leaves behind goes on: servers are restarted so. If it fails or is
    interrupted, its process group is killed. Raises `ConfigError` if the output cannot be kept.
    """
    began_s = time.monotonic()
    try:
        with output.open("wb") as file:
            failure = _failure(hook, directory, variables, file.fileno())
    except OSError as error:
        raise ConfigError(f"{output}: expected to write it, found: {error.strerror}") from None
    if failure is not None:
        last = _last_line(output)
        failure = f"{hook.program}: {failure}{f': {last}' if last else ''}"
    return HookResult(output.name, round(time.monotonic() - began_s, 3), failure)


def _failure(hook: Hook, directory: Path, variables: Mapping[str, str], output: int) -> str | None:
    """Return why a command failed, or None."""
    process, failed = None, True
    try:
        with delayed_signals():  # an exception within Popen would leave a process behind
            try:
                process = subprocess.Popen(  # noqa: S603 - the command of the user's suite
                    hook.words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env={**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}", **variables},
                    start_new_session=True,  # away from Ctrl-C, which ends the suite, and that the command
                )
            except OSError as error:
                return f"expected a program that can be run, found: {error.strerror}"
        failure = _failure_at_exit(process, output, hook.limit_s)
        failed = failure is not None
    finally:
        if process is not None and failed:
            _kill(process)
    if not failed:
        process.wait()
    return failure


def _failure_at_exit(process: subprocess.Popen[bytes], output: int, limit_s: float) -> str | None:
    """Wait until a command exits, takes too long or prints too much. Return why it failed, or None.

    It is not waited for in the sense of wait(2): until then, the number of its process group is not reused.
    """
    until_s = time.monotonic() + limit_s
    exited = os.pidfd_open(process.pid)
    try:
        exiting = select.poll()
        exiting.register(exited, select.POLLIN)
        ended = False
        while not ended:
            left_s = until_s - time.monotonic()
            ended = bool(exiting.poll(1000 * min(LOOK_S, max(0.0, left_s))))
            if os.fstat(output).st_size > MOST_OUTPUT_BYTES:
                return f"expected at most {MOST_OUTPUT_BYTES >> 20} MiB of output, found more"
            if not ended and left_s <= 0:
                return f"expected it to end within {limit_s:g} s, found it still at work"
    finally:
        os.close(exited)
    return exit_words(process.pid)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a command that has not been waited for: its number is not reused before."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # it runs as another user, and may not be killed
        process.wait(KILLED_S)


def _last_line(output: Path) -> str:
    """Return the last line of a command's output, printable and bounded."""
    with suppress(OSError), output.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_LINE_BYTES))
        lines = file.read(LAST_LINE_BYTES).decode("utf-8", "replace").strip().splitlines()
        if lines:
            return printable(lines[-1].strip())[:LAST_LINE_BYTES]
    return ""
