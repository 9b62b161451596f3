"""The in-memory mail system: service times against queueing theory, faults, and that it behaves as its port says."""

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from imap_script import Ear
from virtual_runs import Lived, contents, live, quiet, scenario_of

from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.errors import ServerSilent
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, Mailbox
from loadsim.protocols.in_memory import InMemoryDriver, Pace
from loadsim.scenario.workload import Workload

MEAN_MS = 20.0


def erlang_quantile(k: int, p: float) -> float:
    """Where the sum of k exponential times of mean 1 lies with probability p; by bisection of its distribution."""
    low, high = 0.0, 100.0
    while high - low > 1e-12:
        x = (low + high) / 2
        below = 1 - math.exp(-x) * sum(x**n / math.factorial(n) for n in range(k))
        low, high = (x, high) if below < p else (low, x)
    return low


def erlang_density(k: int, x: float) -> float:
    return x ** (k - 1) * math.exp(-x) / math.factorial(k - 1)


@pytest.fixture(scope="module")
def correspondence(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """Two users write to each other, and answer half of what they read."""
    place = tmp_path_factory.mktemp("correspondence")
    profile = quiet(
        new_mail={"per_day": 150, "save_sent": True}, process_inbox={"per_day": 100}, after_reading={"reply": "50%"}
    )
    return live(scenario_of(place, (profile, 2), day="900s"), place, service_s=MEAN_MS / 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "commands"), [("SAVE SENT", 2), ("READ", 3)])
def test_service_times_are_erlang_distributed(correspondence: Lived, task: str, commands: int) -> None:
    """A task of k commands has the mean and the 95th percentile of Erlang-k: for k = 2 of 20 ms each, 94.9 ms.

    Tolerances are 4 standard errors: sqrt(k/n) means for the mean, sqrt(p (1-p) / n) / density for a quantile.
    """
    lived = correspondence
    log = lived.log
    wanted = log.names(log.tasks, "task") == task
    took_us = (log.tasks["ended_us"] - log.tasks["started_us"])[wanted]
    given = [len(record["commands"]) for record in lived.tasks(task)]
    took_ms = sorted(us / 1000 for us, count in zip(took_us, given, strict=True) if count == commands)
    n = len(took_ms)
    assert n > 250
    p95_ms = took_ms[math.ceil(0.95 * n) - 1]
    expected = erlang_quantile(commands, 0.95)
    error = math.sqrt(0.95 * 0.05 / n) / erlang_density(commands, expected)
    assert abs(p95_ms / MEAN_MS - expected) < 4 * error
    assert abs(fmean(took_ms) / MEAN_MS - commands) < 4 * math.sqrt(commands / n)


@pytest.mark.slow
def test_waiting_times_are_those_of_an_open_queue(tmp_path: Path) -> None:
    """One user with a Poisson stream of tasks is M/G/1: waiting is what Pollaczek and Khinchine say.

    A SEND to one recipient is 5 commands of mean m: S = 5 m, E[S^2] = 30 m^2; at a load of 0.7 the mean wait is
    rate * E[S^2] / (2 (1 - 0.7)). The tolerance is 4 standard errors of 20 batch means.
    """
    m_s, load, day_s = 0.02, 0.7, 400
    rate_per_s = load / (5 * m_s)
    sender = quiet(new_mail={"per_day": rate_per_s * day_s, "save_sent": False})
    lived = live(scenario_of(tmp_path, (sender, 1), (quiet(), 1), day=f"{day_s}s"), tmp_path, service_s=m_s)
    sent = lived.tasks("SEND")
    assert abs(len(sent) - rate_per_s * day_s) < 4 * math.sqrt(rate_per_s * day_s)
    sent = [task for task in sent if task["started_ns"] is not None]  # but for the queue at the end
    waits_s = [(task["started_ns"] - task["scheduled_ns"]) * 1e-9 for task in sent]
    size = len(waits_s) // 20
    batches = [fmean(waits_s[at * size : (at + 1) * size]) for at in range(20)]
    expected_s = rate_per_s * 30 * m_s**2 / (2 * (1 - load))
    assert abs(fmean(batches) - expected_s) < 4 * stdev(batches) / math.sqrt(20)
    assert stdev(batches) / math.sqrt(20) < expected_s / 6  # the check has teeth
    for task in sent:
        late_s = task["late_busy_s"] + task["late_down_s"] + task["late_generator_s"]
        assert late_s == pytest.approx((task["started_ns"] - task["scheduled_ns"]) * 1e-9, abs=1e-8)
        assert task["late_busy_s"] == pytest.approx(late_s, abs=1e-8)


