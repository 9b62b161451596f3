"""Whole users in a whole run on the null server: memory and log-on rate of many, lag by load, and by engines.

This is `loadsim run` as anybody would start it; the figures are what its timing logs say of themselves.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import tables
from bench.nullserver import HOST, NullServer, Shape, pinned, started
from bench.part import Part
from bench.processes import LONGEST_S, Cpus
from bench.runs import loadsim, written
from loadsim.errors import ConfigError
from loadsim.provisioning.export import postfix_aliases
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.reader import TimingLog, read_log

LOOK_S = 0.1
FOLDERS = 2
"""Of the null server, to be browsed and moved to: a run looks into every folder of every account before it begins."""


CORES = len(os.sched_getaffinity(0))
PIN = CORES > 1
"""Return if `--pin` is possible here."""

USERS_EACH = 20_000
"""For a source address and for a worker of the server: its ports, and its open files, are enough for so many."""


class Load(NamedTuple):
    """A number of Medium users, whose day of eight hours takes `day`; they are held at work for `hold_s`.

    `pin`: loadsim keeps them and the server apart by itself (`--pin`), on all the CPUs that there are.
    """

    users: int
    day: str
    hold_s: float
    engines: int = 1
    pin: bool = False

    @property
    def sources(self) -> list[str]:
        """The addresses to connect from; none where the system's choice is enough."""
        needed = math.ceil(self.users / USERS_EACH)
        return [f"127.0.0.{2 + at}" for at in range(needed)] if needed > 1 else []

    @property
    def shape(self) -> Shape:
        """Of the null server; its workers share connections by chance, so they get somewhat less than they can hold."""
        return Shape(
            workers=math.ceil(self.users / (USERS_EACH * 0.75)), users=self.users + 1, messages=4, folders=FOLDERS
        )


def measure(cpus: Cpus, loads: Sequence[Load]) -> list[dict[str, Any]]:
    """Return a row for a run under each load."""
    return [_measure(cpus, load) for load in loads]


