"""The tasks of one user, each done once in a real session, with messages of the check only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from loadsim.errors import GeneratorFailed, ServerLost, ServerSilent, TaskFailed
from loadsim.model.content.compose import Answered, Attachment, Contents
from loadsim.model.content.templates import KINDS
from loadsim.model.ports import INBOX, Account, Driver, Flag, Header, KeptLines, Mailbox
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.error_mapping import internal
from loadsim.protocols.lines import NO_LINES
from loadsim.provisioning.server_report import TriedTask, lacking
from loadsim.scenario.criteria import planned_tasks
from loadsim.scenario.workload import Workload
from loadsim.users.host import Observed, SessionCounts
from loadsim.users.mail import UserMail
from loadsim.users.stored_mail import StoredMail
from loadsim.users.tasks import TASKS, Outgoing, Read, Task

SMALL = "ups1K"
"""The kind of the messages of a check, except those with an attachment."""

POLL_S = 1.0
"""The interval in which the server is asked for mail that it has not announced."""

FIRST_POLL_S = 3.0
"""The longest wait for the server's announcement, before the server is asked."""


class FaultRecorder:
    """Ignores measurements: a check is no run. `altered` are the records of mail with other bytes than were sent."""

    def __init__(self) -> None:
        self.altered: list[tuple[Any, ...]] = []

    def ignore(self, *_: object) -> None:
        """Ignore a record: the observer has the commands."""

    task = command = ignore

    def mail(self, record: tuple[Any, ...]) -> None:
        if record[0] == "altered":
            self.altered.append(record)


@dataclass(slots=True)
class CheckHost:
    """Runs the users of a check; implements `users.host.Host`."""

    workload: Workload
    contents: Contents
    run_id: str
    start_ns: int = 0
    plugin_tasks: Mapping[str, Task] = field(default_factory=dict)
    counts: SessionCounts = field(default_factory=SessionCounts)
    log_on_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1000))
    log_off_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1000))
    recorder: FaultRecorder = field(default_factory=FaultRecorder)
    now_ns: Callable[[], int] = time.monotonic_ns

    @property
    def in_turn(self) -> Callable[[Callable[[], object]], None]:
        return lambda call: cast(None, call())

    def wall_clock_us(self) -> int:
        return time.time_ns() // 1000

    def ignore(self, *_: object, **__: object) -> None:
        """Ignore an event: a check counts for itself."""

    mail_accepted = mail_seen = count_task = user_given_up = ignore

    def lines(self, user: int) -> KeptLines:
        return NO_LINES

    def failed(self, user: Observed, task: str, failure: TaskFailed) -> str:
        return failure.kind

    def internal_error(self, error: Exception, during: str, user: int | None = None) -> GeneratorFailed:
        return internal(error)


