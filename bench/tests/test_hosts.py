"""Test hosts in network namespaces, and what is first tried on them: a mail server on one, the load on another."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailservers import short_directory
from patience import PATIENCE_S, PATIENT_CRITERIA

from bench.hosts import Host, hosts
from loadsim.cli import BAD_INPUT, main

pytestmark = pytest.mark.nightly(part="hosts")

SILENCE_S = 0.6
"""Long enough for what should not come, and for TCP to have sent it again twice."""

LISTENING = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    with connection:
        while received := connection.recv(1):
            connection.sendall(received)
"""
"""Says at which port of the address it listens, and sends what it receives back, to the one who comes."""

ASKING = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as connection:
    for line in sys.stdin:
        connection.settimeout(float(line))
        try:
            connection.sendall(b"x")
            print(connection.recv(1).decode(), flush=True)
        except TimeoutError:
            print("nothing", flush=True)
"""
"""For each line, a number of seconds: sends a byte, and says what came back within that time."""


@contextmanager
def asking(one: Host, other: Host) -> Iterator[subprocess.Popen[str]]:
    """A connection from the second host to the first, as `ASKING` describes it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with one.start([sys.executable, "-c", LISTENING, one.address], **pipes) as listening:
        assert listening.stdout is not None
        port = listening.stdout.readline().strip()
        arguments = [sys.executable, "-c", ASKING, one.address, port, str(PATIENCE_S)]
        with other.start(arguments, **pipes) as asks:
            yield asks
            asks.stdin.close()


def came_back(asks: subprocess.Popen[str], within_s: float) -> str:
    """Return the answer to a byte."""
    assert asks.stdin is not None
    assert asks.stdout is not None
    print(within_s, file=asks.stdin, flush=True)
    return asks.stdout.readline().strip()


def namespaces() -> set[str]:
    """The names of those that there are."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def test_hosts_reach_each_other_and_nothing_else() -> None:
    """Both ways over the wire; there is no route but to the others."""
    with hosts(3) as (first, second, third):
        for one, other in ((first, second), (second, first), (third, first)):
            with asking(one, other) as asks:
                assert came_back(asks, PATIENCE_S) == "x"
        for host in (first, second, third):
            routes = host.run(["ip", "-4", "route"], PATIENCE_S).stdout.split("\n")
            assert [route.split()[:3] for route in routes if route] == [["198.18.0.0/24", "dev", "eth0"]]
            links = json.loads(host.run(["ip", "-json", "link"], PATIENCE_S).stdout)
            assert [link["ifname"] for link in links] == ["lo", "eth0"]


def test_the_machine_has_no_link_or_address_of_its_hosts() -> None:
    """It has neither an address nor a link of the lab's, and two labs with the same addresses do not meet."""
    links = {name for _, name in socket.if_nameindex()}
    with hosts(1) as [one], hosts(1) as [other]:
        assert one.address == other.address
        assert {name for _, name in socket.if_nameindex()} == links
        with socket.socket() as sock, pytest.raises(OSError, match="Cannot assign"):
            sock.bind((one.address, 0))
        assert len({one.namespace, other.namespace, one.wire, other.wire}) == 4


def test_a_host_that_is_cut_off_receives_nothing_until_reconnected() -> None:
    """Its link seems to be up, and the connection lives on: what was sent meanwhile arrives afterwards."""
    with hosts(2) as (first, second), asking(first, second) as asks:
        assert came_back(asks, PATIENCE_S) == "x"
        with first.cut_off():
            assert came_back(asks, SILENCE_S) == "nothing"
            [_, link] = json.loads(first.run(["ip", "-json", "link"], PATIENCE_S).stdout)
            assert link["operstate"] == "UP"
        assert came_back(asks, PATIENCE_S) == "x"


