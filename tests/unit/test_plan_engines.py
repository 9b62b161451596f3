"""A plan in several processes: the same to the last figure, and no process is left whatever becomes of one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Pipe
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import quiet, scenario_of

from loadsim.cli import INTERRUPTED, main
from loadsim.dryrun import plan_process, rounds
from loadsim.dryrun.plan import MOST_ENGINES, engines_for, join, make_plan, to_json
from loadsim.dryrun.plan_engine import Planned, plan_users
from loadsim.dryrun.plan_process import PEER_LOST, OtherEngines, PeerPipes, other_engines
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

    def plan(self, scenario: Scenario, part: int) -> Planned:
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
    run = {"day_length": "1s", "duration": "2ms", "warm_up": "0s", "window": "2ms"}
    scenario = scenario_of(tmp_path, (profile, 6), run=run)
    alone = to_json(make_plan(scenario))
    assert alone["tasks"]["READ"] > 150
    assert alone["tasks"]["REPLY"] > 50
    assert str(in_threads(scenario, 3)) == str(alone)


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


@dataclass
class Murderous:
    """All other engines, of which one is sent a signal when the first has something to tell."""

    others: OtherEngines
    sent: signal.Signals
    victim: int
    before: bool  # anything was told

    def send(self, said: bytes) -> None:
        if self.before:
            self.others._processes[self.victim].send_signal(self.sent)
        self.others.send(said)

    def receive(self) -> Sequence[bytes]:
        heard = self.others.receive()
        self.others._processes[self.victim].send_signal(self.sent)
        return heard


KILLED, STOPPED = "was ended by signal 9", "was stopped, and not continued within 0.6 s"


@pytest.mark.parametrize(
    ("victim", "before", "sent", "says"),
    [
        (0, True, signal.SIGKILL, KILLED),
        (1, False, signal.SIGKILL, KILLED),
        (0, False, signal.SIGSTOP, STOPPED),
        (1, True, signal.SIGSTOP, STOPPED),
    ],
)
def test_an_engine_that_is_killed_or_stopped_ends_the_plan(
    victim: int, before: bool, sent: signal.Signals, says: str
) -> None:
    """Before it has heard anything, and when it has: one line that says which it was, and nobody waits for it."""
    with (
        pytest.raises(RunInvalid, match=rf"^engine {victim + 2} of the plan {says}$"),
        other_engines(shipped(), 3, check_s=0.01) as others,
    ):
        plan_users(shipped(), 0, 3, Murderous(others, sent, victim, before))
    statuses = [process.returncode for process in others._processes]
    assert statuses[victim] == -signal.SIGKILL
    assert statuses[1 - victim] in (PEER_LOST, -signal.SIGKILL)  # by itself, or because nobody waited for that


def test_an_engine_that_is_stopped_before_it_listens_ends_the_plan() -> None:
    """Also when there is more to tell it than a pipe holds, so that the first waits until it reads."""
    accounts = replace(shipped(), name="." * 10**7)
    with (
        pytest.raises(RunInvalid, match=r"^engine 2 of the plan was stopped"),
        other_engines(accounts, 2, of_python("os.kill(os.getpid(), 19)"), check_s=0.01),
    ):
        pass


def test_an_engine_that_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be stopped for a while, in which it is looked at again and again."""
    looks: SimpleQueue[bool] = SimpleQueue()
    is_stopped = plan_process._is_stopped

    def look(process: subprocess.Popen[bytes]) -> bool:
        looks.put(stopped := is_stopped(process))
        return stopped

    monkeypatch.setattr(plan_process, "_is_stopped", look)
    resting = of_python("link.recv(); os.kill(os.getpid(), 19); link.send('found')")
    with other_engines(shipped(), 2, resting, check_s=0.001, most_checks=10**9) as others:
        found = 0
        while found < 3:
            found += looks.get(timeout=LIMIT_S)
        others._processes[0].send_signal(signal.SIGCONT)
        assert others.planned() == ["found"]


