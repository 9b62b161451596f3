"""The engines of one machine: started together, kept in step, watched, and given up one by one when they fail.

An engine that dies, or is not heard of for five seconds, is lost, and its users with it. The others go on; what it
has measured is in its log, and the verdict counts its users as lost.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

from loadsim.client.control import ACCEPTED_AT_ONCE, LONGEST_LINE_BYTES, decode, encode
from loadsim.client.engine_process import Begin
from loadsim.client.events import Events
from loadsim.client.snapshot import PHASES, LiveSnapshot, of_a_lost_engine, total
from loadsim.errors import ConfigError, RunInvalid

USERS_PER_ENGINE = 15_000
"""More than a core can serve in real time, by this project's own measurements."""

HEARTBEAT_S = 1.0
MISSES = 5
"""An engine that is not heard of so many times in a row is lost."""

READY_LIMIT_S = 300.0
"""How long an engine may take to begin: it makes the contents of its messages first."""

CLOSE_LIMIT_S = 120.0
"""How long an engine that has ended may take to put its log on the disk."""

START_AHEAD_S = 0.25
"""How long beforehand the common start is told: every engine has heard of it by then."""

ENGINE = (sys.executable, "-m", "loadsim.client.engine_process")


def engines_for(users: int, cores: int) -> int:
    """How many engines a machine starts unless it is told: one for each core, and enough for the users."""
    return min(users, max(cores, 1, ceil(users / USERS_PER_ENGINE)))


class _Member:
    """One engine, as the pool sees it."""

    def __init__(self, begin: Begin, process: asyncio.subprocess.Process) -> None:
        self.begin = begin
        self.name: str = begin.header["engine"]
        self.process = process
        self.said: set[str] = set()  # ready, on, finished, over
        self.snapshot: LiveSnapshot | None = None
        self.lost: str | None = None  # why
        self.told_accepted = 0
        self.heard_accepted = 0
        self.misses = 0
        self.quiet_since_s = time.monotonic()

    def tell(self, line: bytes) -> None:
        """Say something; a dead engine is found out by its silence."""
        assert self.process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self.process.stdin.write(line)

    @property
    def delivered(self) -> bool:
        """Whether it sends no more, and its users have seen everything that was accepted for them."""
        snapshot = self.snapshot
        return "over" in self.said or (
            snapshot is not None
            and PHASES.index(snapshot.phase) >= PHASES.index("drain")
            and not snapshot.accepted_undelivered
            and self.heard_accepted == self.told_accepted
        )


