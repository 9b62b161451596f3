"""A user in a plan: does each step at the instant when it is due, on a mailbox in memory.

The activities and tasks are those of a run (`users.activities`, `users.tasks`). A plan leaves out what a run needs
because time passes and servers fail: waiting, lateness, sessions, and comparing stored mail with lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from loadsim.errors import TaskFailed
from loadsim.model.ports import INBOX, Account, Driver, DriverOfSenders, Recorder
from loadsim.model.records import NO_CLOCK
from loadsim.model.terms import INJECT
from loadsim.protocols.lines import NO_LINES
from loadsim.users import tasks
from loadsim.users.activities import Step, UnderWay
from loadsim.users.host import Host
from loadsim.users.mail import UserMail
from loadsim.users.outbox import Outbox
from loadsim.users.pending import Ended, PendingActivities
from loadsim.users.session_state import ON_TIME
from loadsim.users.stored_mail import StoredMail
from loadsim.users.tasks import Task

_UNGUARDED: Any = nullcontext()


class PlannedStorage(StoredMail):
    """Stored mail that is not compared with lists: it knows only which folders to list at log-off."""

    def __init__(self, number: int, start: Callable[[int], Mapping[str, int]] | None) -> None:
        super().__init__(number, start, lambda *_: None)
        self._put: dict[str, None] = {}

    @property
    def unlooked(self) -> Sequence[str]:
        return [*self._put]

    def put(self, folder: str, *_: object) -> None:
        if self.is_known and folder != INBOX:
            self._put[folder] = None

    def look(self, name: str, *_: object) -> None:
        self._put.pop(name, None)

    def holds(self, name: str) -> bool:
        """Return False: an empty folder has lost nothing."""
        return False

    def tries(self, *_: object) -> None:
        pass

    def leaves(self, _: object) -> None:
        pass


class PlannedMail(UserMail):
    """A user's mail in a plan, which records only accepted messages."""

    def __init__(self, host: Host, account: Account, driver: Driver, user: PlannedUser) -> None:
        super().__init__(host, account, driver, user, lambda _: None)
        self.stored = PlannedStorage(self.number, self.stored._start)

    def _record(self, event: str, message_id: str, user: int, sender: int, folder: str, at_ns: int) -> None:
        if event == "accepted":
            self._recorder.mail((event, message_id, user, sender, at_ns, folder))

    def _take_in(self, *_: object) -> None:
        pass

    def record_received(self, *_: object) -> None:
        pass

    def does(self, _: str) -> bool:
        """Return True: a plan has no other session for assistants' calls."""
        return True

    def must_be_whole(self, _: object) -> Any:
        return _UNGUARDED

    def unless_sure(self, *_: object, **__: object) -> Any:
        return _UNGUARDED

    def unless_stored(self, *_: object) -> Any:
        return _UNGUARDED

    def unless_submitted(self, *_: object) -> Any:
        return _UNGUARDED


class Instant:
    """A plan's clock (`ports.Clock`), set by hand: nanoseconds since the common start, negative before it."""

    ns = -1

    def now_ns(self) -> int:
        return self.ns


