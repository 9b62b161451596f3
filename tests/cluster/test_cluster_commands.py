"""The commands of a cluster as a user meets them: processes on loopback join, make a run, get lost, collect."""

import json
import os
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest
from cluster_commands import LIMITS, RUN, client, controller, on_server, pid_of, running
from findings_of import findings_in
from mailservers import StartDovecotPostfix, StartEmbedded
from small_runs import AT_WORK, loadsim, written
from timing_samples import write_sample
from workers import wait_for_end

from loadsim.cli import BAD_INPUT, INVALID, main
from loadsim.cluster import certs
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.partition import all_users
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import NEW_MAIL, Workload, plan_digest
from loadsim.timinglog.merge import read_logs

Capture = pytest.CaptureFixture[str]


@pytest.mark.nightly(part="hosts")
@pytest.mark.parametrize("drops", [True, False])
def test_an_outage_is_one_on_a_cluster_too(embedded_server: StartEmbedded, tmp_path: Path, drops: bool) -> None:
    """All clients drop their sessions at the same instant. A command runs once, at the controller."""
    ran = tmp_path / "ran"
    outage = {"drop_sessions": True} if drops else {"command": f"/bin/sh -c 'echo once >> {ran}'"}
    path = on_server(embedded_server, tmp_path / "small.yaml", run=RUN | {"outage": {"at": "2s"} | outage})
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        out = tmp_path / "out"
        made = loadsim("run", path, "--cluster", address, "--clients", "2", "--out", out, "--json", "--no-report")
    score = json.loads(made.stdout)
    assert (score["recovery_users"], score["recovery_unrecovered"]) == ((6, 0) if drops else (0, None))
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    dropped = Counter[str]()
    for event in events:
        if drops and event["event"] == "outage":
            dropped[event["client"]] += event["users_on"]
    assert dropped == ({"one": 3, "two": 3} if drops else {})
    assert (ran.read_text() if ran.exists() else "") == ("" if drops else "once\n")


@pytest.mark.nightly(part="hosts")
def test_clients_rejoin_after_the_controller_restarts(tmp_path: Path) -> None:
    """A line for each thing that happens; Ctrl-C ends everybody with success. A name is for one client at a time."""
    with controller(tmp_path) as (address, up), client(tmp_path, address, "one") as one:
        up.until("client one has joined$")
        same = loadsim("client", "--cluster", address, "--name", "two", "--runs", tmp_path / "one", cwd=tmp_path)
        assert (same.returncode, same.stderr) == (
            BAD_INPUT,
            f"loadsim: --runs {tmp_path / 'one'}: expected a directory of its own, found another client at work\n",
        )
        with running(tmp_path, "client", "--cluster", address, "--name", "one", "--runs", tmp_path / "x") as other:
            other.until(f"waiting for {address}, found: another client one")
            assert up.end() == 0
            one.until(f"the controller at {address} is gone; waiting for it$")
            assert other.end() == 0
        with controller(tmp_path, address) as (again, back):
            assert again == address
            one.until(f"joined {address} as one$")
            back.until("client one has joined$")
            assert one.end() == 0
            back.until("client one is gone$")


