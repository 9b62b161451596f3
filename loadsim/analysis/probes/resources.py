"""Resources of the server's machine, ordered by how near each came to saturation: a hint, not a proof.

The device with the highest utilisation saturates first: utilisation law and bottleneck analysis (Lazowska, Zahorjan,
Graham and Sevcik, Quantitative System Performance, 1984, chapters 3 and 5). So the order is by means; 95th percentiles
of one-second samples show bursts, which queues absorb.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadsim.analysis.probes.statistics import PROBE
from loadsim.model.figures import ProbeStatistics, Resource
from loadsim.timinglog.reader import TimingLog

HOST = "host"
"""The probe whose figures have known limits."""

EVIDENCE: Sequence[tuple[str, re.Pattern[str]]] = (
    ("processor", re.compile("(?:cpu|server_cores)_busy_share")),
    ("processor quota", re.compile("quota_(?:busy|throttled)_share")),
    ("memory", re.compile("memory_used_share|pressure_memory_some_share")),
    ("network", re.compile("network_busy_share")),
    ("storage", re.compile("pressure_io_some_share")),
    ("disk {}", re.compile("disk_(.+)_busy_share")),
)
"""The figures of the probe `host` by resource. If a resource has several, the highest counts, but see `INSTEAD`.

A control group is full at its quota. A disk that a control group or a hypervisor throttles is not busy all the time:
threads that wait for it reveal it.
"""

INSTEAD: Mapping[str, str] = {"cpu_busy_share": "server_cores_busy_share"}
"""A figure that does not count if another one was measured.

A server that may use only some cores is full when these are. The others, such as those of a pinned generator, are
neither its room nor its load. If its cores were not measured over the whole window, all cores count as a resource of
their own.
"""

UNMEASURED = {"cpu_busy_share": "processor of all cores", "server_cores_busy_share": "processor of the server's cores"}
"""The names of both figures if the server's cores were not measured over the whole window."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A machine where probes run. `server_here`: the server under test runs on it; None if unknown."""

    machine: str
    server_here: bool | None


def ranked_resources(
    probes: Mapping[str, Mapping[str, ProbeStatistics]], places: Mapping[str, Placed]
) -> tuple[Resource, ...]:
    """Return the resources, nearest to saturation first, and unmeasured ones last.

    `probes` has the statistics of a run by probe and figure, `places` the machine of each probe.
    """
    nearest: dict[tuple[str, str], Resource] = {}
    for resource in _resources(probes, places):
        # One measured figure describes a resource better than one that is missing.
        other = nearest.setdefault((resource.probe, resource.name), resource)
        if _order(resource) < _order(other):
            nearest[resource.probe, resource.name] = resource
    return tuple(sorted(nearest.values(), key=lambda each: (_order(each), each.name, each.probe)))


def _order(resource: Resource) -> float:
    return 1.0 if resource.mean is None else -resource.mean


def _resources(probes: Mapping[str, Mapping[str, ProbeStatistics]], places: Mapping[str, Placed]) -> Iterator[Resource]:
    for probe, figures in probes.items():
        if kind_of(probe) != HOST:
            continue
        place = places.get(probe)
        for figure, found in figures.items():
            instead = figures.get(INSTEAD.get(figure, ""))
            if instead is not None and instead.mean is not None:
                continue
            of_server = figure in INSTEAD.values()
            renamed = UNMEASURED.get(figure) if instead is not None or (of_server and found.mean is None) else None
            for name, pattern in EVIDENCE:
                if match := pattern.fullmatch(figure):
                    yield Resource(
                        name=renamed or name.format(*match.groups()),
                        machine=place.machine if place else None,
                        server_here=place.server_here if place else None,
                        probe=probe,
                        figure=figure,
                        mean=found.mean,
                        p95=found.p95,
                        others_share=_others_share(figures) if figure == "server_cores_busy_share" else None,
                    )


def _others_share(figures: Mapping[str, ProbeStatistics]) -> float | None:
    """Return the share of the server's cores that other programs took."""
    taken, cores = (figures.get(name) for name in ("server_cores_taken_by_others", "server_cores"))
    if taken is None or cores is None or taken.mean is None or not cores.mean:
        return None
    return min(1.0, taken.mean / cores.mean)


def kind_of(probe: str) -> str:
    """Return the probe's name without its label and its monitor."""
    return probe.partition("@")[0].partition("/")[0]


def by_kind(probes: Iterable[str], kinds: Iterable[str]) -> list[str]:
    """Return probes in the order of these kinds, other kinds last, and by name within a kind."""
    places = {kind: place for place, kind in enumerate(kinds)}
    return sorted(probes, key=lambda probe: (places.get(kind_of(probe), len(places)), probe))


def probe_places(log: TimingLog) -> Mapping[str, Placed]:
    """Return the machine of each probe with samples; the names of several machines are joined."""
    machines: dict[str, set[tuple[str, ...]]] = {}
    for sample in log.health:
        if PROBE in sample:
            machines.setdefault(str(sample.probe), set()).add(sample.maker)
    server_here = {one.maker: one.facts.server_here for one in log.sources if not one.simulates}
    places = {}
    for probe, makers in machines.items():
        here = {server_here.get(maker) for maker in makers}
        clients = sorted({client for client, *_ in makers})
        places[probe] = Placed(", ".join(clients), here.pop() if len(here) == 1 else None)
    return places
