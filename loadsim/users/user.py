"""One simulated user: what is due (`agenda`), one thing at a time, and a record of how each went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loadsim.errors import GeneratorFailed, ServerRefused, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import INBOX, Account, Driver, Header
from loadsim.model.records import GENERATOR, NO_SESSION, MailRecord, TaskRecord
from loadsim.model.records import PROCESS_INBOX as PROCESS_INBOX_SPAN
from loadsim.model.terms import STRESS
from loadsim.model.workload import PROCESS_INBOX, own_folders
from loadsim.users import tasks
from loadsim.users.activities import Step, UnderWay
from loadsim.users.host import Host
from loadsim.users.inbox import Inbox
from loadsim.users.pending import ClosedLoop, Ended, Pace, PendingActivities
from loadsim.users.session_state import ON_TIME, Late, SessionState

IDLE = "IDLE"
"""The name under which failures between tasks are counted."""

SYNC_AGAIN_S = 5.0
"""When to ask again for announced mail that the server refused to show."""

new_record = tuple.__new__
"""Makes a named tuple in half the time of a call of its class."""

HEADERS_A_TURN = 500
"""How many messages of a list are taken in before the loop's other work has its turn; about a millisecond."""


class User:
    """A user at work. Also the observer of his own drivers: it holds the clock, they have none."""

    __slots__ = (
        "_agenda",
        "_alarm",
        "_alarm_ns",
        "_answered_ns",
        "_broke_at_log_on",
        "_broken",
        "_closing",
        "_cut",
        "_ended",
        "_free_ns",
        "_life",
        "_moved_bytes",
        "_presence",
        "_recorder",
        "_sync_due_ns",
        "_waiter",
        "_watching",
        "account",
        "calendar",
        "contents",
        "domain",
        "folders",
        "given_up",
        "host",
        "inbox",
        "is_on",
        "looking",
        "mailbox",
        "now",
        "number",
        "performing",
        "profile",
        "profile_name",
        "protocol",
        "run_id",
        "submission",
        "was_on",
        "workload",
    )

    def __init__(self, host: Host, account: Account, module: Driver) -> None:
        self.host = host
        self.account = account
        self.number = account.number
        self.workload = host.workload
        self.contents = host.contents
        self.run_id = host.run_id
        self.domain = host.workload.scenario.domain
        self.now = host.now_ns  # ports.Observer: the instant, in nanoseconds
        self._recorder = host.recorder
        group = host.workload.population.group(account.number)
        self.profile = group.profile
        self.profile_name = group.profile.name
        self.protocol = module.name
        session = module.session(account, self)
        self.mailbox, self.submission, self.calendar = session.mailbox, session.submission, session.calendar

        self.folders: Sequence[str] = ()
        self.inbox = Inbox(self.run_id, len(host.workload.population), self.profile.inbox_limit)
        self.was_on = False
        self.is_on = False

        self._agenda: Pace = (ClosedLoop if host.workload.scenario.run.mode == STRESS else PendingActivities)(self)
        self._presence = SessionState()
        self._sync_due_ns: int | None = None
        self._life: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ns: int | None = None  # when it rings
        self._watching = False
        self._cut = False
        self._broken: GeneratorFailed | None = None  # our own failure, by which the running task fails
        self.given_up = False  # by the engine: our own state is broken
        self._closing = False  # nothing is begun any more
        self.performing: str | None = None
        self.looking = False  # whether the next SYNC is for mail that nobody has announced
        self._answered_ns = 0  # when the last command ended
        self._free_ns = 0  # when the last task ended, or the session was up again
        self._broke_at_log_on: Exception | None = None
        self._ended = Ended(0, "ok", ON_TIME, talked=False)  # how the last step did
        self._moved_bytes = 0

    # What tasks need to know and to tell.

    def wall_clock_us(self) -> int:
        """Wall-clock microseconds since 1970, as the run's one clock has it."""
        return self.host.wall_clock_us()

    def folders_found(self, names: Iterable[str]) -> None:
        """The mailbox has these folders; those that the profile made are browsed and moved to."""
        existing = set(names)
        own = own_folders(self.profile)
        self.folders = own if existing.issuperset(own) else tuple(name for name in own if name in existing)

    def random_folder(self, stream: str, header: Header) -> str:
        """The folder where a message goes to: a function of the message."""
        if not self.folders:
            raise ServerRefused("no folder to put mail into")
        name = header.evidence.id if header.evidence else ""
        return self.folders[self.workload.choose(self.number, stream + ".folder", name, len(self.folders))]

    def individuals(self, addresses: Iterable[str]) -> list[int]:
        """The users among the addressees of a message; lists and strangers are left out."""
        found = (self.workload.population.number(address) for address in addresses)
        return [user for user in found if user is not None]

    async def take_in(self, headers: Sequence[Header], *, announced: int | None) -> None:
        """New messages of the Inbox were listed; see `Inbox.stamps`. However many they are, others have their turns."""
        event = "found" if announced is None else "seen"
        stamps = self.inbox.stamps(len(headers), announced, self.now())
        for at in range(0, len(headers), HEADERS_A_TURN):
            if at:
                await asyncio.sleep(0)
            portion, unread = slice(at, at + HEADERS_A_TURN), len(self.inbox.unread)
            self._take_in(event, self.inbox.take_in(headers[portion], stamps[portion]))
            self._agenda.shown(self.inbox.unread[unread:])

    def _take_in(self, event: str, new: Iterable[tuple[MessageTag, int]]) -> None:
        for evidence, at_ns in new:
            self._note(event, evidence.id, self.number, evidence.sender, INBOX, at_ns)
            self.host.mail_seen(evidence.id, self.number, evidence.sender)

    def read_note_delay_ms(self, header: Header) -> float:
        """How long the user looks at a message before he opens the next."""
        delay_ms = self.profile.process_inbox.read_note_delay_ms
        if delay_ms.min == delay_ms.max:
            return delay_ms.min
        name = header.evidence.id if header.evidence else ""
        return delay_ms.at(draw(self.workload.seed, self.number, "read note delay", name))

    def note(self, event: str, header: Header, folder: str) -> None:
        """Something happened to a message that was received."""
        evidence = header.evidence
        if evidence is not None:
            self._note(event, evidence.id, self.number, evidence.sender, folder, self.now())

    def note_sent(self, event: str, message_id: str, folder: str) -> None:
        """Something happened to a message that this user made."""
        self._note(event, message_id, self.number, self.number, folder, self.now())

    def accepted(self, message_id: str, reached: Iterable[int]) -> None:
        """The server took a message for these users."""
        at_ns = self.now()
        for user in reached:
            self._note("accepted", message_id, user, self.number, INBOX, at_ns)
            self.host.mail_accepted(message_id, user)

    def _note(self, event: str, message_id: str, user: int, sender: int, folder: str, at_ns: int) -> None:
        self._recorder.mail(new_record(MailRecord, (event, message_id, user, sender, at_ns, folder)))

    async def watch(self) -> None:
        """Ask the server to announce new mail while nothing else is done."""
        await self.mailbox.watch()
        self._watching = True

    # What drivers tell (ports.Observer).

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        """A protocol command has ended."""
        self._moved_bytes += sent_bytes + received_bytes
        self._answered_ns = now_ns = self.now()
        try:
            self._recorder.command(name, self.number, since, now_ns, outcome, sent_bytes, received_bytes)
        except Exception as error:  # noqa: BLE001 - what escapes here would end the connection, as if the server had
            self._break_session(error, f"the end of {name}")

    def arrived(self, messages: int) -> None:
        """The server announced new messages."""
        now_ns = self.now()
        try:
            self.inbox.announce(messages, now_ns)
            if self._sync_due_ns is None:
                self._sync_due_ns = now_ns
                self.host.in_turn(self.wake)  # all members of a list get this at the same moment
        except Exception as error:  # noqa: BLE001 - as above
            self._break_session(error, "an announcement")

    def lost(self, failure: Exception) -> None:
        """The session broke while nothing was being done."""
        try:
            if not isinstance(failure, TaskFailed):
                failure = self.host.internal_error(failure, IDLE, self.number)
            if self.performing == tasks.LOGON.name:
                self._broke_at_log_on = failure  # behind its last answer: the log-on succeeds, and is in vain
            elif self.is_on:
                self.host.failed(self.number, IDLE, failure)
                self._session_failed(failure)
                self.wake()
        except Exception as error:  # noqa: BLE001 - as above
            self._break_session(error, "the end of a session")

    def _break_session(self, error: Exception, during: str) -> None:
        """End the session after an error of ours in a driver's callback: the session's state is no longer known.

        The running task fails by it. The session ends in the next turn of the loop, when the driver has returned.
        """
        self._broken = self.host.internal_error(error, during, self.number)
        self.host.failed(self.number, IDLE, self._broken)
        asyncio.get_running_loop().call_soon(self.guarded, User._drop_session)

    def _drop_session(self) -> None:
        self._end_session()
        self.wake()

    # The life of a user.

    async def run(self, on_ns: int) -> None:
        """Log on at `on_ns`, work from the common start until the engine closes, log off."""
        self._life = asyncio.current_task()
        self._presence.down(on_ns)
        try:
            while self.now() < on_ns and not self._closing:
                await self._until(on_ns)
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
        except Exception as error:  # noqa: BLE001 - it ends this user, and no other
            self.give_up(error)
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self.guarded(lambda user: user.mailbox.abandon())

    def guarded(self, act: Callable[[User], None]) -> None:
        """Call `act` with the user; an error of ours in it ends this user, and no other."""
        try:
            act(self)
        except Exception as error:  # noqa: BLE001
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Stop this user: an error outside of any task means that their state is broken.

        Tasks that are still in the agenda are recorded as skipped at the end.
        """
        failure = self.host.internal_error(error, "a user's own work", self.number)
        if self.given_up:
            return
        self.given_up = self._closing = True
        self.host.failed(self.number, IDLE, failure)
        self.host.user_given_up()
        self.performing = None
        self.looking = False
        self._off()
        self.wake()

    def plan_day(self) -> None:
        """Make the plan, which may take a while for thousands of users, before the common start."""
        self._agenda.plan()

    def begin_day(self) -> None:
        """The common start has come: the plan's due times count from now."""
        self._free_ns = self.host.start_ns
        self._agenda.begin()
        self.wake()

    def end_day(self, end_ns: int) -> None:
        """Begin no planned task any more; those that were due before `end_ns` are recorded as skipped."""
        self._agenda.end(end_ns)
        self.wake()

    def skipped(self, step: Step, due_ns: int) -> None:
        """Record a step that the end of the run left undone."""
        self._record(step.task.name, due_ns, None, None, "skipped", "")

    def activity_done(self, activity: UnderWay, ended_ns: int | None) -> None:
        """Record a processing of the Inbox that had something to read; None: it did not come to its end."""
        if activity.kind == PROCESS_INBOX:
            ended_ns = ended_ns if activity.outcome == "ok" else None
            outcome = activity.outcome if activity.outcome in ("ok", "skipped") else "unfinished"
            self._record_span(PROCESS_INBOX_SPAN, activity.due_ns, activity.started_ns, ended_ns, outcome)

    def cut_off(self) -> None:
        """End the task that is running: it stays unfinished, and the user goes on with a new session."""
        if self._life is not None:
            self._cut = True
            self._life.cancel()

    def _was_only_cut_off(self) -> bool:
        cut, self._cut = self._cut, False
        return cut and self._life is not None and self._life.uncancel() == 0

    def look(self) -> bool:
        """Look into the Inbox unasked, if there is a session; `looking` until that is done."""
        self.looking = self.is_on
        if self.looking:
            self._sync_due_ns = self.now()
            self.wake()
        return self.looking

    def close(self) -> None:
        """Do nothing any more but log off."""
        self._closing = True
        if not self.is_on and self.host.start_ns and not self.given_up:
            since_ns = self._presence.down_since_ns
            self._record_span(NO_SESSION, since_ns, since_ns, None, "unfinished")
        self.wake()

    def wake(self) -> None:
        """Look at the agenda again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _work(self) -> None:
        """Do what is due, one thing after the other, and watch for mail meanwhile, until the engine closes."""
        while not self._closing:
            now_ns = self.now()
            next_ns = self._agenda.next_ns
            sync_due_ns = self._sync_due_ns
            if sync_due_ns is not None and next_ns is not None and next_ns < sync_due_ns:
                sync_due_ns = None
            if not self.is_on:
                await self._log_on(now_ns)
            elif sync_due_ns is not None and sync_due_ns <= now_ns:
                await self._sync(sync_due_ns)
            elif next_ns is not None and next_ns <= now_ns:
                await self._do_next()
            elif not self._watching:
                await self._watch()
            else:
                await self._until(next_ns if sync_due_ns is None else sync_due_ns)

    async def _do_next(self) -> None:
        """Do what is due next; the agenda knows what follows, also from a step that the end of the run cuts off."""
        agenda = self._agenda
        pending = agenda.take()
        if pending.step is None:
            agenda.done()
            return
        if pending.activity.started_ns is None:
            pending.activity.started_ns = self.now()
        result = None
        try:
            result = await self._perform(pending.due_ns, pending.step, pending.ready_ns, pending.late_ns)
        finally:
            agenda.go_on(pending, result, self._ended)

    async def _sync(self, due_ns: int) -> None:
        self._sync_due_ns = None
        await self._perform(due_ns, Step(tasks.SYNC, self.looking))
        self.looking = False
        self._agenda.mail_shown(self._free_ns)
        if self.inbox.announced and self._sync_due_ns is None and self.is_on:
            self._sync_due_ns = self.now() + round(SYNC_AGAIN_S * 1e9)

    async def _log_on(self, due_ns: int) -> None:
        """Log on, trying again with growing pauses until it succeeds or the run closes."""
        while not self._closing:
            failed = self._presence.failed_log_ons
            if failed:
                jitter = draw(self.workload.seed, self.number, "back-off", failed)
                due_ns = self.now() + self._presence.back_off_ns(jitter)
                while self.now() < due_ns and not self._closing:
                    await self._until(due_ns)
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
            self._presence.failed_log_ons += 1
            self._forget_session()

    async def _watch(self) -> None:
        self._watching = True  # also where it is refused: to ask again at once would not help
        try:
            await self.mailbox.watch()
        except Exception as error:  # noqa: BLE001 - it ends this session, and nothing else
            failure = self._failure(error, IDLE)
            self.host.failed(self.number, IDLE, failure)
            if failure.outcome != "refused":
                self._session_failed(failure)
        self._free_ns = self.now()

    def _until(self, due_ns: int | None) -> asyncio.Future[None]:
        """What is over at this instant (None: never), or when the user is woken."""
        loop = asyncio.get_running_loop()
        if due_ns != self._alarm_ns:  # a user who is woken by mail sleeps on until the same instant
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_ns = due_ns
            self._alarm = None
            if due_ns is not None:
                left_ns = max(0, due_ns - self.now())
                self._alarm = loop.call_later(left_ns * 1e-9, self._ring)
        self._waiter = waiter = loop.create_future()
        return waiter

    def _ring(self) -> None:
        self._alarm = self._alarm_ns = None
        self.wake()

    async def _perform(self, due_ns: int, step: Step, ready_ns: int | None = None, inherited_ns: Late = ON_TIME) -> Any:
        """Do one step and record how it went; only the end of the run escapes.

        It was due at `due_ns` and could begin at `ready_ns` (None: at once). In between it waited for the steps before
        it, by the causes in `inherited_ns`.
        """
        task, about = step.task, step.about
        began_ns = started_ns = self.now()
        busy_ns, down_ns, generator_ns = inherited_ns
        ready_ns = due_ns if ready_ns is None else ready_ns
        if began_ns != ready_ns:
            own_ns = self._presence.lateness_ns(ready_ns, began_ns, self._free_ns)
            busy_ns, down_ns, generator_ns = busy_ns + own_ns[0], down_ns + own_ns[1], generator_ns + own_ns[2]
        self._moved_bytes = 0
        self._watching = False
        self._broken = None
        self.performing = task.name
        submitting = False
        ended_ns: int | None = None
        result, outcome, error = None, "unfinished", ""
        try:
            if task.fetch is not None:
                about = await task.fetch(self, about)
            if task.compose is not None:
                fetched_ns = max(self._answered_ns, began_ns) if self._moved_bytes else began_ns
                about = task.compose(self, about)
                started_ns = self.now() - (fetched_ns - began_ns)  # as if composing had come first: it is our own time
                generator_ns += started_ns - began_ns
            submitting = task.submits
            result = await task.act(self, about)
            # With its last answer, not when the loop comes to us: others may have been answered in the same moment.
            ended_ns = self._answered_ns if self._answered_ns >= started_ns else self.now()
            outcome = "ok"
        except Exception as raised:  # noqa: BLE001 - an error of ours ends this task of this user, and nothing else
            ended_ns = self.now()
            failure = self._failure(raised, task.name)
            outcome, error = failure.outcome, self.host.failed(self.number, task.name, failure)
            if outcome != "refused" and not (submitting and isinstance(raised, TaskFailed)):
                self._session_failed(failure)
        finally:
            self.performing = None
            self._free_ns = ended_ns or 0
            self._record(
                task.name,
                due_ns,
                started_ns,
                ended_ns,
                outcome,
                error,
                (busy_ns, down_ns, generator_ns),
                self._moved_bytes,
            )
            ended = self.now() if ended_ns is None else ended_ns
            late_ns = (busy_ns + ended - started_ns, down_ns, generator_ns)
            self._ended = Ended(ended, outcome, late_ns, self._moved_bytes > 0)
        return result

    def _on(self) -> None:
        self.host.counts.users_on += 1
        self.host.counts.users_ever_on += not self.was_on
        self.host.counts.sessions_restored += self.was_on
        self.is_on = self.was_on = True
        if self.host.start_ns and not self._closing:
            since_ns = self._presence.down_since_ns
            self._record_span(NO_SESSION, since_ns, since_ns, self._free_ns, "ok")
        self._presence.up(self._free_ns)
        if self._broke_at_log_on is not None:
            self.lost(self._broke_at_log_on)

    def _off(self) -> None:
        if self.is_on:
            self.is_on = False
            self.host.counts.users_on -= 1

    def _failure(self, raised: Exception, task: str) -> TaskFailed:
        """Return the failure for an exception; our own, if we ended the session (`_break_session`)."""
        if not isinstance(raised, TaskFailed):
            return self.host.internal_error(raised, task, self.number)
        return self._broken or raised

    def _session_failed(self, failure: TaskFailed) -> None:
        """End the session. The server lost it, unless the failure is our own."""
        if self.is_on:
            self._presence.broke(self.now())
            self.host.counts.sessions_lost += failure.outcome != GENERATOR
            self._end_session()

    def _end_session(self) -> None:
        if self.is_on:  # else it was lost before, and since then
            self._presence.down(self.now())
        self._off()
        self.looking = False
        self._forget_session()

    def _forget_session(self) -> None:
        """What the server announced in it is found after the next log-on."""
        self.inbox.forget_announced()
        self._sync_due_ns = None
        self.mailbox.abandon()

    def _record(
        self,
        task: str,
        due_ns: int,
        started_ns: int | None,
        ended_ns: int | None,
        outcome: str,
        error: str,
        late_ns: Late = ON_TIME,
        moved_bytes: int = 0,
    ) -> None:
        """Write a task to the log, and count it."""
        busy_s, down_s, generator_s = late_s = (late_ns[0] * 1e-9, late_ns[1] * 1e-9, late_ns[2] * 1e-9)
        number, profile, protocol = self.number, self.profile_name, self.protocol
        # fmt: off
        self._recorder.task(new_record(TaskRecord, (
            task, number, profile, protocol, due_ns, started_ns, ended_ns, busy_s, down_s, generator_s,
            outcome, error, moved_bytes,
        )))
        # fmt: on
        self.host.count_task(task, outcome, (ended_ns or 0) - (started_ns or 0), late_s)

    def _record_span(self, name: str, due_ns: int, started_ns: int | None, ended_ns: int | None, outcome: str) -> None:
        """Write a record that spans tasks (`model.records.SPANS`) to the log."""
        whose = (self.number, self.profile_name, self.protocol)
        when = (due_ns, started_ns, ended_ns)
        self._recorder.task(TaskRecord(name, *whose, *when, 0.0, 0.0, 0.0, outcome, error="", moved_bytes=0))
