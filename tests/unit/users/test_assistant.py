"""Assistants, users' programs that search, read and draft on their own, in virtual time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from audited_runs import audited
from virtual_runs import EVERYTHING, Lived, live, quiet, recipients, scenario_of

from loadsim.analysis.summary import summary_of
from loadsim.dryrun.plan import make_plan, to_json
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.mail_program import PER_VIEW
from loadsim.model.ports import ALL_TASKS, DRAFTS, INBOX, SENT_ITEMS, Account, Flag, Header, Observer, Session
from loadsim.model.terms import ASSISTANT_TASKS
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.in_memory import Fault, InMemoryDriver, InMemoryMailbox, InMemorySubmission
from loadsim.protocols.short_sessions import PerViewMailbox
from loadsim.scenario.scenario import Scenario

ASSISTANTS = 1000
"""The difference between the numbers of an assistant and its user, as faults and service times see them."""

SEARCH, READ, DRAFT, SEND = ASSISTANT_TASKS
CALLS = {"per_day": 20, "searches": 3, "reads": 2, "draft": "50%", "send": "50%", "pause": "2s"}
RESTS = quiet(start_state={"inbox": 10})
"""Users who leave their mail alone."""


@dataclass
class AssistantDriver:
    """Opens further sessions with the mailboxes of the in-memory mail system, one for each task."""

    inner: InMemoryDriver
    mailbox: type[InMemoryMailbox] = InMemoryMailbox
    name: str = "assistant"
    supported_tasks: frozenset[str] = ALL_TASKS
    mailboxes: dict[int, InMemoryMailbox] = field(default_factory=dict)

    def session(self, account: Account, observer: Observer) -> Session:
        first, mailbox = self.inner.mailboxes[account.number], self.mailbox(self.inner, account, observer)
        mailbox._inbox, mailbox._folders = first._inbox, first._folders
        mailbox.dialogue.user = account.number + ASSISTANTS
        self.mailboxes[account.number] = mailbox
        used = PerViewMailbox(mailbox)
        return Session(used, InMemorySubmission(mailbox.dialogue), MailboxCalendar(used), 30.0)


def scenario_with(
    place: Path, profile: dict[str, Any] = RESTS, limits: dict[str, Any] | None = None, **calls: Any
) -> Scenario:
    place.mkdir(exist_ok=True)
    program = {"name": "aid", "idle": False, "session": PER_VIEW, "calls": CALLS | calls}
    (place / "aid.yaml").write_text(yaml.safe_dump(program), encoding="utf-8")
    programs = ("outlook-like", str(place / "aid.yaml"))
    return scenario_of(place, (profile, 3), day="1200s", programs=programs, limits=limits or {})


def lived_by(
    place: Path, profile: dict[str, Any] = RESTS, calls: dict[str, Any] | None = None, **options: Any
) -> Lived:
    """A run of three users with an assistant each."""
    scenario = options.pop("scenario", None) or scenario_with(place, profile, **(calls or {}))
    mailbox = options.pop("mailbox", InMemoryMailbox)
    (group,) = scenario.topology

    def assistants(driver: InMemoryDriver) -> dict[str, dict[str, AssistantDriver]]:
        return {group.driver_name: {"call of aid": AssistantDriver(driver, mailbox)}}

    header = {"users": 3, "engine_users": 3}
    lived = live(scenario, place, assistants=assistants, header=header, **options)
    assert lived.failure is None, lived.failure
    return lived


def done(lived: Lived) -> Counter[str]:
    return Counter(task["task"] for task in lived.tape.tasks if task["outcome"] == "ok")


def commands(lived: Lived) -> Counter[str]:
    return Counter(command["command"] for command in lived.tape.commands)


def test_assistants_do_their_plan(tmp_path: Path) -> None:
    """The dry run and the engine agree, task by task; users do nothing else, and audit and log-off find all drafts."""
    lived = lived_by(tmp_path)
    made, plan = done(lived), make_plan(lived.scenario)
    assert [made[task] for task in ASSISTANT_TASKS] == [sum(plan.tally.tasks[task]) for task in ASSISTANT_TASKS]
    assert made[SEARCH] / 3 == made[READ] / 2 > 3 * 20 / 2
    assert made[READ] / 2 > made[DRAFT] > made[SEND] > 0
    assert to_json(plan)["per_user"]["sent"] * 3 == made[SEND]
    assert plan.digest != make_plan(scenario_of(tmp_path / "alone", (RESTS, 3), day="1200s")).digest
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    faults, totals = audited(lived, tmp_path)
    assert (faults, totals.unknown, totals.unjudged) == ([], 0, 0)
    assert not lived.mails("missing") and not lived.mails("unlisted")


def test_each_task_has_a_session_of_its_own(tmp_path: Path) -> None:
    """Sending has one for the copy in Sent Items."""
    lived = lived_by(tmp_path)
    made = commands(lived)
    sessions = sum(done(lived)[task] for task in ASSISTANT_TASKS)
    assert made["IMAP LOGOUT"] == made["IMAP AUTHENTICATE"] == sessions + 3
    assert made["IMAP UID SEARCH"] == done(lived)[SEARCH]
    begin = [task["commands"][:2] for task in lived.tasks() if task["task"] in (SEARCH, READ, DRAFT)]
    assert begin and {*map(tuple, begin)} == {("IMAP AUTHENTICATE", "IMAP CAPABILITY")}


def test_drafts_are_flagged_and_sent_as_they_are(tmp_path: Path) -> None:
    lived = lived_by(tmp_path)
    mailboxes = lived.driver.mailboxes.values()
    drafts = [message for mailbox in mailboxes for message in mailbox.folder(DRAFTS).messages.values()]
    assert {message.flags for message in drafts if message} == {frozenset((Flag.SEEN, Flag.DRAFT))}
    ids = {message.mail.tag.id for message in drafts if message and message.mail.tag}
    assert len(ids) == len(drafts) == done(lived)[DRAFT]
    sent = recipients(lived)
    assert sent and sent.keys() < ids
    assert all(len(reached) == 1 for reached in sent.values())
    saved = Counter(mail["folder"] for mail in lived.mails("saved"))
    assert saved == {DRAFTS: len(ids), SENT_ITEMS: len(sent)}
    inboxes = [mailbox.folder(INBOX).messages.values() for mailbox in mailboxes]
    flags = [message.flags for inbox in inboxes for message in inbox if message]
    assert not any(Flag.ANSWERED in each or Flag.SEEN in each for each in flags)  # users have read nothing


def test_users_work_as_without_assistants(tmp_path: Path) -> None:
    """Assistants that only draft: each instant of the users' tasks is the same, and scores have only these."""
    alone = live(scenario_of(tmp_path / "alone", (EVERYTHING, 3), day="1200s"), tmp_path / "alone", service_s=0.0)
    lived = lived_by(tmp_path, EVERYTHING, {"send": 0}, service_s=0.0)

    def essence(each: Lived) -> list[tuple[Any, ...]]:
        tasks = [task for task in each.tape.tasks if task["task"] not in (*ASSISTANT_TASKS, "LOGOFF")]
        return [
            (task["task"], task["user"], task["scheduled_ns"], task["started_ns"], task["outcome"]) for task in tasks
        ]

    assert essence(lived) == essence(alone)
    assert done(lived)[DRAFT] > 5
    scores = [summary_of(each.log).figures.score_ms for each in (alone, lived)]
    assert scores[0] == scores[1]
    assert scores[0] is not None


