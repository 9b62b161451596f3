"""The wait before a run for an empty send queue.

The listings are given in turn, in virtual time; `tests/servers/test_mail_probes.py` waits for a real Postfix.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from judged_runs import Finished
from small_runs import written
from watched_campaigns import Watching, stop

from loadsim.campaign.quiet_down import QuietDown, sees_send_queue
from loadsim.capacity.runs import Wanted, find_capacity
from loadsim.errors import ConfigError, RunInvalid
from loadsim.monitor.probes import OpenedProbe
from loadsim.runs.result import RunResult
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.suite import load_suite
from loadsim.suite.runs import run_suite

SERVER = {
    "server": {"imap": {"host": "127.0.0.1", "port": 1}, "smtp": {"host": "127.0.0.1", "port": 1}},
    "accounts": {"user": "user{index:05d}", "password": "secret"},
    "limits": {"hits": 0},
}
PROBES = {"postfix": {"log": "/var/log/none.log"}}

FAIL, REST, DEFERRED = "fail", "rest", "deferred"
"""A listing that fails, none in a rest of the probe, and one with a deferred message."""

Listing = int | str


class Queues:
    """Probes of send queues with these listings in turn, the last one again and again, in virtual time."""

    def __init__(self, *listings: Listing, longest_s: float = 1800.0) -> None:
        self.listings = listings
        self.taken = 0
        self.now_s = 0.0
        self.slept: list[float] = []
        self.quiet_down = QuietDown(self.sleep, lambda: self.now_s, self.open, longest_s)

    def sleep(self, length_s: float) -> None:
        self.slept.append(length_s)
        self.now_s += length_s

    def open(self, scenario: Scenario) -> Sequence[OpenedProbe]:
        return [OpenedProbe(name, "here", self.sample) for name in scenario.probes if name.startswith("postfix")]

    def sample(self) -> Mapping[str, float]:
        listing = self.listings[min(self.taken, len(self.listings) - 1)]
        self.taken += 1
        if listing == FAIL:
            raise OSError("no listing")
        if listing == REST:
            return {}
        if listing == DEFERRED:
            return {"send_queue_messages": 1, "deferred_messages": 1}
        return {"send_queue_messages": int(listing), "deferred_messages": 0}


class Messages(Watcher):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, line: str) -> None:
        self.lines.append(line)


def scenario(tmp_path: Path, probes: dict[str, Any] = PROBES, **keys: Any) -> Path:
    return written(tmp_path / "small.yaml", **SERVER | {"probes": probes} | keys)


def waited(path: Path, queues: Queues) -> tuple[str | None, list[str]]:
    watcher = Messages()
    return queues.quiet_down.until_empty(load_scenario(str(path)), watcher), watcher.lines


@pytest.mark.parametrize(
    ("listings", "taken"),
    [
        ([0], 3),
        ([2, 1, 0], 5),
        ([0, 0, 1, 0], 6),
        ([0, FAIL, 0], 5),
        ([0, REST, REST, 0], 5),
        ([REST] * 9 + [0], 12),
        ([FAIL, FAIL, 0, 0, 7, 0], 8),
        ([DEFERRED] * 100 + [0], 103),
    ],
)
def test_three_empty_listings_in_a_row_end_the_wait(listings: Sequence[Listing], taken: int, tmp_path: Path) -> None:
    queues = Queues(*listings)
    why, _ = waited(scenario(tmp_path), queues)
    assert (why, queues.taken, queues.slept) == (None, taken, [1.0] * (taken - 1))


@pytest.mark.parametrize(
    ("last", "found"),
    [
        (12, "postfix: 12 messages"),
        (DEFERRED, "postfix: 1 message, 1 of them deferred"),
        (FAIL, "postfix: no listing"),
        (REST, "postfix: no sample"),
    ],
)
def test_a_queue_that_stays_full_ends_the_wait_with_a_reason(last: Listing, found: str, tmp_path: Path) -> None:
    queues = Queues(last, longest_s=90)
    why, lines = waited(scenario(tmp_path), queues)
    assert why == f"the send queue may not be empty after 1.5 min ({found})"
    assert lines == [f"Waiting until the send queue is empty, at most 1.5 min ({found})"]
    assert queues.now_s == 90


def test_a_probe_that_cannot_be_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadsim.monitor.bounded_command.SBIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="probe postfix: expected the command 'postqueue' to be installed"):
        QuietDown().until_empty(load_scenario(str(scenario(tmp_path))), Messages())


def test_an_unknown_setting_of_the_probe_is_named(tmp_path: Path) -> None:
    """A search opens the probe before any run checks it."""
    with pytest.raises(ConfigError, match="probe postfix: expected one of the settings config_directory, log, found"):
        QuietDown().until_empty(load_scenario(str(scenario(tmp_path, {"postfix": {"typo": 1}}))), Messages())


def test_only_the_server_with_the_probe_is_waited_for(tmp_path: Path) -> None:
    def sees(**keys: Any) -> bool:
        return sees_send_queue(load_scenario(str(written(tmp_path / "one.yaml", **keys))))

    assert sees(**SERVER, probes=PROBES)
    assert sees(**SERVER, probes={"postfix/in": {}})
    assert not sees(**SERVER, probes={"host": {}})
    assert not sees(**SERVER)
    assert not sees(probes=PROBES)


class StepBegunError(Exception):
    """Ends a search in the run after the pause."""


def searched(path: Path, out: Path, wanted: Wanted, queues: Queues) -> None:
    """Search with a step that is finished, up to the run of the next one."""

    def run(scenario: Scenario, *, out: Path, watcher: Watcher) -> RunResult:
        raise StepBegunError

    def read(settings: Sequence[str]) -> Scenario:
        return load_scenario(str(path), settings)

    finished = Finished(out)
    if not out.exists():
        with pytest.raises(KeyboardInterrupt):
            find_capacity(read, wanted, out, watcher=Watching(stop))
        finished.put(4, 1, True)
    find_capacity(read, wanted, out, runner=run, quiet_down=queues.quiet_down, finished=finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probes", "wanted", "slept"),
    [
        ({"host": {}}, {}, [60.0]),
        ({"host": {}}, {"pause_s": 7.0}, [7.0]),
        ({"host": {}}, {"pause_s": 0.0}, []),
        (PROBES, {}, [10.0, 1.0, 1.0, 1.0]),
        (PROBES, {"pause_s": 300.0}, [300.0, 1.0, 1.0, 1.0]),
        (PROBES, {"pause_s": 0.0}, [1.0, 1.0, 1.0]),
        (PROBES, {"clients": 2}, [60.0]),
    ],
)
def test_the_pause_of_a_search_is_the_least_with_the_probe_and_fixed_without(
    probes: dict[str, Any], wanted: dict[str, Any], slept: list[float], tmp_path: Path
) -> None:
    """With the probe, four listings follow, the first with a message. A cluster's pause is fixed."""
    queues = Queues(1, 0)
    wishes = Wanted(first=4, quick=True, **wanted)
    with pytest.raises(StepBegunError):
        searched(scenario(tmp_path, probes), tmp_path / "out", wishes, queues)
    assert queues.slept == slept


