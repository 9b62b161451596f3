"""The timing log as it is read: of one engine or of many, and whether its records would fit into memory or not.

`read_log` gives a `TimingLog`, the one value that truncate, merge, the score and the exports work on; `write_log` makes
a file of such a value again. What engines write is in `writer`, the bytes are described in `container`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.model.partition import Assignment, Slice, slice_of
from loadsim.timinglog import container
from loadsim.timinglog.atomic_file import new_file
from loadsim.timinglog.columns import Columns, concatenate
from loadsim.timinglog.file import GROUP_RECORDS, LogFile, open_log
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.records import GIVEN_UP, KINDS, MAKERS, Records, block_of
from loadsim.timinglog.streams import EVER, FileStream, Span, Stream, ahead

_BLOCK_RECORDS = 16_384
_BLOCK_SAMPLES = 1024

NEARLY_ALL = 0.95
"""Of the time for which mail is waited for: clocks that are compared agree far better."""

WHOLE_RECORDS = 1 << 21
"""So many records of a kind are kept in memory for the next question; of more, only a part is there, at any time."""


@dataclass(frozen=True, slots=True)
class Source:
    """One engine that took part, and what it said about itself.

    It ran this many `users`, those in its `hand`; None: the log does not say who they are. `wall_clock_start` (ISO
    8601) is the time of day at the instant `epoch_ns` of the engine's clock. `slice` is what its machine had of a run
    that several made by hand.
    """

    run: str
    client: str
    engine: str
    users: int
    wall_clock_start: str
    epoch_ns: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    hand: Assignment | None = None
    slice: Slice | None = None

    @property
    def ended(self) -> bool:
        """Whether the engine lived to the run's end; then its log is whole."""
        return "ended" in self.facts and self.facts["ended"] != GIVEN_UP

    @property
    def given_up_why(self) -> str | None:
        """Why it ended without the others, if it lived to say so; else None."""
        return self.facts.get("given_up_why")

    @property
    def watched_long_us(self) -> int | None:
        """Mail that was accepted until then, in microseconds from the common start, was waited for as long as the
        scenario wants it; None for an engine that did not wait, or does not say."""
        if not self.facts.keys() >= {"start_ns", "watched_until_ns", "drain_s"}:
            return None
        until_us = (self.facts["watched_until_ns"] - self.facts["start_ns"]) // 1000
        return int(until_us - self.facts["drain_s"] * 1e6 * NEARLY_ALL)

    @property
    def started(self) -> bool:
        """Whether the common start had come when the log ended."""
        return "start_ns" in self.facts

    @property
    def began_late_ms(self) -> float | None:
        """How long after the common start, by its own clock, it began with the work; None where it does not say so."""
        if not self.facts.keys() >= {"start_ns", "began_ns"}:
            return None
        return float(self.facts["began_ns"] - self.facts["start_ns"]) / 1e6

    @property
    def simulates(self) -> bool:
        """Whether users were simulated; the log of a machine that was only watched has none."""
        return self.users > 0


@dataclass(frozen=True)
class TimingLog:
    """The log of one engine or of many: a merged log is a log.

    Instants are microseconds from the common start of the run (t = 0); those of an engine that did not live to see it
    count from its own epoch. `streams` has the records by kind (the keys of `KINDS`): `NAMED_TASK`, `NAMED_MAIL` and
    `NAMED_COMMAND`. `damages` says, file by file, what could not be read.
    """

    header: Mapping[str, Any]
    sources: tuple[Source, ...]
    strings: tuple[str, ...]
    streams: Mapping[str, Stream]
    health: tuple[Sample, ...] = ()
    damages: tuple[str, ...] = ()

    @cached_property
    def tasks(self) -> Records:
        """All tasks, in memory. What may have to do with more than fit takes `parts` or `pieces`."""
        return self._whole("tasks")

    @cached_property
    def mails(self) -> Records:
        """All events of messages, in memory."""
        return self._whole("mails")

    @cached_property
    def commands(self) -> Records:
        """All protocol commands, in memory."""
        return self._whole("commands")

    def parts(self, kind: str, span: Span = EVER) -> Iterator[Records]:
        """The records of a kind, or of a span of time, in the order of the log; not to be changed.

        If they are all in memory, they are one part; else two parts are at a time, the second of which is being made.
        """
        if span == EVER and kind in vars(self):
            return iter((getattr(self, kind),))
        return ahead(part.records() for part in self.streams[kind].parts(span))

    def pieces(self, kind: str) -> Iterator[Columns]:
        """The same by their columns, and in any order: what depends on neither order nor whole records is faster so.

        Few are all in memory from then on, for there will be other questions; of many, two pieces at a time are.
        """
        if self.streams[kind].count > WHOLE_RECORDS:
            return ahead(self.streams[kind].pieces())
        whole: Records = getattr(self, kind)
        begins = range(0, max(len(whole), 1), GROUP_RECORDS)
        return (Columns(KINDS[kind], whole[begin : begin + GROUP_RECORDS]) for begin in begins)

    def _whole(self, kind: str) -> Records:
        return concatenate(self.streams[kind].parts(), KINDS[kind], self.streams[kind].count)

    @property
    def facts(self) -> dict[str, Any]:
        """All engines' facts together; where they differ, the last engine's."""
        return {key: value for source in self.sources for key, value in source.facts.items()}

    @property
    def started(self) -> bool:
        """Whether every engine came to the common start."""
        return all(source.started for source in self.sources)

    @property
    def damage(self) -> str | None:
        """What could not be read, or None."""
        return "; ".join(self.damages) or None

    def names(self, records: Records, name: str) -> NDArray[np.str_]:
        """The names that stand in one field of records of this log."""
        named: NDArray[np.str_] = np.array(self.strings, dtype=np.str_)[records[name]]
        return named


