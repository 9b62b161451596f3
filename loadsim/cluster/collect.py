"""Collect the files of a worker, piece by piece.

A client keeps its files until the controller has confirmed that all have arrived. Only complete files have their final
names here.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from loadsim.cluster.agent import DISCARD_RUN, LIST_FILES, READ_FILE
from loadsim.cluster.controller import Cluster, retried
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.cluster.worker_directory import LOGS_NAME
from loadsim.errors import ConfigError, LogError, RunInvalid
from loadsim.timinglog.container import read_head

PIECE_BYTES = 4 * 1024 * 1024

ATTEMPTS = 5
"""Attempts per request, since a client may be unreachable for a moment."""

CLIENTS_NAME = "clients"
"""The directory in a run directory for files other than timing logs; each client has a directory in it."""

PARTIAL = ".coming"
"""The suffix of incomplete files."""


async def collect(
    cluster: Cluster, name: str, run: str, out: Path, end_limit_s: float = 0.0, retry_s: float = BEAT_S
) -> None:
    """Move the files of a client's run into the run directory `out`.

    Raises `ConfigError` if

    - the client does not have the run, or still works on it (an engine may outlive a killed worker);
    - it lists files that are not a worker's;
    - `out` has no room, or has another run's logs (`check_run`), or another process is collecting into it.

    Raises `RunInvalid` if the client is unreachable, or nothing can be written here. A later call copies the rest.

    Waits up to `end_limit_s` for the processes of the run to exit: a worker exits a moment after its last message is
    acknowledged, or a few seconds on a busy machine. A request without an answer is repeated after `retry_s`.
    """
    await asyncio.to_thread(check_run, out, run)

    async def ask(request: str, **about: Any) -> Any:
        try:
            return await retried(lambda: cluster.ask(name, request, run=run, **about), ATTEMPTS, retry_s)
        except (OSError, TimeoutError) as failure:
            raise RunInvalid(_kept(name, failure)) from None

    # Wait for the run's processes to exit.
    listed = await ask(LIST_FILES)
    wait_until = time.monotonic() + end_limit_s
    while listed is not None and listed["in_use"] and time.monotonic() < wait_until:
        await asyncio.sleep(retry_s)
        listed = await ask(LIST_FILES)

    # Copy the files that are not here yet, and flush their names to the disk.
    paths = _paths(name, run, listed, out)
    try:
        for file, path in paths.items():
            if _length(path) != listed["files"][file]:
                await _copy(partial(ask, READ_FILE, file=file), listed["files"][file], path)
        await asyncio.to_thread(_sync_names, {parent for path in paths.values() for parent in path.parents}, out)
    except OSError as failure:
        raise RunInvalid(_kept(name, failure)) from None

    # Ask the client to remove them.
    await ask(DISCARD_RUN, collected=listed["files"])


async def collect_all(cluster: Cluster, run: str, out: Path, end_limits_s: Mapping[str, float]) -> list[str]:
    """Collect from several clients at once, like `collect`. Return a line for each client whose logs stay there."""

    async def collect_one(name: str) -> str | None:
        try:
            await collect(cluster, name, run, out, end_limits_s[name])
        except (ConfigError, RunInvalid) as failure:
            return str(failure)
        return None

    return [line for line in await asyncio.gather(*map(collect_one, end_limits_s)) if line is not None]


OF_NO_RUN = ""
"""The run named in a monitor's file, which may lie among the logs of any run."""


def check_run(out: Path, run: str) -> None:
    """Check that all logs in a run directory belong to this run. Raises `ConfigError` for a log of another run.

    The logs of two runs in one directory would be analysed as one run with the users of both.
    """
    for path in sorted((out / LOGS_NAME).glob("*.tlog")):
        if (found := _run_of(path)) not in (None, OF_NO_RUN, run):
            raise ConfigError(f"{path}: expected a log of run {run}, found one of run {found}")


def _kept(name: str, failure: BaseException) -> str:
    return f"client {name}: its logs were not collected, and are kept there: {str(failure) or 'no answer'}"


def _sync_names(directories: set[Path], out: Path) -> None:
    """Flush the names of new files in `out`, and of `out` itself, to the disk, so that they survive a power cut."""
    for directory in directories:
        if directory == out.parent or directory.is_relative_to(out):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _paths(name: str, run: str, listed: Mapping[str, Any] | None, out: Path) -> dict[str, Path]:
    """Return the local path of each file that a client has listed. Raises `ConfigError`."""
    if listed is None:
        raise ConfigError(f"client {name}: expected run {run}, found none")
    if listed["in_use"]:
        raise ConfigError(f"client {name}: expected that run {run} has ended, found processes of it at work there")
    paths = {}
    for file in listed["files"]:
        if re.fullmatch(rf"{LOGS_NAME}/{re.escape(name)}\.[\w-]+\.tlog", file):
            paths[file] = out / file
        elif re.fullmatch(r"\w[\w.-]*", file):
            paths[file] = out / CLIENTS_NAME / name / file
        else:
            raise ConfigError(f"client {name}: expected files of a worker, found {file!r}")
    missing = sum(size for file, size in listed["files"].items() if _length(paths[file]) != size)
    free = shutil.disk_usage(out).free
    if missing > free:
        raise ConfigError(f"{out}: expected room for {missing} bytes of client {name}, found {free}")
    return paths


def _length(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def _run_of(path: Path) -> str | None:
    """Return the run of a log here; None if the file is not a log, or cannot be read."""
    with suppress(OSError, LogError), path.open("rb") as file:
        return str(read_head(str(path), file)[0].get("run"))
    return None


async def _copy(read: Callable[..., Awaitable[bytes]], size: int, path: Path) -> None:
    """Copy one file, of which `read` returns a piece. A file that has grown since an earlier copy is copied again.

    Raises `ConfigError` if another process is copying it, and `OSError` if it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    incomplete = path.with_name(path.name + PARTIAL)
    with incomplete.open("ab") as written:
        try:
            fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{incomplete}: expected to be its only writer, found another process") from None
        written.truncate(0)
        here = 0
        while here < size:
            piece = bytes(await read(offset=here, length=min(PIECE_BYTES, size - here)))
            if not piece:
                raise OSError(f"{path.name}: expected {size} bytes, found {here}")
            await asyncio.to_thread(written.write, piece)
            here += len(piece)
        written.flush()
        await asyncio.to_thread(os.fsync, written.fileno())
    incomplete.rename(path)
