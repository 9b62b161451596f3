"""The generator's own failures: each is recorded, told, makes the run invalid, and costs no engine or neighbour."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from named_records import MailRecord, TaskRecord
from timing_samples import DELIVERED, ENDED, EPOCH_NS, HEADER, LOGGED_ON, done, ms, sample_log
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.summary import Summary, summarise
from loadsim.dryrun.plan_engine import plan_users
from loadsim.engine.counters import EVENTS_A_PLACE, LONGEST_KIND, MOST_KINDS
from loadsim.engine.engine import Engine
from loadsim.engine.health import Health
from loadsim.errors import SHORTAGES, GeneratorFailed, ServerRefused, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.records import CommandFields
from loadsim.protocols.in_memory import Fault, InMemoryDriver, InMemoryMailbox, InMemorySubmission
from loadsim.scenario.workload import Workload
from loadsim.timinglog.writer import MOST_ERRORS, OTHER, TimingLogWriter
from loadsim.users.inbox import Inbox
from loadsim.users.pending import PendingActivities
from loadsim.users.user import User

SECRET = "s3cret contents"
SENDER = quiet(new_mail={"per_day": 40, "save_sent": False})
READER = quiet(new_mail={"per_day": 40, "save_sent": False}, process_inbox={"per_day": 10})

day_of = partial(scenario_of, day="120s")
"""Scenarios with days of two minutes: an engine works each virtual second."""


def once(name: str, number: int, failure: Callable[[], Exception], user: int = 1) -> Fault:
    """One command of a user fails: the n-th of that name, from 0."""
    given = Counter[tuple[int, str]]()

    def fault(of: int, command: str, _: int) -> Exception | None:
        given[of, command] += 1
        return failure() if (of, command) == (user, name) and given[of, command] == number + 1 else None

    return fault


def verdict(lived: Lived) -> dict[str, Any]:
    found: dict[str, Any] = summarise([lived.log]).score["verdict"]
    return found


def assert_survived(lived: Lived, users: int = 2) -> None:
    """The run came to its end, with all tasks of the other users done and none lost."""
    assert lived.failure is None
    assert lived.tape.told["ended"] == "completed"
    assert {task["outcome"] for task in lived.tape.tasks if task["user"] != 1} == {"ok"}
    assert {task["user"] for task in lived.tasks("LOGOFF")} >= set(range(2, users + 1))
    assert not lived.log.damages
    assert len(lived.log.tasks) == len(lived.tape.tasks) + len(lived.tape.spans)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [("SMTP DATA", "SEND"), ("IMAP UID FETCH", "SYNC"), ("IMAP LOGOUT", "LOGOFF"), ("IMAP LIST", "LOGON")],
)
def test_an_error_in_a_task_is_recorded_for_its_user(tmp_path: Path, name: str, task: str) -> None:
    """Its session is ended, the next one goes on; the event says where it was, and nothing of its text."""
    fault = once(name, 0, lambda: ZeroDivisionError(SECRET))
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, fault=fault)
    assert_survived(lived)
    (failed,) = [each for each in lived.tape.tasks if each["outcome"] != "ok"]
    assert (failed["user"], failed["task"]) == (1, task)
    assert (failed["outcome"], failed["error"]) == ("generator", "internal error: ZeroDivisionError")
    assert failed["ended_ns"] is not None
    (event,) = lived.said("internal error")
    assert (event["kind"], event["during"], event["user"]) == ("internal error: ZeroDivisionError", task, 1)
    file, _, line = event["where"].partition(":")
    assert file == "protocols/in_memory.py"
    assert int(line) > 0
    assert SECRET not in str(lived.events)
    assert lived.tape.told["sessions_lost"] == 0
    if task == "SEND":
        log_ons = [each for each in lived.tasks("LOGON", user=1) if each["started_ns"] > failed["ended_ns"]]
        assert len(log_ons) == 1
    assert [each["outcome"] for each in lived.tasks("LOGOFF", user=2)] == ["ok"]


def test_the_run_is_invalid_and_the_server_is_not_blamed(tmp_path: Path) -> None:
    """Attempted, not done, not failed; and the reason names the kind."""
    fault = once("SMTP DATA", 3, lambda: ZeroDivisionError(SECRET))
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, fault=fault)
    summary = summarise([lived.log])
    score = summary.score
    (send,) = [task for task in score["tasks"] if task["task"] == "SEND"]
    assert (send["planned"], send["attempted"]) == (send["hits"] + 1, send["hits"] + 1)
    assert (send["done"], send["failed"], send["generator_failed"]) == (send["hits"], 0, 1)
    assert send["failures"] == [{"outcome": "generator", "kind": "internal error: ZeroDivisionError", "times": 1}]
    assert (score["failed"], score["failed_share"], score["generator_failed"]) == (0, 0, 1)
    failure = finding(Code.GENERATOR_FAILED, times=1, kinds=("internal error: ZeroDivisionError",))
    assert failure in summary.verdict.defects
    assert summary.exit_status == 3
    assert lived.snapshots[-1].failed == 0
    assert lived.snapshots[-1].generator_failed == 1
    assert lived.said("over")[0]["generator_failed"] == 1


def test_a_shortage_in_a_task_loses_no_session(tmp_path: Path) -> None:
    """A shortage in a submission is a failure of the task; the mailbox session goes on."""
    fault = once("SMTP CONNECT", 0, lambda: GeneratorFailed("no free local port (EADDRNOTAVAIL)"))
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, fault=fault)
    assert_survived(lived)
    assert len(lived.tasks("LOGON", user=1)) == 1
    assert lived.tape.told["sessions_lost"] == 0
    assert not lived.said("internal error")
    shortage = finding(Code.SHORTAGE, times=1, kinds=("no free local port (EADDRNOTAVAIL)",))
    assert shortage in summarise([lived.log]).verdict.defects


def test_an_error_in_a_watch_ends_its_session_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no task's record, and invalid all the same."""
    watch = InMemoryMailbox.watch
    calls = Counter[int]()

    async def broken(mailbox: InMemoryMailbox) -> None:
        user = mailbox._account.number
        calls[user] += 1
        if user == 1 and calls[user] == 3:
            raise KeyError(SECRET)
        await watch(mailbox)

    monkeypatch.setattr(InMemoryMailbox, "watch", broken)
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path)
    assert lived.failure is None
    assert lived.tape.told["ended"] == "completed"
    assert calls[1] > 3
    assert verdict(lived)["validity"] == "invalid"
    assert SECRET not in str(lived.events)


