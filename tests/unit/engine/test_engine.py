"""The engine and its users: the common start, faults on the way, lateness and its causes, and every kind of end."""

import asyncio
import gc
import io
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from virtual_runs import EVERYTHING, LISTS, Lived, Tape, assert_one_at_a_time, chosen, live, quiet, scenario_of

from bench.misdeeds import EVERY, Hiding, every_tenth, hide
from loadsim.analysis.delivery import delivery
from loadsim.analysis.summary import summarise
from loadsim.engine.control import StandaloneControl
from loadsim.engine.engine import LOG_OFF_LIMIT_S, LOG_ON_LIMIT_S, LOG_ONS_AT_ONCE, Engine
from loadsim.engine.event_log import Events
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.model.draws import draw
from loadsim.model.ports import ALL_TASKS, Header, Session
from loadsim.model.terms import Window
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox, InMemorySubmission
from loadsim.protocols.in_memory_mail import MailInMemory, parse_mail
from loadsim.scenario.workload import Workload
from loadsim.timinglog.records import NEVER
from loadsim.users.session_state import LONGEST_BACK_OFF_S

S = 10**9
DAY_S = 120
SENDER = quiet(new_mail={"per_day": 40, "save_sent": False})

day_of = partial(scenario_of, day=f"{DAY_S}s")
"""Scenarios with days of two minutes: an engine works each virtual second."""


def assert_lateness_adds_up(lived: Lived) -> None:
    """The three causes sum to the time from due to start, for every task."""
    for task in lived.tape.tasks:
        if task["started_ns"] is not None:
            late_s = task["late_busy_s"] + task["late_down_s"] + task["late_generator_s"]
            assert late_s == pytest.approx((task["started_ns"] - task["scheduled_ns"]) * 1e-9, abs=1e-6), task
            assert min(task["late_busy_s"], task["late_down_s"], task["late_generator_s"]) >= 0


def test_log_ons_are_spread_over_the_ramp_up(tmp_path: Path) -> None:
    """User k of n is due at k/n of the ramp-up; the common start comes when the last one is on."""
    lived = live(day_of(tmp_path, (quiet(), 4), day="10s", ramp_up="8s"), tmp_path)
    log_ons = lived.tasks("LOGON")
    assert [task["scheduled_ns"] for task in log_ons] == [0, 2 * S, 4 * S, 6 * S]
    assert log_ons[-1]["ended_ns"] <= lived.engine.start_ns <= log_ons[-1]["ended_ns"] + S
    assert lived.log.sources[0].started
    assert lived.tape.told["ended"] == "completed"
    (start,) = lived.said("start")
    assert (start["users_on"], start["at_s"]) == (4, 0.0)


@pytest.mark.slow
def test_due_times_do_not_move_when_the_server_is_slow(tmp_path: Path) -> None:
    """Activities are due at the same instants from the start on a fast server and on an overloaded one."""
    scenario = day_of(tmp_path, (SENDER, 2), limits={"grace": "1s"})
    due = []
    for service_s in (0.0, 0.02, 2.0):
        lived = live(scenario, tmp_path, service_s=service_s)
        start_ns = lived.engine.start_ns
        due.append({(task["user"], task["scheduled_ns"] - start_ns) for task in lived.tasks("SEND")})
        assert_lateness_adds_up(lived)
    assert len(due[0]) > 50
    assert due[0] == due[1] == due[2]
    assert any(task["late_busy_s"] > 10 for task in lived.tasks("SEND"))
    assert {task["outcome"] for task in lived.tasks("SEND")} == {"ok", "unfinished", "skipped"}


