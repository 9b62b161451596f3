"""A storage test on this machine: fill, load, and verify the databases; judge what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

import psutil

from loadsim.engine.channel import Channel, start_process
from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import locked, mode_at
from loadsim.findings.formats import duration
from loadsim.monitor.system.filesystems import run_storage
from loadsim.processes.event_loop import calls_on_signal, run, task_group
from loadsim.report.disclosure import file_system
from loadsim.runs.directory import create_directory, dated, discard
from loadsim.storage.figures import Sample
from loadsim.storage.kernel_log import KernelLog
from loadsim.storage.places import check_room, marked_places, used_bytes
from loadsim.storage.recording import RECORDING, End, Recording, RecordingWriter, TestedTerms, read_recording
from loadsim.storage.scenario import StorageScenario, check_installed
from loadsim.storage.store import Io, Pass, summed
from loadsim.storage.verdict import LOADED, STRICT_S
from loadsim.storage.worker import EACH_S, DatabaseState
from loadsim.timinglog.facts import FileSystem
from loadsim.version import __version__

Test = Literal["performance", "stress", "backup", "verify", "recovery"]
Tell = Callable[[str], object]
Message = Mapping[str, Any]
Listener = Callable[["Database", Message], None]


@dataclass(frozen=True, slots=True)
class Others:
    """The other machines of a test, with which this one begins and ends to load and to measure.

    `all_there` returns when all have arrived as often. One that leaves ends the others.
    """

    arrive: Callable[[], object]
    all_there: Callable[[], Awaitable[object]]
    leave: Callable[[], object]

    async def meet(self) -> None:
        self.arrive()
        await self.all_there()


COMMAND = (sys.executable, "-P", "-m", "loadsim.storage.worker")

LOG_BYTES = 20 << 20  # the size of the log when changed pages are written: the checkpoint depth of Exchange
LONGEST_SAMPLE_S = 15.0  # the interval of the published samples
SAMPLES = 30  # short tests have as many samples, so that a mean of one is a mean of many
RECOVERED_BYTES = 500 << 20  # the most log that is replayed: the 500 logs of 1 MB of the published test
CAMPAIGN = ".campaign"  # the file that marks the directory of a tuning or a queue
LEAST_SAMPLE_S = 1.0
LEAST_WARM_UP_S = 60.0
WARM_SHARE = 0.99


@dataclass(slots=True)
class Database:
    """A database and its process."""

    name: str
    place: Path
    channel: Channel
    state: DatabaseState = field(default_factory=DatabaseState)

    async def open(self, scenario: StorageScenario, number: int, log_bytes: int) -> None:
        terms = asdict(scenario)
        state = await self.order("open", scenario=terms, number=number, directory=str(self.place), log_bytes=log_bytes)
        self.state = DatabaseState(**state)

    async def order(self, do: str, listen: Listener = lambda *_: None, **words: object) -> Message:
        """Give an order, and return its result. `listen` receives what comes before.

        Raises `RunInvalid` if the disk fails or the process ends.
        """
        self.channel.send(json.dumps({"do": do, **words}).encode() + b"\n")
        while line := await self.channel.receive():
            message = json.loads(line)
            if "done" in message:
                done: Message = message["done"]
                return done
            if "failed" in message:
                raise RunInvalid(f"{self.name}: {message['failed']}")
            listen(self, message)
        raise RunInvalid(f"{self.name}: its process ended ({await self.channel.wait()})")


@asynccontextmanager
async def databases(
    scenario: StorageScenario, places: Sequence[Path], log_bytes: int = LOG_BYTES
) -> AsyncIterator[list[Database]]:
    """Start a process for each database, and open it. At the end of the block, all are gone. Raises `RunInvalid`."""
    started: list[Database] = []
    try:
        for place in places:
            started.append(Database(place.name, place, await start_process(COMMAND)))
        async with task_group() as group:
            for number, each in enumerate(started):
                group.create_task(each.open(scenario, number, log_bytes))
        yield started
    finally:
        for each in started:
            each.channel.kill()
        await asyncio.gather(*(each.channel.wait() for each in started))


async def of_all(started: Sequence[Database], do: str, tell: Tell = lambda _: None) -> list[Message]:
    """Give all databases an order at the same time, and return the results. Raises `RunInvalid`.

    `tell` receives the progress of the first one.
    """

    def listen(database: Database, message: Message) -> None:
        if database is started[0]:
            tell(f"{database.name}: {message['share']:.0%}")

    async with task_group() as group:
        tasks = [group.create_task(each.order(do, listen)) for each in started]
    return [task.result() for task in tasks]


def run_test(
    scenario: StorageScenario, test: Test, out: Path | None, tell: Tell, queue: Sequence[StorageScenario] = ()
) -> Path:
    """Make a test, record it in the new directory `out` (None: one in `runs`), and return the directory.

    It takes the place of the stores of a `queue`. `tell` receives what begins, and its progress each minute. Raises
    `ConfigError` before anything was changed, and `RunInvalid` if the databases cannot be opened or filled.
    """
    directory, created = create_directory(out, dated(datetime.now(UTC), scenario.name), RECORDING)
    try:
        with (directory / RECORDING).open("w", buffering=1, encoding="utf-8") as file:
            run(test_disks(scenario, test, directory / "store", file.write, tell, queue))
    finally:
        if not (directory / RECORDING).stat().st_size:
            discard(directory, created)
    return directory


def machine_words() -> str:
    return f"{platform.node()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def _kind(scenario: StorageScenario, test: Test) -> Test:
    return "stress" if test == "performance" and scenario.duration_s > STRICT_S else test


@contextmanager
def campaign_directory(out: Path | None, name: str) -> Iterator[Path]:
    """Yield the directory of several runs: a new one, or one that has some. Raises `ConfigError` for any other."""
    created: list[Path] = []
    if out is None or not mode_at(out / CAMPAIGN):
        out, created = create_directory(out, dated(datetime.now(UTC), name), CAMPAIGN)
    with locked(out, "--out", "storage test"):
        try:
            yield out
        finally:
            if [each.name for each in out.iterdir()] == [CAMPAIGN]:
                discard(out, created)


def run_once(
    scenario: StorageScenario, test: Test, directory: Path, run: Callable[[StorageScenario, Path], object]
) -> Recording:
    """Return the whole test of a scenario on this machine that a campaign has, or make it."""
    for number in count(1):
        path = directory / str(number)
        if not path.exists():
            run(scenario, path)
            return read_recording(path)
        if (path / RECORDING).exists() and (path / RECORDING).stat().st_size:
            found = read_recording(path)
            terms = found.scenario, found.header.test, found.header.machine, found.header.software
            same = terms == (scenario, _kind(scenario, test), machine_words(), __version__)
            if same and found.end is not None and not any(found.end):
                return found
    raise AssertionError


async def test_disks(
    scenario: StorageScenario,
    test: Test,
    temporary: Path,
    record: Callable[[str], object],
    tell: Tell,
    queue: Sequence[StorageScenario] = (),
    others: Others | None = None,
) -> None:
    """Make a test as `run_test` does. `record` takes the lines of its recording, and `temporary` databases."""
    check_installed(scenario)
    began, test = datetime.now(UTC), _kind(scenario, test)
    log_bytes = RECOVERED_BYTES if test == "recovery" else LOG_BYTES
    with marked_places(scenario, temporary, queue) as places:
        async with databases(scenario, places, log_bytes) as started:
            empty = [each for each in started if not each.state.filled]
            if empty and test == "verify":
                raise ConfigError("directories: expected databases that were filled (loadsim storage run), found none")
            if any(each.state.damaged for each in started):
                test = "verify"  # nothing else can be done
            unclean = [each.name for each in started if each.state.filled and not each.state.clean]
            crashed = test in ("recovery", "verify") and bool(unclean)
            if test != "verify" and not crashed:  # else, nothing is added
                check_room(scenario, [(each.place, each.state.filled) for each in started])
            if unclean and not crashed:
                raise ConfigError(
                    f"directories: expected databases that ended cleanly, found {', '.join(unclean)}:"
                    " loadsim storage recover"
                )
            if empty and not crashed:
                tell("Filling the databases")
                await of_all(empty, "fill", tell)
            before = used_bytes(places)
            if others:
                await others.meet()
            header = TestedTerms(
                software=__version__,
                test=test,
                began=began.isoformat(timespec="seconds"),
                machine=machine_words(),
                scenario=asdict(scenario),
                databases=[(each.name, str(each.place)) for each in started],
                file_systems=sorted({file_system(FileSystem(**each)) for each in map(run_storage, places) if each}),
                survived=all(each.state.survived for each in started),
                sample_s=min(LONGEST_SAMPLE_S, max(LEAST_SAMPLE_S, scenario.duration_s / SAMPLES)),
            )
            recorder = RecordingWriter(record, header)
            end, kernel_log = End(False, False, None), KernelLog()
            try:
                if test in LOADED:
                    end = await LoadRun(scenario, started, recorder, tell, others).run()
                    recorder.add("sizes", (before, used_bytes(places)))
                if test == "recovery":
                    if not crashed:
                        end = await LoadRun(scenario, started, recorder, tell, None).run(kill=True)
                    await _recover(scenario, places, started, recorder, tell)
                elif not end.stopped:
                    await _verify(started, recorder, tell)
            except RunInvalid as failure:
                end = end._replace(failure=end.failure or str(failure))
            if (errors := kernel_log.errors()) is not None:
                recorder.add("kernel_errors", errors)
            recorder.begin("End", lambda _: None)
            recorder.add("end", end)


async def _verify(started: Sequence[Database], recorder: RecordingWriter, tell: Tell) -> bool:
    """Verify checksums and messages. Return False if a database is so damaged that it cannot be opened."""
    if any(each.state.damaged for each in started):
        opened = [Pass(0, 0.0, 0, int(bool(each.state.damaged)), (each.state.damaged,)) for each in started]
        recorder.add("checked", [asdict(each) for each in opened])
        return False
    recorder.begin("Verifying checksums", tell)
    recorder.add("checked", await of_all(started, "check", tell))
    recorder.begin("Verifying messages", tell)
    recorder.add("proved", await of_all(started, "verify", tell))
    return True


async def _recover(
    scenario: StorageScenario, places: Sequence[Path], killed: Sequence[Database], recorder: RecordingWriter, tell: Tell
) -> None:
    """Replay the logs of databases that ended uncleanly, one after the other, and verify what there is then."""
    for each in killed:
        each.channel.kill()
        await each.channel.wait()
    recorder.begin("Replaying the logs", tell)
    async with databases(scenario, places) as started:
        if not any(each.state.damaged for each in started):
            recorder.add("recovered", [await each.order("recover") for each in started])
        if await _verify(started, recorder, tell):
            await of_all(started, "accept")


def _words(samples: Iterable[Sample], sample_s: float) -> str:
    totals = summed([each["io"] for each in samples])
    iops = (totals[Io.READ].count + totals[Io.WRITE].count) / sample_s
    read, log = (duration(totals[kind].mean_ms) for kind in (Io.READ, Io.LOG_WRITE))
    return f"{iops:,.0f} reads and writes per second; reads {read}, log writes {log}"


@dataclass(slots=True)
class LoadRun:
    """The load on all databases, and the window in which its samples count."""

    scenario: StorageScenario
    started: Sequence[Database]
    recorder: RecordingWriter
    tell: Tell
    others: Others | None
    awaited: asyncio.Task[None] | None = None  # the other machines
    told_s: float = 0.0
    killed: bool = False
    stopped: bool = False
    full: bool = False
    failure: str | None = None

    async def run(self, *, kill: bool = False) -> End:
        """Load the databases until the window is over, a user ends it, or a disk is full or fails.

        `kill` the processes when the duration is over, at an instant that nothing decides.
        """
        psutil.cpu_percent()  # the first call has no figure
        self.recorder.begin("Filling the caches", self.tell)
        killing = asyncio.get_running_loop().call_later(self.scenario.duration_s, self._kill) if kill else None
        with calls_on_signal(self._interrupt):
            await asyncio.gather(*map(self._load, self.started))
        if killing:
            killing.cancel()
        end = End(self.stopped, self.full, self.failure)
        if self.awaited:
            self.awaited.cancel()
        if self.others and any(end):
            self.others.leave()
        return end

    async def _load(self, database: Database) -> None:
        """Load one database. Its end is that of the others."""
        try:
            result = await database.order("load", self._listen, sample_s=self.recorder.recording.header.sample_s)
        except RunInvalid as failure:
            if not self.killed:
                self.failure = self.failure or str(failure)
        else:
            self.recorder.add("rest", {"database": database.name, "sample": result["rest"]})
            self.full |= result["full"]
        self._end()

    def _kill(self) -> None:
        self.killed = True
        for each in self.started:
            each.channel.kill()

    def _interrupt(self) -> None:
        if self.stopped:  # again: a disk may hang
            self._kill()
        self.stopped = True
        self._end()

    def _end(self) -> None:
        for each in self.started:
            each.channel.send(b"\n")  # the end of its load; one that has ended ignores it

    def _met(self) -> bool:
        """Return True once all machines have come to this point."""
        if self.others is None:
            return True
        if self.awaited is None:
            self.awaited = asyncio.create_task(self.others.meet())
        if met := self.awaited.done():
            self.awaited = None
        return met

    def _listen(self, database: Database, message: Message) -> None:
        """Record a sample; the first database's decides on the window."""
        recording = self.recorder.recording
        self.recorder.add("sample", {"database": database.name, **message})
        if database is not self.started[0]:
            return
        self.recorder.add("host", (psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100))
        latest = {name: each[-1] for name, each in recording.samples.items()}
        if message["at_s"] - self.told_s >= EACH_S:
            self.told_s = message["at_s"]
            self.tell(f"{self.told_s:6,.0f} s  {_words(latest.values(), recording.header.sample_s)}")
        if recording.window is None:
            warm = recording.complete > 0 and all(each["warm_share"] >= WARM_SHARE for each in latest.values())
            late = message["at_s"] > max(LEAST_WARM_UP_S, self.scenario.duration_s)
            if (warm or late or self.awaited) and self._met():
                self.recorder.add("window", (len(recording.samples[database.name]), warm))
                self.recorder.begin("Measuring", self.tell)
        elif recording.complete >= recording.window[0] + recording.wanted and self._met():
            self._end()
