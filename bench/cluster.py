"""A cluster on test hosts, held against one machine: is it the same load, at the same time, and what does it cost?

Clients have monotonic clocks of their own (time namespaces) that are known to be ahead of the controller's by whole
seconds. So how far apart they really started, and by how much they are wrong about the controller's clock, is known to
the nanosecond, without asking loadsim.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import cluster_tables
from bench.cluster_members import Kind, Lab, Watched, cluster, costs, started, watch
from bench.cluster_same import compare, done
from bench.hosts import Host, hosts
from bench.nullserver import Shape
from bench.nullserver import started as null_server
from bench.part import Part
from bench.processes import LONGEST_S, Cpus, short_directory, summary
from bench.runs import loadsim, on_null_server, reasons, written
from loadsim.errors import ConfigError
from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

CLIENTS = 4
AHEAD_S = 1000
"""The first client's clock is so many seconds ahead of the controller's, the second's twice as many, and so on."""

PORT = 9464
"""Port of the metrics, on a host without other programs."""

ROUND_S = 0.05
"""Seconds between two looks for a new snapshot."""

SNAPSHOTS = f"""
import json, time, urllib.request
seen = {{}}
while True:
    try:
        with urllib.request.urlopen("http://127.0.0.1:{PORT}/metrics", timeout=5) as page:
            text = page.read().decode()
        found = [line.split()[1] for line in text.splitlines() if line.startswith("loadsim_run_seconds ")]
        if found:
            seen.setdefault(found[0], time.monotonic())
    except OSError:
        if seen:
            break
    time.sleep({ROUND_S})
print(json.dumps(sorted(seen.values())))
"""
"""Looks at the metrics of a run until there are none any more; says when each new snapshot of all clients was there."""


class Size(NamedTuple):
    """Of the run that a cluster and one machine make: Medium users, whose day of eight hours goes by in `day`."""

    users: int
    day: str
    work_s: int
    ramp_up_s: int
    engines: int


@contextmanager
def _place() -> Iterator[Path]:
    """A directory that the mail server's own users can enter."""
    with short_directory() as directory:
        yield Path(directory)


def measure(_: Cpus, size: Size) -> dict[str, Any]:
    """Make one run by a cluster of four clients and by one machine, on one Dovecot and Postfix, each on its host."""
    with _place() as place, hosts(CLIENTS + 2) as lab:
        controller, *clients, server = lab
        scenario = written(place / "lab.yaml", _document(place, server, size))
        serve = loadsim("server", "dovecot-postfix", scenario, "--listen", server.address, "--dir", place / "server")
        with started(place / "server.said", server.command(serve)) as serving:
            serving.until("Ctrl-C stops it")
            named = {f"load{number}": host for number, host in enumerate(clients, 1)}
            ahead_s = {name: AHEAD_S * number for number, name in enumerate(named, 1)}
            with cluster(place, controller, named, ahead_s) as members:
                seen, snapshots = _cluster_run(members, scenario, place / "whole", size)
            whole = _sent(place / "server")
            alone = clients[0].run(
                loadsim(
                    *("run", "--no-report", "--even-invalid", scenario, "--out", place / "alone", "--json"),
                    *("--engines", str(size.engines)),
                ),
                LONGEST_S,
            )
            if not alone.stdout:
                raise ConfigError(f"bench: cluster: expected a run of one machine, it said: {alone.stderr}")
            sent = _sent(place / "server")
        found = compare(done(place / "whole"), done(place / "alone"))
        found["differences"] |= _unlike_sent(whole, sent)
        log = read_logs([place / "whole"])
        score = json.loads((place / "whole/score.json").read_text())
        return {
            **size._asdict(),
            "clients": CLIENTS,
            "status": seen.status,
            "verdict": score["verdict"]["validity"],
            "reasons": reasons(score),
            "same": {**found, "sent_items": len(whole)},
            "clocks": clocks(log, ahead_s),
            "claimed_start_late_ms": [one["start_late_ms"] for one in score["per_client"]],
            "claimed_start_error_ms": [one["start_error_ms"] for one in score["per_client"]],
            "late_generator_p95_ms": [one["lateness_p95_ms"] for one in score["per_client"]],
            "control": control(seen, CLIENTS, size.work_s),
            "snapshots": _gaps(snapshots),
        }


