"""A companion: a user's additional mail program, which watches the Inbox and lists new mail in its own sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from loadsim.errors import GeneratorFailed, ServerLost, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.ports import INBOX, Account, Driver
from loadsim.model.records import GENERATOR
from loadsim.users.alarm import Alarm
from loadsim.users.host import Host
from loadsim.users.session_state import DROPPED, next_look_ns
from loadsim.users.stored_mail import StoredMail
from loadsim.users.task_recorder import TaskRecorder
from loadsim.users.tasks import SCREENFUL

COMPANION = "COMPANION"
"""The name under which companions' failures are counted."""

LIST_AGAIN_S = 5.0
"""The pause before a companion lists new mail again if the server has refused."""


class Companion:
    """A companion.

    Its commands are recorded; everything else is only counted, in `host.counts`. It affects no task times, delivery
    times or scores. `which` is its position among its user's companions, from 1. At the end, it checks that the Inbox
    still has the mail that the user's program has seen, `stored`.
    """

    def __init__(self, host: Host, account: Account, driver: Driver, which: int, stored: StoredMail) -> None:
        self.number = account.number
        self.which = which
        self.now = host.now_ns
        self._host = host
        self._stored = stored
        self._counts = host.counts.companions
        whose = account.number, "", driver.name
        self._recorder = TaskRecorder(host, whose, self._arrived, self._lose, self._broken)
        session = driver.session(account, self._recorder)
        self._mailbox = session.mailbox
        self._poll_ns = None if session.poll_s is None else round(session.poll_s * 1e9)  # None: the session stays open
        self._stream = f"companion {which}"  # for random draws
        self._alarm = Alarm(host.now_ns)
        self.close = self._alarm.close
        self._due_ns: int | None = None  # when to list new mail, or look for it next
        self._new = False  # mail was announced, but has not been listed yet

        # The session.
        self._state = self._recorder.session
        self._at_work = False  # logged on; with a session per view, true from the first log-on
        self._was_on = False
        self._tried = False
        self._lost: Exception | None = None  # why the session ended between calls
        self._lost_before = False  # the previous session was lost
        self._down_since_ns: int | None = None  # None while the server is serving the companion
        self._asked_ns: int | None = None  # when the calls that are still unanswered began

        # The end.
        self._end_ns: int | None = None  # of the run
        self._over = False

    # --- callbacks of drivers (ports.Observer) ------------------------------------------------------------------------

    def _arrived(self, *_: int) -> None:
        if not self._new:
            self._new = True
            if self._poll_ns is None:
                self._due_ns = self.now()
                self._host.in_turn(self._alarm.wake)  # all members of a list receive this at the same moment

    def _lose(self, failure: Exception) -> None:
        self._lost = failure
        self._alarm.wake()

    def _broken(self, failure: GeneratorFailed) -> None:
        """End the session soon: our own error in a callback has left its state unknown. The running call fails."""
        asyncio.get_running_loop().call_soon(self._abort, failure)

    def drop(self) -> None:
        """Abort the connection of a session that is kept open, as `User.drop` does."""
        if self._at_work and self._poll_ns is None:
            self._abort(ServerLost(DROPPED))

    def _abort(self, failure: TaskFailed) -> None:
        self._mailbox.abandon()
        self._lose(failure)

    # --- the run ------------------------------------------------------------------------------------------------------

    async def run(self, on_ns: int) -> None:
        """Log on at `on_ns`, watch until the host calls `close`, and log off."""
        self._down_since_ns = on_ns
        try:
            await self._alarm.sleep(on_ns)
            while not self._alarm.closed:
                if self._lost is not None:
                    self._end_session(self._failed(self._lost))
                elif not self._at_work:
                    await self._log_on()
                elif self._due_ns is not None and self._due_ns <= self.now():
                    await (self._list() if self._poll_ns is None else self._look())
                else:
                    await self._alarm.until(self._due_ns)
            if self._lost is not None:
                self._end_session(self._failed(self._lost))
            elif self._at_work:
                async with self._host.log_off_slots:
                    self._end_unless_refused(await self._try(self._look_and_log_off))
        except Exception as error:  # noqa: BLE001 - it ends only this companion
            self._failed(error)
            self._down()
        finally:
            if self._asked_ns is not None:  # cancelled because the server does not answer
                self._down(self._asked_ns)
            self._over = True
            if self._end_ns is not None:
                self._add_down()
            self._alarm.cancel()
            try:
                self._mailbox.abandon()
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)

    async def _look_and_log_off(self) -> None:
        """Check the Inbox one last time, and log off. Raises `ServerRefused` if mail that the user saw is missing."""
        if self._poll_ns is not None:
            self._counts.log_ons += 1
            await self._mailbox.log_on()
        headers = await self._mailbox.headers(INBOX, 1)
        try:
            self._stored.look(INBOX, headers, 1, self._mailbox.messages)
        finally:
            await self._mailbox.log_off()

    def end_day(self, end_ns: int) -> None:
        """Count the time from the common start to the end of the run.

        The time without service is added once the current calls have ended.
        """
        self._counts.planned_ns += end_ns - self._host.start_ns
        self._end_ns = end_ns
        if self._over:
            self._add_down()

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _log_on(self) -> None:
        if failed := self._state.failed_log_ons:
            jitter = draw(self._host.workload.seed, self.number, f"{self._stream} back-off", failed)
            await self._alarm.sleep(self.now() + self._state.back_off_ns(jitter))
        async with self._host.log_on_slots:
            if self._alarm.closed:
                return
            self._lost = None
            self._new = False  # the first list includes everything announced before
            self._counts.log_ons += 1
            failure = await self._try(self._open)
        if not self._tried:
            self._tried = True
            self._counts.tried += 1
        if failure is None:
            self._at_work = self._was_on = True
            self._state.up(self.now())
            self._up()
            self._plan_look()
        else:
            self._state.failed_log_ons += 1
            self._log_on_failed(failure)

    async def _open(self) -> None:
        """Send the commands of a user's log-on: list the newest screenful or, if a session was lost, the new mail."""
        await self._mailbox.log_on()
        await self._mailbox.folders()
        if self._was_on:
            await self._take_new()
        else:
            await self._mailbox.headers(INBOX, SCREENFUL)
        await self._mailbox.watch()
        if self._poll_ns is not None:
            await self._mailbox.log_off()

    async def _list(self) -> None:
        self._due_ns = None
        failure = await self._try(self._list_and_watch)
        self._end_unless_refused(failure)
        if failure is None:
            self._up()
        elif self._at_work:
            self._due_ns = self.now() + round(LIST_AGAIN_S * 1e9)

    async def _list_and_watch(self) -> None:
        await self._take_new()
        await self._mailbox.watch()

    async def _look(self) -> None:
        """Look for new mail and list it, in a separate session. If a look fails, wait until the next is due."""
        self._plan_look()
        self._counts.log_ons += 1
        self._counts.looks += 1
        failure = await self._try(self._mailbox.log_on)
        if failure is not None:
            self._log_on_failed(failure)
            return
        failure = viewed = await self._try(self._view)
        if viewed is None or viewed.outcome == "refused":
            failure = await self._try(self._mailbox.log_off)
        self._end_unless_refused(failure)
        if viewed is None and (failure is None or failure.outcome == "refused"):
            self._up()

    async def _view(self) -> None:
        await self._mailbox.watch()
        if self._new:
            await self._take_new()

    async def _take_new(self) -> None:
        self._new = False
        try:
            self._counts.listed += len(await self._mailbox.arrived())
        except Exception:
            self._new = True
            raise

    def _plan_look(self) -> None:
        if self._poll_ns is not None:
            share = draw(self._host.workload.seed, self.number, f"{self._stream} poll", 0)
            self._due_ns = next_look_ns(self._due_ns, self.now(), self._poll_ns, share)

    # --- failures -----------------------------------------------------------------------------------------------------

    async def _try(self, call: Callable[[], Awaitable[object]]) -> TaskFailed | None:
        """Await one or more mailbox calls. Count and return their failure; None if they succeed.

        The time without service begins when the failing calls do, since the server may have been silent from then on.
        """
        self._asked_ns = asked_ns = self.now()
        failure = None
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - it ends at most this session
            failure = self._failed(error)
            self._down(asked_ns)
        self._asked_ns = None
        return failure

    def _failed(self, error: Exception) -> TaskFailed:
        """Count and return a failure."""
        failure = self._recorder.failure(error, COMPANION)
        self._counts.failures += failure.outcome != GENERATOR
        self._recorder.count(COMPANION, failure)
        return failure

    def _log_on_failed(self, failure: TaskFailed) -> None:
        self._counts.log_ons_failed += failure.outcome != GENERATOR
        self._down()
        self._lost = None
        self._mailbox.abandon()

    def _end_unless_refused(self, failure: TaskFailed | None) -> None:
        if failure is not None and failure.outcome != "refused":
            self._end_session(failure)

    def _end_session(self, failure: TaskFailed) -> None:
        """Close a session. It counts as lost unless the failure is our own."""
        if failure.outcome != GENERATOR:
            self._counts.sessions_lost += 1
            self._host.counts.sessions_lost += 1
            self._lost_before = True
        self._down()
        self._lost = None
        if self._poll_ns is None:
            self._at_work = False
            self._due_ns = None
            self._state.broke(self.now())
        self._mailbox.abandon()

    def _down(self, since_ns: int | None = None) -> None:
        """Begin a time without service, now or at an earlier instant."""
        if self._down_since_ns is None:
            self._down_since_ns = self.now() if since_ns is None else since_ns

    def _up(self) -> None:
        self._add_down()
        self._host.counts.sessions_restored += self._lost_before
        self._lost_before = False

    def _add_down(self) -> None:
        """End the time without service, and add the part that lies between the common start and the end of the run."""
        since_ns, self._down_since_ns = self._down_since_ns, None
        if since_ns is not None and self._host.start_ns:
            until_ns = self.now() if self._end_ns is None else min(self.now(), self._end_ns)
            self._counts.down_ns += max(0, until_ns - max(since_ns, self._host.start_ns))
