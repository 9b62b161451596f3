"""A plan in several processes: the same to the last figure, and no process is left whatever becomes of one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import quiet, scenario_of

from loadsim.cli import INTERRUPTED, main
from loadsim.client import rounds
from loadsim.client.plan import engines_for, join, make_plan, to_json
from loadsim.client.plan_engine import plan_users
from loadsim.client.plan_process import other_engines
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.workload import Workload, plan_digest

LIMIT_S = 60


class Meeting:
    """Where engines in threads exchange what they have to say; one that fails lets the others fail, too."""

    def __init__(self, engines: int) -> None:
        self._barrier = threading.Barrier(engines, timeout=LIMIT_S)
        self._said = [b""] * engines

    def exchange(self, part: int, own: bytes) -> Sequence[bytes]:
        self._said[part] = own
        self._barrier.wait()
        heard = [said for other, said in enumerate(self._said) if other != part]
        self._barrier.wait()
        return heard

    def part(self, scenario: Scenario, part: int) -> Any:
        try:
            return plan_users(scenario, part, len(self._said), lambda own: self.exchange(part, own))
        except BaseException:
            self._barrier.abort()
            raise


def in_threads(scenario: Scenario, engines: int) -> dict[str, Any]:
    """The plan of so many engines, each in a thread: what starts and ends them is different, all else is the same."""
    meeting = Meeting(engines)
    with ThreadPoolExecutor(engines) as threads:
        planned = list(threads.map(lambda part: meeting.part(scenario, part), range(engines)))
    return to_json(join(scenario, planned))


SHARES = st.sampled_from(
    [{}, {"reply": "60%"}, {"reply_all": "50%", "delete": "50%"}, {"forward": "40%", "move": "30%"}]
)
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
        st.sampled_from([("8h", {}), ("8h", {"duration": "3h"}), ("60s", {"days": 2}), ("10s", {"duration": "7s"})])
    )
    return {
        "day_length": day,
        "ramp_up": draw(st.sampled_from(["0s", "1s", "90s"])),
        "seed": draw(st.integers(1, 9)),
    } | length


@settings(deadline=None, max_examples=10)
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


def test_what_is_due_at_the_end_of_a_round_is_done_in_the_same_order_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a round for every microsecond, and half of one between the messages that are read, all of this coincides."""
    monkeypatch.setattr(rounds, "ROUND_S", 28_800e-6)
    half = "14.4ms"  # of the profile's day, 28,800 times as long
    profile = quiet(
        new_mail={"per_day": 20_000, "recipients": 2},
        process_inbox={"per_day": 40_000, "read_note_delay": {"min": half, "average": half, "max": half}},
        after_reading={"reply": "50%"},
    )
    run = {"day_length": "1s", "duration": "4ms", "warm_up": "0s", "window": "4ms"}
    scenario = scenario_of(tmp_path, (profile, 6), run=run)
    alone = to_json(make_plan(scenario))
    assert alone["tasks"]["READ"] > 300
    assert alone["tasks"]["REPLY"] > 100
    for engines in (2, 6):
        assert str(in_threads(scenario, engines)) == str(alone)


def test_mail_arrives_at_the_end_of_its_round(tmp_path: Path) -> None:
    """Not before, and within the run: whoever is sent something sees it, and nothing is left for after the end."""
    profile = quiet(new_mail={"per_day": 200, "recipients": 2})
    figures = to_json(make_plan(scenario_of(tmp_path, (profile, 3), run={"day_length": "8h"})))
    received = figures["totals"]["messages_received"]
    assert received > 800
    # Each sync is for the mail of one round for one user, of which some have two messages or more.
    assert 0.9 * received < figures["tasks"]["SYNC"] < received
    assert figures["by_hour"][-1]["tasks"]["SYNC"] == 0


@cache
def shipped() -> Scenario:
    """The three profiles in a day of two minutes, with mail all the time."""
    return load_scenario("quickstart", ["lists.count=2"])


def test_processes_make_the_same_plan() -> None:
    """One, two and three of them."""
    alone, two, three = (str(to_json(make_plan(shipped(), engines))) for engines in (1, 2, 3))
    assert alone == two
    assert alone == three


# --- how it goes wrong ------------------------------------------------------------------------------------------


def of_python(code: str) -> list[str]:
    """An engine that does this, with its connection as `link`."""
    begin = (
        "import os, pickle, sys; from multiprocessing.connection import Connection; link = Connection(int(sys.argv[1]))"
    )
    return [sys.executable, "-c", f"{begin}\n{code}"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_engine_that_is_killed_ends_the_plan(when: str) -> None:
    """Before it has said anything, and when it has: one line that says so, and nobody waits for it."""
    with pytest.raises(RunInvalid, match=r"^engine 3 of the plan was ended by signal 9$"):  # noqa: SIM117
        with other_engines(shipped(), 3) as others:
            victim, _ = others._members[1]

            def exchange(own: bytes) -> Sequence[bytes]:
                heard = others.exchange(own) if when == "after" else []
                victim.kill()
                return heard or others.exchange(own)

            plan_users(shipped(), 0, 3, exchange)
    assert [process.returncode for process, _ in others._members] == [-signal.SIGKILL] * 2


def test_an_engine_that_fails_is_our_bug(capfd: pytest.CaptureFixture[str]) -> None:
    """Its traceback is on standard error, the plan ends, and so does the other one."""
    failing = of_python("link.recv(); 1 / 0")
    with (
        pytest.raises(RuntimeError, match="engine 2 of the plan has failed, with exit status 1"),
        other_engines(shipped(), 2, failing) as others,
    ):
        plan_users(shipped(), 0, 2, others.exchange)
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert [process.returncode for process, _ in others._members] == [1]


def test_bad_input_that_an_engine_finds_is_bad_input() -> None:
    """It is raised here, as if it had been found here."""
    refusing = of_python("link.recv()\nfrom loadsim.errors import ConfigError\nlink.send(ConfigError('a: expected b'))")
    with (
        pytest.raises(ConfigError, match=r"^a: expected b$"),
        other_engines(shipped(), 2, refusing) as others,
    ):
        plan_users(shipped(), 0, 2, others.exchange)


PLANNING = """
import sys
from loadsim import cli
from loadsim.client.plan_process import OtherEngines
exchange = OtherEngines.exchange
def telling(others, own):
    if not telling.done:
        print(*[process.pid for process, _ in others._members], flush=True)
        telling.done = True
    return exchange(others, own)
telling.done = False
OtherEngines.exchange = telling
sys.exit(cli.main(["plan", "medium", "--engines", "3"]))
"""
"""`loadsim plan` for a long time; it tells the processes of its engines when there is work under way."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_plan_no_process_is_left(number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and SIGKILL: every engine ends, too."""
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
        assert (plan.returncode, said) == (INTERRUPTED, b"loadsim: interrupted\n")


# --- the verb ---------------------------------------------------------------------------------------------------


def test_a_few_users_need_no_process() -> None:
    """From some hundreds for each on, there is an engine a core."""
    assert [engines_for(users, 2) for users in (2, 36, 999, 1000, 10_000)] == [1, 1, 1, 2, 2]
    assert engines_for(10_000, 64) == 20


@pytest.mark.parametrize("engines", ["0", "37"])
def test_engines_have_users(engines: str, capsys: pytest.CaptureFixture[str]) -> None:
    """More engines than users, or none, are refused."""
    assert main(["plan", "quickstart", "--engines", engines]) == 2
    assert capsys.readouterr().err == f"loadsim: --engines: expected a number from 1 to 36, found {engines}\n"
