"""The files of a machine process brought to the station: piece by piece, each checked, and from where it was left off.

A client keeps what it has measured until the station has all of it, and says so. What has come so far lies beside its
place under another name, so that no file is there that is not whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from loadsim.cluster.agent import DIGEST_FILE, DISCARD_RUN, LIST_FILES, READ_FILE
from loadsim.cluster.controller import ANSWER_LIMIT_S, Cluster, Conversation
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.cluster.worker_directory import LOGS_NAME, digest_of
from loadsim.errors import ConfigError, LogError, RunInvalid
from loadsim.timinglog.container import read_head

T = TypeVar("T")

PIECE_BYTES = 4 * 1024 * 1024

READ_BYTES_A_SECOND = 20_000_000
"""So fast a client reads its own files, at least, when it is asked for the digest of one."""

ATTEMPTS = 5
"""So often a client may be out of reach, or send what is damaged, each time that it is asked for something."""

CLIENTS_NAME = "clients"
"""Where, in a run directory, what is not a timing log lies: in a directory of the client's name."""

COMING = ".coming"
"""What the name of a file ends with that is not whole yet."""


class Damaged(OSError):
    """A piece did not arrive as it was sent."""


async def collect(cluster: Cluster, name: str, run: str, out: Path, end_limit_s: float = 0.0) -> list[Path]:
    """Bring what a client's machine process has left of a run into the run directory `out`; which files that is.

    Then the client has nothing of it any more. Raises `ConfigError` when the client has no such run or still works on
    it (an engine may, whose machine process was killed), when it offers what is none of its business, or when there is
    no room here, or another run (`check_run`), or somebody else who collects; `RunInvalid` when it is out of reach, or
    nothing can be written here. What has come until then need not come again.

    For up to `end_limit_s` it is waited until nothing works on the run there any more: a machine process that has said
    its last word, and heard that we know, is gone a moment later, on a busy machine some seconds.
    """
    await asyncio.to_thread(check_run, out, run)
    with Conversation(cluster, name) as agent:
        listed = await _patiently(name, partial(agent.ask, LIST_FILES, run=run))
        patient_until = time.monotonic() + end_limit_s
        while listed is not None and listed["lives"] and time.monotonic() < patient_until:
            await asyncio.sleep(BEAT_S)
            listed = await _patiently(name, partial(agent.ask, LIST_FILES, run=run))
        places = _places(name, run, listed, out)
        try:
            for file, place in places.items():
                size = listed["files"][file]
                if _length(place) != size or not await _same(agent, name, run, file, place, size):
                    await _bring(agent, name, run, file, size, place)
            await asyncio.to_thread(_secure, {parent for place in places.values() for parent in place.parents}, out)
        except OSError as failure:
            raise RunInvalid(_kept(name, failure)) from None
        await _patiently(name, partial(agent.ask, DISCARD_RUN, run=run, collected=listed["files"]))
        return list(places.values())


def check_run(out: Path, run: str) -> None:
    """Whether the logs in a run directory are of this run: those of two would be answered as one, of all their users.

    Raises `ConfigError` for any that is of another.
    """
    for place in sorted((out / LOGS_NAME).glob("*.tlog")):
        if (found := _run_of(place)) not in (None, run):
            raise ConfigError(f"{place}: expected a log of run {run}, found one of run {found}")


def _kept(name: str, failure: BaseException) -> str:
    return f"client {name}: its logs were not collected, and are kept there: {str(failure) or 'no answer'}"


def _secure(directories: set[Path], out: Path) -> None:
    """See to it that the names of files outlive a power cut: those in `out`, and `out` itself."""
    for directory in directories:
        if directory == out.parent or directory.is_relative_to(out):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _places(name: str, run: str, listed: Mapping[str, Any] | None, out: Path) -> dict[str, Path]:
    """Where each of the files that a client has listed goes. Raises `ConfigError`."""
    if listed is None:
        raise ConfigError(f"client {name}: expected run {run}, found none")
    if listed["lives"]:
        raise ConfigError(f"client {name}: expected that run {run} has ended, found processes of it at work there")
    places = {}
    for file in listed["files"]:
        if re.fullmatch(rf"{LOGS_NAME}/{re.escape(name)}\.[\w-]+\.tlog", file):
            places[file] = out / file
        elif re.fullmatch(r"\w[\w.-]*", file):
            places[file] = out / CLIENTS_NAME / name / file
        else:
            raise ConfigError(f"client {name}: expected files of a machine process, found {file!r}")
    missing = sum(size for file, size in listed["files"].items() if _length(places[file]) != size)
    free = shutil.disk_usage(out).free
    if missing > free:
        raise ConfigError(f"{out}: expected room for {missing} bytes of client {name}, found {free}")
    return places


def _length(place: Path) -> int | None:
    return place.stat().st_size if place.exists() else None


def _run_of(place: Path) -> str | None:
    """The run that a file here is a log of; None when it is none, or none that can be read."""
    with suppress(OSError, LogError), place.open("rb") as file:
        return str(read_head(str(place), file)[0].get("run"))
    return None


async def _same(agent: Conversation, name: str, run: str, file: str, place: Path, length: int) -> bool:
    """Whether the beginning of a file here is that of the client's."""
    limit_s = ANSWER_LIMIT_S + length / READ_BYTES_A_SECOND
    ask = partial(agent.ask, DIGEST_FILE, limit_s=limit_s, run=run, file=file, length=length)
    there = await _patiently(name, ask)
    return bool(await asyncio.to_thread(digest_of, place, length) == there)


def _not_whole(place: Path) -> Path:
    """Where a file lies until it is whole; one that was, and has grown at the client since, is not."""
    coming = place.with_name(place.name + COMING)
    if place.exists():
        place.rename(coming)
    return coming


async def _bring(agent: Conversation, name: str, run: str, file: str, size: int, place: Path) -> None:
    """One file, from where it was left off; if that is not what the client has, from its beginning.

    Raises `ConfigError` when somebody else is about it, and `OSError` when it cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    coming = _not_whole(place)
    with coming.open("a+b") as written:
        try:
            fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{coming}: expected that nobody else brings it, found that somebody does") from None
        there = min(written.tell(), size)
        if there and not await _same(agent, name, run, file, coming, there):
            there = 0
        written.truncate(there)
        while there < size:
            piece = await _patiently(name, partial(_piece, agent, run, file, there, size))
            await asyncio.to_thread(written.write, piece)
            there += len(piece)
        written.flush()
        await asyncio.to_thread(os.fsync, written.fileno())
    coming.rename(place)


async def _piece(agent: Conversation, run: str, file: str, offset: int, size: int) -> bytes:
    """Some bytes of a file from `offset` on. Raises `Damaged`, and what `Conversation.ask` does."""
    length = min(PIECE_BYTES, size - offset)
    said = await agent.ask(READ_FILE, run=run, file=file, offset=offset, length=length)
    piece = bytes(said["piece"])
    if len(piece) != length or hashlib.sha256(piece).hexdigest() != said["sha256"]:
        raise Damaged(f"{file} is damaged at byte {offset}")
    return piece


async def _patiently(name: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again where there was no answer. Raises `RunInvalid` in the end."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await ask()
        except (OSError, TimeoutError):
            await asyncio.sleep(BEAT_S)
    try:
        return await ask()
    except (OSError, TimeoutError) as failure:
        raise RunInvalid(_kept(name, failure)) from None
