"""The tasks of one user, each done once in a real session, using only the check's own messages and new reports.

An engine runs the user, as in a run. In place of the scenario's plan, `TaskCheck` has each planned task once. It is
also the engine's control: it delays the common start until three messages have reached the user's Inbox.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.model.content.compose import READ_RECEIPT
from loadsim.model.content.templates import KINDS
from loadsim.model.delivery_report import may_report
from loadsim.model.ports import INBOX, NOTHING_APART, Account, Driver, Flag, Header, Mailbox, PortsApart, SearchKey
from loadsim.model.records import DELIVERY_RECEIPT, SPANS, CommandFields, MailFields, TaskFields
from loadsim.model.terms import LOGOFF, RETURN_RECEIPT, TRACK_RECEIPT
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.provisioning.check_post import SMALL, Answering, Post
from loadsim.provisioning.server_report import TriedTask, lacking
from loadsim.provisioning.sessions import NullObserver
from loadsim.scenario.criteria import planned_tasks
from loadsim.scenario.profile import Profile
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.users.activities import Step, Steps, UnderWay
from loadsim.users.calendar_tasks import schedule_of
from loadsim.users.mail import Sought, UserMail
from loadsim.users.public_folder import FolderInMailbox
from loadsim.users.stored_mail import StoredMail
from loadsim.users.task_recorder import IDLE
from loadsim.users.tasks import LOGON, SAVE_SENT, SYNC, TASKS, Outgoing, Read, Task

POLL_S = 1.0
"""The interval between two requests for mail that the server has not announced."""

FIRST_POLL_S = 3.0
"""The longest wait for an announcement before the server is asked for mail."""

ENDLESS_US = 10**12

ANSWERS = {
    "REPLY": (Flag.ANSWERED, "reply"),
    "REPLY ALL": (Flag.ANSWERED, "reply_all"),
    "FORWARD": (Flag.FORWARDED, "forward"),
}


class CheckWorkload(Workload):
    """A workload that ends with the check; its users have one folder, the check's own."""

    def __init__(self, scenario: Scenario, folder: str) -> None:
        super().__init__(scenario)
        self.duration_us = ENDLESS_US
        self._folder = folder

    def own_folders(self, user: int) -> tuple[str, ...]:
        return (self._folder,)

    def attendees(self, user: int, profile: Profile, index: int) -> tuple[int, ...]:
        return ()


class OwnMail:
    """A mailbox that lists only one check's messages, but is otherwise the driver's `ports.Mailbox`.

    So no task can touch another message. If the user `tracks` receipts, delivery reports that arrive are listed, too,
    which tasks only read. `seen` has the messages that were listed in the Inbox, by id.
    """

    def __init__(self, mailbox: Mailbox, run: str, tracks: bool) -> None:
        self._mailbox = mailbox
        self._run = run
        self._tracks = tracks
        self.seen: dict[str, Header] = {}
        self.listed = asyncio.Event()
        self.watches = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mailbox, name)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        return self._own(await self._mailbox.headers(folder, newest), folder == INBOX)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        headers = await self._mailbox.arrived(reopen)
        reports = [header for header in headers if self._tracks and header.tag is None and may_report(header.sender)]
        return [*self._own(headers, True), *reports]

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        return self._own(await self._mailbox.search(folder, key, words, newest), folder == INBOX)

    async def watch(self) -> None:
        if self.watches:
            await self._mailbox.watch()

    def _own(self, headers: Sequence[Header], in_inbox: bool) -> Sequence[Header]:
        own = [header for header in headers if header.tag is not None and header.tag.run == self._run]
        if in_inbox:
            self.seen.update({header.tag.id: header for header in own if header.tag is not None})
            self.listed.set()
        return own


@dataclass(slots=True)
class Arrival:
    """The time from a message's acceptance until it was listed, and whether the server announced it."""

    seconds: float
    announced: bool


