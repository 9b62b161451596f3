"""A storage test on this machine: fill, load and verify the databases, and record the results."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Literal

from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import locked, mode_at
from loadsim.monitor.system.filesystems import run_storage
from loadsim.processes.event_loop import run
from loadsim.report.disclosure import file_system
from loadsim.runs.directory import create_directory, dated, discard
from loadsim.storage import orders
from loadsim.storage.databases import LOG_BYTES, Database, LoadRun, Others, databases, of_all
from loadsim.storage.places import check_room, marked_places, used_bytes
from loadsim.storage.recording import RECORDING, End, Recording, RecordingWriter, Tell, TestedTerms, read_recording
from loadsim.storage.scenario import StorageScenario, check_installed
from loadsim.storage.verdict import LOADED, STRICT_S
from loadsim.timinglog.facts import FileSystem
from loadsim.version import __version__

Test = Literal["performance", "stress", "backup", "verify", "recovery"]

LONGEST_SAMPLE_S = 15.0  # the interval of the published samples
LEAST_SAMPLE_S = 1.0
SAMPLES = 30  # also in shorter tests, so that a sample's mean covers many reads
RECOVERED_BYTES = 500 << 20  # the longest log that is replayed: the 500 logs of 1 MB of the published test
CAMPAIGN = ".campaign"  # the file that marks the directory of a tuning or queue
MOST_ERRORS = 20
ERROR = 3  # RFC 5424 section 6.2.1: more urgent ones have lower numbers, other facilities higher ones


def run_test(
    scenario: StorageScenario, test: Test, out: Path | None, tell: Tell, queue: Sequence[StorageScenario] = ()
) -> Path:
    """Run a test, record it in the new directory `out` (None: one in `runs`), and return the directory.

    It may replace the stores of a `queue`. `tell` receives each part of the test as it begins, and its progress each
    minute. Raises `ConfigError` before any change, and `RunInvalid` if the databases cannot be opened or filled.
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
    """Yield the directory of several runs, new or begun earlier. Raises `ConfigError` for any other."""
    created: list[Path] = []
    if out is None or not mode_at(out / CAMPAIGN):
        out, created = create_directory(out, dated(datetime.now(UTC), name), CAMPAIGN)
    with locked(out, "--out", "storage test"):
        try:
            yield out
        finally:
            if [path.name for path in out.iterdir()] == [CAMPAIGN]:
                discard(out, created)


def run_once(
    scenario: StorageScenario, test: Test, directory: Path, run: Callable[[StorageScenario, Path], object]
) -> Recording:
    """Return a scenario's complete test on this machine from a campaign's directory, or run it."""
    for number in count(1):
        path = directory / str(number)
        if not path.exists():
            run(scenario, path)
            return read_recording(path)
        if (path / RECORDING).exists() and (path / RECORDING).stat().st_size:
            recording = read_recording(path)
            terms = recording.scenario, recording.header.test, recording.header.machine, recording.header.software
            same = terms == (scenario, _kind(scenario, test), machine_words(), __version__)
            if same and recording.end is not None and not any(recording.end):
                return recording
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
    """Run a test as `run_test` does. `record` receives the lines of its recording; `temporary` may hold the stores."""
    check_installed(scenario)
    began, test = datetime.now(UTC), _kind(scenario, test)
    log_bytes = RECOVERED_BYTES if test == "recovery" else LOG_BYTES
    with marked_places(scenario, temporary, queue) as places:
        async with databases(scenario, places, log_bytes) as started:
            test, crashed = _possible_test(scenario, test, started)
            empty = [database for database in started if not database.state.filled]
            if empty and not crashed:
                tell("Filling the databases")
                await of_all(empty, orders.FillDatabase(), tell)
            before_bytes = used_bytes(places)
            if others:
                await others.meet()
            kernel_log, recorder = KernelLog(), RecordingWriter(record, _terms(scenario, test, began, started), tell)
            end = End()
            try:
                if test in LOADED or (test == "recovery" and not crashed):
                    load = LoadRun(started, recorder, others if test in LOADED else None)
                    end = await load.run(kill=test == "recovery")
                if test in LOADED:
                    recorder.add("sizes", (before_bytes, used_bytes(places)))
                if test == "recovery":
                    await _recover(scenario, started, recorder)
                elif not end.stopped:
                    await _verify(started, recorder)
            except RunInvalid as failure:
                end = end._replace(failure=end.failure or str(failure))
            if (errors := kernel_log.errors()) is not None:
                recorder.add("kernel_errors", errors)
            recorder.log("End")
            recorder.add("end", end)


