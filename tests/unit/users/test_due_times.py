"""Due times of following tasks, and records of all due tasks on any server."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import Lived, chosen, live, quiet, scenario_of

from loadsim.engine.engine import Engine
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.ports import ALL_TASKS, Account, Session
from loadsim.model.records import KERNEL, LOOP, NO_CLOCK, Arrival
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.scenario.workload import PROCESS_INBOX, Workload
from loadsim.users.activities import Step
from loadsim.users.mail import UserMail
from loadsim.users.session_state import Late
from loadsim.users.task_recorder import TaskRecorder
from loadsim.users.user import User

S = 10**9
NO_DELAY = {"min": "0s", "average": "0s", "max": "0s"}
READER = quiet(process_inbox={"per_day": 6, "read_note_delay": NO_DELAY}, start_state={"inbox": 9})


def due_ns(lived: Lived, user: int, kind: str = PROCESS_INBOX) -> list[int]:
    """When the user's activities of a kind were due, by the plan."""
    plan = Workload(lived.scenario).activities(user)
    return [lived.engine.start_ns + each.due_us * 1000 for each in plan if each.kind == kind]


def test_each_read_waits_for_those_before_it(tmp_path: Path) -> None:
    """The n-th message of an Inbox is answered after n service times, counted from when the processing was due."""
    lived = live(scenario_of(tmp_path, (READER, 2), day="300s"), tmp_path, service_s=0.5)
    reads = lived.tasks("READ", user=1)[:9]
    first = due_ns(lived, 1)[0]
    assert [task["scheduled_ns"] for task in reads] == [first] * 9
    served_s = [(task["ended_ns"] - task["started_ns"]) / S for task in reads]
    waited_s = [(task["ended_ns"] - first) / S for task in reads]
    assert waited_s == pytest.approx([sum(served_s[: n + 1]) for n in range(9)])
    busy_s = [task["late_busy_s"] for task in reads]
    assert busy_s == pytest.approx([sum(served_s[:n]) for n in range(9)])
    (span,) = [each for each in lived.tape.spans if each["user"] == 1 and each["scheduled_ns"] == first]
    assert (span["task"], span["outcome"]) == ("PROCESS INBOX", "ok")
    assert (span["started_ns"], span["ended_ns"]) == (reads[0]["started_ns"], reads[-1]["ended_ns"])


def test_lateness_by_a_lost_session_carries_over_to_later_reads(tmp_path: Path) -> None:
    """Behind a READ that lost its session, all others of the Inbox are as late by that cause as the first after it."""
    lost = {(1, "IMAP UID FETCH", 4): ServerLost("reset"), (1, "IMAP AUTHENTICATE", 1): ServerLost("reset")}
    lived = live(scenario_of(tmp_path, (READER, 2), day="300s"), tmp_path, fault=chosen(lost))
    reads = lived.tasks("READ", user=1)[:9]
    (failed,) = [at for at, task in enumerate(reads) if task["outcome"] == "lost"]
    down_s = [task["late_down_s"] for task in reads]
    assert down_s[: failed + 1] == [0] * (failed + 1)
    assert down_s[failed + 1] > 0.4  # the pause after the log-on that failed
    assert down_s[failed + 1 :] == pytest.approx([down_s[failed + 1]] * (8 - failed))
    (span,) = [each for each in lived.tape.spans if each["task"] == "NO SESSION"]
    assert (span["scheduled_ns"], span["outcome"]) == (reads[failed]["ended_ns"], "ok")
    assert (span["ended_ns"] - span["scheduled_ns"]) / S == pytest.approx(down_s[failed + 1])


def test_mail_that_arrives_during_processing_is_due_from_its_arrival(tmp_path: Path) -> None:
    """It was in sight only then; the time before is no lateness of its READ."""
    writer = quiet(new_mail={"per_day": 40, "save_sent": False})
    lived = live(scenario_of(tmp_path, (READER, 1), (writer, 3), day="300s"), tmp_path, service_s=1.5)
    reader = next(user for user in range(1, 5) if lived.tasks("READ", user=user))
    seen_ns = {mail["at_ns"] for mail in lived.mails("seen", reader)}
    starts = set(due_ns(lived, reader))
    later = [task for task in lived.tasks("READ", user=reader) if task["scheduled_ns"] not in starts]
    assert later
    assert {task["scheduled_ns"] for task in later} <= seen_ns
    for task in lived.tasks("READ", user=reader):
        if task["started_ns"] is not None:
            late_s = task["late_busy_s"] + task["late_down_s"] + task["late_generator_s"]
            assert late_s == pytest.approx((task["started_ns"] - task["scheduled_ns"]) / S, abs=1e-6)


