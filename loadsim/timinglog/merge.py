"""Merge several logs into one, and truncate a log to a window, like LsLog's functions of these names.

Both return a `TimingLog`, and their order does not matter. Both are lazy: records are read on demand, and sorted one
slice of time after the other, so logs may be larger than memory.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.model.records import GENERATOR, NO_SESSION
from loadsim.model.terms import CANONICAL, WITHOUT_WINDOW, Window
from loadsim.timinglog.columns import Columns, concatenate
from loadsim.timinglog.compatibility import check_compatible, identity
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.log_schema import LONGEST_S
from loadsim.timinglog.monitors import parted, run_start, with_monitors
from loadsim.timinglog.reader import Source, TimingLog, read_each
from loadsim.timinglog.records import KINDS, MAKERS, NAMES, OUTCOME, Kind, Records, chosen, placed_us
from loadsim.timinglog.streams import Stream
from loadsim.timinglog.writer import MOST_NAMES, OTHER

LSLOG_WINDOW_S = Window(3600.0, 14400.0)
"""LsLog's default window in seconds: from 1:00 to 4:00 after the start."""

PLANNED_LOAD = "planned_load"
"""Header key of the load of the plan (`planned_load.PlannedLoad`); None or missing if unknown."""

SLICE_RECORDS = 32_768
"""The approximate number of records that are sorted at a time: enough for numpy, and few enough for the processor's
cache, in which everything is several times as fast."""

FARTHEST_US = 1 << 62
"""An instant beyond that of any record, also after a shift."""

OF_ONE_ENGINE = ("client", "engine", "engine_users", "hand", "epoch_ns", "wall_clock_start")
"""Header keys that a merged log has in its sources only."""


def find_logs(arguments: Sequence[str | Path]) -> list[Path]:
    """Return the log files of files, patterns, and run directories (`DIR/logs/*.tlog`, or `DIR/*.tlog`).

    Each file appears once, sorted by its path. Raises `LogError` for an argument without a file.
    """
    found: dict[Path, Path] = {}
    for argument in arguments:
        path = Path(argument)
        try:
            if path.is_dir():
                paths = list(path.glob("logs/*.tlog")) or list(path.glob("*.tlog"))
            elif path.exists():
                paths = [path]
            else:
                paths = list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
            if not paths and path.is_dir():
                os.scandir(path).close()
        except PermissionError as failure:
            raise LogError(
                f"{argument}: expected a run directory that can be read, found: {failure.strerror}"
            ) from None
        except (OSError, ValueError):  # a name that is too long, or no pattern
            paths = []
        if not paths:
            found_words = _found_instead(argument, path)
            raise LogError(
                f"{argument}: expected a timing log or a run directory with logs/*.tlog, found {found_words}"
            )
        found |= {Path(os.path.realpath(path)): path for path in paths}  # `Path.resolve` raises for links in a circle
    return [found[path] for path in sorted(found)]


MOST_NAMED = 3
"""The most runs in a directory that an error names."""


def _found_instead(argument: str | Path, path: Path) -> str:
    """Return what an argument without logs is: missing, or a directory, of which the newest runs by name are named."""
    with suppress(OSError, ValueError):
        if path.is_dir():
            runs = sorted({str(log.parent.parent) for log in path.glob("*/logs/*.tlog")}, reverse=True)
            more = f", and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
            return f"none; runs in it: {', '.join(runs[:MOST_NAMED])}{more}" if runs else "none"
    return "none" if re.search(r"[*?[]", str(argument)) else "no such file or directory"


def window_of(log: TimingLog) -> Window:
    """Return the window [begin, end) of the log's header in seconds, or else LsLog's."""
    window = log.header.get("window_s")
    return Window(float(window[0]), float(window[1])) if window else LSLOG_WINDOW_S


def mode_of(log: TimingLog) -> str:
    """Return `CANONICAL` or `STRESS`; older logs without a mode are canonical."""
    return str(log.header.get("mode", CANONICAL))


