"""From the run to the comparison, held against a known truth: a server that is slower by a factor, or by a delay."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from health_samples import write_observed_machine
from mailservers import StartEmbedded, logged_on, numbered_accounts
from timing_samples import HEADER
from virtual_runs import contents, live, quiet, scenario_of

from bench.delay import delayed
from loadsim.analysis.compare_runs import Comparison, compare_runs
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.engine import Dependencies, Engine
from loadsim.engine.event_log import Events
from loadsim.model.ports import CALENDAR, Endpoint, Services
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.workload import Workload
from loadsim.protocols.registry import open_drivers
from loadsim.timinglog.writer import TimingLogWriter

REPEATS = 3


def header(name: str, users: int, window_s: float) -> dict[str, Any]:
    """What the log of a run says of it."""
    return {
        "run": name,
        "users": users,
        "engine_users": users,
        "window_s": [0.0, window_s],
        "weights": {"BROWSE": 1, "SCHEDULE": 1},
        "limits": {"hits": 1, "window_s": 1, "done": 0.5, "generator_lag_p99_ms": None, "generator_lag_share": None}
        | {"generator_cpu": None, "generator_lateness_p95_ms": None},
        "start_state_digest": "as it was",
    }


def by_name(found: Comparison) -> dict[str, dict[str, Any]]:
    """The figures of tasks and score."""
    return {one["name"]: one for key in ("tasks", "scores") for one in found.document[key]}


# --- by a factor, in virtual time -------------------------------------------------------------------------------


def virtual_run(place: Path, name: str, service_s: float, seed: int) -> Path:
    """A run in virtual time on a server that takes this long for a command, on average: its log."""
    run = {"day_length": "200s", "ramp_up": "1s", "warm_up": "0s", "window": "200s", "seed": seed}
    browser = quiet(browse={"per_day": 50}, schedule={"per_day": 50})
    scenario = scenario_of(place / name, (browser, 5), run=run)
    stated = header(name, 5, 200.0)
    live(scenario, place / name, service_s=service_s, header=stated)
    write_observed_machine(place / name / "machine.tlog", stated)
    return place / name


@pytest.fixture(scope="module")
def virtual_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Three runs of a server, three more of the same, and three of one whose commands take 1.4 times as long."""
    place = tmp_path_factory.mktemp("virtual")
    means_s = {"base": 0.020, "same": 0.020, "slower": 0.020 * 1.4}
    seeds = iter(range(1, 1 + REPEATS * len(means_s)))
    return {
        name: [virtual_run(place, f"{name}-{at}", mean_s, next(seeds)) for at in range(REPEATS)]
        for name, mean_s in means_s.items()
    }


def test_a_server_that_is_slower_by_a_factor_is_found_with_it(virtual_runs: Mapping[str, Sequence[Path]]) -> None:
    """Browsing, the schedule and the score take 1.4 times as long: each is found, with an interval that holds it."""
    found = compare_runs(virtual_runs["base"], virtual_runs["slower"], max_regression=0.05)
    for name in ("BROWSE", "SCHEDULE", "Score"):
        assert by_name(found)[name]["low"] <= 1.4 <= by_name(found)[name]["high"]
        assert by_name(found)[name]["change"] == "slower"
    assert found.document["decision"] == "failed"


def test_the_same_server_is_not_found_to_be_another(virtual_runs: Mapping[str, Sequence[Path]]) -> None:
    """Only chance differs: no task is called different, nor the score."""
    found = compare_runs(virtual_runs["base"], virtual_runs["same"])
    assert not [name for name, one in by_name(found).items() if one["change"]]
    assert by_name(found)["Score"]["low"] <= 1 <= by_name(found)["Score"]["high"]


# --- by a delay, on a real server -------------------------------------------------------------------------------

DELAY_S = 0.2
WINDOW_S = 3.0
USERS = 4
"""Of each run; all runs are made at the same time, so that whatever else the machine does falls on both sides alike."""

ANSWERS = 3
"""A change of the schedule waits at least three times for an answer that depends on the one before: to APPEND, to
SELECT of the Calendar, to SELECT of the Inbox."""


def scenario_on(place: Path, services: Services, runs: int) -> Scenario:
    """Users who change their schedules, as many as all runs have together."""
    profile = place / "profile.yaml"
    profile.write_text(yaml.safe_dump({"name": "schedules"} | quiet(schedule={"per_day": 60})), encoding="utf-8")
    document = {
        "name": "known delay",
        "server": {
            "imap": {"host": services.imap.host, "port": services.imap.port, "tls": "none"},
            "smtp": {"host": services.smtp.host, "port": services.smtp.port, "tls": "none"},
        },
        "accounts": {"user": "user{index}", "password": "secret-of-{index}"},
        "topology": [{"profile": str(profile), "users": USERS * runs}],
        "lists": {"count": 0},
        "run": {
            "day_length": "90s",
            "duration": f"{WINDOW_S}s",
            "ramp_up": "100ms",
            "warm_up": "0s",
            "window": f"{WINDOW_S}s",
        },
        "limits": {"grace": "20s", "drain": "0s"},
    }
    (place / "scenario.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_scenario(str(place / "scenario.yaml"))


async def real_run(scenario: Scenario, services: Services, users: Sequence[int], log: Path) -> None:
    """Some of the scenario's users, as a run of their own on a server that answers."""
    workload, clock = Workload(scenario), MonotonicClock()
    writer = TimingLogWriter(log, HEADER | header(log.stem, len(users), WINDOW_S), clock.now_ns())
    engine = Engine(
        Dependencies(
            workload=workload,
            drivers=open_drivers(workload, contents(), services),
            contents=contents(),
            recorder=writer,
            events=Events(io.StringIO()),
            clock=clock,
            watch=lambda _: None,
            control=None,
        ),
        users=users,
        run_id=log.stem,
        wall_clock_us=0,
    )
    await engine.run()
    writer.close()


@pytest.mark.nightly(part="runs")
def test_a_delay_in_front_of_a_real_server_is_found(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """Each answer comes 0.2 s later: no change of the schedule takes less than its answers do, and that is found."""
    accounts = numbered_accounts(2 * REPEATS * USERS)
    server = embedded_server(accounts)
    for account in accounts:
        with logged_on(server, account) as client:
            client.create(CALENDAR)
    scenario = scenario_on(tmp_path, server.services, 2 * REPEATS)
    contents().prepare()
    logs: dict[str, list[Path]] = {"base": [], "new": []}

    async def all_at_once(imap: Mapping[str, int]) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(2 * REPEATS):
                side = ("base", "new")[number % 2]
                services = Services(Endpoint(server.services.imap.host, imap[side]), server.services.smtp)
                logs[side].append(tmp_path / f"{side}-{number}.tlog")
                users = range(1 + number * USERS, 1 + (number + 1) * USERS)
                group.create_task(real_run(scenario, services, users, logs[side][-1]))

    with delayed(server.services.imap.port, 0.0) as near, delayed(server.services.imap.port, DELAY_S) as far:
        asyncio.run(all_at_once({"base": near, "new": far}))
    found = compare_runs(logs["base"], logs["new"], max_regression=0.05)
    schedule = by_name(found)["SCHEDULE"]
    assert schedule["change"] == "slower"
    assert schedule["new_ms"] >= ANSWERS * DELAY_S * 1000
    assert found.document["decision"] == "failed"
