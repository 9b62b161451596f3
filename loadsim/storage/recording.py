"""The recording of a storage test, a line for each sample and result, and the figures computed from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from loadsim.campaign.runs import DAMAGED
from loadsim.errors import ConfigError
from loadsim.files import open_file
from loadsim.statistics.latency_histogram import about_ms
from loadsim.storage.orders import Pass
from loadsim.storage.scenario import StorageScenario, read_storage
from loadsim.storage.store import Io, IoTotals, summed
from loadsim.timinglog.documents import read_figures

RECORDING = "storage.jsonl"

Tell = Callable[[str], object]
"""Prints a line about progress."""

Sample = Mapping[str, Any]
"""A worker's figures for an interval (see `StoreLoad.take`)."""


@dataclass(frozen=True, slots=True)
class IoFigures:
    """The figures for one kind of input or output in the window."""

    per_s: float
    ms: float | None  # the mean
    max_ms: float | None  # the largest mean of a sample, as in the published logs
    slowest_ms: float | None  # the slowest single one
    bytes: float | None

    @classmethod
    def of(cls, totals: Sequence[IoTotals], sample_s: float) -> IoFigures:
        """Return the figures of samples of this length."""
        together = IoTotals()
        for sample in totals:
            together.add(sample)
        return cls(
            per_s=together.count / (len(totals) * sample_s) if totals else 0.0,
            ms=together.mean_ms,
            max_ms=max((mean_ms for sample in totals if (mean_ms := sample.mean_ms) is not None), default=None),
            slowest_ms=together.slowest_ns / 1e6 if together.count else None,
            bytes=together.bytes / together.count if together.count else None,
        )


@dataclass(frozen=True, slots=True)
class DatabaseFigures:
    """The figures of one database in the window, or of all."""

    name: str
    directory: str
    io: Mapping[Io, IoFigures]
    operations: Mapping[str, int]
    cpu_share: float  # the cores that its process used
    lag_p99_ms: float | None
    """The 99th percentile of its process's wait for the interpreter lock."""

    @classmethod
    def of(cls, name: str, directory: str, samples: Sequence[Sequence[Sample]], sample_s: float) -> DatabaseFigures:
        """Return the figures of samples of this length, adding up those of the same interval."""
        by_interval = [summed([sample["io"] for sample in interval]) for interval in samples]
        operations, lag, cpu_s = Counter[str](), Counter[str](), 0.0
        for sample in (sample for interval in samples for sample in interval):
            operations.update(sample["operations"])
            lag.update(sample["lag"])
            cpu_s += sample["cpu_s"]
        io = {kind: IoFigures.of([totals[kind] for totals in by_interval], sample_s) for kind in Io}
        cpu_share = cpu_s / (len(samples) * sample_s) if samples else 0.0
        return cls(name, directory, io, dict(operations), cpu_share, about_ms(lag, 99))

    @property
    def iops(self) -> float:
        return self.per_s((Io.READ, Io.WRITE))

    def per_s(self, kinds: Iterable[Io]) -> float:
        return sum(self.io[kind].per_s for kind in kinds)

    @property
    def document(self) -> dict[str, Any]:
        """The figures as JSON, such as `reads_per_s`, `read_ms`, `read_max_ms`, `read_slowest_ms`, `read_bytes`."""
        document = asdict(self)
        for kind, figures in document.pop("io").items():
            for name, value in figures.items():
                document[f"{kind}s_{name}" if name == "per_s" else f"{kind}_{name}"] = value
        return document


class TestedTerms(NamedTuple):
    """A test's terms."""

    software: str
    test: str
    began: str
    machine: str
    scenario: dict[str, Any]
    databases: list[tuple[str, str]]  # names and directories
    file_systems: list[str]  # those of the databases
    survived: bool  # as in `DatabaseState`, for all databases
    sample_s: float


class End(NamedTuple):
    """The end of the load: it was ended by a user, a file system reached its reserve, or something failed."""

    stopped: bool = False
    full: bool = False
    failure: str | None = None