def _document(place: Path, server: Host, size: Size) -> dict[str, Any]:
    """The scenario. Its Medium users have few folders and messages at first: 2,000 mailboxes are to be made, twice."""
    little = {"inbox": 2, "folders": 2, "messages_per_folder": 2, "deleted_items": 1}
    written(place / "medium.yaml", {"from": "loadsim-5.5/medium", "name": "little-mail", "start_state": little})
    return {
        "name": "lab",
        "server": {"imap": {"host": server.address, "port": 10143}, "smtp": {"host": server.address, "port": 10025}},
        "allow_hosts": [server.address],
        "accounts": {"user": "user{index:05d}", "password": "secret-{index}"},
        "topology": [{"profile": "./medium.yaml", "users": size.users}],
        "run": {
            "day_length": size.day,
            "duration": f"{size.work_s}s",
            "ramp_up": f"{size.ramp_up_s}s",
            "warm_up": "5s",
            "window": f"{size.work_s - 5}s",
        },
        "initialise": "always",
    }


def _cluster_run(members: Lab, scenario: Path, out: Path, size: Size) -> tuple[Watched, list[float]]:
    """The run, and when there was a new snapshot."""
    options = ("--clients", str(CLIENTS), "--out", out, "--json", "--no-report", "--metrics", str(PORT))
    command = members.command("run", "--even-invalid", scenario, *options)
    looking = members.controller.start([sys.executable, "-c", SNAPSHOTS], stdout=subprocess.PIPE)
    try:
        seen = watch(command, members.place / "run", members.up.process.pid, members.roots(), size.work_s)
        if not (out / "score.json").exists():
            raise ConfigError(f"bench: cluster: expected a run, it said: {(members.place / 'run').read_text()}")
        said, _ = looking.communicate(timeout=LONGEST_S)
    finally:
        looking.kill()
        looking.wait()
    begin_s, end_s = _work(seen, size.work_s)
    return seen, [at_s for at_s in json.loads(said) if begin_s <= at_s <= end_s]


def _work(seen: Watched, work_s: float) -> tuple[float, float]:
    """From when to when users were at work, less a second at each end."""
    return seen.phases["work"] + 1, seen.phases["work"] + work_s - 1


def _sent(server: Path) -> dict[str, tuple[str, str, str]]:
    """Return new mail in the server's Sent Items by `doveadm`: id, kind, digest of the body, and recipients."""
    conf = server / "dovecot/dovecot.conf"
    command = ["doveadm", "-c", str(conf), "-f", "json", "fetch", "-A", f"user hdr.{HEADER.lower()} hdr.to"]
    asked = subprocess.run(
        [*command, "mailbox", "Sent Items"], capture_output=True, text=True, check=True, timeout=LONGEST_S
    )
    found = {}
    for row in json.loads(asked.stdout):
        tag = MessageTag.parse(row[f"hdr.{HEADER.lower()}"])
        assert tag is not None
        if tag.id.startswith("n"):
            found[tag.id] = tag.kind, tag.body, " ".join(row["hdr.to"].split())
    return found


def _unlike_sent(whole: Mapping[str, Any], alone: Mapping[str, Any]) -> dict[str, list[str]]:
    unlike = sorted(name for name in whole.keys() | alone.keys() if whole.get(name) != alone.get(name))
    return {"what lies in Sent Items": [f"{len(unlike)}", *unlike[:5]]} if unlike else {}


# --- figures --------------------------------------------------------------------------------------------------------


def clocks(log: TimingLog, ahead_s: Mapping[str, int]) -> dict[str, Any]:
    """Return the spread of the stated and of the actual starts, and the true and stated errors of the controller's
    clock over all readings, in ms.

    `ahead_s` is how far ahead of the controller's clock theirs are in truth.
    """
    engines = [source for source in log.sources if source.simulates]
    starts_ns, begun_ns = (
        [getattr(source.facts, fact) - ahead_s[source.client] * 10**9 for source in engines]
        for fact in ("start_ns", "began_ns")
    )
    read = [(sample["client"], sample["controller_clock"]) for sample in log.health if "controller_clock" in sample]
    wrong_ns = [abs(one["controller_ns"] - one["at_ns"] + ahead_s[client] * 10**9) for client, one in read]
    claimed_ns = [one["error_ns"] for _, one in read]
    return {
        "skew_ms": round((max(starts_ns) - min(starts_ns)) / 1e6, 4),
        "begun_skew_ms": round((max(begun_ns) - min(begun_ns)) / 1e6, 4),
        "readings": len(read),
        "wrong_ms": _spread_ms(wrong_ns),
        "claimed_ms": _spread_ms(claimed_ns),
        "beyond_claim": sum(wrong > claim for wrong, claim in zip(wrong_ns, claimed_ns, strict=True)),
    }


def _spread_ms(figures_ns: list[int]) -> dict[str, float]:
    return {"median": round(float(np.median(figures_ns)) / 1e6, 4), "most": round(max(figures_ns) / 1e6, 4)}