def test_the_time_of_a_forward_includes_fetching_its_attachment(tmp_path: Path) -> None:
    """The user waits for it as for the rest: from the first byte of the fetch to the acceptance."""
    profile = quiet(
        process_inbox={"per_day": 20},
        after_reading={"forward": "100%"},
        messages={"ups1K": 0, "ups10Kat": 1},
        load_attachment="0%",
        start_state={"inbox": 5},
    )
    lived = live(scenario_of(tmp_path, (profile, 2), day="120s"), tmp_path, service_s=0.1)
    forwards = [task for task in lived.tasks("FORWARD") if task["outcome"] == "ok"]
    assert len(forwards) > 5
    for task in forwards:
        inside = [
            command
            for command in lived.tape.commands
            if command["user"] == task["user"]
            and task["started_ns"] <= command["started_ns"] < command["ended_ns"]
            and command["ended_ns"] <= task["ended_ns"]
        ]
        assert inside[0]["command"] == "IMAP UID FETCH"
        assert (inside[0]["started_ns"], inside[-1]["ended_ns"]) == (task["started_ns"], task["ended_ns"])


READ_LATE_NS, OWN_NS = 3_000_000, 20_000_000


class Stamped:
    """An observer of a driver that states arrivals: the loop reads each answer 3 ms after it came."""

    def __init__(self, observer: Any, own_ns: int) -> None:
        self._observer, self._own_ns = observer, own_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def _arrival(self, _: str) -> Arrival | None:
        return self._observer.now() - READ_LATE_NS, KERNEL

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        own_ns = min(self._own_ns, self._observer.now() - since)
        self._observer.command(name, since, outcome, sent_bytes, received_bytes, self._arrival(name), own_ns)


class PartlyStamped(Stamped):
    """The driver does not know when the answer to FETCH came."""

    def _arrival(self, name: str) -> Arrival | None:
        return None if name == "IMAP UID FETCH" else super()._arrival(name)


class Unasked(Stamped):
    """READ asks the server nothing."""

    def command(self, name: str, *report: Any) -> None:
        if name not in ("IMAP UID FETCH", "IMAP UID STORE"):
            super().command(name, *report)


class WronglyStamped(Stamped):
    """The wall clock was set back while the command was under way: its answer came before it was sent."""

    def _arrival(self, name: str) -> Arrival | None:
        return self._observer.now() - 3600 * S, KERNEL


class Overtaken(Stamped):
    """Answers that came before this one, on other connections, are read after it: one even came before the task."""

    def command(self, *report: Any) -> None:
        super().command(*report)
        now_ns = self._observer.now()
        self._observer.command("IMAP IDLE", now_ns - S // 5, "ok", 1, 1, (now_ns - S // 10, KERNEL))
        self._observer.command("IMAP IDLE", now_ns - 7200 * S, "ok", 1, 1, (now_ns - 3600 * S, KERNEL))


@pytest.mark.parametrize(
    ("observer", "own_ns", "between_ms", "service_ms", "clock"),
    [
        (Stamped, 0, 2 * 3, 3 * 497, KERNEL),
        (Stamped, OWN_NS, 2 * 3 + 3 * 20, 3 * 477, KERNEL),
        (PartlyStamped, OWN_NS, 0, 2 * 500 + 497, KERNEL),
        (Unasked, 0, 0, 3 * 500, NO_CLOCK),
        (WronglyStamped, 0, 0, 3 * 500, LOOP),
        (Overtaken, 0, 2 * 3, 3 * 497, KERNEL),
    ],
)
def test_the_time_between_commands_is_the_generators(
    tmp_path: Path, observer: type[Stamped], own_ns: int, between_ms: int, service_ms: int, clock: str
) -> None:
    """A READ has three commands of 500 ms each, of which the server waited for the user for `own_ns`."""

    class Wrapped:
        name, supported_tasks = "fake", ALL_TASKS

        def __init__(self, inner: InMemoryDriver) -> None:
            self.inner = inner
            inner.pace = lambda *_: 0.5

        def session(self, account: Account, given: Any) -> Session:
            return self.inner.session(account, observer(given, own_ns))

    lived = live(scenario_of(tmp_path, (READER, 2), day="300s"), tmp_path, wrap=Wrapped)
    reads = lived.tasks("READ", user=1)[:9]
    assert len(reads) == 9
    for task in reads:
        assert (task["ended_ns"] - task["started_ns"]) / 1e6 == pytest.approx(service_ms)
        assert task["late_between_s"] * 1000 == pytest.approx(between_ms)
        assert task["clock"] == clock
        assert task["late_generator_s"] >= task["late_between_s"]
        late_s = task["late_busy_s"] + task["late_down_s"] + task["late_generator_s"]
        assert late_s == pytest.approx((task["started_ns"] - task["scheduled_ns"]) / S)


def noted(monkeypatch: pytest.MonkeyPatch, listed_ns: dict[tuple[int, str], int]) -> dict[int, set[str]]:
    """By user, the ids of the messages that a READ is recorded of from now on, however it ends.

    `listed_ns` is told when the Inbox of a user showed a message.
    """
    found: defaultdict[int, set[str]] = defaultdict(set)
    perform, skipped, take_in = User._perform, TaskRecorder.skipped, UserMail._take_in

    def note(number: int, step: Step) -> None:
        if step.task.name == "READ":
            found[number].add(step.about.tag.id)

    async def noting_perform(self: User, due: int, step: Step, ready: int | None = None, late: Late = (0, 0, 0)) -> Any:
        note(self.number, step)
        return await perform(self, due, step, ready, late)

    def noting_skipped(self: TaskRecorder, step: Step, due: int) -> None:
        note(self.number, step)
        skipped(self, step, due)

    def noting_take_in(self: UserMail, event: str, new: Any) -> None:
        listed_ns.update({(self.number, tag.id): self.now() for tag, _ in new})
        take_in(self, event, new)

    monkeypatch.setattr(UserMail, "_take_in", noting_take_in)
    monkeypatch.setattr(User, "_perform", noting_perform)
    monkeypatch.setattr(TaskRecorder, "skipped", noting_skipped)
    return found


FAILURES = (ServerRefused("NO", "no"), ServerLost("reset"), ServerSilent("no answer"))


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    rate=st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    service_s=st.sampled_from([0.02, 1.0, 8.0]),
    limit_s=st.sampled_from([5.0, 60.0]),
    grace=st.sampled_from(["0s", "10s"]),
)
def test_every_due_message_is_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rate: float, service_s: float, limit_s: float, grace: str
) -> None:
    """Read, failed, unfinished or skipped: so it went with each message in sight when the last processing was due."""

    def fault(user: int, name: str, number: int) -> TaskFailed | None:
        u = draw(seed, user, "fault", number)
        return FAILURES[int(3 * u / rate)] if u < rate else None

    place = tmp_path_factory.mktemp("run")
    profile = quiet(
        new_mail={"per_day": 20, "save_sent": False},
        process_inbox={"per_day": 6, "read_note_delay": NO_DELAY},
        after_reading={"delete": "40%", "reply": "20%"},
        start_state={"inbox": 3},
    )
    scenario = scenario_of(place, (profile, 3), day="60s", limits={"grace": grace, "drain": "5s"}, run={
        "day_length": "60s", "ramp_up": "1s", "warm_up": "0s", "window": "60s", "seed": seed % 97,
    })  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        listed_ns: dict[tuple[int, str], int] = {}
        notes = noted(patch, listed_ns)
        lived = live(scenario, place, service_s=service_s, fault=fault if rate else None, limit_s=limit_s)
    assert lived.failure is None
    for user in range(1, 4):
        processings = due_ns(lived, user)
        if not processings:
            continue
        in_sight = {
            message for (owner, message), at_ns in listed_ns.items() if owner == user and at_ns <= processings[-1]
        }
        assert in_sight <= notes[user], (in_sight - notes[user], lived.tasks(user=user)[-5:])


