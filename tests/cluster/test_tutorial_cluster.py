"""The tutorial from two machines to twelve, typed at test hosts as it stands: SSH, certificates, a mail server."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from machines import Machine, machines
from paths import ROOT

pytestmark = pytest.mark.nightly(part="tutorials")

PROMPT = re.compile(r"^(\w+)\$ (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = ("station", "load1", "load2", "mail")

GOES_ON = {
    "loadsim server": ["# Ctrl-C stops it."],
    "loadsim cluster up": ["# Ctrl-C ends it."],
    "loadsim client": ["joined station:8786 as "],
}
"""Commands that do not return to the prompt, with the output after which the tutorial goes on."""

SMALLER = {
    "topology": [{"profile": "loadsim-5.5/light", "users": 4}],
    "run": {"day_length": "20s", "duration": "2s", "ramp_up": "0s", "warm_up": "0s", "window": "2s"},
    "limits": {"grace": "2s", "drain": "20s", "window": "1s", "hits": 0},
}
"""The tutorial's scenario takes minutes."""


def sections() -> dict[str, str]:
    _, *parts = re.split(
        r"^## (?:\d+\. )?(.+)\n", (ROOT / "docs" / "tutorial-cluster.md").read_text(), flags=re.MULTILINE
    )
    return dict(zip(parts[::2], parts[1::2], strict=True))


def written(text: str) -> Iterator[tuple[str, str]]:
    """The files of a section that somebody has to write: the name stands in the first line."""
    for language, block in BLOCK.findall(text):
        if language == "yaml":
            yield block.split()[1].rstrip(":"), block


class Typist:
    """Types at the machines what the page has one type, section by section."""

    def __init__(self, place: dict[str, Machine]) -> None:
        self._place = place
        self._going_on: dict[str, ExitStack] = {command: ExitStack() for command in GOES_ON}

    def type(self, section: str) -> list[str]:
        """All of a section; what commands said that came to an end, in their order."""
        text = sections()[section]
        for name, block in written(text):
            path = self._place["station"].home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(yaml.safe_load(block) | SMALLER) if name == "office.yaml" else block)
        blocks = [block for language, block in BLOCK.findall(text) if not language]
        return [said for where, line in PROMPT.findall("".join(blocks)) if (said := self._typed(where, line))]

    def _typed(self, where: str, line: str) -> str:
        machine = self._place[where]
        line = line.replace("198.18.0.4", self._place["mail"].address)
        for command, until in GOES_ON.items():
            if line.startswith(command):
                self._going_on[command].enter_context(machine.typing(line, until))
                return ""
        drawn = " --no-report" if line.startswith("loadsim run") else ""  # which would take longer than the rest
        done = machine.type(line + drawn)
        allowed = (0, 1, 3) if line.startswith(("loadsim run", "loadsim log answer")) else (0,)  # so small, no verdict
        assert done.returncode in allowed, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def end(self, *commands: str) -> None:
        for command in commands or reversed(GOES_ON):
            self._going_on[command].close()


@contextmanager
def typist(place: Path, *more: str) -> Iterator[tuple[Typist, Machine]]:
    """Somebody at the machines, whose commands all end with the block; and the station."""
    with machines(place, *NAMES, *more) as found:
        somebody = Typist(found)
        try:
            yield somebody, found["station"]
        finally:
            somebody.end()


def check_last_run(station: Machine, runs: int) -> None:
    """Check that there are `count` runs, the last one by two clients and without a loss."""
    found = sorted((station.home / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)
    assert len(found) == runs
    score = json.loads((found[-1] / "score.json").read_text())
    clients = [(one["client"], one["users"], one["lost_users"]) for one in score["per_client"]]
    assert clients == [("load1", 2, 0), ("load2", 2, 0)]
    assert score["delivery"]["undelivered_at_end"] == 0
    assert {machine["server_here"] for machine in score["machines"]} == {False}


def test_the_tutorials_commands_have_the_stated_outputs(tmp_path: Path) -> None:
    page = sections()
    with typist(tmp_path) as (somebody, station):
        somebody.type("A mail server and a scenario")
        made, answer = somebody.type("Two machines")
        assert made in page["Two machines"]
        check_last_run(station, 2)
        assert "\nRun: office, " in answer
        somebody.end("loadsim client")
        somebody.type("Start the clients by SSH")
        check_last_run(station, 3)
        *_, nothing_left = somebody.type("Afterwards")
        assert nothing_left in page["Afterwards"]


def test_twelve_machines_join_and_make_load(tmp_path: Path) -> None:
    """Each command of the section about twelve machines: all of them join, and make the load of ten users each."""
    with typist(tmp_path, *(f"load{number}" for number in range(3, 13))) as (somebody, station):
        somebody.type("A mail server and a scenario")
        somebody.type("Two machines")
        somebody.end("loadsim client")
        somebody.type("Start the clients by SSH")
        *_, answer = somebody.type("Twelve machines")
        assert "Load: 120 users; " in " ".join(answer.split())
        found = max((station.home / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)
        score = json.loads((found / "score.json").read_text())
        assert [(one["users"], one["lost_users"]) for one in score["per_client"]] == [(10, 0)] * 12
        station.type("for name in load{1..12}; do ssh $name 'kill $(cat client.pid)'; done")
        somebody.end("loadsim cluster up")
