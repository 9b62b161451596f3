"""Start, synchronise and watch the members of a run: the engines of a machine, or the workers of a cluster run.

A member that dies, or sends nothing for several seconds, is lost, along with its users. The others continue. Its
measurements remain in its log, and the verdict counts its users as lost.
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
from loadsim.engine.control import (
    ACCEPTED_AT_ONCE,
    FROM_A_MEMBER,
    Accepted,
    Control,
    Drain,
    Drained,
    Event,
    Finished,
    GivenUp,
    LogOn,
    Message,
    On,
    Over,
    Ready,
    Refused,
    Snapshot,
    StandaloneControl,
    Stop,
    decode,
    encode,
)
from loadsim.engine.event_log import Events
from loadsim.engine.snapshot import PHASES, LiveSnapshot, of_a_lost_engine, total
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.partition import Assignment
from loadsim.processes.event_loop import task_group
from loadsim.timinglog.facts import EarlyEnd

USERS_PER_ENGINE = 15_000
"""More than one core can serve in real time, by this project's measurements."""

HEARTBEAT_S = 1.0
MISSES = 5
"""The number of heartbeats in a row that an engine may miss before it counts as lost."""

LOG_ON_MISSES = 60
"""As many before the common start: engines that share a core are silent for seconds while thousands log on."""

READY_LIMIT_S = 300.0
"""The time limit for a member to become ready: an engine first makes the contents of its messages."""

SILENT_LIMIT_S = 8.0
"""The longest silence before the log-on, on a channel with heartbeats of its own."""

CLOSE_LIMIT_S = 120.0
"""The time limit for a member that has ended to write its log to disk."""

ENGINE = (sys.executable, "-P", "-m", "loadsim.engine.process")

START_AHEAD_S = 0.25
"""The time between announcing the common start and the start itself: enough to reach every engine."""

POLL_S = 0.05
"""The interval at which to check whether all mail of the run has been seen, also by other members' users."""


def engines_for(users: int, cores: int, senders: int = 0) -> int:
    """Return a machine's default number of engines: one per core, or more if users and outside senders need them."""
    return min(users, max(cores, 1, ceil((users + senders) / USERS_PER_ENGINE)))


class MemberAssignment(Protocol):
    """A member's assignment: its name and its users."""

    @property
    def name(self) -> str:
        """The member's name: an engine's number, or a client's name."""

    @property
    def assignment(self) -> Assignment:
        """Its users."""

    def encode(self) -> bytes:
        """Return the first line to send to the member."""

    def write_ready(self, events: Events, process: int) -> None:
        """Write the event that the member is ready, in the process with this id."""

    def write_lost(self, events: Events, why: str) -> None:
        """Write the event that the member is lost."""


OpenChannel = Callable[[MemberAssignment], Awaitable[Channel]]
"""Starts the member for an assignment, and opens the channel to it."""


async def start_engine(_: MemberAssignment, kept: Sequence[int] = ()) -> Channel:
    """Start an engine as a process on this machine, which inherits the file descriptors `kept`."""
    return await start_process(ENGINE, kept)


class _Member:
    """The coordinator's view of an engine or a worker."""

    def __init__(self, assigned: MemberAssignment, channel: Channel) -> None:
        self.assigned = assigned
        self.channel = channel
        self.reached: set[type[Message]] = set()
        self.snapshot: LiveSnapshot | None = None
        self.lost: str | None = None  # why
        self.sent_accepted = 0
        self.received_accepted = 0  # as of its last snapshot
        self.misses = 0
        self.quiet_since_s = time.monotonic()

    @property
    def drains(self) -> bool:
        """True if the member sends no more mail, and has reported all that it sent."""
        snapshot = self.snapshot
        return Over in self.reached or (snapshot is not None and PHASES.index(snapshot.phase) >= PHASES.index("drain"))

    @property
    def in_transit(self) -> int:
        """The number of accepted messages that were reported to the member, but have not reached it yet."""
        return 0 if self.lost or Over in self.reached else self.sent_accepted - self.received_accepted

    @property
    def outstanding(self) -> int:
        """The number of messages that its users have yet to see; 0 once it is over, as they will see no more."""
        if self.snapshot is None or Over in self.reached:
            return 0
        return self.snapshot.accepted_undelivered + self.in_transit


