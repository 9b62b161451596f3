"""Activities: generators of steps, without a clock.

A step may start once the previous one has ended and its own delay has passed. The generator receives each task's
result, or None if the task failed. `pending` computes when steps are due.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from loadsim.model.mail_program import Calls
from loadsim.model.message_tag import RECEIPT
from loadsim.model.ports import Header, Structure
from loadsim.scenario import workload
from loadsim.scenario.profile import Outcomes
from loadsim.users import assistant_tasks, calendar_tasks, tasks
from loadsim.users.inbox import Unread
from loadsim.users.mail import UserMail
from loadsim.users.tasks import Read, Task

ANSWERS = {"reply": tasks.REPLY, "reply_all": tasks.REPLY_ALL, "forward": tasks.FORWARD}
FILED = {"move": tasks.MOVE, "copy": tasks.COPY, "delete": tasks.DELETE}
"""The tasks that may follow the reading of a message, by their names in profiles."""

TASKS = {**tasks.TASKS, **assistant_tasks.TASKS}
"""All tasks, by name."""


class Step(NamedTuple):
    """A task, its argument, and its delay after the previous step, in ms of the profile's day.

    `since_ns` is when the task became possible, on the run's clock; 0 if it always was.
    """

    task: Task
    about: Any
    delay_ms: float = 0.0
    since_ns: int = 0


Steps = Generator[Step, Any, None]


@dataclass(slots=True)
class UnderWay:
    """An activity that is pending or under way.

    `started_ns` is when its first task started, None until then. `outcome` is its first failed task's, or ok.
    """

    kind: str
    steps: Steps
    due_ns: int
    started_ns: int | None = None
    outcome: str = "ok"


def plan(user: UserMail, endless: bool) -> Iterator[UnderWay]:
    """Return the activities planned for a user, or for an assistant, in order of due time and ready to begin.

    If `endless`, they never run out.

    Take the first one after the common start, since due times count from it.
    """
    activities = user.workload.activities(user.number, endless=endless, kinds=user.does)
    return map(partial(_planned, user), activities)


def _planned(user: UserMail, activity: workload.Activity) -> UnderWay:
    return UnderWay(activity.kind, _steps(user, activity), user.host.start_ns + activity.due_us * 1000)


def _steps(user: UserMail, activity: workload.Activity) -> Steps:
    match activity.kind:
        case workload.NEW_MAIL:
            return _send(tasks.SEND, activity.number, user)
        case workload.PROCESS_INBOX:
            return process_inbox(user)
        case workload.BROWSE:
            return browse(user, activity.number)
        case workload.SEARCH:
            return search(user, activity.number)
        case workload.SCHEDULE:
            return only(Step(calendar_tasks.schedule_of(user), activity.number))
        case workload.POST:
            return only(Step(tasks.POST, activity.number))
        case workload.BROWSE_PUBLIC:
            return only(Step(tasks.BROWSE_PUBLIC, activity.number))
    if calls := user.group.calls.get(activity.kind):
        return call(user, calls, f"{activity.kind} {activity.number}")
    return only(Step(user.host.plugin_tasks[activity.kind], activity.number))


def only(step: Step) -> Steps:
    yield step


def _send(task: Task, about: Any, user: UserMail) -> Steps:
    """Submit a message, and save it. Recipients who are not those of another message are looked up while typed."""
    if user.directory is not None and task in (tasks.SEND, tasks.FORWARD):
        kind, name = (workload.NEW_MAIL, about) if task is tasks.SEND else ("forward", about.tag.id)
        to = user.workload.addressing(user.number, user.profile, kind, name)
        yield Step(tasks.RESOLVE, user.workload.addresses(to))
    outgoing = yield Step(task, about)
    if outgoing is not None and user.profile.new_mail.save_sent:
        yield Step(tasks.SAVE_SENT, outgoing)


def process_inbox(user: UserMail) -> Steps:
    """Read every unread message in the Inbox, and handle each as the profile says.

    Source: BORES 4.0: "reading new mail = opening the Inbox and reading every piece of new mail". Mail that arrives in
    the meantime is included. A message whose READ fails stays unread until the Inbox is next processed.
    """
    inbox = user.inbox
    if inbox.processing:
        return
    inbox.processing = True
    failed: list[Unread] = []
    delay_ms = 0.0
    try:
        while inbox.unread:
            unread = inbox.unread.pop(0)
            header = unread.header
            step = first_step(user, unread, delay_ms)
            structure = yield step
            if step.task is tasks.READ and structure is None:
                failed.append(unread)
            elif step.task is tasks.READ:
                yield from _after_reading(user, header, structure, tasks.AFTER_READING, user.profile.after_reading)
            delay_ms = user.read_note_delay_ms(header)
        inbox.unread.extend(failed)
        failed.clear()
        excess = inbox.excess()
        if excess:
            yield Step(tasks.EVICT, excess)
    finally:
        inbox.unread[:0] = failed
        inbox.processing = False


def first_step(user: UserMail, unread: Unread, delay_ms: float = 0.0) -> Step:
    """Return what the user does first with a new message: read it, or delete it unread."""
    tag, share = unread.header.tag, user.profile.process_inbox.delete_unread
    unwanted = share and tag is not None and user.workload.chance(user.number, "delete unread", tag.id, share)
    return Step(tasks.DELETE_UNREAD if unwanted else tasks.READ, unread.header, delay_ms, unread.since_ns)


def search(user: UserMail, index: int) -> Steps:
    """Search for a message in the Inbox; without one, there is nothing to do."""
    sought = user.sought(index)
    if sought is not None:
        yield Step(tasks.SEARCH, sought)


def call(user: UserMail, calls: Calls, name: str) -> Steps:
    """Search for messages in the Inbox, read some of them, and perhaps draft and send a reply to the first.

    Without a message in the Inbox, there is nothing to do.
    """
    load, pause_ms, delay_ms = user.workload, calls.pause_s * 1000, 0.0
    found: list[Header] = []
    for at in range(calls.searches):
        sought = user.sought(f"{name}/{at}")
        if sought is None:
            return
        if (yield Step(assistant_tasks.FIND, sought, delay_ms)):
            found.append(sought.header)
        delay_ms = pause_ms
    read: list[Read] = []
    for header in found[: calls.reads]:
        structure = yield Step(assistant_tasks.LOOK_AT, header, pause_ms)
        if structure is not None and header.tag is not None and not header.tag.id.startswith(RECEIPT):
            read.append(Read(header, header.tag, structure, name))
    if read and load.chance(user.number, "draft", name, calls.draft):
        outgoing = yield Step(assistant_tasks.DRAFT, read[0], pause_ms)
        if outgoing is not None and load.chance(user.number, "send draft", name, calls.send):
            yield Step(assistant_tasks.SEND_DRAFT, outgoing, pause_ms)


def browse(user: UserMail, index: int) -> Steps:
    """Browse a folder and read one of its messages, then do what the profile says in `after_browsing`."""
    shown = yield Step(tasks.BROWSE, index)
    if shown is not None:
        header, structure = shown
        try:
            yield from _after_reading(user, header, structure, f"after browsing {index}", user.profile.after_browsing)
        finally:
            user.stored.release(header)


def _after_reading(user: UserMail, header: Header, structure: Structure, stream: str, outcomes: Outcomes) -> Steps:
    tag = header.tag
    if tag is None or tag.id.startswith(RECEIPT):  # leave foreign mail alone, and receipts in the Inbox
        return
    load = user.workload
    is_new = stream == tasks.AFTER_READING and tag.run == user.run_id
    if is_new and load.returns_receipt(user.number, tag.sender, tag.id):
        yield Step(tasks.RETURN, Read(header, tag, structure))
    if structure.attachments and load.chance(user.number, "load", tag.id, user.profile.load_attachment):
        yield Step(tasks.LOAD_ATTACHMENT, (header, structure.attachments[0]))
    outcome = load.outcome(user.number, stream, outcomes, tag.id)
    if outcome in ANSWERS:
        yield from _send(ANSWERS[outcome], Read(header, tag, structure, stream), user)
    elif outcome in FILED:
        yield Step(FILED[outcome], header)
