"""Runs that several machines made by hand, each a slice of it: whether all slices are there, and of whom a log is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadsim.errors import LogError
from loadsim.model.partition import Slice
from loadsim.timinglog.reader import Source, TimingLog

SAME_IN_SLICES = (
    "software",
    "start_at",
    "start_state_digest",
    "duration_s",
)
"""Header keys on which the slices of a run must agree, beside those on which all logs must: of them, there is one."""


def check_slices(logs: Sequence[TimingLog], force: bool) -> None:
    """Refuse slices that do not make up their runs; those of a single machine, by themselves, are let pass.

    Raises `LogError` for the same slice twice, for slices of different divisions, and, unless `force`, for slices that
    are missing, or that were told different things about the run.
    """
    makers: dict[str, dict[Slice | None, set[str]]] = {}
    for log in logs:
        for source in log.sources:
            makers.setdefault(source.run, {}).setdefault(source.slice, set()).add(source.client)
    for run, slices in makers.items():
        _check_one_division(run, slices)
        for part, clients in slices.items():
            if part is not None and len(clients) > 1:
                names = " and ".join(sorted(clients))
                raise LogError(f"merge: run {run!r}: expected each slice once, found {part} twice, by {names}")
    if force or _only_slice(source for log in logs for source in log.sources):
        return
    for run, slices in makers.items():
        found = {part for part in slices if part is not None}
        missing = [part for part in next(iter(found)).parts if part not in found] if found else []
        if missing:
            raise LogError(
                f"merge: run {run!r}: expected all {len(missing) + len(found)} slices,"
                f" found none of {', '.join(map(str, missing))}"
            )
    _check_told_the_same(logs)


def _check_one_division(run: str, slices: Iterable[Slice | None]) -> None:
    divisions = {part and part.weights: part for part in slices}
    if len(divisions) > 1:
        one, other, *_ = sorted("no slice" if part is None else str(part) for part in divisions.values())
        raise LogError(f"merge: run {run!r}: expected slices of one division of the users, found {one} and {other}")


def _check_told_the_same(logs: Sequence[TimingLog]) -> None:
    first: dict[str, TimingLog] = {}
    for log in logs:
        source = log.sources[0]
        if source.slice is None:
            continue
        other = first.setdefault(source.run, log)
        for key in SAME_IN_SLICES:
            if log.header.get(key) != other.header.get(key):
                found = [f"{each.header.get(key)!r} in slice {each.sources[0].slice}" for each in (other, log)]
                raise LogError(
                    f"merge: run {source.run!r}: {key}: expected the same in all slices, found {' and '.join(found)}"
                )


def _only_slice(sources: Iterable[Source]) -> Slice | None:
    """The slice that all of these are of, unless it is the whole of a run; None when there are several, or none."""
    found = {(source.run, source.slice) for source in sources}
    _, only = next(iter(found)) if len(found) == 1 else ("", None)
    return only if only is not None and len(only.weights) > 1 else None


def part_of(log: TimingLog) -> Slice | None:
    """The slice of a run that a log is of, when it is of no more than one; None when it is of a whole run."""
    return _only_slice(log.sources)
