"""Whoever keeps us in step, at the other end of a channel: a machine's pool to an engine, the station to a machine.

A `RemoteControl` is the `Control` of who is controlled: it says what he has to say, and lets him know what he is told.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from loadsim.engine.control import ACCEPTED_AT_ONCE, TO_A_MEMBER, decode, encode
from loadsim.engine.snapshot import LiveSnapshot


class Controlled(Protocol):
    """Who is kept in step: an engine, or a machine's pool."""

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        """The server took these messages, sent elsewhere, each for one of our users."""
        ...

    def snapshot(self) -> LiveSnapshot:
        """Where we stand now."""
        ...

    def stop(self) -> None:
        """End the run early; told again: at once."""
        ...

    def give_up(self, why: str) -> None:
        """End as by `stop`, although the run may go on without us: what is missing of our part is lost."""
        ...


class RemoteControl:
    """Speaks by `say`, line by line, and hears by `hear`. `controlled` is set before anything but `begin` is heard.

    Snapshots go by `show`, if they have a way of their own: of those the newest says everything.
    """

    def __init__(self, say: Callable[[bytes], None], show: Callable[[bytes], None] | None = None) -> None:
        self._say = say
        self._show = show or say
        self._start: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._accepted: list[tuple[str, int]] = []
        self._heard = 0  # messages that others sent to our users
        self._going = asyncio.Event()  # the log-on has begun, or will not
        self._draining = asyncio.Event()  # everybody's tasks have ended, or we shall not wait for it
        self._drained = False
        self._told: tuple[int, int] | None = None  # of the drain: what is outstanding, and what we have heard of
        self.controlled: Controlled | None = None
        self.why: str | None = None  # we were told to stop, if that was said

    def send(self, **message: Any) -> None:
        """Say something, without waiting until it is heard."""
        self._say(encode(**message))

    async def all_ready(self) -> None:
        """Say who we are, and wait."""
        self.send(ready=os.getpid())
        await self._going.wait()

    async def common_start(self) -> int | None:
        """Ask for it, and wait."""
        self.send(on=True)
        return await self._start

    def stop_waiting(self) -> None:
        """There will be no start, and no drain."""
        if not self._start.done():
            self._start.set_result(None)
        self._draining.set()
        self._going.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Told with the next snapshot, or when there is enough to tell."""
        self._accepted.append((message, user))
        if len(self._accepted) >= ACCEPTED_AT_ONCE:
            self._tell_accepted()

    async def all_finished(self) -> None:
        """Say it, and wait until he says it of all."""
        self._tell_accepted()
        self.send(finished=True)
        await self._draining.wait()

    def all_delivered(self, outstanding: int) -> bool:
        """As he knows it, who hears of every change."""
        assert self.controlled is not None
        self._tell_accepted()
        if (outstanding, self._heard) != self._told:
            self._told = outstanding, self._heard
            self.watch(self.controlled.snapshot())
        return self._drained

    def watch(self, snapshot: LiveSnapshot) -> None:
        """Hear where we stand."""
        self._tell_accepted()
        told = {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}
        self._show(encode(snapshot={**told, "heard": self._heard}))

    def _tell_accepted(self) -> None:
        if self._accepted:
            self.send(accepted=self._accepted)
            self._accepted = []

    def receive(self, line: bytes) -> None:
        """Do as we are told by a line. Raises `ValueError` for what is none of the protocol."""
        kind, about = decode(line, TO_A_MEMBER)
        if kind == "log on":
            self._going.set()
        elif kind == "start" and not self._start.done():
            self._start.set_result(about)
        elif kind == "accepted":
            assert self.controlled is not None
            self.controlled.mails_accepted(about)
            self._heard += len(about)
        elif kind == "drain":
            self._draining.set()
        elif kind == "drained":
            self._drained = True
        elif kind == "stop":
            self.why = about if isinstance(about, str) else self.why
            self.stop()
        elif kind == "given up":
            self.give_up(about)

    def stop(self) -> None:
        """We are told to stop."""
        self.stop_waiting()
        if self.controlled is not None:
            self.controlled.stop()

    def give_up(self, why: str) -> None:
        """Nobody is there any more to run for, or nobody reckons with us."""
        self.stop_waiting()
        if self.controlled is not None:
            self.controlled.give_up(why)


class EventForwarder:
    """A text stream for `Events` whose lines go to the leader; each says who we are."""

    def __init__(self, leader: RemoteControl, **who: str) -> None:
        self._leader = leader
        self._who: Mapping[str, str] = who

    def write(self, line: str) -> None:
        """One whole line."""
        self._leader.send(event={**json.loads(line), **self._who})

    def flush(self) -> None:
        """It is on its way."""
