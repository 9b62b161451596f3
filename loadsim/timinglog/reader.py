"""Reading timing logs, of one engine or of many; the records may exceed memory.

`read_log` returns a `TimingLog`, on which truncate, merge, the score and the exports work; `write_log` writes it to a
file. `writer` is the counterpart of engines, and `container` describes the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.model.partition import Assignment
from loadsim.timinglog import container
from loadsim.timinglog.columns import Columns, concatenate
from loadsim.timinglog.file import GROUP_RECORDS, LogFile, open_log
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.records import GIVEN_UP, KINDS, MAKERS, Records, block_of
from loadsim.timinglog.streams import FileStream, Stream, ahead

_BLOCK_RECORDS = 16_384
_BLOCK_SAMPLES = 1024

NEARLY_ALL = 0.95
"""The share of the drain time that counts as all of it; clocks that are compared differ by far less."""

PREPARED = "prepared"
"""The fact in the log of a machine that prepared mailboxes."""

MONITOR = "monitor"
"""Header key of the file of `loadsim monitor`: its name. Fact of its source in a merged log: its place on the axis."""

WHOLE_RECORDS = 1 << 21
"""The most records of a kind that stay in memory after their first use. More are read in parts each time."""


@dataclass(frozen=True, slots=True)
class Source:
    """One engine of a log, with its facts.

    It ran `users` users; `assignment` says which, None if unknown. `wall_clock_start` (ISO 8601) is the time of day at
    the instant `epoch_ns` of the engine's clock.
    """

    run: str
    client: str
    engine: str
    users: int
    wall_clock_start: str
    epoch_ns: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    assignment: Assignment | None = None

    @property
    def ended(self) -> bool:
        """Return whether the engine reached the end of the run; then its log is whole."""
        return "ended" in self.facts and self.facts["ended"] != GIVEN_UP

    @property
    def given_up_why(self) -> str | None:
        return self.facts.get("given_up_why")

    @property
    def watched_long_us(self) -> int | None:
        """Return the last instant after which the engine waited for the whole drain time, from the common start.

        Mail that was accepted until then had time to arrive. None if the engine did not wait, or does not say so."""
        if not self.facts.keys() >= {"start_ns", "watched_until_ns", "drain_s"}:
            return None
        until_us = (self.facts["watched_until_ns"] - self.facts["start_ns"]) // 1000
        return int(until_us - self.facts["drain_s"] * 1e6 * NEARLY_ALL)

    @property
    def started(self) -> bool:
        """Return whether the log lasts to the common start."""
        return "start_ns" in self.facts

    @property
    def began_late_ms(self) -> float | None:
        """Return how late after the common start, by its own clock, the engine began; None if unknown."""
        if not self.facts.keys() >= {"start_ns", "began_ns"}:
            return None
        return float(self.facts["began_ns"] - self.facts["start_ns"]) / 1e6

    @property
    def simulates(self) -> bool:
        """Return whether the engine ran users; the log of a machine that was only observed has none."""
        return self.users > 0

    @property
    def is_monitor(self) -> bool:
        """Return whether this is the file of `loadsim monitor`, which is no part of a run."""
        return MONITOR in self.facts

    @property
    def observes(self) -> bool:
        """Return whether this is the log of a client machine, next to those of its engines."""
        return not self.simulates and not self.is_monitor


@dataclass(frozen=True)
class TimingLog:
    """The log of one engine or of many: a merged log is a log.

    Instants are microseconds from the common start of the run (t = 0), or from the epoch of an engine that ended
    before it. `streams` has the records by kind (the keys of `KINDS`): `NAMED_TASK`, `NAMED_MAIL` and `NAMED_COMMAND`.
    `damages` describes the unreadable part of each file.
    """

    header: Mapping[str, Any]
    sources: tuple[Source, ...]
    strings: tuple[str, ...]
    streams: Mapping[str, Stream]
    health: tuple[Sample, ...] = ()
    damages: tuple[str, ...] = ()

    @cached_property
    def tasks(self) -> Records:
        """Return all tasks in memory. Use `parts` or `pieces` for logs that may exceed it."""
        return self._whole("tasks")

    @cached_property
    def mails(self) -> Records:
        return self._whole("mails")

    @cached_property
    def commands(self) -> Records:
        return self._whole("commands")

    def parts(self, kind: str) -> Iterator[Records]:
        """Yield the records of a kind in the order of the log, read-only.

        Records in memory are one part. Otherwise a thread reads the next part while the caller uses one.
        """
        if kind in vars(self):
            return iter((getattr(self, kind),))
        return ahead(part.records() for part in self.streams[kind].parts())

    def pieces(self, kind: str) -> Iterator[Columns]:
        """Yield the records of a kind by columns and in any order, which is faster than `parts`.

        Up to `WHOLE_RECORDS` records stay in memory for the next call; of more, two pieces at a time do.
        """
        if self.streams[kind].count > WHOLE_RECORDS:
            return ahead(self.streams[kind].pieces())
        whole: Records = getattr(self, kind)
        begins = range(0, max(len(whole), 1), GROUP_RECORDS)
        return (Columns(KINDS[kind], whole[begin : begin + GROUP_RECORDS]) for begin in begins)

    def _whole(self, kind: str) -> Records:
        return concatenate(self.streams[kind].parts(), KINDS[kind], self.streams[kind].count)

    @property
    def monitor(self) -> str | None:
        """Return the name of the monitor whose file this is; None for logs of runs, also with monitors in them."""
        return self.header.get(MONITOR)

    def names(self, records: Records, name: str) -> NDArray[np.str_]:
        """Return the names in a field of records of this log."""
        return np.asarray(np.array(self.strings, dtype=np.str_)[records[name]])


def read_log(path: Path) -> TimingLog:
    """Read a timing log up to its last whole block. Raises `LogError` for another file, or a damaged head."""
    return log_of(open_log(path))


def log_of(file: LogFile) -> TimingLog:
    """Return the log of a file. Records are read on demand."""
    header = {key: value for key, value in file.header.items() if key not in ("sources", "damages")}
    if "sources" in file.header:
        sources, health = tuple(map(_read_source, file.header["sources"])), file.health
    else:
        sources, health = (_source_of(header, file.facts),), [_placed(file, sample) for sample in file.health]
    numbers = {name: number for number, name in enumerate(file.strings)}
    makers = tuple(numbers.get(getattr(sources[0], maker), 0) for maker in MAKERS)
    return TimingLog(
        header=header,
        sources=sources,
        strings=file.strings,
        streams={
            name: FileStream(file.path, kind, file.indices[name], file.origin_us, makers)
            for name, kind in KINDS.items()
        },
        health=tuple(health),
        damages=(*file.header.get("damages", ()), *filter(None, [file.damage])),
    )


def _placed(file: LogFile, sample: Sample) -> Sample:
    """Add `at_s`, seconds from the common start, to a sample with a time."""
    if "at_ns" not in sample:
        return sample
    return sample.placed((sample["at_ns"] - file.header["epoch_ns"]) / 1e9 - file.origin_us / 1e6)


def read_each(paths: Sequence[Path]) -> list[TimingLog]:
    """Read several logs in parallel, one on each processor."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(read_log, paths))


