"""The processes of a test's databases, orders to them, and the load on all at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil

from loadsim.engine.channel import Channel, start_process
from loadsim.engine.control import Message, Stop, decode, encode
from loadsim.errors import RunInvalid
from loadsim.findings.formats import duration
from loadsim.processes.event_loop import calls_on_signal, task_group
from loadsim.storage import orders
from loadsim.storage.recording import End, RecordingWriter, Sample, Tell
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import Io, summed

COMMAND = (sys.executable, "-P", "-m", "loadsim.storage.worker")

LOG_BYTES = 20 << 20  # the size of the log at which changed pages are written: the checkpoint depth of Exchange
LEAST_WARM_UP_S = 60.0
WARM_SHARE = 0.99

Listener = Callable[["Database", orders.Progress | orders.LoadSample], None]
A = TypeVar("A", bound=Message)


@dataclass(slots=True)
class Database:
    """A database and its process."""

    name: str
    place: Path
    channel: Channel
    state: orders.DatabaseState = field(default_factory=orders.DatabaseState)

    async def open(self, scenario: StorageScenario, number: int, log_bytes: int) -> None:
        self.state = await self.order(orders.OpenDatabase(asdict(scenario), number, str(self.place), log_bytes))

    async def order(self, order: orders.Order[A], listen: Listener = lambda *_: None) -> A:
        """Send an order, and return its answer; `listen` receives the messages that precede it.

        Raises `RunInvalid` if the disk fails or the process ends.
        """
        self.channel.send(encode(order))
        while line := await self.channel.receive():
            match decode(line, orders.FROM_A_WORKER):
                case orders.Progress() | orders.LoadSample() as report:
                    listen(self, report)
                case orders.DiskFailed(why):
                    raise RunInvalid(f"{self.name}: {why}")
                case answer:
                    return cast(A, answer)
        raise RunInvalid(f"{self.name}: its process ended ({await self.channel.wait()})")


@asynccontextmanager
async def databases(
    scenario: StorageScenario, places: Sequence[Path], log_bytes: int = LOG_BYTES
) -> AsyncIterator[list[Database]]:
    """Start a process per database, and open it. At the end of the block, they are killed. Raises `RunInvalid`."""
    started: list[Database] = []
    try:
        for place in places:
            started.append(Database(place.name, place, await start_process(COMMAND)))
        async with task_group() as group:
            for number, database in enumerate(started):
                group.create_task(database.open(scenario, number, log_bytes))
        yield started
    finally:
        for database in started:
            database.channel.kill()
        await asyncio.gather(*(database.channel.wait() for database in started))


async def of_all(started: Sequence[Database], order: orders.Order[A], tell: Tell = lambda _: None) -> list[A]:
    """Send an order to all databases at the same time, and return the answers. Raises `RunInvalid`.

    `tell` receives the progress of the first database.
    """

    def listen(database: Database, report: orders.Progress | orders.LoadSample) -> None:
        if database is started[0] and isinstance(report, orders.Progress):
            tell(f"{database.name}: {report.share:.0%}")

    async with task_group() as group:
        tasks = [group.create_task(database.order(order, listen)) for database in started]
    return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True)
class Others:
    """The other machines of a test, which begins and ends on all of them at the same time.

    `meet` returns once every machine has called it as many times as this one. When one leaves, all end.
    """

    meet: Callable[[], Coroutine[Any, Any, None]]
    leave: Callable[[], object]


def _words(samples: Iterable[Sample], sample_s: float) -> str:
    totals = summed([sample["io"] for sample in samples])
    iops = (totals[Io.READ].count + totals[Io.WRITE].count) / sample_s
    read, log = (duration(totals[kind].mean_ms) for kind in (Io.READ, Io.LOG_WRITE))
    return f"{iops:,.0f} reads and writes per second; reads {read}, log writes {log}"


@dataclass(slots=True)
class LoadRun:
    """The load on all databases, and the window whose samples count."""

    started: Sequence[Database]
    recorder: RecordingWriter
    others: Others | None
    meeting: asyncio.Task[None] | None = None  # the wait for the other machines
    told_s: float = 0.0
    killed: bool = False
    end: End = field(default_factory=End)

    async def run(self, *, kill: bool = False) -> End:
        """Load the databases until the window is over, a user ends it, or a disk is full or fails.

        With `kill`, kill the processes when the duration is over.
        """
        psutil.cpu_percent()  # the first call returns no figure
        self.recorder.begin("Filling the caches")
        killing = (
            asyncio.get_running_loop().call_later(self.recorder.recording.scenario.duration_s, self._kill)
            if kill
            else None
        )
        with calls_on_signal(self._interrupt):
            await asyncio.gather(*map(self._load, self.started))
        if killing:
            killing.cancel()
        if self.meeting:
            self.meeting.cancel()
        if self.others and any(self.end):
            self.others.leave()
        return self.end

    async def _load(self, database: Database) -> None:
        """Load one database. When it ends, all end."""
        try:
            result = await database.order(orders.LoadDatabase(self.recorder.recording.header.sample_s), self._listen)
        except RunInvalid as failure:
            if not self.killed:
                self.end = self.end._replace(failure=self.end.failure or str(failure))
        else:
            self.recorder.add("rest", {"database": database.name, "sample": result.rest})
            self.end = self.end._replace(full=self.end.full or result.full)
        self._stop_load()

    def _kill(self) -> None:
        self.killed = True
        for database in self.started:
            database.channel.kill()

    def _interrupt(self) -> None:
        if self.end.stopped:  # the second signal: a disk may hang
            self._kill()
        self.end = self.end._replace(stopped=True)
        self._stop_load()

    def _stop_load(self) -> None:
        for database in self.started:
            database.channel.send(encode(Stop()))

    def _all_met(self) -> bool:
        """Return True once all machines have reached this point."""
        if self.others is None:
            return True
        if self.meeting is None:
            self.meeting = asyncio.create_task(self.others.meet())
        if met := self.meeting.done():
            self.meeting = None
        return met

    def _listen(self, database: Database, report: orders.Progress | orders.LoadSample) -> None:
        """Record a sample. The samples of the first database begin and end the window."""
        assert isinstance(report, orders.LoadSample)
        recording, at_s = self.recorder.recording, report.at_s
        self.recorder.add("sample", {"database": database.name, "sample": report.sample, "at_s": at_s})
        if database is not self.started[0]:
            return
        self.recorder.add("host", (psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100))
        latest = {name: samples[-1] for name, samples in recording.samples.items()}
        if at_s - self.told_s >= orders.PROGRESS_S:
            self.told_s = at_s
            self.recorder.tell(f"{at_s:6,.0f} s  {_words(latest.values(), recording.header.sample_s)}")
        if recording.window is None:
            warm = recording.complete > 0 and all(sample["warm_share"] >= WARM_SHARE for sample in latest.values())
            late = at_s > max(LEAST_WARM_UP_S, self.recorder.recording.scenario.duration_s)
            if (warm or late or self.meeting) and self._all_met():
                self.recorder.add("window", (len(recording.samples[database.name]), warm))
                self.recorder.begin("Measuring")
        elif recording.complete >= recording.window[0] + recording.wanted and self._all_met():
            self._stop_load()