def test_a_task_ends_with_its_last_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time from there to the user's next step is the generator's: it makes the next task late, not slow."""
    send = InMemorySubmission.send

    async def send_and_be_left_waiting(self: InMemorySubmission, *about: Any) -> None:
        await send(self, *about)
        await asyncio.sleep(10)

    monkeypatch.setattr(InMemorySubmission, "send", send_and_be_left_waiting)
    lived = live(day_of(tmp_path, (SENDER, 2), day="600s"), tmp_path)
    sent = [task for task in lived.tasks("SEND") if task["outcome"] == "ok"]
    data = lived.log.commands[lived.log.names(lived.log.commands, "command") == "SMTP DATA"]
    answered_us = np.sort(data["started_us"] + data["took_us"])
    ended_us = np.sort([(task["ended_ns"] - lived.engine.start_ns) // 1000 for task in sent])
    assert len(sent) > 20
    assert np.abs(answered_us - ended_us).max() <= 1  # both were rounded
    assert any(task["late_generator_s"] > 1 for task in sent)
    assert_lateness_adds_up(lived)


@pytest.mark.slow
def test_every_task_is_recorded_on_a_faulty_server(tmp_path: Path) -> None:
    """Refusals, losses and silence at random, by a seed: nothing overlaps, is lost or is counted twice."""

    def fault(user: int, name: str, number: int) -> TaskFailed | None:
        u = draw(8, user, "fault", number)
        if u < 0.010:
            return ServerRefused("NO", "random")
        if u < 0.014:
            return ServerLost("reset")
        return ServerSilent("no answer") if u < 0.018 else None

    scenario = day_of(tmp_path, (EVERYTHING, 6), day="900s", limits={"drain": "300s"}, **LISTS)
    lived = live(scenario, tmp_path, fault=fault, limit_s=20)
    outcomes = Counter(task["outcome"] for task in lived.tape.tasks)
    assert min(outcomes["refused"], outcomes["lost"], outcomes["timeout"]) > 3
    assert lived.failure is None
    assert_one_at_a_time(lived)
    assert_lateness_adds_up(lived)
    accepted = Counter((mail["message"], mail["user"]) for mail in lived.mails("accepted"))
    visible = Counter((mail["message"], mail["user"]) for mail in (*lived.mails("seen"), *lived.mails("found")))
    assert set(accepted.values()) == set(visible.values()) == {1}
    assert accepted.keys() <= visible.keys()
    assert lived.mails("found")
    engine = lived.engine
    assert engine.outstanding == 0
    assert engine.counts.sessions_lost >= engine.counts.sessions_restored > 0
    assert engine.counts.sessions_lost - engine.counts.sessions_restored == lived.tape.told["lost_users"] == 0
    assert engine.counts.users_on == 0
    at = {(mail["message"], mail["user"]): mail["at_ns"] for mail in lived.mails("accepted")}
    for mail in lived.mails("seen"):
        if (mail["message"], mail["user"]) in at:
            assert mail["at_ns"] >= at[mail["message"], mail["user"]]


FAULTS: dict[str, TaskFailed] = {
    "refused": ServerRefused("NO", "no"),
    "lost": ServerLost("reset"),
    "timeout": ServerSilent("no answer"),
}

COMMAND_OF = {
    "LOGON": "IMAP CAPABILITY",
    "SYNC": "IMAP UID FETCH",
    "READ": "IMAP UID STORE",
    "SAVE SENT": "IMAP APPEND",
    "DELETE": "IMAP UID MOVE",
    "BROWSE": "IMAP FETCH",
    "SCHEDULE": "IMAP APPEND",
    "LOGOFF": "IMAP LOGOUT",
}
PROFILE_OF: dict[str, dict[str, Any]] = {
    "LOGON": quiet(),
    "SYNC": SENDER,
    "READ": quiet(process_inbox={"per_day": 20}, start_state={"inbox": 2}),
    "SAVE SENT": quiet(new_mail={"per_day": 20, "save_sent": True}),
    "DELETE": quiet(process_inbox={"per_day": 20}, start_state={"inbox": 2}, after_reading={"delete": "100%"}),
    "BROWSE": quiet(browse={"per_day": 20}),
    "SCHEDULE": quiet(schedule={"per_day": 20}),
    "LOGOFF": quiet(),
}


@pytest.mark.slow
@pytest.mark.parametrize("outcome", FAULTS)
@pytest.mark.parametrize("task", COMMAND_OF)
def test_a_task_that_fails_is_an_outcome(tmp_path: Path, task: str, outcome: str) -> None:
    """It is recorded with kind and instant of its end, told with the server's line, and the user goes on."""
    fault = chosen({(1, COMMAND_OF[task], 0): FAULTS[outcome]})
    lived = live(day_of(tmp_path, (PROFILE_OF[task], 2)), tmp_path, fault=fault, limit_s=10)
    (failed,) = [record for record in lived.tape.tasks if record["outcome"] != "ok"]
    assert (failed["task"], failed["user"], failed["outcome"]) == (task, 1, outcome)
    assert failed["error"] == FAULTS[outcome].kind
    assert failed["ended_ns"] > failed["started_ns"]
    (said,) = lived.said("failure")
    assert (said["task"], said["outcome"], said["line"]) == (task, outcome, FAULTS[outcome].line)
    (counted,) = lived.said("failures")
    assert counted["times"] == 1
    lost = task != "LOGON" and outcome != "refused"
    assert lived.engine.counts.sessions_lost == lost
    assert lived.engine.counts.sessions_restored == (lost and task != "LOGOFF")
    assert len(lived.tasks("LOGON", user=1)) == 1 + (task == "LOGON" or (lost and task != "LOGOFF"))
    assert lived.engine.outstanding == 0
    assert lived.engine.counts.users_on == 0
    assert_one_at_a_time(lived)
    assert_lateness_adds_up(lived)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", FAULTS)
