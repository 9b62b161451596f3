"""A client's agent, a plugin of a Dask worker: it starts machine processes, and relays what they and the station say.

It has nothing that could be lost with it. A machine process is in a session of its own and needs no agent to go on;
whoever is agent next, on the same machine and with the same place for runs, finds it there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Status
from distributed.security import Security

from loadsim import __version__
from loadsim.cluster.place import connect, digest_of, left_files, lives, start_machine
from loadsim.cluster.security import NO_PAGES, PAGES_ADDRESS
from loadsim.errors import ConfigError

ATTEND = "loadsim_attend"
DESCRIBE = "loadsim_describe"
READ_CLOCK = "loadsim_read_clock"
LIST_FILES = "loadsim_list_files"
READ_FILE = "loadsim_read_file"
DIGEST_FILE = "loadsim_digest_file"
DISCARD_RUN = "loadsim_discard_run"
"""What a station may ask for, beside what Dask's workers can do anyway."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
"""A run's name is that of a directory."""


class Agent(WorkerPlugin):
    """Lets stations have machine processes in directories of `runs`."""

    name = "loadsim"

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._starting = asyncio.Lock()
        self._started: list[subprocess.Popen[bytes]] = []

    def setup(self, worker: Worker) -> None:
        """As Dask calls it: from now on the worker answers to these."""
        worker.handlers.update(
            {
                ATTEND: self.attend,
                DESCRIBE: self.describe,
                READ_CLOCK: self.read_clock,
                LIST_FILES: self.list_files,
                READ_FILE: self.read_file,
                DIGEST_FILE: self.digest_file,
                DISCARD_RUN: self.discard_run,
            }
        )

    def describe(self) -> dict[str, Any]:
        """What the station wants to know before it takes us."""
        return {
            "software": f"loadsim {__version__}",
            "cores": len(os.sched_getaffinity(0)),
            "free_bytes": shutil.disk_usage(self._runs).free,
        }

    def read_clock(self) -> int:
        """The monotonic clock, by which engines start and measure."""
        return time.monotonic_ns()

    async def attend(self, comm: Comm, run: str) -> Status:
        """Relay what is said between the station, by this connection, and the machine process of a run.

        There is one if there was none before. When it is gone, that is said; then, or when either end has closed, this
        ends.
        """
        try:
            async with self._starting:
                await asyncio.to_thread(self._start_once, run)
                reader, writer = await connect(self._runs / run)
        except (ConfigError, OSError) as failure:
            await comm.write({"gone": f"no machine process: {failure}"})
            return Status.dont_reply
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay_up(reader, comm))
            group.create_task(_relay_down(comm, writer))
        return Status.dont_reply

    def _start_once(self, run: str) -> None:
        """Raises `ConfigError` where that is not possible."""
        self._started = [process for process in self._started if process.poll() is None]
        directory = self._directory(run)
        if not directory.exists():
            self._started.append(start_machine(directory))

    def _directory(self, run: str) -> Path:
        """Of a run. Raises `ConfigError` for what cannot be one."""
        if not RUN_NAME.fullmatch(run):
            raise ConfigError(f"run: expected letters, digits and hyphens, found {run!r}")
        return self._runs / run

    def _file(self, run: str, file: str) -> Path:
        """One of those that are listed. Raises `ConfigError` for any other."""
        directory = self._directory(run)
        if file not in left_files(directory):
            raise ConfigError(f"run {run}: expected a file that is listed, found {file!r}")
        return directory / file

    async def list_files(self, run: str) -> dict[str, Any] | None:
        """What is left of a run: its files with their lengths, and whether its machine process lives. None: nothing."""
        return await asyncio.to_thread(self._listed, self._directory(run))

    def _listed(self, directory: Path) -> dict[str, Any] | None:
        if not directory.exists():
            return None
        return {"files": left_files(directory), "lives": lives(directory)}

    async def read_file(self, run: str, file: str, offset: int, length: int) -> dict[str, Any]:
        """A piece of a file, with its digest."""
        return await asyncio.to_thread(self._read, run, file, offset, length)

    def _read(self, run: str, file: str, offset: int, length: int) -> dict[str, Any]:
        with self._file(run, file).open("rb") as opened:
            opened.seek(offset)
            piece = opened.read(length)
        return {"piece": piece, "sha256": hashlib.sha256(piece).hexdigest()}

    async def digest_file(self, run: str, file: str, length: int) -> str:
        """The digest of a file's beginning."""
        return await asyncio.to_thread(lambda: digest_of(self._file(run, file), length))

    async def discard_run(self, run: str, collected: dict[str, int]) -> None:
        """The station has these files, so long. Raises `ConfigError` if that is not all, or more may come.

        More may come from a machine process that lives, and from engines that outlive one that was killed.
        """
        await asyncio.to_thread(self._discard, run, collected)

    def _discard(self, run: str, collected: dict[str, int]) -> None:
        directory = self._directory(run)
        if not directory.exists():
            return
        if lives(directory):
            raise ConfigError(f"run {run}: expected that it has ended, found its machine process at work")
        if left_files(directory) != collected:
            raise ConfigError(
                f"run {run}: expected that its files are complete, found that they have grown: collect again"
            )
        shutil.rmtree(directory)


async def _relay_up(reader: asyncio.StreamReader, comm: Comm) -> None:
    """To the station, until the machine or the connection is gone; then there is no connection."""
    with suppress(OSError):
        while (line := await reader.readline()).endswith(b"\n"):
            await comm.write([line])
        await comm.close()
    comm.abort()


async def _relay_down(comm: Comm, writer: asyncio.StreamWriter) -> None:
    """To the machine, until either is gone; then the machine knows."""
    with suppress(OSError):
        while True:
            writer.writelines(map(bytes, await comm.read()))
            await writer.drain()
    writer.close()


QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    **NO_PAGES,
}
"""Of all that Dask does beside, nothing."""


async def serve(scheduler: str, name: str, runs: Path, security: Security, host: str | None = None) -> None:
    """Be an agent, as a worker of the scheduler at this address, until it ends us or is lost."""
    with dask.config.set(QUIET):
        async with Worker(
            scheduler,
            name=name,
            host=host,
            nthreads=1,
            memory_limit=0,
            dashboard_address=PAGES_ADDRESS,
            security=security,
            plugins=(Agent(runs),),
        ) as worker:
            await worker.finished()