@pytest.mark.nightly(part="hosts")
def test_a_client_with_another_clusters_certificate_is_told_the_reason(tmp_path: Path) -> None:
    """A client is called what its machine is. One of another cluster learns that it is not the controller's."""
    for directory in ("ours", "theirs"):
        certs.make(tmp_path / directory, 10)
    name = socket.gethostname().partition(".")[0]
    theirs, runs = ("--certs", tmp_path / "theirs"), ("--runs", tmp_path / "x")
    with (
        controller(tmp_path, "127.0.0.1:0", "--certs", tmp_path / "ours") as (address, up),
        running(tmp_path, "client", "--cluster", address, *theirs, *runs) as stranger,
        running(tmp_path, "client", "--cluster", address, "--certs", tmp_path / "ours") as own,
    ):
        assert address.startswith("127.0.0.1:")
        up.until(f"client {name} has joined$")
        own.until(f"joined {address} as {name}$")
        stranger.until(f"waiting for {address}, found: .*certificate verify failed")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cluster up --listen 0.0.0.0", "0.0.0.0:8786: expected --certs DIR (loadsim cluster certs makes one)"),
        ("cluster up --listen 127.0.0.1:x", "--listen: expected HOST, HOST:PORT or PORT"),
        ("client --cluster 10.9.8.1:1 --name one", "10.9.8.1:1: expected --certs DIR"),
        ("client --cluster 127.0.0.1:1 --name a/b", "expected letters, digits and hyphens"),
        ("client --cluster 127.0.0.1:1 --name a=b", "--name: expected letters, digits and hyphens"),
        ("client --cluster 127.0.0.1:1 --name one --certs x", "x/cert.pem: expected a file of the cluster's"),
        ("run small --cluster 127.0.0.1:1", "--cluster: small: server: expected one that all machines reach"),
        ("run small --cluster 127.0.0.1:1 --engines 2", "--engines: expected a run on one machine"),
        ("run small --cluster 127.0.0.1:1 --clients 0", "--clients: expected a number of at least 1, found 0"),
        ("run small --clients 2", "--clients: expected --cluster as well"),
        ("run small --certs x", "--certs: expected --cluster as well"),
        ("cluster collect --cluster 127.0.0.1:1 --out x", "--out x: expected RUN as well"),
        ("cluster collect --cluster 127.0.0.1:1", "expected a controller there, found: "),
    ],
)
def test_bad_cluster_options_are_refused(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "small.yaml")
    assert main([str(path) if word == "small" else word for word in command.split()]) == BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_in_memory_mailboxes_are_refused_for_several_machines(tmp_path: Path, capsys: Capture) -> None:
    """Each engine would have its own, and no mail from the others."""
    path = written(
        tmp_path / "small.yaml",
        server={service: {"host": "127.0.0.1"} for service in ("imap", "smtp")},
        accounts={"user": "u{index}", "password": "x"},
        topology=[{"profile": "loadsim-5.5/light", "users": 2, "protocol": "fake"}],
    )
    assert main(["run", str(path), "--cluster", "127.0.0.1:1"]) == BAD_INPUT
    assert "--cluster: small: expected mailboxes on a server, found protocol fake" in capsys.readouterr().err


def test_a_taken_listen_address_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = loadsim("cluster", "up", "--listen", listen, cwd=tmp_path)
    assert refused.returncode == BAD_INPUT
    assert refused.stderr == (
        f"loadsim: --listen {listen}: expected an address to listen at, found: Address already in use\n"
    )