def control(seen: Watched, clients: int, work_s: float) -> dict[str, float]:
    """Return the traffic of the controller's interface while users were at work, per second and client."""
    seconds, through = seen.between(*_work(seen, work_s))
    each = seconds * clients
    return {
        "to_station_bytes_per_s": round(through.received_bytes / each, 1),
        "from_station_bytes_per_s": round(through.sent_bytes / each, 1),
        "to_station_packets_per_s": round(through.received_packets / each, 2),
        "from_station_packets_per_s": round(through.sent_packets / each, 2),
    }


def _gaps(at_s: list[float]) -> dict[str, Any]:
    """The time between new snapshots."""
    return {"count": len(at_s), "gap_s": summary([after - before for before, after in pairwise(at_s)])}


# --- many small clients ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Many:
    """The extent of a run of many clients."""

    clients: int
    users_each: int
    work_s: int


def measure_many(_: Cpus, size: Many) -> dict[str, Any]:
    """Many clients on one host, a controller on another, and the null server on a third."""
    clients, users, work_s = size.clients, size.clients * size.users_each, size.work_s
    with _place() as place, hosts(3) as (controller, machine, server):
        names = {f"load{number:02d}": machine for number in range(1, clients + 1)}
        with null_server(Shape(users=users + 1, messages=4, folders=2), on=server) as null:
            scenario = written(place / "many.yaml", on_null_server(null.services, users, "7m", work_s))
            began_s = time.monotonic()
            with cluster(place, controller, names, {}) as members:
                joined_s = time.monotonic()
                joined_cpu = costs(members.roots())
                options = ("--clients", str(clients), "--out", place / "out", "--json", "--no-report")
                command = members.command("run", "--even-invalid", scenario, *options)
                seen = watch(command, place / "run", members.up.process.pid, members.roots(), work_s)
        if not (place / "out/score.json").exists():
            raise ConfigError(f"bench: cluster: expected a run, it said: {(place / 'run').read_text()}")
        score = json.loads((place / "out/score.json").read_text())
        log = read_logs([place / "out"])
        users_seen = sorted(user for source in log.sources if source.simulates for user in source.assignment or ())
        left = [path for path in (place / "runs").rglob("*") if path.is_file()]
        return {
            "clients": clients,
            "users": users,
            "users_in_logs_once": users_seen == list(range(1, users + 1)),
            "ended": sum(source.ended for source in log.sources if source.simulates),
            "engines": sum(source.simulates for source in log.sources),
            "files_left_at_clients": len(left),
            "status": seen.status,
            "verdict": score["verdict"]["validity"],
            "reasons": reasons(score),
            "lost_users": sum(one["lost_users"] for one in score["per_client"]),
            "join_s": round(joined_s - began_s, 1),
            "join_cpu_s": round(sum(kind.cpu_s for kind in joined_cpu.values()), 1),
            "until_log_on_s": round(seen.phases["log-on"] - seen.began_s, 1),
            "until_work_s": round(seen.phases["work"] - seen.began_s, 1),
            "after_work_s": round(seen.ended_s - seen.phases["work"] - work_s, 1),
            "processes": kinds(seen.at_work),
            "control": control(seen, clients, work_s),
            "start_late_ms": _most(one["start_late_ms"] for one in score["per_client"]),
            "start_error_ms": _most(one["start_error_ms"] for one in score["per_client"]),
        }


def _most(figures: Iterable[float | None]) -> float | None:
    return max((abs(figure) for figure in figures if figure is not None), default=None)


def kinds(at_work: list[tuple[float, dict[str, Kind]]]) -> dict[str, dict[str, float]]:
    """Of each kind of process: how many, memory of all together, share of a core that all took while at work."""
    (began_s, before), (ended_s, after) = at_work
    return {
        kind: {
            "processes": now.processes,
            "memory_mib": round(now.memory_kib / 1024, 1),
            "cpu_share": round((after[kind].cpu_s - now.cpu_s) / (ended_s - began_s), 4) if kind in after else math.nan,
        }
        for kind, now in before.items()
    }


CLUSTER = Part(
    "cluster",
    measure,
    {
        "Four clients and one machine: the same load": cluster_tables.same,
        "Start, clocks and control traffic of the same run": cluster_tables.in_step,
    },
    smallest=Size(40, "1m", 8, 1, 4),
    full=Size(2000, "1h", 100, 40, 8),
    needs_root=True,
)
CLUSTER_MANY = Part(
    "cluster_many",
    measure_many,
    {"Many small clients on one machine": cluster_tables.many},
    smallest=Many(2, 5, 8),
    full=Many(34, 10, 60),
    needs_root=True,
)
