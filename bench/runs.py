"""`loadsim run` as anybody would start it, from its start to its end; and what it runs on the null server, time after
time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.processes import LONGEST_S
from loadsim.campaign.runs import DECIDING
from loadsim.errors import ConfigError
from loadsim.model.ports import Services
from loadsim.scenario.run_times import PARTS

USERS = 300
DAY = "7m"
"""Of Medium users: some 90 tasks a second, of every scored kind more than the 20 that are needed in 35 s."""


AT_WORK = tuple(f"{part}: ".encode() for part in PARTS)
"""The beginnings of the plain lines of a run between its start and its end."""


def loadsim(*arguments: str | Path) -> list[str]:
    """The command line of a verb."""
    return [sys.executable, "-m", "loadsim", *map(str, arguments)]


def written(path: Path, scenario: Mapping[str, Any]) -> Path:
    """A scenario in a file."""
    path.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
    return path


def on_null_server(services: Services, users: int = USERS, day: str = DAY, work_s: int = 40) -> dict[str, Any]:
    """A scenario of Medium users at work for so long, the first five seconds of it not scored."""
    return {
        "name": "healthy",
        "domain": "null.test",
        "server": {
            "imap": {"host": services.endpoint("imap").host, "port": services.endpoint("imap").port},
            "smtp": {
                "host": services.endpoint("smtp").host,
                "port": services.endpoint("smtp").port,
                "connection": "kept",
            },
        },
        "allow_hosts": [services.endpoint("imap").host],
        "accounts": {"user": "user{index}", "password": "any"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": users}],
        "lists": {"count": 0},
        "run": {
            "day_length": day,
            "duration": f"{work_s}s",
            "ramp_up": "4s",
            "warm_up": "5s",
            "window": f"{work_s - 5}s",
        },
        "initialise": "never",
    }


def score_of(scenario: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run it to its end; its score.json. Raises `ConfigError` when it comes to none."""
    command = loadsim("run", "--no-report", "--even-invalid", scenario, "--out", out, "--json", *options)
    return scored(subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False))


def scored(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the score that an ended run printed. Raises `ConfigError` if it printed none."""
    if not done.stdout:
        said: Sequence[str] = done.stderr.splitlines() or ["nothing"]
        raise ConfigError(f"bench: loadsim run: expected a score, it ended with {done.returncode} and said: {said[-1]}")
    score: dict[str, Any] = json.loads(done.stdout)
    return score


def reasons(score: Mapping[str, Any]) -> list[str]:
    """The findings for which a run is not valid, or misses criteria."""
    return [one["text"] for one in score["findings"] if one["severity"] in DECIDING]
