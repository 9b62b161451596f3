"""A plan made by a run's engine in virtual time, with waiting, lateness and checks: the oracle of `dryrun`."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from loadsim.dryrun.plan_engine import RUN_ID, WALL_CLOCK_US, PlannedContents, smtp_endpoints, tally_of
from loadsim.dryrun.rounds import InTransit, in_order, rounds_of
from loadsim.dryrun.tally import Tally
from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.model.ports import DriverOfSenders, Services
from loadsim.protocols.registry import IN_THE_ENGINE, open_driver
from loadsim.scenario.workload import Workload
from loadsim.users.plugin_tasks import idle_tasks


class EngineRounds:
    """Controls the engine (`control.Control`), and delivers each round's mail at the end of the next."""

    arrive: Any

    def __init__(self, workload: Workload, clock: VirtualLoop) -> None:
        self._clock = clock
        self._start_ns = 10**9 * round(workload.scenario.run.ramp_up_s + 2)
        self._ends_ns = rounds_of(workload)
        self._ended = asyncio.Event()
        self._posted: list[InTransit] = []
        self._in_transit: list[InTransit] = []

    def post(self, mail: Any, users: Sequence[int]) -> None:
        self._posted.append(InTransit(self._clock.now_ns(), mail.tag.id, users, mail))

    async def all_ready(self) -> None:
        pass

    async def common_start(self) -> int:
        self._wait()
        return self._start_ns

    def stop_waiting(self) -> None:
        self._ended.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        raise AssertionError

    async def all_finished(self) -> None:
        await self._ended.wait()

    def all_delivered(self, outstanding: int) -> bool:
        return not outstanding

    def _wait(self) -> None:
        left_ns = self._start_ns + self._ends_ns.pop(0) - self._clock.now_ns()
        asyncio.get_running_loop().call_later(left_ns * 1e-9, self._end_round)

    def _end_round(self) -> None:
        arriving, self._in_transit, self._posted = in_order(self._in_transit), self._posted, []
        if len(self._ends_ns) < 2:
            arriving += in_order(self._in_transit)
            self._in_transit = []
        for mail in arriving:
            self.arrive(mail.mail, mail.users)
        if self._ends_ns:
            self._wait()
        else:
            self._ended.set()


def plan_by_engine(workload: Workload) -> tuple[Tally, Counter[str]]:
    """Return the totals of all users, and the change in their mailboxes by cause."""
    scenario, tally, stored_bytes = workload.scenario, tally_of(workload), Counter[str]()
    contents = PlannedContents(scenario.run.seed)

    async def run(clock: VirtualLoop) -> None:
        rounds = EngineRounds(workload, clock)
        driver = open_driver(
            IN_THE_ENGINE,
            Services(),
            workload=workload,
            contents=contents,
            service_s=0.0,
            empty=scenario.initialise == "never",
            post=rounds.post,
            endpoints=smtp_endpoints(workload),
            stored_bytes=stored_bytes,
        )
        rounds.arrive = cast(Any, driver).arrive
        users, drivers = range(1, scenario.users + 1), {group.driver_name: driver for group in scenario.topology}
        load = EngineLoad(
            workload,
            users,
            drivers,
            contents,
            RUN_ID,
            plugin_tasks=idle_tasks(scenario),
            senders=workload.senders,
            outside=cast(DriverOfSenders, driver),
        )
        options = EngineOptions(clock, WALL_CLOCK_US, rounds, owns_process=False, strict=True)
        await Engine(load, EngineRecords(tally, Events(None)), options).run()

    run_virtual(run)
    return tally, stored_bytes
