"""Parallel preparation of mailboxes in two steps: all are inspected before any is changed.

A controller has workers prepare the mailboxes of their users. A worker does so on one core: an IMAP server takes more
time for a message than it takes to make one (docs/explanation/performance.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any, Self

from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.engine.channel import Channel
from loadsim.engine.control import Message, Refused, decode, encode, message
from loadsim.engine.coordinator import READY_LIMIT_S
from loadsim.errors import ConfigError
from loadsim.processes.event_loop import task_group
from loadsim.provisioning.initialise import INITIALISE, INSPECT, Initialised

CHECK = "check"
"""The phase before mailboxes are inspected."""

PHASES = (CHECK, INSPECT, INITIALISE)


@message("change")
class Change(Message):
    """To a preparer: all have inspected their mailboxes, and found nothing wrong."""


@message("progress")
class PhaseProgress(Message):
    """A preparer's heartbeat, each second: its progress in a phase, in accounts."""

    phase: str = CHECK
    done: int = 0
    of: int = 0


@message("inspected")
class Inspected(Message):
    """A preparer's mailboxes are inspected. It waits for `Change`."""


@message("prepared")
class Prepared(Message):
    """A preparer's result. It then waits for its next message, or its end."""

    result: Initialised

    def value(self) -> dict[str, Any]:
        return asdict(self.result)

    @classmethod
    def read(cls, value: dict[str, Any]) -> Self:
        return cls(Initialised(**value))


FROM_A_PREPARER = (PhaseProgress, Inspected, Prepared, Refused)


def combine(progress: Collection[PhaseProgress]) -> PhaseProgress:
    """Return the progress of all in the latest phase. Preparers that have not begun count with all of their accounts.

    Preparers that are in an earlier phase do not count.
    """
    phase = max((each.phase for each in progress), key=PHASES.index, default=CHECK)
    in_it = [each for each in progress if each.phase in (phase, CHECK)]
    return PhaseProgress(phase, sum(each.done for each in in_it), sum(each.of for each in in_it))


class _Preparer:
    def __init__(self, channel: Channel, users: int) -> None:
        self.channel = channel
        self.progress = PhaseProgress(of=users)
        self.ever_received = False
        self.silent_beats = 0  # since its last message
        self.inspected = False
        self.done: Initialised | None = None


class Preparation:
    """Coordinates preparers, by name: each with the channel by which it was started, and its number of users.

    `watch` is called with the progress of all at each progress message. A preparer without a message for more than
    `misses` beats is lost.
    """

    def __init__(
        self, channels: Mapping[str, tuple[Channel, int]], watch: Callable[[PhaseProgress], None], misses: int
    ) -> None:
        self._preparers = {name: _Preparer(*about) for name, about in channels.items()}
        self._watch = watch
        self._misses = misses
        self._changed = asyncio.Event()

    async def run(self) -> dict[str, Initialised]:
        """Inspect and change all mailboxes. Return the result of each preparer, by name.

        Raises `ConfigError` for the first error of a preparer. On an error or a cancellation, all preparers are killed.
        """
        try:
            async with task_group() as group:
                background = [group.create_task(self._listen(name, each)) for name, each in self._preparers.items()]
                background.append(group.create_task(self._supervise()))
                await self._until(lambda each: each.inspected)
                for each in self._preparers.values():
                    each.channel.send(encode(Change()))
                await self._until(lambda each: each.done is not None)
                for task in background:
                    task.cancel()
        except BaseException:
            for each in self._preparers.values():
                each.channel.kill()
            raise
        return {name: each.done for name, each in self._preparers.items() if each.done is not None}

    async def _until(self, reached: Callable[[_Preparer], bool]) -> None:
        while not all(map(reached, self._preparers.values())):
            self._changed.clear()
            await self._changed.wait()

    async def _listen(self, name: str, preparer: _Preparer) -> None:
        """Handle the messages of one preparer. Its channel must not end before all preparers have finished."""
        while (line := await preparer.channel.receive()).endswith(b"\n"):
            try:
                message = decode(line, FROM_A_PREPARER)
            except ValueError as problem:
                raise _lost(name, str(problem)) from None
            preparer.ever_received, preparer.silent_beats = True, 0
            match message:
                case PhaseProgress():
                    preparer.progress = message
                    self._watch(combine([each.progress for each in self._preparers.values()]))
                case Inspected():
                    preparer.inspected = True
                case Prepared(result):
                    preparer.done = result
                case Refused(why):
                    raise ConfigError(why)
            self._changed.set()
        raise _lost(name, await preparer.channel.wait())

    async def _supervise(self) -> None:
        """Find silent preparers once a beat.

        Own beats are counted, not seconds: during each of them, all messages that had arrived were read.
        """
        while True:
            await asyncio.sleep(BEAT_S)
            for name, each in self._preparers.items():
                each.silent_beats += 1
                most = self._misses if each.ever_received else READY_LIMIT_S / BEAT_S
                if each.silent_beats > most and each.channel.ended is None:
                    raise _lost(name, f"sent nothing for {each.silent_beats * BEAT_S:.0f} s")


def _lost(name: str, how: str) -> ConfigError:
    return ConfigError(f"{name}: lost while it prepared mailboxes: {how}")
