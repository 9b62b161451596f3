"""Machine processes as they live: kept in step by a station, orphaned by their agents, bereft of the station."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
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
from loadsim.model.documents.scenario_sections import OnLoss
from loadsim.model.population import distribution_lists
from loadsim.model.records import EVENTS, OUTCOMES
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.workload import NEW_MAIL, Workload
from loadsim.provisioning.initialise import initialise
from loadsim.servers.embedded import start_embedded
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import GIVEN_UP

PASSWORD = "hush-hush"


def station(clients: Sequence[Client], watch: Callable[[LiveSnapshot], None] = lambda _: None) -> list[dict[str, Any]]:
    """A whole run of these; the station's events. `watch` hears once a second where all stand."""
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


def on_imap(place: Path, profile: Mapping[str, Any], users: int, seconds: int) -> Scenario:
    """Days of so many seconds, on the embedded server."""
    (place / "profile.yaml").write_text(yaml.safe_dump({"name": "own", **profile}))
    document = {
        "name": "machines",
        "server": "embedded",
        "accounts": {"user": "u{index}", "password": PASSWORD},
        "topology": [{"profile": str(place / "profile.yaml"), "users": users, "protocol": "imap"}],
        "lists": {"count": 0},
        "run": {"day_length": f"{seconds}s", "ramp_up": "1s", "warm_up": "0s", "window": f"{seconds}s"},
        "limits": {"drain": "60s", "grace": "20s"},
    }
    (place / "scenario.yaml").write_text(yaml.safe_dump(document))
    return load_scenario(str(place / "scenario.yaml"))


@pytest.mark.nightly(part="hosts")
def test_machines_make_one_run_whatever_becomes_of_their_agents(tmp_path: Path) -> None:
    """Two machines, three engines, mail to and fro on a real server; an agent is killed while they work.

    Its machine outlives it, and is led on by way of the next one: one start for all, nothing planned is missing,
    nothing failed, and all mail is seen. No password is in any file of the machines, or on a command line.
    """
    profile = quiet(new_mail={"per_day": 12, "save_sent": False}, process_inbox={"per_day": 6})
    scenario = on_imap(tmp_path, profile, users=6, seconds=6)
    workload = Workload(scenario)
    accounts = [scenario.account(index) for index in range(1, 7)]
    command_lines = []
    with start_embedded(accounts, distribution_lists(scenario), tmp_path) as server:
        services = server.services
        asyncio.run(initialise(workload, services, scenario.initialise, lambda *_: None))
        one, two = clients = Agreed(tmp_path, scenario, services, {"one": 1, "two": 2}).clients

        def watch(snapshot: LiveSnapshot) -> None:
            if snapshot.at_s and snapshot.at_s > 2 and two.agents == 1 and two.agent is not None:
                command_lines.append(subprocess.check_output(["ps", "-eww", "-o", "args"]))
                os.kill(two.agent.pid, signal.SIGKILL)

        events = station(clients, watch)
    assert (one.agents, two.agents) == (1, 2)
    assert sorted(event["client"] for event in events if event["event"] == "client ready") == ["one", "two"]
    assert not [event for event in events if event["event"].endswith("lost")]
    log = read_logs([client.place for client in clients])
    assert {source.client + source.engine: source.ended for source in log.sources} == dict.fromkeys(
        ["one1", "onemachine", "two1", "two2", "twomachine"], True
    )
    assert len({source.facts.start_ns for source in log.sources}) == 1
    sends = log.tasks[log.tasks["task"] == log.strings.index("SEND")]
    due = Counter(
        (user, activity.due_us)
        for user in range(1, 7)
        for activity in workload.activities(user)
        if activity.kind == NEW_MAIL
    )
    assert Counter(zip(sends["user"].tolist(), sends["scheduled_us"].tolist(), strict=True)) == due
    assert len(due) > 50
    outcomes = {OUTCOMES[code] for code in sends["outcome"].tolist()}
    assert {"ok"} <= outcomes <= {"ok", "skipped", "unfinished"}  # the last two where the machine is very busy
    accepted, seen = (
        {(mail["message"], mail["user"]) for mail in log.mails if EVENTS[mail["event"]] in names}
        for names in (("accepted",), ("seen", "found"))
    )
    assert accepted
    assert accepted <= seen
    of_two = {user for hand in two.share.per_engine for user in hand}
    ways = {(mail["sender"] in of_two, mail["user"] in of_two) for mail in log.mails}
    assert ways == set(product((True, False), repeat=2))
    assert command_lines
    files = [path.read_bytes() for client in clients for path in client.place.rglob("*") if path.is_file()]
    assert not [text for text in (*files, *command_lines) if PASSWORD.encode() in text]