def test_users_may_move_what_their_assistant_reads(tmp_path: Path) -> None:
    """It is neither a failure nor missing mail."""
    moving = {"after_reading": {"move": "30%", "delete": "50%"}}
    lived = lived_by(tmp_path, EVERYTHING | moving, {"per_day": 200, "pause": "60s"})
    read = lived.tasks(READ)
    gone = [task for task in read if task["outcome"] == "ok" and task["commands"].count("IMAP UID FETCH") == 0]
    assert gone and len(read) > len(gone) + 100
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    assert not lived.mails("missing")
    assert audited(lived, tmp_path)[0] == []


def assistants_fault(command: str, failure: TaskFailed, most: int = 10**9) -> Fault:
    """Fail these commands of all assistants, but only `most` of each."""
    left = Counter[int]()

    def fault(user: int, name: str, _: int) -> Exception | None:
        if user <= ASSISTANTS or name != command or left[user] == most:
            return None
        left[user] += 1
        return failure

    return fault


def test_a_refused_log_on_fails_one_task(tmp_path: Path) -> None:
    """As at a limit of connections: the assistant tries again at its next task, and users notice nothing."""
    refusal = ServerRefused("NO AUTHENTICATE", "NO [LIMIT] too many connections")
    lived = lived_by(tmp_path, EVERYTHING, fault=assistants_fault("IMAP AUTHENTICATE", refusal))
    searches = lived.tasks(SEARCH)
    assert len(searches) > 80
    assert {(task["outcome"], task["error"]) for task in searches} == {("refused", "NO AUTHENTICATE")}
    assert not any(done(lived)[task] for task in ASSISTANT_TASKS)
    assert not lived.tasks(READ)
    others = [task for task in lived.tape.tasks if task["task"] not in ASSISTANT_TASKS]
    assert {task["outcome"] for task in others} == {"ok"}
    assert lived.engine.counts.sessions_lost == 0
    some = lived_by(tmp_path / "some", fault=assistants_fault("IMAP AUTHENTICATE", refusal, 2))
    outcomes = [task["outcome"] for task in some.tasks(SEARCH, user=1)]
    assert outcomes[:2] == ["refused"] * 2 and {*outcomes[2:]} == {"ok"}