class PlannedUser:
    """A user, who also observes their mailbox (`ports.Observer`) and logs their activities (`pending.ActivityLog`)."""

    lines = NO_LINES
    answered_ns = 0

    def __init__(self, host: Host, now: Instant, account: Account, driver: Driver) -> None:
        self.number = account.number
        self.now = now.now_ns
        self._now = now
        self._recorder = host.recorder
        self._mail = PlannedMail(host, account, driver, self)
        self._pending = PendingActivities(self._mail, self)

    def command(
        self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: object, **__: object
    ) -> None:
        self._recorder.command((name, self.number, since, since, outcome, sent_bytes, received_bytes))

    def arrived(self, messages: int, *_: object, **__: object) -> None:
        self._mail.inbox.announce(messages, self.now())

    def lost(self, failure: Exception) -> None:
        raise failure

    def skipped(self, step: Step, due_ns: int) -> None:
        _record(self._recorder, step.task.name, self.number, due_ns, "skipped")

    def activity_done(self, activity: UnderWay, ended_ns: int | None) -> None:
        pass

    def log_on(self) -> None:
        self._perform(tasks.LOGON)
        self._mail.was_on = True
        if self._mail.first_sync is not None:
            _record(self._recorder, tasks.FIRST_SYNC.name, self.number, self._now.ns, "ok")

    def begin_day(self) -> None:
        self._pending.plan()
        self._pending.begin()

    def work(self, until_ns: int) -> int | None:
        """Do all steps that are due before an instant, and watch the Inbox in between. Return when the next is due."""
        pending = self._pending
        while (at_ns := pending.next_ns) is not None and at_ns < until_ns:
            self._now.ns = at_ns
            upcoming = pending.take()
            if upcoming.step is None:
                pending.done()
            else:
                result, outcome = self._perform(upcoming.step.task, upcoming.step.about, upcoming.due_ns)
                pending.go_on(upcoming, result, Ended(at_ns, outcome, ON_TIME, talked=True))
            if not self._mail.watching and pending.next_ns != at_ns:
                at_once(self._mail.watch())
        return pending.next_ns

    def list_new(self) -> None:
        """List the messages that have just arrived."""
        self._perform(tasks.SYNC, False)

    def log_off(self) -> None:
        self._perform(tasks.LOGOFF)

    def _perform(self, task: Task, about: Any = None, due_ns: int | None = None) -> tuple[Any, str]:
        """Perform a task that was due at this instant (None: now). Return its result and its outcome."""
        mail, due_ns = self._mail, self._now.ns if due_ns is None else due_ns
        mail.watching = False
        result, outcome, error = None, "ok", ""
        try:
            if task.fetch is not None:
                about = at_once(task.fetch(mail, about))
            if task.compose is not None:
                about = task.compose(mail, about)
            result = at_once(task.act(mail, about))
        except TaskFailed as failure:
            outcome, error = failure.outcome, failure.kind
        mail.shown.clear()
        _record(self._recorder, task.name, self.number, due_ns, outcome, error)
        return result, outcome


class PlannedSender:
    """An outside sender, who also observes their submission (`ports.Observer`)."""

    lines = NO_LINES

    def __init__(self, host: Host, now: Instant, number: int, driver: DriverOfSenders) -> None:
        self.number = number
        self.now = now.now_ns
        self._now = now
        self._recorder = host.recorder
        self._outbox = Outbox(host, number, driver.outside(host.workload.scenario.sender_account(number), self))
        self._plan = host.workload.activities(number)
        self._next = next(self._plan, None)

    def command(
        self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: object, **__: object
    ) -> None:
        self._recorder.command((name, self.number, since, since, outcome, sent_bytes, received_bytes))

    def arrived(self, *_: object, **__: object) -> None:
        pass

    def lost(self, failure: Exception) -> None:
        raise failure

    def work(self, until_ns: int) -> int | None:
        """Submit all messages that are due before an instant. Return when the next is due."""
        while self._next is not None and (due_ns := self._next.due_us * 1000) < until_ns:
            self._now.ns = due_ns
            outgoing = self._outbox.compose(self._next.number)
            at_once(self._outbox.submit(outgoing))
            self._outbox.accepted(outgoing, due_ns)
            _record(self._recorder, INJECT, self.number, due_ns, "ok")
            self._next = next(self._plan, None)
        return None if self._next is None else self._next.due_us * 1000


def _record(recorder: Recorder, task: str, number: int, due_ns: int, outcome: str, error: str = "") -> None:
    late_s = 0.0, 0.0, 0.0, 0.0, 0.0
    recorder.task((task, number, "", "", due_ns, None, None, *late_s, outcome, error, 0, NO_CLOCK))


def at_once(call: Any) -> Any:
    """Run a coroutine, which waits for nothing but its next turn. Return its result."""
    while True:
        try:
            call.send(None)
        except StopIteration as ended:
            return ended.value
