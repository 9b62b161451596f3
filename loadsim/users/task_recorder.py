"""Tasks and commands of one who acts, timed and recorded: a user, companion, assistant or outside sender.

The problem: a plan says when each activity is due, but users do one thing at a time, the server may be slow or away,
and the generator itself may be late. So each task is timed twice: from its start, which charges the server for this
task only, and from its due time, which includes the queue ahead of it. The generator's share of the delay must be
known, because it is judged separately. These instants are noted for each task:

    due           the plan's time, or the arrival of the message to read
    ready         the step before it had ended, so it could begin
    began         the event loop got to it
    sent          the first byte of each command was sent
    answered      the last byte of each response arrived (`command`, called by the driver); the loop may read it later

An example, in ms after t = 0. READ is due at 1000; the user is busy with SEND until 1400; the loop gets to READ at
1402 and sends two commands: one from 1402 to 1410, whose answer is read at 1413, and one from 1413 to 1430:

    service time    1430 - 1402 - 3 = 25     from which the score is computed
    response time   1430 - 1000 = 430        in the column *From due*
    lateness        busy 400, generator 2 + 3

In the 3 ms between the commands the server had nothing to do: they are the generator's, as is the time in which it
composes a message. The record puts the start off by as much, as if all of it had come first. A task of a plug-in may
wait for something that it does not report, and so may a driver without arrivals: then only composing counts.

Time without a session is lateness `down` (`SessionState.lateness_ns`). The rest is `busy`: earlier tasks took long,
which is the server's doing. The three causes add up to `began - due`, and later steps inherit them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.records import LOOP, NO_CLOCK, PROCESS_INBOX_SPAN, Arrival
from loadsim.scenario.workload import PROCESS_INBOX
from loadsim.users.activities import Step, UnderWay
from loadsim.users.host import Host
from loadsim.users.pending import Ended
from loadsim.users.session_state import ON_TIME, Late, SessionState
from loadsim.users.tasks import Task

IDLE = "IDLE"
"""The name under which failures between tasks are counted."""


def ignore(*_: object) -> None:
    """Do nothing."""


class TaskRecorder:
    """Observes drivers (`ports.Observer`), times the running task, and logs activities (`pending.ActivityLog`).

    `whose` is how records name the user: number, profile and driver. `on_arrived` and `on_lost` receive what drivers
    report. An error of ours in a callback must not look like the server's: the running task fails with it (`broken`),
    and `on_broken` is called.
    """

    def __init__(
        self,
        host: Host,
        whose: tuple[int, str, str],
        on_arrived: Callable[[int, int], object] = ignore,
        on_lost: Callable[[Exception], object] = ignore,
        on_broken: Callable[[GeneratorFailed], object] = ignore,
    ) -> None:
        self.whose = whose
        self.number = whose[0]
        self.now = host.now_ns  # ports.Observer: the instant, in nanoseconds
        self.lines = host.lines(self.number)
        self._host = host
        self._recorder = host.recorder
        self._on_arrived, self._on_lost, self._on_broken = on_arrived, on_lost, on_broken
        self.session = SessionState()
        self.free_ns = 0  # the end of the last task, or of the time without a session
        self._states_arrivals = False  # the driver does, for some command at least

        # The running task.
        self.performing: str | None = None
        self._name = ""
        self.submitting = False
        self.outcome = "ok"
        self.broken: GeneratorFailed | None = None
        self._error = ""
        self._task: asyncio.Task[Any] | None = None
        self._cut = False
        self._due_ns = self._began_ns = self._started_ns = self._composing_ns = 0
        self._ended_ns: int | None = None
        self._late_ns = ON_TIME  # until it began; the generator's own part of it:
        self._own_late_ns = 0

        # Its commands.
        self.answered_ns = 0  # when the last answer arrived; 0 before the first
        self._clock = LOOP  # that of the last answer
        self._moved_bytes = 0
        self._waits: list[tuple[int, int]] = []  # each command's first byte and its answer's last
        self._own_ns = 0  # of these, the server was waiting for us
        self._unstated = False  # a command's driver has not said when its answer arrived

    # --- callbacks of drivers (ports.Observer) ------------------------------------------------------------------------

    def command(
        self,
        name: str,
        since: int,
        outcome: str,
        sent_bytes: int,
        received_bytes: int,
        arrival: Arrival | None = None,
        own_ns: int = 0,
    ) -> None:
        asked_ns = since + own_ns
        if arrival is None:
            self._unstated, answered_ns, clock = True, self.now(), LOOP
        else:
            self._states_arrivals = True
            answered_ns, clock = arrival
            if answered_ns < asked_ns:  # after the wall clock was set
                answered_ns, clock = self.now(), LOOP
        if self.performing is not None:
            if answered_ns >= self.answered_ns:  # else it was read after one that came later, on another connection
                self.answered_ns, self._clock = answered_ns, clock
            self._moved_bytes += sent_bytes + received_bytes
            self._waits.append((since, answered_ns))
            self._own_ns += own_ns
        try:
            self._recorder.command((name, self.number, asked_ns, answered_ns, outcome, sent_bytes, received_bytes))
        except Exception as error:  # noqa: BLE001 - raised here, it would end the connection as if the server had
            self._break(error, f"the end of {name}")

    def arrived(self, messages: int, at_ns: int | None = None) -> None:
        try:
            self._on_arrived(messages, self.now() if at_ns is None else at_ns)
        except Exception as error:  # noqa: BLE001 - as above
            self._break(error, "an announcement")

    def lost(self, failure: Exception) -> None:
        try:
            self._on_lost(failure)
        except Exception as error:  # noqa: BLE001 - as above
            self._break(error, "the end of a session")

    def _break(self, error: Exception, during: str) -> None:
        failure = self._host.internal_error(error, during, self.number)
        self.broken = self.broken or failure
        self._on_broken(failure)

    # --- the running task ---------------------------------------------------------------------------------------------

    def begin(self, task: str, due_ns: int, ready_ns: int | None = None, inherited_ns: Late = ON_TIME) -> None:
        """Begin a task that was due at `due_ns` and could begin at `ready_ns` (None: at `due_ns`).

        In between, it waited for earlier steps, for the causes in `inherited_ns`.
        """
        # Compute its lateness, by cause.
        self._due_ns, self._began_ns = due_ns, (began_ns := self.now())
        ready_ns = due_ns if ready_ns is None else ready_ns
        self._late_ns, self._own_late_ns = inherited_ns, 0
        if began_ns != ready_ns:
            busy_ns, down_ns, own_ns = self.session.lateness_ns(ready_ns, began_ns, self.free_ns)
            self._late_ns = inherited_ns[0] + busy_ns, inherited_ns[1] + down_ns, inherited_ns[2] + own_ns
            self._own_late_ns = own_ns
        # Forget the previous task.
        self.performing = self._name = task
        self._task = self._task or asyncio.current_task()
        self.submitting, self.broken = False, None
        self.outcome, self._error, self._ended_ns = "unfinished", "", None
        self._moved_bytes = self._own_ns = self._composing_ns = self.answered_ns = 0
        self._waits.clear()
        self._unstated, self._clock = False, LOOP

    async def perform(self, task: Task, mail: Any, about: Any) -> Any:
        """Do the task that has begun. Return its result."""
        if task.fetch is not None:
            about = await task.fetch(mail, about)
        if task.compose is not None:
            about = self.compose(task.compose, mail, about)
        self.submitting = task.submits or (task.public and mail.public.is_apart)
        result = await task.act(mail, about)
        self.succeed()
        return result

    def compose(self, compose: Callable[..., Any], *about: Any) -> Any:
        """Return a composed message. This time is the generator's."""
        began_ns = self.now()
        composed = compose(*about)
        self._composing_ns = self.now() - began_ns
        return composed

    def succeed(self) -> None:
        """End the task, unless an error of ours has broken it.

        It ends with its last answer: the loop may have resumed the user later, if others were answered just then.
        """
        if self.broken is not None:
            raise self.broken
        answered_ns = self.answered_ns
        self._ended_ns = answered_ns if answered_ns >= self._began_ns + self._composing_ns else self.now()
        self.outcome = "ok"

    def fail(self, raised: Exception) -> TaskFailed:
        """End the task, and count its failure."""
        self._ended_ns = self.now()
        failure = self.failure(raised, self._name)
        self.outcome, self._error = failure.outcome, self.count(self._name, failure)
        return failure

    def record(self) -> None:
        """Record the task, as unfinished if it has not ended."""
        task, ended_ns = self._name, self._ended_ns
        # Divide its time between the server and the generator.
        between_ns, clock = self._composing_ns, NO_CLOCK
        reported = self._states_arrivals and not self._unstated and task not in self._host.plugin_tasks
        if self._waits and reported:  # everything that the task waits for is a command with its arrival
            between_ns = self._own_ns + time_between(self._waits, self._began_ns, ended_ns)
            between_ns = between_ns if ended_ns is None else min(between_ns, ended_ns - self._began_ns)
        if ended_ns is not None and (self._waits or not reported):
            clock = self._clock if self.answered_ns == ended_ns else LOOP
        # Record it.
        self._started_ns = started_ns = self._began_ns + between_ns
        busy_ns, down_ns, generator_ns = self._late_ns
        self._late_ns = busy_ns, down_ns, generator_ns + between_ns
        busy_s, down_s, own_s = busy_ns * 1e-9, down_ns * 1e-9, (self._own_late_ns + between_ns) * 1e-9
        late_s = busy_s, down_s, (generator_ns + between_ns) * 1e-9, between_ns * 1e-9, own_s
        instants, ended = (self._due_ns, started_ns, ended_ns), (self.outcome, self._error, self._moved_bytes, clock)
        self._recorder.task((task, *self.whose, *instants, *late_s, *ended))
        self._host.count_task(task, self.outcome, (ended_ns or 0) - started_ns, (busy_s, down_s, own_s), clock)

    def free(self, at_ns: int | None = None) -> Ended:
        """Let the next task begin (None: from this one's end). Return the end of this one, for the steps after it."""
        at_ns = at_ns or self._ended_ns or self.now()
        self.performing, self.free_ns = None, at_ns
        busy_ns, down_ns, generator_ns = self._late_ns
        late_ns = busy_ns + at_ns - self._started_ns, down_ns, generator_ns
        return Ended(at_ns, self.outcome, late_ns, self._moved_bytes > 0)

    def cut_off(self) -> None:
        """Cancel the running task, which is recorded as unfinished."""
        if self._task is not None:
            self._cut = True
            self._task.cancel()

    def was_only_cut_off(self) -> bool:
        """Return whether a cancellation was that of `cut_off` alone, so that work goes on."""
        cut, self._cut = self._cut, False
        return cut and self._task is not None and self._task.uncancel() == 0

    # --- failures, and what is not a running task ---------------------------------------------------------------------

    def failure(self, raised: Exception, during: str) -> TaskFailed:
        """Return the failure for an exception: ours, if an error of ours caused it."""
        broken, self.broken = self.broken, None
        if isinstance(raised, TaskFailed):
            return broken or raised
        return self._host.internal_error(raised, during, self.number)

    def count(self, task: str, failure: TaskFailed) -> str:
        """Count a failure. Return the kind to record."""
        return self._host.failed(self, task, failure)

    def skipped(self, step: Step, due_ns: int) -> None:
        self.skip(step.task.name, due_ns)

    def skip(self, task: str, due_ns: int) -> None:
        """Record a task that was left undone at the end of the run."""
        self.span(task, due_ns, None, None, "skipped")
        self._host.count_task(task, "skipped", 0, (0.0, 0.0, 0.0), NO_CLOCK)

    def activity_done(self, activity: UnderWay, ended_ns: int | None) -> None:
        """Record the processing of an Inbox that had mail to read; `ended_ns` is None if it was not completed."""
        if activity.kind == PROCESS_INBOX:
            ended_ns = ended_ns if activity.outcome == "ok" else None
            outcome = activity.outcome if activity.outcome in ("ok", "skipped") else "unfinished"
            self.span(PROCESS_INBOX_SPAN, activity.due_ns, activity.started_ns, ended_ns, outcome)

    def span(self, name: str, due_ns: int, started_ns: int | None, ended_ns: int | None, outcome: str) -> None:
        """Record a span of several tasks (`model.records.SPANS`)."""
        instants, late_s = (due_ns, started_ns, ended_ns), (0.0, 0.0, 0.0, 0.0, 0.0)
        self._recorder.task((name, *self.whose, *instants, *late_s, outcome, "", 0, NO_CLOCK))


def time_between(waits: Sequence[tuple[int, int]], begin_ns: int, end_ns: int | None) -> int:
    """Return for how long, between two instants, none of these commands was under way (None: until the last ended)."""
    between_ns, until_ns = 0, begin_ns
    for since_ns, answered_ns in sorted(waits):
        between_ns += max(0, (since_ns if end_ns is None else min(since_ns, end_ns)) - until_ns)
        until_ns = max(until_ns, answered_ns)
    return between_ns if end_ns is None else between_ns + max(0, end_ns - until_ns)
