"""The engines of one machine, or the machines of a run: started together, kept in step, watched, and given up one by
one when they fail.

A member that dies, or is not heard of for some seconds, is lost, and its users with it. The others go on; what it has
measured is in its log, and the verdict counts its users as lost.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Protocol

from loadsim.engine.channel import Channel, start_process
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import ACCEPTED_AT_ONCE, FROM_A_MEMBER, Control, StandaloneControl, decode, encode
from loadsim.engine.event_log import Events
from loadsim.engine.snapshot import PHASES, LiveSnapshot, of_a_lost_engine, read_snapshot, total
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.partition import Assignment

USERS_PER_ENGINE = 15_000
"""More than a core can serve in real time, by this project's own measurements."""

HEARTBEAT_S = 1.0
MISSES = 5
"""An engine that is not heard of so many times in a row is lost."""

READY_LIMIT_S = 300.0
"""How long a member may take to begin: an engine makes the contents of its messages first."""

SILENT_LIMIT_S = 8.0
"""How long there may be no sign of life from a member that gives them, before anybody logs on."""

CLOSE_LIMIT_S = 120.0
"""How long a member that has ended may take to put its log on the disk."""

ENGINE = (sys.executable, "-P", "-m", "loadsim.engine.process")

START_AHEAD_S = 0.25
"""How long beforehand the common start is told: every engine has heard of it by then."""

LOOK_S = 0.05
"""How often we ask whether all mail of the run has been seen: others may see it."""


def engines_for(users: int, cores: int) -> int:
    """How many engines a machine starts unless it is told: one for each core, and enough for the users."""
    return min(users, max(cores, 1, ceil(users / USERS_PER_ENGINE)))


class MemberAssignment(Protocol):
    """What a member has of a run."""

    @property
    def name(self) -> str:
        """What the member is called: the engine's number, the machine's name."""
        ...

    @property
    def assignment(self) -> Assignment:
        """Its users."""
        ...

    def encode(self) -> bytes:
        """The line that it is told to begin with."""
        ...

    def say_ready(self, events: Events, process: int) -> None:
        """Tell that the member is ready, in a process of this number."""
        ...

    def say_lost(self, events: Events, why: str) -> None:
        """Tell that the member is lost."""
        ...


async def start_engine(_: MemberAssignment, kept: Sequence[int] = ()) -> Channel:
    """Start an engine as a process of this machine; it has these open files of ours, too."""
    return await start_process(ENGINE, kept)


class _Member:
    """An engine or a machine, as the pool sees it."""

    def __init__(self, assigned: MemberAssignment, channel: Channel) -> None:
        self.assigned = assigned
        self.channel = channel
        self.said: set[str] = set()  # ready, on, finished, over
        self.snapshot: LiveSnapshot | None = None
        self.lost: str | None = None  # why it is
        self.told_accepted = 0
        self.heard_accepted = 0
        self.misses = 0
        self.quiet_since_s = time.monotonic()

    @property
    def drains(self) -> bool:
        """Whether it sends no more, and we know of all that it has sent."""
        snapshot = self.snapshot
        return "over" in self.said or (snapshot is not None and PHASES.index(snapshot.phase) >= PHASES.index("drain"))

    @property
    def on_its_way(self) -> int:
        """How many messages for its users it has been told of, and has not heard of yet."""
        return 0 if self.lost or "over" in self.said else self.told_accepted - self.heard_accepted

    @property
    def outstanding(self) -> int:
        """How many messages its users have not seen; they will see no more when it is over."""
        if self.snapshot is None or "over" in self.said:
            return 0
        return self.snapshot.accepted_undelivered + self.on_its_way


