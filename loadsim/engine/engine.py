"""An engine: it runs users as coroutines from a common start to a common end.

Its phases are the run's: log-on (staggered over the ramp-up), work (from the common start, t = 0), finish (running
tasks may end, on every engine), drain (mail in transit may arrive), log-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

from loadsim.engine.control import Control, StandaloneControl
from loadsim.engine.counters import Counters, InternalErrors, MailInTransit
from loadsim.engine.event_log import Events
from loadsim.engine.fair_queue import FairQueue, at_once
from loadsim.engine.health import Health
from loadsim.engine.run_log import LogFlusher, RunLog
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.content.compose import Contents
from loadsim.model.ports import NOTHING_APART, Account, Clock, Driver, DriverOfSenders, KeptLines, PortsApart
from loadsim.model.records import GENERATOR
from loadsim.protocols.error_mapping import internal, own_failure
from loadsim.protocols.lines import KEEPING_USERS, KEPT_LINES, NO_LINES, Trace, excerpt, text_of
from loadsim.scenario.day_shape import DayShape
from loadsim.scenario.workload import Workload
from loadsim.timinglog.records import GIVEN_UP
from loadsim.users.activities import UnderWay, plan
from loadsim.users.assistant import Assistant
from loadsim.users.companion import COMPANION, Companion
from loadsim.users.host import SessionCounts, TaskObserver
from loadsim.users.mail import UserMail
from loadsim.users.sender import Sender
from loadsim.users.task_recorder import IDLE
from loadsim.users.tasks import Task
from loadsim.users.user import User

LOG_ON_LIMIT_S = 60.0
"""The longest time after the ramp-up that the common start waits for one more user to log on, or end a first sync."""

LOG_ONS_AT_ONCE = 64
"""The most users that log on at the same time, so that a slow server gets no more requests than it can answer. After
the common start there is no limit: when a server comes back, nothing spreads the log-ons but the users' pauses."""

LOG_OFF_LIMIT_S = 30.0
"""The longest time that the end of the run waits for one more user to log off."""

LOG_OFFS_AT_ONCE = 50

BEAT_NS = 10**9
"""The time between two samples of the engine itself."""

POLL_S = 0.05
"""The time between two checks for the end of a phase that has no fixed length."""

COLLECTOR = (50, 2, 1_000_000_000)
"""Thresholds of Python's garbage collector while users are on. It scans up to 150 young objects at a time, which takes
a few tenths of a millisecond (up to 4 ms with 900). Older objects are never scanned: tasks leave no cycles."""

BETWEEN_TASKS = (None, "LOGON", "SYNC")
"""The values of `TaskRecorder.performing` while no planned task runs."""

