"""Collecting what machine processes have left: whole, once, from where it was left off, and nothing but that."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client as Control
from distributed import Scheduler, Worker
from distributed.comm.core import Comm
from distributed.security import Security
from patience import PATIENCE_S
from timing_samples import write_sample

from loadsim.cluster import collect as collecting
from loadsim.cluster.agent import DASK_SETTINGS, DISCARD_RUN, LIST_FILES, READ_FILE, Agent
from loadsim.cluster.collect import CLIENTS_NAME, PARTIAL
from loadsim.cluster.controller import Cluster
from loadsim.cluster.security import PAGES_ADDRESS
from loadsim.cluster.worker_directory import start_worker
from loadsim.errors import ConfigError, RunInvalid

RUN = "run-1"
PIECE_BYTES = 1000
collect = partial(collecting.collect, retry_s=0.01)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces."""
    monkeypatch.setattr(collecting, "PIECE_BYTES", PIECE_BYTES)


class Telling(Agent):
    """An agent that notes which pieces it was asked for, and may fail in the middle."""

    def __init__(self, runs: Path) -> None:
        super().__init__(runs)
        self.asked: list[tuple[str, int]] = []
        self.cuts: set[int] = set()  # at which questions for a piece it cuts the connection
        self.damages: set[int] = set()  # at which it sends something else

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        worker.handlers[READ_FILE] = self.read_and_tell

    async def read_and_tell(self, comm: Comm, run: str, file: str, offset: int, length: int) -> dict[str, Any]:
        """As an agent does, unless it fails."""
        self.asked.append((file, offset))
        if len(self.asked) in self.cuts:
            comm.abort()
        said = await self.read_file(run, file, offset, length)
        if len(self.asked) in self.damages:
            said["piece"] = bytes(len(said["piece"]))
        return said


@asynccontextmanager
async def a_client(agent: Agent) -> AsyncIterator[Cluster]:
    """A cluster of one client, `one`, whose agent this is."""
    with dask.config.set(DASK_SETTINGS):
        async with (
            asyncio.timeout(PATIENCE_S),
            Scheduler(protocol="tcp", host="127.0.0.1", port=0, dashboard_address=PAGES_ADDRESS) as scheduler,
            Worker(
                scheduler.address,
                name="one",
                nthreads=1,
                memory_limit=0,
                host="127.0.0.1",
                dashboard_address=PAGES_ADDRESS,
                plugins=(agent,),
            ),
            Control(scheduler.address, asynchronous=True, set_as_default=False) as control,
        ):
            yield Cluster(control, Security())


FILES = {
    "events.jsonl": b"{}\n" * 7,
    "complaints": b"",
    "logs/one.1.tlog": os.urandom(10 * PIECE_BYTES),
    "logs/one.machine.tlog": os.urandom(3 * PIECE_BYTES + 1),
}


def left_by_a_run(runs: Path) -> Path:
    """What a machine process has left of a run."""
    for file, content in FILES.items():
        path = runs / RUN / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return runs / RUN


def assert_collected(out: Path, files: list[Path]) -> None:
    """All of it is in the run directory, each byte as it was, and nothing else."""
    there = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert there == {
        file if file.startswith("logs/") else f"{CLIENTS_NAME}/one/{file}": content for file, content in FILES.items()
    }
    assert {str(path.relative_to(out)) for path in files} == set(there)


def places(tmp_path: Path) -> tuple[Path, Path]:
    """For a client's runs, and for the station's run directory."""
    runs, out = tmp_path / "runs", tmp_path / "out"
    runs.mkdir()
    out.mkdir()
    return runs, out


