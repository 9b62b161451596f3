"""Reading the timing logs of one or more engines; the records may exceed memory.

`read_log` returns a `TimingLog`, on which merging, scoring and exports work. `writer` is the engines' counterpart;
`container` describes the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.model.partition import Assignment
from loadsim.timinglog.audited import AuditRecord
from loadsim.timinglog.columns import Columns, Stream, concatenate
from loadsim.timinglog.facts import LogFacts
from loadsim.timinglog.file import LogFile, open_log
from loadsim.timinglog.header import LogHeader
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.records import GIVEN_UP, KINDS, MAKERS, Records

NEARLY_ALL = 0.95
"""The share of the drain time that counts as all of it; the clocks compared differ by far less."""

WHOLE_RECORDS = 1 << 21
"""The most records of a kind that stay in memory after their first use. Larger numbers are read in parts each time."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a monitor's file lies on a run's time axis.

    `error_ms` bounds the error in this, going by the clocks: 0 for monotonic clocks on one machine; None if unknown.
    `span_s` is the whole file's span, in seconds from the common start.
    """

    error_ms: float | None
    span_s: tuple[float, float] | None
    damages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """One of a log's engines, with its facts.

    It ran `users` users; `assignment` says which, None if unknown. `wall_clock_start` (ISO 8601) is the time of day
    when the engine's clock showed `epoch_ns`. `monitor` places a monitor's file on the merged log's time axis; None for
    other sources.
    """

    run: str
    client: str
    engine: str
    users: int
    wall_clock_start: str
    epoch_ns: int
    facts: LogFacts
    assignment: Assignment | None = None
    monitor: Placement | None = None
    is_damaged: bool = False

    @property
    def maker(self) -> tuple[str, ...]:
        """The values of `MAKERS`, shared by all of the source's samples."""
        return self.client, self.engine, self.run

    @property
    def ended(self) -> bool:
        """True if the engine reached the end of the run, so that its log is complete."""
        return self.facts.ended not in (None, GIVEN_UP)

    @property
    def watched_long_us(self) -> int | None:
        """The last instant, from the common start, after which the engine waited for the whole drain time.

        Mail accepted by then had time to arrive. None if the engine did not wait, or does not say so.
        """
        facts = self.facts
        if facts.start_ns is None or facts.watched_until_ns is None or facts.drain_s is None:
            return None
        until_us = (facts.watched_until_ns - facts.start_ns) // 1000
        return int(until_us - facts.drain_s * 1e6 * NEARLY_ALL)

    @property
    def started(self) -> bool:
        """True if the engine reached the common start."""
        return self.facts.start_ns is not None

    @property
    def zero_wall_ns(self) -> int | None:
        """The time of day at the log's t = 0, in nanoseconds since 1970, by its wall clock; None if unknown."""
        try:
            begun = datetime.fromisoformat(self.wall_clock_start)
        except ValueError:
            return None
        begun = begun if begun.tzinfo else begun.replace(tzinfo=UTC)
        passed_ns = 0 if self.facts.start_ns is None else self.facts.start_ns - self.epoch_ns
        return round(begun.timestamp() * 1e6) * 1000 + passed_ns

    @property
    def began_late_ms(self) -> float | None:
        """The time from the common start to the engine's own start, by its clock; None if unknown."""
        if self.facts.start_ns is None or self.facts.began_ns is None:
            return None
        return (self.facts.began_ns - self.facts.start_ns) / 1e6

    @property
    def simulates(self) -> bool:
        """True if the engine ran users; a machine that was only observed has none."""
        return self.users > 0

    @property
    def is_monitor(self) -> bool:
        """True for a file from `loadsim monitor` in a merged log; it is not part of the run."""
        return self.monitor is not None

    @property
    def observes(self) -> bool:
        """True for a client machine's own log, which exists alongside its engines' logs."""
        return not self.simulates and not self.is_monitor


@dataclass(frozen=True, slots=True)
class TimingLog:
    """The log of one engine, or of many if it is merged.

    Instants are microseconds from the run's common start (t = 0), or from the epoch of an engine that ended before it.
    `streams` has the records by kind (the keys of `KINDS`), with a stream for each file. `damages` describes the
    unreadable part of each file. `audit` comes from the run directory, if it has one.
    """

    header: LogHeader
    sources: tuple[Source, ...]
    strings: tuple[str, ...]
    streams: Mapping[str, Sequence[Stream]]
    health: tuple[Sample, ...] = ()
    damages: tuple[str, ...] = ()
    audit: AuditRecord | None = None
    _held: dict[str, Sequence[Columns]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def pieces(self, kind: str) -> Iterator[Columns]:
        """Yield the records of a kind in columns, file by file, in each engine's order.

        Up to `WHOLE_RECORDS` records stay in memory for the next call; beyond that, only one piece at a time.
        """
        if kind in self._held:
            return map(replace, self._held[kind])  # without the converted columns
        streams = self.streams[kind]
        pieces = chain.from_iterable(stream.pieces() for stream in streams)
        if sum(stream.count for stream in streams) > WHOLE_RECORDS:
            return pieces
        self._held[kind] = tuple(pieces)
        return map(replace, self._held[kind])

    @property
    def tasks(self) -> Records:
        """All tasks, held in memory, in the order of `pieces`."""
        return self._records("tasks")

    @property
    def mails(self) -> Records:
        return self._records("mails")

    @property
    def commands(self) -> Records:
        return self._records("commands")

    def _records(self, kind: str) -> Records:
        return concatenate(self.pieces(kind), KINDS[kind], sum(stream.count for stream in self.streams[kind]))

    @property
    def monitor(self) -> str | None:
        """The monitor's name if this is a monitor's file; None for runs' logs, even if they include monitors."""
        return self.header.monitor

    def names(self, records: Records, name: str) -> NDArray[np.str_]:
        return np.asarray(np.array(self.strings, dtype=np.str_)[records[name]])


def read_log(path: Path) -> TimingLog:
    """Read a timing log up to its last whole block. Raises `LogError` for other files, or if the head is damaged."""
    return log_of(open_log(path))


def log_of(file: LogFile) -> TimingLog:
    source = replace(_source_of(file.header, file.facts), is_damaged=file.damage is not None)
    makers = tuple(file.strings.index(name) for name in source.maker)
    whose = dict(zip(MAKERS, source.maker, strict=True))
    return TimingLog(
        header=file.header,
        sources=(source,),
        strings=file.strings,
        streams={
            name: (Stream(file.path, kind, file.groups[name], makers, -file.origin_us),) for name, kind in KINDS.items()
        },
        health=tuple(sample.placed(_at_s(file, sample), whose) for sample in file.health),
        damages=tuple(filter(None, [file.damage])),
    )


def _at_s(file: LogFile, sample: Sample) -> float | None:
    """Return a sample's time in seconds from the common start; None if it has none."""
    return (sample.at_ns - file.header.epoch_ns) / 1e9 - file.origin_us / 1e6 if "at_ns" in sample else None


def read_each(paths: Sequence[Path]) -> list[TimingLog]:
    """Read several logs in parallel, one per processor."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(read_log, paths))


def _source_of(header: LogHeader, facts: LogFacts) -> Source:
    return Source(
        run=header.run,
        client=header.client,
        engine=header.engine,
        users=header.users if header.engine_users is None else header.engine_users,
        wall_clock_start=header.wall_clock_start,
        epoch_ns=header.epoch_ns,
        facts=facts,
        assignment=header.hand,
    )
