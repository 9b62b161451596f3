"""Companions, users' further mail programs, in virtual time."""

import asyncio
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from virtual_runs import EVERYTHING, During, Lived, live, quiet, scenario_of

from loadsim.engine.engine import Engine
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import ALL_TASKS, INBOX, Account, Observer, Session
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox
from loadsim.protocols.in_memory_mail import MailInMemory
from loadsim.protocols.short_sessions import PerViewMailbox
from loadsim.users.companion import COMPANION
from loadsim.users.host import CompanionCounts

COMPANIONS = 1000
"""The difference between the numbers of a companion and its user, as faults and service times see them."""

DAY_S = 300
POLL_S = 20.0
SENDS = quiet(new_mail={"per_day": 15, "recipients": 1}, process_inbox={"per_day": 8}, browse={"per_day": 4})
LIVELY = EVERYTHING | {"new_mail": {**EVERYTHING["new_mail"], "per_day": 30}, "process_inbox": {"per_day": 30}}
"""Half of all that users can do, for half of the time."""

NOTHING_MOVED = LIVELY | {"after_reading": {**EVERYTHING["after_reading"], "move": 0, "delete": 0}, "inbox_limit": None}
"""The in-memory system has no answer to a list of which a message leaves the folder meanwhile."""


@dataclass
class CompanionDriver:
    """Opens further sessions with the mailboxes of the in-memory mail system; with `poll_s`, one per view."""

    inner: InMemoryDriver
    poll_s: float | None = None
    stale: bool = False  # shows no new mail
    name: str = "companion"
    supported_tasks: frozenset[str] = ALL_TASKS
    mailboxes: dict[int, InMemoryMailbox] = field(default_factory=dict)

    def session(self, account: Account, observer: Observer) -> Session:
        first, mailbox = self.inner.mailboxes[account.number], InMemoryMailbox(self.inner, account, observer)
        mailbox._inbox, mailbox._folders = first._inbox, first._folders
        if self.stale:
            mailbox._inbox = deepcopy(first._inbox)
            mailbox._folders = {**first._folders, INBOX: mailbox._inbox}
        mailbox.dialogue.user += COMPANIONS
        receive = first.receive

        def both(mail: MailInMemory) -> None:
            receive(mail)
            if mailbox._open == INBOX:
                mailbox._announce()

        first.receive = both  # type: ignore[method-assign]
        self.mailboxes[account.number] = mailbox
        used = PerViewMailbox(mailbox) if self.poll_s else mailbox
        return Session(used, None, MailboxCalendar(used), self.poll_s)  # type: ignore[arg-type]


def lived_by(place: Path, profile: dict[str, Any] = SENDS, poll_s: float | None = None, **options: Any) -> Lived:
    """A run of three users with a companion each, whose driver is appended to `opened`."""
    opened: list[CompanionDriver] = options.pop("opened", [])
    stale = options.pop("stale", False)

    def companions(driver: InMemoryDriver) -> dict[str, list[CompanionDriver]]:
        opened.append(CompanionDriver(driver, poll_s, stale))
        return {"fake": opened}

    lived = live(scenario_of(place, (profile, 3), day=f"{DAY_S}s"), place, companions=companions, **options)
    assert lived.failure is None, lived.failure
    return lived


@pytest.mark.parametrize("poll_s", [None, POLL_S])
def test_mail_unseen_by_a_companion_is_missing(tmp_path: Path, poll_s: float | None) -> None:
    """In a session that is kept, and in one for each look."""
    assert not lived_by(tmp_path, poll_s=poll_s).mails("missing")
    lived = lived_by(tmp_path, poll_s=poll_s, stale=True)
    assert len(lived.mails("missing")) == len(lived.mails("seen")) + len(lived.mails("found")) > 20


def counts(lived: Lived) -> CompanionCounts:
    """The engine's counts of companions, which are also in the log."""
    found = lived.engine.counts.companions
    (source,) = lived.log.sources
    assert source.facts.companions.log_ons == found.log_ons
    return found


def essence(lived: Lived) -> list[tuple[Any, ...]]:
    """All that tasks measure, without absolute instants."""
    start_ns = lived.engine.start_ns
    return [
        (
            *(task[key] for key in ("task", "user", "outcome", "late_busy_s", "late_down_s", "late_generator_s")),
            *(task[key] and task[key] - start_ns for key in ("scheduled_ns", "started_ns", "ended_ns")),
        )
        for task in lived.tape.tasks
        if task["task"] != "LOGON"
    ]


def failing(outcome: TaskFailed, command: str, times: int = 1) -> During:
    """Fail the first commands of this name that user 1's companion sends after the common start."""

    async def begin(engine: Engine, driver: InMemoryDriver) -> None:
        left = times

        def fault(user: int, name: str, _: int) -> Exception | None:
            nonlocal left
            started = engine.start_ns and engine.now_ns() > engine.start_ns + 10**9
            if left and started and (user, name) == (1 + COMPANIONS, command):
                left -= 1
                return outcome
            return None

        driver.fault = fault
        await asyncio.Event().wait()

    return begin


