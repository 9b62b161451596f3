"""A small scenario, and the command that runs it."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import PATIENCE_S, PATIENT_CRITERIA

from loadsim.model.ports import Services
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import Scenario


def loadsim(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadsim", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=cwd,
        check=False,
    )


def kill_in_run(command: Sequence[str | Path], begin: str) -> None:
    """Start a search or suite, and kill it with -9 while users are at work in the run after a line with this begin."""
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        shown: list[str] = []
        for begins in (begin, ("warm-up: ", "window: ")):
            for line in process.stdout:
                shown.append(line)
                if line.startswith(begins):
                    break
            else:
                pytest.fail("".join(shown))
        process.kill()


def written(path: Path, **changes: Any) -> Path:
    """A small scenario in a file: all three profiles, a day of some seconds, limits that a busy machine keeps.

    Users of shipped profiles have few folders.
    """
    scenario = {
        "name": "small",
        "server": "embedded",
        "topology": [
            {"profile": "loadsim-5.5/light", "users": 2},
            {"profile": "loadsim-5.5/medium", "users": 2},
            {"profile": "loadsim-5.5/heavy", "users": 2},
        ],
        "run": {"day_length": "20s", "ramp_up": "1s", "warm_up": "2s", "window": "18s"},
        "criteria": PATIENT_CRITERIA,
    } | changes
    if not any(group["profile"].endswith(".yaml") for group in scenario["topology"]):
        scenario.setdefault("mailbox", {"folders": 4})  # the shipped profiles have 20 to 60, with five messages each
    scenario["limits"] = {
        "window": "1s",
        "hits": 0,
        "done": 0.1,
        "load": 0,
        "drain": "60s",
        "generator": {"lag_p99_ms": None, "lag_share": None, "cpu": None, "lateness_p95_ms": None},
    } | changes.get("limits", {})
    path.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    return path


def on(services: Services, password: str = "secret-{index}") -> dict[str, Any]:
    """The scenario's `server` and `accounts` for a server that is running."""
    server = {
        "imap": {"host": services.imap.host, "port": services.imap.port},
        "smtp": {"host": services.smtp.host, "port": services.smtp.port},
    }
    if (jmap := services.jmap) is not None:
        server["jmap"] = {"host": jmap.host, "port": jmap.port, "tls": jmap.tls}
        server["jmap"] |= {} if jmap.ca_file is None else {"ca_file": jmap.ca_file}
    return {"server": server, "accounts": {"user": "user{index:05d}", "password": password}}


def population_of(scenario: Scenario) -> tuple[list[Any], dict[str, tuple[str, ...]]]:
    return [scenario.account(user) for user in range(1, scenario.users + 1)], dict(distribution_lists(scenario))


AT_WORK = "(warm-up|window|work): "
"""The beginning of the plain lines of a run between its start and its end."""

AFTER_TEN_S = rf"{AT_WORK}\d\d s, "


def await_line(process: subprocess.Popen[str], pattern: str) -> None:
    """Read what the process says until a line begins so."""
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(pattern, line):
            return
    pytest.fail("the process ended before it said so")
