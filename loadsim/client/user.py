"""One simulated user: an agenda of what is due, one thing at a time, and a record of how each went.

The agenda holds activities; each yields one step after the other (`activities`). What is late is done late: due
times are absolute and do not move when the server is slow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from loadsim.client import activities, tasks
from loadsim.client.activities import Step, Steps
from loadsim.errors import ServerRefused, TaskFailed
from loadsim.model.draw import draw
from loadsim.model.ports import INBOX, Account, ClientModule, Header, MessageRef
from loadsim.model.workload import Activity, own_folders

if TYPE_CHECKING:
    from loadsim.client.engine import Engine

FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 60.0


class User:
    """A user at work. Also the observer of his own drivers: it holds the clock, they have none."""

    def __init__(self, engine: Engine, account: Account, module: ClientModule) -> None:
        self.engine = engine
        self.account = account
        self.number = account.number
        self.workload = engine.workload
        self.contents = engine.contents
        self.run_id = engine.run_id
        self.domain = engine.workload.scenario.domain
        group = engine.workload.population.group(account.number)
        self.profile = group.profile
        self.profile_name = group.profile.name
        self.protocol = module.name
        session = module.session(account, self)
        self.mailbox, self.submission, self.calendar = session.mailbox, session.submission, session.calendar

        self.folders: Sequence[str] = ()
        self.inbox: dict[MessageRef, Header] = {}  # what is known to lie in the Inbox, oldest first
        self.unread: deque[Header] = deque()
        self.processing = False  # the Inbox is being processed
        self.was_on = False
        self.is_on = False

        self._agenda: list[tuple[int, int, Steps, Step | None]] = []  # due, order, activity, its step if known
        self._order = count()
        self._plan: Iterator[Activity] = iter(())
        self._sync_due_ns: int | None = None
        self._announced: deque[int] = deque()  # when each announced message was, until a SYNC brings it
        self._waiter: asyncio.Future[None] | None = None
        self._watching = False
        self._ending = False  # no planned task is begun any more
        self._closing = False  # nothing is
        self.performing: str | None = None
        self._free_ns = 0  # when the last task ended, or the session was up again
        self._downs: deque[tuple[int, int]] = deque(maxlen=8)  # the last times without a session
        self._down_since_ns = 0
        self._failed_log_ons = 0
        self._moved_bytes = 0

    # What tasks need to know and to tell.

    def wall_clock_us(self) -> int:
        """Wall-clock microseconds since 1970, as the run's one clock has it."""
        return self.engine.wall_clock_us()

    def folders_found(self, names: Iterable[str]) -> None:
        """The mailbox has these folders; those that the profile made are browsed and moved to."""
        existing = set(names)
        self.folders = [name for name in own_folders(self.profile) if name in existing]

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

    def take_in(self, headers: Iterable[Header], *, announced: bool) -> None:
        """New messages of the Inbox were shown; `announced` when the server had pushed word of them."""
        now_ns = self.engine.clock.now_ns()
        for header in headers:
            evidence = header.evidence
            if evidence is None or header.ref in self.inbox:
                continue  # not ours to act upon, or known
            self.inbox[header.ref] = header
            if not header.seen:
                self.unread.append(header)
            if evidence.run == self.run_id:
                at_ns = self._announced.popleft() if announced and self._announced else now_ns
                event = "seen" if announced else "found"
                self.engine.recorder.mail(
                    event=event,
                    message=evidence.id,
                    user=self.number,
                    sender=evidence.sender,
                    at_ns=at_ns,
                    folder=INBOX,
                )
                self.engine.outstanding -= 1

    def gone(self, headers: Iterable[Header]) -> None:
        """These messages are no longer in the Inbox."""
        for header in headers:
            self.inbox.pop(header.ref, None)

    def inbox_excess(self) -> list[Header]:
        """The oldest messages above the profile's limit of the Inbox; unread ones stay."""
        limit = self.profile.inbox_limit
        if limit is None or len(self.inbox) <= limit:
            return []
        unread = {header.ref for header in self.unread}
        read = [header for header in self.inbox.values() if header.ref not in unread]
        return read[: len(self.inbox) - limit]

    def read_note_delay_ms(self, header: Header) -> float:
        """How long the user looks at a message before he opens the next."""
        name = header.evidence.id if header.evidence else ""
        return self.profile.process_inbox.read_note_delay_ms.at(
            draw(self.workload.seed, self.number, "read note delay", name)
        )

    def note(self, event: str, header: Header, folder: str) -> None:
        """Something happened to a message that was received."""
        if header.evidence is not None:
            self._note(event, header.evidence.id, header.evidence.sender, folder)

    def note_sent(self, event: str, message_id: str, folder: str) -> None:
        """Something happened to a message that this user made."""
        self._note(event, message_id, self.number, folder)

    def _note(self, event: str, message_id: str, sender: int, folder: str) -> None:
        at_ns = self.engine.clock.now_ns()
        self.engine.recorder.mail(
            event=event, message=message_id, user=self.number, sender=sender, at_ns=at_ns, folder=folder
        )

    def accepted(self, message_id: str, reached: Iterable[int]) -> None:
        """The server took a message for these users."""
        at_ns = self.engine.clock.now_ns()
        for user in reached:
            self.engine.recorder.mail(
                event="accepted", message=message_id, user=user, sender=self.number, at_ns=at_ns, folder=INBOX
            )
            self.engine.outstanding += 1

    # What drivers tell (ports.Observer).

    def now(self) -> int:
        """The instant, in nanoseconds."""
        return self.engine.clock.now_ns()

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        """A protocol command has ended."""
        self._moved_bytes += sent_bytes + received_bytes
        self.engine.recorder.command(
            command=name,
            user=self.number,
            started_ns=since,
            ended_ns=self.engine.clock.now_ns(),
            outcome=outcome,
            sent_bytes=sent_bytes,
            received_bytes=received_bytes,
        )

    def arrived(self, messages: int) -> None:
        """The server announced new messages."""
        now_ns = self.engine.clock.now_ns()
        self._announced.extend([now_ns] * messages)
        if self._sync_due_ns is None:
            self._sync_due_ns = now_ns
            self.wake()

    def lost(self, failure: Exception) -> None:
        """The session broke while nothing was being done."""
        if self.is_on:
            self.engine.failed(self, "IDLE", failure)
            self._session_lost()
            self.wake()

    # The life of a user.

    async def run(self, on_ns: int) -> None:
        """Log on at `on_ns`, work from the common start until the engine closes, log off."""
        try:
            self._down_since_ns = on_ns
            while self.now() < on_ns and not self._closing:
                await self._sleep_until(on_ns)
            await self._log_on(on_ns)
            await self.engine.on_and_started(self)
            while not self._closing:
                await self._do_next()
            if self.is_on:
                async with self.engine.leaving:
                    await self._perform(self.now(), Step(tasks.LOGOFF, None))
        finally:
            self.mailbox.abandon()

    def begin_day(self) -> None:
        """The common start has come: the plan's due times count from now."""
        self._free_ns = self.engine.start_ns
        self._plan = self.workload.activities(self.number)
        self._plan_next()

    def end_day(self, end_ns: int) -> None:
        """Begin no planned task any more; those that were due before `end_ns` are recorded as skipped."""
        self._ending = True
        while self._agenda and self._agenda[0][0] < end_ns:
            due_ns, _, steps, step = heappop(self._agenda)
            if step is None:
                self._plan_next()
                step = next(steps, None)
            while step is not None and due_ns < end_ns:
                self._record(step.task.name, due_ns, None, None, "skipped", "")
                step = _following(steps, None)
                due_ns += self._delay_ns(step) if step else 0
            steps.close()
        self.wake()

    def close(self) -> None:
        """Do nothing any more but log off."""
        self._closing = True
        self.wake()

    def wake(self) -> None:
        """Look at the agenda again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _do_next(self) -> None:
        now_ns = self.now()
        due_ns = self._agenda[0][0] if self._agenda and not self._ending else None
        if not self.is_on:
            await self._log_on(now_ns)
        elif self._sync_due_ns is not None and (due_ns is None or self._sync_due_ns <= due_ns):
            sync_due_ns, self._sync_due_ns = self._sync_due_ns, None
            await self._perform(sync_due_ns, Step(tasks.SYNC, None))
        elif due_ns is not None and due_ns <= now_ns:
            _, _, steps, step = heappop(self._agenda)
            if step is None:
                self._plan_next()
                step = next(steps, None)
            if step is not None:
                await self._do(due_ns, steps, step)
        elif not self._watching:
            await self._watch()
        else:
            await self._sleep_until(due_ns)

    def _plan_next(self) -> None:
        activity = next(self._plan, None)
        if activity is not None:
            due_ns = self.engine.start_ns + activity.due_us * 1000
            heappush(self._agenda, (due_ns, next(self._order), activities.begin(self, activity), None))

    async def _do(self, due_ns: int, steps: Steps, step: Step) -> None:
        following = _following(steps, await self._perform(due_ns, step))
        if following is None:
            return
        if self._ending:
            steps.close()
        else:
            due_ns = self._free_ns + self._delay_ns(following)
            heappush(self._agenda, (due_ns, next(self._order), steps, following))

    def _delay_ns(self, step: Step) -> int:
        return round(step.delay_ms * 1e6 / self.workload.compression)

    async def _log_on(self, due_ns: int) -> None:
        """Log on, trying again with growing pauses until it succeeds or the run closes."""
        while not self._closing:
            await self._perform(due_ns, Step(tasks.LOGON, None))
            if self.is_on:
                return
            self._failed_log_ons += 1
            pause_s = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** (self._failed_log_ons - 1))
            jitter = 0.5 + draw(self.workload.seed, self.number, "back-off", self._failed_log_ons)
            due_ns = self.now() + round(pause_s * jitter * 1e9)
            while self.now() < due_ns and not self._closing:
                await self._sleep_until(due_ns)

    async def _watch(self) -> None:
        self._watching = True
        try:
            await self.mailbox.watch()
        except TaskFailed as failure:
            self.engine.failed(self, "IDLE", failure)
            if failure.outcome != "refused":
                self._session_lost()
        self._free_ns = self.now()

    async def _sleep_until(self, due_ns: int | None) -> None:
        """Sleep until then (None: for ever), or until woken."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if due_ns is None else loop.call_later(max(0, due_ns - self.now()) * 1e-9, self.wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    async def _perform(self, due_ns: int, step: Step) -> Any:
        """Do one step and record how it went; only our own bugs, and the end of the run, escape."""
        task = step.task
        began_ns = started_ns = self.now()
        late_s = self._lateness_s(due_ns, began_ns)
        self._moved_bytes = 0
        self._watching = False
        self.performing = task.name
        preparing = task.prepare is not None
        ended_ns: int | None = None
        result, outcome, error = None, "unfinished", ""
        try:
            about = step.about
            if task.prepare is not None:
                about = await task.prepare(self, about)
                preparing = False
                started_ns = self.now()
            result = await task.act(self, about)
            ended_ns = self.now()
            outcome = "ok"
        except TaskFailed as failure:
            ended_ns = self.now()
            outcome, error = failure.outcome, failure.kind
            self.engine.failed(self, task.name, failure)
        finally:
            self.performing = None
            self._free_ns = ended_ns or 0
            self._record(task.name, due_ns, started_ns, ended_ns, outcome, error, late_s, self._moved_bytes)
        self._session_after(task, outcome, preparing)
        return result

    def _session_after(self, task: tasks.Task, outcome: str, preparing: bool) -> None:
        """What a task means for the session: LOGON makes it, LOGOFF ends it, a broken or silent server ends it."""
        if task is tasks.LOGON and outcome == "ok":
            self.engine.users_on += 1
            self.engine.sessions_restored += self.was_on
            self.is_on = self.was_on = self._watching = True
            self._failed_log_ons = 0
            self._downs.append((self._down_since_ns, self._free_ns))
        elif task is tasks.LOGON:
            self.mailbox.abandon()
        elif task is tasks.LOGOFF:
            self._off()
        elif outcome in ("lost", "timeout") and (preparing or not task.submits):
            self._session_lost()
        elif task is tasks.SYNC:
            self._watching = outcome == "ok"

    def _session_lost(self) -> None:
        if self.is_on:
            self._off()
            self._down_since_ns = self.now()
            self._announced.clear()
            self._sync_due_ns = None
            self.mailbox.abandon()
            self.engine.sessions_lost += 1

    def _off(self) -> None:
        self.is_on = False
        self.engine.users_on -= 1

    def _lateness_s(self, due_ns: int, began_ns: int) -> tuple[float, float, float]:
        """Why the task begins late: the user was busy (server), the session was down (server), we were late (ours)."""
        down_ns = sum(max(0, min(up, began_ns) - max(down, due_ns)) for down, up in self._downs)
        generator_ns = max(0, began_ns - max(due_ns, self._free_ns))
        busy_ns = max(0, began_ns - due_ns - down_ns - generator_ns)
        return busy_ns * 1e-9, down_ns * 1e-9, generator_ns * 1e-9

    def _record(
        self,
        task: str,
        due_ns: int,
        started_ns: int | None,
        ended_ns: int | None,
        outcome: str,
        error: str,
        late_s: tuple[float, float, float] = (0.0, 0.0, 0.0),
        moved_bytes: int = 0,
    ) -> None:
        self.engine.recorder.task(
            task=task,
            user=self.number,
            profile=self.profile_name,
            protocol=self.protocol,
            scheduled_ns=due_ns,
            started_ns=started_ns,
            ended_ns=ended_ns,
            late_busy_s=late_s[0],
            late_down_s=late_s[1],
            late_generator_s=late_s[2],
            outcome=outcome,
            error=error,
            moved_bytes=moved_bytes,
        )
        self.engine.count_task(task, outcome, late_s[2])


def _following(steps: Steps, result: Any) -> Step | None:
    """The next step of an activity, which is told what the last one returned."""
    try:
        return steps.send(result)
    except StopIteration:
        return None
