"""All users of a plan in virtual time, each with a mailbox in memory, and their totals."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Any, cast

from loadsim.dryrun.planned_user import Instant, PlannedSender, PlannedUser
from loadsim.dryrun.rounds import NoPeers, Peers, Progress, Rounds
from loadsim.dryrun.tally import HOUR_S, Tally
from loadsim.model.calendar_event import CalendarEvent
from loadsim.model.content.compose import Contents
from loadsim.model.content.sized import SizedContents
from loadsim.model.content.templates import Entity, Pool
from loadsim.model.mail_program import MailProgram
from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.ports import Account, DriverOfSenders, Endpoint, Observer, PortsApart, Services
from loadsim.model.terms import INJECT
from loadsim.protocols.registry import IN_THE_ENGINE, open_driver
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload
from loadsim.timinglog.planned_load import DAY_PARTS, MOST_DAYS
from loadsim.users.activities import plan
from loadsim.users.host import Host, SessionCounts
from loadsim.users.plugin_tasks import idle_tasks

RUN_ID = "plan-20260101T000000Z-0"
"""As long as the ID of a run, which each message has in its headers."""

WALL_CLOCK_US = 1_767_225_600_000_000
"""The wall clock at the start of a plan: it has as many digits as in a run."""


class PlannedPool(Pool):
    """A pool with filler in place of texts, which a plan never reads."""

    def prose(self, style: str, variant: int, size_bytes: int, foreign: bool = False) -> bytes:
        """Return filler. Foreign text is real: it is encoded, and its encoded length depends on its letters."""
        return super().prose(style, variant, size_bytes, foreign) if foreign else b"." * size_bytes


class PlannedContents(Contents):
    """Contents as large as a run's, but filler: generating real schedules would take up most of the planning time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._pool = PlannedPool(seed)
        self._sized = SizedContents(self._pool)

    def sent(self, tag: MessageTag, is_text: bool) -> Iterator[Entity]:
        """Yield nothing: the parts that users fetch are filler, too."""
        return iter(())

    def schedule(self, *, id: str, user: int, size_bytes: int, **_: Any) -> bytes:  # noqa: A002
        """Return filler of the schedule file's size, with its tag."""
        tag = MessageTag(RUN_ID, user, id, "schedule", WALL_CLOCK_US, "").header()
        return f"{HEADER}: {tag}\r\n\r\n".encode().ljust(size_bytes, b".")


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn off garbage collection within the block, and exempt the objects made in it from later collections.

    This is for a process that plans and then exits. A plan leaves no garbage before its end, but collections would take
    a tenth of the time. Afterwards, a single collection for 10,000 users would take seconds.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class PlannedDirectory:
    """A user's address book in a plan, which has all addresses (`ports.UserDirectory`)."""

    def __init__(self, _: Account, observer: Observer) -> None:
        self._observer = observer

    async def resolve(self, addresses: Sequence[str]) -> Sequence[str]:
        for _ in addresses:
            for _ in ("as typed", "whole"):
                self._observer.command("LDAP SEARCH", self._observer.now(), "ok", 0, 0)
        return ()

    async def close(self) -> None:
        pass


class PlannedCalendar:
    """A user's calendar on a server in a plan, which does not schedule (`ports.UserCalendar`)."""

    def __init__(self, _: Account, observer: Observer) -> None:
        self._observer = observer

    async def store(self, event: CalendarEvent, changes: bool) -> bool:
        self._ask("connection", *["GET"] * changes, "PUT", "GET")
        return True

    async def remove(self, event: CalendarEvent) -> None:
        self._ask("GET", "DELETE")

    async def follow(self) -> None:
        self._ask("sync-collection")

    async def close(self) -> None:
        pass

    def _ask(self, *names: str) -> None:
        for name in names:
            self._observer.command(f"CALDAV {name}", self._observer.now(), "ok", 0, 0)


class PlanHost:
    """The host of a plan's users (`users.host.Host`): in place of an engine, it has only what they use.

    The common start is at 0, and all accepted mail arrives.
    """

    start_ns = 0
    run_id = RUN_ID
    plan = staticmethod(plan)

    def __init__(self, workload: Workload, tally: Tally, now: Instant) -> None:
        self.workload = workload
        self.contents = PlannedContents(workload.seed)
        self.plugin_tasks = idle_tasks(workload.scenario)
        self.recorder = tally
        self.now_ns = now.now_ns
        self.counts = SessionCounts()
        has_directory = isinstance(workload.scenario.server, Server) and workload.scenario.server.ldap is not None
        self.apart = PortsApart(directory=PlannedDirectory if has_directory else None, calendar=PlannedCalendar)

    def wall_clock_us(self) -> int:
        return WALL_CLOCK_US

    def mail_accepted(self, *_: object) -> None:
        pass

    def mail_seen(self, *_: object) -> None:
        pass