def test_a_failed_submission_leaves_the_mailbox_session_alone(tmp_path: Path, outcome: str) -> None:
    """The message counts for no user; the session goes on."""
    fault = chosen({(1, "SMTP DATA", 0): FAULTS[outcome]})
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, fault=fault)
    assert Counter(lived.outcomes("SEND"))[outcome] == 1
    assert (lived.engine.counts.sessions_lost, len(lived.tasks("LOGON"))) == (0, 2)
    assert len({mail["message"] for mail in lived.mails("accepted")}) == lived.outcomes("SEND").count("ok")
    assert lived.engine.outstanding == 0


def test_mail_that_arrives_after_a_lost_answer_is_seen(tmp_path: Path) -> None:
    """The answer to DATA was lost, the message was not: it is seen, and makes up for no other that is under way."""

    @dataclass
    class LosesAnswer:
        inner: Any

        async def send(self, *message: Any) -> None:
            await self.inner.send(*message)
            raise ServerLost("lost at DATA")

        async def close(self) -> None:
            await self.inner.close()

    @dataclass
    class Wrapped:
        inner: InMemoryDriver
        name: str = "fake"
        supported_tasks: frozenset[str] = ALL_TASKS

        def session(self, account: Any, observer: Any) -> Session:
            session = self.inner.session(account, observer)
            if account.number != 1:
                return session
            return Session(session.mailbox, LosesAnswer(session.submission), session.calendar)  # type: ignore[arg-type]

    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, wrap=Wrapped)
    assert {task["outcome"] for task in lived.tasks("SEND", user=1)} == {"lost"}
    assert len(lived.mails("seen", user=2)) == len(lived.tasks("SEND", user=1)) > 10
    assert not lived.mails("accepted", user=2)
    assert lived.snapshots[-1].accepted_undelivered == lived.engine.outstanding == 0


class BusyOnce(Hiding):
    """Refuses the first look for mail that was not announced."""

    looks = 0

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        self.looks += reopen
        if reopen and self.looks == 1:
            raise ServerRefused("NO [INUSE] SELECT")
        return await super().arrived(reopen)


