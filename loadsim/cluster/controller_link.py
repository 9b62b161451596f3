"""A worker's link to its controller, and what the worker does if it loses the controller."""

from __future__ import annotations

import asyncio
import sys
import time
from math import ceil

from loadsim.cluster.placement import WorkerAssignment
from loadsim.cluster.reliable_channel import BEAT_S, ReliableChannel
from loadsim.engine.control import Drain
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.event_log import Events
from loadsim.engine.participant import RemoteControl


class ControllerLink:
    """The worker's end of the channel to its controller, over the connection of the agent that last sent a line."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.link = ReliableChannel(self.lines.put_nowait)
        self._agent: asyncio.StreamWriter | None = None
        self._changed = asyncio.Event()

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve an agent's connection. It is attached from its first line until it ends or a newer one takes over."""
        attached = False

        def write(line: bytes) -> None:
            if not writer.is_closing():  # otherwise asyncio would warn; the next agent gets the line again
                writer.write(line)

        try:
            while (line := await reader.readline()).endswith(b"\n"):
                if not attached:
                    attached = True
                    self.detach()
                    self._agent = writer
                    self.link.attach(write)
                if self._agent is not writer:
                    break
                self.link.feed(line)
                self._changed.set()
        except ConnectionError:
            pass  # the next agent will connect
        except ValueError as problem:
            print(f"loadsim: agent's connection cut: {problem}", file=sys.stderr)  # noqa: T201
        finally:
            if self._agent is writer:
                self.detach()
            writer.close()

    def detach(self) -> None:
        """Close the attached connection, if there is one."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
            self.link.detach()

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.link.beat()
            self._changed.set()

    async def until_acknowledged(self, beats: int) -> None:
        """Wait until the controller has acknowledged everything, or has been silent for more than this many beats."""
        while not self.link.all_acknowledged and self.link.silent_beats <= beats:
            self._changed.clear()
            await self._changed.wait()


def most_silent_beats(assigned: WorkerAssignment) -> int:
    """Return the number of silent beats after which the controller counts as lost."""
    return ceil(assigned.scenario.cluster.control_limit_s / BEAT_S)


async def act_on_loss(
    assigned: WorkerAssignment, link: ReliableChannel, control: RemoteControl, coordinator: Coordinator, events: Events
) -> None:
    """Continue the run while the controller is unreachable, or stop if no common start has been announced yet.

    The controller then cannot report that all clients' tasks have ended, so the latest possible instant is assumed: the
    end of the grace period. Nor can it report that all mail was seen, so the worker waits as long as permitted.
    """
    scenario = assigned.scenario
    most_beats, lost = most_silent_beats(assigned), False
    all_finished_ns = round((scenario.duration_s + scenario.limits.grace_s) * 1e9)  # from the common start on
    while True:
        await asyncio.sleep(BEAT_S)
        silent_beats = link.silent_beats
        if silent_beats <= most_beats:
            if lost:
                lost = False
                events.write("controller back")
            continue
        continues = coordinator.start_ns > 0
        if not lost:
            lost = True
            silent_s = silent_beats * BEAT_S
            events.write("controller lost", quiet_s=silent_s, goes_on=continues)
            if not continues:
                silence = f"the controller sent nothing to this client for {silent_s:.0f} s"
                control.give_up(f"{silence}, before the common start")
        if continues and time.monotonic_ns() >= coordinator.start_ns + all_finished_ns:
            control.receive(Drain())
