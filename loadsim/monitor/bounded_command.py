"""Runs a command of a probe or a monitor with limits, and kills its process group at its end."""

from __future__ import annotations

import atexit
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress

from loadsim.errors import ConfigError

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of servers' commands; not on the PATH of every user."""

EXEC = ("/bin/sh", "-c", 'exec "$@"', "sh")
"""The words before a command: the shell becomes it.

`Popen` returns only after execve(2), which may take for ever for the command's file: on a file system that hangs, or
with a lease on the file. Then the shell waits in it, and can be killed.
"""

CHUNK_BYTES = 1 << 16
KILLED_S = 1.0
"""The time limit for the exit of a killed command, and for a start that is under way at the end of this process."""

_running: set[int] = set()
_lock = threading.Lock()


def found_command(name: str) -> str:
    """Return the path of a command. Raises `ConfigError` if it is not installed."""
    path = shutil.which(name, path=os.environ.get("PATH", os.defpath) + os.pathsep + SBIN)
    if path is None:
        raise ConfigError(f"expected the command {name!r:.100} to be installed, found none")
    return path


def output_of(words: Sequence[str], limit_s: float, most_bytes: int) -> bytes:
    """Return the standard output of a command. Raises `OSError` as `output_chunks` does."""
    return b"".join(output_chunks(words, limit_s, most_bytes))


def output_chunks(words: Sequence[str], limit_s: float, most_bytes: int) -> Generator[bytes, None, None]:
    """Yield the standard output of a command as it comes, until the command itself exits.

    Standard input is empty, and standard error is discarded: it may have anything. Raises `TimeoutError` if the command
    takes longer than `limit_s`, and `OSError` if it prints more than `most_bytes`, or fails.
    """
    until = time.monotonic() + limit_s
    with started(words) as (process, exited):
        assert process.stdout is not None
        output = process.stdout.fileno()
        os.set_blocking(output, False)
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(exited, selectors.EVENT_READ)
            total_bytes, ended = 0, False
            while True:
                ready = selector.select(0 if ended else max(0.0, until - time.monotonic()))
                if time.monotonic() >= until:
                    raise TimeoutError(f"expected the command to end within {limit_s:g} s, found it still at work")
                ended = ended or any(key.fd == exited for key, _ in ready)
                chunk = available(output)
                if chunk:
                    total_bytes += len(chunk)
                    if total_bytes > most_bytes:
                        raise OSError(f"expected at most {most_bytes} bytes of output, found more")
                    yield chunk
                elif ended:
                    break  # a child of the command may keep the pipe open
                elif chunk is not None:
                    selector.unregister(output)  # at its end, it would be ready all the time
    if process.returncode:
        status = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        raise OSError(f"expected the command to succeed, found that it failed ({status})")


def available(output: int) -> bytes | None:
    """Return what is in the pipe, empty at its end; None if nothing is there now."""
    with suppress(BlockingIOError):
        return os.read(output, CHUNK_BYTES)
    return None


def exit_words(pid: int) -> str | None:
    """Wait until a command exits, and return how, without reaping it; None if it succeeded."""
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if state is None or state.si_status == 0:
        return None
    return f"{'exit status' if state.si_code == os.CLD_EXITED else 'signal'} {state.si_status}"


@contextmanager
def started(
    words: Sequence[str], *, stdin: int = subprocess.DEVNULL, stderr: int | None = subprocess.DEVNULL
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a command in a session of its own. Yield it, and a descriptor that is readable when it has exited.

    `stdin` and `stderr` are those of `Popen`; the standard output is a pipe. At the end, its process group is killed
    while the command has not been waited for: its number is not reused before.
    """
    with _lock:  # a command that starts while this process ends is killed, too
        process = subprocess.Popen(  # noqa: S603 - the command of the user's scenario
            (*EXEC, *words), stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        )
        _running.add(process.pid)
    try:
        exited = os.pidfd_open(process.pid)
        try:
            yield process, exited
        finally:
            os.close(exited)
    finally:
        with _lock:
            _running.discard(process.pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # it runs as another user, and may not be killed
            process.wait(KILLED_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@atexit.register
def _kill_running() -> None:
    """Kill the commands of threads that the end of the process interrupts."""
    locked = _lock.acquire(timeout=KILLED_S)
    try:
        for group in tuple(_running):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
    finally:
        if locked:
            _lock.release()