@pytest.mark.parametrize("mailbox", [Hiding, BusyOnce])
def test_unannounced_mail_is_found_at_the_end(tmp_path: Path, mailbox: type[Hiding]) -> None:
    """Once each, also if later mail was listed before. It is counted, and not lost; a refused look is made again."""

    def hiding(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type, driver.post = mailbox, every_tenth(driver, hide)
        return driver

    lived = live(day_of(tmp_path, (SENDER, 10)), tmp_path, wrap=hiding)
    hidden = [mail["message"] for mail in lived.mails("accepted")][EVERY - 1 :: EVERY]
    assert len(hidden) > 10
    assert sorted(mail["message"] for mail in lived.mails("found")) == sorted(hidden)
    assert len(lived.mails("seen")) + len(hidden) == len(lived.mails("accepted"))
    assert lived.engine.outstanding == 0
    assert lived.tape.told["unannounced"] == lived.engine.counts.unannounced == len(hidden)


class Busy(Hiding):
    """Refuses all looks for mail that was not announced."""

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        if reopen:
            raise ServerRefused("NO [INUSE] SELECT")
        return await super().arrived(reopen)


class Gone(Hiding):
    """Ends the session at the first look for mail that was not announced, and has no other."""

    gone = False

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        self.gone |= reopen
        if reopen:
            raise ServerLost("closed")
        return await super().arrived(reopen)

    async def log_on(self) -> None:
        if self.gone:
            raise ServerLost("closed")
        await super().log_on()


@pytest.mark.parametrize("mailbox", [Busy, Gone])
def test_users_whose_last_listing_fails_are_named(tmp_path: Path, mailbox: type[InMemoryMailbox]) -> None:
    def hiding(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type, driver.post = mailbox, every_tenth(driver, hide)
        return driver

    lived = live(day_of(tmp_path, (SENDER, 10)), tmp_path, wrap=hiding)
    hidden = {mail["user"] for mail in lived.mails("accepted")} - {0}
    assert lived.engine.outstanding > 0
    assert lived.tape.told["unlooked"] and {*lived.tape.told["unlooked"]} <= hidden
    found = delivery(lived.log, Window(0, 3600))
    assert found.undelivered_at_end == 0 and found.unwatched == lived.engine.outstanding


AWAY = b"From: away@example.test\r\nIn-Reply-To: <%b>\r\nAuto-Submitted: auto-replied\r\n\r\nI am away.\r\n"


@pytest.mark.parametrize("initialise", ["auto", "never"])
def test_mail_of_unknown_senders_is_counted(tmp_path: Path, initialise: str) -> None:
    """Each automatic reply once, unless it is unknown what was there before."""
    sent: list[MailInMemory] = []

    def answering(driver: InMemoryDriver) -> InMemoryDriver:
        def post(mail: MailInMemory, users: tuple[int, ...]) -> None:
            driver.arrive(mail, users)
            sent.append(mail)
            assert mail.tag is not None
            driver.arrive(parse_mail(AWAY % mail.message_id.strip("<>").encode()), [mail.tag.sender])

        driver.post = post
        return driver

    lived = live(scenario_of(tmp_path, (SENDER, 2), initialise=initialise), tmp_path, wrap=answering)
    found = {one.code: one.values for one in summarise([lived.log]).verdict.warnings}
    if initialise == "never":
        assert Code.FOREIGN_MAIL not in found
    else:
        assert len(sent) > 10
        assert found[Code.FOREIGN_MAIL] == {"messages": len(sent)}


def test_lists_that_leave_out_the_sender_are_not_waited_for(tmp_path: Path) -> None:
    """The sender's copies are no lost mail, and the run ends without them; if one sender gets one, all are expected."""
    profile = quiet(new_mail={"per_day": 40, "save_sent": False, "recipients": 1, "list_chance": 1})
    scenario = day_of(tmp_path, (profile, 6), lists={"count": 1, "size": {"min": 4, "average": 4, "max": 4}})

    def leaving_out(but_for: int) -> Callable[[Engine, InMemoryDriver], Awaitable[None]]:
        async def during(_: Engine, driver: InMemoryDriver) -> None:
            def post(mail: MailInMemory, users: Sequence[int]) -> None:
                sender = mail.tag.sender if mail.tag else 0
                driver.arrive(mail, [user for user in users if user != sender or user == but_for])

            driver.post = post

        return during

    lived = live(scenario, tmp_path, during=leaving_out(0))
    own = [mail for mail in lived.mails("accepted") if mail["sender"] == mail["user"]]
    found = delivery(lived.log, Window(0, DAY_S))
    assert own
    assert (found.left_out, found.undelivered, found.undelivered_at_end) == (len(own), 0, 0)
    assert found.accepted == found.delivered == len(lived.mails("accepted")) - len(own)
    assert lived.engine.outstanding == 0
    ended, drained = (lived.said(name)[0]["at_s"] for name in ("end", "drained"))
    assert drained - ended < lived.scenario.limits.drain_s

    lived = live(scenario, tmp_path, during=leaving_out(1))
    lost = [mail for mail in lived.mails("accepted") if mail["sender"] == mail["user"] != 1]
    found = delivery(lived.log, Window(0, DAY_S))
    assert (found.left_out, found.undelivered_at_end) == (0, len(lost))
    assert lived.engine.outstanding == len(lost) > 0


def test_a_session_lost_while_idle_is_replaced(tmp_path: Path) -> None:
    """At once; what came meanwhile is found; what was due meanwhile waited for the server."""
    scenario = day_of(tmp_path, (SENDER, 2))

    async def during(engine: Engine, driver: InMemoryDriver) -> None:
        box = driver.mailboxes[1]
        await asyncio.sleep(60)
        for _ in range(100):
            if engine.users[0].recorder.performing is None:
                break
            await asyncio.sleep(0.5)
        engine.users[0].recorder.arrived(1)  # and before it can be asked for:
        box.break_off(ServerLost("BYE", "shutting down"))
        assert engine.users[0].mail.inbox.announced == 0

    lived = live(scenario, tmp_path, during=during)
    first, again = lived.tasks("LOGON", user=1)
    assert again["scheduled_ns"] == again["started_ns"] >= 60 * S
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (1, 1)
    assert first["outcome"] == again["outcome"] == "ok"
    assert [line["task"] for line in lived.said("failure")] == ["IDLE"]
    assert lived.engine.outstanding == 0


def test_a_session_lost_right_after_log_on_is_replaced(tmp_path: Path) -> None:
    """The connection is gone when LOGON has its last answer: the user logs on again, after a pause."""

    async def during(engine: Engine, _: InMemoryDriver) -> None:
        user = engine.users[0]
        watch = user.mail.mailbox.watch

        async def once() -> None:
            await watch()
            user.mail.mailbox.watch = watch  # type: ignore[method-assign]
            user.mail.mailbox.abandon()
            user.recorder.lost(ServerLost("reset"))

        user.mail.mailbox.watch = once  # type: ignore[method-assign]

    lived = live(day_of(tmp_path, (quiet(), 2)), tmp_path, during=during)
    first, again = lived.tasks("LOGON", user=1)
    assert first["outcome"] == again["outcome"] == "ok"
    assert 0.5 * S <= again["scheduled_ns"] - first["ended_ns"] <= 1.5 * S
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (1, 1)


def test_log_ons_that_fail_are_tried_with_growing_pauses(tmp_path: Path) -> None:
    """Pauses of 1, 2, 4, ... 60 s, each between half and one and a half; then the user works, late by the server."""
    fault = chosen({(1, "IMAP AUTHENTICATE", number): ServerRefused("NO", "wrong") for number in range(9)})
    scenario = day_of(tmp_path, (SENDER, 2), day="600s")
    lived = live(scenario, tmp_path, fault=fault)
    log_ons = lived.tasks("LOGON", user=1)
    assert [task["outcome"] for task in log_ons] == ["refused"] * 9 + ["ok"]
    pauses = [(b["scheduled_ns"] - a["ended_ns"]) / S for a, b in pairwise(log_ons)]
    for number, pause_s in enumerate(pauses):
        nominal_s = min(LONGEST_BACK_OFF_S, 2.0**number)
        assert 0.5 * nominal_s <= pause_s <= 1.5 * nominal_s
    assert len({round(pause_s / 2**number, 6) for number, pause_s in enumerate(pauses[:6])}) == 6
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (0, 0)
    up_ns = log_ons[-1]["ended_ns"]
    assert lived.engine.start_ns == pytest.approx((1 + LOG_ON_LIMIT_S) * S, abs=S)
    early = [task for task in lived.tasks("SEND", user=1) if task["scheduled_ns"] < up_ns]
    assert early
    for task in early:
        assert task["late_down_s"] == pytest.approx((up_ns - task["scheduled_ns"]) * 1e-9, abs=1e-6)
        assert task["late_generator_s"] == 0
    assert_lateness_adds_up(lived)


def test_a_slow_server_is_not_asked_to_log_on_more_users_at_once(tmp_path: Path) -> None:
    """However many want to come in: no more than the limit are under way, the others queue, and that is no lateness."""
    lived = live(day_of(tmp_path, (quiet(), 200), day="10s", ramp_up="100ms"), tmp_path, service_s=0.5)
    log_ons = lived.tasks("LOGON")
    assert len(log_ons) == 200
    begun = sorted(task["started_ns"] for task in log_ons)
    ended = sorted(task["ended_ns"] for task in log_ons)
    under_way = [bisect_right(begun, at_ns) - bisect_right(ended, at_ns) for at_ns in begun]
    assert max(under_way) == LOG_ONS_AT_ONCE
    assert max(task["late_generator_s"] for task in log_ons) < 0.1


def test_a_refused_sync_is_tried_again(tmp_path: Path) -> None:
    """Announced mail is not forgotten; when it is shown, it is dated by its announcement."""
    quiet_one = quiet()
    scenario = day_of(tmp_path, (quiet(new_mail={"per_day": 3, "save_sent": False}), 1), (quiet_one, 1))
    receiver = 1 if Workload(scenario).profile(1).new_mail.per_day == 0 else 2
    fault = chosen({(receiver, "IMAP UID FETCH", number): ServerRefused("NO", "busy") for number in range(3)})
    lived = live(scenario, tmp_path, fault=fault)
    syncs = lived.tasks("SYNC", user=receiver)
    assert [task["outcome"] for task in syncs[:4]] == ["refused"] * 3 + ["ok"]
    seen = lived.mails("seen", user=receiver)
    accepted = lived.mails("accepted")
    assert len(seen) == len(accepted) >= 1
    assert seen[0]["at_ns"] - accepted[0]["at_ns"] < S
    assert syncs[3]["scheduled_ns"] - syncs[0]["ended_ns"] > 14 * S


def test_a_task_that_outlasts_the_grace_is_unfinished(tmp_path: Path) -> None:
    """It has no end; its user returns for the mail under way to them; later tasks are skipped."""
    scenario = day_of(tmp_path, (SENDER, 2), limits={"grace": "5s", "drain": "30s"})
    due = [activity.due_us for activity in Workload(scenario).activities(1)]
    fault = chosen({(1, "SMTP MAIL", len(due) - 6): ServerSilent("no answer")})
    lived = live(scenario, tmp_path, fault=fault, limit_s=10_000)
    outcomes = [task["outcome"] for task in lived.tasks("SEND", user=1)]
    assert sorted(outcomes) == sorted(["ok"] * (len(due) - 6) + ["unfinished"] + ["skipped"] * 5)
    (unfinished,) = [task for task in lived.tasks("SEND") if task["outcome"] == "unfinished"]
    assert unfinished["ended_ns"] is None
    skipped = [task for task in lived.tasks("SEND") if task["outcome"] == "skipped"]
    assert [task["scheduled_ns"] - lived.engine.start_ns for task in skipped] == [us * 1000 for us in due[-5:]]
    assert all(task["started_ns"] is task["ended_ns"] is None for task in skipped)
    assert lived.tape.told["undelivered"] == 0
    assert lived.tape.told["lost_users"] == 0
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.users_on) == (0, 0)
    assert lived.tasks("LOGON", user=1)[-1]["outcome"] == lived.tasks("LOGOFF", user=1)[-1]["outcome"] == "ok"
    ends = {task["ended_us"] for task in lived.log.tasks[lived.log.tasks["outcome"] == 4]}
    assert ends == {NEVER}


def test_each_message_of_a_skipped_inbox_counts_as_a_skipped_read(tmp_path: Path) -> None:
    """An Inbox that should have been processed before the end counts a READ for each message that waited in it."""
    profile = quiet(process_inbox={"per_day": 3}, browse={"per_day": 20}, start_state={"inbox": 4})
    fault = chosen({(1, "IMAP SELECT", 1): ServerSilent("no answer")})  # the first BROWSE
    lived = live(day_of(tmp_path, (profile, 2)), tmp_path, fault=fault, limit_s=10_000)
    mine = Counter((task["task"], task["outcome"]) for task in lived.tasks(user=1))
    planned = Counter(activity.kind for activity in Workload(lived.scenario).activities(1))
    assert planned["process inbox"] >= 1
    assert mine["BROWSE", "unfinished"] + mine["BROWSE", "skipped"] == planned["browse"]
    assert mine["READ", "skipped"] + mine["READ", "ok"] >= 4
    assert mine["READ", "skipped"] % 4 == 0


def blind_user_1(user: int, name: str, _: int) -> TaskFailed | None:
    return ServerRefused("NO", "never") if user == 1 and name == "IMAP UID FETCH" else None


class Patient(StandaloneControl):
    """As if another engine's last task ended 40 s after ours."""

    async def all_finished(self) -> None:
        await asyncio.sleep(40)


@pytest.mark.parametrize(("control", "others_s"), [(StandaloneControl, 0), (Patient, 40)])
def test_draining_begins_at_the_common_end_and_is_limited(
    tmp_path: Path, control: type[StandaloneControl], others_s: int
) -> None:
    """One recipient never sees their mail, and another engine may still send: missing mail is counted."""
    scenario = day_of(tmp_path, (SENDER, 2), limits={"drain": "20s"})
    lived = live(scenario, tmp_path, fault=blind_user_1, control=control)
    (end,), (drained,) = lived.said("end"), lived.said("drained")
    assert 20 + others_s <= drained["at_s"] - end["at_s"] <= 31 + others_s
    assert drained["undelivered"] == len(lived.mails("accepted", user=1)) == lived.tape.told["undelivered"] > 0


def test_log_off_deletes_loadsims_mail_only(tmp_path: Path) -> None:
    """Deleted Items lose loadsim's mail and nothing else; without that row of the profile, nothing at all."""
    foreign = b"From: somebody@elsewhere.test\r\nTo: user00001@loadsim.test\r\nSubject: mine\r\n\r\nkeep me\r\n"

    async def during(engine: Engine, driver: InMemoryDriver) -> None:
        await asyncio.sleep(30)
        for user in engine.users:
            await user.mail.mailbox.append("Deleted Items", foreign)

    left = {}
    for empty in (True, False):
        profile = quiet(empty_deleted_items_on_log_off=empty)
        lived = live(day_of(tmp_path, (profile, 2)), tmp_path, during=during)
        box = lived.driver.mailboxes[1]
        left[empty] = len(box.folder("Deleted Items").messages)
        assert len(lived.mails("expunged", user=1)) == (1 if empty else 0)
    assert left == {True: 1, False: 2}


def test_slow_log_offs_are_waited_for(tmp_path: Path) -> None:
    lived = live(day_of(tmp_path, (quiet(), 200), day="10s", ramp_up="100ms"), tmp_path, service_s=4.0)
    log_offs = lived.tasks("LOGOFF")
    assert [task["outcome"] for task in log_offs] == ["ok"] * 200
    first, *_, last = sorted(task["ended_ns"] for task in log_offs)
    assert last - first > LOG_OFF_LIMIT_S * S


def stopping(at_s: float, times: int = 1) -> Any:
    async def during(engine: Engine, _: InMemoryDriver) -> None:
        await asyncio.sleep(at_s)
        for _again in range(times):
            engine.stop()
            await asyncio.sleep(1)

    return during


def test_an_early_stop_records_everything(tmp_path: Path) -> None:
    """Tasks under way may finish, due ones are skipped, users log off, and the log states an early end."""
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, during=stopping(60))
    assert lived.tape.told["ended"] == lived.log.sources[0].facts.ended == "early"
    assert not lived.log.damages
    assert len(lived.log.tasks) == len(lived.tape.tasks)
    assert len(lived.tasks("LOGOFF")) == 2
    latest_ns = max(task["scheduled_ns"] for task in lived.tasks("SEND"))
    assert latest_ns <= 60 * S
    planned = [activity.due_us * 1000 for user in (1, 2) for activity in Workload(lived.scenario).activities(user)]
    assert len(lived.tasks("SEND")) == sum(due + lived.engine.start_ns <= 60 * S for due in planned)


