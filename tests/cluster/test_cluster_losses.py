"""Losses when parts of a real cluster are killed or frozen, started by the commands that a user types."""

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import client, controller, events, lasting, lost_by_client, on_server, pid_of, running
from findings_of import findings_in
from mailservers import StartEmbedded
from small_runs import AT_WORK, loadsim
from workers import wait_for_end

from loadsim.cli import INVALID
from loadsim.cluster.worker_directory import in_use
from loadsim.findings.catalogue import Code
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import GIVEN_UP

pytestmark = pytest.mark.nightly(part="hosts")

SECONDS = 14
"""The length of the load in seconds: longer than it takes until a client is lost."""


def engine_of(out: Path, name: str) -> int:
    (pid,) = [event["pid"] for event in events(out) if event["event"] == "engine ready" and event["client"] == name]
    return int(pid)


def test_the_others_go_on_when_agents_workers_or_engines_are_lost(
    embedded_server: StartEmbedded, tmp_path: Path
) -> None:
    """Agents, workers and engines are killed or frozen; the others go on, and losses are stated."""
    path = on_server(embedded_server, tmp_path / "small.yaml", **lasting(SECONDS, lost_users=1), **CONTROL)
    out = tmp_path / "out"
    names = ["agent", "both", "engine", "frozen", "orphan", "well"]
    with ExitStack() as stack:
        address, _ = stack.enter_context(controller(tmp_path))
        agents = {name: stack.enter_context(client(tmp_path, address, name)) for name in names}
        with running(tmp_path, "run", path, "--cluster", address, "--out", out, "--no-report", error=True) as whole:
            whole.until(f"^{AT_WORK}")
            machines = {name: pid_of(out, name) for name in names}
            engines = {name: engine_of(out, name) for name in names}
            for pid, number in (
                (agents["agent"].process.pid, signal.SIGKILL),
                (agents["both"].process.pid, signal.SIGKILL),
                (machines["both"], signal.SIGKILL),
                (engines["engine"], signal.SIGKILL),
                (machines["frozen"], signal.SIGSTOP),
                (engines["orphan"], signal.SIGSTOP),
                (machines["orphan"], signal.SIGKILL),
            ):
                os.kill(pid, number)
            whole.until("loadsim: loadsim cluster collect --cluster")
            assert whole.process.wait() == 0
        said = "".join(whole.received)
        for name, why in (
            ("agent", "sent nothing for"),
            ("both", "sent nothing for"),
            ("engine, engine 1,", "signal 9"),
            ("frozen", "sent nothing for"),
            ("orphan", "no worker process"),
        ):
            assert f" s: client {name} is lost, with 1 of 6 users: {why}" in said
        assert sorted(event["client"] for event in events(out) if event["event"] == "client lost") == [
            name for name in names if name not in ("engine", "well")
        ]
        score = json.loads((out / "score.json").read_text())
        assert score["verdict"]["validity"] == "degraded"
        assert lost_by_client(score) == dict.fromkeys(names, 1) | {"well": 0}
        (killed,) = (one for one in findings_in(score) if one.where == "engine.1")
        assert killed.code is Code.LOG_WITHOUT_END and killed.values["users"] == 1 and killed.values["last_s"]
        (logs,) = (one for one in findings_in(score) if one.code is Code.LOGS_MISSING)
        assert logs.values["missing"] == tuple(f"1 of client {name}" for name in ("agent", "both", "frozen", "orphan"))

        (left,) = (tmp_path / "orphan").iterdir()
        assert in_use(left)
        for number in (1, 2):  # asking does no harm
            again = loadsim("cluster", "collect", "--cluster", address, left.name, "--out", out)
            assert again.returncode == INVALID, number
            assert "client orphan: expected that run" in again.stderr
            assert "found processes of it at work there" in again.stderr
        os.kill(engines["orphan"], signal.SIGCONT)
        os.kill(machines["frozen"], signal.SIGCONT)
        for name in ("agent", "both"):
            stack.enter_context(client(tmp_path, address, name))
        for pid in [*machines.values(), *engines.values()]:
            wait_for_end(pid)
        collected = loadsim("cluster", "collect", "--cluster", address, left.name, "--out", out)
        # Whether the criteria are met depends on what the stopped engine was in the middle of, and for how long.
        assert collected.returncode in (0, 1), collected.stderr
        assert not [file for name in names for file in (tmp_path / name).iterdir()]
        assert [text for path in out.glob("clients/*/complaints") if (text := path.read_text())] == []
    score = json.loads((out / "score.json").read_text())
    assert score["verdict"]["validity"] == "degraded"
    assert lost_by_client(score) == dict.fromkeys(names, 1) | {"agent": 0, "frozen": 0, "well": 0}
    for name in ("both", "orphan"):
        found = {one.code: one for one in findings_in(score) if one.where == f"{name}.1"}
        given_up = found[Code.ENGINE_GIVEN_UP]
        assert given_up.values["last_s"]
        assert given_up.values["why"] == "the process that kept it in step is gone"
    ended = {source.client: source.facts.ended for source in read_logs([out]).sources if source.simulates}
    assert ended == dict.fromkeys(("agent", "frozen", "well"), "completed") | {
        "both": GIVEN_UP,
        "orphan": GIVEN_UP,
        "engine": None,
    }