@pytest.mark.slow
def test_all_is_collected_and_then_the_client_has_it_no_more(tmp_path: Path) -> None:
    """Files of several pieces, of one, and of none."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)

    async def work() -> list[Path]:
        async with a_client(Agent(runs)) as cluster:
            return await collect(cluster, "one", RUN, out)

    assert_collected(out, asyncio.run(work()))
    assert not left.exists()


def test_a_broken_connection_and_a_damaged_piece_cost_one_piece_each(tmp_path: Path) -> None:
    """What did not come, or not as it was, is asked for once more, and nothing else is."""
    runs, out = places(tmp_path)
    left_by_a_run(runs)
    agent = Telling(runs)
    agent.cuts, agent.damages = {3}, {6}

    async def work() -> list[Path]:
        async with a_client(agent) as cluster:
            return await collect(cluster, "one", RUN, out)

    assert_collected(out, asyncio.run(work()))
    pieces = sum(-(-len(content) // PIECE_BYTES) for content in FILES.values())
    assert len(agent.asked) == pieces + 2
    assert [agent.asked[at] == agent.asked[at + 1] for at in (2, 5)] == [True, True]


def test_it_goes_on_where_it_was_left_off(tmp_path: Path) -> None:
    """A client that is out of reach keeps everything; the next time only what is missing is asked for."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)
    agent = Telling(runs)
    agent.cuts = set(range(6, 20))

    async def work() -> list[Path]:
        async with a_client(agent) as cluster:
            with pytest.raises(RunInvalid, match=r"^client one: its logs were not collected, and are kept there: "):
                await collect(cluster, "one", RUN, out)
            assert {file: (left / file).read_bytes() for file in FILES} == FILES
            assert not list(out.rglob("*.tlog"))
            agent.cuts.clear()
            del agent.asked[:]
            return await collect(cluster, "one", RUN, out)

    assert_collected(out, asyncio.run(work()))
    offsets = [offset for file, offset in agent.asked if file == "logs/one.1.tlog"]
    assert offsets == list(range(4 * PIECE_BYTES, 10 * PIECE_BYTES, PIECE_BYTES))  # the first piece was events.jsonl


def test_what_had_come_is_checked_before_it_is_gone_on_with(tmp_path: Path) -> None:
    """If it is not what the client has, or longer, the file comes from its beginning."""
    runs, out = places(tmp_path)
    left_by_a_run(runs)
    (out / "logs").mkdir()
    (out / f"logs/one.1.tlog{PARTIAL}").write_bytes(os.urandom(2 * PIECE_BYTES))
    (out / f"logs/one.machine.tlog{PARTIAL}").write_bytes(FILES["logs/one.machine.tlog"] + b"more")
    agent = Telling(runs)

    async def work() -> list[Path]:
        async with a_client(agent) as cluster:
            return await collect(cluster, "one", RUN, out)

    assert_collected(out, asyncio.run(work()))
    assert ("logs/one.1.tlog", 0) in agent.asked
    assert "logs/one.machine.tlog" not in {file for file, _ in agent.asked}


def test_a_disk_here_that_takes_no_more(tmp_path: Path) -> None:
    """The client keeps everything, and what has come need not come again when there is room."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)
    agent = Telling(runs)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def work() -> list[Path]:
        async with a_client(agent) as cluster:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5 * PIECE_BYTES, hard))  # what the kernel lets a file grow to
            try:
                with pytest.raises(RunInvalid, match=r"^client one: its logs were not collected, .*File too large"):
                    await collect(cluster, "one", RUN, out)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert {file: (left / file).read_bytes() for file in FILES} == FILES
            del agent.asked[:]
            return await collect(cluster, "one", RUN, out)

    assert_collected(out, asyncio.run(work()))
    assert min(offset for file, offset in agent.asked if file == "logs/one.1.tlog") == 5 * PIECE_BYTES


def test_what_is_still_written_is_not_lost(tmp_path: Path) -> None:
    """A log that grows meanwhile, by an engine whose machine process was killed, is kept and comes later."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)
    log = left / "logs/one.1.tlog"
    more = os.urandom(PIECE_BYTES + 1)

    class Growing(Telling):
        async def read_and_tell(self, comm: Comm, run: str, file: str, offset: int, length: int) -> dict[str, Any]:
            if not self.asked:
                with log.open("ab") as written:
                    written.write(more)
            return await super().read_and_tell(comm, run, file, offset, length)

    agent = Growing(runs)

    async def work() -> None:
        async with a_client(agent) as cluster:
            with pytest.raises(ConfigError, match=r"^run run-1: expected that its files are complete, found"):
                await collect(cluster, "one", RUN, out)
            assert log.read_bytes() == FILES["logs/one.1.tlog"] + more
            del agent.asked[1:]
            await collect(cluster, "one", RUN, out)

    asyncio.run(work())
    assert (out / "logs/one.1.tlog").read_bytes() == FILES["logs/one.1.tlog"] + more
    assert [offset for _, offset in agent.asked[1:]] == [10 * PIECE_BYTES, 11 * PIECE_BYTES]
    assert not left.exists()


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path) -> None:
    """A run that is not there or still goes on, names that lead elsewhere, and files that are no machine's."""
    runs, out = places(tmp_path)
    process = start_worker(runs / RUN)
    (runs / "run-2" / "logs").mkdir(parents=True)
    stranger = runs / "run-2" / "logs" / "other.1.tlog"
    stranger.write_bytes(b"x")

    async def refused(cluster: Cluster, run: str) -> str:
        with pytest.raises(ConfigError) as refusal:
            await collect(cluster, "one", run, out)
        return str(refusal.value)

    async def work() -> None:
        async with a_client(Agent(runs)) as cluster:
            assert await refused(cluster, "run-9") == "client one: expected run run-9, found none"
            assert await refused(cluster, RUN) == (
                f"client one: expected that run {RUN} has ended, found processes of it at work there"
            )
            about = await cluster.ask("one", LIST_FILES, run=RUN)
            with pytest.raises(ConfigError, match=r"^run run-1: expected that it has ended, found "):
                await cluster.ask("one", DISCARD_RUN, run=RUN, collected=about["files"])
            assert (runs / RUN).exists()
            assert await refused(cluster, "../runs") == "run: expected letters, digits and hyphens, found '../runs'"
            assert await refused(cluster, "run-2") == (
                "client one: expected files of a worker, found 'logs/other.1.tlog'"
            )
            for file in ("../run-2/logs/other.1.tlog", "/etc/passwd", "logs"):
                with pytest.raises(ConfigError, match="expected a file that is listed"):
                    await cluster.ask("one", READ_FILE, run="run-2", file=file, offset=0, length=1)

    try:
        asyncio.run(work())
    finally:
        process.kill()
        process.wait()
    assert stranger.exists()
    assert not list(out.rglob("*"))