@pytest.mark.parametrize("failure", [ServerLost("reset"), ServerSilent("no answer")])
def test_a_lost_session_fails_one_task(tmp_path: Path, failure: TaskFailed) -> None:
    lived = lived_by(tmp_path, fault=assistants_fault("IMAP APPEND", failure, 1))
    assert Counter(lived.outcomes(DRAFT))[failure.outcome] == 3
    assert Counter(lived.outcomes(DRAFT))["ok"] > 3
    assert {*lived.outcomes(SEARCH), *lived.outcomes(READ)} == {"ok"}
    assert lived.mails("unsure")
    assert audited(lived, tmp_path)[0] == []


def test_a_run_that_ends_cuts_tasks_off(tmp_path: Path) -> None:
    """A server that never answers: the task is unfinished, and those after it are skipped."""
    limits = {"grace": "1s", "drain": "1s", "command": "2000s"}
    scenario = scenario_with(tmp_path, limits=limits)
    lived = lived_by(
        tmp_path, scenario=scenario, fault=assistants_fault("IMAP UID SEARCH", ServerSilent("")), limit_s=2000.0
    )
    assert lived.outcomes(SEARCH).count("unfinished") == 3
    assert Counter(lived.outcomes(SEARCH))["skipped"] > 100
    assert {task["moved_bytes"] for task in lived.tasks() if task["outcome"] == "skipped"} == {0}
    assert lived.outcomes("LOGOFF") == ["ok"] * 3


class Forgets(InMemoryMailbox):
    """A mailbox that stores no drafts."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Any:
        ref = await super().append(folder, message, flags)
        if folder == DRAFTS:
            self.folder(DRAFTS).messages.clear()
        return ref


def test_lost_drafts_are_missing(tmp_path: Path) -> None:
    """The user's log-off lists Drafts, and so does an audit."""
    lived = lived_by(tmp_path, mailbox=Forgets)
    missing = [mail["folder"] for mail in lived.mails("missing")]
    assert missing == [DRAFTS] * done(lived)[DRAFT]
    assert Counter(fault.folder for _, fault in audited(lived, tmp_path)[0]) == {DRAFTS: done(lived)[DRAFT]}


class FindsNothing(InMemoryMailbox):
    """A mailbox whose searches find nothing."""

    async def search(self, *sought: Any) -> Sequence[Header]:
        await super().search(*sought)
        return ()


def test_a_search_without_its_message_is_refused(tmp_path: Path) -> None:
    lived = lived_by(tmp_path, mailbox=FindsNothing)
    assert {task["error"] for task in lived.tasks(SEARCH)} == {"SEARCH does not find a message"}
    assert not lived.tasks(READ)


def test_mail_of_others_is_left_alone(tmp_path: Path) -> None:
    """An Inbox with nothing but mail of others has nothing to search for."""
    lived = lived_by(tmp_path, quiet(start_state={"inbox": 0}))
    assert not any(task["task"] in ASSISTANT_TASKS for task in lived.tape.tasks)
