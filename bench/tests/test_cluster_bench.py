"""The measurement of clusters: it would notice another load, another start, a wrong clock; and there is none of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Scheduler, Worker
from mailservers import short_directory
from patience import PATIENCE_S

from bench.cluster import clocks
from bench.cluster_lag import ratio
from bench.cluster_members import Traffic, Watched, cluster, traffic, watch
from bench.cluster_same import Done, compare, done
from bench.hosts import hosts
from bench.nullserver import Shape, started
from bench.runs import loadsim, on_null_server, written
from loadsim.cluster.agent import DASK_SETTINGS
from loadsim.cluster.security import PAGES_ADDRESS
from loadsim.timinglog.merge import read_logs

USERS = 30
WORK_S = 8

DID = Done(
    due={(1, "SEND"): Counter({1000: 1}), (2, "BROWSE"): Counter({2000: 2})},
    new={(1, "n1.0"): Counter({2: 1, 3: 1})},
    answers={(2, "rx"): Counter({1: 1}), (3, "ry"): Counter({1: 1})},
    fates={(2, "n1.0"): frozenset({"moved"}), (3, "n1.0"): frozenset({"deleted"})},
    digests=frozenset({"d"}),
    users=Counter({1: 1, 2: 1, 3: 1}),
)


def test_the_same_has_no_differences() -> None:
    """Answers and fates that only one of the runs came to are none."""
    later = replace(DID, answers={(2, "rx"): Counter({1: 1})}, fates={(3, "n1.0"): frozenset({"deleted"})})
    found = compare(DID, later)
    assert found["differences"] == {}
    assert (found["users"], found["due"], found["new_mail"], found["new_mail_recipients"]) == (3, 3, 1, 2)
    assert (found["answers"], found["fates"]) == ({"both": 1, "one": 2, "other": 1}, {"both": 1, "one": 2, "other": 1})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"digests": frozenset({"e"})}, "plan digest"),
        ({"users": Counter({1: 1, 2: 1})}, "users"),
        ({"users": Counter({1: 1, 2: 2, 3: 1})}, "users in two engines"),
        ({"due": {**DID.due, (1, "SEND"): Counter({1001: 1})}}, "due times"),
        ({"due": {**DID.due, (2, "BROWSE"): Counter({2000: 1})}}, "due times"),
        ({"due": {**DID.due, (3, "SEND"): Counter({5: 1})}}, "due times"),
        ({"new": {(1, "n1.0"): Counter({2: 1})}}, "recipients of new mail"),
        ({"new": {(1, "n1.0"): Counter({2: 2, 3: 1})}}, "recipients of new mail"),
        ({"new": {**DID.new, (1, "n1.1"): Counter({2: 1})}}, "recipients of new mail"),
        ({"answers": {(2, "rx"): Counter({3: 1})}}, "recipients of answers"),
        ({"fates": {(2, "n1.0"): frozenset({"deleted"})}}, "what was done with a message"),
    ],
)
def test_what_is_different_is_told(change: dict[str, Any], what: str) -> None:
    """Whichever of the two runs it is in, and only that."""
    for one, other in ((DID, replace(DID, **change)), (replace(DID, **change), DID)):
        assert list(compare(one, other)["differences"]) == [what]


def test_ratios_have_the_interval_of_students_t() -> None:
    """The mean of the logarithms and its deviation are numpy's, and t is that of a printed table."""
    those, of = [3.0, 2.2, 5.1, 2.9, 4.0, 3.3], [2.9, 2.5, 4.0, 3.0, 3.5, 3.6]
    logs = np.log(np.array(those) / np.array(of))
    half = 2.571 * np.std(logs, ddof=1) / np.sqrt(6)  # five degrees of freedom
    expected = {"ratio": logs.mean(), "least": logs.mean() - half, "most": logs.mean() + half}
    assert ratio(those, of) == {name: round(float(np.exp(figure)), 3) for name, figure in expected.items()}


def test_between_two_instants_only_what_went_through_then_counts() -> None:
    """By the looks that lie within them."""
    looks = [(at_s, Traffic(*(int(at_s * 10) * one for one in (100, 1, 50, 2)))) for at_s in (0.0, 1.0, 2.5, 4.0, 9.0)]
    seen = Watched(0.0, traffics=looks)
    assert seen.between(0.5, 4.5) == (3.0, Traffic(3000, 30, 1500, 60))


