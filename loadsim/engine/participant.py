"""A member's side of the control protocol: an engine facing its coordinator, or a worker facing the controller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from loadsim.engine.control import (
    ACCEPTED_AT_ONCE,
    Accepted,
    Drain,
    Drained,
    Event,
    Finished,
    GivenUp,
    LogOn,
    Message,
    On,
    Ready,
    Snapshot,
    Start,
    Stop,
    encode,
)
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.timinglog.facts import EarlyEnd


class Controlled(Protocol):
    """A member that is kept in step: an engine, or a worker's coordinator."""

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """Note that the server accepted these messages from other members' users, each for one of ours."""

    def snapshot(self) -> LiveSnapshot:
        """Return the member's state and counts."""

    def stop(self) -> None:
        """End the run early; on a second call, at once."""

    def give_up(self, why: str) -> None:
        """End as `stop` does, although the run may go on: the rest of our work is lost."""


class RemoteControl:
    """The `Control` of a member whose coordinator is at the other end of a channel.

    It sends lines with `send_line`, and snapshots with `send_snapshot` if that is given, since only the newest one
    matters. `receive` takes the coordinator's messages; `controlled` must be set before any message other than `begin`.
    """

    def __init__(
        self, send_line: Callable[[bytes], None], send_snapshot: Callable[[bytes], None] | None = None
    ) -> None:
        self._send_line = send_line
        self._send_snapshot = send_snapshot or send_line
        self._start: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._accepted: list[tuple[str, int]] = []
        self._received = 0  # accepted messages from others to our users
        self._going = asyncio.Event()  # logging on has begun, or never will
        self._draining = asyncio.Event()  # all members' tasks have ended, or we no longer wait for them
        self._drained = False
        self._reported: tuple[int, int] | None = None  # during the drain: outstanding and received messages
        self.controlled: Controlled | None = None
        self.early_end: EarlyEnd | None = None  # why the coordinator stopped us, if it said so

    def send(self, message: Message) -> None:
        """Send a message, without waiting for delivery."""
        self._send_line(encode(message))

    def send_event(self, line: Mapping[str, Any], **who: str) -> None:
        self.send(Event({**line, **who}))

    async def all_ready(self) -> None:
        """Report our process id, and wait until the log-on begins."""
        self.send(Ready(os.getpid()))
        await self._going.wait()

    async def common_start(self) -> int | None:
        """Report that the log-on is over, and wait for the common start."""
        self.send(On())
        return await self._start

    def stop_waiting(self) -> None:
        """Stop waiting: there will be no start and no drain."""
        if not self._start.done():
            self._start.set_result(None)
        self._draining.set()
        self._going.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Report the message with the next snapshot, or as soon as there are enough for a line."""
        self._accepted.append((message, user))
        if len(self._accepted) >= ACCEPTED_AT_ONCE:
            self._send_accepted()

    async def all_finished(self) -> None:
        self._send_accepted()
        self.send(Finished())
        await self._draining.wait()

    def all_delivered(self, outstanding: int) -> bool:
        """Return the coordinator's answer; send it a snapshot whenever the figures change."""
        assert self.controlled is not None
        self._send_accepted()
        if (outstanding, self._received) != self._reported:
            self._reported = outstanding, self._received
            self.watch(self.controlled.snapshot())
        return self._drained

    def watch(self, snapshot: LiveSnapshot) -> None:
        self._send_accepted()
        self._send_snapshot(encode(Snapshot(snapshot, self._received)))

    def _send_accepted(self) -> None:
        if self._accepted:
            self.send(Accepted(self._accepted))
            self._accepted = []

    def receive(self, message: Message) -> None:
        match message:
            case LogOn():
                self._going.set()
            case Start(at_ns):
                if not self._start.done():
                    self._start.set_result(at_ns)
            case Accepted(mails):
                assert self.controlled is not None
                self.controlled.mails_accepted(mails)
                self._received += len(mails)
            case Drain():
                self._draining.set()
            case Drained():
                self._drained = True
            case Stop(end):
                self.early_end = self.early_end if end is True else end
                self.stop()
            case GivenUp(why):
                self.give_up(why)

    def stop(self) -> None:
        self.stop_waiting()
        if self.controlled is not None:
            self.controlled.stop()

    def give_up(self, why: str) -> None:
        """End the member: the coordinator is gone, or has given us up."""
        self.stop_waiting()
        if self.controlled is not None:
            self.controlled.give_up(why)