def test_a_stop_while_mail_is_awaited_ends_the_run_early(tmp_path: Path) -> None:
    """It is unknown then whether the mail would have arrived."""
    scenario = day_of(tmp_path, (SENDER, 2), limits={"drain": "10000s"})
    lived = live(scenario, tmp_path, fault=blind_user_1, during=stopping(5000))
    assert lived.said("end")[0]["ended"] == "completed"
    assert lived.tape.told["ended"] == "early"


def test_a_second_stop_waits_for_nothing(tmp_path: Path) -> None:
    """The second time nothing is waited for: a silent server does not hold up the end."""
    scenario = day_of(tmp_path, (SENDER, 2), limits={"grace": "1000s"})
    fault = chosen({(1, "SMTP MAIL", 3): ServerSilent("no answer")})
    lived = live(scenario, tmp_path, during=stopping(90, times=2), fault=fault, limit_s=10_000)
    assert 89 < lived.said("over")[0]["at_s"] < 93
    assert lived.outcomes("SEND").count("unfinished") == 1
    assert lived.tape.told["ended"] == "early"


def test_a_stop_before_the_common_start_ends_the_engine(tmp_path: Path) -> None:
    """Users who are on log off, the others never log on; there is no start in the log."""
    lived = live(day_of(tmp_path, (SENDER, 4), ramp_up="40s"), tmp_path, during=stopping(15))
    assert [task["user"] for task in lived.tasks("LOGON")] == [1, 2]
    assert len(lived.tasks("LOGOFF")) == 2
    assert not lived.tasks("SEND")
    assert not lived.log.sources[0].started
    assert lived.tape.told["ended"] == "early"
    assert lived.said("over")[0]["at_s"] is None


