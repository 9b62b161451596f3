"""The files of a machine process brought to the station: piece by piece, each checked, and from where it was left off.

A client keeps what it has measured until the station has all of it, and says so. What has come so far lies beside its
place under another name, so that no file is there that is not whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from loadsim.cluster.agent import DIGEST_FILE, DISCARD_RUN, LIST_FILES, READ_FILE
from loadsim.cluster.link import BEAT_S
from loadsim.cluster.place import LOGS_NAME, digest_of
from loadsim.cluster.station import Cluster
from loadsim.errors import ConfigError, RunInvalid

T = TypeVar("T")

PIECE_BYTES = 4 * 1024 * 1024

ATTEMPTS = 5
"""So often a client may be out of reach, or send what is damaged, each time that it is asked for something."""

CLIENTS_NAME = "clients"
"""Where, in a run directory, what is not a timing log lies: in a directory of the client's name."""

COMING = ".coming"
"""What the name of a file ends with that is not whole yet."""


class Damaged(OSError):
    """A piece did not arrive as it was sent."""


async def collect(cluster: Cluster, name: str, run: str, out: Path) -> list[Path]:
    """Bring what a client's machine process has left of a run into the run directory `out`; which files that is.

    Then the client has nothing of it any more. Raises `ConfigError` when the client has no such run or still works on
    it (an engine may, whose machine process was killed), when it offers what is none of its business, or when there is
    no room here; `RunInvalid` when it is out of reach. What has come until then need not come again.
    """
    listed = await _patiently(name, partial(cluster.ask, name, LIST_FILES, run=run))
    places = _places(name, run, listed, out)
    for file, place in places.items():
        if _length(place) != listed["files"][file]:
            await _bring(cluster, name, run, file, listed["files"][file], place)
    await _patiently(name, partial(cluster.ask, name, DISCARD_RUN, run=run, collected=listed["files"]))
    return list(places.values())


def _places(name: str, run: str, listed: Mapping[str, Any] | None, out: Path) -> dict[str, Path]:
    """Where each of the files that a client has listed goes. Raises `ConfigError`."""
    if listed is None:
        raise ConfigError(f"client {name}: expected run {run}, found none")
    if listed["lives"]:
        raise ConfigError(f"client {name}: expected that run {run} has ended, found its machine process at work")
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


def _not_whole(place: Path) -> Path:
    """Where a file lies until it is whole; one that was, and has grown at the client since, is not."""
    coming = place.with_name(place.name + COMING)
    if place.exists():
        place.rename(coming)
    return coming


async def _bring(cluster: Cluster, name: str, run: str, file: str, size: int, place: Path) -> None:
    """One file, from where it was left off; if that is not what the client has, from its beginning."""
    place.parent.mkdir(parents=True, exist_ok=True)
    coming = _not_whole(place)
    with coming.open("a+b") as written:
        there = min(written.tell(), size)
        if there:
            digest = await _patiently(name, partial(cluster.ask, name, DIGEST_FILE, run=run, file=file, length=there))
            if await asyncio.to_thread(digest_of, coming, there) != digest:
                there = 0
        written.truncate(there)
        while there < size:
            piece = await _patiently(name, partial(_piece, cluster, name, run, file, there, size))
            written.write(piece)
            there += len(piece)
        written.flush()
        os.fsync(written.fileno())
    coming.rename(place)


async def _piece(cluster: Cluster, name: str, run: str, file: str, offset: int, size: int) -> bytes:
    """Some bytes of a file from `offset` on. Raises `Damaged`, and what `Cluster.ask` does."""
    length = min(PIECE_BYTES, size - offset)
    said = await cluster.ask(name, READ_FILE, run=run, file=file, offset=offset, length=length)
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
        why = str(failure) or "no answer"
        raise RunInvalid(f"client {name}: its logs were not collected, and are kept there: {why}") from None
