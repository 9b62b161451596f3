"""Rules for merging: the header keys that must be equal in all logs, and the slices that make up a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadsim.errors import LogError
from loadsim.model.partition import Slice
from loadsim.timinglog.header_words import LIMITS, differences, limit_words, named, scenario_differences
from loadsim.timinglog.reader import Source, TimingLog

LOAD = ("submission", "programs", "log_on", "plugins", "scenario_digest", "plan_digest")
"""Header keys of the load."""

TERMS = ("criteria", "limits", "weights", "window_s", "day_s", "night_s", "day_shape", "compression")
"""Header keys of score and verdict: a merged log has one set of them for all of its runs."""

SAME_IN_SLICES = ("software", "start_at", "start_state_digest", "duration_s")
"""Header keys that must be equal in all slices of a run, besides `LOAD` and `TERMS`."""

DIGESTS = ("scenario_digest", "plan_digest")
"""The keys of `LOAD` that differ with almost any key of a scenario: the keys say more than the digests."""

ONE_OR_REPORT = "name one, or use loadsim report RUN RUN"
"""Advice on runs that cannot be merged."""

METHODS = "log_on_methods"
"""A fact of engines: the log-on methods that their users chose, each behind its service."""

MIXED = "mixed"
"""Header key of a log that was merged by force: the terms in which its logs differ."""


def check_compatible(first: TimingLog, logs: Sequence[TimingLog]) -> None:
    """Raise `LogError` for logs that differ from the first in load, terms or truncation."""
    for log in logs:
        kept = [one.header.get("truncated_s") for one in (first, log)]
        if kept[0] != kept[1]:
            raise LogError(f"merge: expected logs that were truncated alike, found {kept[0]} and {kept[1]}")
        for name, *found in differences(first.header, log.header, (*LOAD, *TERMS)):
            made_by = first.sources[0], log.sources[0]
            part, _, limit = name.partition(".")
            shown = [limit_words(limit, value) if part == LIMITS and limit else repr(value) for value in found]
            stated = [
                f"{value} in {made.client}.{made.engine} of run {made.run!r}"
                for value, made in zip(shown, made_by, strict=True)
            ]
            what = f"{named(name)}: expected the same in all logs, found {' and '.join(stated)}"
            if len({made.run for made in made_by}) > 1:
                keys = scenario_differences(first.header, log.header) if name in DIGESTS else []
                if keys:
                    runs = " and ".join(repr(made.run) for made in made_by)
                    what = f"expected runs of one scenario, found {'; '.join(keys)} (in runs {runs})"
                what += f": {ONE_OR_REPORT}"
            raise LogError(f"merge: {what}")


def check_log_on(logs: Sequence[TimingLog]) -> None:
    """Raise `LogError` for runs whose users logged on by different methods, which `auto` may choose.

    A service to which no user of a run logged on is not compared.
    """
    found: dict[str, dict[str, set[str]]] = {}  # by service and run
    for log in logs:
        for source in log.sources:
            for used in source.facts.get(METHODS, ()):
                service, _, method = used.partition(" ")
                found.setdefault(service, {}).setdefault(source.run, set()).add(method)
    for service, by_run in found.items():
        (first, methods), *others = by_run.items()
        for run, other in others:
            if other != methods:
                stated = f"{_joined(methods)} in run {first!r} and {_joined(other)} in run {run!r}"
                raise LogError(f"merge: log-on to {service}: expected the same methods in all runs, found {stated}")


def _joined(methods: Iterable[str]) -> str:
    return ", ".join(sorted(methods))


def mixed_terms(first: TimingLog, logs: Sequence[TimingLog]) -> list[str]:
    """Return the terms in which logs differ from the first, and those of logs that were merged by force before."""
    found = {name for log in logs for name, *_ in differences(first.header, log.header, TERMS)}
    return sorted(found.union(*(log.header.get(MIXED, ()) for log in logs)))


# --- slices ---------------------------------------------------------------------------------------------------------


def check_slices(logs: Sequence[TimingLog], force: bool) -> None:
    """Check that slices make up their runs; the logs of one slice alone pass.

    Raises `LogError` for the same slice twice, and for slices of different divisions. Unless `force`, it also raises
    `LogError` for missing slices, and for slices with different settings (`SAME_IN_SLICES`).
    """
    makers: dict[str, dict[Slice | None, set[str]]] = {}
    for log in logs:
        for source in log.sources:
            if source.is_monitor:
                continue
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
    _check_same_settings(logs)


def _check_one_division(run: str, slices: Iterable[Slice | None]) -> None:
    divisions = {part and part.weights: part for part in slices}
    if len(divisions) > 1:
        one, other, *_ = sorted("no slice" if part is None else str(part) for part in divisions.values())
        raise LogError(f"merge: run {run!r}: expected slices of one division of the users, found {one} and {other}")


def _check_same_settings(logs: Sequence[TimingLog]) -> None:
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
    """Return the slice of all sources if it is one, and only a part of a run, else None."""
    found = {(source.run, source.slice) for source in sources if not source.is_monitor}
    _, only = next(iter(found)) if len(found) == 1 else ("", None)
    return only if only is not None and len(only.weights) > 1 else None


def part_of(log: TimingLog) -> Slice | None:
    """Return the slice of a log of one slice; None for a log of several slices or of a whole run."""
    return _only_slice(log.sources)