def test_an_engine_that_fails_is_our_bug(capfd: pytest.CaptureFixture[str]) -> None:
    """Its traceback is on standard error, the plan ends, and so does the other one."""
    failing = of_python("link.recv(); 1 / 0")
    with (
        pytest.raises(RuntimeError, match="engine 2 of the plan has failed, with exit status 1"),
        other_engines(shipped(), 2, failing) as others,
    ):
        plan_users(shipped(), 0, 2, others)
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert [process.returncode for process in others._processes] == [1]


def test_engines_that_have_much_to_tell_do_not_wait_for_each_other_to_read() -> None:
    """More than any pipe holds, from both sides at once."""
    much = of_python(
        "from loadsim.dryrun.plan_process import PeerPipes; link.recv(); mail = PeerPipes([link])\n"
        "mail.send(b'.' * 10**7); heard = mail.receive(); mail.send(heard[0][:1]); mail.flush()\n"
        "mail.send_object(0, 'found')"
    )
    with other_engines(shipped(), 2, much) as others:
        others.send(b"!" * 10**7)
        assert [len(said) for said in others.receive()] == [10**7]
        assert others.receive() == [b"!"]
        assert others.planned() == ["found"]


def test_an_engine_without_memory_is_a_shortage_of_this_machine() -> None:
    with pytest.raises(MemoryError), other_engines(shipped(), 2, of_python("link.recv(); sys.exit(71)")) as others:
        others.planned()


@pytest.mark.parametrize("listen", [OtherEngines.receive, OtherEngines.planned])
@pytest.mark.parametrize("said", [b"", b"\0\0\0\xff half"])
def test_an_engine_that_is_killed_while_it_speaks_ends_the_plan(
    said: bytes, listen: Callable[[OtherEngines], object]
) -> None:
    """Whether nothing of what it had to say has come, or the half; of its mail, or of what it found."""
    speaking = of_python(f"link.recv(); os.write(link.fileno(), {said!r}); os.kill(os.getpid(), 9)")
    with (
        pytest.raises(RunInvalid, match=r"^engine 2 of the plan was ended by signal 9$"),
        other_engines(shipped(), 2, speaking) as others,
    ):
        listen(others)


def test_an_engine_that_is_through_is_not_to_blame_for_another() -> None:
    """The first to end had found everything; the second, which is killed after that, had not."""
    mixed = of_python("_, part, _ = link.recv()\nif part == 1: link.send('found')\nelse: os.kill(os.getpid(), 9)")
    with (
        pytest.raises(RunInvalid, match=r"^engine 3 of the plan was ended by signal 9$"),
        other_engines(shipped(), 3, mixed) as others,
    ):
        others.planned()


def test_what_was_told_comes_before_what_is_given() -> None:
    """However late the one that is told begins to listen."""
    ours, theirs = Pipe()
    with ours, theirs:
        pipes = PeerPipes([ours])
        pipes.send(b"first" * 10**6)
        listener = Thread(target=lambda: heard.extend([theirs.recv_bytes(), theirs.recv()]))
        heard: list[Any] = []
        listener.start()
        pipes.flush()
        pipes.send_object(0, "then")
        listener.join(LIMIT_S)
    assert heard == [b"first" * 10**6, "then"]


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
send = OtherEngines.send
def telling(others, message):
    if not telling.done:
        print(*[process.pid for process in others._processes], flush=True)
        telling.done = True
    send(others, message)
telling.done = False
OtherEngines.send = telling
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


def test_a_few_users_need_no_process() -> None:
    """From some hundreds for each on, there is an engine a core."""
    assert [engines_for(users, 2) for users in (2, 36, 999, 1000, 10_000)] == [1, 1, 1, 2, 2]
    assert engines_for(10_000, 64) == MOST_ENGINES


@pytest.mark.parametrize(("users", "engines", "most"), [(36, 0, 16), (36, 17, 16), (3, 4, 3)])
def test_engines_have_users(users: int, engines: int, most: int, capsys: pytest.CaptureFixture[str]) -> None:
    """More engines than users or than there are pipes for, or none, are refused."""
    assert main(["plan", "medium", "--set", f"topology.0.users={users}", "--engines", str(engines)]) == 2
    assert capsys.readouterr().err == f"loadsim: --engines: expected a number from 1 to {most}, found {engines}\n"
