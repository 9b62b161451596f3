"""Agents and a controller over Dask: its list of clients, a network failure, one run at a time."""

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dask_clusters import RUN, Agents, cluster, conduct, quiet_dask, shared
from paths import SUPPORT
from patience import PATIENCE_S
from workers import wait_for_end

from bench.hosts import Host, hosts
from loadsim.build_fingerprint import build_fingerprint
from loadsim.cluster.worker_channels import worker_channels
from loadsim.cluster.worker_directory import start_worker
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError
from loadsim.timinglog.reader import read_log

__all__ = ["quiet_dask"]

pytestmark = [pytest.mark.usefixtures("quiet_dask"), pytest.mark.nightly(part="hosts")]


def test_the_controller_lists_connected_clients(tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster(tmp_path, "one", "two", "no_name") as (controller, agents):  # of a client
            found = await controller.clients()
            assert list(found) == ["one", "two"]
            assert {about["software"] for about in found.values()} == {build_fingerprint()}
            assert {about["cores"] for about in found.values()} == {len(os.sched_getaffinity(0))}
            assert all(about["free_bytes"] > 0 for about in found.values())
            agents.signal("two", signal.SIGKILL)
            (share,) = [client.share for client in shared(tmp_path / "shares", "three")]
            with pytest.raises(ConfigError, match=r"^client three: expected an agent, found: no client three$"):
                async with worker_channels(controller, RUN) as open_channel:
                    await open_channel(share)

    (tmp_path / "shares").mkdir()
    asyncio.run(work())


ON_A_HOST = """
import json, pickle, sys
from test_cluster import conduct_and_cut
print(json.dumps(conduct_and_cut(*pickle.load(sys.stdin.buffer))))
"""


def conduct_and_cut(place: Path, lab: Sequence[Host]) -> list[dict[str, Any]]:
    """A run of three machines on hosts of their own, by a controller on the first, where this is called; its events.

    From the second second on, two hosts are cut off: one for five seconds, one for ever.
    """
    since: list[float] = []
    controller, *others = lab
    names = ("fine", "back", "gone")
    on = dict(zip(names, others, strict=True))

    def watch(snapshot: LiveSnapshot, _: Agents) -> None:
        if snapshot.at_s is not None and snapshot.at_s > 1:
            since.append(snapshot.at_s)
            if len(since) == 1:
                on["back"].cut()
                on["gone"].cut()
            elif len(since) == 6:  # shown once a second
                on["back"].mend()

    return conduct(place, shared(place, *names, seconds=14), watch, address=controller.address, lab=on)


def test_a_client_rejoins_after_a_short_network_failure_and_is_lost_after_a_long_one(tmp_path: Path) -> None:
    """For five seconds: nothing is lost. For ever: the controller goes on without the client, whose worker goes on."""
    with hosts(4) as lab:
        path = os.pathsep.join([str(Path(__file__).parent), str(SUPPORT), os.environ.get("PYTHONPATH", ""), *sys.path])
        done = subprocess.run(
            lab[0].command([sys.executable, "-c", ON_A_HOST]),
            input=pickle.dumps((tmp_path, lab)),
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert done.returncode == 0, done.stderr.decode()
        events = json.loads(done.stdout.splitlines()[-1])
        (pid,) = [event["pid"] for event in events if event["event"] == "client ready" and event["client"] == "gone"]
        wait_for_end(pid)
    assert [event["client"] for event in events if event["event"] == "client lost"] == ["gone"]
    for name in ("fine", "back", "gone"):
        logs = [read_log(path) for path in (tmp_path / name / RUN / "logs").iterdir()]
        assert [log.sources[0].facts.ended for log in logs] == ["completed"] * 2
        assert not [damage for log in logs for damage in log.damages]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    clients = shared(tmp_path, "one")
    (tmp_path / "one").mkdir()
    process = start_worker(tmp_path / "one" / "run-0")

    async def work() -> str:
        async with cluster(tmp_path, "one") as (controller, _), worker_channels(controller, RUN) as open_channel:
            return await (await open_channel(clients[0].share)).wait()

    try:
        assert asyncio.run(work()) == (
            f"no worker process: run {RUN}: expected nothing else at work here, found run run-0"
        )
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "one" / RUN).exists()
