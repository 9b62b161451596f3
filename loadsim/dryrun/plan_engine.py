"""One engine of a plan: some of the users in virtual time, each with a mailbox in memory, and what they add up to."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, cast

from loadsim.dryrun.rounds import Others, Rounds
from loadsim.dryrun.tally import HOUR_S, Tally
from loadsim.engine.clock import LoopClock, run_virtual
from loadsim.engine.engine import Dependencies, Engine
from loadsim.engine.event_log import Events
from loadsim.model.content import Contents
from loadsim.model.content.templates import Pool
from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.partition import divide
from loadsim.model.ports import Endpoint, Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.protocols.registry import IN_THE_ENGINE, open_driver


@dataclass(frozen=True, slots=True)
class Planned:
    """What the users of one engine do, and the digests of their own plans, by their numbers."""

    tally: Tally
    digests: dict[int, bytes]


class PlannedPool(Pool):
    """The pool without the texts that are as long as they are, whatever they say: nobody reads them."""

    def prose(self, style: str, variant: int, size_bytes: int, foreign: bool = False) -> bytes:
        """What is to be encoded has a length that depends on what it says."""
        return super().prose(style, variant, size_bytes, foreign) if foreign else b"." * size_bytes


class PlannedContents(Contents):
    """Contents as large as those of a run. The schedules' text costs more to write than the rest of the day."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._pool = PlannedPool(seed)

    def schedule(self, *, id: str, user: int, size_bytes: int, **_: Any) -> bytes:  # noqa: A002
        """As many bytes as the schedule file has, with its evidence."""
        evidence = MessageTag("plan", user, id, "schedule", 0, "").header()
        return f"{HEADER}: {evidence}\r\n\r\n".encode().ljust(size_bytes, b".")


@contextmanager
def uncollected() -> Iterator[None]:
    """For a process that plans, and then ends: Python's garbage collector does not work by itself, nor at the end.

    Nothing is garbage before the end of the plan, and to look for that takes a tenth of the time. Then all of it is,
    and to find it in 10,000 users takes seconds; the end of the process does without.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def empty_tally(workload: Workload) -> Tally:
    """Nothing yet, of all users and hours."""
    scenario = workload.scenario
    hours = ceil(scenario.duration_s * scenario.compression / HOUR_S - 1e-9)
    return Tally(scenario.users, round(HOUR_S * 1e9 / scenario.compression), hours, workload.duration_us * 1000)


def plan_users(scenario: Scenario, part: int, engines: int, others: Others | None) -> Planned:
    """Let the users of engine `part` (from 0) of so many live through the run; None: there is no other engine."""
    workload = Workload(scenario)
    users = divide(scenario.users, engines)[part]
    contents = PlannedContents(scenario.run.seed)
    tally = empty_tally(workload)

    async def live(clock: LoopClock) -> None:
        nowhere = Services(Endpoint("localhost", 0), Endpoint("localhost", 0))
        rounds = Rounds(workload, users, clock, others)
        module = open_driver(
            IN_THE_ENGINE,
            nowhere,
            workload=workload,
            contents=contents,
            service_s=0.0,
            empty=scenario.initialise == "never",
            post=rounds.post,
        )
        engine = Engine(
            Dependencies(
                workload=workload,
                drivers={group.protocol: module for group in scenario.topology},
                contents=contents,
                recorder=tally,
                events=Events(io.StringIO()),
                clock=clock,
                control=rounds,
            ),
            users=users,
            run_id="plan",
            wall_clock_us=0,
            self_observing=False,  # there is nothing to write, and nothing can be late
            strict=True,  # otherwise the plan could miss users, and be a smaller load than the scenario's
        )
        rounds.serve(engine, cast(Any, module).arrive)
        await engine.run()

    run_virtual(live)
    return Planned(tally, {user: workload.user_digest(user) for user in users})