def breaking(name: str, of: type, monkeypatch: pytest.MonkeyPatch, when: Callable[[Any], bool]) -> None:
    """Let a method raise once, when it is called so."""
    method = getattr(of, name)
    broken = []

    def breaks(self: Any, *args: Any, **more: Any) -> Any:
        if not broken and when(self):
            broken.append(self)
            raise IndexError(SECRET)
        return method(self, *args, **more)

    monkeypatch.setattr(of, name, breaks)


def test_an_error_in_a_drivers_callback_ends_the_session_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An announcement that cannot be taken in: the mail is found after the next log-on."""
    inboxes: list[Inbox] = []

    def when(inbox: Inbox) -> bool:
        inboxes.append(inbox)
        return len(inboxes) == 5

    breaking("announce", Inbox, monkeypatch, when)
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path)
    assert lived.failure is None
    assert lived.tape.told["ended"] == "completed"
    assert lived.tape.told["undelivered"] == 0
    assert {task["outcome"] for task in lived.tape.tasks} <= {"ok", "generator"}
    assert lived.tape.told["sessions_lost"] == 0
    assert len(lived.tasks("LOGON")) == 3
    assert lived.tape.told["own_faults"] == {"internal error: IndexError": 1}
    failure = finding(Code.GENERATOR_FAILED, times=1, kinds=("internal error: IndexError",))
    assert failure in summarise([lived.log]).verdict.defects


def test_a_session_broken_by_loadsim_is_not_the_servers_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command under way fails as the connection is given up; it is recorded as ours."""

    async def during(engine: Engine, driver: InMemoryDriver) -> None:
        user = engine.users[0]
        while user.recorder.performing != "BROWSE":  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        monkeypatch.setattr(Inbox, "announce", lambda *_: 1 / 0)
        user.recorder.arrived(1)
        monkeypatch.undo()

    browser = quiet(browse={"per_day": 10})
    lived = live(day_of(tmp_path, (browser, 2)), tmp_path, service_s=0.5, during=during)
    assert_survived(lived)
    (failed,) = [task for task in lived.tape.tasks if task["outcome"] != "ok"]
    assert (failed["task"], failed["outcome"], failed["error"]) == (
        "BROWSE",
        "generator",
        "internal error: ZeroDivisionError",
    )


