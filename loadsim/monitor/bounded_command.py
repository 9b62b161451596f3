"""A probe's or a monitor's command, run with limits; at the end, its process group is killed."""

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
"""Directories of server commands, which are not on every user's PATH."""

EXEC = ("/bin/sh", "-c", 'exec "$@"', "sh")
"""Words to put before a command: a shell that turns into it.

`Popen` returns only after execve(2), which may hang on the command's file: if its file system hangs, or if there is a
lease on it. This way, the shell hangs instead, and can be killed.
"""

CHUNK_BYTES = 1 << 16
KILLED_S = 1.0
"""The time limit for a killed command's exit, and for a start that is under way when this process ends."""

_running: set[int] = set()
_lock = threading.Lock()


def found_command(name: str) -> str:
    """Return the path of a command. Raises `ConfigError` if it is not installed."""
    path = shutil.which(name, path=os.environ.get("PATH", os.defpath) + os.pathsep + SBIN)
    if path is None:
        raise ConfigError(f"expected the command {name!r:.100} to be installed, found none")
    return path


def output_of(words: Sequence[str], limit_s: float, most_bytes: int) -> bytes:
    """Return a command's standard output. Raises `OSError` as `output_chunks` does."""
    return b"".join(output_chunks(words, limit_s, most_bytes))


def output_chunks(words: Sequence[str], limit_s: float, most_bytes: int) -> Generator[bytes, None, None]:
    """Yield a command's standard output as it arrives, until the command itself exits.

    Standard input is empty; standard error is discarded, as it may contain anything. Raises `TimeoutError` if the
    command takes longer than `limit_s`, and `OSError` if it fails or prints more than `most_bytes`.
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
                    selector.unregister(output)  # once closed, it would always be ready
    if process.returncode:
        status = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        raise OSError(f"expected the command to succeed, found that it failed ({status})")


def available(output: int) -> bytes | None:
    """Return the bytes in the pipe, empty at its end; None if there are none now."""
    with suppress(BlockingIOError):
        return os.read(output, CHUNK_BYTES)
    return None


def exit_words(pid: int) -> str | None:
    """Wait until a command exits, without reaping it. Return how it failed; None if it succeeded."""
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if state is None or state.si_status == 0:
        return None
    return f"{'exit status' if state.si_code == os.CLD_EXITED else 'signal'} {state.si_status}"


@contextmanager
def started(
    words: Sequence[str], *, stdin: int = subprocess.DEVNULL, stderr: int | None = subprocess.DEVNULL
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a command in its own session. Yield it, and a descriptor that becomes readable when it exits.

    `stdin` and `stderr` are `Popen`'s; standard output is a pipe. At the end, the process group is killed before
    waiting for the command, as its number cannot be reused until then.
    """
    with _lock:  # a command started while this process ends is also killed
        process = subprocess.Popen(  # noqa: S603 - a command from the user's scenario
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
        with suppress(subprocess.TimeoutExpired):  # if it runs as another user, we may not kill it
            process.wait(KILLED_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@atexit.register
def _kill_running() -> None:
    """Kill commands whose threads are cut short by this process's end."""
    locked = _lock.acquire(timeout=KILLED_S)
    try:
        for group in tuple(_running):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
    finally:
        if locked:
            _lock.release()