class Pool:
    """Runs the engines that `begins` describe. What happens to them, and what they say happened, goes to `events`.

    `watch` hears where all of them together stand, once a second. `start_ns` is the common start, 0 before it is known.
    """

    def __init__(
        self,
        begins: Sequence[Begin],
        events: Events,
        watch: Callable[[LiveSnapshot], None],
        command: Sequence[str] = ENGINE,
    ) -> None:
        self._begins = begins
        self._watch = watch
        self._command = command
        self._members: list[_Member] = []
        self._changed = asyncio.Event()
        self.start_ns = 0
        self._begun = False  # the engines log on, and are heard of once a second
        self._stops = 0
        self._events = events
        events.seconds = self._seconds

    @property
    def stopped(self) -> bool:
        """Whether the run was told to end early."""
        return self._stops > 0

    def stop(self) -> None:
        """End the run early; told again: cut everything off."""
        self._stops += 1
        self._tell(encode(stop=True))
        self._changed.set()

    async def run(self) -> None:
        """From the start of the processes to their end, and none of them is left, however it ends.

        Raises `ConfigError` when an engine cannot begin, `RunInvalid` when none is left before the common start.
        """
        try:
            async with asyncio.TaskGroup() as group:
                listening = []
                for begin in self._begins:
                    member = await self._begin(begin)
                    listening.append(group.create_task(self._listen(member)))
                watching = group.create_task(self._supervise())
                await self._conduct()
                for task in listening:
                    await task
                watching.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for member in self._members:
                if member.process.returncode is None:
                    with suppress(ProcessLookupError):
                        member.process.kill()
                await member.process.wait()

    async def _begin(self, begin: Begin) -> _Member:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is for us: we tell them
        )
        member = _Member(begin, process)
        self._members.append(member)
        member.tell(begin.encode())
        return member

    async def _conduct(self) -> None:
        """The steps of a run that all engines take together."""
        await self._until(lambda member: "ready" in member.said)
        if not any(self._alive()):
            raise RunInvalid("no engine was ready to begin: there was no load")
        self._begun = True
        await self._log_on()
        await self._until(lambda member: bool(member.said & {"on", "over"}))
        if not self._stops:
            self.start_ns = time.monotonic_ns() + round(START_AHEAD_S * 1e9)
            self._tell(encode(start=self.start_ns))
        await self._until(lambda member: bool(member.said & {"finished", "over"}))
        self._tell(encode(drain=True))
        await self._until(lambda member: member.delivered)
        self._tell(encode(drained=True))
        await self._until(lambda member: "over" in member.said)

    async def _log_on(self) -> None:
        """Tell one after the other, within a second: what each does once a second they should not do all at once.

        Engines that share a core would hold each other up for the sum of it, every time.
        """
        members = self._alive()
        for member in members:
            member.tell(encode(**{"log on": True}))
            if member is not members[-1]:
                await asyncio.sleep(HEARTBEAT_S / len(members))

    async def _until(self, reached: Callable[[_Member], bool]) -> None:
        """Wait until every engine that is not lost has come so far."""
        while not all(reached(member) for member in self._alive()):
            self._changed.clear()
            await self._changed.wait()

    def _alive(self) -> list[_Member]:
        return [member for member in self._members if member.lost is None]

    def _tell(self, line: bytes) -> None:
        for member in self._alive():
            member.tell(line)

    async def _listen(self, member: _Member) -> None:
        """Hear an engine, to the end of its pipe."""
        assert member.process.stdout is not None
        while line := await member.process.stdout.readline():
            try:
                kind, about = decode(line)
            except ValueError:
                break  # it died in the middle of a line
            member.misses = 0
            member.quiet_since_s = time.monotonic()
            if member.lost is None:
                self._hear(member, kind, about)
        status = await member.process.wait()
        if "over" not in member.said:
            self._lose(member, f"signal {-status}" if status < 0 else f"exit status {status}")
        self._changed.set()

    def _hear(self, member: _Member, kind: str, about: Any) -> None:
        if kind == "snapshot":
            member.heard_accepted = about.pop("heard")
            member.snapshot = LiveSnapshot(**about)
        elif kind == "event":
            self._events.pass_on(about)
        elif kind == "accepted":
            self._pass_on(about)
        elif kind == "refused":
            raise ConfigError(about)
        else:
            member.said.add(kind)
            if kind == "ready":
                self._events.say("engine ready", engine=member.name, pid=about, users=len(member.begin.hand))
            if self._stops and kind == "ready":  # told before it could hear
                member.tell(encode(stop=True))
        self._changed.set()

    def _pass_on(self, accepted: Sequence[tuple[str, int]]) -> None:
        """Tell of accepted messages where their recipients are."""
        for member in self._alive():
            mine = [pair for pair in accepted if pair[1] in member.begin.hand]
            for begin in range(0, len(mine), ACCEPTED_AT_ONCE):
                member.tell(encode(accepted=mine[begin : begin + ACCEPTED_AT_ONCE]))
            member.told_accepted += len(mine)

    async def _supervise(self) -> None:
        """Once a second: who has not been heard of? Counted in our own seconds, in which all that came was read."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for member in self._alive():
                member.misses += self._begun
                quiet_s = time.monotonic() - member.quiet_since_s
                if member.process.returncode is not None:
                    continue
                if not self._begun:
                    gone = quiet_s > READY_LIMIT_S
                elif "over" in member.said or (member.snapshot and member.snapshot.phase == "over"):
                    gone = quiet_s > CLOSE_LIMIT_S
                else:
                    gone = member.misses > MISSES
                if gone:
                    self._lose(member, f"not heard of for {quiet_s:.0f} s")
                    with suppress(ProcessLookupError):
                        member.process.kill()
            snapshots = [member.snapshot for member in self._members if member.snapshot]
            if snapshots:
                self._watch(total(snapshots))

    def _lose(self, member: _Member, why: str) -> None:
        if member.lost is None:
            member.lost = why
            member.snapshot = member.snapshot and of_a_lost_engine(member.snapshot)
            self._events.say("engine lost", engine=member.name, users=len(member.begin.hand), why=why)
            self._changed.set()

    def _seconds(self) -> float | None:
        return (time.monotonic_ns() - self.start_ns) * 1e-9 if self.start_ns else None
