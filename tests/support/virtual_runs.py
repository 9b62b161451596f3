"""Whole runs in virtual time on the in-memory mail system, recorded in a real timing log and as they are told."""

import asyncio
import functools
import gc
import io
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import yaml
from heaps import small_heap
from named_records import CommandRecord, MailRecord, TaskRecord
from timing_samples import HEADER

from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.control import Control
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.content.compose import Contents
from loadsim.model.ports import Driver, Endpoint, OpenCalendar, PortsApart, Services
from loadsim.model.records import SPANS, CommandFields, MailFields, TaskFields
from loadsim.protocols.in_memory import Fault, InMemoryDriver
from loadsim.protocols.registry import open_driver
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import TimingLog, read_log
from loadsim.timinglog.writer import TimingLogWriter
from loadsim.users.plugin_tasks import load_tasks

QUIET: dict[str, Any] = {
    "from": "loadsim-5.5/medium",
    "new_mail": {"per_day": 0, "recipients": 1, "list_chance": "0%"},
    "process_inbox": {"per_day": 0},
    "browse": {"per_day": 0},
    "schedule": {"per_day": 0},
    "after_reading": {"reply": 0, "reply_all": 0, "forward": 0, "move": 0, "copy": 0, "delete": 0},
    "messages": {"ups1K": 1, "ups2K": 0, "ups4K": 0, "ups10Kat": 0, "upsWDatt": 0}
    | dict.fromkeys(("upsBMobj", "upsXLatt", "upsXLobj"), 0),
    "start_state": {"inbox": 0, "deleted_items": 1, "folders": 3, "messages_per_folder": 5},
}
"""A profile whose users do nothing but what a test adds. A day is 8 hours."""


NOWHERE = Services(Endpoint("localhost", 0), Endpoint("localhost", 0))


@functools.cache
def contents() -> Contents:
    """The contents of seed 1, made once."""
    return Contents(1)


def quiet(**rows: Any) -> dict[str, Any]:
    """The quiet profile with other rows; sections are merged."""
    profile = dict(QUIET)
    for row, value in rows.items():
        profile[row] = {**profile[row], **value} if isinstance(value, dict) and row in profile else value
    return profile