async def collected_by(agent: Agent, out: Path) -> list[Path]:
    """What comes of one client."""
    async with a_client(agent) as cluster:
        return await collect(cluster, "one", RUN, out)


@pytest.mark.parametrize("name", ["one.1.tlog", "two.1.tlog"])
def test_nothing_comes_among_the_logs_of_another_run(tmp_path: Path, name: str) -> None:
    """They have the names of ours, and would be gone; or they have not, and would be answered with ours as one run."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)
    (out / "logs").mkdir()
    theirs = out / "logs" / name
    write_sample(theirs, header={"run": "run-0"})
    before = theirs.read_bytes()
    with pytest.raises(ConfigError, match=rf"{name}: expected a log of run run-1, found one of run run-0$"):
        asyncio.run(collected_by(Agent(runs), out))
    assert {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.*")} == {f"logs/{name}": before}
    assert {file: (left / file).read_bytes() for file in FILES} == FILES


def test_a_file_that_is_there_is_held_against_the_clients(tmp_path: Path) -> None:
    """As long as it is, but not the same, it comes again."""
    runs, out = places(tmp_path)
    left_by_a_run(runs)
    (out / "logs").mkdir()
    (out / "logs/one.1.tlog").write_bytes(os.urandom(len(FILES["logs/one.1.tlog"])))
    assert_collected(out, asyncio.run(collected_by(Agent(runs), out)))


def test_two_that_collect_into_one_place_do_not_mix(tmp_path: Path) -> None:
    """Who comes second is refused; the client keeps what it has."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)
    (out / "logs").mkdir()
    with (out / f"logs/one.1.tlog{PARTIAL}").open("ab") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match=r"expected to be its only writer, found another process$"):
            asyncio.run(collected_by(Agent(runs), out))
        assert not theirs.tell()
    assert {file: (left / file).read_bytes() for file in FILES} == FILES
    assert_collected(out, asyncio.run(collected_by(Agent(runs), out)))


def test_a_client_keeps_everything_until_it_is_on_the_stations_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, and the directories in which their names are: after a power cut, neither would be there."""
    runs, out = places(tmp_path)
    left_by_a_run(runs)
    written: list[Path] = []
    at_discard: list[Path] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        written.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        really(descriptor)

    class Asked(Agent):
        async def discard_run(self, run: str, collected: dict[str, int]) -> None:
            at_discard.extend(written)
            await super().discard_run(run, collected)

    monkeypatch.setattr(os, "fsync", fsync)
    files = asyncio.run(collected_by(Asked(runs), out))
    assert {f"{path}{PARTIAL}" for path in files} <= set(map(str, at_discard))
    last = max(index for index, path in enumerate(at_discard) if path.name.endswith(PARTIAL))
    assert set(at_discard[last:]) >= {tmp_path, out, out / "logs", out / CLIENTS_NAME, out / CLIENTS_NAME / "one"}


def test_a_station_that_cannot_write_loses_nothing(tmp_path: Path) -> None:
    """It says so in one line."""
    runs, out = places(tmp_path)
    left = left_by_a_run(runs)
    (out / f"logs/one.1.tlog{PARTIAL}").mkdir(parents=True)
    with pytest.raises(RunInvalid, match=r"^client one: its logs were not collected, and are kept there: .*directory"):
        asyncio.run(collected_by(Agent(runs), out))
    assert {file: (left / file).read_bytes() for file in FILES} == FILES