def in_window(instants_us: NDArray[np.int64], window_s: Window) -> NDArray[np.bool_]:
    """Return a mask of the instants in [begin, end)."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    return np.asarray((instants_us >= begin_us) & (instants_us < end_us))


def check_window(log: TimingLog, window_s: Window) -> None:
    """Raise `LogError` for a window that is empty, or exceeds the run or an earlier truncation.

    Rates over such a window would include time without load.
    """
    begin_s, end_s = window_s
    if not (math.isfinite(begin_s) and math.isfinite(end_s)):
        raise LogError(f"window: expected finite instants, found {begin_s:g} s to {end_s:g} s")
    if not round(begin_s * 1_000_000) < round(end_s * 1_000_000):
        raise LogError(f"window: expected a begin before its end, found {begin_s:g} s to {end_s:g} s")
    if max(-begin_s, end_s) > LONGEST_S:
        raise LogError(f"window: expected one within {LONGEST_S} s of the start, found {begin_s:g} s to {end_s:g} s")
    kept = log.header.get("truncated_s")
    if kept and (begin_s < kept[0] or end_s > kept[1]):
        raise LogError(
            f"window: expected one within {kept[0]:g} s to {kept[1]:g} s, to which the log was truncated,"
            f" found {begin_s:g} s to {end_s:g} s"
        )
    lasted_s = log.header.get("duration_s")
    if lasted_s and round(end_s - lasted_s, 6) > 0:
        raise LogError(f"window: expected an end within the run's {lasted_s:g} s, found {end_s:g} s")


def truncate(log: TimingLog, window_s: Window) -> TimingLog:
    """Return the tasks that were due and the commands that started in the window.

    The truncated log has the same summary as this window of the whole log. So it keeps four kinds of records of the
    whole run. LOGON and LOGOFF have no window. Times without a session may begin before the window and last into it.
    Tasks in which the generator failed make the run invalid. Mail may be seen after the window.
    """
    check_window(log, window_s)
    without_window = np.isin(np.array(log.strings), (*WITHOUT_WINDOW, NO_SESSION))

    def of_window(tasks: Columns) -> NDArray[np.bool_]:
        always = without_window[tasks["task"]] | (tasks["outcome"] == OUTCOME[GENERATOR])
        return np.asarray(always | in_window(tasks["scheduled_us"], window_s))

    def begun_in_window(commands: Columns) -> NDArray[np.bool_]:
        return in_window(commands["started_us"], window_s)

    return replace(
        log,
        header={**log.header, "window_s": list(window_s), "truncated_s": list(window_s)},
        streams={
            **log.streams,
            "tasks": _kept(log.streams["tasks"], of_window),
            "commands": _kept(log.streams["commands"], begun_in_window),
        },
    )


def _kept(of: Stream, condition: Callable[[Columns], NDArray[np.bool_]]) -> Stream:

    def kept(columns: Columns) -> Columns:
        meets = condition(columns)
        return columns if meets.all() else columns.kept(meets)

    return _Changed(of, kept)


@dataclass(frozen=True, slots=True)
class _Changed:
    """A stream whose parts are changed by a function, which makes them later by `shift_us`."""

    of: Stream
    change: Callable[[Columns], Columns]
    shift_us: int = 0

    @property
    def count(self) -> int:
        return self.of.count

    @property
    def sample_us(self) -> NDArray[np.int64]:
        return self.of.sample_us + self.shift_us

    def pieces(self) -> Iterator[Columns]:
        return map(self.change, self.of.pieces())

    def parts(self) -> Iterator[Columns]:
        return map(self.change, self.of.parts())

    def slices(self, bounds_us: Sequence[int]) -> Iterator[list[Columns]]:
        for found in self.of.slices([bound_us - self.shift_us for bound_us in bounds_us]):
            yield [self.change(part) for part in found]


def merge(logs: Sequence[TimingLog]) -> TimingLog:
    """Return one log of all records of a run in time order (see `in_time_order`), with its names in alphabetical order.

    The common start of the run is t = 0 for all of its engines. An engine that never reached it is placed by the wall
    clock.

    The files of `loadsim monitor` among them are no logs of engines: their samples are placed on the same axis.

    Raises `LogError` for no logs, and for those that are not of one run (see `compatibility`).
    """
    if not logs:
        raise LogError("merge: expected at least one timing log, found none")
    logs, monitors = parted(logs)
    logs = sorted(logs, key=lambda log: min(map(identity, log.sources)))
    check_compatible(logs)
    # Renumber the names, and move the instants.
    strings = _all_names(logs)
    numbers = {name: index for index, name in enumerate(strings)}
    other = numbers[OTHER]
    renumbers = [
        None if log.strings == strings else np.array([numbers.get(name, other) for name in log.strings], np.uint16)
        for log in logs
    ]
    shifts_us = _shifts_us(logs)
    moves = list(zip(logs, renumbers, shifts_us, strict=True))
    # Make one header.
    header = {key: value for key, value in logs[0].header.items() if key not in OF_ONE_ENGINE}
    if loads := [log.header[PLANNED_LOAD] for log in logs if log.header.get(PLANNED_LOAD)]:
        header[PLANNED_LOAD] = loads[0] if all(load == loads[0] for load in loads) else None
    merged = TimingLog(
        header=header,
        sources=tuple(sorted((source for log in logs for source in log.sources), key=identity)),
        strings=strings,
        streams={
            name: _Merged(
                kind,
                tuple(
                    _Changed(log.streams[name], methodcaller("moved", renumber, shift_us), shift_us)
                    for log, renumber, shift_us in moves
                ),
            )
            for name, kind in KINDS.items()
        },
        health=_all_health(logs, shifts_us),
        damages=tuple(sorted({damage for log in logs for damage in log.damages})),
    )
    if not monitors:
        return merged
    return with_monitors(merged, monitors, run_start(merged.sources, float(header.get("duration_s") or math.inf)))


def read_logs(arguments: Sequence[str | Path]) -> TimingLog:
    return merge(read_each(find_logs(arguments)))


def _all_names(logs: Sequence[TimingLog]) -> tuple[str, ...]:
    """Return the empty name, then all names in alphabetical order; of too many, `OTHER` replaces kinds of error."""
    kept = {OTHER}.union(*(log.strings for log in logs)) - {""}
    if len(kept) >= MOST_NAMES:
        errors = _names_in(logs, ("error",))
        kept = {OTHER} | _names_in(logs, [name for name in NAMES if name != "error"]) - {""}
        kept.update(sorted(errors - kept - {""})[: max(0, MOST_NAMES - 1 - len(kept))])
    return ("", *sorted(kept))


def _names_in(logs: Sequence[TimingLog], fields: Sequence[str]) -> set[str]:
    found = set[str]()
    for log in logs:
        for kind, record in KINDS.items():
            named = [field for field in fields if field in (record.named.names or ())]
            occurs = np.zeros(len(log.strings), np.bool_)
            for records in log.pieces(kind) if named else ():
                for field in named:
                    occurs[records[field]] = True
            found.update(log.strings[number] for number in np.flatnonzero(occurs))
    return found


def _all_health(logs: Sequence[TimingLog], shifts_us: Sequence[int]) -> tuple[Sample, ...]:
    """Return all samples with their makers, moved as the records, in time order; those without a time come first."""
    samples = []
    for log, shift_us in zip(logs, shifts_us, strict=True):
        whose = {maker: getattr(log.sources[0], maker) for maker in MAKERS}
        for sample in log.health:
            samples.append(sample.placed(sample["at_s"] + shift_us / 1e6 if "at_s" in sample else None, whose))
    return tuple(sorted(samples, key=lambda sample: (sample.get("at_s", 0.0), sample["client"], sample["engine"])))


@dataclass(frozen=True, slots=True)
class _Merged:
    """Several streams of a kind as one, in time order, in slices of time of about `SLICE_RECORDS`."""

    kind: Kind
    of: tuple[Stream, ...]

    @property
    def count(self) -> int:
        return sum(stream.count for stream in self.of)

    @property
    def sample_us(self) -> NDArray[np.int64]:
        return np.concatenate([stream.sample_us for stream in self.of])

    def pieces(self) -> Iterator[Columns]:
        for stream in self.of:
            yield from stream.pieces()

    def parts(self) -> Iterator[Columns]:
        for found in self.slices(self._bounds_us()):
            yield from found

    def slices(self, bounds_us: Sequence[int]) -> Iterator[list[Columns]]:
        """Yield at most one part in each slice."""
        for slices in zip(*(stream.slices(bounds_us) for stream in self.of), strict=True):
            found = [part for of_stream in slices for part in of_stream]
            yield (
                [Columns(self.kind, in_time_order(concatenate(found, self.kind, sum(map(len, found)))))]
                if found
                else []
            )

    def _bounds_us(self) -> list[int]:
        """Return the bounds of the slices, by the sample of the instants."""
        number = math.ceil(self.count / SLICE_RECORDS)
        sample_us = np.sort(self.sample_us)
        cuts_us = {int(sample_us[len(sample_us) * cut // number]) for cut in range(1, number)}
        return [-FARTHEST_US, *sorted(cuts_us), FARTHEST_US]


def in_time_order(records: Records) -> Records:
    """Return records by instant (see `placed_us`), client, engine, run, and sequence or else their order.

    Few records share an instant: a fast sort by the instants comes first, then a sort of those that share one.
    """
    placed = placed_us(records)
    order = np.argsort(placed, kind="stable")  # timsort is fast for sorted runs
    placed = placed[order]
    same = placed[1:] == placed[:-1]
    if same.any():
        shared = np.zeros(len(records), np.bool_)
        shared[1:] |= same
        shared[:-1] |= same
        which = order[shared]
        among = records[which]
        sequence = [among["sequence"]] if "sequence" in (records.dtype.names or ()) else []
        keys = [which, *sequence, among["run"], among["engine"], among["client"], placed[shared]]
        order[shared] = which[np.lexsort(keys)]
    return chosen(records, order)


def _shifts_us(logs: Sequence[TimingLog]) -> list[int]:
    """Return the time from the common start to each log's t = 0.

    It is 0 for engines that agreed on the instant. The wall clock places those that never reached it; without a wall
    clock it is 0.
    """
    engines = [[source for source in log.sources if not source.is_monitor] for log in logs]
    zeros = [min(zip(map(_zero_us, own), own, strict=True), key=lambda zero: zero[0]) for own in engines]
    starts = [zero_us for zero_us, source in zeros if source.started]
    earliest_us = min(starts or [zero_us for zero_us, _ in zeros])
    shifts_us = [0.0 if source.started else zero_us - earliest_us for zero_us, source in zeros]
    return [round(shift_us) if math.isfinite(shift_us) else 0 for shift_us in shifts_us]


def _zero_us(source: Source) -> float:
    """Return an engine's t = 0 by its wall clock, in microseconds since 1970; infinity if unknown."""
    try:
        epoch = datetime.fromisoformat(source.wall_clock_start)
    except ValueError:
        return math.inf
    epoch = epoch if epoch.tzinfo else epoch.replace(tzinfo=UTC)
    start_ns = int(source.facts["start_ns"]) if source.started else source.epoch_ns
    return round(epoch.timestamp() * 1_000_000) + (start_ns - source.epoch_ns) // 1000
