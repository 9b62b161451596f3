"""A client's agent, a plug-in of a Dask worker. It starts workers, and relays lines between them and the controller.

An agent has no state to lose. A worker runs in its own session and outlives the agent. The next agent with the same
directory for runs, on the same machine, finds the worker there.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.build_fingerprint import build_fingerprint
from loadsim.cluster.address import RUN_NAME
from loadsim.cluster.own_dask import PAGES_ADDRESS, Comm, Security, Status, Worker, WorkerPlugin, silence_dask
from loadsim.cluster.security import Access, deepest, reach
from loadsim.cluster.worker_directory import connect, in_use, left_files, start_worker
from loadsim.engine.control import LONGEST_LINE_OF_A_MEMBER_BYTES
from loadsim.errors import ConfigError
from loadsim.processes.control_groups import usable_cores

ATTEND = "loadsim_attend"
DESCRIBE = "loadsim_describe"
READ_CLOCK = "loadsim_read_clock"
LIST_FILES = "loadsim_list_files"
READ_FILE = "loadsim_read_file"
DISCARD_RUN = "loadsim_discard_run"
TEST_STORAGE = "loadsim_test_storage"
"""A controller's requests, in addition to those of Dask's own protocol."""


def run_directories(runs: Path) -> list[Path]:
    """Return the directories of workers, running or ended, in the directory for runs."""
    return [
        directory for directory in sorted(runs.iterdir()) if RUN_NAME.fullmatch(directory.name) and directory.is_dir()
    ]


class Agent(WorkerPlugin):
    """Answers controllers' requests. The directories of its workers are in `runs`.

    `storage_test` is the command for this machine's part in a storage test on several machines.
    """

    name = "loadsim"

    def __init__(self, runs: Path, storage_test: Sequence[str]) -> None:
        self._runs = runs
        self._storage_test = storage_test
        self._starting = asyncio.Lock()
        self._started: list[subprocess.Popen[bytes]] = []

    def setup(self, worker: Worker) -> None:
        """Register the requests; Dask calls this."""
        worker.handlers.update(
            {
                ATTEND: self.attend,
                DESCRIBE: self.describe,
                READ_CLOCK: self.read_clock,
                LIST_FILES: self.list_files,
                READ_FILE: self.read_file,
                DISCARD_RUN: self.discard_run,
                TEST_STORAGE: self.test_storage,
            }
        )

    def describe(self) -> dict[str, Any]:
        """Return what the controller needs to know before it assigns users (`placement.ConnectedClient`).

        `runs` maps the names of runs with a directory here to whether a process still works on them.
        """
        return {
            "software": build_fingerprint(),
            "cores": usable_cores(),
            "free_bytes": shutil.disk_usage(self._runs).free,
            "runs": {directory.name: in_use(directory) for directory in run_directories(self._runs)},
        }

    def read_clock(self) -> int:
        """Return the time in ns by the monotonic clock, which engines use to start and to measure."""
        return time.monotonic_ns()

    async def attend(self, comm: Comm, run: str) -> Status:
        """Relay lines between this connection to the controller and the worker of a run, until either end closes.

        Starts the worker if the run has no directory yet. If it cannot be reached, the controller gets `gone`.
        """
        try:
            async with self._starting:
                await asyncio.to_thread(self._start_once, run)
                reader, writer = await connect(self._runs / run)
        except (ConfigError, OSError) as failure:
            with suppress(OSError):
                await comm.write({"gone": f"no worker process: {failure}"})
                while True:  # until the controller closes: Dask would mistake its lines for requests
                    await comm.read()
            return Status.dont_reply
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay_up(reader, comm))
            group.create_task(_relay_down(comm, writer))
        return Status.dont_reply

    def _start_once(self, run: str) -> None:
        """Start the worker unless the run has a directory. Raises `ConfigError` if that fails."""
        self._started = [process for process in self._started if process.poll() is None]
        directory = self._directory(run)
        if not directory.exists():
            for other in run_directories(self._runs):
                if in_use(other):
                    raise ConfigError(f"run {run}: expected nothing else at work here, found run {other.name}")
            self._started.append(start_worker(directory))

    def _directory(self, run: str) -> Path:
        if not RUN_NAME.fullmatch(run):
            raise ConfigError(f"run: expected letters, digits and hyphens, found {run!r}")
        return self._runs / run

    async def list_files(self, run: str) -> dict[str, Any] | None:
        """Return the lengths of a run's files, and whether a process still works on it; None without a directory."""
        directory = self._directory(run)
        if not directory.exists():
            return None
        return await asyncio.to_thread(lambda: {"files": left_files(directory), "in_use": in_use(directory)})

    async def read_file(self, run: str, file: str, offset: int, length: int) -> bytes:
        def read() -> bytes:
            with (self._directory(run) / file).open("rb") as opened:
                opened.seek(offset)
                return opened.read(length)

        return await asyncio.to_thread(read)

    async def discard_run(self, run: str, collected: dict[str, int]) -> None:
        """Remove a run's directory, if the controller has these files, with these lengths.

        Raises `ConfigError` if there are others, or while files may still grow: a worker may still write, or an engine
        that outlived a killed worker.
        """

        def discard() -> None:
            directory = self._directory(run)
            if not directory.exists():
                return
            if in_use(directory):
                raise ConfigError(f"run {run}: expected that it has ended, found processes of it at work")
            if left_files(directory) != collected:
                raise ConfigError(
                    f"run {run}: expected that its files are complete, found that they have grown: collect again"
                )
            shutil.rmtree(directory)

        await asyncio.to_thread(discard)

    async def test_storage(self, comm: Comm) -> Status:
        """Relay lines between this connection to the controller and a storage test of this machine.

        If the connection or this agent is lost, the test ends as if by Ctrl-C.
        """
        process = await asyncio.create_subprocess_exec(
            *self._storage_test, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE_OF_A_MEMBER_BYTES, start_new_session=True
        )
        assert process.stdout is not None
        assert process.stdin is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay_up(process.stdout, comm))
            group.create_task(_relay_down(comm, process.stdin))
        async for _ in process.stdout:  # a full pipe would block its exit
            pass
        await process.wait()
        return Status.dont_reply


