"""The durations that loadsim records, held against a packet capture of the same run.

The capture knows what was on the wire and when the kernel saw it, nothing of loadsim. Needs root (packet socket).
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.part import Part
from bench.processes import Cpus
from bench.table import figure
from bench.table import table as markdown
from bench.users import PIN, SMALLEST, Load, logs_of, run, serving
from bench.witness_capture import Captured, capturing, collect
from bench.witness_packets import Witnessed, tasks
from loadsim.monitor.cpu_affinity import split
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.reader import TimingLog

RECORDED_AS = {"SEND": "SEND", "REPLY": "SEND", "REPLY ALL": "SEND", "FORWARD": "SEND"}
RECORDED_AS |= {task: task for task in ("LOGON", "READ", "MOVE")}
APART_NS = 250_000_000
"""A witnessed task that begins further from a recorded one is another."""


def measure(cpus: Cpus, levels: Mapping[str, Load]) -> list[dict[str, Any]]:
    """A row for each level of load and task: how many, how many were matched, recorded less witnessed in ms."""
    return [row for level, load in levels.items() for row in measure_level(cpus, level, load)]


def measure_level(cpus: Cpus, level: str, load: Load) -> list[dict[str, Any]]:
    """One run under this load, and its capture."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with serving(cpus, directory, load) as (server, scenario):
            ports = frozenset((server.services.endpoint("imap").port, server.services.endpoint("smtp").port))
            with capturing(ports, _beside(load)) as capture:
                run(cpus, scenario, directory / "run", load)
                captured = collect(capture)
        logs = logs_of(directory / "run")
    return compare(level, load, logs, captured)


def _beside(load: Load) -> set[int] | None:
    """The CPUs of a capture that keeps out of the generator's way; None: all."""
    return set(split(sorted(os.sched_getaffinity(0)), load.engines)[1]) if load.pin else None


def compare(level: str, load: Load, logs: Iterable[TimingLog], captured: Captured) -> list[dict[str, Any]]:
    """Recorded less witnessed, for each kind of task that came out well while the users were at work."""
    witnessed = list(tasks(captured.segments))
    logs = list(logs)
    shares = [sample["cpu_share"] for log in logs for sample in log.health if "lags_us" in sample]
    rows = []
    for task in ("LOGON", "READ", "SEND", "MOVE"):
        recorded = [one for log in logs for one in recorded_tasks(log, task)]
        pairs = match(recorded, [one for one in witnessed if one.task == task])
        row: dict[str, Any] = {"level": level, "users": load.users, "day": load.day, "task": task}
        row |= {"cpu_share": round(float(np.mean(shares)), 3), "dropped_packets": captured.dropped}
        row |= {"clocks_us": captured.uncertain_ns / 1000, "clock_step_us": captured.step_ns / 1000}
        row |= {"recorded": len(recorded), "matched": len(pairs)}
        if pairs:
            row["difference_ms"] = spread_ms(
                (ours.ended_ns - ours.began_ns) - (seen.ended_ns - seen.began_ns) for ours, seen in pairs
            )
            row["began_ms"] = spread_ms(ours.began_ns - seen.began_ns for ours, seen in pairs)
            row["ended_ms"] = spread_ms(ours.ended_ns - seen.ended_ns for ours, seen in pairs)
            row["witnessed_ms"] = spread_ms(seen.ended_ns - seen.began_ns for _, seen in pairs)
        rows.append(row)
    return rows


def recorded_tasks(log: TimingLog, task: str) -> list[Witnessed]:
    """The tasks of a log that the wire shows as `task` and that came out well, on the monotonic clock."""
    start_ns = log.sources[-1].facts.start_ns or 0
    names = log.names(log.tasks, "task")
    return [
        Witnessed(
            task, f"user{one['user']}", start_ns + int(one["started_us"]) * 1000, start_ns + int(one["ended_us"]) * 1000
        )
        for one, name in zip(log.tasks, names, strict=True)
        if RECORDED_AS.get(str(name)) == task and one["outcome"] == 0
    ]


def match(recorded: Iterable[Witnessed], witnessed: Iterable[Witnessed]) -> list[tuple[Witnessed, Witnessed]]:
    """Each recorded task with the nearest witnessed one of the same user; none is given to two, the far to none."""
    of_user: dict[str, list[Witnessed]] = defaultdict(list)
    for seen in witnessed:
        of_user[seen.login].append(seen)
    pairs = []
    for ours in sorted(recorded, key=lambda one: one.began_ns):
        candidates = of_user[ours.login]
        near = [one for one in candidates if abs(one.began_ns - ours.began_ns) <= APART_NS]
        if near:
            nearest = min(near, key=lambda one: abs(one.began_ns - ours.began_ns))
            candidates.remove(nearest)
            pairs.append((ours, nearest))
    return pairs


def spread_ms(differences_ns: Iterable[int]) -> dict[str, float]:
    """Percentiles of durations in milliseconds; the first is the least."""
    ordered = np.sort(np.fromiter(differences_ns, np.int64))
    ranks = {"p50": 50, "p99": 99, "max": 100}
    return {"min": round(int(ordered[0]) * 1e-6, 3)} | {
        name: round(percentile(ordered, rank) * 1e-6, 3) for name, rank in ranks.items()
    }


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return recorded less witnessed durations in ms, by load and task."""
    body = []
    for row in rows:
        off, witnessed = row.get("difference_ms", {}), row.get("witnessed_ms", {})
        figures = [off.get("p50"), off.get("p99"), off.get("max"), witnessed.get("p50")]
        counts = [f"{row['recorded']}", f"{row['matched']}"]
        cells = [row["level"], f"{row['cpu_share']:.0%}", f"`{row['task']}`", *counts]
        body.append([*cells, *(figure(each, ".3f") for each in figures)])
    head = ["load", "CPU", "task", "recorded", "matched", "p50", "p99", "max", "witnessed p50"]
    return markdown(head, body)


WITNESS = Part(
    "witness",
    measure,
    {"Recorded less captured durations (ms), `loadsim run` on the null server": table},
    smallest={"low": SMALLEST},
    full={
        "low": Load(300, "1h", 12, pin=PIN),
        "half": Load(1000, "7m", 12, pin=PIN),
        "high": Load(1000, "4m", 12, pin=PIN),
    },
    needs_root=True,
)
"""Full loads are meant to use little, about half and most of a core of the generator; rows have its `cpu_share`."""
