"""A user's pending activities in order of due time, each done one step at a time.

`PendingActivities` is the open model: due times are absolute, and a slow server does not move them. `ClosedLoop` is
stress mode: the plan's next activity is due when all steps of the previous one are done.

Both have `next_ns`, the instant of the next step, or None. The caller takes the step, and then calls `go_on`, or `done`
if the step is None because the activity had nothing to do. `opens_inbox` is true if the next step starts processing the
Inbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from loadsim.scenario.workload import PROCESS_INBOX
from loadsim.users.activities import Step, Steps, UnderWay, first_step
from loadsim.users.inbox import Unread
from loadsim.users.mail import UserMail
from loadsim.users.session_state import ON_TIME, Late

PAUSE_AFTER = 16
PAUSE_NS = 100_000_000
"""In a closed loop, users pause after this many consecutive activities that sent no command to the server.

New mail ends the pause. Without pauses, the loop would spin.
"""

UNPLANNED: Iterator[UnderWay] = iter(())
"""A placeholder until the plan is made."""


class PendingActivity(NamedTuple):
    """A step waiting to be done.

    It was due at `due_ns` and may start at `ready_ns`; `late_ns` is the difference by cause. If several steps are ready
    at the same instant, the lowest `order` goes first. `step` is None until the activity begins.
    """

    ready_ns: int
    order: int
    due_ns: int
    activity: UnderWay
    step: Step | None
    late_ns: Late


class Ended(NamedTuple):
    """The end of a step: instant, outcome, lateness by cause, and whether the server received a command."""

    at_ns: int
    outcome: str
    late_ns: Late
    talked: bool


class ActivityLog(Protocol):
    """Records steps and activities; users implement it."""

    def skipped(self, step: Step, due_ns: int) -> None:
        """Record a step that was left undone at the end of the run."""

    def activity_done(self, activity: UnderWay, ended_ns: int | None) -> None:
        """Record an activity; `ended_ns` is None if it did not finish."""


class PendingActivities:
    """The open model: users do steps when they are due, or as soon afterwards as they can.

    Steps are due as if earlier ones had taken no time: at the activity's due time plus the delays in between. So
    lateness includes all waiting. A step may start once the previous one has ended and its own delay has passed. A
    message is not due to be read before it is visible.
    """

    def __init__(self, user: UserMail, log: ActivityLog) -> None:
        self.next_ns: int | None = None
        self._user = user
        self._log = log
        self._plan = UNPLANNED  # activities that are not pending yet
        self._pending: list[PendingActivity] = []
        self._begun = 0  # activities and steps so far: if several are ready, the earliest goes first
        self._end_ns: int | None = None  # the end of the run, once reached
        self._processing_ns = -1  # when the Inbox was last due to be processed

    def plan(self) -> None:
        self._plan = self._user.host.plan(self._user, False)

    def begin(self) -> None:
        """Begin the plan; its due times count from the common start."""
        self._plan_next()

    @property
    def opens_inbox(self) -> bool:
        return bool(self._pending) and _opens_inbox(self._pending[0])

    def take(self) -> PendingActivity:
        """Remove and return the next step. When an activity begins, the plan's next one becomes pending."""
        pending = heappop(self._pending)
        if pending.step is None:
            step = self._take_up(pending.activity)
            due_ns = max(pending.due_ns, step.since_ns if step else 0)
            pending = PendingActivity(due_ns, pending.order, due_ns, pending.activity, step, pending.late_ns)
        self.next_ns = self._pending[0].ready_ns if self._pending else None
        return pending

    def go_on(self, pending: PendingActivity, result: Any, ended: Ended) -> None:
        """Add the next step or, after the end of the run, record it as skipped."""
        activity = pending.activity
        if ended.outcome != "ok" and activity.outcome == "ok":
            activity.outcome = ended.outcome
        following = step_after(activity.steps, result)
        if following is None:
            self._log.activity_done(activity, ended.at_ns)
            return
        delay_ns = self._delay_ns(following)
        due_ns = max(pending.due_ns + delay_ns, following.since_ns)
        if self._end_ns is not None:
            self._skip(activity, due_ns, following, self._end_ns)
            return
        ready_ns = max(ended.at_ns + delay_ns, due_ns)
        self._put(ready_ns, due_ns, activity, following, _within(ended.late_ns, ready_ns - due_ns))

    def done(self) -> None:
        """Do nothing: the next activity is already pending."""

    def mail_shown(self, at_ns: int) -> None:
        """Do nothing: new mail does not move due times."""

    def shown(self, unread: Sequence[Unread]) -> None:
        """For messages listed after the end that were due to be read by then, record their first steps as skipped."""
        for message in unread if self._end_ns is not None else ():
            if message.since_ns <= self._processing_ns:
                self._log.skipped(first_step(self._user, message), self._processing_ns)

    def end(self, end_ns: int) -> None:
        """Record pending steps as skipped, and also the steps that would follow them if each failed."""
        self._end_ns = end_ns
        while self._pending:
            _, _, due_ns, activity, step, _ = heappop(self._pending)
            if step is None and due_ns < end_ns:
                step = self._take_up(activity)
                due_ns = max(due_ns, step.since_ns if step else 0)
            self._skip(activity, due_ns, step, end_ns)
        self.next_ns = None

    def _skip(self, activity: UnderWay, due_ns: int, step: Step | None, end_ns: int) -> None:
        """Record this step and those after it as skipped, up to the end of the run."""
        remains = step is not None
        while step is not None and due_ns < end_ns:
            self._log.skipped(step, due_ns)
            step = step_after(activity.steps, None)
            if step is not None:
                due_ns = max(due_ns + self._delay_ns(step), step.since_ns)
        activity.steps.close()
        if remains:
            activity.outcome = "skipped" if activity.started_ns is None else "unfinished"
            self._log.activity_done(activity, None)

    def _take_up(self, activity: UnderWay) -> Step | None:
        """Return an activity's first step, and make the plan's next activity pending."""
        self._plan_next()
        if activity.kind == PROCESS_INBOX:
            self._processing_ns = activity.due_ns
        return next(activity.steps, None)

    def _plan_next(self) -> None:
        activity = next(self._plan, None)
        if activity is not None:
            self._put(activity.due_ns, activity.due_ns, activity, None, ON_TIME)

    def _put(self, ready_ns: int, due_ns: int, activity: UnderWay, step: Step | None, late_ns: Late) -> None:
        self._begun += 1
        heappush(self._pending, PendingActivity(ready_ns, self._begun, due_ns, activity, step, late_ns))
        self.next_ns = self._pending[0].ready_ns

    def _delay_ns(self, step: Step) -> int:
        return round(step.delay_ms * 1e6 / self._user.workload.compression)


