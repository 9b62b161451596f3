"""Find a run's logs, merge them into one, like LsLog's function of this name, and check windows.

Records are read on demand, so logs may be larger than memory.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.files import mode_at, real_path
from loadsim.model.terms import Window
from loadsim.timinglog.audited import audit_in
from loadsim.timinglog.documents import LONGEST_S
from loadsim.timinglog.header_words import differences
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.monitors import parted, run_start, with_monitors
from loadsim.timinglog.reader import Source, TimingLog, read_each
from loadsim.timinglog.records import KINDS, NAMES
from loadsim.timinglog.writer import MOST_NAMES, OTHER

OF_NO_ENGINE: Mapping[str, Any] = {
    **{"client": "", "engine": "", "engine_users": None},
    **{"hand": None, "epoch_ns": 0, "wall_clock_start": ""},
}
"""The header keys that do not appear in a merged log's header, only in its sources."""

SAME = (
    *("mode", "submission", "programs", "calendars", "log_on", "plugins"),
    *("scenario_digest", "plan_digest"),
    *("criteria", "limits", "weights", "window_s", "day_s", "night_s", "day_shape", "compression"),
    *("software", "accounts_digest", "start_state_digest", "duration_s", "audit_allow"),
)
"""Header keys that must agree in all logs of a run: the load, and the terms of score and verdict."""

SAME_IN_ENGINES = ("acknowledgements",)
"""Header keys that must agree in the logs of all engines; others lack them."""

LSLOG_WINDOW_S = Window(3600.0, 14400.0)
"""LsLog's default window in seconds: from 1:00 to 4:00 after the start."""


def find_logs(arguments: Sequence[str | Path]) -> list[Path]:
    """Find the log files meant by files, patterns, and run directories (`DIR/logs/*.tlog`, or `DIR/*.tlog`).

    Each file appears once; files are sorted by path. Raises `LogError` for an argument that yields no file.
    """
    files: dict[Path, Path] = {}
    for argument in arguments:
        path = Path(argument)
        try:
            mode = mode_at(path)
            if S_ISDIR(mode):
                paths = list(path.glob("logs/*.tlog")) or list(path.glob("*.tlog"))
                if not paths:
                    os.scandir(path).close()  # `glob` ignores errors
            elif mode:
                paths = [path]
            else:
                paths = list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        except OSError as failure:
            raise LogError(
                f"{argument}: expected a run directory that can be read, found: {failure.strerror}"
            ) from None
        except ValueError:  # not a pattern
            paths = []
        if not paths:
            expected = "expected a timing log or a run directory with logs/*.tlog"
            raise LogError(f"{argument}: {expected}, found {_found_instead(argument, path)}")
        files |= {real_path(path): path for path in paths}
    return [files[path] for path in sorted(files)]


MOST_NAMED = 3
"""The most runs in a directory that an error lists."""


def _found_instead(argument: str | Path, path: Path) -> str:
    """Describe an argument without logs: it is missing, or a directory, whose newest runs are listed by name."""
    with suppress(OSError, ValueError):
        if path.is_dir():
            runs = sorted({str(log.parent.parent) for log in path.glob("*/logs/*.tlog")}, reverse=True)
            more = f", and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
            return f"none; runs in it: {', '.join(runs[:MOST_NAMED])}{more}" if runs else "none"
    return "none" if re.search(r"[*?[]", str(argument)) else "no such file or directory"


def window_of(log: TimingLog) -> Window:
    """Return the window [begin, end) from the log's header, in seconds, or else LsLog's."""
    return Window(*map(float, log.header.window_s)) if log.header.window_s else LSLOG_WINDOW_S


def in_window(instants_us: NDArray[np.int64], window_s: Window) -> NDArray[np.bool_]:
    """Return a mask of the instants in [begin, end)."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    return np.asarray((instants_us >= begin_us) & (instants_us < end_us))


def check_window(log: TimingLog, window_s: Window) -> None:
    """Raise `LogError` for a window that is empty or extends beyond the run.

    Otherwise, rates might include time without load.
    """
    begin_s, end_s = window_s
    if not (math.isfinite(begin_s) and math.isfinite(end_s)):
        raise LogError(f"window: expected finite instants, found {begin_s:g} s to {end_s:g} s")
    if not round(begin_s * 1_000_000) < round(end_s * 1_000_000):
        raise LogError(f"window: expected a start before its end, found {begin_s:g} s to {end_s:g} s")
    if max(-begin_s, end_s) > LONGEST_S:
        raise LogError(f"window: expected one within {LONGEST_S} s of the start, found {begin_s:g} s to {end_s:g} s")
    lasted_s = log.header.duration_s
    if lasted_s and round(end_s - lasted_s, 6) > 0:
        raise LogError(f"window: expected an end within the run's {lasted_s:g} s, found {end_s:g} s")


def merge(logs: Sequence[TimingLog]) -> TimingLog:
    """Merge the logs of a run's engines into one, with names in alphabetical order.

    For all engines, t = 0 is the run's common start. An engine that never reached it is placed by the wall clock.

    Files from `loadsim monitor` may be among the logs: their samples are placed on the same time axis.

    Raises `LogError` if there are no logs, or if they are not all from one run (see `check_compatible`).
    """
    if not logs:
        raise LogError("merge: expected at least one timing log, found none")
    logs, monitors = parted(logs)
    logs = sorted(logs, key=lambda log: identity(log.sources[0]))
    sources = tuple(source for (source,) in (log.sources for log in logs))
    check_compatible(logs)
    # Renumber the names, and shift the instants.
    strings = _all_names(logs)
    numbers = {name: index for index, name in enumerate(strings)}
    other = numbers[OTHER]
    renumbers = [
        None if log.strings == strings else np.array([numbers.get(name, other) for name in log.strings], np.uint16)
        for log in logs
    ]
    shifts_us = _shifts_us(logs)
    moves = list(zip(logs, renumbers, shifts_us, strict=True))
    # Base the header on an engine's: a machine that was only observed does not have engines' keys.
    first = next((log for log, source in zip(logs, sources, strict=True) if source.simulates), logs[0])
    header = first.header._replace(**OF_NO_ENGINE)
    if loads := [log.header.planned_load for log in logs if log.header.planned_load]:
        differ = any(load != loads[0] for load in loads)
        header = header._replace(planned_load=None if differ else loads[0], load_unknown=differ)
    merged = TimingLog(
        header=header,
        sources=sources,
        strings=strings,
        streams={
            kind: [
                stream.moved(renumber, shift_us) for log, renumber, shift_us in moves for stream in log.streams[kind]
            ]
            for kind in KINDS
        },
        health=_all_health(logs, shifts_us),
        damages=tuple(sorted({damage for log in logs for damage in log.damages})),
    )
    if not monitors:
        return merged
    return with_monitors(merged, monitors, run_start(sources, float(header.duration_s or math.inf)))


def read_logs(arguments: Sequence[str | Path]) -> TimingLog:
    files = find_logs(arguments)
    return with_audit(merge(read_each(files)), files)


def with_audit(log: TimingLog, files: Sequence[Path]) -> TimingLog:
    """Add the audit from the files' run directory to their merged log. Raises `LogError`."""
    own = [real_path(file).parent for file in files]
    places = dict.fromkeys(place.parent if place.name == "logs" else place for place in own)
    audit = audit_in([*places], log.sources[0].run)
    return replace(log, audit=audit and audit._replace(allowed=log.header.audit_allow))


