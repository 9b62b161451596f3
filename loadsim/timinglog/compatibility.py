"""Rules for merging: the logs of one run have one set of terms, and their slices are of one division of the users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from loadsim.errors import LogError
from loadsim.model.partition import Slice
from loadsim.timinglog.header_words import differences
from loadsim.timinglog.reader import Source, TimingLog

SAME = (
    *("mode", "submission", "programs", "log_on", "plugins", "groups", "scenario_digest", "plan_digest"),
    *("criteria", "limits", "weights", "window_s", "day_s", "night_s", "day_shape", "compression"),
    *("software", "start_at", "start_state_digest", "duration_s", "truncated_s"),
)
"""Header keys that must be equal in all logs of a run: the load, the terms of score and verdict, and the start."""


def check_compatible(logs: Sequence[TimingLog]) -> None:
    """Raise `LogError` for logs of several runs, two of one engine, and logs that differ in `SAME` or in slices."""
    sources = sorted((source for log in logs for source in log.sources), key=identity)
    if len(runs := sorted({source.run for source in sources})) > 1:
        raise LogError(
            f"merge: expected the logs of one run, found those of {', '.join(map(repr, runs))}: name one, or use"
            " loadsim report RUN RUN"
        )
    for one, following in pairwise(sources):
        if identity(one) == identity(following):
            raise LogError(f"merge: expected each log once, found {_named(one)} of run {one.run!r} twice")
    for log in logs[1:]:
        for key, *found in differences(logs[0].header, log.header, SAME):
            places = (_named(each.sources[0]) for each in (logs[0], log))
            stated = " and ".join(f"{value!r} in {place}" for value, place in zip(found, places, strict=True))
            raise LogError(f"merge: {key}: expected the same in all logs of a run, found {stated}")
    _check_slices(source for source in sources if not source.is_monitor)


def identity(source: Source) -> tuple[str, str, str]:
    return source.run, source.client, source.engine


def _named(source: Source) -> str:
    return f"{source.client}.{source.engine}"


def _check_slices(sources: Iterable[Source]) -> None:
    """Raise `LogError` for the same slice twice, and for slices of different divisions."""
    makers: dict[Slice | None, set[str]] = {}
    for source in sources:
        makers.setdefault(source.slice, set()).add(source.client)
    divisions = {part and part.weights: part for part in makers}
    if len(divisions) > 1:
        one, other, *_ = sorted("no slice" if part is None else str(part) for part in divisions.values())
        raise LogError(f"merge: expected slices of one division of the users, found {one} and {other}")
    for part, clients in makers.items():
        if part is not None and len(clients) > 1:
            raise LogError(f"merge: expected each slice once, found {part} twice, by {' and '.join(sorted(clients))}")


def part_of(log: TimingLog) -> Slice | None:
    """Return the slice of a log of one slice; None for a log of several slices or of a whole run."""
    found = {source.slice for source in log.sources if not source.is_monitor}
    only = found.pop() if len(found) == 1 else None
    return only if only is not None and len(only.weights) > 1 else None


def missing_slices(log: TimingLog) -> list[Slice]:
    """Return the slices of a run that a log of several of its slices lacks."""
    found = {source.slice for source in log.sources if source.slice is not None}
    return [part for part in next(iter(found)).parts if part not in found] if found else []
