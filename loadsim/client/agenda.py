"""What a user is to do next: activities in the order of their due times, each done one step at a time.

`Agenda` is that of the open model: due times are absolute and do not move when the server is slow. `ClosedLoop` is that
of stress mode: the plan's next activity is due when the last one, and all that follows from it, is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from loadsim.client import activities
from loadsim.client.activities import Step, Steps
from loadsim.model.workload import Activity

if TYPE_CHECKING:
    from loadsim.client.user import User

PAUSE_AFTER = 16
PAUSE_NS = 100_000_000
"""In a closed loop, after so many activities in a row in which nothing was said to the server, the user waits so long,
or until there is mail: the loop must not spin."""


UNPLANNED: Iterator[Activity] = iter(())
"""The plan of a user who has none yet."""


class Pace(Protocol):
    """When a user does what his plan has. `due_ns` is when the next step is due; None while there is none."""

    due_ns: int | None

    def plan(self) -> None:
        """Make the plan."""
        ...

    def begin(self) -> None:
        """The common start has come."""
        ...

    def take(self) -> tuple[int, Steps, Step | None]:
        """What is due next, off the agenda: when it was due, its activity, and its step (None: nothing to be done).

        What becomes of it is told with `go_on`, or else with `done`.
        """
        ...

    def go_on(self, steps: Steps, result: Any, free_ns: int, talked: bool) -> None:
        """The step ended at `free_ns` with this result, and said something to the server or not."""
        ...

    def done(self) -> None:
        """There was nothing to do."""
        ...

    def mail_shown(self, at_ns: int) -> None:
        """There may be something new to read."""
        ...

    def end(self, end_ns: int) -> Iterator[tuple[int, Step]]:
        """Take up nothing any more; the steps that were due before `end_ns`, and when."""
        ...


class Agenda:
    """The agenda of a user who does what is due when it is due, and late what he could not do before (`Pace`)."""

    __slots__ = ("_begun", "_over", "_pending", "_plan", "_user", "due_ns")

    def __init__(self, user: User) -> None:
        self.due_ns: int | None = None
        self._user = user
        self._plan = UNPLANNED  # what has not come on the agenda yet
        self._pending: list[tuple[int, int, Steps, Step | None]] = []  # due, order, activity, its step if known
        self._begun = 0  # how many have come on the agenda: of what is due together, the first is done first
        self._over = False

    def plan(self) -> None:
        """To the end of the run."""
        self._plan = self._user.workload.activities(self._user.number)

    def begin(self) -> None:
        """The plan's due times count from now."""
        self._plan_next()

    def take(self) -> tuple[int, Steps, Step | None]:
        """The activity that takes the place of a planned one comes on the agenda at once."""
        pending = self._pending
        due_ns, _, steps, step = heappop(pending)
        if step is None:
            self._plan_next()
            step = next(steps, None)
        self.due_ns = pending[0][0] if pending else None
        return due_ns, steps, step

    def go_on(self, steps: Steps, result: Any, free_ns: int, talked: bool) -> None:
        """What follows from a step takes its place on the agenda."""
        following = step_after(steps, result)
        if following is None:
            return
        if self._over:
            steps.close()
        else:
            self._put(free_ns + self._delay_ns(following), steps, following)

    def done(self) -> None:
        """The next activity is on the agenda already."""

    def mail_shown(self, at_ns: int) -> None:
        """Nothing is due any sooner for it."""

    def end(self, end_ns: int) -> Iterator[tuple[int, Step]]:
        """With all that would have followed from it, had it failed."""
        self._over = True
        while self._pending and self._pending[0][0] < end_ns:
            due_ns, steps, step = self.take()
            while step is not None and due_ns < end_ns:
                yield due_ns, step
                step = step_after(steps, None)
                due_ns += self._delay_ns(step) if step else 0
            steps.close()
        self._pending.clear()
        self.due_ns = None

    def _plan_next(self) -> None:
        activity = next(self._plan, None)
        if activity is not None:
            due_ns = self._user.engine.start_ns + activity.due_us * 1000
            self._put(due_ns, activities.begin(self._user, activity), None)

    def _put(self, due_ns: int, steps: Steps, step: Step | None) -> None:
        self._begun += 1
        heappush(self._pending, (due_ns, self._begun, steps, step))
        self.due_ns = self._pending[0][0]

    def _delay_ns(self, step: Step) -> int:
        return round(step.delay_ms * 1e6 / self._user.workload.compression)


class ClosedLoop:
    """The agenda of a user in stress mode (`Pace`): one activity at a time, with no time to look at a message."""

    __slots__ = ("_over", "_plan", "_silent", "_step", "_steps", "_talked", "_user", "due_ns")

    def __init__(self, user: User) -> None:
        self.due_ns: int | None = None
        self._user = user
        self._plan = UNPLANNED
        self._steps: Steps | None = None  # the activity that is due, and its step if that is known
        self._step: Step | None = None
        self._talked = True  # to the server, in the activity that is under way
        self._silent = 0  # activities in a row that did not
        self._over = False

    def plan(self) -> None:
        """Without an end: how far he comes, the server decides."""
        self._plan = self._user.workload.activities(self._user.number, endless=True)

    def begin(self) -> None:
        """The first activity is due at once."""
        self.done()

    def take(self) -> tuple[int, Steps, Step | None]:
        """Nothing is on the agenda until this has ended."""
        due_ns, steps, step = self.due_ns, self._steps, self._step
        assert due_ns is not None and steps is not None, "nothing is due"
        self.due_ns = self._steps = self._step = None
        return due_ns, steps, next(steps, None) if step is None else step

    def go_on(self, steps: Steps, result: Any, free_ns: int, talked: bool) -> None:
        """What follows from a step is due at once; when nothing does, the next activity is."""
        self._talked = self._talked or talked
        following = step_after(steps, result)
        if following is None:
            self.done()
        elif self._over:
            steps.close()
        else:
            self.due_ns, self._steps, self._step = free_ns, steps, following

    def done(self) -> None:
        """The next activity is due now, unless those before it had nothing to do."""
        if self._over:
            return
        self._silent = 0 if self._talked else self._silent + 1
        self._user.engine.silent_activities += not self._talked
        self._talked = False
        pauses = self._silent and self._silent % PAUSE_AFTER == 0
        activity = next(self._plan, None)
        if activity is not None:
            self._steps = activities.begin(self._user, activity)
            self.due_ns = self._user.now() + (PAUSE_NS if pauses else 0)

    def mail_shown(self, at_ns: int) -> None:
        """It ends a pause."""
        if self.due_ns is not None and self.due_ns > at_ns:
            self.due_ns = at_ns

    def end(self, end_ns: int) -> Iterator[tuple[int, Step]]:
        """Nothing: what a closed loop could not do any more was never due."""
        self._over = True
        self.due_ns = self._steps = self._step = None
        return iter(())


def step_after(steps: Steps, result: Any) -> Step | None:
    """The next step of an activity, which is told what the last one returned; None when it has none."""
    try:
        return steps.send(result)
    except StopIteration:
        return None