def check_compatible(logs: Sequence[TimingLog]) -> None:
    """Raise `LogError` if logs come from several runs, if two belong to one engine, or if they differ in `SAME`.

    Engines must also agree in `SAME_IN_ENGINES`.
    """
    sources = sorted((log.sources[0] for log in logs), key=identity)
    if len(runs := sorted({source.run for source in sources})) > 1:
        raise LogError(
            f"merge: expected the logs of one run, found those of {', '.join(map(repr, runs))}: name one, or use"
            " loadsim report RUN RUN"
        )
    for source, following in pairwise(sources):
        if identity(source) == identity(following):
            raise LogError(f"merge: expected each log once, found {_named(source)} of run {source.run!r} twice")
    _check_same(logs, SAME)
    _check_same([log for log in logs if log.sources[0].simulates], SAME_IN_ENGINES)


def _check_same(logs: Sequence[TimingLog], keys: Sequence[str]) -> None:
    for log in logs[1:]:
        for key, *values in differences(logs[0].header.by_key(), log.header.by_key(), keys):
            places = (_named(differing.sources[0]) for differing in (logs[0], log))
            stated = " and ".join(f"{value!r} in {place}" for value, place in zip(values, places, strict=True))
            raise LogError(f"merge: {key}: expected the same in all logs of a run, found {stated}")


def identity(source: Source) -> tuple[str, str, str]:
    return source.run, source.client, source.engine


def _named(source: Source) -> str:
    return f"{source.client}.{source.engine}"


def _all_names(logs: Sequence[TimingLog]) -> tuple[str, ...]:
    """Return the empty name, then all names in alphabetical order; `OTHER` replaces kinds of error beyond the limit."""
    kept = {OTHER}.union(*(log.strings for log in logs)) - {""}
    if len(kept) >= MOST_NAMES:
        errors = _names_in(logs, ("error",))
        kept = {OTHER} | _names_in(logs, [name for name in NAMES if name != "error"]) - {""}
        kept.update(sorted(errors - kept - {""})[: max(0, MOST_NAMES - 1 - len(kept))])
    return ("", *sorted(kept))


def _names_in(logs: Sequence[TimingLog], fields: Sequence[str]) -> set[str]:
    used = set[str]()
    for log in logs:
        for kind, record in KINDS.items():
            named = [field for field in fields if field in (record.named.names or ())]
            occurs = np.zeros(len(log.strings), np.bool_)
            for records in log.pieces(kind) if named else ():
                for field in named:
                    occurs[records[field]] = True
            used.update(log.strings[number] for number in np.flatnonzero(occurs))
    return used


def _all_health(logs: Sequence[TimingLog], shifts_us: Sequence[int]) -> tuple[Sample, ...]:
    """Return all samples in time order, shifted like the records; samples without a time come first."""
    samples = [
        sample.placed(sample.at_s + shift_us / 1e6 if "at_s" in sample else None)
        for log, shift_us in zip(logs, shifts_us, strict=True)
        for sample in log.health
    ]
    return tuple(sorted(samples, key=lambda sample: (sample.get("at_s", 0.0), sample.client, sample.engine)))


def _shifts_us(logs: Sequence[TimingLog]) -> list[int]:
    """Return the time from the common start to each log's t = 0.

    It is 0 for engines that reached the common start. The wall clock places all others; without a wall clock, it is 0
    for them as well.
    """
    zeros_ns = [log.sources[0].zero_wall_ns for log in logs]
    known_ns = [zero_ns for zero_ns in zeros_ns if zero_ns is not None]
    starts_ns = [zero_ns for log, zero_ns in zip(logs, zeros_ns, strict=True) if log.sources[0].started and zero_ns]
    earliest_ns = min(starts_ns or known_ns, default=0)
    return [
        0 if log.sources[0].started or zero_ns is None else (zero_ns - earliest_ns) // 1000
        for log, zero_ns in zip(logs, zeros_ns, strict=True)
    ]
