"""A worker's directory: its files, its lock, and the socket for connections to the worker.

    control         the socket for agents, while the worker runs
    complaints      standard error of the worker and its engines
    events.jsonl    events, as in a run directory
    logs            the timing logs of its engines and of the machine

Only the owner can access the directory. Lines on the socket contain passwords; no file does. The directory is locked
(flock(2)) while the worker or one of its engines runs: engines may outlive a killed worker, and go on writing.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from loadsim.engine.control import LONGEST_LINE_BYTES
from loadsim.errors import ConfigError

SOCKET_NAME = "control"
COMPLAINTS_NAME = "complaints"
EVENTS_NAME = "events.jsonl"
LOGS_NAME = "logs"

WORKER = (sys.executable, "-P", "-m", "loadsim.cluster.worker")

Attend = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
"""Called with each new connection."""


def start_worker(directory: Path) -> subprocess.Popen[bytes]:
    """Start a worker in a new directory. It outlives the caller, and listens when this returns.

    Raises `ConfigError` if the directory or the worker cannot be made.
    """
    # Make the directory, and start the process.
    try:
        directory.mkdir(mode=0o700)
        with (directory / COMPLAINTS_NAME).open("xb") as complaints:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [*WORKER, str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
    except OSError as failure:
        raise ConfigError(f"{directory}: expected to make a directory for a worker, found: {failure}") from None

    # Wait until it listens, or report its error.
    assert process.stdout is not None
    with process.stdout as output:
        if output.readline():
            return process
    process.wait()
    complaint = (directory / COMPLAINTS_NAME).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise ConfigError(f"{directory}: expected a worker, found: {complaint[-1] if complaint else 'no error message'}")


@contextmanager
def _socket_path(directory: Path) -> Iterator[Path]:
    """Yield a path to the socket of at most 107 bytes (unix(7)), however long the directory's own path is."""
    descriptor = _opened(directory)
    try:
        yield Path(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
    finally:
        os.close(descriptor)


@asynccontextmanager
async def listening_at(directory: Path, attend: Attend) -> AsyncIterator[None]:
    """Listen on the socket in a directory during the block."""
    with _socket_path(directory) as path, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        try:
            path.chmod(0o600)
            with closing(await asyncio.start_unix_server(attend, sock=bound, limit=LONGEST_LINE_BYTES)):
                yield
        finally:
            path.unlink(missing_ok=True)


async def connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the worker in a directory. Raises `OSError` if none runs there."""
    with _socket_path(directory) as path:
        return await asyncio.open_unix_connection(path, limit=LONGEST_LINE_BYTES)


@contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Lock the directory until the block and all processes that inherit the descriptor have ended.

    Raises `ConfigError` if the file system has no locks.
    """
    descriptor = _opened(directory)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as failure:
            raise ConfigError(f"{directory}: expected a file system with locks, found: {failure.strerror}") from None
        yield descriptor
    finally:
        os.close(descriptor)


def in_use(directory: Path) -> bool:
    """Return True if a process works there: a worker, or an engine of a killed worker."""
    descriptor = _opened(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several processes may check at once
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _opened(directory: Path) -> int:
    """Return a descriptor that child processes inherit only if it is passed to them."""
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def left_files(directory: Path) -> dict[str, int]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(directory)): path.stat().st_size for path in files}