@dataclass(slots=True)
class Recording:
    """Everything recorded so far. `window` has the first sample that counts, and True if the caches were full."""

    header: TestedTerms
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    rests: dict[str, list[Sample]] = field(default_factory=dict)  # the shorter sample at the end of each database
    host: list[tuple[float, float]] = field(default_factory=list)
    """The busy share of the machine's cores and the used share of its memory, by sample."""
    log: list[tuple[str, str]] = field(default_factory=list)  # the parts of the test, and when they began
    sizes: tuple[int, int] | None = None  # the bytes of all databases before and after the load
    window: tuple[int, bool] | None = None
    end: End | None = None
    checked: tuple[Pass, ...] = ()  # the checksums of all files, by database
    proved: tuple[Pass, ...] = ()  # the messages, compared with the ledger, by database
    kernel_errors: tuple[str, ...] | None = None  # None if the kernel's log cannot be read
    recovered: tuple[Pass, ...] = ()  # the logs replayed after the processes were killed, by database

    @property
    def scenario(self) -> StorageScenario:
        return read_storage(self.header.scenario)

    @property
    def wanted(self) -> int:
        """The number of samples in a whole window."""
        return max(1, round(self.scenario.duration_s / self.header.sample_s))

    @property
    def complete(self) -> int:
        """The number of samples that every database has sent."""
        return min((len(self.samples.get(name, ())) for name, _ in self.header.databases), default=0)

    @property
    def counted(self) -> range:
        """The samples in the window, the same number for each database."""
        begin = self.complete if self.window is None else self.window[0]
        return range(begin, max(begin, min(begin + self.wanted, self.complete)))

    @property
    def window_s(self) -> float:
        return self.header.sample_s * len(self.counted)

    @property
    def together(self) -> DatabaseFigures:
        return self._figures("all", "", [name for name, _ in self.header.databases])

    @property
    def databases(self) -> Sequence[DatabaseFigures]:
        return [self._figures(name, place, [name]) for name, place in self.header.databases]

    def _figures(self, name: str, place: str, databases: Sequence[str]) -> DatabaseFigures:
        samples = [[self.samples[database][at] for database in databases] for at in self.counted]
        return DatabaseFigures.of(name, place, samples, self.header.sample_s)

    def samples_of(self, name: str) -> list[Sample]:
        """Return all samples of a database, including those outside the window."""
        return [*self.samples.get(name, ()), *self.rests.get(name, ())]

    def add(self, kind: str, value: Any) -> None:
        """Add the content of a line. Raises one of `DAMAGED` for any other value."""
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
                setattr(self, kind, tuple(Pass(**document) for document in value))
            case "kernel_errors":
                self.kernel_errors = tuple(map(str, value))
            case _:
                raise ValueError(kind)


class RecordingWriter:
    """Writes a recording line by line, and keeps it. The last line contains a checksum of all others."""

    def __init__(self, write: Callable[[str], object], header: TestedTerms, tell: Tell = lambda _: None) -> None:
        self.recording = Recording(header)
        self.tell = tell
        self._write, self._checksum = write, 0
        self._put(header)

    def add(self, kind: str, value: Any) -> None:
        self.recording.add(kind, value)
        self._put([kind, value, self._checksum] if kind == "end" else [kind, value])

    def _put(self, value: object) -> None:
        line = json.dumps(value) + "\n"
        self._checksum = crc32(line.encode(), self._checksum)
        self._write(line)

    def add_passes(self, kind: str, passes: Iterable[Pass]) -> None:
        self.add(kind, [asdict(each) for each in passes])

    def log(self, part: str) -> None:
        """Record that a part of the test begins."""
        self.add("log", (datetime.now(UTC).isoformat(timespec="seconds"), part))

    def begin(self, part: str) -> None:
        """Record and print that a part of the test begins."""
        self.log(part)
        self.tell(part)


def read_recording(directory: Path) -> Recording:
    """Read a test's recording, ignoring a last line cut short by a crash. Raises `ConfigError`."""
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