class Late(StandaloneControl):
    """For an engine that gets the common start three seconds after it."""

    async def common_start(self) -> int:
        return await super().common_start() - 3 * S


@pytest.mark.slow
def test_an_engine_records_its_actual_start(tmp_path: Path) -> None:
    """At the common start, or later, if it was told too late; what was due meanwhile is late by the generator."""
    scenario = day_of(tmp_path, (SENDER, 4), day="60s")
    in_time = live(scenario, tmp_path)
    assert in_time.log.sources[0].began_late_ms == pytest.approx(0, abs=1)
    late = live(scenario, tmp_path, control=Late)
    assert late.log.sources[0].began_late_ms == pytest.approx(3000, abs=1)
    waited_s = [3 - (task["scheduled_ns"] - late.engine.start_ns) / S for task in late.tasks("SEND")]
    held_up = [task for task, wait_s in zip(late.tasks("SEND"), waited_s, strict=True) if wait_s > 0]
    assert held_up
    assert all(task["late_generator_s"] + task["late_busy_s"] > 0 for task in held_up)


def test_a_user_who_cannot_log_on_does_not_stop_the_others(tmp_path: Path) -> None:
    """After the limit the others start; the user is counted as lost, and their tasks are skipped."""

    def fault(user: int, name: str, _: int) -> TaskFailed | None:
        return ServerRefused("NO", "wrong password") if user == 2 and name == "IMAP AUTHENTICATE" else None

    lived = live(day_of(tmp_path, (SENDER, 3), ramp_up="3s"), tmp_path, fault=fault)
    assert lived.engine.start_ns == pytest.approx((3 + LOG_ON_LIMIT_S) * S, abs=S)
    assert lived.tape.told["lost_users"] == 1
    planned = len(list(Workload(lived.scenario).activities(2)))
    assert [task["outcome"] for task in lived.tasks("SEND", user=2)] == ["skipped"] * planned
    assert {task["outcome"] for task in lived.tasks("SEND", user=1)} == {"ok"}
    assert not lived.tasks("LOGOFF", user=2)
    assert lived.tape.told["ended"] == "completed"
    (failure,) = lived.said("failure")
    assert failure["line"] == "wrong password"
    assert lived.said("failures")[0]["times"] == len(lived.tasks("LOGON", user=2)) > 3