CONTROL: dict[str, Any] = {"cluster": {"control_limit": "2s"}}


def test_a_run_goes_on_without_the_control_port(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """`cluster up` is killed in the middle: nothing is lost, and all is collected; clients join the next one."""
    path = on_server(embedded_server, tmp_path / "small.yaml", **lasting(SECONDS), **CONTROL)
    out = tmp_path / "out"
    with (
        controller(tmp_path) as (address, up),
        client(tmp_path, address, "one") as one,
        client(tmp_path, address, "two"),
    ):
        with running(tmp_path, "run", path, "--cluster", address, "--out", out, "--no-report", error=True) as whole:
            whole.until(f"^{AT_WORK}")
            up.end(signal.SIGKILL)
            one.until(f"the controller at {address} is gone; waiting for it$")
            assert whole.process.wait() == 0
        score = json.loads((out / "score.json").read_text())
        assert lost_by_client(score) == {"one": 0, "two": 0}
        assert not [event for event in events(out) if event["event"] in ("client lost", "controller lost")]
        assert not [file for name in ("one", "two") for file in (tmp_path / name).iterdir()]
        with controller(tmp_path, address) as (_, back):
            back.until("client (one|two) has joined$")
            back.until("client (one|two) has joined$")


def test_outside_senders_are_lost_with_their_client(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """A client is killed with a third of the senders; the others' messages are all accounted for."""
    sender = {"name": "shop", "mailbox": False, "new_mail": {"per_day": 20}, "messages": {"ups1K": 1}}
    (tmp_path / "shop.yaml").write_text(json.dumps(sender))
    groups = [
        *({"profile": f"loadsim-5.5/{kind}", "users": 2} for kind in ("light", "medium", "heavy")),
        {"profile": str(tmp_path / "shop.yaml"), "users": 30},
    ]
    long = lasting(SECONDS, lost_users=1)
    path = on_server(embedded_server, tmp_path / "small.yaml", **long, **CONTROL, topology=groups)
    out = tmp_path / "out"
    with ExitStack() as stack:
        address, _ = stack.enter_context(controller(tmp_path))
        agents = {name: stack.enter_context(client(tmp_path, address, name)) for name in ("one", "two", "well")}
        with running(tmp_path, "run", path, "--cluster", address, "--out", out, "--no-report", error=True) as whole:
            whole.until(f"^{AT_WORK}")
            engines = [event["pid"] for event in events(out) if event["event"] == "engine ready"]
            of_two = [event["pid"] for event in events(out) if event.get("client") == "two" and "pid" in event]
            for pid in (agents["two"].process.pid, *of_two):
                os.kill(pid, signal.SIGKILL)
            assert whole.process.wait() == 0
        for pid in engines:
            wait_for_end(pid)
    score = json.loads((out / "score.json").read_text())
    assert (score["users"], score["outside_senders"]) == (6, 30)
    assert score["verdict"]["validity"] == "degraded"
    assert sum(lost_by_client(score).values()) == lost_by_client(score)["two"] > 0
    log = read_logs([out])
    sent = {int(task["user"]) for task in log.tasks if task["user"] > 6}
    parts = [
        source.assignment.with_senders(30) for source in log.sources if source.assignment and source.client != "two"
    ]
    assert sent <= {number for part in parts for number in part}
    assert 10 < len(sent) < 30
    assert score["delivery"]["undelivered_at_end"] == score["delivery"]["duplicates"] == 0