def measure_on_all(_: Cpus, loads: Sequence[Load]) -> list[dict[str, Any]]:
    """Return a row for a run under each load; engines and server share all CPUs."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return measure(Cpus(cpus, cpus), loads)


@cache
def _measure(cpus: Cpus, load: Load) -> dict[str, Any]:
    """One run under this load; memory at its end, log-on time, CPU and lag while the users were at work.

    Parts that ask for the same share a run.
    """
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with serving(cpus, directory, load) as (server, scenario):
            run(cpus, scenario, directory / "run", load)
        logs = logs_of(directory / "run")
    delivered = server.counts["delivered"]
    return {"users": load.users, "day": load.day, "delivered": delivered, **figures_of(logs, load.hold_s)}


@contextmanager
def serving(cpus: Cpus, directory: Path, load: Load) -> Iterator[tuple[NullServer, Path]]:
    """A null server that knows the distribution lists of this load, and the scenario for it, which lies here."""
    lists = directory / "lists"
    lists.write_text(postfix_aliases(distribution_lists(load_scenario(str(_write(directory, load, 1, 1))))))
    with started(replace(load.shape, lists=lists), cpus.server) as server:
        yield (
            server,
            _write(directory, load, server.services.endpoint("imap").port, server.services.endpoint("smtp").port),
        )


def logs_of(out: Path) -> list[TimingLog]:
    """The logs of a run that hold tasks."""
    return [log for log in map(read_log, sorted((out / "logs").glob("*.tlog"))) if len(log.tasks)]


def _write(directory: Path, load: Load, imap_port: int, smtp_port: int) -> Path:
    document = {
        "name": "bench",
        "domain": "null.test",
        "server": {"imap": {"host": HOST, "port": imap_port}, "smtp": {"host": HOST, "port": smtp_port}},
        "accounts": {"user": "user{index}", "password": "any"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": load.users}],
        "run": {"day_length": load.day, "ramp_up": "0s"},
        "client": {"source_addresses": load.sources},
        "initialise": "never",
    }
    return written(directory / "scenario.yaml", document)


def run(cpus: Cpus, scenario: Path, out: Path, load: Load) -> None:
    """Run until everybody is on and the time at work is over, then end it as a person would, with an interrupt."""
    command = loadsim("run", "--no-report", "--even-invalid", scenario, "--out", out, "--engines", str(load.engines))
    command += ["--pin"] if load.pin else []
    said = out.parent / "said"
    with said.open("w") as sink, pinned(None if load.pin else cpus.client):
        process = subprocess.Popen(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + LONGEST_S
        while not _has_started(out):
            if process.poll() is not None or time.monotonic() > deadline_s:
                lines = said.read_text().splitlines() or ["nothing"]
                raise ConfigError(f"bench: loadsim run: expected it to start, it said: {lines[-1]}")
            time.sleep(LOOK_S)
        with suppress(subprocess.TimeoutExpired):
            process.wait(load.hold_s)
            raise ConfigError(
                f"bench: loadsim run: expected {load.hold_s} s of work, it ended before, with {process.returncode}"
            )
        process.send_signal(signal.SIGINT)
        process.wait(LONGEST_S)
    finally:
        process.kill()
        process.wait()


def _has_started(out: Path) -> bool:
    events = out / "events.jsonl"
    return events.exists() and '"event": "start"' in events.read_text()


def figures_of(logs: list[TimingLog], hold_s: float) -> dict[str, Any]:
    """Return the figures of the engines' logs together, which also have samples of the whole machine.

    The first second at work, with what log-on left behind, is left out, and so is what follows the interrupt.
    """
    working = [[one for one in log.health if "lags_us" in one and 1 < one["at_s"] <= hold_s] for log in logs]
    lags_us = np.sort(np.array([lag for samples in working for one in samples for lag in one["lags_us"]], np.int64))
    log_ons = [log.tasks[log.names(log.tasks, "task") == "LOGON"] for log in logs]
    began_us = min(int(tasks["started_us"].min()) for tasks in log_ons)
    ended_us = max(int(tasks["ended_us"].max()) for tasks in log_ons)
    started_us = [log.tasks["started_us"] for log in logs]
    tasks = sum(int(((each > 0) & (each <= hold_s * 1e6)).sum()) for each in started_us)
    shares = [float(np.mean([one["cpu_share"] for one in samples])) for samples in working]
    ranks = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    return {
        "engines": len(logs),
        "rss_kib": round(sum(max(sample["rss_bytes"] for sample in samples) for samples in working) / 1024),
        "log_on_s": (ended_us - began_us) * 1e-6,
        "tasks_per_s": round(tasks / hold_s, 1),
        "cpu_ms_per_task": round(sum(shares) * hold_s * 1000 / tasks, 3) if tasks else None,
        "cpu_share": round(max(shares), 3),
        "lag_ms": {name: round(percentile(lags_us, rank) / 1000, 2) for name, rank in ranks.items()},
    }


SMALLEST = Load(20, "5m", 3)
ENGINES_EACH = sorted({1, CORES, CORES + 1})
USERS = Part(
    "users",
    measure,
    {"Connected users, `loadsim run` on the null server": tables.users},
    smallest=[SMALLEST],
    short=[Load(200, "8h", 3), Load(2000, "8h", 4)],
    full=[Load(500, "8h", 5), Load(9000, "8h", 10)],
)
LOAD = Part(
    "load",
    measure,
    {"Lag of the event loop by load, `loadsim run` on the null server": tables.load},
    smallest=[SMALLEST],
    short=[Load(1000, day, 8) for day in ("1h", "10m")],
    full=[Load(1000, day, 12) for day in ("1h", "20m", "10m", "5m")],
)
ENGINES = Part(
    "engines",
    measure_on_all,
    {"The same load by 1 to N engines, null server, all on the same CPUs": tables.engines},
    smallest=[SMALLEST._replace(engines=2, pin=PIN)],
    short=[Load(600, "10m", 6, engines) for engines in ENGINES_EACH],
    full=[Load(2000, "20m", 20, engines) for engines in ENGINES_EACH],
)
MANY = Part(
    "many",
    measure_on_all,
    {"Many connected users in real time, `loadsim run` on the null server, all on the same CPUs": tables.many},
    smallest=ENGINES.smallest,
    full=[Load(100_000, "8h", 600, engines=11)],
)