class CheckObserver:
    """An observer that keeps the names of commands, and is woken by announcements."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.news = asyncio.Event()
        self.lines = NO_LINES

    def now(self) -> int:
        return time.monotonic_ns()

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        self.commands.append(name.partition(" ")[2])

    def arrived(self, messages: int) -> None:
        self.news.set()

    def lost(self, failure: Exception) -> None:
        self.news.set()


class OwnMail:
    """A mailbox in which only the messages of one check are listed; all else is the driver's `ports.Mailbox`.

    So no task can act on another message. `seen` has the listed messages by their ids.
    """

    def __init__(self, mailbox: Mailbox, run: str) -> None:
        self._mailbox = mailbox
        self._run = run
        self.seen: dict[str, Header] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mailbox, name)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        return self._own(await self._mailbox.headers(folder, newest), folder == INBOX)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        return self._own(await self._mailbox.arrived(reopen), True)

    def _own(self, headers: Sequence[Header], in_inbox: bool) -> Sequence[Header]:
        own = [header for header in headers if header.tag is not None and header.tag.run == self._run]
        if in_inbox:
            self.seen.update({header.tag.id: header for header in own if header.tag is not None})
        return own


@dataclass(slots=True)
class Post:
    """The mail of a check: ids of its messages, and those that were accepted for each user."""

    host: CheckHost
    accepted: dict[int, set[str]] = field(default_factory=dict)
    arrived: dict[int, set[str]] = field(default_factory=dict)
    _last: int = 0

    def compose(
        self,
        sender: Account,
        to: Mapping[int, str],
        kind: str = SMALL,
        answers: tuple[Header, Flag, str] | None = None,
        attachment: Attachment | None = None,
    ) -> Outgoing:
        """Return a message to these users, by their addresses. With `answers`, it answers that message."""
        self._last += 1
        message_id = f"c{sender.number}.{self._last}"
        addresses = list(dict.fromkeys(to.values()))
        message = self.host.contents.compose(
            run=self.host.run_id,
            sender=sender.number,
            sender_address=sender.address,
            to=addresses,
            id=message_id,
            kind=kind,
            sent_us=self.host.wall_clock_us(),
            domain=self.host.workload.scenario.domain,
            answers=answers and Answered.of(answers[0], answers[2]),
            attachment=attachment,
        )
        return Outgoing(message, message_id, addresses, set(to), tuple(to), answers and answers[:2])

    def sent(self, outgoing: Outgoing) -> None:
        for user in outgoing.reached:
            self.accepted.setdefault(user, set()).add(outgoing.id)


@dataclass(slots=True)
class Arrival:
    """The time of a message from its acceptance until it was listed, and whether the server announced it."""

    seconds: float
    announced: bool


class TaskCheck:
    """Does the planned tasks of one user with one driver, whose name with its mail program is `module`.

    `folder` is the check's own. A message may take `wait_s`. `tried` grows.
    """

    def __init__(
        self,
        host: CheckHost,
        post: Post,
        module: str,
        driver: Driver,
        user: int,
        partner: int,
        folder: str,
        wait_s: float,
    ) -> None:
        scenario = host.workload.scenario
        self.observer = CheckObserver()
        self.post = post
        self.module = module
        self.driver = driver
        self.partner = scenario.account(partner)
        self.user = UserMail(host, scenario.account(user), driver, self.observer, lambda _: None)
        self.folder = folder
        self.wait_s = wait_s
        self.mail = OwnMail(self.user.mailbox, host.run_id)
        self.user.mailbox = cast(Mailbox, self.mail)
        self.user.stored = StoredMail(user, None, lambda *_: None)  # a mailbox need not be in its start state
        if isinstance(self.user.calendar, MailboxCalendar):
            self.user.calendar = MailboxCalendar(self.user.mailbox)
        self.planned = planned_tasks(self.user.profile)
        self.tried: list[TriedTask] = []
        self.arrivals: list[Arrival] = []

    async def run(self) -> None:
        """Do each planned task once. A failure is kept; without a session, the rest is left out."""
        try:
            if await self._do("LOGON"):
                self.user.folders = (self.folder,)
                await self._tasks()
        except (ServerLost, ServerSilent):
            pass  # the failure of the task is kept
        finally:
            self.post.arrived.setdefault(self.user.number, set()).update(self.mail.seen)
            self.user.mailbox.abandon()
            await self.user.submission.close()

    async def _tasks(self) -> None:
        headers = await self._receive()
        if headers is not None:
            first, second, third = headers
            structure = await self._do("READ", first)
            if structure is not None and first.tag is not None:
                await self._answer(Read(first, first.tag, structure))
            await self._do("COPY", first)
            await self._do("MOVE", first)
            await self._do("BROWSE", 0)
            await self._do("DELETE", second)
            await self._do("EVICT", [third])
        if "SEND" in self.planned:
            await self._submit("SEND", self.post.compose(self.user.account, self._to_partner))
        await self._do("SCHEDULE", 0)
        for task in self.user.profile.tasks:
            await self._do(task, 0)
        await self._do("LOGOFF")

    @property
    def _to_partner(self) -> Mapping[int, str]:
        return {self.partner.number: self.partner.address}

    async def _receive(self) -> list[Header] | None:
        """Send three messages to the user, and list them; None if they do not arrive."""
        kinds = [self._attached or SMALL, SMALL, SMALL]
        submission = self.driver.session(self.partner, CheckObserver()).submission
        to = {self.user.number: self.user.account.address}
        ids = []
        try:
            for kind in kinds:
                outgoing = self.post.compose(self.partner, to, kind)
                self.observer.news.clear()
                await submission.send(self.partner.address, outgoing.addresses, outgoing.message)
                self.post.sent(outgoing)
                ids.append(outgoing.id)
                if not await self._listed(outgoing.id):
                    return None
        except TaskFailed as failure:
            self._failed("SEND", failure, 0.0, self.partner.address, self.user.account.address)
            return None
        finally:
            await submission.close()
        return [self.mail.seen[each] for each in ids]

    async def _listed(self, message: str) -> bool:
        """Wait until a message is listed; SYNC when the server announces mail, and in intervals without it."""
        since = time.monotonic()
        pause_s, announced = FIRST_POLL_S, True
        while message not in self.mail.seen:
            try:
                async with asyncio.timeout(pause_s):
                    await self.observer.news.wait()
            except TimeoutError:
                announced, pause_s = False, POLL_S
            self.observer.news.clear()
            if not await self._do("SYNC", False, again=True):
                return False
            if time.monotonic() - since > self.wait_s:
                break
        if message in self.mail.seen:
            self.arrivals.append(Arrival(time.monotonic() - since, announced))
        return message in self.mail.seen

    @property
    def _attached(self) -> str | None:
        """The kind of the profile's messages that has an attachment; None if none has, or none is loaded."""
        kinds = (kind for kind, weight in self.user.profile.messages.items() if weight and KINDS[kind].attached)
        return next(kinds, None) if self.planned & {"LOAD ATTACHMENT", "FORWARD"} else None

    async def _answer(self, about: Read) -> None:
        for part in about.structure.attachments[:1]:
            await self._do("LOAD ATTACHMENT", (about.header, part))
        for task in ("REPLY", "REPLY ALL"):
            if task in self.planned:
                how = (about.header, Flag.ANSWERED, task.lower().replace(" ", "_"))
                await self._submit(task, self.post.compose(self.user.account, self._to_partner, SMALL, how))
        if "FORWARD" in self.planned:
            forward = TASKS["FORWARD"]
            assert forward.fetch is not None
            fetch = partial(forward.fetch, self.user, about)
            fetched = await self._timed("FORWARD", fetch, keep=False)
            if fetched is not None:
                how = (about.header, Flag.FORWARDED, "forward")
                outgoing = self.post.compose(self.user.account, self._to_partner, SMALL, how, fetched[1])
                await self._submit("FORWARD", outgoing)

    async def _submit(self, task: str, outgoing: Outgoing) -> None:
        act = TASKS[task].act
        if await self._timed(task, lambda: act(self.user, outgoing)) is None:
            return
        self.post.sent(outgoing)
        if not any(each.task == "SAVE SENT" for each in self.tried):
            await self._do("SAVE SENT", outgoing)

    async def _do(self, task: str, subject: Any = None, again: bool = False) -> Any:
        """Do a task if it is planned. Return its result, True for none; None if it failed or is not planned."""
        if task not in self.planned:
            return None
        known = TASKS.get(task) or self.user.host.plugin_tasks[task]
        if known.compose is not None:
            subject = known.compose(self.user, subject)
        keep = not (again and any(each.task == task for each in self.tried))
        return await self._timed(task, lambda: known.act(self.user, subject), keep)

    async def _timed(self, task: str, work: Callable[[], Any], keep: bool = True) -> Any:
        """Do work of a task; `keep` it, or only its failure. Raises `ServerLost` and `ServerSilent`."""
        del self.observer.commands[:]
        since = time.monotonic()
        try:
            result = await work()
        except TaskFailed as failure:
            self._failed(task, failure, time.monotonic() - since)
            if isinstance(failure, ServerLost | ServerSilent):
                raise
            return None
        except Exception as error:  # noqa: BLE001  an error of ours is no finding about the server
            self._failed(task, internal(error), time.monotonic() - since)
            return None
        self.user.compare_shown()
        if keep:
            used = tuple(dict.fromkeys(self.observer.commands))
            self.tried.append(TriedTask(self.module, task, used, time.monotonic() - since))
        return True if result is None else result

    def _failed(self, task: str, failure: TaskFailed, seconds: float, sender: str = "", recipient: str = "") -> None:
        used = tuple(dict.fromkeys(self.observer.commands))
        account = self.user.account
        failed = lacking(
            f"{task}, {account.login}",
            failure,
            self.user.number,
            sender=sender or account.address,
            recipient=recipient or self.partner.address,
        )
        self.tried.append(TriedTask(self.module, task, used, seconds, failed))
