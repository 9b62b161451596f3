"""A plan in several processes: the same to the last figure, and no process is left whatever becomes of one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import quiet, scenario_of

from loadsim.cli import INTERRUPTED, main
from loadsim.dryrun.plan import join, make_plan, to_json
from loadsim.dryrun.plan_engine import PlannedEngine, plan_users
from loadsim.dryrun.plan_process import other_engines
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.accounts import AccountPattern
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.workload import Workload, plan_digest

pytestmark = pytest.mark.slow

LIMIT_S = 60


class Place:
    """Where engines in threads meet: what each has told the others, and who has failed lets them fail, too."""

    def __init__(self, engines: int) -> None:
        self._engines = range(engines)
        self._said: dict[tuple[int, int], SimpleQueue[bytes | None]] = {
            (one, other): SimpleQueue() for one in self._engines for other in self._engines
        }

    def plan(self, scenario: Scenario, part: int) -> PlannedEngine:
        try:
            return plan_users(scenario, part, len(self._engines), Side(self, part))
        except BaseException:
            self.tell(part, None)
            raise

    def tell(self, part: int, said: bytes | None) -> None:
        for other in self._engines:
            self._said[part, other].put(said)

    def hear(self, part: int) -> Sequence[bytes]:
        heard = [self._said[other, part].get(timeout=LIMIT_S) for other in self._engines if other != part]
        assert None not in heard, "another engine has failed"
        return cast("list[bytes]", heard)


@dataclass
class Side:
    """How one of them sees it (`rounds.Peers`)."""

    place: Place
    part: int

    def send(self, said: bytes) -> None:
        self.place.tell(self.part, said)

    def receive(self) -> Sequence[bytes]:
        return self.place.hear(self.part)


def in_threads(scenario: Scenario, engines: int) -> dict[str, Any]:
    """The plan of so many engines, each in a thread: what starts and ends them is different, all else is the same."""
    place = Place(engines)
    with ThreadPoolExecutor(engines) as threads:
        planned = list(threads.map(lambda part: place.plan(scenario, part), range(engines)))
    return to_json(join(Workload(scenario), planned))


SHARES = st.sampled_from(
    [{}, {"reply": "60%"}, {"reply_all": "25%", "delete": "50%"}, {"forward": "15%", "move": "30%"}]
)
"""Each message brings on less than one other, with 3 recipients and a list of 4: else mail explodes within a day."""
DELAYS = st.sampled_from(["0s", "4s", "25s"]).map(lambda delay: {"min": delay, "average": delay, "max": delay})


@st.composite
def profiles(draw: st.DrawFn) -> dict[str, Any]:
    """A profile that sends, reads, answers and browses more or less."""
    return quiet(
        new_mail={
            "per_day": draw(st.integers(1, 30)),
            "recipients": draw(st.integers(1, 3)),
            "list_chance": draw(st.sampled_from(["0%", "80%"])),
        },
        process_inbox={"per_day": draw(st.integers(1, 40)), "read_note_delay": draw(DELAYS)},
        browse={"per_day": draw(st.integers(0, 5))},
        schedule={"per_day": draw(st.integers(0, 2))},
        after_reading=draw(SHARES),
        start_state={"inbox": draw(st.integers(0, 3))},
    )


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """Days as long as in the profile, and compressed ones; several of them, and parts of one."""
    day, length = draw(
        st.sampled_from([("8h", {"duration": "20m"}), ("60s", {"days": 2}), ("10s", {"duration": "7s"}), ("60s", {})])
    )
    return {
        "day_length": day,
        "ramp_up": draw(st.sampled_from(["0s", "1s", "90s"])),
        "seed": draw(st.integers(1, 9)),
    } | length


@settings(deadline=None, max_examples=6)
@given(
    profile=st.tuples(profiles(), profiles()),
    users=st.tuples(st.integers(1, 5), st.integers(2, 5)),
    run=runs(),
    lists=st.sampled_from([{"count": 0}, {"count": 2, "size": {"min": 2, "average": 3, "max": 4}}]),
    initialise=st.sampled_from(["auto", "never"]),
    engines=st.integers(2, 3),
)
def test_any_number_of_engines_makes_the_same_plan(
    tmp_path_factory: pytest.TempPathFactory,
    profile: tuple[dict[str, Any], dict[str, Any]],
    users: tuple[int, int],
    run: dict[str, Any],
    lists: dict[str, Any],
    initialise: str,
    engines: int,
) -> None:
    """Every figure of the JSON, in its order; and the digest is that of the plans by themselves."""
    place = tmp_path_factory.mktemp("scenario")
    groups = list(zip(profile, users, strict=True))
    scenario = scenario_of(place, *groups, run=run, lists=lists, initialise=initialise)
    alone = to_json(make_plan(scenario))
    assert alone["failures"] == {}
    assert alone["plan_digest"] == plan_digest(Workload(scenario))
    assert str(in_threads(scenario, engines)) == str(alone)


def test_mail_arrives_at_the_end_of_the_next_round(tmp_path: Path) -> None:
    """Not before, and within the run: whoever is sent something sees it, and nothing is left for after the end."""
    profile = quiet(new_mail={"per_day": 200, "recipients": 2})
    figures = to_json(make_plan(scenario_of(tmp_path, (profile, 3), run={"day_length": "8h"})))
    received = figures["totals"]["messages_received"]
    assert received > 800
    # Each sync is for the mail of one round for one user, of which some have two messages or more.
    assert 0.95 * received < figures["tasks"]["SYNC"] < received
    assert figures["by_hour"][-1]["tasks"]["SYNC"] == 0


@cache
def shipped() -> Scenario:
    """The three profiles in a day of two minutes, with mail all the time."""
    few = [f"topology.{at}.users=2" for at in range(3)]
    return load_scenario("quickstart", [*few, "lists.count=2", "lists.size={min: 1, average: 2, max: 3}"])


def test_processes_make_the_same_plan() -> None:
    """One and three of them; `in_threads` has the other numbers."""
    alone, three = (str(to_json(make_plan(shipped(), engines))) for engines in (1, 3))
    assert alone == three


# --- how it goes wrong ------------------------------------------------------------------------------------------


def of_python(code: str) -> list[str]:
    """An engine that does this, with its connection to the first one as `link`."""
    begin = (
        "import os, pickle, sys; from multiprocessing.connection import Connection; link = Connection(int(sys.argv[1]))"
    )
    return [sys.executable, "-c", f"{begin}\n{code}"]


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by signal 9"),
        (r"os.write(link.fileno(), b'\0\0\0\xff half'); os.kill(os.getpid(), 9)", "was ended by signal 9"),
        ("1 / 0", "failed with exit status 1"),
    ],
)
def test_an_engine_that_ends_early_ends_the_plan(code: str, how: str) -> None:
    """Before it has sent anything, or within a message; no process is left, and none that is through is to blame."""
    mixed = of_python(f"_, part, _ = link.recv()\nif part == 1: link.send('found')\nelse: {code}")
    with (
        pytest.raises(RunInvalid, match=rf"^a process of the plan {how}$"),
        other_engines(shipped(), 3, mixed) as others,
    ):
        others.planned()
    assert all(process.returncode is not None for process in others.processes)


def test_bad_input_is_found_before_there_are_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by the first engine alone."""
    monkeypatch.setattr(subprocess, "Popen", None)
    scenario = scenario_of(
        tmp_path, (quiet(), 3), run={"day_length": "8h"}, lists={"count": 1, "size": {"min": 2, "average": 2, "max": 2}}
    )
    taken = replace(scenario, accounts=AccountPattern("list-{index:05d}"))
    with pytest.raises(ConfigError, match="list-00001"):
        make_plan(taken, 2)


