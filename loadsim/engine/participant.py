"""The member's side of the control protocol: an engine to its coordinator, a worker to the controller."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from loadsim.engine.control import (
    ACCEPTED_AT_ONCE,
    Accepted,
    Drain,
    Drained,
    GivenUp,
    LogOn,
    Start,
    Stop,
    decode_to_member,
    encode,
)
from loadsim.engine.snapshot import LiveSnapshot


class Controlled(Protocol):
    """A member that is kept in step: an engine, or a worker's coordinator."""

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """Note that the server accepted these messages of other members' users, each for one of ours."""

    def snapshot(self) -> LiveSnapshot:
        """Return the member's state and counts."""

    def stop(self) -> None:
        """End the run early; a second call: at once."""

    def give_up(self, why: str) -> None:
        """End as by `stop`, although the run may go on: the rest of our work is lost."""


class RemoteControl:
    """The `Control` of a member whose coordinator is at the other end of a channel.

    It sends lines by `send_line`; `receive` takes those of the coordinator. `controlled` must be set before it receives
    any but `begin`. Snapshots go by `send_snapshot` if it is given: only the newest of them matters.
    """

    def __init__(
        self, send_line: Callable[[bytes], None], send_snapshot: Callable[[bytes], None] | None = None
    ) -> None:
        self._send_line = send_line
        self._send_snapshot = send_snapshot or send_line
        self._start: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._accepted: list[tuple[str, int]] = []
        self._received = 0  # accepted messages that others sent to our users
        self._going = asyncio.Event()  # the log-on has begun, or never will
        self._draining = asyncio.Event()  # all members' tasks have ended, or there is no waiting for them
        self._drained = False
        self._reported: tuple[int, int] | None = None  # in the drain: outstanding and received messages
        self.controlled: Controlled | None = None
        self.why: str | None = None  # the coordinator stopped us, if it gave a reason

    def send(self, **message: Any) -> None:
        """Send a message, without waiting for its delivery."""
        self._send_line(encode(**message))

    async def all_ready(self) -> None:
        """Report our process id, and wait for the log-on to begin."""
        self.send(ready=os.getpid())
        await self._going.wait()

    async def common_start(self) -> int | None:
        """Report the end of the log-on, and wait for the common start."""
        self.send(on=True)
        return await self._start

    def stop_waiting(self) -> None:
        """End all waiting: there will be no start and no drain."""
        if not self._start.done():
            self._start.set_result(None)
        self._draining.set()
        self._going.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Report it with the next snapshot, or once there are enough for a line."""
        self._accepted.append((message, user))
        if len(self._accepted) >= ACCEPTED_AT_ONCE:
            self._send_accepted()

    async def all_finished(self) -> None:
        """Report it, and wait until all members have finished."""
        self._send_accepted()
        self.send(finished=True)
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
        """Send a snapshot."""
        self._send_accepted()
        figures = {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}
        self._send_snapshot(encode(snapshot={**figures, "heard": self._received}))

    def _send_accepted(self) -> None:
        if self._accepted:
            self.send(accepted=self._accepted)
            self._accepted = []

    def receive(self, line: bytes) -> None:
        """Do what a line says. Raises `ValueError` for one that is not of the protocol."""
        match decode_to_member(line):
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
            case Stop(why):
                self.why = why or self.why
                self.stop()
            case GivenUp(why):
                self.give_up(why)

    def stop(self) -> None:
        """Stop the member."""
        self.stop_waiting()
        if self.controlled is not None:
            self.controlled.stop()

    def give_up(self, why: str) -> None:
        """End the member: the coordinator is gone, or has given us up."""
        self.stop_waiting()
        if self.controlled is not None:
            self.controlled.give_up(why)


class EventForwarder:
    """A text stream for `Events` whose lines go to the coordinator, with the keys `who` added."""

    def __init__(self, control: RemoteControl, **who: str) -> None:
        self._control = control
        self._who: Mapping[str, str] = who

    def write(self, line: str) -> None:
        """Send one whole line."""
        self._control.send(event={**json.loads(line), **self._who})

    def flush(self) -> None:
        """Do nothing: each line is sent at once."""
