"""How late a waiting coroutine learns what the server has written, by load: the null server pushes, and says when."""

from __future__ import annotations

from typing import Any

from bench.cpu import LOOPS
from bench.nullserver import Shape, started
from bench.processes import Cpus, run_client

SESSIONS = 1000
SHORT = ((300, 1000), 4.0)
FULL = ((300, 1000, 2000, 3000), 10.0)
"""Pushes per second to all sessions together; seconds."""


def measure_lateness(cpus: Cpus, full: bool) -> list[dict[str, Any]]:
    """A row for each loop and rate."""
    rates, seconds = FULL if full else SHORT
    rows = []
    for rate in rates:
        for loop in LOOPS:
            with started(Shape(pushes_per_s=rate / SESSIONS, stamped=True), cpus.server) as server:
                imap, smtp = server.services.imap, server.services.smtp
                job = {"what": "lateness", "loop": loop, "server": (imap.host, imap.port, smtp.port)}
                found = run_client(cpus, {**job, "sessions": SESSIONS, "seconds": seconds})
            rows.append({"loop": loop, "pushes_per_s": found.pop("pushes") / seconds, **found})
    return rows
