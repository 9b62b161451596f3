"""A client's agent, a plugin of a Dask worker: it starts machine processes, and relays what they and the station say.

It has nothing that could be lost with it. A machine process is in a session of its own and needs no agent to go on;
whoever is agent next, on the same machine and with the same place for runs, finds it there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Status
from distributed.security import Security

from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.cluster.identifiers import RUN_NAME
from loadsim.cluster.reliable_channel import lines_in
from loadsim.cluster.security import NO_PAGES, PAGES_ADDRESS
from loadsim.cluster.worker_directory import connect, digest_of, left_files, lives, start_worker
from loadsim.errors import ConfigError

ATTEND = "loadsim_attend"
DESCRIBE = "loadsim_describe"
READ_CLOCK = "loadsim_read_clock"
LIST_FILES = "loadsim_list_files"
READ_FILE = "loadsim_read_file"
DIGEST_FILE = "loadsim_digest_file"
DISCARD_RUN = "loadsim_discard_run"
"""What a station may ask for, beside what Dask's workers can do anyway."""


def run_directories(runs: Path) -> list[Path]:
    """Those of machine processes, which live or have lived there."""
    return [place for place in sorted(runs.iterdir()) if RUN_NAME.fullmatch(place.name) and place.is_dir()]


class Agent(WorkerPlugin):
    """Lets stations have machine processes in directories of `runs`."""

    name = "loadsim"

    def __init__(self, runs: Path, weight: int | None = None) -> None:
        """`weight` is how much of the load the machine is to have beside others; None: as much as it has cores."""
        self._runs = runs
        self._weight = weight
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
        """What the station wants to know before it takes us; by name, the runs that are here, and which still go on."""
        cores = len(os.sched_getaffinity(0))
        return {
            "software": build_fingerprint(),
            "cores": cores,
            "weight": self._weight or cores,
            "free_bytes": shutil.disk_usage(self._runs).free,
            "runs": {directory.name: lives(directory) for directory in run_directories(self._runs)},
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
            with suppress(OSError):
                await comm.write({"gone": f"no machine process: {failure}"})
                while True:  # until the station has heard that, and closes: Dask would take what it says for questions
                    await comm.read()
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
            for other in run_directories(self._runs):
                if lives(other):
                    raise ConfigError(f"run {run}: expected nothing else at work here, found run {other.name}")
            self._started.append(start_worker(directory))

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
            raise ConfigError(f"run {run}: expected that it has ended, found processes of it at work")
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
    with suppress(OSError, ValueError):
        while True:
            writer.writelines(lines_in(await comm.read()))
            await writer.drain()
    writer.close()


QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.tick.interval": "1s",  # by itself 50 times a second, beside engines that measure
    "distributed.admin.system-monitor.interval": "10s",  # twice a second
    "distributed.client.scheduler-info-interval": "60s",  # all about all clients, every two seconds
    **NO_PAGES,
}
"""Of all that Dask does beside, nothing."""


class _Lasting(Worker):
    """A worker that goes on without its scheduler, which it has lost when `left` is set: runs do without it, too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.left = asyncio.Event()
        self.stream_handlers["close"] = self._dismissed

    def _dismissed(self, **_: Any) -> None:
        self.left.set()

    async def handle_scheduler(self, comm: Comm) -> None:
        """As Dask calls it, to the end of the connection; its own would then close the worker."""
        try:
            await self.handle_stream(comm)
        finally:
            self.left.set()


async def serve(
    scheduler: str,
    name: str,
    runs: Path,
    security: Security,
    host: str | None = None,
    weight: int | None = None,
    joined: Callable[[], None] = lambda: None,
    until_back: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Be an agent, as a worker of the scheduler at this address, until it ends us or is lost.

    `joined` is called when it has taken us, and `until_back` when it is lost: until that returns, we still answer to
    those who know our address. Raises `RuntimeError`, Dask's, when it does not take us.
    """
    with dask.config.set(QUIET):
        async with _Lasting(
            scheduler,
            name=name,
            host=host,
            nthreads=1,
            memory_limit=0,
            dashboard=False,
            dashboard_address=PAGES_ADDRESS,
            security=security,
            plugins=(Agent(runs, weight),),
        ) as worker:
            joined()
            await worker.left.wait()
            if until_back is not None and worker.status not in (Status.closing, Status.closed):
                await until_back()
