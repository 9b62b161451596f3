"""The mailboxes of one engine's users prepared in a process: `python -m loadsim.cluster.prepare_process`.

Its machine starts it, and speaks with it by its standard input and output (`prepare`). To make what should lie in a
mailbox, and compare, takes some 50 ms of a core: so it is nothing for a process that has to be heard of once a second,
and with as many cores it goes as many times as fast.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from loadsim.cluster.background import background_tasks
from loadsim.cluster.prepare import BEAT_S, Standing
from loadsim.engine.channel import own_pipes, pipes_to_pool
from loadsim.engine.control import decode, encode
from loadsim.engine.process import packed, unpacked
from loadsim.errors import ConfigError
from loadsim.model.partition import Assignment
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.provisioning.initialise import inspect, restore

PREPARER = (sys.executable, "-P", "-m", "loadsim.cluster.prepare_process")


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What such a process needs to know: `hand` has the users, `at_once` how many mailboxes it visits at a time."""

    scenario: Scenario
    services: Services
    hand: Assignment
    at_once: int

    def encode(self) -> bytes:
        """The line that it is told first."""
        about = {"hand": asdict(self.hand), "at_once": self.at_once}
        return encode(prepare={"values": packed(self.scenario, self.services), **about})

    @classmethod
    def decode(cls, line: bytes) -> PrepareRequest:
        """The inverse."""
        _, about = decode(line)
        scenario, services = unpacked(about["values"])
        return cls(scenario, services, Assignment(**about["hand"]), about["at_once"])


class ControllerGone(Exception):
    """Nobody is there any more to prepare for."""


class Progress:
    """Tells where we stand: at once when a phase begins, and once in a beat."""

    def __init__(self, say: Callable[[bytes], None], standing: Standing) -> None:
        self._say = say
        self._standing = standing

    def note(self, phase: str, done: int, of: int) -> None:
        """As the mailboxes' visitors tell it."""
        begins = phase != self._standing.phase
        self._standing = Standing(phase, done, of)
        if begins:
            self.tell()

    def tell(self) -> None:
        """Now."""
        self._say(encode(progress=self._standing))

    async def keep_telling(self) -> None:
        """For ever."""
        while True:
            self.tell()
            await asyncio.sleep(BEAT_S)


async def live(from_machine: int, to_machine: int) -> None:
    """The life of such a process; the file descriptors are its ends of the two pipes."""
    async with pipes_to_pool(from_machine, to_machine) as (reader, say):
        if line := await reader.readline():
            with suppress(ControllerGone):
                try:
                    await prepare(PrepareRequest.decode(line), reader, say)
                except ConfigError as refusal:
                    say(encode(refused=str(refusal)))


async def prepare(errand: PrepareRequest, reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
    """Inspect, and when everybody has, change. Raises `ConfigError`, and `ControllerGone`."""
    change = asyncio.Event()

    async def listen() -> None:
        while await reader.readline():
            change.set()
        raise ControllerGone

    progress = Progress(say, Standing(of=len(errand.hand)))
    workload, mode = Workload(errand.scenario), errand.scenario.initialise
    about: dict[str, Any] = {"progress": progress.note, "at_once": errand.at_once}
    async with background_tasks(listen(), progress.keep_telling()):
        inspected = await inspect(workload, errand.services, mode, users=errand.hand, **about)
        progress.tell()
        say(encode(inspected=len(inspected.to_change)))
        await change.wait()
        done = await restore(workload, errand.services, mode, inspected, **about)
        progress.tell()
        say(encode(prepared=asdict(done)))
        await asyncio.Event().wait()  # for the end of the others, as whoever ends before is lost


def main() -> None:
    """On asyncio's own loop, as all who prepare mailboxes."""
    asyncio.run(live(*own_pipes()))


if __name__ == "__main__":
    main()