class VirtualEar(Ear):
    def __init__(self, clock: VirtualLoop) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> int:
        return self._clock.now_ns()


def converse(
    place: Path,
    talk: Callable[[InMemoryDriver, list[Any], list[VirtualEar]], Awaitable[None]],
    pace: Pace | None = None,
) -> int:
    """Let a conversation with two users' drivers take place; how long it took, in ns."""
    scenario = scenario_of(place, (quiet(start_state={"inbox": 2}), 2))

    async def main(clock: VirtualLoop) -> int:
        driver = InMemoryDriver(Workload(scenario), contents(), pace=pace)
        ears = [VirtualEar(clock), VirtualEar(clock)]
        sessions = [driver.session(scenario.account(at + 1), ear) for at, ear in enumerate(ears)]
        await talk(driver, sessions, ears)
        return clock.now_ns()

    return run_virtual(main)


def message(to: int) -> tuple[str, list[str], bytes]:
    address = f"user{to:05d}@loadsim.test"
    made = contents().compose(
        run="r",
        sender=1,
        sender_address="user00001@loadsim.test",
        to=[address],
        id="n1.0",
        kind="ups10Kat",
        sent_us=0,
        domain="loadsim.test",
    )
    return "user00001@loadsim.test", [address], made


def test_another_users_reference_is_an_internal_error(tmp_path: Path) -> None:
    """No server refused it: it is not recorded as a failure of the task."""

    async def talk(driver: InMemoryDriver, sessions: list[Any], _: list[VirtualEar]) -> None:
        box: Mailbox = sessions[1].mailbox
        await box.log_on()
        with pytest.raises(TypeError):
            await box.structure("a stranger's reference")
        assert driver.mailboxes[2] is box

    converse(tmp_path, talk)


def test_a_command_takes_the_time_of_the_hook(tmp_path: Path) -> None:
    """The hook has the user, the command, its begin and its service time; what takes too long is never answered."""
    asked: list[tuple[int, str, int]] = []
    told_s: dict[str, float] = {"IMAP LIST": 7.0, "IMAP FETCH": 60.0, "IMAP APPEND": 60.5, "IMAP UID MOVE": math.inf}

    def pace(user: int, name: str, at_ns: int, service_s: float) -> float:
        assert service_s > 0
        asked.append((user, name, at_ns))
        return told_s.get(name, service_s)

    async def talk(_: InMemoryDriver, sessions: list[Any], ears: list[VirtualEar]) -> None:
        box: Mailbox = sessions[0].mailbox
        now = ears[0].now

        async def took_s(call: Awaitable[object]) -> float:
            since = now()
            await call
            return (now() - since) * 1e-9

        await box.log_on()
        since = now()
        assert await took_s(box.folders()) == pytest.approx(7)
        assert asked[-1] == (1, "IMAP LIST", since)
        await box.open(INBOX)
        assert await took_s(box.headers(INBOX, None)) == pytest.approx(60)
        header, _ = await box.headers(INBOX, None)
        for call in (box.move([header.ref], DELETED_ITEMS), box.append(CALENDAR, message(2)[2])):
            since = now()
            with pytest.raises(ServerSilent):
                await call
            assert (now() - since) * 1e-9 == pytest.approx(60)
            assert ears[0].commands[-1][1] == "timeout"
            await box.log_on()
        assert len(await box.headers(INBOX, None)) == 2

    converse(tmp_path, talk, pace=pace)


def test_a_calendar_change_does_not_list_schedules_stored_before(tmp_path: Path) -> None:
    """Its reference is known. The first change finds an empty folder, which needs no FETCH."""

    async def talk(_: InMemoryDriver, sessions: list[Any], ears: list[VirtualEar]) -> None:
        await sessions[0].mailbox.log_on()
        for _ in range(3):
            await sessions[0].calendar.replace(message(1)[2])
        assert "IMAP FETCH" not in {name for name, *_ in ears[0].commands}
        assert len(await sessions[0].mailbox.headers(CALENDAR, None)) == 1

    converse(tmp_path, talk)


def test_without_service_times_nothing_waits(tmp_path: Path) -> None:
    """`service_s` of 0 takes no virtual time at all: what is due is done at its due time."""
    profile = quiet(new_mail={"per_day": 20}, process_inbox={"per_day": 10}, browse={"per_day": 10})
    lived = live(scenario_of(tmp_path, (profile, 3), day="120s"), tmp_path, service_s=0)
    assert len(lived.tape.tasks) > 100
    assert all(task["scheduled_ns"] == task["started_ns"] == task["ended_ns"] for task in lived.tape.tasks)
