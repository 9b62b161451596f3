"""One engine: its users as coroutines, one common start, one end, and nothing that was measured lost.

The phases are those of the run: log-on (staggered over the ramp-up), work (from the common start, t = 0), finish (what
runs at the end may end, with every engine), drain (mail under way may arrive), log-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from loadsim.engine.control import Control, StandaloneControl
from loadsim.engine.event_log import Events
from loadsim.engine.fair_queue import FairQueue, at_once
from loadsim.engine.health import Health, Lateness
from loadsim.engine.internal_errors import InternalErrors
from loadsim.engine.latency_histogram import LatencyHistogram
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.content import Contents
from loadsim.model.ports import Clock, Driver, Recorder
from loadsim.model.records import GENERATOR
from loadsim.model.workload import Workload
from loadsim.protocols.error_mapping import internal, own_failure
from loadsim.timinglog.records import GIVEN_UP
from loadsim.timinglog.writer import OTHER
from loadsim.users.host import Late_s, SessionCounts
from loadsim.users.user import IDLE, User

LOG_ON_LIMIT_S = 60.0
"""How long after the ramp-up the common start waits for one more user to get on."""

LOG_ONS_AT_ONCE = 64
"""More users than this are never on their way in: a server that is slow at it is asked no faster than it answers."""

LOG_OFF_LIMIT_S = 30.0
"""How long the last log-offs may take, and 10 ms more for each user."""

LOG_OFFS_AT_ONCE = 50

BEAT_NS = 10**9
"""How long it is from one look at ourselves to the next."""

LOOK_S = 0.05
"""How often the end of a phase that has no fixed time is looked for."""

COLLECTOR = (50, 2, 1_000_000_000)
"""Thresholds of Python's garbage collector while users are on: it looks at up to 150 young objects at a time,
which takes some tenths of a millisecond (with 900 it was up to 4), never at all that was made since the common start.
Tasks leave no cycles."""

MOST_KINDS, LONGEST_KIND = 100, 64
"""An engine counts at most this many kinds of failure, and cuts their names to this many characters: a server may
choose the names. Further kinds are `OTHER`."""

BETWEEN_TASKS = (None, "LOGON", "SYNC")
"""What a user may be doing while no planned task runs."""

PLANNED_AT_ONCE = 100
"""How many users' plans are begun before the loop gets its turn: it must answer and be heard of all the while."""