def test_a_full_disk_is_reported_once_and_the_run_goes_on(tmp_path: Path) -> None:
    """The log's complaint is an event; events that cannot be written are no reason to stop."""

    def full(tape: Tape) -> None:
        tape.complaint = "No space left on device; 4096 bytes are kept in memory"

    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, prepare=full)
    assert len(lived.said("log not written")) == 1
    assert lived.tape.flushes > 100
    assert lived.tape.told["ended"] == "completed"

    class FullDisk(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, told=FullDisk())
    assert lived.tape.told["ended"] == "completed"


def test_events_name_each_kind_of_failure_once(tmp_path: Path) -> None:
    """The first of a kind with the server's line and those before; all of them counted at the end, in JSON."""
    out = io.StringIO()
    events = Events(out)
    events.seconds = lambda: 1.23456
    for user in range(5):
        events.failed("SEND", user, ServerRefused("550 RCPT", f"550 no user {user}"), lambda: ["S: 550"])
    events.failed("SEND", 1, ServerLost("550 RCPT"), lambda: ["not kept"])
    events.failed("READ", 1, ServerRefused("550 RCPT"))
    events.report_failures()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["failure"] * 3 + ["failures"] * 3
    assert lines[0] == {
        "at_s": 1.235,
        "event": "failure",
        "task": "SEND",
        "outcome": "refused",
        "kind": "550 RCPT",
        "line": "550 no user 0",
        "user": 0,
        "lines": ["S: 550"],
    }
    assert [line["lines"] for line in lines[1:3]] == [[], []]
    assert [line["times"] for line in lines[3:]] == [5, 1, 1]


