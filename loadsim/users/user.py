"""One simulated user: does what is due, one step at a time; `users.task_recorder` times and records each task.

A failure ends a task. Most failures also end the session, because its state is unknown after a lost connection or a
silent server; a refusal (NO) or an SMTP failure does not. Without a session, users log on again with growing pauses,
and the next task waits. After an error of our own in a driver's callback, the running task fails with it, and the
loop's next turn ends the session.

Pauses are alarms, not timers: `wake` ends one early when mail is announced or the run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from loadsim.errors import GeneratorFailed, InboxRenumbered, PluginFailed, ServerLost, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.ports import Account, Driver
from loadsim.model.records import DELIVERY_RECEIPT, GENERATOR, NO_SESSION
from loadsim.model.terms import STRESS
from loadsim.users import tasks
from loadsim.users.activities import Step
from loadsim.users.alarm import Alarm
from loadsim.users.host import Host
from loadsim.users.inbox import Unread
from loadsim.users.mail import UserMail
from loadsim.users.pending import ClosedLoop, Ended, PendingActivities
from loadsim.users.session_state import DROPPED, ON_TIME, Late, next_look_ns
from loadsim.users.task_recorder import IDLE, TaskRecorder

SYNC_AGAIN_S = 5.0
"""The pause before a user lists announced mail again if the server has refused."""


class User:
    """A user at work."""

    def __init__(self, host: Host, account: Account, driver: Driver) -> None:
        self.host = host
        self.number = account.number
        self.now = host.now_ns
        whose = account.number, host.workload.population.group(account.number).profile.name, driver.name
        self.recorder = TaskRecorder(host, whose, self._arrived, self._lost, self._broken)
        receipt = partial(self.recorder.span, DELIVERY_RECEIPT)
        self.mail = UserMail(host, account, driver, self.recorder, self._listed, receipt)

        # Sleep, and what to do next.
        self._alarm = Alarm(host.now_ns)
        self.wake = self._alarm.wake
        model = ClosedLoop if host.workload.scenario.run.mode == STRESS else PendingActivities
        self._pending: PendingActivities | ClosedLoop = model(self.mail, self.recorder)
        self._sync_due_ns: int | None = None
        self.listing_unannounced = False  # the next SYNC looks for mail that the server has not announced

        # The session.
        self._session = self.recorder.session
        self._poll_ns = None if self.mail.poll_s is None else round(self.mail.poll_s * 1e9)  # None: sessions are kept
        self._look_due_ns: int | None = None  # from the first log-on
        self._in_view = False  # a view may be open, with its own session
        self._looked = False  # for new mail, before processing the Inbox
        self.is_on = False
        self._broke_at_log_on: Exception | None = None
        self._dropping: GeneratorFailed | None = None  # why the session will end in the loop's next turn
        self._ended = Ended(0, "ok", ON_TIME, talked=False)  # the last step

        # The end.
        self.given_up = False  # set by the host: the user's state is broken

    # --- callbacks of drivers (ports.Observer) ------------------------------------------------------------------------

    def _arrived(self, messages: int, at_ns: int) -> None:
        self.mail.inbox.announce(messages, at_ns)
        if self._sync_due_ns is None:
            self._sync_due_ns = at_ns
            self.host.in_turn(self.wake)  # all members of a list get this at the same moment

    def _lost(self, failure: Exception) -> None:
        recorder = self.recorder
        if isinstance(failure, PluginFailed):  # a wrong report from a plug-in, which a running task records
            if recorder.performing is None:
                recorder.count(IDLE, failure)
            self._drop_soon(failure)
            return
        if not isinstance(failure, TaskFailed):
            failure = self.host.internal_error(failure, IDLE, self.number)
        if recorder.performing == tasks.LOGON.name:
            self._broke_at_log_on = failure  # after the last answer: the log-on still succeeds
        elif self.is_on:
            recorder.count(IDLE, failure)
            self._session_failed(failure)
            self.wake()

    def _broken(self, failure: GeneratorFailed) -> None:
        """End the session: an error of ours in a driver's callback has left its state unknown."""
        self.recorder.count(IDLE, failure)
        self._drop_soon(failure)

    def drop(self) -> None:
        """Abort the session's connection, if there is one, as if the network had failed; the session is lost."""
        if self.is_on and (self._poll_ns is None or self._in_view):
            self.recorder.lost(ServerLost(DROPPED))

    def _drop_soon(self, failure: GeneratorFailed) -> None:
        """End the session in the loop's next turn, once the driver has returned, unless a failing task has ended it."""
        self.recorder.broken = self.recorder.broken or failure
        if self._dropping is None:
            self._dropping = failure
            asyncio.get_running_loop().call_soon(self.guarded, User._drop_session)

    def _drop_session(self) -> None:
        if self._dropping is not None:  # otherwise this session has ended, and the next may have begun
            self._end_session()
            self.wake()

    # --- the day ------------------------------------------------------------------------------------------------------

    async def run(self, on_ns: int) -> None:
        """Log on at `on_ns`, work until the host calls `close`, log off."""
        self._session.down(on_ns)
        try:
            await self._alarm.sleep(on_ns)
            await self._log_on(on_ns)
            while not self._alarm.closed:
                try:
                    await self._work()
                except asyncio.CancelledError:
                    if not self.recorder.was_only_cut_off():
                        raise
                    self._end_session()
            if self.is_on:
                async with self.host.log_off_slots:
                    await self._perform(self.now(), Step(tasks.LOGOFF, None))
                self._off()
        except Exception as error:  # noqa: BLE001 - it ends only this user
            self.give_up(error)
        finally:
            self._alarm.cancel()
            self.guarded(lambda user: user.mail.mailbox.abandon())

    def guarded(self, act: Callable[[User], None]) -> None:
        """Call `act` with the user; an error of ours in it ends only this user."""
        try:
            act(self)
        except Exception as error:  # noqa: BLE001
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Stop this user: an error outside any task means that their state is broken.

        Pending tasks are recorded as skipped at the end of the run.
        """
        failure = self.host.internal_error(error, "a user's own work", self.number)
        if self.given_up:
            return
        self.given_up = True
        self.recorder.count(IDLE, failure)
        self.host.user_given_up()
        self.recorder.performing = None
        self.listing_unannounced = False
        self._off()
        self._alarm.close()

    def plan_day(self) -> None:
        """Make the plan. This happens before the common start, as it takes a while for thousands of users."""
        self._pending.plan()

    def begin_day(self) -> None:
        """Begin the plan at the common start, from which its due times count."""
        self.recorder.free_ns = self.host.start_ns
        self._pending.begin()
        self.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no more planned tasks; record those due before `end_ns` as skipped."""
        self._pending.end(end_ns)
        self.wake()

    def _listed(self, unread: Sequence[Unread]) -> None:
        self._pending.shown(unread)

    def list_unannounced(self) -> bool:
        """List the Inbox even though nothing was announced. Return whether there is a session to do it in.

        `listing_unannounced` is true until this is done.
        """
        self.listing_unannounced = self.is_on
        if self.listing_unannounced:
            self._sync_due_ns = self.now()
            self.wake()
        return self.listing_unannounced

    def record_unlisted(self) -> None:
        """Record receipts that never came, and mail that the user stored but never listed.

        The server was slow, silent, or away.
        """
        self.mail.receipts.end()
        if not self.given_up:
            self.mail.stored.end()

    def close(self) -> None:
        if not self.is_on and self.host.start_ns and not self.given_up:
            since_ns = self._session.down_since_ns
            self.recorder.span(NO_SESSION, since_ns, since_ns, None, "unfinished")
        self._alarm.close()

    async def _work(self) -> None:
        """Do what is due, one thing at a time, and watch for mail in between, until the host calls `close`."""
        while not self._alarm.closed:
            now_ns = self.now()
            next_ns = self._pending.next_ns
            mail_due_ns = self._look_due_ns if self._sync_due_ns is None else self._sync_due_ns  # a look, or SYNC
            if mail_due_ns is not None and next_ns is not None and next_ns < mail_due_ns:
                mail_due_ns = None
            if not self.is_on:
                await self._log_on(now_ns)
            elif self.mail.uncopied:
                await self._first_sync()
            elif mail_due_ns is not None and mail_due_ns <= now_ns:
                await (self._look() if self._sync_due_ns is None else self._sync(mail_due_ns))
            elif self.mail.inbox.reports:
                await self._perform(self.recorder.free_ns, Step(tasks.TRACK, self.mail.inbox.reports.pop(0)))
            elif self._in_view and not (self.mail.maildrop and next_ns is not None and next_ns <= now_ns):
                await self._end_view()
            elif next_ns is not None and next_ns <= now_ns:
                looks_first = self._poll_ns is not None and not self._looked and self._pending.opens_inbox
                await (self._look_first() if looks_first else self._do_next())
            elif not self.mail.watching and self._poll_ns is None:
                await self._watch()
            else:
                await self._alarm.until(next_ns if mail_due_ns is None else mail_due_ns)

    async def _do_next(self) -> None:
        """Do the next pending step, and add what follows it, even if the end of the run cancels it."""
        self._looked = False
        upcoming = self._pending.take()
        if upcoming.step is None:
            self._pending.done()
            return
        if upcoming.activity.started_ns is None:
            upcoming.activity.started_ns = self.now()
        result = None
        try:
            result = await self._perform(upcoming.due_ns, upcoming.step, upcoming.ready_ns, upcoming.late_ns)
        finally:
            self._pending.go_on(upcoming, result, self._ended)

    async def _sync(self, due_ns: int) -> None:
        self._sync_due_ns = None
        await self._perform(due_ns, Step(tasks.SYNC, self.listing_unannounced))
        self.listing_unannounced &= self._ended.outcome != "ok"
        self._pending.mail_shown(self.recorder.free_ns)
        if (self.mail.inbox.announced or self.listing_unannounced) and self._sync_due_ns is None and self.is_on:
            self._sync_due_ns = self.now() + round(SYNC_AGAIN_S * 1e9)

    async def _log_on(self, due_ns: int) -> None:
        """Log on; try again with growing pauses until it succeeds or the host calls `close`."""
        while not self._alarm.closed:
            failed = self._session.failed_log_ons
            if failed:
                jitter = draw(self.mail.workload.seed, self.number, "back-off", failed)
                due_ns = self.now() + self._session.back_off_ns(jitter)
                await self._alarm.sleep(due_ns)
                if self._alarm.closed:
                    return
            self._broke_at_log_on = None
            queues = self.host.log_on_slots.locked()
            async with self.host.log_on_slots:
                if self._alarm.closed:
                    return
                on = await self._perform(self.now() if queues else due_ns, Step(tasks.LOGON, None))
            if on:
                self._on()
                return
            self._session.failed_log_ons += 1
            self._forget_session()

    async def _first_sync(self) -> None:
        """Copy the mailbox, as a new program does before anything else; again if the session is lost."""
        await self._perform(self.recorder.free_ns, Step(tasks.FIRST_SYNC, self.mail.first_sync))
        if not self.mail.uncopied:
            self.host.counts.users_ready += 1

    async def _look_first(self) -> None:
        """Look for new mail before processing the Inbox, since opening it would show that mail.

        Otherwise, mail that has come since the last look would not be read, and the load would be less than planned.
        """
        self._looked = True
        if not self.mail.inbox.processing:  # otherwise the activity that is due has nothing to do
            await self._look()
            if self._sync_due_ns is not None and self.is_on:
                await self._sync(self._sync_due_ns)

    async def _look(self) -> None:
        """Look for new mail in a separate session. If there is any, SYNC lists it in the same session."""
        if self._in_view:
            await self._end_view()
        self._plan_look()
        if self.is_on:
            self._in_view = True
            await self._watch()

    def _plan_look(self) -> None:
        if self._poll_ns is not None:
            share = draw(self.mail.workload.seed, self.number, "poll", 0)
            self._look_due_ns = next_look_ns(self._look_due_ns, self.now(), self._poll_ns, share)

    async def _end_view(self) -> None:
        """Log off after a view, if it had a session. No task's time includes this, but the next task waits for it."""
        self._in_view = False
        await self._between_tasks(self.mail.mailbox.log_off())

    async def _watch(self) -> None:
        self.mail.watching = True  # even if the server refuses: asking again at once would not help
        await self._between_tasks(self.mail.mailbox.watch())

    async def _between_tasks(self, call: Awaitable[None]) -> None:
        """Await a mailbox call outside of tasks. Count its failure; unless it is a refusal, end the session.

        With a session per view, even a refusal ends it: the server may have refused the log-on, which no task records.
        """
        try:
            await call
        except Exception as error:  # noqa: BLE001 - it ends only this session
            self._note_renumbering(error)
            failure = self.recorder.failure(error, IDLE)
            self.recorder.count(IDLE, failure)
            if failure.outcome != "refused" or self._poll_ns is not None:
                self._session_failed(failure)
        self.recorder.free_ns = self.now()

    async def _perform(self, due_ns: int, step: Step, ready_ns: int | None = None, inherited_ns: Late = ON_TIME) -> Any:
        """Do one step and record it. Raises only the cancellation at the end of the run.

        The step was due at `due_ns` and could begin at `ready_ns` (None: at `due_ns`). In between, it waited for
        earlier steps, for the causes in `inherited_ns`.
        """
        recorder = self.recorder
        recorder.begin(step.task.name, due_ns, ready_ns, inherited_ns)
        recorder.broken = self._dropping
        self.mail.watching = False
        self._in_view = self._poll_ns is not None
        try:
            return await recorder.perform(step.task, self.mail, step.about)
        except Exception as raised:  # noqa: BLE001 - an error of ours ends only this task of this user
            self._note_renumbering(raised)
            failure = recorder.fail(raised)
            goes_on = failure.outcome == "refused" or (recorder.submitting and isinstance(raised, TaskFailed))
            if self._dropping is not None or not goes_on:
                self._session_failed(failure)
        finally:
            if recorder.outcome == "unfinished" and isinstance(recorder.broken, PluginFailed):
                recorder.count(IDLE, recorder.broken)
            recorder.record()
            self.mail.compare_shown()
            self._ended = recorder.free()

    def _on(self) -> None:
        self.host.counts.users_on += 1
        self.host.counts.users_ready += not (self.mail.was_on or self.mail.uncopied)
        self.host.counts.sessions_restored += self.mail.was_on
        self.is_on = self.mail.was_on = True
        if self.host.start_ns and not self._alarm.closed:
            since_ns = self._session.down_since_ns
            self.recorder.span(NO_SESSION, since_ns, since_ns, self.recorder.free_ns, "ok")
        self._session.up(self.recorder.free_ns)
        self._plan_look()
        if self._broke_at_log_on is not None:
            self.recorder.lost(self._broke_at_log_on)

    def _off(self) -> None:
        if self.is_on:
            self.is_on = False
            self.host.counts.users_on -= 1

    def _note_renumbering(self, raised: Exception) -> None:
        if isinstance(raised, InboxRenumbered):
            self.mail.inbox.renumber()
            self.recorder.arrived(1)

    def _session_failed(self, failure: TaskFailed) -> None:
        """End the session. It counts as lost unless the failure is our own."""
        if self.is_on:
            self._session.broke(self.now())
            self.host.counts.sessions_lost += failure.outcome != GENERATOR
            self._end_session()

    def _end_session(self) -> None:
        if self.is_on:  # otherwise it was lost earlier, and the time without a session has already begun
            self._session.down(self.now())
        self._off()
        self.listing_unannounced = False
        self._forget_session()

    def _forget_session(self) -> None:
        """Close the session; the next log-on lists the messages that it announced."""
        self._dropping = None
        self.mail.inbox.forget_announced()
        self._sync_due_ns = None
        self.mail.mailbox.abandon()