PLANNING = """
import sys
from loadsim import cli
from loadsim.dryrun.plan_process import OtherEngines
start = OtherEngines.start
def telling(others, *args):
    start(others, *args)
    print(*[process.pid for process in others.processes], flush=True)
OtherEngines.start = telling
sys.exit(cli.main(["plan", "medium", "--engines", "3"]))
"""
"""`loadsim plan` for a long time; it tells the processes of its engines when there is work under way."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_an_ended_plan_is_left(number: signal.Signals) -> None:
    """Every engine ends with the plan. `test_bad_input.py` has Ctrl-C, which is handled as SIGTERM is."""
    with subprocess.Popen([sys.executable, "-c", PLANNING], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as plan:
        assert plan.stdout is not None
        engines = [os.pidfd_open(int(pid)) for pid in plan.stdout.readline().split()]
        assert len(engines) == 2
        plan.send_signal(number)
        _, said = plan.communicate(timeout=LIMIT_S)
        for engine in engines:
            ended = select.poll()
            ended.register(engine, select.POLLIN)
            assert ended.poll(LIMIT_S * 1000)
            os.close(engine)
    if number == signal.SIGKILL:
        assert (plan.returncode, said) == (-number, b"")
    else:
        assert (plan.returncode, said.splitlines()[-1:]) == (INTERRUPTED, [b"loadsim: interrupted"])
        assert b"Traceback" not in said


# --- the verb ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("users", "engines", "most"), [(36, 0, 16), (36, 17, 16), (3, 4, 3)])
def test_engines_have_users(users: int, engines: int, most: int, capsys: pytest.CaptureFixture[str]) -> None:
    """More engines than users or than there are pipes for, or none, are refused."""
    assert main(["plan", "medium", "--set", f"topology.0.users={users}", "--engines", str(engines)]) == 2
    assert capsys.readouterr().err == f"loadsim: --engines: expected a number from 1 to {most}, found {engines}\n"