def test_a_user_with_broken_state_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost by the generator; what was due until the end is skipped, and the others go on to it."""
    breaking(
        "go_on",
        PendingActivities,
        monkeypatch,
        lambda activities: activities._user.number == 1 and activities._begun > 10,
    )
    lived = live(day_of(tmp_path, (SENDER, 3)), tmp_path)
    assert lived.failure is None
    assert lived.tape.told["ended"] == "completed"
    assert lived.tape.told["users_given_up"] == 1
    assert lived.tape.told["lost_users"] == 0  # whom the server left without a session
    mine = lived.outcomes("SEND") and [task["outcome"] for task in lived.tasks("SEND", user=1)]
    assert set(mine) == {"ok", "skipped"}
    assert len(mine) >= len(list(Workload(lived.scenario).activities(1))) - 1
    assert {task["outcome"] for user in (2, 3) for task in lived.tasks(user=user)} == {"ok"}
    assert not [span for span in lived.tape.spans if span["task"] == "NO SESSION" and span["user"] == 1]
    summary = summarise([lived.log])
    assert summary.figures.sessions.lost_users == 1
    assert finding(Code.USERS_GIVEN_UP, given_up=1, users=2) in summary.verdict.defects


@pytest.mark.slow
@pytest.mark.parametrize("act", ["plan_day", "end_day"])
def test_an_error_of_one_user_does_not_end_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    breaking(act, User, monkeypatch, lambda user: user.number == 1)
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path)
    assert lived.failure is None
    assert lived.tape.told["ended"] == "completed"
    assert lived.tape.told["users_given_up"] == 1
    assert {task["outcome"] for task in lived.tasks(user=2)} == {"ok"}
    assert lived.tasks("LOGOFF", user=2)
    assert verdict(lived)["validity"] == "invalid"


def test_events_about_one_error_are_bounded(tmp_path: Path) -> None:
    def fault(user: int, name: str, number: int) -> Exception | None:
        return ValueError(SECRET) if name == "SMTP DATA" else None

    lived = live(day_of(tmp_path, (SENDER, 3)), tmp_path, fault=fault)
    sends = lived.outcomes("SEND")
    assert set(sends) <= {"generator", "skipped"}
    assert sends.count("generator") > EVENTS_A_PLACE
    assert len(lived.said("internal error")) == EVENTS_A_PLACE
    (failures,) = [each for each in lived.said("failures") if each["task"] == "SEND"]
    assert failures["times"] == sends.count("generator")


def test_an_error_in_a_callback_of_the_loop_is_in_the_verdict(tmp_path: Path) -> None:
    """It is not only a line on standard error, which few read."""

    async def during(_: Engine, __: InMemoryDriver) -> None:
        await asyncio.sleep(10)
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, during=during)
    assert_survived(lived)
    (event,) = lived.said("internal error")
    assert (event["kind"], event["where"]) == ("internal error: ZeroDivisionError", "outside of loadsim")
    assert verdict(lived)["validity"] == "invalid"


def test_network_errors_in_callbacks_are_no_failure_of_the_generator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other errors in callbacks are logged by asyncio, as before."""

    async def during(_: Engine, __: InMemoryDriver) -> None:
        def broken() -> None:
            raise ConnectionResetError(errno.ECONNRESET, "reset")

        await asyncio.sleep(10)
        asyncio.get_running_loop().call_soon(broken)

    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, during=during)
    assert not lived.said("internal error")
    assert "own_faults" not in lived.tape.told
    assert "ConnectionResetError" in caplog.text


def test_an_error_in_periodic_sampling_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[Health] = []

    sample = Health.sample

    def breaks(health: Health) -> Mapping[str, Any]:
        samples.append(health)
        if len(samples) == 50:
            raise IndexError(SECRET)
        return sample(health)

    monkeypatch.setattr(Health, "sample", breaks)
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path)
    assert_survived(lived)
    assert len(samples) > 110
    assert lived.tape.flushes > 110
    assert lived.tape.told["own_faults"] == {"internal error: IndexError": 1}


def test_plan_fails_on_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the load would be smaller than the scenario's without a notice."""

    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(InMemorySubmission, "send", broken)
    with pytest.raises(ZeroDivisionError):
        plan_users(Workload(day_of(tmp_path, (SENDER, 2))), (1, 2))


def of_our_own(task: str, due_ms: float, kind: str, **more: Any) -> dict[str, Any]:
    return done(task, due_ms, 1, outcome="generator", error=kind, **more)


