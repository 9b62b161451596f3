"""Runs on a simulated server with known demands, to size it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queue_server import server
from timing_samples import DELIVERED, ENDED, LOGGED_ON, START_NS, done, event, write_sample

USERS, TASKS_PER_USER_S, DEMAND_S = 200, 0.1, 0.02
"""A task takes 20 ms of one core: 500 users fill a core, these 200 use 40 % of it."""

HEADER = {
    "users": USERS,
    "engine_users": USERS,
    "window_s": [60.0, 660.0],
    "limits": {"hits": 1, "window_s": 1.0},
    "day_s": 2_880.0,
    "compression": 10.0,
}


def busy_run(
    place: Path,
    seed: int = 1,
    header: Mapping[str, Any] | None = None,
    probe: str = "host",
    submission: str | None = "SMTP DATA",
    facts: Mapping[str, Any] = ENDED,
    **replaced: Any,
) -> Path:
    """A run directory of the simulated server on a machine of 1.55 cores, of which other programs take 0.05.

    `replaced` replaces figures of the probe by a constant or a function of the time; None leaves one out. The server
    may run on all cores, unless it says otherwise.
    """
    samples, ends = server(seed, USERS, TASKS_PER_USER_S, DEMAND_S)
    figures: dict[str, Any] = {
        "cores": 1.55,
        "others_cpu_cores": 0.05,
        "cpu_steal_share": 0.0,
        "loadsim_cpu_cores": 0.3,
        "server_rss_bytes": 2e9,
        "memory_available_bytes": 8e9,
        "memory_used_share": 0.5,
        "disk_sda_reads_per_s": 10.0,
        "disk_sda_writes_per_s": 30.0,
        "disk_sda_busy_share": 0.25,
        "network_sent_bytes_per_s": 1e6,
        "network_received_bytes_per_s": 2e6,
    }
    whole = figures | replaced
    figures |= {
        "server_cores": whole["cores"],
        "server_core_sets": 1.0,
        "server_cores_taken_by_others": whole["others_cpu_cores"],
        "server_cores_steal_share": whole["cpu_steal_share"],
    }
    health = []
    for at_s, busy in samples:
        all_figures = figures | {"server_cpu_cores": busy} | replaced
        now = {name: value(at_s) if callable(value) else value for name, value in all_figures.items()}
        kept = {name: value for name, value in now.items() if value is not None}
        health.append({"at_ns": START_NS + round(at_s * 1e9), "probe": probe, "figures": kept})
    tasks = [done("READ", end / 1000 - 5, 5, user=1 + n % USERS) for n, end in enumerate(ends)]
    commands = [
        (name, 1, START_NS + end * 1000, START_NS + end * 1000 + 1, "ok", 10, 10)
        for n, end in enumerate(ends)
        for name in ("IMAP UID FETCH", "IMAP DONE", *((submission,) if submission is not None and n % 4 == 0 else ()))
    ]
    mails = [event("accepted", f"n1.{n}", 2, end / 1000) for n, end in enumerate(ends[::2], 1)]
    mails += [event("seen", f"n1.{n}", 2, end / 1000 + 1) for n, end in enumerate(ends[::2], 1)]
    write_sample(
        place / "logs" / "c1.0.tlog",
        [LOGGED_ON, *tasks],
        [*DELIVERED, *mails],
        commands,
        header=HEADER | dict(header or {}),
        facts=facts,
        health=health,
    )
    return place