class Coordinator:
    """Runs a member for each assignment. Events about members, and events reported by them, go to `events`.

    `watch` receives the total of their snapshots each second. `judge` also gets the names of lost members; it returns
    why the run should end early, or None. `control` synchronises the coordinator with any others. `open_channel` starts
    a member, by default an engine. A member that misses more than `misses` consecutive heartbeats, due every
    `heartbeat_s`, is lost. `start_ns` is the common start, 0 until it is known.
    """

    def __init__(
        self,
        assignments: Sequence[MemberAssignment],
        events: Events,
        watch: Callable[[LiveSnapshot], None],
        control: Control | None = None,
        open_channel: OpenChannel = start_engine,
        misses: int = MISSES,
        heartbeat_s: float = HEARTBEAT_S,
        judge: Callable[[LiveSnapshot, Sequence[str]], EarlyEnd | None] = lambda snapshot, lost: None,
    ) -> None:
        self._assignments = assignments
        self._watch = watch
        self._judge = judge
        self._control = control or StandaloneControl(MonotonicClock(), START_AHEAD_S)
        self._open_channel = open_channel
        self._misses = misses
        self._heartbeat_s = heartbeat_s
        self._members: list[_Member] = []
        self._changed = asyncio.Event()
        self.start_ns = 0
        self._begun = False  # members have begun to log on, and to send heartbeats
        self._stops = 0
        self._stop: Message | None = None  # the first message that stopped the members
        self.early_end: EarlyEnd | None = None  # why `judge` ended the run
        self._events = events
        events.seconds = self._seconds

    @property
    def stopped(self) -> bool:
        """True after `stop` or `give_up`."""
        return self._stops > 0

    def stop(self, end: EarlyEnd | None = None) -> None:
        """End the run early; a second call ends it at once. Workers record `end` if it is given."""
        self._end_early(Stop(end or True))

    def give_up(self, why: str) -> None:
        """End the members although the run continues: the rest of their work is lost."""
        self._end_early(GivenUp(why))

    def _end_early(self, message: Message) -> None:
        self._stops += 1
        self._stop = self._stop or message
        self._control.stop_waiting()
        self._send(message)
        self._changed.set()

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """Report messages accepted elsewhere to their recipients' members."""
        self._distribute(messages)

    def snapshot(self) -> LiveSnapshot:
        """Return the total of the members' snapshots; there must be at least one.

        It includes the users of members that have not reported yet. Accepted messages that have not yet been reported
        to their member count as undelivered.
        """
        together = total([member.snapshot for member in self._members if member.snapshot])
        unreported = sum(len(member.assigned.assignment) for member in self._members if member.snapshot is None)
        in_transit = sum(member.in_transit for member in self._members)
        return replace(
            together, users=together.users + unreported, accepted_undelivered=together.accepted_undelivered + in_transit
        )

    @property
    def snapshots(self) -> dict[str, LiveSnapshot]:
        """The last snapshot of each member that has sent one, by name."""
        return {member.assigned.name: member.snapshot for member in self._members if member.snapshot}

    @property
    def lost(self) -> list[str]:
        return [member.assigned.name for member in self._members if member.lost]

    async def run(self) -> None:
        """Run the members from start to end. None is left running afterwards, even after an error.

        Raises `ConfigError` if a member cannot begin, `RunInvalid` if all were lost before they were ready.
        """
        try:
            async with task_group() as group:
                listening = []
                for assigned in self._assignments:
                    member = _Member(assigned, await self._open_channel(assigned))
                    self._members.append(member)
                    member.channel.send(assigned.encode())
                    listening.append(group.create_task(self._listen(member)))
                watching = group.create_task(self._supervise())
                await self._conduct()
                for task in listening:
                    await task
                watching.cancel()
                self._show()  # the last snapshots arrive after the last beat
        finally:
            for member in self._members:
                member.channel.kill()
                await member.channel.wait()

    async def _conduct(self) -> None:
        """Take the members through the steps of a run, in step with `control`."""
        # Log on.
        await self._until(lambda member: Ready in member.reached)
        if not any(self._alive()):
            why = "; ".join(dict.fromkeys(member.lost for member in self._members if member.lost))
            raise RunInvalid(f"no engine was ready to begin, so there was no load: {why}")
        await self._control.all_ready()
        self._begun = True
        await self._log_on()
        await self._until(lambda member: bool(member.reached & {On, Over}))
        # Start.
        start_ns = None if self._stops else await self._control.common_start()
        if start_ns is not None:
            self.start_ns = start_ns
            for member in self._alive():
                member.channel.send_start(start_ns)
        # Finish, drain and end.
        await self._until(lambda member: bool(member.reached & {Finished, Over}))
        await self._control.all_finished()
        self._send(Drain())
        await self._until(lambda member: member.drains)
        await self._until_delivered()
        self._send(Drained())
        await self._until(lambda member: Over in member.reached)

    async def _log_on(self) -> None:
        """Have the members log on one after the other, spread over a second, so that their beats are spread as well.

        Engines that share a core would otherwise all beat at once, and delay each other every second.
        """
        members = self._alive()
        for member in members:
            member.channel.send(encode(LogOn()))
            if member is not members[-1]:
                await asyncio.sleep(self._heartbeat_s / len(members))

    async def _until(self, reached: Callable[[_Member], bool]) -> None:
        """Wait until `reached` is true for every member that is not lost."""
        while not all(reached(member) for member in self._alive()):
            self._changed.clear()
            await self._changed.wait()

    async def _until_delivered(self) -> None:
        """Wait until all mail of the run has been seen, or every member is over."""
        while any(Over not in member.reached for member in self._alive()) and not self._control.all_delivered(
            sum(member.outstanding for member in self._alive())
        ):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()

    def _alive(self) -> list[_Member]:
        return [member for member in self._members if not member.lost]

    def _send(self, message: Message) -> None:
        for member in self._alive():
            member.channel.send(encode(message))

    async def _listen(self, member: _Member) -> None:
        line = b""
        try:
            while line := await member.channel.receive():
                self._receive(member, line)
        except ValueError as problem:
            if not line or line.endswith(b"\n"):  # otherwise the member died while writing a line
                self._lose(member, str(problem))
                member.channel.kill()
        how = await member.channel.wait()
        if Over not in member.reached:
            self._lose(member, how)
        self._changed.set()

    def _receive(self, member: _Member, line: bytes) -> None:
        """Handle a member's line. Raises `ValueError` if it does not follow the protocol."""
        message = decode(line, FROM_A_MEMBER)
        member.misses = 0
        member.quiet_since_s = time.monotonic()
        if member.lost:
            return
        match message:
            case Snapshot(snapshot, received):
                member.snapshot, member.received_accepted = snapshot, received
            case Event(event):
                self._events.forward(event)
            case Accepted(mails):
                for mail, user in self._distribute(mails):
                    self._control.accepted_elsewhere(mail, user)
            case Refused(why):
                raise ConfigError(why)
            case Ready(process):
                member.reached.add(Ready)
                member.assigned.write_ready(self._events, process)
                if self._stop is not None:  # the member could not receive it before
                    member.channel.send(encode(self._stop))
            case On() | Finished() | Over():
                member.reached.add(type(message))
        self._changed.set()

    def _distribute(self, accepted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Report accepted messages to their recipients' members. Return those for other recipients."""
        left = list(accepted)
        for member in self._members:
            mine = [pair for pair in left if pair[1] in member.assigned.assignment]
            left = [pair for pair in left if pair[1] not in member.assigned.assignment]
            if not member.lost:
                for begin in range(0, len(mine), ACCEPTED_AT_ONCE):
                    member.channel.send(encode(Accepted(mine[begin : begin + ACCEPTED_AT_ONCE])))
                member.sent_accepted += len(mine)
        return left

    async def _supervise(self) -> None:
        """Count missed heartbeats each second, and give up silent members.

        The seconds are our own: while this process is stopped, no heartbeat counts as missed.
        """
        while True:
            await asyncio.sleep(self._heartbeat_s)
            for member in self._alive():
                member.misses += self._begun
                quiet_s = time.monotonic() - member.quiet_since_s
                if member.channel.ended is not None:
                    continue
                if not self._begun:  # members that are ready send nothing while waiting for the others
                    late = Ready not in member.reached and quiet_s > READY_LIMIT_S
                    gone = late or member.channel.silent_s > SILENT_LIMIT_S
                elif Over in member.reached or (member.snapshot and member.snapshot.phase == "over"):
                    gone = quiet_s > CLOSE_LIMIT_S
                else:
                    gone = member.misses > (self._misses if self.start_ns else max(self._misses, LOG_ON_MISSES))
                if gone:
                    self._lose(member, f"sent nothing for {quiet_s:.0f} s")
                    member.channel.kill()
            self._show()

    def _show(self) -> None:
        """Report the total of the snapshots, and end a run that `judge` finds hopeless."""
        if not any(member.snapshot for member in self._members):
            return
        snapshot = self.snapshot()
        self._watch(snapshot)
        end = self._judge(snapshot, self.lost)
        if end is not None and not self.stopped:
            self.early_end = end
            self._events.write("abort", why=end.why)
            self.stop(end)

    def _lose(self, member: _Member, why: str) -> None:
        if not member.lost:
            member.lost = why
            member.snapshot = member.snapshot and of_a_lost_engine(member.snapshot)
            member.assigned.write_lost(self._events, why)
            self._changed.set()

    def _seconds(self) -> float | None:
        return (time.monotonic_ns() - self.start_ns) * 1e-9 if self.start_ns else None
