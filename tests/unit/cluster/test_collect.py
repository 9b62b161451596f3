"""Collecting the files that workers have left: completely, once, and no others."""

import asyncio
import fcntl
import json
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from patience import PATIENCE_S
from timing_samples import done, write_sample

from loadsim.cli import parser
from loadsim.cluster import collect as collecting
from loadsim.cluster.agent import DISCARD_RUN, LIST_FILES, READ_FILE, Agent
from loadsim.cluster.collect import CLIENTS_NAME, PARTIAL
from loadsim.cluster.controller import Cluster
from loadsim.cluster.own_dask import PAGES_ADDRESS, Comm, Scheduler, Security, Worker
from loadsim.cluster.own_dask import Client as Control
from loadsim.cluster.worker_directory import start_worker
from loadsim.errors import ConfigError, RunInvalid
from loadsim.runs.cluster import forget

RUN = "run-1"
PIECE_BYTES = 1000
collect = partial(collecting.collect, retry_s=0.01)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "PIECE_BYTES", PIECE_BYTES)


class Telling(Agent):
    """An agent that notes which pieces it was asked for, and may cut the connection in the middle."""

    def __init__(self, runs: Path) -> None:
        super().__init__(runs, ())
        self.asked: list[tuple[str, int]] = []
        self.cuts: set[int] = set()  # at which questions for a piece

    def setup(self, worker: Worker) -> None:
        super().setup(worker)
        worker.handlers[READ_FILE] = self.read_and_tell

    async def read_and_tell(self, comm: Comm, run: str, file: str, offset: int, length: int) -> bytes:
        self.asked.append((file, offset))
        if len(self.asked) in self.cuts:
            comm.abort()
        return await self.read_file(run, file, offset, length)


@asynccontextmanager
async def a_client(agent: Agent) -> AsyncIterator[Cluster]:
    """A cluster of one client, `one`, whose agent this is."""
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


def assert_collected(out: Path) -> None:
    """All of it is in the run directory, each byte as it was, and nothing else."""
    there = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert there == {
        file if file.startswith("logs/") else f"{CLIENTS_NAME}/one/{file}": content for file, content in FILES.items()
    }


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for file, content in FILES.items():
        path = tmp_path / "runs" / RUN / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "runs"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out" / "logs").mkdir(parents=True)
    return tmp_path / "out"


def collected_by(agent: Agent, out: Path) -> None:
    async def work() -> None:
        async with a_client(agent) as cluster:
            await collect(cluster, "one", RUN, out)

    asyncio.run(work())


async def commanded(cluster: Cluster, *words: str) -> int:
    """Return the exit status of `loadsim cluster collect` in another thread, at the controller of this cluster."""
    assert cluster._dask_client.scheduler is not None
    address = cluster._dask_client.scheduler.address.removeprefix("tcp://")
    args = parser("cluster").parse_args(["cluster", "collect", "--cluster", address, *words])
    return int(await asyncio.to_thread(args.run, args))