@pytest.mark.parametrize("failure", [None, KeyboardInterrupt])
def test_hosts_and_their_processes_are_removed_at_the_end(failure: type[BaseException] | None) -> None:
    """Neither hosts nor what ran there, though it asks not to be ended, or was stopped; also after a failure."""
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(1000)"
    own: set[str] = set()
    started: list[subprocess.Popen[str]] = []
    try:
        with hosts(2, grace_s=SILENCE_S) as (first, second):
            own |= {first.namespace, second.namespace, first.wire, second.wire}
            assert own <= namespaces()
            for host in (first, second):
                started.append(host.start([sys.executable, "-c", stubborn], stdout=subprocess.PIPE))
                assert started[-1].stdout is not None
                started[-1].stdout.readline()
                assert host.pids() == [started[-1].pid]
            os.kill(started[-1].pid, signal.SIGSTOP)
            if failure is not None:
                raise failure
    except KeyboardInterrupt:
        assert failure is KeyboardInterrupt
    assert own.isdisjoint(namespaces())
    for process in started:
        with process:
            assert process.wait(PATIENCE_S) == -signal.SIGKILL


@pytest.mark.parametrize("address", ["0.0.0.0", "", "localhost", "::1", "224.0.0.1"])
def test_a_server_listens_on_an_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One of this machine's, IPv4: anything else is bad input."""
    with pytest.raises(SystemExit, match=str(BAD_INPUT)):
        main(["server", "dovecot-postfix", "dovecot-postfix", "--listen", address])
    assert "expected an IPv4 address of this machine" in capsys.readouterr().err


def test_a_server_does_not_listen_on_another_machines_address(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and nothing was started."""
    with short_directory() as directory:
        arguments = ["server", "dovecot-postfix", "dovecot-postfix", "--listen", "198.18.0.1", "--dir", str(directory)]
        assert main(arguments) == BAD_INPUT
    assert "expected an address of this machine to listen on, found 198.18.0.1" in capsys.readouterr().err


def written(path: Path, **where: Any) -> Path:
    """A scenario of ten users for some seconds, on a server that `where` says."""
    scenario = {
        "name": "two hosts",
        "accounts": {"user": "user{index:05d}", "password": "secret-{index}"},
        "topology": [{"profile": "loadsim-5.5/light", "users": 10}],
        "run": {"day_length": "20s", "ramp_up": "1s", "warm_up": "1s", "window": "6s", "duration": "8s"},
        "criteria": PATIENT_CRITERIA,
        "limits": {
            "window": "1s",
            "hits": 0,
            "done": 0.5,
            "load": 0.5,
            "generator": {"lag_p99_ms": None, "lag_share": None, "cpu": None, "lateness_p95_ms": None},
        },
    }
    path.write_text(yaml.safe_dump(scenario | where), encoding="utf-8")
    return path


def test_load_from_one_host_on_a_server_on_another() -> None:
    """Ten users over a real network stack and TLS: everything sent arrives, and the server is seen to be elsewhere."""
    loadsim = [sys.executable, "-m", "loadsim"]
    with short_directory() as directory, hosts(2) as (server_host, client_host):
        accounts = written(directory / "accounts.yaml", server="embedded")
        serving = ["server", "dovecot-postfix", accounts, "--listen", server_host.address, "--tls", "starttls"]
        server = server_host.start([*loadsim, *serving, "--dir", directory / "server"], stdout=subprocess.PIPE)
        with server:
            assert server.stdout is not None
            said = []
            while not said or (said[-1] and not said[-1].startswith("# Ctrl-C")):
                said.append(server.stdout.readline())
            assert f"# It listens on {server_host.address}: " in "".join(said)
            where = yaml.safe_load("".join(said))  # but for comments, what is to stand in the scenario
            scenario = written(directory / "scenario.yaml", allow_hosts=[server_host.address], **where)
            ran = client_host.run(
                [*loadsim, "run", scenario, "--out", directory / "run", "--engines", "1", "--no-report"], PATIENCE_S
            )
            server.send_signal(signal.SIGTERM)
            server.stdout.read()
        assert server.returncode == 0
        assert ran.returncode == 0, ran.stdout + ran.stderr
        score = json.loads((directory / "run" / "score.json").read_text())
    assert score["users"] == 10
    assert score["failed"] == 0
    assert score["delivery"]["accepted"] == score["delivery"]["delivered"] > 0
    assert [machine["server_here"] for machine in score["machines"]] == [False]
