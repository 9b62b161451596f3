"""One simulated user: does what is due, one step at a time, and records each task.

The problem: a plan says when each activity is due, but users do one thing at a time, the server may be slow or away,
and the generator itself may be late. So each task is timed twice: from its start, which charges the server for this
task only, and from its due time, which includes the queue ahead of it. The generator's share of the delay must be
known, because it is judged separately. `_perform` notes these instants for each task:

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

A failure ends a task. Most failures also end the session, because its state is unknown after a lost connection or a
silent server; a refusal (NO) or an SMTP failure does not. Without a session, users log on again with growing pauses,
and the next task waits. An error of our own in a driver's callback must not look like the server's: `_break_session`
notes it, the running task fails with it, and the loop's next turn ends the session.

Pauses are alarms, not timers: `wake` ends one early when mail is announced or the run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any

from loadsim.errors import GeneratorFailed, InboxRenumbered, PluginFailed, ServerLost, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.ports import Account, Driver, KeptLines
from loadsim.model.records import GENERATOR, NO_CLOCK, NO_SESSION, PROCESS_INBOX_SPAN, Arrival
from loadsim.model.terms import STRESS
from loadsim.scenario.workload import PROCESS_INBOX
from loadsim.users import tasks
from loadsim.users.activities import Step, UnderWay
from loadsim.users.alarm import Alarm
from loadsim.users.host import Host
from loadsim.users.inbox import Unread
from loadsim.users.mail import UserMail
from loadsim.users.pending import ClosedLoop, Ended, PendingActivities
from loadsim.users.session_state import DROPPED, ON_TIME, Late, SessionState, next_look_ns
from loadsim.users.waits import Waits

IDLE = "IDLE"
"""The name under which failures between tasks are counted."""

SYNC_AGAIN_S = 5.0
"""The pause before a user lists announced mail again if the server has refused."""


class User:
    """A user at work, who also observes their drivers (`ports.Observer`)."""

    def __init__(self, host: Host, account: Account, driver: Driver) -> None:
        self.host = host
        self.number = account.number
        self.now = host.now_ns  # ports.Observer: the instant, in nanoseconds
        self.mail = UserMail(host, account, driver, self, self._listed)
        self._recorder = host.recorder
        self.whose = (account.number, self.mail.profile.name, driver.name)  # as in records

        # Sleep, and what to do next.
        self._alarm = Alarm(host.now_ns)
        self.wake = self._alarm.wake
        model = ClosedLoop if host.workload.scenario.run.mode == STRESS else PendingActivities
        self._pending: PendingActivities | ClosedLoop = model(self.mail, self)
        self._sync_due_ns: int | None = None
        self.listing_unannounced = False  # the next SYNC looks for mail that the server has not announced

        # The session.
        self._session = SessionState()
        self._poll_ns = None if self.mail.poll_s is None else round(self.mail.poll_s * 1e9)  # None: sessions are kept
        self._look_due_ns: int | None = None  # from the first log-on
        self._in_view = False  # a view may be open, with its own session
        self._looked = False  # for new mail, before processing the Inbox
        self.is_on = False
        self._broke_at_log_on: Exception | None = None
        self._broken: GeneratorFailed | None = None  # an error of our own, which makes the running task fail
        self._dropping = False  # the session will end in the loop's next turn

        # The running task.
        self._task: asyncio.Task[None] | None = None
        self.performing: str | None = None
        self._cut = False
        self._waits = Waits(self.mail)
        self._free_ns = 0  # the end of the last task, or of the time without a session
        self._ended = Ended(0, "ok", ON_TIME, talked=False)  # the last step

        # The end.
        self.given_up = False  # set by the host: the user's state is broken
        self._closing = False  # no more work is begun

    # --- callbacks of drivers (ports.Observer) ------------------------------------------------------------------------

    @cached_property
    def lines(self) -> KeptLines:
        return self.host.lines(self.number)

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
            self._break_session(error, f"the end of {name}")

    def arrived(self, messages: int, at_ns: int | None = None) -> None:
        at_ns = self.now() if at_ns is None else at_ns
        try:
            self.mail.inbox.announce(messages, at_ns)
            if self._sync_due_ns is None:
                self._sync_due_ns = at_ns
                self.host.in_turn(self.wake)  # all members of a list get this at the same moment
        except Exception as error:  # noqa: BLE001 - as above
            self._break_session(error, "an announcement")

    def lost(self, failure: Exception) -> None:
        try:
            if isinstance(failure, PluginFailed):  # a wrong report from a plug-in, which a running task records
                if self.performing is None:
                    self.host.failed(self, IDLE, failure)
                self._drop_soon(failure)
                return
            if not isinstance(failure, TaskFailed):
                failure = self.host.internal_error(failure, IDLE, self.number)
            if self.performing == tasks.LOGON.name:
                self._broke_at_log_on = failure  # after the last answer: the log-on still succeeds
            elif self.is_on:
                self.host.failed(self, IDLE, failure)
                self._session_failed(failure)
                self.wake()
        except Exception as error:  # noqa: BLE001 - as above
            self._break_session(error, "the end of a session")

    def drop(self) -> None:
        """Abort the session's connection, if there is one, as if the network had failed; the session is lost."""
        if self.is_on and (self._poll_ns is None or self._in_view):
            self.lost(ServerLost(DROPPED))

    def _break_session(self, error: Exception, during: str) -> None:
        """End the session: an error of ours in a driver's callback has left its state unknown.

        The running task fails with this error.
        """
        failure = self.host.internal_error(error, during, self.number)
        self.host.failed(self, IDLE, failure)
        self._drop_soon(failure)

    def _drop_soon(self, failure: GeneratorFailed) -> None:
        """End the session in the loop's next turn, once the driver has returned, unless a failing task has ended it."""
        self._broken = self._broken or failure
        if not self._dropping:
            self._dropping = True
            asyncio.get_running_loop().call_soon(self.guarded, User._drop_session)

    def _drop_session(self) -> None:
        if self._dropping:  # otherwise this session has ended, and the next may have begun
            self._end_session()
            self.wake()

    # --- the day ------------------------------------------------------------------------------------------------------

    async def run(self, on_ns: int) -> None:
        """Log on at `on_ns`, work until the host calls `close`, log off."""
        self._task = asyncio.current_task()
        self._session.down(on_ns)
        try:
            while self.now() < on_ns and not self._closing:
                await self._alarm.until(on_ns)
            await self._log_on(on_ns)
            while not self._closing:
                try:
                    await self._work()
                except asyncio.CancelledError:
                    if not self._was_only_cut_off():
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
        self.given_up = self._closing = True
        self.host.failed(self, IDLE, failure)
        self.host.user_given_up()
        self.performing = None
        self.listing_unannounced = False
        self._off()
        self.wake()

    def plan_day(self) -> None:
        """Make the plan. This happens before the common start, as it takes a while for thousands of users."""
        self._pending.plan()

    def begin_day(self) -> None:
        """Begin the plan at the common start, from which its due times count."""
        self._free_ns = self.host.start_ns
        self._pending.begin()
        self.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no more planned tasks; record those due before `end_ns` as skipped."""
        self._pending.end(end_ns)
        self.wake()

    def skipped(self, step: Step, due_ns: int) -> None:
        self._record(step.task.name, (due_ns, None, None), "skipped")

    def activity_done(self, activity: UnderWay, ended_ns: int | None) -> None:
        """Record the processing of an Inbox that had mail to read; `ended_ns` is None if it was not completed."""
        if activity.kind == PROCESS_INBOX:
            ended_ns = ended_ns if activity.outcome == "ok" else None
            outcome = activity.outcome if activity.outcome in ("ok", "skipped") else "unfinished"
            self._record_span(PROCESS_INBOX_SPAN, activity.due_ns, activity.started_ns, ended_ns, outcome)

    def _listed(self, unread: Sequence[Unread]) -> None:
        self._pending.shown(unread)

    def cut_off(self) -> None:
        """Cancel the running task, which is recorded as unfinished; the user carries on with a new session."""
        if self._task is not None:
            self._cut = True
            self._task.cancel()

    def _was_only_cut_off(self) -> bool:
        cut, self._cut = self._cut, False
        return cut and self._task is not None and self._task.uncancel() == 0

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
        """Record mail that the user stored but never listed: the server was slow, silent, or away."""
        if not self.given_up:
            self.mail.stored.end()

    def close(self) -> None:
        self._closing = True
        if not self.is_on and self.host.start_ns and not self.given_up:
            since_ns = self._session.down_since_ns
            self._record_span(NO_SESSION, since_ns, since_ns, None, "unfinished")
        self.wake()

    async def _work(self) -> None:
        """Do what is due, one thing at a time, and watch for mail in between, until the host calls `close`."""
        while not self._closing:
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
            elif self._in_view:
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
        self._pending.mail_shown(self._free_ns)
        if (self.mail.inbox.announced or self.listing_unannounced) and self._sync_due_ns is None and self.is_on:
            self._sync_due_ns = self.now() + round(SYNC_AGAIN_S * 1e9)

    async def _log_on(self, due_ns: int) -> None:
        """Log on; try again with growing pauses until it succeeds or the host calls `close`."""
        while not self._closing:
            failed = self._session.failed_log_ons
            if failed:
                jitter = draw(self.mail.workload.seed, self.number, "back-off", failed)
                due_ns = self.now() + self._session.back_off_ns(jitter)
                while self.now() < due_ns and not self._closing:
                    await self._alarm.until(due_ns)
                if self._closing:
                    return
            self._broke_at_log_on = None
            queues = self.host.log_on_slots.locked()
            async with self.host.log_on_slots:
                if self._closing:
                    return
                on = await self._perform(self.now() if queues else due_ns, Step(tasks.LOGON, None))
            if on:
                self._on()
                return
            self._session.failed_log_ons += 1
            self._forget_session()

    async def _first_sync(self) -> None:
        """Copy the mailbox, as a new program does before anything else; again if the session is lost."""
        await self._perform(self._free_ns, Step(tasks.FIRST_SYNC, self.mail.first_sync))
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
            failure = self._failure(error, IDLE)
            self.host.failed(self, IDLE, failure)
            if failure.outcome != "refused" or self._poll_ns is not None:
                self._session_failed(failure)
        self._free_ns = self.now()

    async def _perform(self, due_ns: int, step: Step, ready_ns: int | None = None, inherited_ns: Late = ON_TIME) -> Any:
        """Do one step and record it. Raises only the cancellation at the end of the run.

        The step was due at `due_ns` and could begin at `ready_ns` (None: at `due_ns`). In between, it waited for
        earlier steps, for the causes in `inherited_ns`.
        """
        # Compute its lateness, by cause.
        task, about = step.task, step.about
        began_ns = self.now()
        busy_ns, down_ns, generator_ns = inherited_ns
        earlier_ns = generator_ns
        ready_ns = due_ns if ready_ns is None else ready_ns
        if began_ns != ready_ns:
            own_ns = self._session.lateness_ns(ready_ns, began_ns, self._free_ns)
            busy_ns, down_ns, generator_ns = busy_ns + own_ns[0], down_ns + own_ns[1], generator_ns + own_ns[2]
        # Do it.
        composing_ns = 0
        self._waits.begin()
        self.mail.watching = False
        if not self._dropping:
            self._broken = None
        self.performing = task.name
        self._in_view = self._poll_ns is not None
        submitting = False
        ended_ns: int | None = None
        result, outcome, error = None, "unfinished", ""
        try:
            if task.fetch is not None:
                about = await task.fetch(self.mail, about)
            if task.compose is not None:
                composing_ns = self.now()
                about = task.compose(self.mail, about)
                composing_ns = self.now() - composing_ns
            submitting = task.submits
            done = await task.act(self.mail, about)
            if self._broken is not None:
                raise self._broken
            result = done
            # The task ends with its last answer. The loop may resume us later, if others were answered just then.
            answered_ns = self.mail.answered_ns
            ended_ns = answered_ns if answered_ns >= began_ns + composing_ns else self.now()
            outcome = "ok"
        except Exception as raised:  # noqa: BLE001 - an error of ours ends only this task of this user
            ended_ns = self.now()
            failure = self._failure(raised, task.name)
            outcome, error = failure.outcome, self.host.failed(self, task.name, failure)
            if self._dropping or (outcome != "refused" and not (submitting and isinstance(raised, TaskFailed))):
                self._session_failed(failure)
        finally:
            # Record it, and keep what the next step needs.
            self.performing = None
            between_ns = self._waits.between_ns(task.name, began_ns, ended_ns, composing_ns)
            started_ns, generator_ns = began_ns + between_ns, generator_ns + between_ns
            if outcome == "unfinished" and isinstance(self._broken, PluginFailed):
                self.host.failed(self, IDLE, self._broken)
            self._free_ns = ended_ns or 0
            late_ns = (busy_ns, down_ns, generator_ns)
            clock = NO_CLOCK if ended_ns is None else self._waits.clock_of(task.name, ended_ns)
            instants, parts = (due_ns, started_ns, ended_ns), (between_ns, generator_ns - earlier_ns)
            self._record(task.name, instants, outcome, error, late_ns, parts, self._waits.moved_bytes, clock)
            self.mail.compare_shown()
            ended = self.now() if ended_ns is None else ended_ns
            late_ns = (busy_ns + ended - started_ns, down_ns, generator_ns)
            self._ended = Ended(ended, outcome, late_ns, self._waits.moved_bytes > 0)
        return result

    def _on(self) -> None:
        self.host.counts.users_on += 1
        self.host.counts.users_ready += not (self.mail.was_on or self.mail.uncopied)
        self.host.counts.sessions_restored += self.mail.was_on
        self.is_on = self.mail.was_on = True
        if self.host.start_ns and not self._closing:
            since_ns = self._session.down_since_ns
            self._record_span(NO_SESSION, since_ns, since_ns, self._free_ns, "ok")
        self._session.up(self._free_ns)
        self._plan_look()
        if self._broke_at_log_on is not None:
            self.lost(self._broke_at_log_on)

    def _off(self) -> None:
        if self.is_on:
            self.is_on = False
            self.host.counts.users_on -= 1

    def _failure(self, raised: Exception, task: str) -> TaskFailed:
        """Return the failure for an exception: ours, if an error of ours ended the session (`_break_session`)."""
        if not isinstance(raised, TaskFailed):
            return self.host.internal_error(raised, task, self.number)
        if isinstance(raised, InboxRenumbered):
            self.mail.inbox.renumber()
            self.arrived(1)
        return self._broken or raised

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
        self._dropping = False
        self.mail.inbox.forget_announced()
        self._sync_due_ns = None
        self.mail.mailbox.abandon()

    def _record(
        self,
        task: str,
        instants_ns: tuple[int, int | None, int | None],
        outcome: str,
        error: str = "",
        late_ns: Late = ON_TIME,
        generators_ns: tuple[int, int] = (0, 0),
        moved_bytes: int = 0,
        clock: str = NO_CLOCK,
    ) -> None:
        """Record a task: due, started, ended; `generators_ns` are the generator's time between commands and its own."""
        busy_s, down_s, generator_s = late_ns[0] * 1e-9, late_ns[1] * 1e-9, late_ns[2] * 1e-9
        between_s, own_s = generators_ns[0] * 1e-9, generators_ns[1] * 1e-9
        late_s = busy_s, down_s, generator_s, between_s, own_s
        self._recorder.task((task, *self.whose, *instants_ns, *late_s, outcome, error, moved_bytes, clock))
        _, started_ns, ended_ns = instants_ns
        self.host.count_task(task, outcome, (ended_ns or 0) - (started_ns or 0), (busy_s, down_s, own_s), clock)

    def _record_span(self, name: str, due_ns: int, started_ns: int | None, ended_ns: int | None, outcome: str) -> None:
        """Record a span of several tasks (`model.records.SPANS`)."""
        instants = (due_ns, started_ns, ended_ns)
        self._recorder.task((name, *self.whose, *instants, 0.0, 0.0, 0.0, 0.0, 0.0, outcome, "", 0, NO_CLOCK))