def _source_of(header: Mapping[str, Any], facts: Mapping[str, Any]) -> Source:
    users = int(header.get("engine_users", header.get("users", 0)))
    return Source(
        run=str(header.get("run", "")),
        client=str(header.get("client", "")),
        engine=str(header.get("engine", "")),
        users=users,
        wall_clock_start=str(header.get("wall_clock_start", "")),
        epoch_ns=int(header["epoch_ns"]),
        facts=facts,
        assignment=_assignment_of(header),
    )


def _assignment_of(about: Mapping[str, Any]) -> Assignment | None:
    """Return the users of an engine (key `hand`)."""
    return Assignment(**about["hand"]) if about.get("hand") else None


def _read_source(about: Mapping[str, Any]) -> Source:
    """Read a source from the header of a merged log."""
    rest = {key: value for key, value in about.items() if key != "hand"}
    return Source(**rest, assignment=_assignment_of(about))


def write_log(log: TimingLog, path: Path) -> None:
    """Write a log that was read, truncated or merged to a new file. Raises `LogError` if the file exists.

    A failure removes the file, which would look like a damaged log.
    """
    made = written = False
    try:
        with path.open("xb") as file:
            made = True
            _write(log, file)
        written = True
    except OSError as failure:
        found = failure.strerror or failure
        raise LogError(f"{path}: expected to write a new timing log, found: {found}") from None
    finally:
        if made and not written:
            path.unlink(missing_ok=True)


def _write(log: TimingLog, file: BinaryIO) -> None:
    sources = [
        {"hand" if key == "assignment" else key: value for key, value in asdict(source).items()}
        for source in log.sources
    ]
    header = {**log.header, "format": container.VERSION, "epoch_ns": 0, "sources": sources, "damages": log.damages}
    file.write(container.encode_head(header))
    file.write(container.encode_json(container.STRINGS, list(log.strings[1:])))
    for name, kind in KINDS.items():
        for part in log.parts(name):
            for block in np.array_split(part, -(-len(part) // _BLOCK_RECORDS)) if len(part) else ():
                file.writelines(block_of(kind, block))
    for begin in range(0, len(log.health), _BLOCK_SAMPLES):
        samples = [dict(sample) for sample in log.health[begin : begin + _BLOCK_SAMPLES]]
        file.write(container.encode_json(container.HEALTH, samples))