class ClosedLoop:
    """Stress mode: one activity after another, without delays between steps."""

    def __init__(self, user: UserMail, log: ActivityLog) -> None:
        self.next_ns: int | None = None
        self._user = user
        self._log = log
        self._plan = UNPLANNED
        self._waiting: PendingActivity | None = None
        self._talked = True  # whether the current activity has sent a command
        self._silent = 0  # activities in a row without a command
        self._over = False

    def plan(self) -> None:
        """Make an endless plan: the server's speed decides how far users get with it."""
        self._plan = self._user.host.plan(self._user, True)

    def begin(self) -> None:
        """Make the first activity due at once."""
        self.done()

    @property
    def opens_inbox(self) -> bool:
        return self._waiting is not None and _opens_inbox(self._waiting)

    def take(self) -> PendingActivity:
        """Remove and return the due step; no other is pending until it has ended."""
        pending, at_ns = self._waiting, self.next_ns
        assert pending is not None and at_ns is not None, "nothing is due"
        self.next_ns = self._waiting = None
        step = next(pending.activity.steps, None) if pending.step is None else pending.step
        return PendingActivity(at_ns, pending.order, at_ns, pending.activity, step, pending.late_ns)

    def go_on(self, pending: PendingActivity, result: Any, ended: Ended) -> None:
        """Make the next step due at once, or the next activity if there is none."""
        self._talked = self._talked or ended.talked
        following = step_after(pending.activity.steps, result)
        if following is None:
            self.done()
        elif self._over:
            pending.activity.steps.close()
        else:
            self._wait(ended.at_ns, pending.activity, following)

    def done(self) -> None:
        """Make the next activity due now, or after a pause if `PAUSE_AFTER` in a row sent no command."""
        if self._over:
            return
        self._silent = 0 if self._talked else self._silent + 1
        self._user.host.counts.silent_activities += not self._talked
        self._talked = False
        pauses = self._silent and self._silent % PAUSE_AFTER == 0
        activity = next(self._plan, None)
        if activity is not None:
            activity.due_ns = self._user.now() + (PAUSE_NS if pauses else 0)
            self._wait(activity.due_ns, activity, None)

    def mail_shown(self, at_ns: int) -> None:
        """End a pause."""
        if self.next_ns is not None and self.next_ns > at_ns:
            self.next_ns = at_ns

    def shown(self, unread: Sequence[Unread]) -> None:
        """Do nothing: these messages are read when the Inbox is next processed."""

    def end(self, end_ns: int) -> None:
        """Skip nothing: in a closed loop, activities that did not begin were never due."""
        self._over = True
        self.next_ns = self._waiting = None

    def _wait(self, at_ns: int, activity: UnderWay, step: Step | None) -> None:
        self.next_ns = at_ns
        self._waiting = PendingActivity(at_ns, 0, at_ns, activity, step, ON_TIME)


def _opens_inbox(pending: PendingActivity) -> bool:
    return pending.step is None and pending.activity.kind == PROCESS_INBOX


def step_after(steps: Steps, result: Any) -> Step | None:
    """Send an activity the result of its last step. Return its next step, or None if it has ended."""
    try:
        return steps.send(result)
    except StopIteration:
        return None


def _within(late_ns: Late, waited_ns: int) -> Late:
    """Scale lateness by cause to the time that a step has waited since it was due.

    The two differ for a message that became visible while the user was reading another: it has waited for a shorter
    time.
    """
    whole_ns = sum(late_ns)
    if whole_ns <= waited_ns:
        return late_ns
    busy_ns, down_ns = (part_ns * waited_ns // whole_ns for part_ns in late_ns[:2])
    return busy_ns, down_ns, waited_ns - busy_ns - down_ns