def _possible_test(scenario: StorageScenario, test: Test, started: Sequence[Database]) -> tuple[Test, bool]:
    """Return the test that the databases allow, and True if it follows a crash. Raises `ConfigError` without one."""
    if test == "verify" and not all(database.state.filled for database in started):
        raise ConfigError("directories: expected databases that were filled (loadsim storage run), found none")
    if any(database.state.damaged for database in started):
        test = "verify"  # nothing else is possible
    unclean = [database.name for database in started if database.state.filled and not database.state.clean]
    crashed = test in ("recovery", "verify") and bool(unclean)
    if test != "verify" and not crashed:  # otherwise nothing is added
        check_room(scenario, [(database.place, database.state.filled) for database in started])
    if unclean and not crashed:
        found = ", ".join(unclean)
        raise ConfigError(f"directories: expected databases that ended cleanly, found {found}: loadsim storage recover")
    return test, crashed


def _terms(scenario: StorageScenario, test: Test, began: datetime, started: Sequence[Database]) -> TestedTerms:
    systems = filter(None, (run_storage(database.place) for database in started))
    return TestedTerms(
        software=__version__,
        test=test,
        began=began.isoformat(timespec="seconds"),
        machine=machine_words(),
        scenario=asdict(scenario),
        databases=[(database.name, str(database.place)) for database in started],
        file_systems=sorted({file_system(FileSystem(**system)) for system in systems}),
        survived=all(database.state.survived for database in started),
        sample_s=min(LONGEST_SAMPLE_S, max(LEAST_SAMPLE_S, scenario.duration_s / SAMPLES)),
    )


async def _verify(started: Sequence[Database], recorder: RecordingWriter) -> bool:
    """Verify checksums and messages. Return False if a database is too damaged to be opened."""
    if any(database.state.damaged for database in started):
        damages = [database.state.damaged for database in started]
        recorder.add_passes("checked", [orders.Pass(0, 0.0, 0, int(bool(damage)), (damage,)) for damage in damages])
        return False
    recorder.begin("Verifying checksums")
    recorder.add_passes("checked", await of_all(started, orders.CheckFiles(), recorder.tell))
    recorder.begin("Verifying messages")
    recorder.add_passes("proved", await of_all(started, orders.VerifyMessages(), recorder.tell))
    return True


async def _recover(scenario: StorageScenario, killed: Sequence[Database], recorder: RecordingWriter) -> None:
    """Kill the processes, replay the logs one after another, and verify the databases."""
    for database in killed:
        database.channel.kill()
        await database.channel.wait()
    recorder.begin("Replaying the logs")
    async with databases(scenario, [database.place for database in killed]) as started:
        if not any(database.state.damaged for database in started):
            recorder.add_passes("recovered", [await database.order(orders.ReplayLog()) for database in started])
        if await _verify(started, recorder):
            await of_all(started, orders.AcceptMessages())


class KernelLog:
    """The errors that the kernel logs during a test (`Documentation/ABI/testing/dev-kmsg` in Linux)."""

    def __init__(self, device: str = "/dev/kmsg") -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)

    def errors(self) -> list[str] | None:
        """Return the first errors since the start, and close the log. None if it is unreadable or was overwritten."""
        if self._file is None:
            return None
        errors, overwritten = list[str](), False
        with suppress(BlockingIOError):  # at the end
            while len(errors) < MOST_ERRORS:
                try:
                    prefix, _, text = os.read(self._file, 8192).decode("utf-8", "replace").partition(";")
                except BrokenPipeError:  # the next read returns the oldest message that is left
                    overwritten = True
                    continue
                if int(prefix.partition(",")[0]) <= ERROR:
                    errors.append(text.partition("\n")[0])
        os.close(self._file)
        return None if overwritten and not errors else errors
