"""The recording of a storage test: what its databases told, line by line. All figures are computed from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from loadsim.campaign.runs import DAMAGED
from loadsim.errors import ConfigError
from loadsim.files import open_file
from loadsim.storage.figures import DatabaseFigures, Sample
from loadsim.storage.scenario import StorageScenario, read_storage
from loadsim.storage.store import Pass
from loadsim.timinglog.documents import read_figures

RECORDING = "storage.jsonl"


class TestedTerms(NamedTuple):
    """The terms of a test. `survived`: of all databases, as in their `DatabaseState`."""

    software: str
    test: str
    began: str
    machine: str
    scenario: dict[str, Any]
    databases: list[tuple[str, str]]  # names and directories
    file_systems: list[str]  # those of the databases
    survived: bool
    sample_s: float


class End(NamedTuple):
    """The end of the load: a user ended it, a file system reached its reserve, or something failed."""

    stopped: bool
    full: bool
    failure: str | None


@dataclass(slots=True)
class Recording:
    """All that was recorded so far. `window` is the first sample that counts, and whether the caches had their size."""

    header: TestedTerms
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    rests: dict[str, list[Sample]] = field(default_factory=dict)  # the shorter samples after the last whole ones
    host: list[tuple[float, float]] = field(default_factory=list)
    """The busy share of the machine's cores, and the used share of its memory, in each sample."""
    log: list[tuple[str, str]] = field(default_factory=list)  # the parts of the test, and when each began
    sizes: tuple[int, int] | None = None  # the bytes of all databases before and after the load
    window: tuple[int, bool] | None = None
    end: End | None = None
    checked: tuple[Pass, ...] = ()  # the checksums of all files, by database
    proved: tuple[Pass, ...] = ()  # all messages held against the ledger, by database
    kernel_errors: tuple[str, ...] | None = None  # errors that the kernel logged; None if its log cannot be read
    recovered: tuple[Pass, ...] = ()  # the logs that were replayed after the processes were killed, by database

    @property
    def scenario(self) -> StorageScenario:
        return read_storage(self.header.scenario)

    @property
    def machine(self) -> str:
        return self.header.machine.partition(",")[0]

    @property
    def wanted(self) -> int:
        """The number of samples of a whole window."""
        return max(1, round(self.scenario.duration_s / self.header.sample_s))

    @property
    def complete(self) -> int:
        """The number of samples that all databases have told."""
        return min((len(self.samples.get(name, ())) for name, _ in self.header.databases), default=0)

    @property
    def counted(self) -> range:
        """The samples of the window, as many of each database."""
        begin = self.complete if self.window is None else self.window[0]
        return range(begin, max(begin, min(begin + self.wanted, self.complete)))

    @property
    def window_s(self) -> float:
        return self.header.sample_s * len(self.counted)

    @property
    def together(self) -> DatabaseFigures:
        return self._figures("all", "", [name for name, _ in self.header.databases], self.counted)

    def told_by(self, name: str) -> list[Sample]:
        """Return all samples of a database, also those that do not count."""
        return [*self.samples.get(name, ()), *self.rests.get(name, ())]

    @property
    def databases(self) -> Sequence[DatabaseFigures]:
        counted = self.counted
        return [self._figures(name, place, [name], counted) for name, place in self.header.databases]

    def _figures(self, name: str, place: str, of: Sequence[str], counted: range) -> DatabaseFigures:
        samples = [[self.samples[each][at] for each in of] for at in counted]
        return DatabaseFigures.of(name, place, samples, self.header.sample_s)

    def add(self, kind: str, value: Any) -> None:
        """Add what a line tells. Raises one of `DAMAGED` for any other value."""
        match kind:
            case "sample":
                self.samples.setdefault(value["database"], []).append(value["sample"])
            case "rest":
                self.rests[value["database"]] = [value["sample"]]
            case "host":
                cpu_share, memory_share = map(float, value)
                self.host.append((cpu_share, memory_share))
            case "log":
                when, part = map(str, value)
                self.log.append((when, part))
            case "sizes":
                before, after = map(int, value)
                self.sizes = before, after
            case "window":
                begin, warm = value
                self.window = max(0, int(begin)), bool(warm)
            case "end":
                self.end = End(*value)
            case "checked" | "proved" | "recovered":
                setattr(self, kind, tuple(Pass(**each) for each in value))
            case "kernel_errors":
                self.kernel_errors = tuple(map(str, value))
            case _:
                raise ValueError(kind)


class RecordingWriter:
    """Writes a recording as it grows, a line at a time, and holds it. The end seals all lines with a checksum."""

    def __init__(self, write: Callable[[str], object], header: TestedTerms) -> None:
        self.recording = Recording(header)
        self._write, self._checksum = write, 0
        self._put(header)

    def add(self, kind: str, value: Any) -> None:
        self.recording.add(kind, value)
        self._put([kind, value, self._checksum] if kind == "end" else [kind, value])

    def _put(self, value: object) -> None:
        line = json.dumps(value) + "\n"
        self._checksum = crc32(line.encode(), self._checksum)
        self._write(line)

    def begin(self, part: str, tell: Callable[[str], object]) -> None:
        """Record that a part of the test begins, and tell it."""
        self.add("log", (datetime.now(UTC).isoformat(timespec="seconds"), part))
        tell(part)


def read_recording(directory: Path) -> Recording:
    """Read the recording of a test. A last line that a crash has cut is left out. Raises `ConfigError`."""
    path = directory / RECORDING
    try:
        with open_file(path) as file:
            recording = Recording(TestedTerms(*read_figures(header := file.readline())))
            assert recording.scenario
            checksum = crc32(header)
            for line in file:
                assert recording.end is None
                if line.endswith(b"\n"):
                    kind, value, *seal = read_figures(line)
                    assert seal == ([checksum] if kind == "end" else [])
                    recording.add(kind, value)
                    checksum = crc32(line, checksum)
            assert recording.databases is not None
    except OSError as failure:
        raise ConfigError(f"{path}: expected a storage test, found: {failure.strerror}") from None
    except (*DAMAGED, AssertionError):
        raise ConfigError(f"{path}: expected a storage test, found something else") from None
    return recording