def test_dask_is_at_rest_beside_engines() -> None:
    """Neither a worker nor its scheduler does anything by itself more often than four times a second."""

    async def periods_ms() -> list[float]:
        local = {"host": "127.0.0.1", "dashboard_address": PAGES_ADDRESS}
        async with (
            Scheduler(port=0, **local) as scheduler,
            Worker(scheduler.address, nthreads=1, memory_limit=0, **local) as worker,
        ):
            return [each.callback_time for of in (scheduler, worker) for each in of.periodic_callbacks.values()]

    with dask.config.set(DASK_SETTINGS):
        assert min(asyncio.run(periods_ms())) >= 250


SINK = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    with connection:
        while connection.recv(1 << 16):
            pass
    print("all", flush=True)
    sys.stdin.read()
"""

SOURCE = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(bytes(int(sys.argv[3])))
"""


@pytest.mark.hosts
def test_an_interface_counts_what_goes_over_it() -> None:
    """A million bytes from one host to another, with their headers, and next to nothing the other way."""
    size = 1_000_000
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosts(2) as (one, other), one.start([sys.executable, "-c", SINK, one.address], **pipes) as sink:
        assert sink.stdin is not None
        assert sink.stdout is not None
        port = sink.stdout.readline().strip()
        before = traffic(sink.pid)
        assert other.run([sys.executable, "-c", SOURCE, one.address, port, str(size)], PATIENCE_S).returncode == 0
        assert sink.stdout.readline() == "all\n"
        after = traffic(sink.pid)
        sink.stdin.close()
        assert size <= after.received_bytes - before.received_bytes < 1.2 * size
        assert after.sent_bytes - before.sent_bytes < size / 4


@pytest.mark.hosts
@pytest.mark.compiler
def test_a_cluster_of_hosts_makes_the_load_of_one_machine() -> None:
    """User by user, from due times to what is done with messages; on clocks that are known to differ, by as much as
    the logs say. Station, two clients and mail server are on hosts of their own, everything is said over TLS."""
    ahead_s = {"load1": 1000, "load2": 500_000}
    with short_directory() as place, hosts(4) as (station, first, second, server):
        with started(Shape(users=USERS + 1, messages=4, folders=2), on=server) as null:
            document = on_null_server(null.services, USERS, "1m", WORK_S)
            scenario = written(place / "scenario.yaml", document)
            with cluster(place, station, {"load1": first, "load2": second}, ahead_s) as lab:
                options = ("--clients", "2", "--out", place / "whole", "--no-report", "--even-invalid")
                command = lab.command("run", scenario, *options)
                seen = watch(command, place / "run", lab.up.process.pid, lab.roots(), WORK_S)
            alone = loadsim(
                "run", "--even-invalid", scenario, "--out", place / "alone", "--no-report", "--engines", "1"
            )
            first.run(alone, PATIENCE_S)
        found = compare(done(place / "whole"), done(place / "alone"))
        assert found["differences"] == {}
        assert found["users"] == USERS
        assert min(found["due"], found["new_mail_recipients"], found["fates"]["both"]) > 5
        log = read_logs([place / "whole"])
        score = json.loads((place / "whole/score.json").read_text())
    of_clocks = clocks(log, ahead_s)
    assert of_clocks["readings"] >= 2
    assert of_clocks["beyond_claim"] == 0
    begun_ns: dict[str, int] = {}
    for source in log.sources:
        if source.simulates:
            begun_ns[source.client] = max(source.facts["began_ns"], begun_ns.get(source.client, 0))
    late_ms = {name: (at_ns - ahead_s[name] * 10**9) / 1e6 for name, at_ns in begun_ns.items()}
    one, other = score["per_client"]
    apart_ms = late_ms[one["client"]] - late_ms[other["client"]]
    told_ms = one["start_late_ms"] - other["start_late_ms"]
    assert abs(told_ms - apart_ms) <= one["start_error_ms"] + other["start_error_ms"] + 0.002  # as they are rounded
    assert {"agent", "machine", "engine", "station", "run"} <= seen.at_work[0][1].keys()