def test_the_command_lists_and_collects_runs(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit status is that of the verdict. A run that no client has is bad input; logs that stay make it invalid."""
    log, out = runs / RUN / "logs/one.1.tlog", tmp_path / "collected"
    for each in (log, runs / RUN / "logs/one.machine.tlog"):
        each.unlink()
    criteria = {"failed_share": {"max": 0}}
    tasks = [done("READ", 1000 * at, 20, outcome="refused" if at == 5 else "ok") for at in range(20)]
    write_sample(log, tasks, header={"run": RUN, "client": "one", "criteria": criteria})
    strange = runs / RUN / "logs/two.1.tlog"  # no worker of this client writes it

    async def work() -> list[int]:
        async with a_client(Agent(runs, ())) as cluster:
            found = [await commanded(cluster)]
            with pytest.raises(ConfigError):
                await commanded(cluster, "run-9", "--out", str(out))
            strange.touch()
            with pytest.raises(RunInvalid):
                await commanded(cluster, RUN, "--out", str(out))
            strange.unlink()
            return [*found, await commanded(cluster, RUN, "--out", str(out)), await commanded(cluster)]

    assert asyncio.run(work()) == [0, 1, 0]
    score = json.loads((out / "score.json").read_text())
    assert (score["verdict"]["validity"], score["verdict"]["passed"]) == ("valid", False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(RUN)]
    assert lines == [[RUN, "one", "ended"]]
    assert not (runs / RUN).exists()


def test_a_run_that_did_not_begin_is_removed_where_it_can_be(runs: Path) -> None:
    """A client that has no such run, or has left, is no error."""

    async def work() -> None:
        async with a_client(Agent(runs, ())) as cluster:
            await forget(cluster, "run-9", ["one"])
            await cluster.ask("one", DISCARD_RUN, run="run-9", collected={})
            assert_kept(runs)
            await forget(cluster, RUN, ["gone", "one"])

    asyncio.run(work())
    assert not (runs / RUN).exists()


def test_a_file_that_shrinks_during_collection_is_rejected(runs: Path, out: Path) -> None:
    class Emptied(Agent):
        async def read_file(self, run: str, file: str, offset: int, length: int) -> bytes:
            return await super().read_file(run, file, offset, length) if offset == 0 else b""

    with pytest.raises(RunInvalid):
        collected_by(Emptied(runs, ()), out)
    assert_kept(runs)
    assert not list(out.rglob("*.tlog"))


def assert_kept(runs: Path) -> None:
    assert {file: (runs / RUN / file).read_bytes() for file in FILES} == FILES


def test_a_broken_connection_costs_one_piece(runs: Path, out: Path) -> None:
    """Only missing files are asked for once more; then the client has none."""
    agent = Telling(runs)
    agent.cuts = {3}
    collected_by(agent, out)
    assert_collected(out)
    assert len(agent.asked) == sum(-(-len(content) // PIECE_BYTES) for content in FILES.values()) + 1
    assert agent.asked[2] == agent.asked[3]
    assert not (runs / RUN).exists()


def test_an_unreachable_client_keeps_its_files(runs: Path, out: Path) -> None:
    """The next time only the files that are missing come."""
    agent = Telling(runs)
    agent.cuts = set(range(6, 20))
    with pytest.raises(RunInvalid, match=r"^client one: its logs were not collected, and are kept there: "):
        collected_by(agent, out)
    assert_kept(runs)
    assert not list(out.rglob("*.tlog"))
    agent.cuts.clear()
    del agent.asked[:]
    collected_by(agent, out)
    assert_collected(out)
    assert "events.jsonl" not in {file for file, _ in agent.asked}


def test_a_full_disk_at_the_controller_leaves_the_files_on_the_client(runs: Path, out: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * PIECE_BYTES, hard))  # what the kernel lets a file grow to
    try:
        with pytest.raises(RunInvalid, match=r"^client one: its logs were not collected, .*File too large"):
            collected_by(Agent(runs, ()), out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_kept(runs)


def test_a_log_that_still_grows_is_kept_and_collected_later(runs: Path, out: Path) -> None:
    """A log that grows meanwhile, by an engine whose worker was killed, is kept and collected later."""
    log = runs / RUN / "logs/one.1.tlog"
    more = os.urandom(PIECE_BYTES + 1)

    class Growing(Agent):
        async def read_file(self, run: str, file: str, offset: int, length: int) -> bytes:
            if log.stat().st_size == len(FILES["logs/one.1.tlog"]):
                with log.open("ab") as written:
                    written.write(more)
            return await super().read_file(run, file, offset, length)

    with pytest.raises(ConfigError, match=r"^run run-1: expected that its files are complete, found"):
        collected_by(Growing(runs, ()), out)
    collected_by(Growing(runs, ()), out)
    assert (out / "logs/one.1.tlog").read_bytes() == FILES["logs/one.1.tlog"] + more
    assert not (runs / RUN).exists()


@pytest.mark.slow
def test_unknown_running_and_foreign_files_are_refused(tmp_path: Path) -> None:
    """A run that is not there or still goes on, names that lead elsewhere, and files that are no machine's."""
    runs, out = tmp_path / "runs", tmp_path / "out"
    stranger = runs / "run-2" / "logs" / "other.1.tlog"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"x")
    out.mkdir()
    process = start_worker(runs / RUN)

    async def refused(cluster: Cluster, run: str) -> str:
        with pytest.raises(ConfigError) as refusal:
            await collect(cluster, "one", run, out)
        return str(refusal.value)

    async def work() -> None:
        async with a_client(Agent(runs, ())) as cluster:
            assert await refused(cluster, "run-9") == "client one: expected run run-9, found none"
            assert (await refused(cluster, RUN)).startswith(f"client one: expected that run {RUN} has ended")
            about = await cluster.ask("one", LIST_FILES, run=RUN)
            with pytest.raises(ConfigError, match=r"^run run-1: expected that it has ended, found "):
                await cluster.ask("one", DISCARD_RUN, run=RUN, collected=about["files"])
            assert (runs / RUN).exists()
            assert (await refused(cluster, "../runs")).endswith("found '../runs'")
            assert (await refused(cluster, "run-2")).endswith("found 'logs/other.1.tlog'")

    try:
        asyncio.run(work())
    finally:
        process.kill()
        process.wait()
    assert stranger.exists()
    assert not list(out.rglob("*"))


@pytest.mark.parametrize("name", ["one.1.tlog", "two.1.tlog"])
def test_logs_of_another_run_are_not_mixed_or_overwritten(runs: Path, out: Path, name: str) -> None:
    """They have the names of ours, and would be gone; or they have not, and would be answered with ours as one run."""
    theirs = out / "logs" / name
    write_sample(theirs, header={"run": "run-0"})
    before = theirs.read_bytes()
    with pytest.raises(ConfigError, match=rf"{name}: expected a log of run run-1, found one of run run-0$"):
        collected_by(Agent(runs, ()), out)
    assert {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.*")} == {f"logs/{name}": before}
    assert_kept(runs)


def test_a_second_collection_into_one_directory_is_refused(runs: Path, out: Path) -> None:
    """The second command is refused; the client keeps its files."""
    with (out / f"logs/one.1.tlog{PARTIAL}").open("ab") as theirs:
        theirs.write(b"half")
        theirs.flush()
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match=r"expected to be its only writer, found another process$"):
            collected_by(Agent(runs, ()), out)
        assert Path(theirs.name).read_bytes() == b"half"
    assert_kept(runs)
    collected_by(Agent(runs, ()), out)
    assert_collected(out)


def test_a_client_keeps_its_files_until_the_controller_has_synced_them(
    runs: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, and the directories in which their names are: after a power cut, neither would be there."""
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
    collected_by(Asked(runs, ()), out)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {f"{path}{PARTIAL}" for path in files} <= set(map(str, at_discard))
    last = max(index for index, path in enumerate(at_discard) if path.name.endswith(PARTIAL))
    assert set(at_discard[last:]) >= {tmp_path, out, out / "logs", out / CLIENTS_NAME, out / CLIENTS_NAME / "one"}
