"""Workers: kept in step by a controller, and left alone by their agents or the controller."""

import asyncio
import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from control_lines import read_line
from patience import PATIENCE_S
from virtual_runs import NOWHERE, quiet, scenario_of
from workers import CONTROL_LIMIT_S, Agreed, Client, on_fake, wait_for_end

from loadsim.cluster.placement import WorkerAssignment
from loadsim.cluster.worker_directory import COMPLAINTS_NAME, LOGS_NAME, SOCKET_NAME, in_use, start_worker
from loadsim.engine.channel import Channel
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl
from loadsim.engine.coordinator import Coordinator, MemberAssignment
from loadsim.engine.event_log import Events
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError
from loadsim.scenario.workload import Workload
from loadsim.timinglog.records import GIVEN_UP

PASSWORD = "hush-hush"


def controller(
    clients: Sequence[Client], watch: Callable[[LiveSnapshot], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Make a whole run of these, and return the controller's events; `watch` gets a snapshot each second."""
    out = io.StringIO()
    by_share = {id(client.share): client for client in clients}

    async def open_channel(part: MemberAssignment) -> Channel:
        return await by_share[id(part)].open()

    async def main() -> None:
        shares = [client.share for client in clients]
        pool = Coordinator(shares, Events(out), watch, StandaloneControl(MonotonicClock(), 0.5), open_channel)
        try:
            await asyncio.wait_for(pool.run(), PATIENCE_S)
        finally:
            for client in clients:
                await client.close()

    asyncio.run(main())
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.nightly(part="hosts")
@pytest.mark.parametrize(
    ("ramp_up", "goes_on", "ended_how"),
    [("0s", True, "completed"), ("60s", False, GIVEN_UP)],
    ids=["at work", "before the start"],
)
def test_a_worker_finishes_its_load_without_a_controller(
    tmp_path: Path, ramp_up: str, goes_on: bool, ended_how: str
) -> None:
    """Without a controller for longer than the limit, it goes on, ends by itself, and its logs are whole.

    Without a common start there is nothing to go on with.
    """
    agreed = Agreed(tmp_path, on_fake(tmp_path, ramp_up=ramp_up), NOWHERE, {"one": 1})
    (client,) = agreed.clients

    def watch(snapshot: LiveSnapshot) -> None:
        if client.agent is not None and ((snapshot.at_s is not None and snapshot.at_s > 0) or ramp_up != "0s"):
            os.kill(client.agent.pid, signal.SIGKILL)
            client.agent = None

    events = controller([client], watch)
    (lost,) = [event for event in events if event["event"] == "client lost"]
    assert (lost["client"], lost["users"], lost["why"]) == ("one", 4, "no agent was left")
    (ready,) = [event for event in events if event["event"] == "client ready"]
    wait_for_end(ready["pid"])
    (alone,) = client.events("controller lost")
    assert alone["goes_on"] is goes_on
    assert alone["quiet_s"] > CONTROL_LIMIT_S
    (engine, machine) = client.logs["1"], client.logs["machine"]
    assert (engine.sources[0].facts.ended, machine.sources[0].facts.ended) == (ended_how, "completed")
    assert not engine.damages
    if goes_on:
        planned = sum(1 for user in range(1, 5) for _ in Workload(client.share.scenario).activities(user))
        assert planned == (engine.tasks["task"] == engine.strings.index("BROWSE")).sum() > 0
    assert (client.place / COMPLAINTS_NAME).read_text() == ""
    assert not (client.place / SOCKET_NAME).exists()


def test_a_worker_without_its_source_address_is_named(tmp_path: Path) -> None:
    scenario = on_fake(tmp_path, source_addresses=["192.0.2.7"])
    (client,) = Agreed(tmp_path, scenario, NOWHERE, {"one": 1}).clients
    with pytest.raises(ConfigError, match=r"^client one: virtual: client\.source_addresses: .*192\.0\.2\.7"):
        controller([client])
    assert not (client.place / LOGS_NAME).exists()


def test_a_worker_with_another_plan_is_refused(tmp_path: Path) -> None:
    """The worker finds out by itself. It is refused by name, and leaves nothing."""
    scenario = scenario_of(tmp_path / "s", (quiet(), 4))
    _, two = clients = Agreed(tmp_path, scenario, NOWHERE, {"one": 1, "two": 1}).clients
    two.share = replace(two.share, fingerprints=replace(two.share.fingerprints, plan="other"))
    with pytest.raises(ConfigError, match=r"^client two: plan: expected the controller's, other, found"):
        controller(clients)
    assert not two.place.exists()


def test_the_workers_directory_is_private(tmp_path: Path) -> None:
    """Its directory is its owner's alone, and so is its socket; a directory into which others get is refused."""
    place = tmp_path / ("long" * 40) / "client"  # no socket's path could be as long
    place.parent.mkdir()
    process = start_worker(place)
    try:
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (place, place / SOCKET_NAME)]
        assert modes == [0o700, 0o600]
        assert in_use(place)
        with pytest.raises(ConfigError, match=r"expected to make a directory for a worker, found: .*exists"):
            start_worker(place)
    finally:
        process.kill()
        process.wait()
    assert not in_use(place)


def test_an_assignment_is_decoded_as_encoded_and_shows_no_password(tmp_path: Path) -> None:
    """A worker decodes what the controller encoded; its users are those of all its engines."""
    scenario = scenario_of(tmp_path, (quiet(), 100), accounts={"user": "u{index}", "password": PASSWORD})
    one, two = (client.share for client in Agreed(tmp_path, scenario, NOWHERE, {"one": 3, "two": 1}).clients)
    assert WorkerAssignment.read(read_line(one.encode())[1]) == one
    assert set(one.assignment) == {user for assignment in one.per_engine for user in assignment}
    assert sorted([*one.assignment, *two.assignment]) == list(range(1, 101))
    assert PASSWORD not in repr(one)
    assert [begin.name for begin in one.begins(tmp_path)] == ["1", "2", "3"]
    assert {begin.header["client"] for begin in one.begins(tmp_path)} == {"one"}


def test_load_processes_do_not_import_dask() -> None:
    """Machine processes and engines do without it: its loop, its threads and its memory are the agent's."""
    modules = "loadsim.cluster.worker, loadsim.cluster.channel, loadsim.engine.process, loadsim.cli.run"
    said = subprocess.check_output([sys.executable, "-c", f"import sys, {modules}; print(*sys.modules)"], text=True)
    assert "loadsim.cluster.worker" in said.split()
    assert not {"dask", "distributed", "tornado"} & set(said.split())