@pytest.mark.slow
@pytest.mark.parametrize(("poll_s", "profile"), [(None, LIVELY), (POLL_S, NOTHING_MOVED)])
def test_tasks_and_delivery_are_those_of_users_without_companions(
    tmp_path: Path, poll_s: float | None, profile: dict[str, Any]
) -> None:
    """The in-memory server does not slow down, so each number is the same; only commands are more."""
    alone = live(scenario_of(tmp_path / "alone", (profile, 3), day=f"{DAY_S}s"), tmp_path / "alone")
    lived = lived_by(tmp_path, profile, poll_s)
    assert essence(lived) == essence(alone)
    # Messages name the instant at which they were sent, which may be longer by a digit: companions log on before.
    each = zip(lived.tape.tasks[3:], alone.tape.tasks[3:], strict=True)
    assert max(abs(one["moved_bytes"] - other["moved_bytes"]) for one, other in each) <= 1

    def mails(one: Lived) -> list[tuple[Any, ...]]:
        start_ns = one.engine.start_ns
        return [(mail["event"], mail["message"], mail["user"], mail["at_ns"] - start_ns) for mail in one.tape.mails]

    assert mails(lived) == mails(alone)
    assert len(lived.tape.commands) > len(alone.tape.commands) + 3 * 5
    assert (lived.engine.counts.sessions_lost, lived.snapshots[-1].failures) == (0, {})


def test_a_companion_lists_all_new_mail(tmp_path: Path) -> None:
    """It does so once, as soon as the mail is announced."""
    lived = lived_by(tmp_path, quiet(new_mail={"per_day": 30, "recipients": 1}))
    found = counts(lived)
    assert found.listed == len(lived.mails("seen")) > 30
    assert (found.tried, found.log_ons, found.log_ons_failed, found.failures, found.looks) == (3, 3, 0, 0, 0)
    assert found.planned_ns == 3 * DAY_S * 10**9
    assert found.down_ns == 0
    made = Counter(command["command"] for command in lived.tape.commands)
    assert made["IMAP LOGOUT"] == made["IMAP AUTHENTICATE"] == 6