def test_downtime_begins_with_the_lost_session(tmp_path: Path) -> None:
    """The end of the run cuts off a submission that hangs; the session of the mailbox broke long before."""
    silent = {(1, "SMTP DATA", number): ServerSilent("no answer") for number in range(200)}
    sender = quiet(new_mail={"per_day": 200, "save_sent": False})

    async def during(engine: Engine, driver: InMemoryDriver) -> None:
        await asyncio.sleep(100)
        driver.mailboxes[1].break_off(ServerLost("reset"))

    scenario = scenario_of(tmp_path, (sender, 2), day="120s", limits={"grace": "1s", "drain": "1s"})
    lived = live(scenario, tmp_path, fault=chosen(silent), limit_s=1000, during=during)
    (span,) = [each for each in lived.tape.spans if each["task"] == "NO SESSION" and each["user"] == 1]
    assert span["scheduled_ns"] == 100 * S
    assert span["ended_ns"] > lived.engine.start_ns + 120 * S


def test_a_first_message_is_due_once_it_is_visible(tmp_path: Path) -> None:
    """A processing that was due while its user had no session reads what is found after the log-on, and no sooner."""
    writer = quiet(new_mail={"per_day": 100, "save_sent": False, "recipients": 1})
    reader = quiet(process_inbox={"per_day": 60, "read_note_delay": NO_DELAY})
    scenario = scenario_of(tmp_path, (reader, 1), (writer, 2))
    (user,) = (number for number in (1, 2, 3) if Workload(scenario).profile(number).name == "profile0")
    down = {(user, "IMAP AUTHENTICATE", number): ServerLost("reset") for number in range(1, 6)}

    async def during(engine: Engine, driver: InMemoryDriver) -> None:
        await asyncio.sleep(100)
        driver.mailboxes[user].break_off(ServerLost("reset"))

    lived = live(scenario, tmp_path, fault=chosen(down), during=during)
    up_ns = min(mail["at_ns"] for mail in lived.mails("found", user))
    first = next(task for task in lived.tasks("READ", user=user) if (task["started_ns"] or 0) >= up_ns)
    assert any(100 * S < due < up_ns for due in due_ns(lived, user))
    assert first["scheduled_ns"] == up_ns
