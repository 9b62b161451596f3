"""An outside sender at work: submits new mail when it is due, one message at a time, without logging on.

Its task, INJECT, is timed as users' tasks are. In stress mode, too, it keeps to the plan: the outside
world does not wait for the server.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadsim.model.ports import DriverOfSenders
from loadsim.model.terms import INJECT
from loadsim.scenario.workload import Activity
from loadsim.users.alarm import Alarm
from loadsim.users.host import Host
from loadsim.users.outbox import Outbox
from loadsim.users.task_recorder import IDLE, TaskRecorder


class Sender:
    """An outside sender."""

    def __init__(self, host: Host, number: int, driver_name: str, driver: DriverOfSenders) -> None:
        self.number = number
        self.recorder = TaskRecorder(host, (number, host.workload.sender_profile(number).name, driver_name))
        account = host.workload.scenario.sender_account(number)
        self._outbox = Outbox(host, number, driver.outside(account, self.recorder))
        self._host = host
        self._now = host.now_ns
        self._alarm = Alarm(host.now_ns)
        self.close = self._alarm.close
        self._plan: Iterator[Activity] = iter(())
        self._next: Activity | None = None

    # --- the run ---

    async def run(self) -> None:
        """Submit what is due, from the common start until the host calls `close`."""
        try:
            await self._alarm.work(self._due_ns, self._inject, self.recorder.was_only_cut_off)
            await self._outbox.close()
        except Exception as error:  # noqa: BLE001 - it ends only this sender
            self.recorder.count(IDLE, self.recorder.failure(error, INJECT))
        finally:
            self._alarm.cancel()

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
        self.recorder.free_ns = self._host.start_ns
        self._alarm.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no more messages; record those due before `end_ns` as skipped."""
        while self._next is not None and (due_ns := self._instant_ns(self._next)) < end_ns:
            self.recorder.skip(INJECT, due_ns)
            self._take()
        self._next = None

    async def _inject(self) -> None:
        """Compose and submit the next message, and record it. Raises only the cancellation at the end of the run."""
        assert self._next is not None, "nothing is due"
        recorder, due_ns, index = self.recorder, self._instant_ns(self._next), self._take()
        recorder.begin(INJECT, due_ns)
        try:
            outgoing = recorder.compose(self._outbox.compose, index)
            await self._outbox.submit(outgoing)
            self._outbox.accepted(outgoing, recorder.answered_ns or self._now())
            recorder.succeed()
        except Exception as raised:  # noqa: BLE001 - an error of ours ends only this task of this sender
            recorder.fail(raised)
        finally:
            recorder.record()
            recorder.free()