class Coordinator:
    """Runs one member for each of `assignments`. What happens to them, and what they report, goes to `events`.

    `watch` hears where all of them together stand, once a second. `control` keeps the pool in step with others, when
    there are any. `open_channel` starts a member, by default an engine; one that is not heard of more than `misses`
    times in a row is lost. `start_ns` is the common start, 0 before it is known.
    """

    def __init__(
        self,
        assignments: Sequence[MemberAssignment],
        events: Events,
        watch: Callable[[LiveSnapshot], None],
        control: Control | None = None,
        open_channel: Callable[[MemberAssignment], Awaitable[Channel]] = start_engine,
        misses: int = MISSES,
    ) -> None:
        self._assignments = assignments
        self._watch = watch
        self._control = control or StandaloneControl(MonotonicClock(), START_AHEAD_S)
        self._open_channel = open_channel
        self._misses = misses
        self._members: list[_Member] = []
        self._changed = asyncio.Event()
        self.start_ns = 0
        self._begun = False  # the members log on, and are heard of once a second
        self._stops = 0
        self._stop_line: bytes | None = None  # with which we were first told to stop
        self._events = events
        events.seconds = self._seconds

    @property
    def stopped(self) -> bool:
        """Whether the run was told to end early."""
        return self._stops > 0

    def stop(self, why: str | None = None) -> None:
        """End the run early; told again: cut everything off. Machines write down why, if that is said."""
        self._end_early(encode(stop=why or True))

    def give_up(self, why: str) -> None:
        """The same, when the run does not end: what our members did not do any more is lost."""
        self._end_early(encode(**{"given up": why}))

    def _end_early(self, line: bytes) -> None:
        self._stops += 1
        self._stop_line = self._stop_line or line
        self._control.stop_waiting()
        self._tell(line)
        self._changed.set()

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """The server took these messages, sent elsewhere, each for one of our users."""
        self._deal_out(messages)

    def snapshot(self) -> LiveSnapshot:
        """Where all members together stand, once there is one of which we know. What they have not heard of counts as
        undelivered."""
        together = total([member.snapshot for member in self._members if member.snapshot])
        on_their_way = sum(member.on_its_way for member in self._members)
        return replace(together, accepted_undelivered=together.accepted_undelivered + on_their_way)

    @property
    def snapshots(self) -> dict[str, LiveSnapshot]:
        """Where each member stands, by name, as far as that is known."""
        return {member.assigned.name: member.snapshot for member in self._members if member.snapshot}

    @property
    def lost(self) -> list[str]:
        """The names of the members that are lost."""
        return [member.assigned.name for member in self._members if member.lost]

    async def run(self) -> None:
        """From the start of the members to their end, and none of them is left, however it ends.

        Raises `ConfigError` when a member cannot begin, `RunInvalid` when none is left before the common start.
        """
        try:
            async with asyncio.TaskGroup() as group:
                listening = []
                for assigned in self._assignments:
                    member = await self._begin(assigned)
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
                member.channel.kill()
                await member.channel.wait()

    async def _begin(self, assigned: MemberAssignment) -> _Member:
        member = _Member(assigned, await self._open_channel(assigned))
        self._members.append(member)
        member.channel.send(assigned.encode())
        return member

    async def _conduct(self) -> None:
        """The steps of a run that all members take together, and with whom `control` keeps them in step."""
        await self._until(lambda member: "ready" in member.said)
        if not any(self._alive()):
            why = "; ".join(dict.fromkeys(member.lost for member in self._members if member.lost))
            raise RunInvalid(f"no engine was ready to begin, so there was no load: {why}")
        await self._control.all_ready()
        self._begun = True
        await self._log_on()
        await self._until(lambda member: bool(member.said & {"on", "over"}))
        start_ns = None if self._stops else await self._control.common_start()
        if start_ns is not None:
            self.start_ns = start_ns
            for member in self._alive():
                member.channel.send_start(start_ns)
        await self._until(lambda member: bool(member.said & {"finished", "over"}))
        await self._control.all_finished()
        self._tell(encode(drain=True))
        await self._until(lambda member: member.drains)
        await self._until_delivered()
        self._tell(encode(drained=True))
        await self._until(lambda member: "over" in member.said)

    async def _log_on(self) -> None:
        """Tell one after the other, within a second: what each does once a second they should not do all at once.

        Engines that share a core would hold each other up for the sum of it, every time.
        """
        members = self._alive()
        for member in members:
            member.channel.send(encode(**{"log on": True}))
            if member is not members[-1]:
                await asyncio.sleep(HEARTBEAT_S / len(members))

    async def _until(self, reached: Callable[[_Member], bool]) -> None:
        """Wait until every member that is not lost has come so far."""
        while not all(reached(member) for member in self._alive()):
            self._changed.clear()
            await self._changed.wait()

    async def _until_delivered(self) -> None:
        """Wait until all mail of the run has been seen, or nobody waits for it any more."""
        while any("over" not in member.said for member in self._alive()) and not self._control.all_delivered(
            sum(member.outstanding for member in self._alive())
        ):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    def _alive(self) -> list[_Member]:
        return [member for member in self._members if not member.lost]

    def _tell(self, line: bytes) -> None:
        for member in self._alive():
            member.channel.send(line)

    async def _listen(self, member: _Member) -> None:
        """Hear a member, to the end of its channel."""
        line = b""
        try:
            while line := await member.channel.receive():
                self._hear(member, line)
        except ValueError as problem:
            if not line or line.endswith(b"\n"):  # otherwise the member died while it wrote a line
                self._lose(member, str(problem))
                member.channel.kill()
        how = await member.channel.wait()
        if "over" not in member.said:
            self._lose(member, how)
        self._changed.set()

    def _hear(self, member: _Member, line: bytes) -> None:
        """Take a line of a member. Raises `ValueError` for a line that is not of the protocol."""
        kind, about = decode(line, FROM_A_MEMBER)
        snapshot = read_snapshot(about) if kind == "snapshot" else None
        member.misses = 0
        member.quiet_since_s = time.monotonic()
        if member.lost:
            return
        if snapshot is not None:
            member.snapshot, member.heard_accepted = snapshot
        elif kind == "event":
            self._events.pass_on(about)
        elif kind == "accepted":
            for message, user in self._deal_out(about):
                self._control.accepted_elsewhere(message, user)
        elif kind == "refused":
            raise ConfigError(about)
        else:
            member.said.add(kind)
            if kind == "ready":
                member.assigned.say_ready(self._events, about)
            if self._stop_line is not None and kind == "ready":  # told before it could hear
                member.channel.send(self._stop_line)
        self._changed.set()

    def _deal_out(self, accepted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Tell of accepted messages where their recipients are; those whose recipients are none of ours."""
        left = list(accepted)
        for member in self._members:
            mine = [pair for pair in left if pair[1] in member.assigned.assignment]
            left = [pair for pair in left if pair[1] not in member.assigned.assignment]
            if not member.lost:
                for begin in range(0, len(mine), ACCEPTED_AT_ONCE):
                    member.channel.send(encode(accepted=mine[begin : begin + ACCEPTED_AT_ONCE]))
                member.told_accepted += len(mine)
        return left

    async def _supervise(self) -> None:
        """Once a second: who has not been heard of? Counted in our own seconds, in which all that came was read."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for member in self._alive():
                member.misses += self._begun
                quiet_s = time.monotonic() - member.quiet_since_s
                if member.channel.ended is not None:
                    continue
                if not self._begun:  # whoever is ready waits for the others
                    late = "ready" not in member.said and quiet_s > READY_LIMIT_S
                    gone = late or member.channel.silent_s > SILENT_LIMIT_S
                elif "over" in member.said or (member.snapshot and member.snapshot.phase == "over"):
                    gone = quiet_s > CLOSE_LIMIT_S
                else:
                    gone = member.misses > self._misses
                if gone:
                    self._lose(member, f"not heard of for {quiet_s:.0f} s")
                    member.channel.kill()
            if any(member.snapshot for member in self._members):
                self._watch(self.snapshot())

    def _lose(self, member: _Member, why: str) -> None:
        if not member.lost:
            member.lost = why
            member.snapshot = member.snapshot and of_a_lost_engine(member.snapshot)
            member.assigned.say_lost(self._events, why)
            self._changed.set()

    def _seconds(self) -> float | None:
        return (time.monotonic_ns() - self.start_ns) * 1e-9 if self.start_ns else None
