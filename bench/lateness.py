"""Delays until a waiting coroutine gets the server's data, by load: the null server pushes its time of sending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench import tables
from bench.cpu import LOOPS
from bench.nullserver import Shape, started
from bench.part import Part
from bench.processes import Cpus, run_client


@dataclass(frozen=True, slots=True)
class Size:
    """Idling sessions, pushes per second to all of them together, the length of a measurement, and event loops."""

    sessions: int
    rates: tuple[int, ...]
    seconds: float
    loops: tuple[str, ...] = LOOPS


def measure(cpus: Cpus, size: Size) -> list[dict[str, Any]]:
    """A row for each loop and rate."""
    rows = []
    for rate in size.rates:
        for loop in size.loops:
            with started(Shape(pushes_per_s=rate / size.sessions, stamped=True), cpus.server) as server:
                imap, smtp = server.services.endpoint("imap"), server.services.endpoint("smtp")
                job = {"what": "lateness", "loop": loop, "server": (imap.host, imap.port, smtp.port)}
                found = run_client(cpus, {**job, "sessions": size.sessions, "seconds": size.seconds})
            rows.append({"loop": loop, "pushes_per_s": found.pop("pushes") / size.seconds, **found})
    return rows


LATENESS = Part(
    "lateness",
    measure,
    {"From the server's write to the waiting coroutine, 1,000 sessions": tables.lateness},
    smallest=Size(5, (100,), 0.5, ("uvloop",)),
    short=Size(1000, (300, 1000), 4.0),
    full=Size(1000, (300, 1000, 2000, 3000), 10.0),
)
