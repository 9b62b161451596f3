"""The directory of a machine process: what lies in it, who may look into it, and how one gets to whoever lives there.

    control         the socket by which an agent speaks with it, while it lives
    complaints      what it and its engines say on standard error
    events.jsonl    what has happened, as in a run directory
    logs            the timing logs of its engines and of the machine

Nobody but its owner gets in. What the station tells by the socket holds passwords; no file does. The machine process
and its engines hold the directory locked (flock(2)) as long as one of them lives: the machine may be killed, and its
engines still write.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from loadsim.engine.control import LONGEST_LINE_BYTES
from loadsim.errors import ConfigError

SOCKET_NAME = "control"
COMPLAINTS_NAME = "complaints"
EVENTS_NAME = "events.jsonl"
LOGS_NAME = "logs"

MACHINE = (sys.executable, "-P", "-m", "loadsim.cluster.worker")

DIGEST_BYTES = 1 << 20
"""Read at once for a digest."""

Attend = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
"""Told of a new connection."""


def start_worker(directory: Path) -> subprocess.Popen[bytes]:
    """Start a machine process in a new directory; it listens when this returns, and outlives us.

    Raises `ConfigError` when it does not come to that.
    """
    try:
        directory.mkdir(mode=0o700)
        with (directory / COMPLAINTS_NAME).open("xb") as complaints:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [*MACHINE, str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
    except OSError as failure:
        raise ConfigError(f"{directory}: expected a place for a machine process, found: {failure}") from None
    assert process.stdout is not None
    with process.stdout as said:
        if said.readline():
            return process
    process.wait()
    complaint = (directory / COMPLAINTS_NAME).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise ConfigError(f"{directory}: expected a machine process, found: {complaint[-1] if complaint else 'no word'}")


def check_private(directory: Path) -> None:
    """Whether a directory is ours, and nobody else gets in. Raises `ConfigError`."""
    about = directory.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        mode = stat.filemode(about.st_mode)
        raise ConfigError(f"{directory}: expected a directory that nobody else gets into, found {mode}")


@contextmanager
def _socket_path(directory: Path) -> Iterator[Path]:
    """Of the socket, short enough wherever the directory is: a socket's path has 107 bytes at most (unix(7))."""
    descriptor = _opened(directory)
    try:
        yield Path(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
    finally:
        os.close(descriptor)


@contextmanager
def _bound(directory: Path) -> Iterator[socket.socket]:
    """The socket, which is there as long as the block lasts."""
    with _socket_path(directory) as path, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        path.chmod(0o600)
        try:
            yield bound
        finally:
            path.unlink(missing_ok=True)


@asynccontextmanager
async def listening_at(directory: Path, attend: Attend) -> AsyncIterator[None]:
    """Listen in a directory, while the block lasts."""
    with _bound(directory) as bound:
        server = await asyncio.start_unix_server(attend, sock=bound, limit=LONGEST_LINE_BYTES)
        try:
            yield
        finally:
            server.close()


async def connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the machine process that lives in a directory. Raises `OSError` when none does."""
    with _socket_path(directory) as path:
        return await asyncio.open_unix_connection(path, limit=LONGEST_LINE_BYTES)


@contextmanager
def held(directory: Path) -> Iterator[int]:
    """Hold the directory while the block lasts, and as long as a process lives to which the descriptor was passed on.

    Raises `ConfigError` where that is not possible.
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


def lives(directory: Path) -> bool:
    """Whether a process is at work there: a machine's, or an engine of one that was killed."""
    descriptor = _opened(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: whoever asks holds up nobody else who asks
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _opened(directory: Path) -> int:
    """A descriptor that processes we start do not have, unless it is passed on to them."""
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def left_files(directory: Path) -> dict[str, int]:
    """What a machine process has left: its files, by their path from the directory, and their lengths."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(directory)): path.stat().st_size for path in files}


def digest_of(path: Path, length: int) -> str:
    """SHA-256 of the beginning of a file, so many bytes long, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while length > 0 and (piece := file.read(min(DIGEST_BYTES, length))):
            digest.update(piece)
            length -= len(piece)
    return digest.hexdigest()