@dataclass(slots=True)
class PlannedUsers:
    """The totals of some users, the change in their mailboxes by cause (`terms.STORED`), and their plans' digests."""

    tally: Tally
    stored_bytes: Counter[str]
    digests: dict[int, bytes]

    def add(self, other: PlannedUsers) -> None:
        """Add other users of the same plan."""
        self.tally.add(other.tally)
        self.stored_bytes.update(other.stored_bytes)  # a sum of counters would lose negative counts
        self.digests |= other.digests


def plan_users(
    workload: Workload, numbers: Sequence[int], peers: Peers | None = None, progress: Progress | None = None
) -> PlannedUsers:
    """Run the users and outside senders with these numbers; `peers` run all others."""
    scenario, tally, now = workload.scenario, tally_of(workload), Instant()
    host, rounds = PlanHost(workload, tally, now), Rounds(workload, now, peers or NoPeers())
    stored_bytes: Counter[str] = Counter()
    driver = open_driver(
        IN_THE_ENGINE,
        Services(),
        workload=workload,
        contents=host.contents,
        service_s=0.0,
        empty=scenario.initialise == "never",
        post=rounds.post,
        endpoints=smtp_endpoints(workload),
        stored_bytes=stored_bytes,
    )
    rounds.arrive = cast(Any, driver).arrive
    users = {
        number: PlannedUser(cast(Host, host), now, scenario.account(number), driver)
        for number in numbers
        if number not in workload.senders
    }
    senders = [
        PlannedSender(cast(Host, host), now, number, cast(DriverOfSenders, driver))
        for number in numbers
        if number in workload.senders
    ]
    for number, user in users.items():
        user.log_on()
        tally.copied.update(copied(workload, cast(Any, driver), number))
    tally.facts({"start_ns": 0})
    for user in users.values():
        user.begin_day()
    rounds.run(users, senders, progress)
    for user in users.values():
        user.log_off()
    return PlannedUsers(tally, stored_bytes, {number: workload.user_digest(number) for number in numbers})


def copied(workload: Workload, driver: Any, user: int) -> dict[str, int]:
    """Count what a user's FIRST SYNC copies of the start state: headers, bodies, and the bodies' bytes."""
    sync, scenario = workload.population.group(user).program.first_sync, workload.scenario
    if sync is None or driver.empty:
        return {}
    account, counts = scenario.account(user), workload.start_state(user)
    newest = {folder: count if sync.bodies is None else min(count, sync.bodies) for folder, count in counts.items()}
    sizes = (
        driver.initial(account, folder, index).size_bytes
        for folder, bodies in newest.items()
        for index in range(counts[folder] - bodies, counts[folder])
    )
    return {"headers": sum(counts.values()), "bodies": sum(newest.values()), "bytes": sum(sizes)}


def tally_of(workload: Workload) -> Tally:
    """Return an empty tally for a workload's users and hours."""
    scenario = workload.scenario
    hours = ceil(scenario.duration_s * scenario.compression / HOUR_S - 1e-9)
    hour_ns, duration_ns = round(HOUR_S * 1e9 / scenario.compression), workload.duration_us * 1000
    parts = DAY_PARTS * min(ceil(scenario.run.cycles - 1e-9), MOST_DAYS)
    further_tasks = (*scenario.plugin_tasks, *([INJECT] if scenario.outside else []))
    return Tally(scenario.users + scenario.senders, hour_ns, hours, duration_ns, parts, further_tasks)


def smtp_endpoints(workload: Workload) -> Callable[[int], Endpoint]:
    """Return a function that returns a user's SMTP endpoint, with connections as in the user's mail program.

    Outside senders submit by `server.outside` or, without it, as the first group does.
    """
    scenario, nowhere = workload.scenario, Endpoint("localhost", 0)
    smtp = scenario.server.smtp if isinstance(scenario.server, Server) else None
    outside = scenario.server.outside if isinstance(scenario.server, Server) else None
    services = Services(smtp=smtp or nowhere)

    @lru_cache
    def of_program(protocol: str, program: MailProgram) -> Endpoint:
        return scenario.with_program(services, protocol, program).endpoint("smtp")

    def of_number(number: int) -> Endpoint:
        if number in workload.senders:
            group = scenario.topology[0]
            return outside or replace(of_program(group.protocol, group.program), auth=False)
        group = workload.population.group(number)
        return of_program(group.protocol, group.program)

    return of_number
