"""An assistant: a user's program that does tasks of its own, at planned times, while the user works.

Each task has a session of its own. A failed task ends only its session: the next one logs on again.
"""

from __future__ import annotations

from loadsim.model.ports import Driver
from loadsim.users.alarm import Alarm
from loadsim.users.companion import COMPANION
from loadsim.users.host import Host
from loadsim.users.mail import UserMail
from loadsim.users.pending import PendingActivities
from loadsim.users.task_recorder import TaskRecorder


class Assistant:
    """An assistant.

    `mail` is its user's, and `call` the kind of its activities. `whose` is how records name the user.
    """

    def __init__(self, host: Host, mail: UserMail, call: str, driver: Driver, whose: tuple[int, str, str]) -> None:
        self.number = mail.number
        self.recorder = TaskRecorder(host, whose)
        self._host = host
        self._mail = mail.of_assistant(call, driver, self.recorder)
        self._pending = PendingActivities(self._mail, self.recorder)
        self._alarm = Alarm(host.now_ns)
        self.close = self._alarm.close

    # --- the day ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work from the common start until the host calls `close`."""
        try:
            await self._alarm.work(lambda: self._pending.next_ns, self._do_next, self.recorder.was_only_cut_off)
            await self._mail.submission.close()
        except Exception as error:  # noqa: BLE001 - it ends only this assistant
            failure = self._host.internal_error(error, "an assistant's own work", self.number)
            self.recorder.count(COMPANION, failure)
            self.close()
        finally:
            self._alarm.cancel()
            self._mail.mailbox.abandon()

    def plan_day(self) -> None:
        self._pending.plan()

    def begin_day(self) -> None:
        """Begin the plan at the common start, from which its due times count."""
        self.recorder.free_ns = self._host.start_ns
        self._pending.begin()
        self._alarm.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no more tasks; record those due before `end_ns` as skipped."""
        self._pending.end(end_ns)
        self._alarm.wake()

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def _do_next(self) -> None:
        """Do the next pending step in a session of its own, and add what follows it."""
        upcoming = self._pending.take()
        if upcoming.step is None:
            return
        recorder, task = self.recorder, upcoming.step.task
        result = None
        recorder.begin(task.name, upcoming.due_ns, upcoming.ready_ns, upcoming.late_ns)
        try:
            result = await recorder.perform(task, self._mail, upcoming.step.about)
        except Exception as raised:  # noqa: BLE001 - an error of ours ends only this task
            recorder.fail(raised)
        finally:
            recorder.record()
            self._mail.compare_shown()
            try:
                await self._log_off()
            finally:
                self._pending.go_on(upcoming, result, recorder.free(self._host.now_ns()))

    async def _log_off(self) -> None:
        """Log off after a task, or close the connection if its state is unknown. No task's time includes this."""
        if self.recorder.outcome not in ("ok", "refused"):
            self._mail.mailbox.abandon()
        try:
            await self._mail.mailbox.log_off()
        except Exception as raised:  # noqa: BLE001 - it ends only this session
            self.recorder.count(COMPANION, self.recorder.failure(raised, COMPANION))
