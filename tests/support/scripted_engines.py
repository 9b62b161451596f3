"""Engines that do what a test tells them, and a coordinator that conducts them."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from control_lines import read_line
from patience import PATIENCE_S
from virtual_runs import NOWHERE, QUIET, scenario_of

from loadsim.engine.channel import Channel, start_process
from loadsim.engine.control import Control
from loadsim.engine.coordinator import HEARTBEAT_S, Coordinator, MemberAssignment
from loadsim.engine.event_log import Events
from loadsim.engine.process import Begin
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.partition import Assignment

SCRIPTED = """
import json, os, signal, sys, time
def say(**message):
    print(json.dumps(message), flush=True)
def hear(kind):
    while line := sys.stdin.readline():
        heard = json.loads(line)
        with open(begin["log"], "a") as log:
            log.write(line)
        if kind in heard:
            return heard[kind]
    sys.exit(0)
def snapshot(phase, undelivered=0, heard=0):
    say(snapshot=dict(phase=phase, at_s=1.0, users=2, users_on=2, tasks={"READ": {"ok": 1}},
        accepted_undelivered=undelivered, sessions_lost=0, generator_late_most_s=0.0, heard=heard))
begin = json.loads(sys.stdin.readline())["begin"]
exec(begin["header"]["acts"])
"""
"""An engine that does what its header says, and writes the messages it gets into its log's file."""


async def scripted_engine(_: MemberAssignment) -> Channel:
    return await start_process((sys.executable, "-c", SCRIPTED))


READY = "say(ready=os.getpid()); "
ON = READY + "hear('log on'); say(on=True); hear('start'); "
FINISHED = "say(finished=True); hear('drain'); "
DRAINED = "; hear('drained'); say(over=True)"
GOOD = ON + FINISHED + "snapshot('drain')" + DRAINED


class Conducted:
    """A pool of scripted engines, and what came of it."""

    def __init__(
        self, place: Path, *acts: str, assignments: Sequence[Assignment] = (), heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        """An engine for each act, with two users: consecutive ones, unless `hands` say who."""
        users = 2 * len(acts)
        scenario = scenario_of(place / "scenario", (QUIET, users))
        assignments = assignments or [Assignment(users, 1, first, first + 2) for first in range(1, users, 2)]
        self.begins = [
            Begin(scenario, NOWHERE, assignment, str(place / f"{at}"), {"engine": str(at), "acts": act})
            for at, (act, assignment) in enumerate(zip(acts, assignments, strict=True), 1)
        ]
        self.heartbeat_s = heartbeat_s
        self.out = io.StringIO()
        self.snapshots: list[LiveSnapshot] = []
        self.watch = self.snapshots.append
        self.pool: Coordinator | None = None
        self.gave_up: list[str] = []

    def run(self, stop: bool = False, control: Callable[[], Control] | None = None) -> Conducted:
        """To the end; `stop` as soon as it runs. `control` keeps the pool in step with others."""

        async def main() -> None:
            above = control() if control else None
            self.pool = Coordinator(
                self.begins,
                Events(self.out),
                self.watch,
                above,
                open_channel=scripted_engine,
                heartbeat_s=self.heartbeat_s,
            )
            if stop:
                asyncio.get_running_loop().call_soon(self.pool.stop)
            await asyncio.wait_for(self.pool.run(), PATIENCE_S)

        asyncio.run(main())
        return self

    def received(self, engine: int) -> list[tuple[str, Any]]:
        return [read_line(line) for line in Path(self.begins[engine - 1].log).read_text().splitlines()]

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]
