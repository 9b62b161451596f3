"""An assistant: a user's program that does tasks of its own, at planned times, while the user works.

Each task has a session of its own. A failed task ends only its session: the next one logs on again.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.ports import Driver, KeptLines
from loadsim.model.records import NO_CLOCK, Arrival
from loadsim.users.activities import Step, UnderWay
from loadsim.users.alarm import Alarm
from loadsim.users.companion import COMPANION
from loadsim.users.host import Host
from loadsim.users.mail import UserMail
from loadsim.users.pending import Ended, PendingActivities, PendingActivity
from loadsim.users.session_state import SessionState
from loadsim.users.waits import Waits


class Assistant:
    """An assistant, which also observes its driver (`ports.Observer`) and logs its steps (`pending.ActivityLog`).

    `mail` is its user's, and `call` the kind of its activities. `whose` is how records name the user: number, profile
    and driver.
    """

    def __init__(self, host: Host, mail: UserMail, call: str, driver: Driver, whose: tuple[int, str, str]) -> None:
        self.number = mail.number
        self.now = host.now_ns  # ports.Observer: the instant, in nanoseconds
        self.performing: str | None = None
        self._host = host
        self._mail = mail.of_assistant(call, driver, self)
        self._whose = whose
        self._recorder = host.recorder
        self._pending = PendingActivities(self._mail, self)
        self._waits = Waits(self._mail)
        self._session = SessionState()  # never down, as there is a session for each task
        self._alarm = Alarm(host.now_ns)
        self._free_ns = 0  # the end of the last task
        self._broken: GeneratorFailed | None = None  # an error of ours, which makes the running task fail
        self._task: asyncio.Task[None] | None = None
        self._cut = False
        self._closing = False

    # --- callbacks of drivers (ports.Observer) ------------------------------------------------------------------------

    @cached_property
    def lines(self) -> KeptLines:
        return self._host.lines(self.number)

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
        answered_ns = self._waits.add(since, sent_bytes + received_bytes, arrival, own_ns)
        try:
            since += own_ns
            self._recorder.command((name, self.number, since, answered_ns, outcome, sent_bytes, received_bytes))
        except Exception as error:  # noqa: BLE001 - raised here, it would end the connection as if the server had
            self._broken = self._host.internal_error(error, f"the end of {name}", self.number)

    def arrived(self, messages: int, at_ns: int | None = None) -> None:
        """Do nothing: the user lists new mail."""

    def lost(self, failure: Exception) -> None:
        """Do nothing: there is no session between tasks, and a running task fails by itself."""

    # --- the day ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work from the common start until the host calls `close`."""
        self._task = asyncio.current_task()
        try:
            while not self._closing:
                try:
                    next_ns = self._pending.next_ns
                    if next_ns is not None and next_ns <= self.now():
                        await self._do_next()
                    else:
                        await self._alarm.until(next_ns)
                except asyncio.CancelledError:
                    cut, self._cut = self._cut, False
                    if not cut or self._task is None or self._task.uncancel():
                        raise
            await self._mail.submission.close()
        except Exception as error:  # noqa: BLE001 - it ends only this assistant
            self._host.failed(self, COMPANION, self._host.internal_error(error, "an assistant's own work", self.number))
            self._closing = True
        finally:
            self._alarm.cancel()
            self._mail.mailbox.abandon()

    def plan_day(self) -> None:
        self._pending.plan()

    def begin_day(self) -> None:
        """Begin the plan at the common start, from which its due times count."""
        self._free_ns = self._host.start_ns
        self._pending.begin()
        self._alarm.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no more tasks; record those due before `end_ns` as skipped."""
        self._pending.end(end_ns)
        self._alarm.wake()

    def cut_off(self) -> None:
        """Cancel the running task, which is recorded as unfinished."""
        if self._task is not None:
            self._cut = True
            self._task.cancel()

    def close(self) -> None:
        self._closing = True
        self._alarm.wake()

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def _do_next(self) -> None:
        upcoming = self._pending.take()
        if upcoming.step is None:
            return
        result, ended = None, Ended(self.now(), "unfinished", upcoming.late_ns, talked=True)
        try:
            result, ended = await self._perform(upcoming, upcoming.step)
        finally:
            self._pending.go_on(upcoming, result, ended)

    async def _perform(self, upcoming: PendingActivity, step: Step) -> tuple[Any, Ended]:
        """Do one step in a session of its own, and record it. Return its result and its end."""
        # Compute its lateness, by cause.
        task, about, began_ns = step.task, step.about, self.now()
        waited_ns = self._session.lateness_ns(upcoming.ready_ns, began_ns, self._free_ns)
        busy_ns, down_ns, generator_ns = map(sum, zip(upcoming.late_ns, waited_ns, strict=True))
        # Do it.
        self._waits.begin()
        self._broken = None
        self.performing = task.name
        result, outcome, error, composing_ns = None, "unfinished", "", 0
        ended_ns: int | None = None
        try:
            if task.compose is not None:
                composing_ns = self.now()
                about = task.compose(self._mail, about)
                composing_ns = self.now() - composing_ns
            result = await task.act(self._mail, about)
            if self._broken is not None:
                raise self._broken
            answered_ns = self._mail.answered_ns
            ended_ns = answered_ns if answered_ns >= began_ns + composing_ns else self.now()
            outcome = "ok"
        except Exception as raised:  # noqa: BLE001 - an error of ours ends only this task
            result, ended_ns = None, self.now()
            outcome, error = self._failed(raised, task.name)
        finally:
            # Record it, and close its session.
            between_ns = self._waits.between_ns(task.name, began_ns, ended_ns, composing_ns)
            started_ns = began_ns + between_ns
            late_s = busy_ns * 1e-9, down_ns * 1e-9, (generator_ns + between_ns) * 1e-9
            own_s = between_ns * 1e-9, (waited_ns[2] + between_ns) * 1e-9
            clock = NO_CLOCK if ended_ns is None else self._waits.clock_of(task.name, ended_ns)
            instants = upcoming.due_ns, started_ns, ended_ns
            self._record(task.name, instants, (*late_s, *own_s), outcome, error, clock)
            self._mail.compare_shown()
            await self._log_off(outcome)
            self.performing = None
            self._free_ns = self.now()
        busy_ns += self._free_ns - started_ns
        return result, Ended(self._free_ns, outcome, (busy_ns, down_ns, generator_ns + between_ns), talked=True)

    async def _log_off(self, outcome: str) -> None:
        """Log off after a task, or close the connection if its state is unknown. No task's time includes this."""
        if outcome not in ("ok", "refused"):
            self._mail.mailbox.abandon()
        try:
            await self._mail.mailbox.log_off()
        except Exception as raised:  # noqa: BLE001 - it ends only this session
            self._failed(raised, COMPANION)

    def _failed(self, raised: Exception, task: str) -> tuple[str, str]:
        """Count a failure. Return its outcome and kind."""
        failure = self._broken or raised
        if not isinstance(failure, TaskFailed):
            failure = self._host.internal_error(failure, task, self.number)
        return failure.outcome, self._host.failed(self, task, failure)

    def skipped(self, step: Step, due_ns: int) -> None:
        self._record(step.task.name, (due_ns, None, None), (0.0,) * 5, "skipped")

    def activity_done(self, activity: UnderWay, ended_ns: int | None) -> None:
        """Do nothing: a call is not recorded as a whole."""

    def _record(
        self,
        task: str,
        instants_ns: tuple[int, int | None, int | None],
        late_s: tuple[float, ...],
        outcome: str,
        error: str = "",
        clock: str = NO_CLOCK,
    ) -> None:
        """Record a task: due, started, ended; lateness by cause, the generator's time between commands and its own."""
        busy_s, down_s, generator_s, between_s, own_s = late_s
        late = busy_s, down_s, generator_s, between_s, own_s
        self._recorder.task((task, *self._whose, *instants_ns, *late, outcome, error, self._waits.moved_bytes, clock))
        _, started_ns, ended_ns = instants_ns
        self._host.count_task(task, outcome, (ended_ns or 0) - (started_ns or 0), (busy_s, down_s, own_s), clock)
