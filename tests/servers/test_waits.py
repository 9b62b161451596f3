"""A task's service time holds all its waits for the server, with each driver.

Each user's connections lead through a proxy that keeps each answer, and each end of a connection, back for a moment.
While the event loop has nothing to do in a task, its user waits. So the spans in which both are true lie within
commands that the driver has reported, and in the task's service time.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from selectors import DefaultSelector, SelectorKey
from typing import Any

import pytest
from named_records import TaskRecord
from patience import PATIENCE_S
from small_runs import population_of
from virtual_runs import EVERYTHING, contents, scenario_of

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.model.ports import Account, Driver, Observer, Services, Session
from loadsim.model.records import SPANS, Arrival, CommandFields, MailFields, TaskFields
from loadsim.protocols.registry import open_drivers
from loadsim.provisioning.initialise import initialise
from loadsim.scenario.workload import Workload

HELD_S = 0.002
USERS = 2

Span = tuple[int, int]


class IdleSelector(DefaultSelector):
    """Notes when the loop had nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: list[Span] = []

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        since_ns = time.monotonic_ns()
        ready = super().select(timeout)
        self.idle.append((since_ns, time.monotonic_ns()))
        return ready


@dataclass
class Proxy:
    """A user's way to a server; `held` are the spans in which something was kept back."""

    host: str
    port: int
    held: list[Span]
    _relaying: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[int]:
        """Yield the proxy's port."""
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._relaying:
                task.cancel()
            await asyncio.gather(*self._relaying, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relaying.add(task)
        answers, onward = await asyncio.open_connection(self.host, self.port)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(self._there(reader, onward), self._back(answers, writer))
        finally:
            self._relaying.discard(task)
            onward.transport.abort()
            writer.transport.abort()

    async def _there(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            onward.write(data)
        onward.write_eof()

    async def _back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b"\r\n"
        while data:
            data = await answers.read(1 << 16)
            since_ns = time.monotonic_ns()
            await asyncio.sleep(HELD_S)
            self.held.append((since_ns, time.monotonic_ns()))
            writer.write(data) if data else writer.close()


@asynccontextmanager
async def through(services: Services, held: list[Span]) -> AsyncIterator[Services]:
    """Yield a user's services through proxies, which note in `held` when they kept something back."""
    ways: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        for name, endpoint in services.endpoints.items():
            port = await stack.enter_async_context(Proxy(endpoint.host, endpoint.port, held)())
            ways[name] = replace(endpoint, host="127.0.0.1", port=port)
        yield replace(services, **ways)


@dataclass
class Noting:
    """Passes a driver's reports on to an observer, and notes when commands were under way (`ports.Observer`)."""

    observer: Observer
    commands: list[Span]

    def __post_init__(self) -> None:
        self.lines, self.now = self.observer.lines, self.observer.now
        self.arrived, self.lost = self.observer.arrived, self.observer.lost

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
        self.commands.append((since, self.now() if arrival is None else max(since, arrival[0])))
        self.observer.command(name, since, outcome, sent_bytes, received_bytes, arrival, own_ns)


@dataclass
class PerUser:
    """A driver for each user, as one (`ports.Driver`)."""

    drivers: Mapping[int, Driver]
    commands: Mapping[int, list[Span]]

    def __post_init__(self) -> None:
        self.name, self.supported_tasks = self.drivers[1].name, self.drivers[1].supported_tasks

    def session(self, account: Account, observer: Observer) -> Session:
        return self.drivers[account.number].session(account, Noting(observer, self.commands[account.number]))


@dataclass
class Records:
    """An engine's recorder, which keeps the tasks; it ends the run once each of these has succeeded."""

    expected: Set[str]
    tasks: list[TaskRecord] = field(default_factory=list)
    engine: Engine | None = None

    def task(self, record: TaskFields) -> None:
        if (made := TaskRecord(*record)).task not in SPANS:
            self.tasks.append(made)
        if self.engine is not None and self.succeeded >= self.expected:
            self.engine.stop()
            self.engine = None

    @property
    def succeeded(self) -> set[str]:
        return {task.task for task in self.tasks if task.outcome == "ok"}

    def mail(self, record: MailFields) -> None: ...

    def command(self, record: CommandFields) -> None: ...

    def facts(self, facts: Mapping[str, Any]) -> None: ...

    def health(self, sample: Mapping[str, Any]) -> None: ...

    def gather(self) -> None: ...

    def write(self) -> str | None:
        return None


def common(*spans: Iterable[Span]) -> list[Span]:
    """Return the spans that are within one of each."""
    changes = Counter[int]()
    for each in spans:
        for since, until in joined(each):
            changes[since] += 1
            changes[until] -= 1
    found, depth, since_ns = [], 0, 0
    for at_ns, change in sorted(changes.items()):
        if depth == len(spans):
            found.append((since_ns, at_ns))
        depth, since_ns = depth + change, at_ns
    return found


def length_ns(spans: Iterable[Span]) -> int:
    return sum([until - since for since, until in spans])


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans without overlaps."""
    found: list[Span] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        else:
            found.append((since, until))
    return found


async def tasks_of(
    workload: Workload, services: Services, held: Mapping[int, list[Span]], commands: Mapping[int, list[Span]]
) -> list[TaskRecord]:
    """Run users, each through proxies of their own, until each planned task has succeeded."""
    await initialise(workload, services, "auto", lambda *_: None)
    (group,) = workload.scenario.topology
    records = Records(group.planned_tasks - {"LOGOFF"})
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        drivers: dict[int, Driver] = {}
        for user, own in held.items():
            way = await stack.enter_async_context(through(services, own))
            ((name, drivers[user]),) = open_drivers(workload, contents(), way).items()
        load = EngineLoad(workload, [*held], {name: PerUser(drivers, commands)}, contents(), "run-1")
        options = EngineOptions(MonotonicClock(), time.time_ns() // 1000, owns_process=False, strict=True)
        records.engine = Engine(load, EngineRecords(records, Events(io.StringIO())), options)
        await records.engine.run()
    return records.tasks


PROGRAMS = {
    "kept": "name: kept\nconnection: kept\nsubmission: pipelining\n",
    "several": "name: several\nconnections: 5\nheader_cache: FLAGS\nmessage: UID BODY.PEEK[]\n",
    "per-view": "name: per-view\nsession: per-view\nidle: no\npoll: 0.1s\n",
}
"""Mail programs with another connection to submit by, several connections to the mailbox, and a session per view."""

nightly = pytest.mark.nightly(part="drivers")

SITES = [
    pytest.param("imap", "", "embedded_server", {}, id="imap", marks=nightly),
    pytest.param("imap", "kept", "embedded_server", {}, id="kept", marks=pytest.mark.slow),
    pytest.param("imap", "several", "embedded_server", {}, id="several", marks=nightly),
    pytest.param("imap", "per-view", "embedded_server", {}, id="per-view", marks=nightly),
    pytest.param("imap", "per-view", "dovecot_postfix", {"tls": "starttls"}, id="STARTTLS", marks=nightly),
    pytest.param("imap", "kept", "dovecot_postfix", {"tls": "implicit"}, id="TLS", marks=nightly),
    pytest.param("aioimaplib", "", "embedded_server", {}, id="aioimaplib", marks=nightly),
    pytest.param("mapi", "", "embedded_mapi_server", {}, id="mapi", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("protocol", "program", "server", "options"), SITES)
def test_what_the_server_keeps_back_is_service_time(
    tmp_path: Path, request: pytest.FixtureRequest, protocol: str, program: str, server: str, options: dict[str, str]
) -> None:
    # Run.
    group = {"profile": str(tmp_path / "profile0.yaml"), "users": USERS, "protocol": protocol}
    if program:
        (tmp_path / "program.yaml").write_text(PROGRAMS[program], encoding="utf-8")
        group["program"] = str(tmp_path / "program.yaml")
    after = dict.fromkeys(("reply", "reply_all", "forward", "move", "copy", "delete"), "15%")
    profile = EVERYTHING | {"inbox_limit": 3, "after_reading": after}
    run = {"mode": "stress", "day_length": "1h", "ramp_up": "0s", "warm_up": "0s", "window": "1h"}
    scenario = scenario_of(tmp_path, (profile, USERS), topology=[group], run=run)
    services = request.getfixturevalue(server)(*population_of(scenario), **options).services
    held: dict[int, list[Span]] = {user: [] for user in range(1, USERS + 1)}
    commands: dict[int, list[Span]] = {user: [] for user in held}
    selector = IdleSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        tasks = runner.run(tasks_of(Workload(scenario), services, held, commands))
    # Compare.
    waits = {user: common(selector.idle, own) for user, own in held.items()}
    waited, unreported, lacking = Counter[str](), Counter[str](), Counter[str]()
    for task in tasks:
        if task.outcome == "ok":
            assert task.started_ns is not None and task.ended_ns is not None
            began_ns = task.started_ns - round(task.late_between_s * 1e9)
            own = common(waits[task.user], [(began_ns, task.ended_ns)])
            waited[task.task] += length_ns(own)
            unreported[task.task] += length_ns(own) - length_ns(common(own, commands[task.user]))
            lacking[task.task] += max(0, length_ns(own) - (task.ended_ns - task.started_ns))
    assert (+waited).keys() == {task.task for task in tasks if task.moved_bytes}
    assert not +unreported
    assert not +lacking