async def _relay_up(reader: asyncio.StreamReader, comm: Comm) -> None:
    """Relay lines to the controller until the worker or the connection is gone; then close the connection."""
    with suppress(OSError):
        while (line := await reader.readline()).endswith(b"\n"):
            await comm.write([line])
        await comm.close()
    comm.abort()


async def _relay_down(comm: Comm, writer: asyncio.StreamWriter) -> None:
    """Relay lines to the worker until either end is gone; then close the worker's socket."""
    with suppress(OSError, ValueError):
        while True:
            writer.writelines(await comm.read())
            await writer.drain()
    writer.close()


class _LastingWorker(Worker):
    """A Dask worker that survives the loss of its scheduler, as runs do. `left` is set when that happens."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.left = asyncio.Event()
        self.stream_handlers["close"] = lambda **_: self.left.set()

    async def handle_scheduler(self, comm: Comm) -> None:
        """Handle the connection until it ends; called by Dask, whose own method would then close the worker."""
        try:
            await self.handle_stream(comm)
        finally:
            self.left.set()


async def serve(
    scheduler: str,
    name: str,
    agent: Agent,
    security: Security,
    host: str | None = None,
    joined: Callable[[], None] = lambda: None,
    until_back: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run the agent as a Dask worker of the scheduler at this address, until the scheduler ends it or is lost.

    `joined` is called on registration, and `until_back` when the scheduler is lost: until it returns, the agent answers
    controllers that know its address. Raises Dask's `RuntimeError` if the registration fails.
    """
    silence_dask()
    async with _LastingWorker(
        scheduler,
        name=name,
        host=host,
        nthreads=1,
        memory_limit=0,
        dashboard=False,
        dashboard_address=PAGES_ADDRESS,
        security=security,
        plugins=(agent,),
    ) as worker:
        joined()
        await worker.left.wait()
        if until_back is not None and worker.status not in (Status.closing, Status.closed):
            await until_back()


RETRY_S = 1.0
"""Seconds between attempts to join."""


async def join_forever(access: Access, name: str, agent: Agent, report: Callable[[str], None]) -> None:
    """Join the cluster as a client with this name, and rejoin whenever it is lost; never return.

    `report` gets a line for each change. The agent listens only at the address by which it reaches the controller, so
    on loopback if the controller is there.
    """
    reported = ""

    def report_change(line: str) -> None:
        nonlocal reported
        if line != reported:
            reported = line
            report(line)

    def joined() -> None:
        report_change(f"joined {access.address} as {name}")

    async def until_back() -> None:
        report_change(f"the controller at {access.address} is gone; waiting for it")
        while True:
            with suppress(ConnectionError):
                await reach(access, name)
                return
            await asyncio.sleep(RETRY_S)

    while True:
        try:
            host = await reach(access, name)
            await serve(access.address.for_dask, name, agent, access.security, host, joined, until_back)
        except (ConnectionError, RuntimeError) as failure:  # RuntimeError: the Dask worker could not register
            report_change(f"waiting for {access.address}, found: {deepest(failure)}")
        await asyncio.sleep(RETRY_S)