def test_a_search_stops_at_a_queue_that_stays_full_and_goes_on_once_it_is_empty(tmp_path: Path) -> None:
    path, out, wanted = scenario(tmp_path), tmp_path / "out", Wanted(first=4, quick=True)
    with pytest.raises(RunInvalid) as stopped:
        searched(path, out, wanted, Queues(DEFERRED))
    assert str(stopped.value).startswith("the send queue may not be empty after 30 min (postfix: 1 message, 1")
    assert str(stopped.value).endswith("and resume")
    state = json.loads((out / "campaign.json").read_text())
    assert ([run["users"] for run in state["runs"]], state["stopped_by"]) == ([4], None)
    assert [each.name for each in (out / "runs").iterdir()] == ["00004-1"]
    with pytest.raises(StepBegunError):
        searched(path, out, wanted, Queues(0))


@pytest.mark.slow
def test_a_run_of_a_suite_is_made_once_the_queue_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first one. A run is not made if the queue stays full; there is no server, so the others fail."""
    monkeypatch.chdir(tmp_path)
    scenario(tmp_path)
    text = yaml.safe_dump({"scenario": "small.yaml", "repeats": 3, "retries": 0, "pause": "7s"})
    Path("suite.yaml").write_text(text)
    queues = Queues(3, 0, 0, 0, 0, 0, 0, DEFERRED, longest_s=20.0)
    figures = run_suite(load_suite("suite.yaml"), tmp_path / "out", quiet_down=queues.quiet_down)
    reasons = [run.reasons[0] for run in figures.runs]
    assert [run.validity for run in figures.runs] == [None] * 3
    assert all("send queue" not in reason for reason in reasons[:2])
    assert reasons[2].startswith("the send queue may not be empty after 0.333 min (postfix: 1 message, 1")
    assert queues.slept == [*[1.0] * 3, 7.0, *[1.0] * 2, 7.0, *[1.0] * 20]