def test_several_kinds_are_named_with_their_counts(tmp_path: Path) -> None:
    """The most frequent first, and no endless list; those outside of the window count too."""
    tasks = [LOGGED_ON, of_our_own("LOGON", -50, "b"), *(done("READ", number, 5) for number in range(40))]
    tasks += [of_our_own("READ", 50 + number, "abcdd"[number]) for number in range(5)]
    tasks += [of_our_own("READ", 200_000, "a")]
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks, DELIVERED)])
    kinds = ("a (2)", "b (2)", "d (2)", "c (1)")
    assert finding(Code.GENERATOR_FAILED, times=7, kinds=kinds) in summary.verdict.defects
    assert summary.score["generator_failed"] == 5
    assert summary.score["logon_failed_share"] == 0


NO_MEMORY, NO_PORT = "no memory (ENOMEM)", "no free local port (EADDRNOTAVAIL)"


@pytest.mark.parametrize(
    ("kinds", "causes"),
    [
        ([NO_MEMORY], ["generator"]),
        ([NO_MEMORY, NO_PORT, NO_PORT], ["generator"]),
        (["no token"], ["fault"]),
        (["plug-in of example-tasks: ValueError"], ["fault"]),
        ([NO_MEMORY, NO_PORT, *SHORTAGES.values(), "internal error: KeyError"], ["fault"]),  # not among those named
    ],
)
def test_only_shortages_are_named_as_limits_of_the_generator(
    tmp_path: Path, kinds: list[str], causes: list[str]
) -> None:
    """A capacity search takes the cause `generator` for too large a load: a token or a plug-in that fails is none."""
    tasks = [LOGGED_ON, *(done("READ", number, 5) for number in range(40))]
    tasks += [of_our_own("READ", 50 + number, kind) for number, kind in enumerate(kinds)]
    outside = ENDED | {"own_faults": dict.fromkeys(kinds, 1)}
    for log in (
        sample_log(tmp_path / "in.tlog", tasks, DELIVERED),
        sample_log(tmp_path / "between.tlog", tasks[: -len(kinds)], DELIVERED, facts=outside),
    ):
        assert summarise([log]).score["verdict"]["causes"] == causes


def test_merged_logs_keep_each_engines_failures(tmp_path: Path) -> None:
    """Facts of all of them add up; the client without any is valid by itself."""
    tasks = [done("READ", number, 5) for number in range(40)]
    header = {"users": 4, "machines": [{"client": "c1", "users": 2}, {"client": "c2", "users": 2}]}
    bad = ENDED | {"own_faults": {"k": 2}, "users_given_up": 1}
    one = sample_log(tmp_path / "1.tlog", tasks, DELIVERED, header=header, facts=bad)
    two = sample_log(tmp_path / "2.tlog", [*tasks, of_our_own("READ", 90, "k")], (), header=header | {"client": "c2"})
    summary = summarise([one, two])
    score = summary.score
    assert score["lost_users"] == 1
    assert summary.verdict.defects[:3] == (
        finding(Code.USERS_LOST, lost=1, users=4, limit_share=0.01),
        finding(Code.GENERATOR_FAILED, times=3, kinds=("k",)),
        finding(Code.USERS_GIVEN_UP, given_up=1, users=4),
    )
    assert [client["validity"] for client in score["per_client"]] == ["invalid", "invalid"]
    assert [client["lost_users"] for client in score["per_client"]] == [1, 0]


def test_commands_failed_by_loadsim_are_not_the_servers_failures(tmp_path: Path) -> None:
    """They are in the log, and in no count of the table."""

    def command(at: int, outcome: str) -> CommandFields:
        begun_ns = ENDED["start_ns"] + at * 10**6
        return "IMAP CONNECT", 1, begun_ns, begun_ns + 10, outcome, 0, 0

    commands = [command(at, outcome) for at, outcome in enumerate(["ok", "lost", "generator"])]
    log = sample_log(tmp_path / "a.tlog", [LOGGED_ON], DELIVERED, commands)
    (row,) = summarise([log], commands=True).score["commands"]
    assert (row["hits"], row["failed"]) == (1, 1)


def observed(place: Path, machine_s: Iterable[float] | None, engine_s: Iterable[float]) -> Summary:
    """The figures of a run whose machine and engine took samples at these seconds; its window is of 100 s.

    `machine_s` is None without the machine's log.
    """
    engine = TimingLogWriter(place / "1.tlog", HEADER, EPOCH_NS)
    for record in (LOGGED_ON, *(done("READ", number * 1000, 5) for number in range(100))):
        engine.task(TaskRecord(**record))
    for record in DELIVERED:
        engine.mail(MailRecord(**record))
    machine = TimingLogWriter(place / "2.tlog", {**HEADER, "engine": "machine", "engine_users": 0}, EPOCH_NS)
    for writer, instants_s in ((engine, engine_s), (machine, machine_s or ())):
        for at_s in instants_s:
            shares = {"core_shares": [0.1], "cpu_share": 0.1, "stolen_share": 0.0, "memory_available_bytes": 10**9}
            writer.health({"at_ns": ms(at_s * 1000), **shares, "segments_sent": 9, "segments_sent_again": 0})
        writer.facts(ENDED)
        writer.close()
    if machine_s is None:
        (place / "2.tlog").unlink()
    return summarise([place])


