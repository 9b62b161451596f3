"""Costs of a cluster to the engines of a client, the speed of collecting logs, and their size on the disk.

*Lag.* A client of a cluster has an agent (Dask's worker) and a worker besides its engine; one machine alone has the
process of `loadsim run`. Both are on one core with their engine; controller, run and null server have the others.
The runs take turns, and the figures of a pair are compared, so that a noisy minute falls on both.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np

from bench import cluster_tables
from bench.cluster_members import cluster
from bench.cluster_pull import PIECE_BYTES, leave
from bench.hosts import hosts
from bench.nullserver import HOST, Shape, pinned
from bench.nullserver import started as null_server
from bench.part import Part
from bench.processes import LONGEST_S, Cpus, short_directory, summary
from bench.runs import USERS, loadsim, on_null_server, score_of, scored, written
from loadsim.documents.yaml_reader import known
from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint, Services
from loadsim.model.terms import CANONICAL, STRESS
from loadsim.provisioning.export import postfix_aliases
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.statistics.comparison import one_critical_t
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.reader import read_log

WARM_S = 5

NOWHERE = Services(Endpoint(HOST, 1), Endpoint(HOST, 1))
"""For a scenario whose server is not there yet."""

RANKS = {"p50": 50, "p99": 99, "max": 100}


def measure(cpus: Cpus, size: tuple[int, int]) -> dict[str, Any]:
    """Pairs of runs; of each figure of lag the ratio, with Dask to without, and its 95 % interval over the pairs.

    The size is the number of pairs, and the seconds of work.
    """
    pairs, work_s = size
    found: dict[str, list[dict[str, float]]] = {"cluster": [], "alone": []}
    with short_directory() as directory, hosts(3) as (controller, machine, server):
        place = Path(directory)
        for pair in range(pairs):
            for way in ("cluster", "alone") if pair % 2 else ("alone", "cluster"):
                with ExitStack() as stack:
                    shape = Shape(users=USERS + 1, messages=4, folders=2)
                    null = stack.enter_context(null_server(shape, cpus.server, server))
                    document = on_null_server(null.services, work_s=work_s)
                    scenario = written(place / "scenario.yaml", document)
                    out = place / f"{way}-{pair}"
                    options = ("--no-report", "--even-invalid", "--quiet", scenario, "--out", out, "--json")
                    if way == "cluster":
                        here = place / f"members-{pair}"
                        here.mkdir()
                        lab = stack.enter_context(
                            cluster(
                                here,
                                controller,
                                {"load1": machine},
                                {},
                                clients_on=cpus.client,
                                controller_on=cpus.server,
                            )
                        )
                        with pinned(cpus.server):
                            scored(_to_its_end(lab.command("run", "--clients", "1", *options)))
                    else:
                        with pinned(cpus.client):
                            scored(_to_its_end(machine.command(loadsim("run", "--engines", "1", *options))))
                found[way].append(_lag_ms(out, work_s))
    return {
        "pairs": pairs,
        "work_s": work_s,
        **{way: {name: summary([row[name] for row in rows]) for name in rows[0]} for way, rows in found.items()},
        "ratio": {
            name: ratio([row[name] for row in found["cluster"]], [row[name] for row in found["alone"]])
            for name in found["alone"][0]
        },
    }


def _to_its_end(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)


def _lag_ms(out: Path, work_s: float) -> dict[str, float]:
    """Of the one engine, while users were at work, but for the first seconds; and its share of a core."""
    (log,) = (log for log in map(read_log, sorted((out / "logs").glob("*.tlog"))) if len(log.tasks))
    working = [one for one in log.health if "lags_us" in one and WARM_S < one["at_s"] <= work_s]
    lags_us = np.sort(np.array([lag for one in working for lag in one["lags_us"]], np.int64))
    figures = {name: percentile(lags_us, rank) / 1000 for name, rank in RANKS.items()}
    return {**figures, "cpu_share": float(np.mean([one["cpu_share"] for one in working]))}


def ratio(those: Sequence[float], of: Sequence[float]) -> dict[str, float]:
    """The geometric mean of the pairs' ratios, and its 95 % interval by Student's t on their logarithms."""
    logs = [math.log(one / other) for one, other in zip(those, of, strict=True)]
    middle = mean(logs)
    half = one_critical_t(0.05, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    told = {"ratio": middle, "least": middle - half, "most": middle + half}
    return {name: round(math.exp(figure), 3) if figure < math.inf else math.inf for name, figure in told.items()}


# --- logs brought home ----------------------------------------------------------------------------------------------


def measure_pull(_: Cpus, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Logs of so many bytes from each client: from one alone, and from all at once. Files are on the disk.

    The size is the number of clients, and the bytes.
    """
    clients, size_bytes = size
    rows = []
    with hosts(clients + 1) as (controller, *machines):
        for count in (1, clients):
            with short_directory() as directory:
                place = Path(directory)
                names = {f"load{number}": host for number, host in enumerate(machines[:count], 1)}
                with cluster(place, controller, names, {}) as lab:
                    for name in names:
                        leave(place / "runs" / name, name, size_bytes)
                    out = place / "out"
                    out.mkdir()
                    where = (lab.address, place / "certs", out)
                    done = controller.run([sys.executable, "-m", "bench.cluster_pull", *where, *names], LONGEST_S)
                if done.returncode:
                    raise ConfigError(f"bench: cluster: expected logs to be brought, it said: {done.stderr}")
                there = sum(path.stat().st_size for path in out.rglob("*.tlog"))
                assert there == count * (size_bytes // PIECE_BYTES) * PIECE_BYTES
                rows.append(
                    {"clients": count, "mib": there >> 20, "mib_per_s": round(there / 2**20 / float(done.stdout))}
                )
    return rows


# --- room for logs --------------------------------------------------------------------------------------------------


class Left(NamedTuple):
    """A run's bytes in the logs of its one engine and of its machine, in `seconds`; the share that the engine took of
    a core meanwhile; how much of the plan it did."""

    engine_bytes: int
    machine_bytes: int
    seconds: float
    cpu_s: float
    activities: int
    done_share: float


@dataclass(frozen=True, slots=True)
class Logged:
    """The extent of the runs that leave logs; `idle_s` and `stress_s` are the seconds of those two runs."""

    profiles: Sequence[str]
    users: int
    day: str
    work_s: int
    idle_s: int
    stress_s: int


def measure_log_bytes(cpus: Cpus, size: Logged) -> list[dict[str, Any]]:
    """For each profile, some of its users' day: what an activity of the plan leaves in the logs, with all that
    follows from it. Besides that, what engine and machine write in a second with two users who do next to nothing, and
    what an engine writes in a second of a core that it takes in a closed loop."""
    idle = _left(cpus, "loadsim-5.5/light", 2, "8h", size.idle_s)
    idle_bytes_per_s = idle.engine_bytes / idle.seconds
    rows: list[dict[str, Any]] = [
        {
            "profile": "idle",
            "engine_bytes_per_s": round(idle_bytes_per_s),
            "machine_bytes_per_s": round(idle.machine_bytes / idle.seconds),
        }
    ]
    for profile in size.profiles:
        left = _left(cpus, profile, size.users, size.day, size.work_s)
        own_bytes = left.engine_bytes - idle_bytes_per_s * left.seconds
        each = {"activities": left.activities, "bytes_per_activity": round(own_bytes / left.activities)}
        rows.append({"profile": profile, "users": size.users, **each, "done_share": left.done_share})
    left = _left(cpus, "loadsim-5.5/medium", size.users, "8h", size.stress_s, STRESS)
    return [*rows, {"profile": STRESS, "engine_bytes_per_cpu_s": round(left.engine_bytes / left.cpu_s)}]


def _left(cpus: Cpus, profile: str, users: int, day: str, work_s: int, mode: str = CANONICAL) -> Left:
    """Of a run on the null server, with the profile's own distribution lists."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        document = on_null_server(NOWHERE, users, day, work_s)
        document["topology"][0]["profile"] = profile
        document["run"]["mode"] = mode
        del document["lists"]
        nowhere = load_scenario(str(written(place / "nowhere.yaml", document)))
        lists = place / "lists"
        lists.write_text(postfix_aliases(distribution_lists(nowhere)))
        with null_server(Shape(users=users + 1, messages=4, folders=2, lists=lists), cpus.server) as null:
            document["server"] = on_null_server(null.services)["server"]
            scenario = written(place / "scenario.yaml", document)
            with pinned(cpus.client):
                score = score_of(scenario, place / "run", "--engines", "1")
        logs = {path: read_log(path) for path in sorted((place / "run/logs").glob("*.tlog"))}
        size = {len(log.tasks) > 0: path.stat().st_size for path, log in logs.items()}
        (engine,) = (log for log in logs.values() if len(log.tasks))
        at_s = [sample["at_s"] for sample in engine.health]
        working = [one["cpu_share"] for one in engine.health if "cpu_share" in one and 0 < one["at_s"] <= work_s]
    activities = sum(1 for user in range(1, users + 1) for _ in Workload(nowhere).activities(user))
    cpu_s = float(np.mean(working)) * work_s
    return Left(size[True], size[False], max(at_s) - min(at_s), cpu_s, activities, score["done_share"])


CLUSTER_LAG = Part(
    "cluster_lag",
    measure,
    {"Lag of a client's engine, with Dask and without": cluster_tables.lag},
    smallest=(1, 8),
    full=(10, 25),
    needs_root=True,
)
CLUSTER_PULL = Part(
    "cluster_pull",
    measure_pull,
    {"Fetching logs": cluster_tables.pull},
    smallest=(2, 1 << 20),
    full=(4, 256 << 20),
    needs_root=True,
)
CLUSTER_LOG_BYTES = Part(
    "cluster_log_bytes",
    measure_log_bytes,
    {"Log sizes": cluster_tables.log_bytes},
    smallest=Logged(["loadsim-5.5/medium"], 20, "1m", 8, 8, 8),
    full=Logged(known("profiles"), 100, "10m", 100, 30, 20),
)