PLANNED_AT_ONCE = 100
"""The number of plans made in one turn of the event loop; between turns, the engine answers and sends heartbeats."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """An engine's load: those users of a workload that have these numbers.

    `drivers` has one driver for each combination of protocol and programs among these users, `companions` one for each
    of their companions that watch, and `assistants` one for each kind of calls, all by `Group.driver_name`.
    `plugin_tasks` has the plug-ins' tasks by name. `plan` returns a user's activities; if its second argument is true,
    the plan is endless. Outside `senders` submit by the driver `outside`.
    """

    workload: Workload
    users: Collection[int]
    drivers: Mapping[str, Driver]
    contents: Contents
    run_id: str
    companions: Mapping[str, Sequence[Driver]] = field(default_factory=dict)
    assistants: Mapping[str, Mapping[str, Driver]] = field(default_factory=dict)
    plugin_tasks: Mapping[str, Task] = field(default_factory=dict)
    plan: Callable[[UserMail, bool], Iterator[UnderWay]] = plan
    apart: PortsApart = NOTHING_APART
    senders: Collection[int] = ()
    outside: DriverOfSenders | None = None


@dataclass(frozen=True, slots=True)
class EngineRecords:
    """An engine's recorder and event log.

    `watch` receives a snapshot each second, and `failed` each failure, with the task's name.
    """

    recorder: RunLog
    events: Events
    watch: Callable[[LiveSnapshot], None] = lambda _: None
    failed: Callable[[str, TaskFailed], object] = lambda *_: None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """An engine's settings. `wall_clock_us` is the wall-clock time now, in microseconds since 1970.

    `control` keeps the engine in step with the run's other engines; None if there are none. An engine that
    `owns_process` tunes its garbage collector, records errors that nothing awaits, and samples its own health each
    second. If `strict`, an error in loadsim ends the engine, not only the task or user in which it occurs. If
    `writes_aside`, a thread writes the log.
    """

    clock: Clock
    wall_clock_us: int = 0
    control: Control | None = None
    owns_process: bool = True
    strict: bool = False
    writes_aside: bool = False


class Engine:
    """Runs users, and is their host (`users.host.Host`)."""

    def __init__(self, load: EngineLoad, records: EngineRecords, options: EngineOptions) -> None:
        # What it runs, and how.
        self.workload = workload = load.workload
        self.contents = load.contents
        self.apart = load.apart
        self.plugin_tasks = load.plugin_tasks
        self.plan = load.plan
        self.run_id = load.run_id
        self._own = frozenset(load.users)
        self._keeping = frozenset(islice(load.users, KEEPING_USERS))
        self._limits = workload.scenario.limits
        self._options = options
        self.now_ns = options.clock.now_ns
        self._epoch_ns = self.now_ns()
        self._control = options.control or StandaloneControl(options.clock)
        self.log_on_slots = asyncio.Semaphore(LOG_ONS_AT_ONCE)
        self.log_off_slots = asyncio.Semaphore(LOG_OFFS_AT_ONCE)
        self.in_turn = FairQueue().enter if options.owns_process else at_once
        # Records and counters.
        self.recorder = records.recorder
        self._events = records.events
        self._watch = records.watch
        self._note_failure = records.failed
        self._flusher = LogFlusher(self.recorder, self._events, aside=options.writes_aside)
        self.counts = SessionCounts()
        self._counters = Counters()
        self.count_task = self._counters.task
        self._in_transit = MailInTransit()
        self._internal_errors = InternalErrors(self._events, self.recorder)
        self.user_given_up = self._internal_errors.user_given_up
        self._health = Health(options.clock, self._counters.lateness)
        # Phase.
        self.start_ns = 0
        self._phase = "log-on"
        self._stopping = asyncio.Event()
        self._cutting = asyncio.Event()
        self._given_up: str | None = None  # why the engine ended without the others
        # Users.
        self._events.seconds = self._seconds
        self.users = [
            User(self, workload.scenario.account(number), load.drivers[workload.population.group(number).driver_name])
            for number in load.users
        ]
        self._companions = [
            Companion(self, user.mail.account, driver, which, user.mail.stored)
            for user in self.users
            for which, driver in enumerate(
                load.companions.get(workload.population.group(user.number).driver_name, ()), 1
            )
        ]
        self._others: list[Assistant | Sender] = [
            Assistant(self, user.mail, call, driver, user.recorder.whose)
            for user in self.users
            for call, driver in load.assistants.get(workload.population.group(user.number).driver_name, {}).items()
        ]
        if load.outside is not None:
            driver_name = workload.scenario.topology[0].driver_name
            self._others += [Sender(self, number, driver_name, load.outside) for number in load.senders]

    # --- services for users (users.host.Host) -------------------------------------------------------------------------

    def wall_clock_us(self) -> int:
        """Return wall-clock microseconds since 1970: read once, then advanced by the run's clock."""
        return self._wall_us(self.now_ns())

    def _wall_us(self, at_ns: int) -> int:
        return self._options.wall_clock_us + (at_ns - self._epoch_ns) // 1000

    @property
    def outstanding(self) -> int:
        """The number of accepted messages that their recipients have not seen, counted once per recipient."""
        return len(self._in_transit)

    def mail_accepted(self, message: str, user: int, sender: int | None = None) -> None:
        """Note that the server accepted a message for a user, of this engine or of another."""
        if user in self._own:
            self._in_transit.accepted(message, user, sender)
        else:
            self._control.accepted_elsewhere(message, user)

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """Note that the server accepted these messages from other engines' users, each for one of ours."""
        for message, user in messages:
            self.mail_accepted(message, user)

    def mail_seen(self, message: str, user: int, sender: int) -> None:
        self._in_transit.seen(message, user, sender)

    def lines(self, user: int) -> KeptLines:
        """Return a store for a user's last protocol lines, if they are kept; for `client.trace`, it writes events."""
        if user != self.workload.scenario.client.trace:
            return deque(maxlen=KEPT_LINES) if user in self._keeping else NO_LINES
        return Trace(partial(self._trace, self.workload.scenario.any_account(user)))

    def _trace(self, account: Account, line: bytes, sent: bool) -> None:
        text = text_of(line, account, sent=sent)
        self._events.write("line", user=account.number, line=f"{self._time(self.now_ns())} {text}")

    def _excerpt(self, user: TaskObserver) -> list[str]:
        if user.lines is NO_LINES:
            return []
        return excerpt(user.lines, self.workload.scenario.any_account(user.number), self._time)

    def _time(self, at_ns: int) -> str:
        """Return an instant as a time of day (UTC), as in a server's log."""
        return f"{datetime.fromtimestamp(self._wall_us(at_ns) / 1e6, UTC):%H:%M:%S.%f}"[:-3]

    def failed(self, user: TaskObserver, task: str, failure: TaskFailed) -> str:
        """Count a failure, and write an event if it is the first of its kind. Return the kind to record."""
        kind = self._counters.failure(task, failure)
        self._note_failure(task, failure)
        self._events.failed(task, user.number, type(failure)(kind, failure.line), partial(self._excerpt, user))
        if failure.outcome == GENERATOR and task in (IDLE, COMPANION):
            self._internal_errors.count(GeneratorFailed(kind))
        return kind

    def internal_error(self, error: Exception, during: str, user: int | None = None) -> GeneratorFailed:
        """Write an event about an error in loadsim. Return the failure to record; `strict` engines raise the error."""
        if self._options.strict:
            raise error
        failure = internal(error)
        self._internal_errors.report(failure, error, during, user)
        return failure

    # --- the run ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the run early; running tasks may end within the grace. A second call cancels them."""
        self._control.stop_waiting()
        if self._stopping.is_set():
            self._cutting.set()
        self._stopping.set()

    def give_up(self, why: str) -> None:
        """Stop although the run goes on: the rest of our users' work is lost."""
        if not self._stopping.is_set():
            self._given_up = why
        self.stop()

    def snapshot(self) -> LiveSnapshot:
        return LiveSnapshot(
            phase=self._phase,
            at_s=self._seconds(),
            users=len(self.users),
            users_on=self.counts.users_on,
            accepted_undelivered=self.outstanding,
            sessions_lost=self.counts.sessions_lost,
            **self._counters.figures(),
            **self._health.figures(),
        )

    async def run(self) -> None:
        """Run from the first log-on to the last log-off. Facts and records are written however it ends."""
        await self._control.all_ready()
        ended = "early"
        try:
            with self._tuned_process() if self._options.owns_process else contextlib.nullcontext():
                async with asyncio.TaskGroup() as group:
                    if self._options.owns_process:
                        self._health.start()
                        beat = group.create_task(self._beat())
                    # Start the users, staggered over the ramp-up.
                    first_ns = self.now_ns()
                    running = [
                        group.create_task(user.run(first_ns + self._on_after_ns(at)))
                        for at, user in enumerate(self.users)
                    ]
                    place = {user.number: at for at, user in enumerate(self.users)} if self._companions else {}
                    for companion in self._companions:  # each between its user and the next
                        later = 1 - 0.5**companion.which
                        on_ns = first_ns + self._on_after_ns(place[companion.number] + later)
                        running.append(group.create_task(companion.run(on_ns)))
                    running += [group.create_task(other.run()) for other in self._others]
                    # The phases.
                    if await self._log_on_all():
                        ended = await self._work()
                        await self._finish_and_drain(drain=ended == "completed")
                        ended = "early" if self._stopping.is_set() else ended  # mail in transit was not awaited
                    await self._log_off_all(running)
                    if self._options.owns_process:
                        beat.cancel()
        finally:
            self._health.stop()
            self._conclude(ended)

    def _on_after_ns(self, place: float) -> int:
        """Return when the user with this place, from 0, logs on: nanoseconds after the first."""
        run = self.workload.scenario.run
        even_ns = round(place * round(run.ramp_up_s * 1e9 / len(self.users)))
        ramp_up_us = round(run.ramp_up_s * 1e6)
        if not (run.ramp_shape and ramp_up_us):
            return even_ns
        return 1000 * DayShape(run.ramp_shape).due_us(even_ns * 1e-9, ramp_up_us)

    @contextlib.contextmanager
    def _tuned_process(self) -> Iterator[None]:
        thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTOR)
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        if not self._options.strict:
            loop.set_exception_handler(self._unhandled)
        try:
            yield
        finally:
            gc.unfreeze()
            gc.set_threshold(*thresholds)
            loop.set_exception_handler(handler)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception in a callback, or in a task that nothing awaits (`set_exception_handler`)."""
        error = context.get("exception")
        if error is None or own_failure(error) is None:
            loop.default_exception_handler(context)
        else:
            self._internal_errors.count(self.internal_error(error, "a callback"))

    def _each(self, act: Callable[[User], None]) -> None:
        for user in self.users:
            user.guarded(act)

    async def _log_on_all(self) -> bool:
        self._events.write("log-on", users=len(self.users))
        ramped_ns = self.now_ns() + round(self.workload.scenario.run.ramp_up_s * 1e9)

        def limit_s() -> float:
            return max(0.0, (ramped_ns - self.now_ns()) * 1e-9) + LOG_ON_LIMIT_S

        # A refused companion does not delay the start: its time without a session counts in the verdict.
        most, counts = len(self.users) + len(self._companions), self.counts
        await self._while_growing(lambda: counts.users_ready + counts.companions.tried, most, limit_s, self._stopping)
        return not self._stopping.is_set()

    async def _work(self) -> str:
        """Run from the common start to the end of the last day. Return "completed", or "early" after `stop`."""
        # Plan.
        for at, user in enumerate(self.users):
            user.guarded(User.plan_day)
            if at % PLANNED_AT_ONCE == 0:
                await asyncio.sleep(0)
        for other in self._others:
            other.plan_day()
        if self._options.owns_process:
            gc.collect()
            gc.freeze()  # so that the collector does not scan the state of thousands of users again
        # Start.
        start_ns = await self._control.common_start()
        if start_ns is None:
            return "early"
        await self._until((start_ns - self.now_ns()) * 1e-9, None, self._stopping)
        self.start_ns = start_ns
        self.log_on_slots = asyncio.Semaphore(len(self.users) + len(self._companions))
        self.recorder.facts({"start_ns": self.start_ns, "began_ns": self.now_ns()})
        self._phase = "work"
        self._events.write("start", users_on=self.counts.users_on)
        self._each(User.begin_day)
        for other in self._others:
            other.begin_day()
        # Work.
        duration_ns = self.workload.duration_us * 1000
        outage = self.workload.scenario.outage
        if outage is not None and outage.drop_sessions:
            await self._until((start_ns - self.now_ns()) * 1e-9 + outage.at_s, None, self._stopping)
            self._drop_sessions()
        await self._until((start_ns + duration_ns - self.now_ns()) * 1e-9, None, self._stopping)
        ended = "early" if self._stopping.is_set() else "completed"
        # End.
        self._phase = "finish"
        self._events.write("end", ended=ended)
        end_ns = min(self.now_ns(), self.start_ns + duration_ns)
        self._each(lambda user: user.end_day(end_ns))
        for each in (*self._companions, *self._others):
            each.end_day(end_ns)
        return ended

    def _drop_sessions(self) -> None:
        if not self._stopping.is_set():
            self._events.write("outage", users_on=self.counts.users_on)
            for user in self.users:
                self.in_turn(partial(user.guarded, User.drop))
            for companion in self._companions:
                self.in_turn(companion.drop)

    async def _finish_and_drain(self, *, drain: bool) -> None:
        """Let running tasks end, cancel the rest after the grace period, then wait for mail in transit."""
        working = [each.recorder for each in (*self.users, *self._others)]
        await self._until(
            self._limits.grace_s, lambda: all(each.performing in BETWEEN_TASKS for each in working), self._cutting
        )
        # Count first: `cut_off` ends sessions.
        lost = sum(not (user.is_on or user.given_up) for user in self.users)
        for each in working:
            if each.performing not in BETWEEN_TASKS:
                each.cut_off()
        if drain:
            await self._control.all_finished()
            self._phase = "drain"
            delivered = self._control.all_delivered
            await self._until(self._limits.drain_s, lambda: delivered(self.outstanding), self._stopping)
            await self._poll_inboxes()
            self.recorder.facts({"watched_until_ns": self.now_ns(), "drain_s": self._limits.drain_s})
        self.recorder.facts({"lost_users": lost, "undelivered": self.outstanding})
        self._events.write("drained", undelivered=self.outstanding, lost_users=lost)

    async def _poll_inboxes(self) -> None:
        """Have users that still expect mail list their Inbox, in case the server never announced it."""
        before = self.outstanding
        waiting = self._in_transit.recipients
        listing = [user for user in self.users if user.number in waiting and user.list_unannounced()]

        def listed() -> int:
            return sum(not user.listing_unannounced for user in listing)

        await self._while_growing(listed, len(listing), lambda: self._limits.grace_s, self._stopping)
        self.recorder.facts(
            {"unlooked": [user.number for user in listing if user.listing_unannounced or not user.is_on]}
        )
        if self.outstanding < before:
            self._events.write("found unannounced", messages=before - self.outstanding)

    async def _log_off_all(self, running: Sequence[asyncio.Task[None]]) -> None:
        """Log off, as long as another user does so within the limit. Record stored mail that was not listed since."""
        self._phase = "log-off"
        self._each(User.close)
        for each in (*self._companions, *self._others):
            each.close()

        def ended() -> int:
            return sum([task.done() for task in running])

        await self._while_growing(ended, len(running), lambda: LOG_OFF_LIMIT_S, self._cutting)
        if not self._cutting.is_set():
            self._each(User.record_unlisted)
        for task in running:
            task.cancel()

    async def _while_growing(
        self, count: Callable[[], int], most: int, limit_s: Callable[[], float], cut: asyncio.Event
    ) -> None:
        """Wait until `count()` reaches `most`, stops growing for `limit_s()`, or `cut` is set."""
        before = -1

        def grown() -> bool:
            return count() > before

        while before < count() < most and not cut.is_set():
            before = count()
            await self._until(limit_s(), grown, cut)

    async def _until(self, limit_s: float, done: Callable[[], bool] | None, cut: asyncio.Event) -> None:
        """Wait until `done()` is true, `cut` is set, or `limit_s` has passed; if `done` is None, it is never true."""
        end_ns = self.now_ns() + round(limit_s * 1e9)
        while not (done and done()) and not cut.is_set():
            left_s = (end_ns - self.now_ns()) * 1e-9
            if left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s if done is None else min(left_s, POLL_S)):
                    await cut.wait()

    async def _beat(self) -> None:
        """Each second, sample the engine's health, write the log and publish a snapshot.

        Due times are absolute. If each beat came a second after the last, engines would drift until they beat together.
        """
        due_ns = self.now_ns()
        while True:
            due_ns = max(due_ns + BEAT_NS, self.now_ns())
            await asyncio.sleep((due_ns - self.now_ns()) * 1e-9)
            try:
                self.recorder.health(self._health.sample())
                self._flusher.flush()
                self._watch(self.snapshot())
            except Exception as error:  # noqa: BLE001 - users go on
                self._internal_errors.count(self.internal_error(error, "the engine's beat"))

    def _conclude(self, ended: str) -> None:
        self._phase = "over"
        if self._given_up is not None:
            ended = GIVEN_UP
            self.recorder.facts({"given_up_why": self._given_up})
        self._internal_errors.conclude()
        self.recorder.facts(
            {
                "ended": ended,
                "sessions_lost": self.counts.sessions_lost,
                "sessions_restored": self.counts.sessions_restored,
                "unannounced": self.counts.unannounced,
                "foreign": sum([len(user.mail.inbox.foreign) for user in self.users if user.mail.stored.is_known]),
                "flags_not_kept": sorted({flag for user in self.users for flag in user.mail.flags_not_kept}),
                "silent_activities": self.counts.silent_activities,
            }
        )
        if self._companions:
            self.recorder.facts({"companions": {"count": len(self._companions), **asdict(self.counts.companions)}})
        if any(isinstance(other, Sender) for other in self._others):
            self.recorder.facts({"outside": asdict(self.counts.outside)})
        self._flusher.conclude()
        self._events.report_failures()
        last = self.snapshot()
        self._events.write(
            "over",
            ended=ended,
            done=last.done,
            failed=last.failed,
            skipped=last.skipped,
            generator_failed=last.generator_failed,
        )
        self._watch(last)

    def _seconds(self) -> float | None:
        return (self.now_ns() - self.start_ns) * 1e-9 if self.start_ns else None