def test_a_companion_that_polls_has_a_session_for_each_look(tmp_path: Path) -> None:
    """Looks come an interval apart, each at an instant of its own, and list what has come."""
    lived = lived_by(tmp_path, quiet(new_mail={"per_day": 30, "recipients": 1}), POLL_S)
    found = counts(lived)
    made = Counter(command["command"] for command in lived.tape.commands)
    assert made["IMAP LOGOUT"] == made["IMAP AUTHENTICATE"] == found.log_ons + 3
    assert found.log_ons == found.looks + 2 * 3  # the first one, and the last
    assert 3 * DAY_S / POLL_S - 3 <= found.looks <= 3 * DAY_S / POLL_S + 6  # and in the drain
    assert len(lived.mails("seen")) - 3 * POLL_S < found.listed <= len(lived.mails("seen"))
    *begun, _, _, _ = [
        command["started_ns"]
        for command in lived.tape.commands
        if command["command"] == "IMAP AUTHENTICATE" and command["started_ns"] > lived.engine.start_ns
    ]
    assert len({round(at_ns * 1e-9 % POLL_S, 1) for at_ns in begun}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("failure", [ServerLost("gone"), ServerSilent("gone")])
@pytest.mark.parametrize("poll_s", [None, POLL_S])
def test_a_lost_session_is_counted_once_and_restored(tmp_path: Path, failure: TaskFailed, poll_s: float | None) -> None:
    """It is a lost session and a failure, and in no task."""
    lived = lived_by(tmp_path, poll_s=poll_s, during=failing(failure, "IMAP UID FETCH"))
    found = counts(lived)
    assert (found.sessions_lost, found.failures, found.log_ons_failed) == (1, 1, 0)
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (1, 1)
    assert lived.snapshots[-1].failures == {COMPANION: {"gone": 1}}
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    silent_s = 60 if isinstance(failure, ServerSilent) else 0
    assert silent_s < found.down_ns * 1e-9 < silent_s + POLL_S + 1
    (event,) = lived.said("failures")
    assert (event["task"], event["times"]) == (COMPANION, 1)


def test_a_session_that_breaks_between_commands_is_counted_once(tmp_path: Path) -> None:
    """The observer gets the loss; the mail that came meanwhile is listed after the next log-on."""
    opened: list[CompanionDriver] = []

    async def break_off(engine: Engine, driver: InMemoryDriver) -> None:
        await asyncio.sleep(100)
        opened[0].mailboxes[1].break_off(ServerLost("BYE"))
        await asyncio.Event().wait()

    lived = lived_by(tmp_path, quiet(new_mail={"per_day": 30, "recipients": 1}), opened=opened, during=break_off)
    found = counts(lived)
    assert (found.sessions_lost, found.failures, found.log_ons) == (1, 1, 4)
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (1, 1)
    assert found.listed == len(lived.mails("seen"))
    assert len(lived.tasks("LOGON")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("poll_s", [None, POLL_S])
def test_companions_whose_log_ons_are_refused_do_not_change_the_users_work(
    tmp_path: Path, poll_s: float | None
) -> None:
    """Each refused log-on is counted, the start does not wait for them, and all their time is without service."""

    def fault(user: int, name: str, _: int) -> Exception | None:
        return ServerRefused("NO too many connections") if user > COMPANIONS and name == "IMAP AUTHENTICATE" else None

    lived = lived_by(tmp_path, poll_s=poll_s, fault=fault)
    alone = live(scenario_of(tmp_path / "alone", (SENDS, 3), day=f"{DAY_S}s"), tmp_path / "alone")
    found = counts(lived)
    assert found.log_ons == found.log_ons_failed == found.failures > 3 * 5
    assert found.down_ns == found.planned_ns == 3 * DAY_S * 10**9
    assert (found.sessions_lost, found.listed) == (0, 0)
    assert lived.engine.start_ns - alone.engine.start_ns < 10**9
    assert essence(lived) == essence(alone)


def test_an_internal_error_is_no_failure_of_the_server(tmp_path: Path) -> None:
    """It counts as the generator's, and makes the run invalid."""

    def fault(user: int, name: str, number: int) -> Exception | None:
        return ValueError("ours") if (user, name, number) == (1 + COMPANIONS, "IMAP LIST", 2) else None

    lived = lived_by(tmp_path, fault=fault)
    found = counts(lived)
    assert (found.failures, found.log_ons_failed, found.sessions_lost) == (0, 0, 0)
    assert list(lived.tape.told["own_faults"]) == ["internal error: ValueError"]


@pytest.mark.slow
@pytest.mark.parametrize("poll_s", [None, 1.0])
def test_a_silent_server_does_not_delay_the_runs_end(tmp_path: Path, poll_s: float | None) -> None:
    """The companions' log-offs have the limit of the users', and none is left."""

    def pace(user: int, _: str, begin_ns: int, drawn_s: float) -> float:
        return float("inf") if user > COMPANIONS and begin_ns > DAY_S // 2 * 10**9 else drawn_s

    async def fall_silent(engine: Engine, driver: InMemoryDriver) -> None:
        driver.pace = pace
        await asyncio.Event().wait()

    lived = lived_by(tmp_path, poll_s=poll_s, during=fall_silent, limit_s=1e4)
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    assert lived.engine.now_ns() - lived.engine.start_ns < (DAY_S + 60) * 10**9
    assert 0.4 < counts(lived).down_ns / counts(lived).planned_ns < 0.6  # though no call has failed


@pytest.mark.parametrize("at_s", [0.5, 50.0])
def test_a_stopped_run_ends_companions_too(tmp_path: Path, at_s: float) -> None:
    """During the ramp-up, and at work: all that are on log off."""

    async def stop(engine: Engine, driver: InMemoryDriver) -> None:
        await asyncio.sleep(at_s)
        engine.stop()
        await asyncio.Event().wait()

    lived = lived_by(tmp_path, quiet(), during=stop)
    made = Counter(command["command"] for command in lived.tape.commands)
    assert made["IMAP LOGOUT"] == made["IMAP AUTHENTICATE"]
    assert lived.engine.now_ns() * 1e-9 < at_s + 5


@pytest.mark.slow
def test_every_failure_is_counted_once(tmp_path: Path) -> None:
    """Companions' commands fail all over the run: refused, lost and silent ones."""
    failed: Counter[str] = Counter()
    given = 0

    def fault(user: int, name: str, _: int) -> Exception | None:
        nonlocal given
        if user <= COMPANIONS:
            return None
        given += 1
        kinds = {31: ServerLost("gone"), 7: ServerRefused("no"), 13: ServerSilent("silent")}
        failure = next((failure for every, failure in kinds.items() if given % every == 0), None)
        if failure is not None:
            failed[failure.kind] += 1
        return failure

    for poll_s in (None, 5.0):
        failed.clear()
        lived = lived_by(tmp_path, poll_s=poll_s, fault=fault, limit_s=2.0)
        found = counts(lived)
        assert lived.snapshots[-1].failures == {COMPANION: dict(failed)}
        assert found.failures == sum(failed.values()) > 20
        assert found.sessions_lost + found.log_ons_failed >= failed["gone"] + failed["silent"]
        assert found.sessions_lost == lived.engine.counts.sessions_lost
        assert 0 < found.down_ns < found.planned_ns
        assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