def read_log(path: Path) -> TimingLog:
    """Read a timing log up to its last whole block. Raises `LogError` when it is none, or damaged at its head."""
    return log_of(open_log(path))


def log_of(file: LogFile) -> TimingLog:
    """The log that a file holds; its records stay there until they are asked for."""
    header = {key: value for key, value in file.header.items() if key not in ("sources", "damages")}
    if "sources" in file.header:
        sources, health = _sources_of(file.path, file.header["sources"]), file.health
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
    """A sample of an engine's health with `at_s`, seconds from the common start, if it says when it was."""
    if "at_ns" not in sample:
        return sample
    return sample.placed((sample["at_ns"] - file.header["epoch_ns"]) / 1e9 - file.origin_us / 1e6)


def read_each(paths: Sequence[Path]) -> list[TimingLog]:
    """Read several logs, as many at a time as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as beside:
        return list(beside.map(read_log, paths))


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
        hand=_hand_of(header, users),
        slice=slice_of(header),
    )


def _hand_of(about: Mapping[str, Any], users: int) -> Assignment | None:
    """Who the users of an engine were. Before there were hands, they were consecutive ones, from `first_user` on."""
    if about.get("hand"):
        return Assignment(**about["hand"])
    first = int(about.get("first_user") or 0)
    return Assignment(first + users - 1, 1, first, first + users) if first else None


def _source_again(about: Mapping[str, Any]) -> Source:
    """One of the sources of a merged log, as it was written."""
    rest = {key: value for key, value in about.items() if key not in ("hand", "first_user", "slice")}
    return Source(**rest, hand=_hand_of(about, about["users"]), slice=slice_of(about))


def _sources_of(path: Path, found: object) -> tuple[Source, ...]:
    try:
        sources = tuple(map(_source_again, found)) if isinstance(found, list) else ()
    except (AttributeError, KeyError, TypeError):
        sources = ()
    if not sources:
        raise LogError(f"{path}: sources: expected the engines of a merged log, found {str(found)[:80]}")
    return sources


def write_log(log: TimingLog, path: Path) -> None:
    """Write a log that was read, truncated or merged to a new file. Raises `LogError` when there is one already.

    What could be written only in part is removed: it would look like a log that was damaged.
    """
    sources = [asdict(source) for source in log.sources]
    header = {**log.header, "format": container.VERSION, "epoch_ns": 0, "sources": sources, "damages": log.damages}
    with new_file(path, "timing log") as file:
        file.write(container.encode_head(header))
        file.write(container.encode_json(container.STRINGS, list(log.strings[1:])))
        for name, kind in KINDS.items():
            for part in log.parts(name):
                for block in np.array_split(part, -(-len(part) // _BLOCK_RECORDS)) if len(part) else ():
                    file.writelines(block_of(kind, block))
        for begin in range(0, len(log.health), _BLOCK_SAMPLES):
            samples = [dict(sample) for sample in log.health[begin : begin + _BLOCK_SAMPLES]]
            file.write(container.encode_json(container.HEALTH, samples))