@pytest.mark.system
def test_a_cluster_makes_the_run_of_one_machine(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Users by cores, one start, the plan of the whole, logs here and nowhere else, a table of the clients.

    The controller audits, under the hold that the clients have left, and once more later.
    """
    path = on_server(dovecot_postfix, tmp_path / "small.yaml", run=RUN | {"audit": True})
    out = tmp_path / "out"
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        made = loadsim("run", path, "--cluster", address, "--clients", "2", "--out", out, "--json", "--no-report")
        assert made.returncode == 0, made.stderr
    score = json.loads(made.stdout)
    assert [(one["client"], one["users"], one["lost_users"]) for one in score["per_client"]] == [
        ("one", 3, 0),
        ("two", 3, 0),
    ]
    for one in score["per_client"]:
        assert one["start_late_ms"] >= -2 * one["start_error_ms"]  # all have one clock here, and none begins early
    assert (score["users"], score["clients"], score["delivery"]["undelivered_at_end"]) == (6, 2, 0)
    audit = json.loads((out / "audit.json").read_text())
    assert (audit["mailboxes"], audit["unread"], audit["unjudged"], audit["findings"]) == (6, 0, 0, [])
    assert loadsim("audit", out, "--set", "accounts.password=secret-{index}").returncode == 0
    workload = Workload(load_scenario(str(path)))
    assert score["plan_digest"] == plan_digest(workload)
    due = Counter(
        (user, activity.due_us)
        for user in range(1, 7)
        for activity in workload.activities(user)
        if activity.kind == NEW_MAIL
    )
    log = read_logs([out])
    sends = log.tasks[log.tasks["task"] == log.strings.index("SEND")]
    assert Counter(zip(sends["user"].tolist(), sends["scheduled_us"].tolist(), strict=True)) == due
    assignments = [source.assignment for source in log.sources if source.simulates]
    assert sorted(user for assignment in assignments for user in assignment or ()) == list(all_users(6))
    assert not [file for name in ("one", "two") for file in (tmp_path / name).iterdir()]
    answer = loadsim("log", "answer", "--wide", out)
    assert answer.stdout == (out / "answer.txt").read_text().rstrip("\n") + "\n"
    assert "\none " in answer.stdout
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert sorted(event["client"] for event in events if event["event"] == "client ready") == ["one", "two"]
    assert [file for file in tmp_path.rglob("*") if file.is_file() and b"secret-" in file.read_bytes()] == [path]


@pytest.mark.nightly(part="hosts")
def test_a_lost_client_may_end_the_run(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """By `abort_on`, the others stop early, and the answer says why; what was measured is here."""
    run = RUN | {"day_length": "60s", "window": "60s"}
    changes = {"run": run, "limits": LIMITS | {"drain": "2s"}, "abort_on": {"lost_users": 0.4, "period": "2s"}}
    path = on_server(embedded_server, tmp_path / "small.yaml", **changes)
    out = tmp_path / "out"
    with (
        controller(tmp_path) as (address, _),
        client(tmp_path, address, "one"),
        client(tmp_path, address, "two"),
        running(tmp_path, "run", path, "--cluster", address, "--out", out, "--no-report", error=True) as whole,
    ):
        whole.until(f"^{AT_WORK}")
        os.kill(pid_of(out, "two"), signal.SIGKILL)
        assert whole.process.wait() == INVALID
    score = json.loads((out / "score.json").read_text())
    ended = finding(Code.FAULT_ENDED, why="50 % of the users without a session over 2 s, at most 40 %")
    assert ended in findings_in(score)
    assert "fault" in score["verdict"]["causes"] and "aborted" not in score["verdict"]["causes"]
    assert [(one["client"], one["users"]) for one in score["per_client"]] == [("one", 3), ("two", 3)]


@pytest.mark.nightly(part="hosts")
def test_clients_keep_their_logs_when_the_controller_is_killed(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """The run's command is killed: the clients finish, keep their logs, and give them to any later command."""
    run = RUN | {"day_length": "12s", "window": "12s"}
    path = on_server(embedded_server, tmp_path / "small.yaml", run=run, cluster={"control_limit": "2s"})
    out, later = tmp_path / "out", tmp_path / "later"
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        with running(tmp_path, "run", path, "--cluster", address, "--out", out, error=True) as whole:
            whole.until(f"^{AT_WORK}")
            whole.end(signal.SIGKILL)
        pids = [pid_of(out, name) for name in ("one", "two")]
        os.kill(pids[0], signal.SIGSTOP)  # on a slow machine it would have ended before it is looked for
        (name,) = {place.name for client_name in ("one", "two") for place in (tmp_path / client_name).iterdir()}
        listed = loadsim("cluster", "collect", "--cluster", address).stdout.splitlines()
        assert [line.split()[:2] for line in listed[1:]] == [[name, "one"], [name, "two"]]
        busy = loadsim("run", path, "--cluster", address, "--out", tmp_path / "no", "--no-report")
        assert busy.returncode == BAD_INPUT
        assert f"client one: expected nothing at work there, found run {name}" in busy.stderr
        os.kill(pids[0], signal.SIGCONT)
        for pid in pids:
            wait_for_end(pid)
        write_sample(tmp_path / "theirs/logs/three.1.tlog", header={"run": "run-0"})
        mixed = loadsim("cluster", "collect", "--cluster", address, name, "--out", tmp_path / "theirs")
        assert mixed.returncode == BAD_INPUT
        assert mixed.stderr.endswith(f"three.1.tlog: expected a log of run {name}, found one of run run-0\n")
        collected = loadsim("cluster", "collect", "--cluster", address, name, "--out", later)
        assert collected.returncode == 0, collected.stderr
        assert loadsim("cluster", "collect", "--cluster", address).stdout == "No client has logs of any run.\n"
        nothing = loadsim("cluster", "collect", "--cluster", address, name, cwd=tmp_path)
        assert nothing.returncode == BAD_INPUT
        assert not (tmp_path / "runs").exists()
    per_client = json.loads((later / "score.json").read_text())["per_client"]
    assert [(one["client"], one["users"], one["lost_users"]) for one in per_client] == [("one", 3, 0), ("two", 3, 0)]
    assert {source.facts.ended for source in read_logs([later]).sources} == {"completed"}
