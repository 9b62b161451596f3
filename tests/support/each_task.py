"""One user does each task once, in an engine, and the requests of each task are noted where they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from named_records import TaskRecord
from patience import PATIENCE_S
from sent_requests import Sent
from virtual_runs import contents

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.model.ports import Header, SearchKey
from loadsim.model.records import SPANS, TaskFields
from loadsim.model.terms import ASSISTANT_TASKS, CALDAV, INJECT, PUBLIC_TASKS, RESOLVE, RETURN_RECEIPT, TRACK_RECEIPT
from loadsim.protocols.registry import open_apart, open_assistants, open_driver, open_drivers
from loadsim.provisioning.check_tasks import ENDLESS_US, Post
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.sessions import NullObserver, services_of
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.users import assistant_tasks, tasks
from loadsim.users.activities import Step, Steps, UnderWay
from loadsim.users.calendar_tasks import schedule_of
from loadsim.users.mail import Sought, UserMail
from loadsim.users.tasks import FIRST_SYNC, TASKS, Read

RUN = "run-1"
NEW = 5
"""The number of messages that reach the user before they work."""


class EachTask(StandaloneControl):
    """Has an engine do the tasks; it is also the engine's control and its log, which keeps the requests of each task.

    The scenario has a user and their partner. If the partner's program is new, they do a first sync. `sent` has the
    requests by task, those of the last time; `failed` the tasks that failed.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(MonotonicClock())
        self.sent: dict[str, list[str]] = {}
        self.failed: list[tuple[str, str]] = []
        self._load = Workload(scenario)
        self._load.duration_us = ENDLESS_US
        group_of = self._load.population.group
        self._number, self._partner = sorted((1, 2), key=lambda user: group_of(user) != scenario.topology[0])
        self._post = Post(self._load, contents(), RUN)
        self._own, self._others = Sent(), Sent()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        load, scenario = self._load, self._load.scenario
        services, (own_group, *_) = services_of(scenario), scenario.topology
        await initialise(load, services, "auto", lambda *_: None)
        async with self._own.before(services) as own, self._others.before(services) as others:
            way = own_group.protocol, own_group.program, own_group.companions
            driver = open_driver(own_group.protocol, scenario.with_program(own, *way))
            drivers = open_drivers(load, contents(), others)
            self._others_driver = drivers[scenario.topology[-1].driver_name]
            assistants = open_assistants(scenario, others)
            self._plans_left = 1 + len(assistants)
            users = (self._number, self._partner)[: 1 + (scenario.topology[-1].program.first_sync is not None)]
            # What there is to do.
            self._planned = {*driver.supported_tasks & TASKS.keys()} - {FIRST_SYNC.name}
            self._planned |= {*PUBLIC_TASKS} if services.nntp else set()
            self._planned |= {"SCHEDULE"} if own_group.calendar == CALDAV else set()
            self._planned -= set() if services.ldap else {RESOLVE}
            # The run.
            plan, apart = self._plan, open_apart(own)
            drivers[own_group.driver_name] = driver
            by_engine = EngineLoad(load, users, drivers, contents(), RUN, {}, assistants, {}, plan, apart)
            options = EngineOptions(self._clock, time.time_ns() // 1000, self, owns_process=False, strict=True)
            self._engine = Engine(by_engine, EngineRecords(self, Events(None)), options)
            self._user = self._engine.users[0]
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                group.create_task(self._engine.run())
                group.create_task(self._end())
            await self._inject()

    # --- the engine's control -----------------------------------------------------------------------------------------

    async def common_start(self) -> int:
        """Send the user new mail, and wait until they have listed it. Return the common start."""
        partner, to = self._load.scenario.account(self._partner), {self._number: self._user.mail.account.address}
        submission = self._others_driver.session(partner, NullObserver()).submission
        for _ in range(NEW):
            outgoing = self._post.compose(partner, to, "ups10Kat")
            await submission.send(partner.address, outgoing.addresses, outgoing.message)
        await submission.close()
        while len(self._new) < NEW:
            if self._user.mail.maildrop:
                self._user.list_unannounced()
            await self._change()
        return await super().common_start()

    @property
    def _new(self) -> list[Header]:
        headers = [unread.header for unread in self._user.mail.inbox.unread]
        return [header for header in headers if header.tag and header.tag.run == RUN]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _end(self) -> None:
        """Stop the engine once all tasks are done, the last of which the server causes: a delivery report."""
        while self._plans_left or (TRACK_RECEIPT in self._planned and TRACK_RECEIPT not in self.sent):
            await self._change()
        self._engine.stop()

    async def _inject(self) -> None:
        """Submit as an outside sender does, if the driver can."""
        if not hasattr(self._others_driver, "outside"):
            return
        sender, began_ns = self._load.scenario.account(self._partner), self._clock.now_ns()
        outgoing = self._post.compose(sender, {self._number: self._user.mail.account.address})
        submission = self._others_driver.outside(sender, NullObserver())
        await submission.send(sender.address, outgoing.addresses, outgoing.message)
        self.sent[INJECT] = self._others.take(began_ns)
        await submission.close()

    # --- the engine's plan --------------------------------------------------------------------------------------------

    def _plan(self, user: UserMail, endless: bool) -> Iterator[UnderWay]:
        if user.number == self._number:
            steps = self._tasks(user) if user.call is None else self._calls()
            yield UnderWay("each task", steps, user.host.start_ns)

    def _tasks(self, user: UserMail) -> Steps:
        first, second, third, fourth, _ = self._new
        structure = yield Step(tasks.READ, first)
        about = _read(first, structure)
        steps: list[tuple[str, Any]] = [
            ("LOAD ATTACHMENT", (first, structure.attachments[0])),
            (RESOLVE, [first.sender]),
            *(("SCHEDULE", index) for index in range(2)),
            ("POST", 0),
            *(("SEND", 0), ("REPLY", about), ("REPLY ALL", about), ("FORWARD", about), (RETURN_RECEIPT, about)),
            ("SEARCH", Sought(first, SearchKey.SENDER, first.sender)),
            *(("COPY", first), ("MOVE", first), ("DELETE", second), ("EVICT", [third]), ("DELETE UNREAD", fourth)),
            *(("BROWSE", 0), ("BROWSE PUBLIC", 0)),
        ]
        for name, value in steps:
            if name in self._planned:
                task = schedule_of(user) if name == "SCHEDULE" else TASKS[name]
                result = yield Step(task, value)
                if name == "REPLY" and "SAVE SENT" in self._planned:
                    yield Step(tasks.SAVE_SENT, result)
        self._plans_left -= 1
        self._changed.set()

    def _calls(self) -> Steps:
        """Yield an assistant's tasks, on a message that its user leaves alone."""
        header = self._new[-1]
        yield Step(assistant_tasks.FIND, Sought(header, SearchKey.SENDER, header.sender))
        structure = yield Step(assistant_tasks.LOOK_AT, header)
        outgoing = yield Step(assistant_tasks.DRAFT, _read(header, structure))
        yield Step(assistant_tasks.SEND_DRAFT, outgoing)
        self._plans_left -= 1
        self._changed.set()

    # --- the engine's log ---------------------------------------------------------------------------------------------

    def task(self, record: TaskFields) -> None:
        made = TaskRecord(*record)
        if made.task in SPANS or made.started_ns is None:
            return
        if made.outcome != "ok":
            self.failed.append((made.task, made.error))
        is_own = made.user == self._number and made.task not in ASSISTANT_TASKS
        if is_own or made.task in (*ASSISTANT_TASKS, FIRST_SYNC.name):
            requests = self._own if is_own else self._others
            self.sent[made.task] = requests.take(made.started_ns - round(made.late_between_s * 1e9))
        self._changed.set()

    def ignore(self, *_: object) -> None:
        """Keep nothing else."""

    mail = command = facts = health = gather = write = ignore


def _read(header: Header, structure: Any) -> Read:
    assert header.tag is not None
    return Read(header, header.tag, structure, "each task")