def scenario_of(
    place: Path,
    *groups: tuple[dict[str, Any], int],
    day: str = "600s",
    ramp_up: str = "1s",
    programs: Sequence[str] = ("outlook-like",),
    **keys: Any,
) -> Scenario:
    """A scenario of groups (profile, users) on a server that is not there; profiles without a mailbox come last."""
    place.mkdir(exist_ok=True)
    topology = []
    for at, (profile, users) in enumerate(groups):
        path = place / f"profile{at}.yaml"
        path.write_text(yaml.safe_dump({"name": f"profile{at}"} | profile), encoding="utf-8")
        on_server = {} if "mailbox" in profile else {"protocol": "fake", "program": list(programs)}
        topology.append({"profile": str(path), "users": users} | on_server)
    document = {
        "name": "virtual",
        "server": "embedded",
        "topology": topology,
        "lists": {"count": 0},
        "run": {"day_length": day, "ramp_up": ramp_up, "warm_up": "0s", "window": day},
    } | keys
    (place / "scenario.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_scenario(str(place / "scenario.yaml"))


class Tape:
    """A recorder that passes everything on to a timing log, and keeps it as it was told, to the nanosecond."""

    def __init__(self, log: TimingLogWriter) -> None:
        self._log = log
        self.tasks: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.mails: list[dict[str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self._recent: defaultdict[int, deque[dict[str, Any]]] = defaultdict(lambda: deque(maxlen=100))
        self.told: dict[str, Any] = {}
        self.complaint: str | None = None
        self.flushes = 0

    def task(self, made: TaskFields) -> None:
        """Also notes which commands the user gave while the task ran."""
        self._log.task(made)
        record = TaskRecord(*made)._asdict()
        if record["task"] in SPANS:
            self.spans.append(record)
            return
        begun = record["started_ns"]
        if begun is not None:
            begun -= round(record["late_between_s"] * 1e9)
        recent = self._recent[record["user"]]
        given = [command["command"] for command in recent if begun is not None and command["started_ns"] >= begun]
        self.tasks.append(record | {"commands": given})
        recent.clear()

    def mail(self, made: MailFields) -> None:
        self._log.mail(made)
        self.mails.append(MailRecord(*made)._asdict())

    def command(self, made: CommandFields) -> None:
        self._log.command(made)
        record = CommandRecord(*made)._asdict()
        self.commands.append(record)
        self._recent[record["user"]].append(record)

    def facts(self, facts: Mapping[str, Any]) -> None:
        self._log.facts(facts)
        self.told.update(facts)

    def health(self, sample: Mapping[str, Any]) -> None:
        self._log.health(sample)

    def gather(self) -> None:
        self._log.gather()

    def write(self) -> str | None:
        self.flushes += 1
        return self._log.write() or self.complaint


@dataclass
class Lived:
    """An ended run. `failure` is the engine's exception, or None; `frozen` objects are exempt from collection then."""

    scenario: Scenario
    tape: Tape
    log: TimingLog
    events: list[dict[str, Any]]
    engine: Engine
    driver: InMemoryDriver
    snapshots: list[LiveSnapshot] = field(default_factory=list)
    failure: BaseException | None = None
    frozen: int = 0

    def tasks(self, name: str | None = None, user: int | None = None) -> list[dict[str, Any]]:
        return [
            task
            for task in self.tape.tasks
            if (name is None or task["task"] == name) and (user is None or task["user"] == user)
        ]

    def outcomes(self, name: str) -> list[str]:
        return [task["outcome"] for task in self.tasks(name)]

    def mails(self, event: str, user: int | None = None) -> list[dict[str, Any]]:
        return [mail for mail in self.tape.mails if mail["event"] == event and user in (None, mail["user"])]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["event"] == event]


During = Callable[[Engine, InMemoryDriver], Awaitable[None]]


def live(
    scenario: Scenario,
    place: Path,
    *,
    service_s: float = 0.020,
    fault: Fault | None = None,
    limit_s: float = 60.0,
    during: During | None = None,
    users: Sequence[int] | None = None,
    senders: Sequence[int] | None = None,
    wrap: Callable[[InMemoryDriver], Driver] = lambda driver: driver,
    companions: Callable[[InMemoryDriver], Mapping[str, Sequence[Driver]]] = lambda _: {},
    assistants: Callable[[InMemoryDriver], Mapping[str, Mapping[str, Driver]]] = lambda _: {},
    prepare: Callable[[Tape], None] = lambda _: None,
    told: TextIO | None = None,
    control: Callable[[VirtualLoop], Control] | None = None,
    header: Mapping[str, Any] | None = None,
    calendar: OpenCalendar | None = None,
) -> Lived:
    """Run a scenario, and `during` at the same time; both end together, in virtual time.

    `header` adds to or replaces keys of the log's.
    """
    workload = Workload(scenario)
    path = place / f"{len(list(place.glob('*.tlog')))}.tlog"
    out = told or io.StringIO()
    tapes: list[tuple[Tape, Engine, InMemoryDriver, TimingLogWriter]] = []
    snapshots: list[LiveSnapshot] = []

    async def main(clock: VirtualLoop) -> None:
        driver = open_driver(
            "fake", NOWHERE, workload=workload, contents=contents(), service_s=service_s, fault=fault, limit_s=limit_s
        )
        assert isinstance(driver, InMemoryDriver)
        writer = TimingLogWriter(path, HEADER | dict(header or {}), clock.now_ns())
        tape = Tape(writer)
        prepare(tape)
        load = EngineLoad(
            workload,
            users or range(1, scenario.users + 1),
            dict.fromkeys((group.driver_name for group in scenario.topology), wrap(driver)),
            contents(),
            "run-1",
            companions(driver),
            assistants(driver),
            load_tasks(scenario),
            apart=PortsApart(calendar=calendar),
            senders=workload.senders if senders is None else senders,
            outside=driver,
        )
        options = EngineOptions(clock, control=control(clock) if control else None)
        engine = Engine(load, EngineRecords(tape, Events(out), snapshots.append), options)
        tapes.append((tape, engine, driver, writer))
        beside = asyncio.ensure_future(during(engine, driver)) if during else None
        try:
            await engine.run()
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.wait([beside])
        if beside is not None and not beside.cancelled():
            beside.result()

    failure: BaseException | None = None
    frozen = 0
    try:
        with small_heap():
            run_virtual(main)
            frozen = gc.get_freeze_count()
    except BaseExceptionGroup as raised:
        failure = raised
    tape, engine, driver, writer = tapes[0]
    writer.close()
    lines = out.getvalue().splitlines() if isinstance(out, io.StringIO) else []
    events = [json.loads(line) for line in lines]
    return Lived(scenario, tape, read_log(path), events, engine, driver, snapshots, failure, frozen)


def chosen(commands: Mapping[tuple[int, str, int], Any]) -> Fault:
    """Fails the n-th command (from 0) of one name of a user, as given: {(user, name, n): failure}."""
    given: dict[tuple[int, str], int] = {}

    def fault(user: int, name: str, _: int) -> Any:
        number = given.get((user, name), 0)
        given[user, name] = number + 1
        return commands.get((user, name, number))

    return fault


EVERYTHING = quiet(
    new_mail={"per_day": 60, "recipients": 2, "list_chance": "30%"},
    process_inbox={"per_day": 60, "delete_unread": "10%"},
    browse={"per_day": 30},
    search={"per_day": 30},
    schedule={"per_day": 20},
    after_reading={"reply": "10%", "reply_all": "10%", "forward": "10%", "move": "15%", "copy": "15%", "delete": "15%"},
    messages={"ups1K": 1, "ups10Kat": 1},
    load_attachment="50%",
    inbox_limit=10,
    start_state={"inbox": 4},
)


LISTS = {"lists": {"count": 2, "size": {"min": 2, "average": 2, "max": 2}}}


def assert_one_at_a_time(lived: Lived) -> None:
    """Task intervals of each user are disjoint, from preparation to end."""
    for user in {task["user"] for task in lived.tape.tasks}:
        ended = 0
        for task in lived.tasks(user=user):
            if task["started_ns"] is None:
                continue
            assert task["started_ns"] >= ended, task
            ended = task["ended_ns"] if task["ended_ns"] is not None else task["started_ns"]


def recipients(lived: Lived) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for mail in lived.mails("accepted"):
        found.setdefault(mail["message"], set()).add(mail["user"])
    return found
