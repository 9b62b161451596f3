"""What follows from what: each activity of a user as a generator of steps, with no clock in sight.

A step may begin when the one before it has ended, plus its own delay; the generator is sent what the task returned, or
None when it failed. `pending` says when it is due.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from loadsim.model import workload
from loadsim.model.ports import Header, Structure
from loadsim.model.profile import Outcomes
from loadsim.users import tasks
from loadsim.users.inbox import Unread
from loadsim.users.tasks import Read, Task

if TYPE_CHECKING:
    from loadsim.users.user import User


class Step(NamedTuple):
    """A task to be done, what it is about, and how long (ms of the profile's day) to wait after the last step.

    `since_ns` is the instant since when it could be done at all, on the run's clock; 0: always.
    """

    task: Task
    about: Any
    delay_ms: float = 0.0
    since_ns: int = 0


Steps = Generator[Step, Any, None]


@dataclass(slots=True)
class UnderWay:
    """A planned activity that has come on the agenda.

    `started_ns` is when its first task began, None before; `outcome` that of the first of its tasks that failed.
    """

    kind: str
    steps: Steps
    due_ns: int
    started_ns: int | None = None
    outcome: str = "ok"


def begin(user: User, activity: workload.Activity, due_ns: int) -> UnderWay:
    """Take up a planned activity, which is due at this instant."""
    return UnderWay(activity.kind, _steps(user, activity), due_ns)


def _steps(user: User, activity: workload.Activity) -> Steps:
    match activity.kind:
        case workload.NEW_MAIL:
            return _send(tasks.SEND, activity.number, user)
        case workload.PROCESS_INBOX:
            return process_inbox(user)
        case workload.BROWSE:
            return browse(user, activity.number)
        case workload.SCHEDULE:
            return only(Step(tasks.SCHEDULE, activity.number))
    raise ValueError(activity.kind)


def only(step: Step) -> Steps:
    """An activity of one step."""
    yield step


def _send(task: Task, about: Any, user: User) -> Steps:
    outgoing = yield Step(task, about)
    if outgoing is not None and user.profile.new_mail.save_sent:
        yield Step(tasks.SAVE_SENT, outgoing)


def process_inbox(user: User) -> Steps:
    """Read every unread message of the Inbox, and do with each what the profile says.

    Source: BORES 4.0: "reading new mail = opening the Inbox and reading every piece of new mail". What arrives
    meanwhile is read too. A message that could not be read waits for the next time.
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
            structure = yield Step(tasks.READ, header, delay_ms, unread.since_ns)
            if structure is None:
                failed.append(unread)
            else:
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


def browse(user: User, index: int) -> Steps:
    """Look into a folder and read one message of it; what follows is a row of the profile of its own."""
    shown = yield Step(tasks.BROWSE, index)
    if shown is not None:
        header, structure = shown
        yield from _after_reading(user, header, structure, f"after browsing {index}", user.profile.after_browsing)


def _after_reading(user: User, header: Header, structure: Structure, stream: str, outcomes: Outcomes) -> Steps:
    evidence = header.evidence
    if evidence is None:  # not ours to act upon
        return
    load = user.workload
    if structure.attachments and load.chance(user.number, "load", evidence.id, user.profile.load_attachment):
        yield Step(tasks.LOAD_ATTACHMENT, (header, structure.attachments[0]))
    match load.outcome(user.number, stream, outcomes, evidence.id):
        case "reply":
            yield from _send(tasks.REPLY, Read(header, evidence, structure, stream), user)
        case "reply_all":
            yield from _send(tasks.REPLY_ALL, Read(header, evidence, structure, stream), user)
        case "forward":
            yield from _send(tasks.FORWARD, Read(header, evidence, structure, stream), user)
        case "move":
            yield Step(tasks.MOVE, header)
        case "copy":
            yield Step(tasks.COPY, header)
        case "delete":
            yield Step(tasks.DELETE, header)