@pytest.mark.nightly(part="hosts")
@pytest.mark.parametrize(
    ("on_control_loss", "ramp_up", "goes_on", "ended_how"),
    [("continue", "0s", True, "completed"), ("stop", "0s", False, GIVEN_UP), ("continue", "60s", False, GIVEN_UP)],
    ids=["at work: continue", "at work: stop", "before the start"],
)
def test_a_machine_without_a_station(
    tmp_path: Path, on_control_loss: OnLoss, ramp_up: str, goes_on: bool, ended_how: str
) -> None:
    """With nobody above it for longer than it may be, it does as it was told, ends by itself, and its logs are whole.

    Without a common start there is nothing to go on with.
    """
    agreed = Agreed(tmp_path, on_fake(tmp_path, ramp_up=ramp_up), NOWHERE, {"one": 1}, on_control_loss)
    (client,) = agreed.clients
    client.most_agents = 1

    def watch(snapshot: LiveSnapshot) -> None:
        if client.agent is not None and ((snapshot.at_s is not None and snapshot.at_s > 0) or ramp_up != "0s"):
            os.kill(client.agent.pid, signal.SIGKILL)
            client.agent = None

    events = station([client], watch)
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


def test_a_machine_that_cannot_begin(tmp_path: Path) -> None:
    """What is wrong on a machine is the station's one line, and says where."""
    scenario = on_fake(tmp_path, source_addresses=["192.0.2.7"])
    (client,) = Agreed(tmp_path, scenario, NOWHERE, {"one": 1}).clients
    with pytest.raises(ConfigError, match=r"^client one: virtual: client\.source_addresses: .*192\.0\.2\.7"):
        station([client])
    assert not (client.place / LOGS_NAME).exists()


def test_a_machine_that_understands_something_else_is_refused(tmp_path: Path) -> None:
    """Whatever the station makes of it, it finds out by itself. It is refused by name, and leaves nothing."""
    scenario = scenario_of(tmp_path / "s", (quiet(), 4))
    _, two = clients = Agreed(tmp_path, scenario, NOWHERE, {"one": 1, "two": 1}).clients
    two.share = replace(two.share, fingerprints=replace(two.share.fingerprints, plan="other"))
    with pytest.raises(ConfigError, match=r"^client two: plan: expected the controller's, other, found"):
        station(clients)
    assert not two.place.exists()


def test_a_machine_process_lives_where_nobody_else_gets_in(tmp_path: Path) -> None:
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


def test_a_share_survives_the_line_and_shows_no_password(tmp_path: Path) -> None:
    """What a machine is told is what the station has; its users are those of all its engines."""
    scenario = scenario_of(tmp_path, (quiet(), 100), accounts={"user": "u{index}", "password": PASSWORD})
    one, two = (client.share for client in Agreed(tmp_path, scenario, NOWHERE, {"one": 3, "two": 1}).clients)
    assert WorkerAssignment.read(read_line(one.encode())[1]) == one
    assert set(one.assignment) == {user for hand in one.per_engine for user in hand}
    assert sorted([*one.assignment, *two.assignment]) == list(range(1, 101))
    assert PASSWORD not in repr(one)
    assert [begin.name for begin in one.begins(tmp_path)] == ["1", "2", "3"]
    assert {begin.header["client"] for begin in one.begins(tmp_path)} == {"one"}


def test_nothing_of_dask_is_where_load_is_made() -> None:
    """Machine processes and engines do without it: its loop, its threads and its memory are the agent's."""
    modules = "loadsim.cluster.worker, loadsim.cluster.channel, loadsim.engine.process, loadsim.cli.run"
    said = subprocess.check_output([sys.executable, "-c", f"import sys, {modules}; print(*sys.modules)"], text=True)
    assert "loadsim.cluster.worker" in said.split()
    assert not {"dask", "distributed", "tornado"} & set(said.split())