class RunLog(Recorder, Protocol):
    """Where an engine's records go: a recorder that also keeps facts, and writes when told to."""

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Something about the whole run."""
        ...

    def health(self, sample: Mapping[str, Any]) -> None:
        """How the generator was in the last second."""
        ...

    def gather(self) -> None:
        """Prepare to write what was recorded."""
        ...

    def write(self) -> str | None:
        """Write what was gathered, in any thread; None, or why that was not possible (it is kept)."""
        ...


class Engine:
    """Runs the users with these numbers. `modules` has a client module for every protocol among them.

    `control` keeps it in step with the other engines of the run; None if there are none. `here` are the users of this
    machine, if others make the rest of the load: mail between machines is not reported to them. `writes_aside`: the log
    is written in a thread, so that a slow disk delays no user; in virtual time nothing may wait for a thread.
    `strict`: an error in loadsim ends the engine, not only the task or the user in which it occurs.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        users: Collection[int],
        modules: Mapping[str, Driver],
        contents: Contents,
        recorder: RunLog,
        events: Events,
        clock: Clock,
        run_id: str,
        wall_clock_us: int,
        self_observing: bool = True,
        strict: bool = False,
        writes_aside: bool = False,
        watch: Callable[[LiveSnapshot], None] = lambda _: None,
        control: Control | None = None,
        here: Container[int] | None = None,
    ) -> None:
        self.workload = workload
        self.contents = contents
        self.recorder = recorder
        self.clock = clock
        self.now_ns = clock.now_ns
        self.run_id = run_id
        self.start_ns = 0
        self.counts = SessionCounts()
        self.log_on_slots = asyncio.Semaphore(LOG_ONS_AT_ONCE)
        self.log_off_slots = asyncio.Semaphore(LOG_OFFS_AT_ONCE)
        self.in_turn = FairQueue().enter if self_observing else at_once
        self._events = events
        self._epoch_ns = clock.now_ns()
        self._epoch_wall_us = wall_clock_us
        self._self_observing = self_observing
        self._strict = strict
        self._lateness = Lateness()
        self._health = Health(clock, self._lateness)
        self._watch = watch
        self._control = control or StandaloneControl(clock)
        self._own = frozenset(users)
        self._here = here
        self._under_way: set[tuple[str, int]] = set()  # messages and users: accepted, and not yet seen by him
        self._seen_first: set[tuple[str, int]] = set()  # seen by him, and not (yet) accepted
        self._stopping = asyncio.Event()
        self._given_up: str | None = None  # why we ended without the others
        self._cutting = asyncio.Event()
        self._phase = "log-on"
        self._tasks: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by name and outcome
        self._service_times: defaultdict[str, LatencyHistogram] = defaultdict(LatencyHistogram)
        self._failures: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by task and kind
        self._kinds: set[str] = set()
        self.own_faults = InternalErrors(events, recorder)
        self._disk_complaint: str | None = None
        self._writes_aside = writes_aside
        self._writing: asyncio.Future[str | None] | None = None
        scenario = workload.scenario
        self._ramp_up_s = scenario.run.ramp_up_s
        self._limits = scenario.limits
        events.seconds = self._seconds
        population = workload.population
        self.users = [
            User(self, scenario.account(number), modules[population.group(number).protocol]) for number in users
        ]

    # What users tell.

    def wall_clock_us(self) -> int:
        """Wall-clock microseconds since 1970: read once, carried on by the run's clock."""
        return self._epoch_wall_us + (self.clock.now_ns() - self._epoch_ns) // 1000

    @property
    def outstanding(self) -> int:
        """How many messages were accepted for a user, counted once for each, and not yet seen by him."""
        return len(self._under_way)

    def mail_accepted(self, message: str, user: int) -> None:
        """The server took a message for a user, who may even have seen it before its sender was told."""
        if user not in self._own:
            if self._here is None or user in self._here:
                self._control.accepted_elsewhere(message, user)
            return
        key = (message, user)
        if key in self._seen_first:
            self._seen_first.remove(key)
        else:
            self._under_way.add(key)

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """The server took these messages of users of other engines, each for one of ours."""
        for message, user in messages:
            self.mail_accepted(message, user)

    def mail_seen(self, message: str, user: int, sender: int) -> None:
        """A user has seen a message of this run; one that was never accepted makes up for no other."""
        if self._here is not None and sender not in self._here:
            return  # nobody will tell us that it was accepted
        key = (message, user)
        if key in self._under_way:
            self._under_way.remove(key)
        else:
            self._seen_first.add(key)

    def count_task(self, task: str, outcome: str, service_ns: int, late_s: Late_s) -> None:
        """A task has come to an outcome; it began so late because its user was busy, its session down, or we late.

        `service_ns` counts for one that is ok.
        """
        self._tasks[task][outcome] += 1
        if outcome == "ok":
            self._service_times[task].add(service_ns)
        self._lateness.add(*late_s)

    def failed(self, user: int, task: str, failure: TaskFailed) -> str:
        """Count a failure, and write an event for the first of its kind. Return the kind to record."""
        kind = failure.kind[:LONGEST_KIND]
        own = failure.outcome == GENERATOR
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS and not own:
            kind = OTHER
        self._kinds.add(kind)
        self._failures[task][kind] += 1
        self._events.failed(task, user, type(failure)(kind, failure.line))
        if own and task == IDLE:
            self.own_faults.count(GeneratorFailed(kind))
        return kind

    def internal_error(self, error: Exception, during: str, user: int | None = None) -> GeneratorFailed:
        """Write an event about an error in loadsim. Return the failure to record; `strict` engines raise the error."""
        if self._strict:
            raise error
        failure = internal(error)
        self.own_faults.tell(failure, error, during, user)
        return failure

    def user_given_up(self) -> None:
        """Count a user whose own state is broken."""
        self.own_faults.user_given_up()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record what a callback raised, or a task that is not awaited (`set_exception_handler`)."""
        error = context.get("exception")
        if error is None or own_failure(error) is None:
            loop.default_exception_handler(context)
        else:
            self.own_faults.count(self.internal_error(error, "a callback"))

    def _each(self, act: Callable[[User], None]) -> None:
        for user in self.users:
            user.guarded(act)

    # The run.

    def stop(self) -> None:
        """End the run early: what runs may end within the grace. Told again: cut everything off."""
        self._control.stop_waiting()
        if self._stopping.is_set():
            self._cutting.set()
        self._stopping.set()

    def give_up(self, why: str) -> None:
        """The same, when the run does not end: what our users did not do any more is lost."""
        if not self._stopping.is_set():
            self._given_up = why
        self.stop()

    def snapshot(self) -> LiveSnapshot:
        """Where this engine stands now."""
        return LiveSnapshot(
            phase=self._phase,
            at_s=self._seconds(),
            users=len(self.users),
            users_on=self.counts.users_on,
            tasks={task: dict(outcomes) for task, outcomes in self._tasks.items()},
            service_times={task: times.counts for task, times in self._service_times.items()},
            service_s={task: times.total_s for task, times in self._service_times.items()},
            failures={task: dict(kinds) for task, kinds in self._failures.items()},
            accepted_undelivered=self.outstanding,
            sessions_lost=self.counts.sessions_lost,
            generator_late_most_s=self._lateness.generator_most_s,
            late_busy_s=self._lateness.busy_s,
            late_down_s=self._lateness.down_s,
            late_generator_s=self._lateness.generator_s,
            **self._health.figures(),
        )

    async def run(self) -> None:
        """From the first log-on to the last log-off. Facts and records are flushed however it ends."""
        await self._control.all_ready()
        ended = "early"
        thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTOR)
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        if not self._strict:
            loop.set_exception_handler(self._unhandled)
        try:
            async with asyncio.TaskGroup() as group:
                if self._self_observing:
                    self._health.start()
                    beat = group.create_task(self._beat())
                between_ns = round(self._ramp_up_s * 1e9 / len(self.users))
                first_ns = self.clock.now_ns()
                lives = [
                    group.create_task(user.run(first_ns + place * between_ns)) for place, user in enumerate(self.users)
                ]
                if await self._log_on_all():
                    ended = await self._work()
                    await self._finish_and_drain(drain=ended == "completed")
                await self._log_off_all(lives)
                if self._self_observing:
                    beat.cancel()
        finally:
            self._health.stop()
            gc.unfreeze()
            gc.set_threshold(*thresholds)
            loop.set_exception_handler(handler)
            self._conclude(ended)

    async def _log_on_all(self) -> bool:
        self._events.say("log-on", users=len(self.users))
        ramped_ns = self.clock.now_ns() + round(self._ramp_up_s * 1e9)
        on = -1
        while on < self.counts.users_ever_on < len(self.users) and not self._stopping.is_set():
            on = self.counts.users_ever_on
            left_s = max(0.0, (ramped_ns - self.clock.now_ns()) * 1e-9)
            await self._until(left_s + LOG_ON_LIMIT_S, partial(self._more_than, on), self._stopping)
        return not self._stopping.is_set()

    def _more_than(self, users: int) -> bool:
        return self.counts.users_ever_on > users

    async def _work(self) -> str:
        """The simulated days, from the common start; "completed", or "early" when the run was told to stop."""
        for place, user in enumerate(self.users):
            user.guarded(User.plan_day)
            if place % PLANNED_AT_ONCE == 0:
                await asyncio.sleep(0)
        gc.collect()
        gc.freeze()  # what thousands of users have made so far stays: the collector need not look at it again
        start_ns = await self._control.common_start()
        if start_ns is None:
            return "early"
        await self._until((start_ns - self.clock.now_ns()) * 1e-9, None, self._stopping)
        self.start_ns = start_ns
        self.recorder.facts({"start_ns": self.start_ns, "began_ns": self.clock.now_ns()})
        self._phase = "work"
        self._events.say("start", users_on=self.counts.users_on)
        self._each(User.begin_day)
        duration_ns = self.workload.duration_us * 1000
        await self._until((start_ns + duration_ns - self.clock.now_ns()) * 1e-9, None, self._stopping)
        ended = "early" if self._stopping.is_set() else "completed"
        self._phase = "finish"
        self._events.say("end", ended=ended)
        end_ns = min(self.clock.now_ns(), self.start_ns + duration_ns)
        self._each(lambda user: user.end_day(end_ns))
        return ended

    async def _finish_and_drain(self, *, drain: bool) -> None:
        """Let running tasks end, cut off those that do not, then wait for the mail that is under way."""
        await self._until(
            self._limits.grace_s, lambda: all(user.performing in BETWEEN_TASKS for user in self.users), self._cutting
        )
        # Count first: cutting users off ends their sessions.
        lost = sum(not (user.is_on or user.given_up) for user in self.users)
        for user in self.users:
            if user.performing not in BETWEEN_TASKS:
                user.cut_off()
        if drain:
            await self._control.all_finished()
            self._phase = "drain"
            delivered = self._control.all_delivered
            await self._until(self._limits.drain_s, lambda: delivered(self.outstanding), self._stopping)
            await self._look_for_mail()
            self.recorder.facts({"watched_until_ns": self.clock.now_ns(), "drain_s": self._limits.drain_s})
        self.recorder.facts({"lost_users": lost, "undelivered": self.outstanding})
        self._events.say("drained", undelivered=self.outstanding, lost_users=lost)

    async def _look_for_mail(self) -> None:
        """Whoever still waits for mail looks into his Inbox: it may lie there without a word from the server.

        Where mail comes from machines that we do not hear of, everybody may be waiting for some.
        """
        before = self.outstanding
        waiting = self._own if self._here is not None else {user for _, user in self._under_way}
        looking = [user for user in self.users if user.number in waiting and user.look()]
        await self._until(self._limits.grace_s, lambda: not any(user.looking for user in looking), self._stopping)
        if self.outstanding < before:
            self._events.say("found unannounced", messages=before - self.outstanding)

    async def _log_off_all(self, lives: Sequence[asyncio.Task[None]]) -> None:
        self._phase = "log-off"
        self._each(User.close)
        limit_s = LOG_OFF_LIMIT_S + 0.01 * len(lives)
        await self._until(limit_s, lambda: all(life.done() for life in lives), self._cutting)
        for life in lives:
            life.cancel()

    async def _until(self, limit_s: float, done: Callable[[], bool] | None, cut: asyncio.Event) -> None:
        """Wait until `done()`, until `cut` is set, or for `limit_s`; None is never done."""
        end_ns = self.clock.now_ns() + round(limit_s * 1e9)
        while not (done and done()) and not cut.is_set():
            left_s = (end_ns - self.clock.now_ns()) * 1e-9
            if left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s if done is None else min(left_s, LOOK_S)):
                    await cut.wait()

    async def _beat(self) -> None:
        """Every second: look at ourselves, write the log, show where the run stands.

        By the clock, not a second after the last time: else the beats of engines would drift, and fall together.
        """
        due_ns = self.clock.now_ns()
        while True:
            due_ns = max(due_ns + BEAT_NS, self.clock.now_ns())
            await asyncio.sleep((due_ns - self.clock.now_ns()) * 1e-9)
            try:
                self.recorder.health(self._health.sample())
                self._flush()
                self._watch(self.snapshot())
            except Exception as error:  # noqa: BLE001 - the users go on
                self.own_faults.count(self.internal_error(error, "the engine's beat"))

    def _flush(self) -> None:
        """Write the log; aside, where a slow disk would hold up the users. While it does, records gather."""
        self.recorder.gather()
        if not self._writes_aside:
            self._written(self.recorder.write())
        elif self._writing is None or self._writing.done():
            writing, self._writing = self._writing, None
            if writing is not None:
                self._written(writing.result())
            self._writing = asyncio.get_running_loop().run_in_executor(None, self.recorder.write)

    def _written(self, complaint: str | None) -> None:
        if complaint and self._disk_complaint is None:
            self._events.say("log not written", why=complaint)
        self._disk_complaint = complaint

    def _conclude(self, ended: str) -> None:
        self._phase = "over"
        if self._given_up is not None:
            ended = GIVEN_UP
            self.recorder.facts({"given_up_why": self._given_up})
        self.own_faults.conclude()
        self.recorder.facts(
            {
                "ended": ended,
                "sessions_lost": self.counts.sessions_lost,
                "sessions_restored": self.counts.sessions_restored,
                "silent_activities": self.counts.silent_activities,
            }
        )
        self.recorder.gather()
        self._written(self.recorder.write())
        self._events.tell_failures()
        last = self.snapshot()
        self._events.say(
            "over",
            ended=ended,
            done=last.done,
            failed=last.failed,
            skipped=last.skipped,
            generator_failed=last.generator_failed,
        )
        self._watch(last)

    def _seconds(self) -> float | None:
        return (self.clock.now_ns() - self.start_ns) * 1e-9 if self.start_ns else None