class TaskCheck(StandaloneControl):
    """Has an engine do one user's planned tasks with one driver, whose `name` includes the mail program's.

    It is also the engine's control, and its `run_log.RunLog`, which keeps no measurements: a check is not a run.
    `folder` is the check's own. `index` counts the checks of this user. A message may take `wait_s`. `tried` and
    `arrivals` grow as the check proceeds.
    `receipt` is the outcome of a delivery receipt: `skipped` if the server does not offer them, `requested` until one
    arrives; None if none was requested.
    """

    def __init__(
        self,
        post: Post,
        plugin_tasks: Mapping[str, Task],
        name: str,
        driver: Driver,
        user: int,
        partner: int,
        folder: str,
        wait_s: float,
        apart: PortsApart = NOTHING_APART,
        index: int = 0,
    ) -> None:
        super().__init__(MonotonicClock())
        self.post = post
        self.name = name
        self.index = index
        self.driver = driver
        self.partner = post.workload.scenario.account(partner)
        self.wait_s = wait_s
        self.tried: list[TriedTask] = []
        self.arrivals: list[Arrival] = []
        self.receipt: str | None = None
        self._received: Sequence[Header] = ()
        self._commands: list[tuple[str, int]] = []  # since the last task, each with the instant of its end
        self._failure: TaskFailed | None = None  # the last one
        self._is_over = False
        workload = CheckWorkload(post.workload.scenario, folder)
        drivers = {workload.population.group(user).driver_name: driver}
        load = EngineLoad(
            workload,
            (user,),
            drivers,
            post.contents,
            post.run_id,
            plugin_tasks=plugin_tasks,
            plan=self._plan,
            apart=apart,
        )
        records = EngineRecords(self, Events(None), failed=self._failed)
        options = EngineOptions(self._clock, time.time_ns() // 1000, self, owns_process=False)
        self._engine = Engine(load, records, options)
        (self._user,) = self._engine.users
        self.user = self._user.mail
        self.planned = planned_tasks(self.user.profile)
        self._mail = OwnMail(self.user.mailbox, post.run_id, TRACK_RECEIPT in self.planned)
        self.user.mailbox = cast(Mailbox, self._mail)
        if apart.newsgroup is None:
            self.user.public = FolderInMailbox(self.user.mailbox)
        self.user.stored = StoredMail(user, None, lambda *_: None)  # a mailbox need not be in its start state
        if isinstance(self.user.calendar, MailboxCalendar):
            self.user.calendar = MailboxCalendar(self.user.mailbox)

    async def run(self) -> None:
        """Do each planned task once. Failures are kept; once there is no session, the rest is left out."""
        try:
            await self._engine.run()
        finally:
            self.post.arrived.setdefault(self.user.number, set()).update(self._mail.seen)
            await self.user.submission.close()
            await self._remove_events()

    async def _remove_events(self) -> None:
        server = self.user.calendar_server
        if server is not None:
            with suppress(TaskFailed):  # the check's end removes the rest
                for _, event in self.user.events:
                    await server.remove(event)
            await server.close()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._user.close()  # no task follows, and no log-on
            self._engine.stop()

    # --- the engine's control -----------------------------------------------------------------------------------------

    async def common_start(self) -> int:
        """Wait for the messages that the tasks need. Return the common start."""
        self._received = await self._receive()
        self._mail.watches = False  # otherwise, IDLE between tasks would depend on other people's mail
        return await super().common_start()

    def stop_waiting(self) -> None:
        self._mail.listed.set()

    async def _receive(self) -> Sequence[Header]:
        """Send the user a message for each way to be rid of one; return their headers, or none if one is missing."""
        kinds = [self._attached or SMALL, SMALL, SMALL, *[SMALL] * ("DELETE UNREAD" in self.planned)]
        submission = self.driver.session(self.partner, NullObserver()).submission
        to = {self.user.number: self.user.account.address}
        ids = []
        try:
            for kind in kinds:
                outgoing = self.post.compose(self.partner, to, kind)
                await submission.send(self.partner.address, outgoing.addresses, outgoing.message)
                self.post.sent(outgoing)
                ids.append(outgoing.id)
                if not await self._listed(outgoing.id):
                    return ()
        except TaskFailed as failure:
            self._keep("SEND", failure=failure, sender=self.partner, recipient=self.user.account)
            return ()
        finally:
            await submission.close()
        return [self._mail.seen[message] for message in ids]

    async def _listed(self, message: str) -> bool:
        """Wait until the user has listed a message. Without an announcement, they list the Inbox every `POLL_S`."""
        since = time.monotonic()
        pause_s, announced = FIRST_POLL_S, True
        while message not in self._mail.seen:
            has_failed = any(task.failure for task in self.tried)
            if self._is_over or has_failed or time.monotonic() - since > self.wait_s:
                return False
            try:
                async with asyncio.timeout(pause_s):
                    await self._mail.listed.wait()
            except TimeoutError:
                if not self.user.inbox.announced:
                    announced, pause_s = False, POLL_S
                    self._user.list_unannounced()
            self._mail.listed.clear()
        self.arrivals.append(Arrival(time.monotonic() - since, announced))
        return True

    @property
    def _attached(self) -> str | None:
        """The kind of the profile's messages with an attachment; None if there is none, or none is loaded."""
        weights = self.user.profile.messages or dict.fromkeys(KINDS, 1)
        kinds = (kind for kind, weight in weights.items() if weight and KINDS[kind].attached)
        return next(kinds, None) if self.planned & {"LOAD ATTACHMENT", "FORWARD"} else None

    # --- the engine's plan --------------------------------------------------------------------------------------------

    def _plan(self, user: UserMail, endless: bool) -> Iterator[UnderWay]:
        yield UnderWay("check", self._steps(), user.host.start_ns)

    def _steps(self) -> Steps:
        read: Read | None = None
        if self._received:
            first, second, third, *unread = self._received
            structure = yield from self._do("READ", first)
            if structure is not None and first.tag is not None:
                read = Read(first, first.tag, structure)
                for part in structure.attachments[:1]:
                    yield from self._do("LOAD ATTACHMENT", (first, part))
                for task, (flag, how) in ANSWERS.items():
                    yield from self._send(task, read, Answering(first, flag, how))
            yield from self._do("SEARCH", Sought(first, SearchKey.SENDER, first.sender))
            yield from self._do("COPY", first)
            yield from self._do("MOVE", first)
            yield from self._do("BROWSE", 0)
            yield from self._do("DELETE", second)
            yield from self._do("EVICT", [third])
            for header in unread:
                yield from self._do("DELETE UNREAD", header)
        yield from self._send("SEND")
        for task in ("SCHEDULE", "POST", "BROWSE PUBLIC", *self.user.profile.tasks):
            yield from self._do(task, self.index)
        if read is not None and self.user.profile.receipts.returned:
            yield from self._send(RETURN_RECEIPT, read, Answering(read.header, None, READ_RECEIPT))
        since = time.monotonic()
        while self.receipt == "requested" and time.monotonic() - since < self.wait_s:  # TRACK RECEIPT follows by itself
            yield Step(TASKS[SYNC.name], True, POLL_S * 1000 * self.user.workload.compression)
        if self.user.calendar_server is not None:
            yield from self._do("SCHEDULE", self.index + 1)  # changes the event
        self._end()

    def _do(self, task: str, about: Any) -> Generator[Step, Any, Any]:
        """Do a task if it is planned. Return its result; None if it failed or is not planned."""
        if task not in self.planned:
            return None
        own = schedule_of(self.user) if task == "SCHEDULE" else TASKS.get(task)
        return (yield Step(own or self.user.host.plugin_tasks[task], about))

    def _send(self, task: str, about: Any = None, answers: Answering | None = None) -> Steps:
        """Send a message to the partner, as new mail or as a reply, if that is planned.

        The first one requests a delivery receipt, if the profile does.
        """
        requests = TRACK_RECEIPT in self.planned and self.receipt is None and task != RETURN_RECEIPT

        def compose(_: UserMail, fetched: Any) -> Outgoing:
            attachment = fetched[1] if TASKS[task].fetch is not None else None
            to = {self.partner.number: self.partner.address}
            outgoing = self.post.compose(self.user.account, to, SMALL, answers, attachment)
            envelope_id = f"{outgoing.id}.{self.post.run_id}" if requests else None
            return replace(outgoing, envelope_id=envelope_id)

        if task in self.planned:
            outgoing = yield Step(replace(TASKS[task], compose=compose), about)
            if outgoing is not None:
                self.post.sent(outgoing)
                if requests and self.receipt is None:
                    self.receipt = "requested"
                if task != RETURN_RECEIPT and not any(tried.task == SAVE_SENT.name for tried in self.tried):
                    yield from self._do(SAVE_SENT.name, outgoing)

    # --- the engine's records -----------------------------------------------------------------------------------------

    def _failed(self, task: str, failure: TaskFailed) -> None:
        self._failure = failure
        if task == IDLE:
            self._keep(IDLE, failure=failure)
        if task == LOGON.name or self._user.given_up or isinstance(failure, ServerLost | ServerSilent):
            self._end()

    def _keep(
        self,
        task: str,
        commands: Sequence[str] = (),
        seconds: float = 0.0,
        failure: TaskFailed | None = None,
        sender: Account | None = None,
        recipient: Account | None = None,
    ) -> None:
        lacks = None
        if failure is not None:
            account = self.user.account
            lacks = lacking(
                f"{task}, {account.login}",
                failure,
                account.number,
                sender=(sender or account).address,
                recipient=(recipient or self.partner).address,
            )
            if task == RETURN_RECEIPT and isinstance(failure, ServerRefused):
                null_path = finding(Code.NULL_PATH_REFUSED, "", Severity.INVALID, refused=1, due=1, answer=str(failure))
                lacks = replace(lacks, finding=null_path)
        self.tried.append(TriedTask(self.name, task, tuple(commands), seconds, lacks))

    def task(self, record: TaskFields) -> None:
        task, _, _, _, _, started_ns, ended_ns, _, _, _, between_s, _, outcome, _, _, _ = record
        if task == DELIVERY_RECEIPT and outcome in ("ok", "skipped"):
            self.receipt = outcome
        if ended_ns is None and task == LOGOFF:  # no other task is under way when a check ends
            self._keep(task, failure=ServerSilent(f"no answer to {task}"))
        if task in SPANS or started_ns is None or ended_ns is None:
            return
        failure = None if outcome == "ok" else self._failure
        began_ns = started_ns - round(between_s * 1e9)
        used = dict.fromkeys(name.partition(" ")[2] for name, at_ns in self._commands if at_ns >= began_ns)
        self._commands.clear()
        if failure is not None or task != SYNC.name or not any(tried.task == task for tried in self.tried):
            self._keep(task, [*used], (ended_ns - started_ns) * 1e-9, failure)

    def mail(self, record: MailFields) -> None:
        event, message, user, _, _, folder = record
        if event == "altered":
            self.post.altered.append((message, user, folder))

    def command(self, record: CommandFields) -> None:
        self._commands.append((record[0], record[3]))

    def ignore(self, *_: object) -> None:
        """Keep no samples and no facts, and write nothing."""

    facts = health = gather = write = ignore
