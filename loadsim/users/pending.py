"""What a user is to do next: activities in the order of their due times, each done one step at a time.

`PendingActivities` serves the open model: due times are absolute and do not move when the server is slow. `ClosedLoop`
serves stress mode: the plan's next activity is due when the last one, and all that follows from it, is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from loadsim.model.workload import PROCESS_INBOX, Activity
from loadsim.users import activities, tasks
from loadsim.users.activities import Step, Steps, UnderWay
from loadsim.users.inbox import Unread
from loadsim.users.session_state import ON_TIME, Late

if TYPE_CHECKING:
    from loadsim.users.user import User

PAUSE_AFTER = 16
PAUSE_NS = 100_000_000
"""In a closed loop, after so many activities in a row in which nothing was said to the server, the user waits so long,
or until there is mail: the loop must not spin."""


UNPLANNED: Iterator[Activity] = iter(())
"""The plan of a user who has none yet."""


class PendingActivity(NamedTuple):
    """A step that a user still has to do.

    It may begin at `ready_ns` and was due at `due_ns`; `late_ns` is the difference by cause. Of what is ready together,
    the lower `order` goes first. `step` is None until the activity is taken up.
    """

    ready_ns: int
    order: int
    due_ns: int
    activity: UnderWay
    step: Step | None
    late_ns: Late


class Ended(NamedTuple):
    """The end of a step: when, how, by which causes so much later than it was due, and whether the server was asked."""

    at_ns: int
    outcome: str
    late_ns: Late
    talked: bool


class Pace(Protocol):
    """When a user does what his plan has. `next_ns` is when the next step may begin; None while there is none."""

    next_ns: int | None

    def plan(self) -> None:
        """Make the plan."""
        ...

    def begin(self) -> None:
        """Take up the plan: the common start has come."""
        ...

    def take(self) -> PendingActivity:
        """Take the next step off the agenda; its `step` is None where there is nothing to be done.

        The caller answers with `go_on`, or with `done` where there was nothing.
        """
        ...

    def go_on(self, pending: PendingActivity, result: Any, ended: Ended) -> None:
        """Put what follows from a step that ended with this result on the agenda."""
        ...

    def done(self) -> None:
        """Go on where there was nothing to do."""
        ...

    def mail_shown(self, at_ns: int) -> None:
        """Note that there may be something new to read."""
        ...

    def shown(self, unread: Sequence[Unread]) -> None:
        """Note what was listed as new in the Inbox; after the end of the run it is read no more."""
        ...

    def end(self, end_ns: int) -> None:
        """Take up nothing any more; record the steps that were due before `end_ns` as skipped."""
        ...


class PendingActivities:
    """The agenda of a user who does what is due when it is due, and late what he could not do before (`Pace`).

    A step that follows another is due when it would have been, had the one before taken no time: at the activity's due
    time plus the delays in between. So due times show all the waiting. It may begin once the one
    before has really ended and its delay is over; a message is not due to be read before it was in sight.
    """

    __slots__ = ("_begun", "_end_ns", "_pending", "_plan", "_processing_ns", "_user", "next_ns")

    def __init__(self, user: User) -> None:
        self.next_ns: int | None = None
        self._user = user
        self._plan = UNPLANNED  # what has not come on the agenda yet
        self._pending: list[PendingActivity] = []
        self._begun = 0  # how many have come on the agenda: of what may begin together, the first is done first
        self._end_ns: int | None = None  # the end of the run, once it has come
        self._processing_ns = -1  # when the last processing of the Inbox was due

    def plan(self) -> None:
        """To the end of the run."""
        self._plan = self._user.workload.activities(self._user.number)

    def begin(self) -> None:
        """The plan's due times count from now."""
        self._plan_next()

    def take(self) -> PendingActivity:
        """The activity that takes the place of a planned one comes on the agenda at once."""
        pending = heappop(self._pending)
        if pending.step is None:
            step = self._take_up(pending.activity)
            due_ns = max(pending.due_ns, step.since_ns if step else 0)
            pending = PendingActivity(due_ns, pending.order, due_ns, pending.activity, step, pending.late_ns)
        self.next_ns = self._pending[0].ready_ns if self._pending else None
        return pending

    def go_on(self, pending: PendingActivity, result: Any, ended: Ended) -> None:
        """Put what follows from a step in its place on the agenda; after the end of the run, record it as skipped."""
        activity = pending.activity
        if ended.outcome != "ok" and activity.outcome == "ok":
            activity.outcome = ended.outcome
        following = step_after(activity.steps, result)
        if following is None:
            self._user.activity_done(activity, ended.at_ns)
            return
        due_ns = max(pending.due_ns + self._delay_ns(following), following.since_ns)
        if self._end_ns is not None:
            self._skip(activity, due_ns, following, self._end_ns)
            return
        ready_ns = max(ended.at_ns + self._delay_ns(following), due_ns)
        self._put(ready_ns, due_ns, activity, following, _within(ended.late_ns, ready_ns - due_ns))

    def done(self) -> None:
        """The next activity is on the agenda already."""

    def mail_shown(self, at_ns: int) -> None:
        """Nothing is due any sooner for it."""

    def shown(self, unread: Sequence[Unread]) -> None:
        """Record as skipped what was announced before the last processing was due, and is listed after the end only."""
        for each in unread if self._end_ns is not None else ():
            if each.since_ns <= self._processing_ns:
                self._user.skipped(Step(tasks.READ, each.header), self._processing_ns)

    def end(self, end_ns: int) -> None:
        """With all that would have followed from it, had it failed."""
        self._end_ns = end_ns
        while self._pending:
            _, _, due_ns, activity, step, _ = heappop(self._pending)
            if step is None and due_ns < end_ns:
                step = self._take_up(activity)
                due_ns = max(due_ns, step.since_ns if step else 0)
            self._skip(activity, due_ns, step, end_ns)
        self.next_ns = None

    def _skip(self, activity: UnderWay, due_ns: int, step: Step | None, end_ns: int) -> None:
        """Record this step and those that follow from it as skipped, as far as they were due before the end."""
        remains = step is not None
        while step is not None and due_ns < end_ns:
            self._user.skipped(step, due_ns)
            step = step_after(activity.steps, None)
            if step is not None:
                due_ns = max(due_ns + self._delay_ns(step), step.since_ns)
        activity.steps.close()
        if remains:
            activity.outcome = "skipped" if activity.started_ns is None else "unfinished"
            self._user.activity_done(activity, None)

    def _take_up(self, activity: UnderWay) -> Step | None:
        """Return the first step of an activity, whose place on the agenda the next one takes."""
        self._plan_next()
        if activity.kind == PROCESS_INBOX:
            self._processing_ns = activity.due_ns
        return next(activity.steps, None)

    def _plan_next(self) -> None:
        activity = next(self._plan, None)
        if activity is not None:
            due_ns = self._user.host.start_ns + activity.due_us * 1000
            self._put(due_ns, due_ns, activities.begin(self._user, activity, due_ns), None, ON_TIME)

    def _put(self, ready_ns: int, due_ns: int, activity: UnderWay, step: Step | None, late_ns: Late) -> None:
        self._begun += 1
        heappush(self._pending, PendingActivity(ready_ns, self._begun, due_ns, activity, step, late_ns))
        self.next_ns = self._pending[0].ready_ns

    def _delay_ns(self, step: Step) -> int:
        return round(step.delay_ms * 1e6 / self._user.workload.compression)


