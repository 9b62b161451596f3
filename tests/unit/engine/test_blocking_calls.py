"""Calls that could block the loop besides the network: writes to a slow disk, and look-ups of a host's name."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from imap_script import PATIENCE_S, Client, Peer, playing
from named_records import TaskRecord
from timing_samples import EPOCH_NS, HEADER, done
from virtual_runs import NOWHERE, contents, quiet, scenario_of

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.protocols import connect
from loadsim.protocols.registry import open_driver
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.writer import TimingLogWriter


class SlowDisk:
    """A file whose writes wait until the gate is open; `reached` says that one does."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.gate = threading.Event()
        self.reached = threading.Event()

    def write(self, blocks: bytes) -> int:
        self.reached.set()
        assert self.gate.wait(PATIENCE_S), "the gate was not opened"
        written: int = self.file.write(blocks)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> SlowDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def test_records_are_buffered_while_a_slow_disk_is_written(tmp_path: Path) -> None:
    """A write under way in a thread holds up neither records nor blocks; all come into the file, in their order."""
    path = tmp_path / "a.tlog"
    writer = TimingLogWriter(path, HEADER, EPOCH_NS)
    disk = SlowDisk(writer._file)
    writer._file = disk  # type: ignore[assignment]
    writer.task(TaskRecord(**done("READ", 1, 1, user=1)))
    writer.gather()
    said: list[str | None] = []
    thread = threading.Thread(target=lambda: said.append(writer.write()))
    thread.start()
    assert disk.reached.wait(PATIENCE_S)
    for user in range(2, 6):
        writer.task(TaskRecord(**done("READ", user, 1, user=user)))
        writer.gather()
    assert thread.is_alive()
    disk.gate.set()
    writer.close()  # waits for the write that is under way
    thread.join()
    assert said == [None]
    log = read_log(path)
    assert not log.damages
    assert log.tasks["user"].tolist() == [1, 2, 3, 4, 5]


class SlowLog(TimingLogWriter):
    """Its first write under load waits until the engine's next snapshot, which the loop has to make meanwhile."""

    shown: threading.Event
    waited: list[bool]

    def write(self) -> str | None:
        shown = getattr(self, "shown", None)
        if shown is not None and not self.waited:
            self.waited.append(shown.wait(PATIENCE_S))
        return super().write()


@pytest.mark.slow
def test_a_slow_disk_delays_no_user(tmp_path: Path) -> None:
    """While a write waits, the engine's loop goes on; the log that comes out of it is whole."""
    scenario = scenario_of(tmp_path, (quiet(browse={"per_day": 20}), 2), day="2s", ramp_up="10ms")
    workload = Workload(scenario)
    driver = open_driver("fake", NOWHERE, workload=workload, contents=contents(), service_s=0.001)
    log = SlowLog(tmp_path / "a.tlog", HEADER, MonotonicClock().now_ns())
    log.shown, log.waited = threading.Event(), []

    async def run() -> None:
        with (tmp_path / "events.jsonl").open("w") as told:
            load = EngineLoad(workload, range(1, 3), {"fake": driver}, contents(), "run-1")
            records = EngineRecords(
                log, Events(told), lambda snapshot: log.shown.set() if snapshot.phase == "work" else None
            )
            await Engine(load, records, EngineOptions(MonotonicClock(), writes_aside=True)).run()

    asyncio.run(run())
    log.close()
    assert log.waited == [True]
    assert read_log(tmp_path / "a.tlog").sources[0].facts.ended == "completed"


class NameServer(asyncio.SelectorEventLoop):
    """A loop that counts the names it is asked for, and knows two addresses of one of them."""

    asked: list[Any]

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:  # type: ignore[override]
        self.asked.append(host)
        if host != "two.test":
            return await super().getaddrinfo(host, port, **options)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in ("127.0.0.2", "127.0.0.1", "127.0.0.1")
        ]


async def greeting(peer: Peer) -> None:
    peer.say(b"* OK ready")


@pytest.mark.parametrize(("host", "names"), [("two.test", ["two.test"]), ("localhost", ["localhost"])])
def test_a_name_is_looked_up_once(host: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections there are; of several addresses, the one that answered is tried first from then on."""
    monkeypatch.setattr(connect, "_ADDRESSES", {})

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NameServer)
        loop.asked = []
        async with playing(greeting, greeting, greeting) as endpoint:
            for _ in range(3):
                where = type(endpoint)(host, endpoint.port)
                (await Client().connect(where)).abort()
            assert [name for name in loop.asked if name == host] == names
        assert connect._ADDRESSES[host][0] == "127.0.0.1"

    with asyncio.Runner(loop_factory=NameServer) as runner:
        runner.run(run())


def test_a_failed_name_lookup_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that fails is a failure of this connection, and not of all that follow."""
    monkeypatch.setattr(connect, "_ADDRESSES", {})

    async def run() -> None:
        async def connect_to(address: str) -> str:
            return address

        with pytest.raises(OSError):
            await connect.first_answering("no such name.invalid", connect_to)
        assert connect._ADDRESSES == {}
        assert await connect.first_answering("127.0.0.1", connect_to) == "127.0.0.1"

    asyncio.run(run())


def test_no_address_is_tried_after_one_that_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection leads to the next address; one that broke was answered."""
    monkeypatch.setattr(connect, "_ADDRESSES", {"x": ["127.0.0.2", "::1", "127.0.0.1"]})
    tried: list[str] = []

    async def refusing(address: str) -> str:
        tried.append(address)
        if address != "127.0.0.1":
            raise ConnectionRefusedError
        return address

    async def breaking(address: str) -> str:
        tried.append(address)
        raise ConnectionResetError

    async def run() -> None:
        assert await connect.first_answering("x", refusing, ipv6=False) == "127.0.0.1"
        assert tried == ["127.0.0.2", "127.0.0.1"]
        assert connect._ADDRESSES["x"][0] == "127.0.0.1"
        tried.clear()
        with pytest.raises(ConnectionResetError):
            await connect.first_answering("x", breaking)
        assert tried == ["127.0.0.1"]

    asyncio.run(run())