def seconds(begin: int, end: int) -> list[float]:
    return [at_s + 0.3 for at_s in range(begin, end)]


@pytest.mark.parametrize(
    ("machine_s", "gaps", "validity"),
    [
        (seconds(-5, 110), [], "valid"),
        ([*seconds(-5, 40), *seconds(52, 110)], [[39.3, 52.3]], "degraded"),
        ([*seconds(-5, 40), *seconds(71, 110)], [[39.3, 71.3]], "invalid"),
        (seconds(-5, 90), [[89.3, 100.0]], "degraded"),  # it was never woken again
        ([], [[0.0, 100.0]], "invalid"),  # its log is whole, and has none
        (None, [[0.0, 100.0]], "invalid"),  # its log is missing
        ([*seconds(-30, -20), *seconds(2, 96)], [], "valid"),  # outside of the window
    ],
)
def test_a_gap_in_a_machines_samples_is_in_the_verdict(
    tmp_path: Path, machine_s: list[float] | None, gaps: list[list[float]], validity: str
) -> None:
    """The load of the generator's machine is unknown in the gap."""
    summary = observed(tmp_path, machine_s, seconds(-3, 105))
    (machine,) = summary.score["machines"]
    assert [[pytest.approx(at_s) for at_s in gap] for gap in gaps] == [list(gap) for gap in machine["unobserved_s"]]
    assert summary.verdict.validity == validity, summary.verdict
    named = [(one.where, one.values) for one in summary.verdict.defects if one.code is Code.NOT_OBSERVED]
    assert named == [
        ("c1", {"length_s": round(end_s - begin_s), "begin_s": round(begin_s), "end_s": round(end_s)})
        for begin_s, end_s in machine["unobserved_s"]
    ]


def test_kinds_that_a_server_chooses_are_bounded(tmp_path: Path) -> None:
    """Kinds are bounded in snapshots, events and records; every failure is counted, and our own keep their names."""
    names: Iterator[int] = iter(range(10**9))

    def fault(user: int, name: str, number: int) -> TaskFailed | None:
        if name != "SMTP MAIL":
            return None
        at = next(names)
        return GeneratorFailed("no buffer space (ENOBUFS)") if at == 300 else ServerRefused(f"{'X' * 60}{at}", "NO")

    many = quiet(new_mail={"per_day": 150, "save_sent": False})
    lived = live(day_of(tmp_path, (many, 3)), tmp_path, fault=fault)
    failed = [task for task in lived.tasks("SEND") if task["outcome"] == "refused"]
    kinds = Counter(task["error"] for task in failed)
    assert len(failed) > 3 * MOST_KINDS
    assert len(kinds) == MOST_KINDS + 1
    assert kinds[OTHER] == len(failed) - sum(times for kind, times in kinds.items() if kind != OTHER) > MOST_KINDS
    assert max(map(len, kinds)) <= LONGEST_KIND
    last = lived.snapshots[-1].failures["SEND"]
    assert last == {**kinds, "no buffer space (ENOBUFS)": 1}
    assert len(lived.said("failure")) == MOST_KINDS + 2


def test_a_log_survives_any_number_of_kinds(tmp_path: Path) -> None:
    """10,000 kinds: all records are there, and names of tasks that come later are their own."""
    path = tmp_path / "a.tlog"
    tasks = [done("READ", number, 1, outcome="refused", error=f"kind {number}") for number in range(10_000)]
    log = sample_log(path, [*tasks, LOGGED_ON, done("A NEW TASK", 5, 1)])
    assert len(log.tasks) == 10_002
    errors = Counter(log.names(log.tasks, "error").tolist())
    assert len(errors) == MOST_ERRORS + 2  # with that of none, and the other
    assert errors[OTHER] == 10_000 - MOST_ERRORS
    assert set(log.names(log.tasks, "task").tolist()) == {"READ", "LOGON", "A NEW TASK"}
    (read,) = [task for task in summarise([log]).score["tasks"] if task["task"] == "READ"]
    assert (read["planned"], read["refused"]) == (10_000, 10_000)
    assert sum(kind["times"] for kind in read["failures"]) == 10_000