class ClosedLoop:
    """The agenda of a user in stress mode (`Pace`): one activity at a time, with no time to look at a message."""

    __slots__ = ("_over", "_plan", "_silent", "_talked", "_user", "_waiting", "next_ns")

    def __init__(self, user: User) -> None:
        self.next_ns: int | None = None
        self._user = user
        self._plan = UNPLANNED
        self._waiting: PendingActivity | None = None
        self._talked = True  # to the server, in the activity that is under way
        self._silent = 0  # activities in a row that did not
        self._over = False

    def plan(self) -> None:
        """Without an end: how far he comes, the server decides."""
        self._plan = self._user.workload.activities(self._user.number, endless=True)

    def begin(self) -> None:
        """The first activity is due at once."""
        self.done()

    def take(self) -> PendingActivity:
        """Nothing is on the agenda until this has ended."""
        pending, at_ns = self._waiting, self.next_ns
        assert pending is not None and at_ns is not None, "nothing is due"
        self.next_ns = self._waiting = None
        step = next(pending.activity.steps, None) if pending.step is None else pending.step
        return PendingActivity(at_ns, pending.order, at_ns, pending.activity, step, pending.late_ns)

    def go_on(self, pending: PendingActivity, result: Any, ended: Ended) -> None:
        """What follows from a step is due at once; when nothing does, the next activity is."""
        self._talked = self._talked or ended.talked
        following = step_after(pending.activity.steps, result)
        if following is None:
            self.done()
        elif self._over:
            pending.activity.steps.close()
        else:
            self._wait(ended.at_ns, pending.activity, following)

    def done(self) -> None:
        """The next activity is due now, unless those before it had nothing to do."""
        if self._over:
            return
        self._silent = 0 if self._talked else self._silent + 1
        self._user.host.counts.silent_activities += not self._talked
        self._talked = False
        pauses = self._silent and self._silent % PAUSE_AFTER == 0
        activity = next(self._plan, None)
        if activity is not None:
            at_ns = self._user.now() + (PAUSE_NS if pauses else 0)
            self._wait(at_ns, activities.begin(self._user, activity, at_ns), None)

    def mail_shown(self, at_ns: int) -> None:
        """It ends a pause."""
        if self.next_ns is not None and self.next_ns > at_ns:
            self.next_ns = at_ns

    def shown(self, unread: Sequence[Unread]) -> None:
        """Nothing is due."""

    def end(self, end_ns: int) -> None:
        """Nothing is skipped: what a closed loop could not do any more was never due."""
        self._over = True
        self.next_ns = self._waiting = None

    def _wait(self, at_ns: int, activity: UnderWay, step: Step | None) -> None:
        self.next_ns = at_ns
        self._waiting = PendingActivity(at_ns, 0, at_ns, activity, step, ON_TIME)


def step_after(steps: Steps, result: Any) -> Step | None:
    """Return the next step of an activity, which is sent the result of the last one; None when it has none."""
    try:
        return steps.send(result)
    except StopIteration:
        return None


def _within(late_ns: Late, waited_ns: int) -> Late:
    """Scale lateness by cause to the time that a step has waited since it was due.

    They differ for a message that came into sight while the one before was read: it was not waiting until then.
    """
    whole_ns = sum(late_ns)
    if whole_ns <= waited_ns:
        return late_ns
    busy_ns, down_ns = (part_ns * waited_ns // whole_ns for part_ns in late_ns[:2])
    return busy_ns, down_ns, waited_ns - busy_ns - down_ns
