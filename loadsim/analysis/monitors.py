"""Files of `loadsim monitor` in a log: their places on the time axis, and what is missing in them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from loadsim.analysis.generator import UNOBSERVED_S
from loadsim.analysis.probes import PROBE
from loadsim.model.criteria import expected_monitors
from loadsim.model.terms import Window
from loadsim.timinglog.monitors import BOOT_ID, COLLECTION, MONITORS
from loadsim.timinglog.reader import MONITOR, Source, TimingLog

FAR_APART_MS = 1000.0
"""The error of a monitor's clock beyond which a warning says so: probes sample each second."""


@dataclass(frozen=True, slots=True)
class MonitorPlace:
    """A file of a monitor in a run. Instants are seconds from the common start; `span_s` is that of the whole file.

    `error_ms` is the largest error of their place by the clocks, 0 for monotonic clocks of one machine; None if
    unknown. `ended`: the monitor ended by itself. `lacks` has what its collection missed. `at_s` has the instants at
    which it was awake during the run, and `samples` is the number of samples of its probes then. `boot_ids` has the
    kernel's random number of its boot.
    """

    name: str
    run: str
    engine: str
    same_machine: bool
    error_ms: float | None
    span_s: tuple[float, float] | None
    ended: bool
    damages: tuple[str, ...]
    lacks: tuple[str, ...]
    at_s: tuple[float, ...]
    samples: int
    boot_ids: frozenset[str]


def monitor_places(log: TimingLog) -> tuple[MonitorPlace, ...]:
    """Return the monitors of a log."""
    sources = [source for source in log.sources if source.is_monitor]
    at_s: dict[tuple[Any, ...], list[float]] = {(one.run, one.client, one.engine): [] for one in sources}
    of_probes = Counter[tuple[Any, ...]]()
    for sample in log.health if sources else ():
        key = sample.get("run"), sample.get("client"), sample.get("engine")
        if key in at_s and "at_s" in sample:
            at_s[key].append(sample["at_s"])
            of_probes[key] += PROBE in sample
    keys = {(one.run, one.client, one.engine): one for one in sources}
    return tuple(_place(source, tuple(at_s[key]), of_probes[key]) for key, source in keys.items())


def _place(source: Source, at_s: tuple[float, ...], samples: int) -> MonitorPlace:
    stated = source.facts[MONITOR]
    return MonitorPlace(
        name=source.client,
        run=source.run,
        engine=source.engine,
        same_machine=bool(stated.get("same_machine")),
        error_ms=stated.get("error_ms"),
        span_s=tuple(stated["span_s"]) if stated.get("span_s") else None,
        ended=source.ended,
        damages=tuple(stated.get("damages") or ()),
        lacks=tuple(filter(None, [source.facts.get(COLLECTION)])),
        at_s=at_s,
        samples=samples,
        boot_ids=frozenset(filter(None, [source.facts.get(BOOT_ID)])),
    )


def monitor_warnings(log: TimingLog, window_s: Window) -> list[str]:
    """Return what is missing in the files of monitors: no verdict depends on it, but a criterion may."""
    places = monitor_places(log)
    found = {place.name for place in places}
    expected = {*expected_monitors(log.header["criteria"]), *log.header.get(MONITORS, ())}
    return [
        *(
            f"monitor {name}: expected its file among those of the run (RUN/logs), as the scenario names it, found none"
            for name in sorted(expected - found)
        ),
        *(f"monitor {place.name}: {text}" for place in _together(places) for text in _missing(place, window_s)),
    ]


def _together(places: Iterable[MonitorPlace]) -> list[MonitorPlace]:
    """Return the files of each monitor of a run as one: a monitor that was started again has several."""
    found: dict[tuple[str, str], MonitorPlace] = {}
    for place in places:
        key = place.run, place.name
        if key not in found:
            found[key] = place
            continue
        before = found[key]
        last = max(before, place, key=lambda each: each.span_s or (-math.inf, -math.inf))
        spans_s = [each.span_s for each in (before, place) if each.span_s]
        errors_ms = (before.error_ms, place.error_ms)
        found[key] = replace(
            last,
            at_s=tuple(sorted((*before.at_s, *place.at_s))),
            span_s=(min(begin_s for begin_s, _ in spans_s), max(end_s for _, end_s in spans_s)) if spans_s else None,
            damages=(*before.damages, *place.damages),
            lacks=(*before.lacks, *place.lacks),
            boot_ids=before.boot_ids | place.boot_ids,
            error_ms=None if None in errors_ms else max(each for each in errors_ms if each is not None),
        )
    return list(found.values())


def _missing(place: MonitorPlace, window_s: Window) -> Iterator[str]:
    inside = [at_s for at_s in place.at_s if window_s.begin_s <= at_s < window_s.end_s]
    yield from place.lacks
    if not inside:
        if place.span_s is None and place.lacks:
            pass  # the file has no sample at all
        elif place.span_s is None:
            yield "no sample can be placed: neither its clock nor the run's has a time of day"
        else:
            begin_s, end_s = place.span_s
            yield (
                f"no sample in the window ({window_s.begin_s:g} s to {window_s.end_s:g} s): its file lasts from"
                f" {begin_s:,.0f} s to {end_s:,.0f} s by the clocks; is it of another run, or a clock wrong?"
            )
        yield from place.damages
        return
    gaps = [
        (begin_s, end_s)
        for begin_s, end_s in pairwise((window_s.begin_s, *inside, window_s.end_s))
        if end_s - begin_s > UNOBSERVED_S
    ]
    for begin_s, end_s in gaps:
        last = end_s == window_s.end_s and not place.ended and max(place.at_s) < window_s.end_s
        killed = ", its last one: its file has no end, as that of a killed process" if last else ""
        yield f"no sample from {begin_s:.0f} s to {end_s:.0f} s{'' if place.damages else killed}"
    if gaps:
        yield from place.damages
    if len(place.boot_ids) > 1:
        boots = f"{len(place.boot_ids)} boots"
        yield f"its files are of {boots}: the machine was started again during the run, or they are of several"
    if place.error_ms is None:
        yield "its samples are placed by the time of day, and how exact it is, is unknown: see the report's disclosure"
    elif place.error_ms > FAR_APART_MS:
        yield f"its clock and the run's may be {place.error_ms / 1000:.1f} s apart"
