"""The measurement of clusters: it would notice another load, another start, a wrong clock; and there is none of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE_S

from bench.cluster_lag import ratio
from bench.cluster_members import Traffic, Watched, traffic
from bench.cluster_same import Done, compare
from bench.hosts import hosts
from loadsim.cluster.own_dask import PAGES_ADDRESS, Scheduler, Worker

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


def test_equal_runs_have_no_differences() -> None:
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
def test_compare_names_each_difference(change: dict[str, Any], what: str) -> None:
    """In either of the two runs, and nothing else."""
    for one, other in ((DID, replace(DID, **change)), (replace(DID, **change), DID)):
        assert list(compare(one, other)["differences"]) == [what]


def test_ratios_have_the_interval_of_students_t() -> None:
    """The mean of the logarithms and its deviation are numpy's, and t is that of a printed table."""
    those, of = [3.0, 2.2, 5.1, 2.9, 4.0, 3.3], [2.9, 2.5, 4.0, 3.0, 3.5, 3.6]
    logs = np.log(np.array(those) / np.array(of))
    half = 2.571 * np.std(logs, ddof=1) / np.sqrt(6)  # five degrees of freedom
    expected = {"ratio": logs.mean(), "least": logs.mean() - half, "most": logs.mean() + half}
    assert ratio(those, of) == {name: round(float(np.exp(figure)), 3) for name, figure in expected.items()}


def test_only_traffic_between_two_instants_counts() -> None:
    """By the looks that lie within them."""
    looks = [(at_s, Traffic(*(int(at_s * 10) * one for one in (100, 1, 50, 2)))) for at_s in (0.0, 1.0, 2.5, 4.0, 9.0)]
    seen = Watched(0.0, traffics=looks)
    assert seen.between(0.5, 4.5) == (3.0, Traffic(3000, 30, 1500, 60))


def test_dask_wakes_at_most_four_times_a_second() -> None:
    """Neither a worker nor its scheduler does anything by itself more often than four times a second."""

    async def periods_ms() -> list[float]:
        local = {"host": "127.0.0.1", "dashboard_address": PAGES_ADDRESS}
        async with (
            Scheduler(port=0, **local) as scheduler,
            Worker(scheduler.address, nthreads=1, memory_limit=0, **local) as worker,
        ):
            return [each.callback_time for of in (scheduler, worker) for each in of.periodic_callbacks.values()]

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


@pytest.mark.nightly(part="hosts")
def test_an_interface_counts_its_traffic() -> None:
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
