"""An outside sender at work: submits new mail when it is due, one message at a time, without logging on.

Its task, INJECT, is timed as users' tasks are (`users.user`). In stress mode, too, it keeps to the plan: the outside
world does not wait for the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cached_property

from loadsim.errors import TaskFailed
from loadsim.model.ports import DriverOfSenders, KeptLines
from loadsim.model.records import NO_CLOCK, Arrival
from loadsim.model.terms import INJECT
from loadsim.scenario.workload import Activity
from loadsim.users.alarm import Alarm
from loadsim.users.host import Host
from loadsim.users.outbox import Outbox
from loadsim.users.user import IDLE
from loadsim.users.waits import Waits


class Sender:
    """An outside sender, who also observes their submission (`ports.Observer`)."""

    def __init__(self, host: Host, number: int, driver_name: str, driver: DriverOfSenders) -> None:
        self.number = number
        self.now = host.now_ns  # ports.Observer: the instant, in nanoseconds
        self.performing: str | None = None
        self._host = host
        self._outbox = Outbox(host, number, driver.outside(host.workload.scenario.sender_account(number), self))
        self._whose = (number, host.workload.sender_profile(number).name, driver_name)  # as in records
        self._alarm = Alarm(host.now_ns)
        self._plan: Iterator[Activity] = iter(())
        self._next: Activity | None = None
        self._free_ns = 0  # the end of the last task
        self._closing = False
        # The running task.
        self._task: asyncio.Task[None] | None = None
        self._cut = False
        self._waits = Waits(self._outbox)
        self._broken: TaskFailed | None = None  # an error of our own in a callback

    # --- callbacks of the submission (ports.Observer) ---

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
        record = (name, self.number, since + own_ns, answered_ns, outcome, sent_bytes, received_bytes)
        try:
            self._host.recorder.command(record)
        except Exception as error:  # noqa: BLE001 - raised here, it would end the connection as if the server had
            self._broken = self._host.internal_error(error, f"the end of {name}", self.number)

    def arrived(self, messages: int, at_ns: int | None = None) -> None:
        """Do nothing: there is no mailbox."""

    def lost(self, failure: Exception) -> None:
        """Do nothing: there is no session."""

    # --- the run ---

    async def run(self) -> None:
        """Submit what is due, from the common start until the host calls `close`."""
        self._task = asyncio.current_task()
        try:
            while not self._closing:
                due_ns = self._due_ns
                if due_ns is None or self.now() < due_ns:
                    await self._alarm.until(due_ns)
                    continue
                try:
                    await self._inject(due_ns, self._take())
                except asyncio.CancelledError:
                    if not self._was_only_cut_off():
                        raise
            await self._outbox.close()
        except Exception as error:  # noqa: BLE001 - it ends only this sender
            self._host.failed(self, IDLE, self._failure(error))
        finally:
            self._alarm.cancel()

    def _failure(self, raised: Exception) -> TaskFailed:
        return raised if isinstance(raised, TaskFailed) else self._host.internal_error(raised, INJECT, self.number)

    @property
    def _due_ns(self) -> int | None:
        """When the next message is due; None before the common start, and after the end."""
        return None if self._next is None or not self._host.start_ns else self._instant_ns(self._next)

    def _instant_ns(self, activity: Activity) -> int:
        return self._host.start_ns + activity.due_us * 1000

    def _take(self) -> int:
        """Return the index of the message that is due, and plan the next one."""
        assert self._next is not None, "nothing is due"
        index, self._next = self._next.number, next(self._plan, None)
        return index

    def plan_day(self) -> None:
        self._plan = self._host.workload.activities(self.number)
        self._next = next(self._plan, None)

    def begin_day(self) -> None:
        self._free_ns = self._host.start_ns
        self._alarm.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no more messages; record those due before `end_ns` as skipped."""
        while self._next is not None and (due_ns := self._instant_ns(self._next)) < end_ns:
            self._record((due_ns, None, None), "skipped")
            self._take()
        self._next = None

    def cut_off(self) -> None:
        """Cancel the running task, which is recorded as unfinished."""
        if self._task is not None:
            self._cut = True
            self._task.cancel()

    def _was_only_cut_off(self) -> bool:
        cut, self._cut = self._cut, False
        return cut and self._task is not None and self._task.uncancel() == 0

    def close(self) -> None:
        self._closing = True
        self._alarm.wake()

    async def _inject(self, due_ns: int, index: int) -> None:
        """Compose and submit a message, and record it. Raises only the cancellation at the end of the run."""
        began_ns = self.now()
        self._waits.begin()
        self._broken = None
        self.performing = INJECT
        ended_ns: int | None = None
        outcome, error, composed_ns = "unfinished", "", began_ns
        try:
            outgoing = self._outbox.compose(index)
            composed_ns = self.now()
            await self._outbox.submit(outgoing)
            answered_ns = self._outbox.answered_ns
            ended_ns = answered_ns if answered_ns >= composed_ns else self.now()
            self._outbox.accepted(outgoing, ended_ns)
            if self._broken is not None:
                raise self._broken
            outcome = "ok"
        except Exception as raised:  # noqa: BLE001 - an error of ours ends only this task of this sender
            ended_ns = self.now()
            failure = self._failure(raised)
            outcome, error = failure.outcome, self._host.failed(self, INJECT, failure)
        finally:
            self.performing = None
            between_ns = self._waits.between_ns(INJECT, began_ns, ended_ns, composed_ns - began_ns)
            waited_ns = max(0, began_ns - max(due_ns, self._free_ns))
            late_ns = (began_ns - due_ns - waited_ns, waited_ns + between_ns, between_ns)
            self._free_ns = ended_ns or self.now()
            clock = NO_CLOCK if ended_ns is None else self._waits.clock_of(INJECT, ended_ns)
            self._record((due_ns, began_ns + between_ns, ended_ns), outcome, error, late_ns, clock)

    def _record(
        self,
        instants_ns: tuple[int, int | None, int | None],
        outcome: str,
        error: str = "",
        late_ns: tuple[int, int, int] = (0, 0, 0),
        clock: str = NO_CLOCK,
    ) -> None:
        """Record a task: due, started, ended; its lateness as the sender was busy, as the generator was late, and of
        the latter, between its commands."""
        busy_s, generator_s, between_s = (part_ns * 1e-9 for part_ns in late_ns)
        late_s = busy_s, 0.0, generator_s, between_s, generator_s
        moved_bytes = self._waits.moved_bytes if instants_ns[1] is not None else 0
        self._host.recorder.task((INJECT, *self._whose, *instants_ns, *late_s, outcome, error, moved_bytes, clock))
        _, started_ns, ended_ns = instants_ns
        service_ns = (ended_ns or 0) - (started_ns or 0)
        self._host.count_task(INJECT, outcome, service_ns, (busy_s, 0.0, generator_s), clock)
