"""Commands of a cluster in processes of their own, whose lines are waited for."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mailservers import StartDovecotPostfix, StartEmbedded
from patience import PATIENCE_S
from small_runs import loadsim, on, population_of, written

from loadsim.scenario.scenario import load_scenario


class Command:
    """A command that is running; `lines` are those of its standard output, or of its standard error. What stands
    `before` it says where it runs."""

    def __init__(self, place: Path, *arguments: str | Path, error: bool = False, before: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "loadsim", *map(str, arguments)],
            stdout=subprocess.DEVNULL if error else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=place,
            start_new_session=True,
        )
        self._lines = self.process.stderr if error else self.process.stdout
        self.received: list[str] = []
        self._ended = False
        self._watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        self._watchdog.start()

    def until(self, pattern: str) -> re.Match[str]:
        assert self._lines is not None
        for line in self._lines:
            self.received.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line with {pattern} in {self.received}; {self.process.communicate()}")

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to go, unless it has gone; its exit status. It has not failed by a fault of ours."""
        if not self._ended:
            self._ended = True
            if self.process.poll() is None:
                self.process.send_signal(number)
            _, said = self.process.communicate(timeout=PATIENCE_S)
            self._watchdog.cancel()
            assert "Traceback" not in said, said
        return self.process.returncode


@contextmanager
def running(place: Path, *arguments: str | Path, error: bool = False, before: Sequence[str] = ()) -> Iterator[Command]:
    """A command, killed at the end of the block if it has not ended by then."""
    command = Command(place, *arguments, error=error, before=before)
    try:
        yield command
    finally:
        command.end(signal.SIGKILL)


@contextmanager
def controller(place: Path, listen: str = "127.0.0.1:0", *options: str | Path) -> Iterator[tuple[str, Command]]:
    """`loadsim cluster up`, and the address that it says."""
    with running(place, "cluster", "up", "--listen", listen, *options) as up:
        address = up.until(r"Controller at (\S+)\. ")[1]
        yield address, up


@contextmanager
def client(place: Path, address: str, name: str, *options: str | Path, before: Sequence[str] = ()) -> Iterator[Command]:
    """`loadsim client`, joined; its runs are in a directory of its name."""
    joining = ("client", "--cluster", address, "--name", name, "--runs", place / name)
    with running(place, *joining, *options, before=before) as command:
        command.until(f"joined {address} as {name}$")
        yield command


RUN: dict[str, Any] = {"day_length": "6s", "ramp_up": "0s", "warm_up": "0s", "window": "6s"}
LIMITS: dict[str, Any] = {"grace": "1s", "drain": "10s", "done": 0, "load": 0}


def on_server(start: StartEmbedded | StartDovecotPostfix, path: Path, **changes: Any) -> Path:
    """A scenario of six users on a server that is running, its mailboxes prepared."""
    written(path, run=RUN)
    server = start(*population_of(load_scenario(str(path))))
    written(path, **{"run": RUN, "limits": LIMITS, **on(server.services), **changes})
    assert loadsim("init", path).returncode == 0
    return path


def pid_of(out: Path, name: str) -> int:
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    (pid,) = [event["pid"] for event in events if event["event"] == "client ready" and event["client"] == name]
    return int(pid)


def lasting(seconds: int, **limits: Any) -> dict[str, Any]:
    return {
        "run": RUN | {"day_length": f"{seconds}s", "window": f"{seconds}s"},
        "limits": LIMITS | {"drain": "2s"} | limits,
    }


def events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def lost_by_client(score: dict[str, Any]) -> dict[str, int]:
    return {one["client"]: one["lost_users"] for one in score["per_client"]}