def test_events_have_no_contents_and_no_passwords(tmp_path: Path) -> None:
    """Events of a run with failures hold neither a password nor a subject or text of a message."""
    fault = chosen({(1, "SMTP DATA", number): ServerRefused("554 DATA", "no") for number in range(3)})
    lived = live(day_of(tmp_path, (SENDER, 2)), tmp_path, fault=fault)
    text = str(lived.events)
    for user in (1, 2):
        assert lived.scenario.account(user).password not in text
        box = lived.driver.mailboxes[user]
        inbox = box.folder("INBOX")
        subjects = {box.header(inbox, uid).subject for uid in inbox.messages}
        assert subjects
        assert not any(subject in text for subject in subjects)


@pytest.mark.slow
def test_tasks_leave_no_reference_cycles(tmp_path: Path) -> None:
    """Hundreds of tasks leave nothing for the collector of cycles: it need not run while a server is measured."""
    found: list[int] = []

    async def during(engine: Engine, _: InMemoryDriver) -> None:
        await asyncio.sleep(20)
        gc.disable()
        gc.collect()
        done = engine.snapshot().done
        await asyncio.sleep(95)
        found.extend((gc.collect(), engine.snapshot().done - done))
        gc.enable()

    try:
        day = day_of(tmp_path, (EVERYTHING | {"inbox_limit": None}, 6), **LISTS)
        lived = live(day, tmp_path, during=during)
    finally:
        gc.enable()
    unreachable, tasks = found
    assert tasks > 300
    assert unreachable < tasks / 10
    assert lived.frozen == 0


def test_log_ons_follow_the_shape_of_the_ramp_up(tmp_path: Path) -> None:
    """A third of the users in the first half, two thirds in the second, evenly within each."""
    run = {"day_length": "60s", "ramp_up": "30s", "ramp_shape": [1, 2], "warm_up": "0s", "window": "60s"}
    lived = live(scenario_of(tmp_path, (quiet(), 90), run=run), tmp_path, service_s=0)
    on_s = [task["scheduled_ns"] / S for task in lived.tasks("LOGON")]
    assert on_s == pytest.approx([0.5 * at for at in range(30)] + [15 + 0.25 * at for at in range(60)], abs=1e-5)
