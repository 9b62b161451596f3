"""Safe reading of untrusted files (no devices, no blocking pipes, a size limit), appending to files, and locks."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from loadsim.errors import ConfigError

MOST_TEXT_BYTES = 1 << 20
"""The largest text file. PyYAML reads about 0.2 MB a second."""

_KINDS = {
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFDIR: "Is a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class NotAFile(OSError):
    """The path leads to something other than a file."""


def mode_at(path: Path) -> int:
    """Return the mode of a file or directory, following links; 0 if it does not exist. Raises `OSError` if unknown.

    Since Python 3.14, `Path.exists`, `is_dir` and `is_file` are False on any error, such as permission denied.
    """
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: NUL or a lone surrogate
        return 0


def real_path(path: Path) -> Path:
    """Return a path without links. Before Python 3.13, `Path.resolve` raises `RuntimeError` for circular links."""
    return Path(os.path.realpath(path))


def open_file(path: Path, *, or_pipe: bool = False) -> BinaryIO:
    """Open a regular file, or a pipe (a shell's `<(...)`), for reading. Raises `OSError`, such as `NotAFile`."""
    try:
        # Without O_NONBLOCK, opening a pipe blocks until a process opens it for writing.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:  # NUL or a lone surrogate in the path
        raise NotAFile(0, "a path that no file can have") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG and not (or_pipe and kind == stat.S_IFIFO):
        os.close(descriptor)
        raise NotAFile(0, _KINDS.get(kind, "something else"))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, name: str, encoding: str = "utf-8", most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Read a text file of at most `most_bytes`. Raises `ConfigError`, which calls the file `name`."""
    try:
        with open_file(path, or_pipe=True) as file:
            content = file.read(most_bytes + 1)
    except OSError as failure:
        raise ConfigError(f"{name}: expected a file that can be read, found: {failure.strerror}") from None
    if len(content) > most_bytes:
        raise ConfigError(f"{name}: expected a file of at most {most_bytes >> 20} MiB, found a larger one")
    try:
        # Unlike `bytes.decode`, this reads "\r\n" as "\n".
        return io.TextIOWrapper(io.BytesIO(content), encoding).read()
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: expected UTF-8 text, found other bytes") from None


def append_text(path: Path, option: str, added_to: Callable[[str], str]) -> None:
    """Append to a file, perhaps a new one, what `added_to` returns for its text, in one write and synced to the disk.

    The file is locked meanwhile. A write that fails leaves the file as it was. Raises `ConfigError`.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
        with os.fdopen(descriptor, "rb+", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NotAFile(0, _KINDS.get(stat.S_IFMT(status.st_mode), "something else"))
            with suppress(OSError):  # not every file system supports locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            added = added_to(read_text(path, f"{option} {path}")).encode()
            size = os.fstat(descriptor).st_size
            try:
                if file.write(added) != len(added):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
    except OSError as failure:
        raise ConfigError(f"{option} {path}: expected a file to append to, found: {failure.strerror}") from None


@contextmanager
def locked(directory: Path, option: str, noun: str) -> Iterator[None]:
    """Lock a directory during the block, against other processes that lock it too; `noun` names their work.

    Raises `ConfigError` if another process holds the lock, and `OSError`.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "expected a directory of its own"
            raise ConfigError(f"{option} {directory}: {expected}, found another {noun} at work") from None
        except OSError:
            pass  # not every file system supports locks
        yield
    finally:
        os.close(descriptor)


def sources_digest(package: Path) -> str:
    """Return the SHA-256 of the names and contents of a package's sources and data, in hexadecimal."""
    from hashlib import sha256  # loads OpenSSL

    digest = sha256()
    for path in sorted((*package.rglob("*.py"), *package.rglob("data/*"))):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
