"""The parallel preparation of mailboxes in two steps: all are inspected before any is changed.

Workers prepare the mailboxes of their users, each on one core: an IMAP server needs more time to store a message than a
worker needs to make it (docs/explanation/performance.md).
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
"""The phase before the mailboxes are inspected."""

PHASES = (CHECK, INSPECT, INITIALISE)


@message("change")
class Change(Message):
    """To a preparer: all preparers have inspected their mailboxes and found no fault."""


@message("progress")
class PhaseProgress(Message):
    """A preparer's heartbeat, once a second: its progress in a phase, in accounts."""

    phase: str = CHECK
    done: int = 0
    of: int = 0


@message("inspected")
class Inspected(Message):
    """A preparer has inspected its mailboxes, and is waiting for `Change`."""


@message("prepared")
class Prepared(Message):
    """A preparer's result. It then waits for its next message, or is ended."""

    result: Initialised

    def value(self) -> dict[str, Any]:
        return asdict(self.result)

    @classmethod
    def read(cls, value: dict[str, Any]) -> Self:
        return cls(Initialised(**value))


FROM_A_PREPARER = (PhaseProgress, Inspected, Prepared, Refused)


def combine(progress: Collection[PhaseProgress]) -> PhaseProgress:
    """Return the total progress in the latest phase that a preparer has reached.

    Preparers that have not begun count with all of their accounts; those in any other earlier phase do not count.
    """
    phase = max((part.phase for part in progress), key=PHASES.index, default=CHECK)
    counted = [part for part in progress if part.phase in (phase, CHECK)]
    return PhaseProgress(phase, sum(part.done for part in counted), sum(part.of for part in counted))


class _Preparer:
    def __init__(self, channel: Channel, users: int) -> None:
        self.channel = channel
        self.progress = PhaseProgress(of=users)
        self.ever_received = False
        self.silent_beats = 0  # since its last message
        self.inspected = False
        self.done: Initialised | None = None


class Preparation:
    """Coordinates preparers. `channels` maps each one's name to the channel that started it and its number of users.

    `watch` receives the total progress at each progress message. A preparer that is silent for more than `misses` beats
    is lost.
    """

    def __init__(
        self, channels: Mapping[str, tuple[Channel, int]], watch: Callable[[PhaseProgress], None], misses: int
    ) -> None:
        self._preparers = {name: _Preparer(*about) for name, about in channels.items()}
        self._watch = watch
        self._misses = misses
        self._changed = asyncio.Event()

    async def run(self) -> dict[str, Initialised]:
        """Inspect and change all mailboxes. Return the preparers' results by name.

        Raises `ConfigError` for the first error of a preparer. After an error or a cancellation, all are killed.
        """
        try:
            async with task_group() as group:
                background = [group.create_task(self._listen(*named)) for named in self._preparers.items()]
                background.append(group.create_task(self._supervise()))
                await self._until(lambda preparer: preparer.inspected)
                for preparer in self._preparers.values():
                    preparer.channel.send(encode(Change()))
                await self._until(lambda preparer: preparer.done is not None)
                for task in background:
                    task.cancel()
        except BaseException:
            for preparer in self._preparers.values():
                preparer.channel.kill()
            raise
        return {name: preparer.done for name, preparer in self._preparers.items() if preparer.done is not None}

    async def _until(self, reached: Callable[[_Preparer], bool]) -> None:
        while not all(map(reached, self._preparers.values())):
            self._changed.clear()
            await self._changed.wait()

    async def _listen(self, name: str, preparer: _Preparer) -> None:
        """Handle the messages of one preparer, whose channel must not end before all preparers have finished."""
        while (line := await preparer.channel.receive()).endswith(b"\n"):
            try:
                message = decode(line, FROM_A_PREPARER)
            except ValueError as problem:
                raise _lost(name, str(problem)) from None
            preparer.ever_received, preparer.silent_beats = True, 0
            match message:
                case PhaseProgress():
                    preparer.progress = message
                    self._watch(combine([other.progress for other in self._preparers.values()]))
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

        This counts our own beats, not seconds: in each beat, all messages that have arrived are read.
        """
        while True:
            await asyncio.sleep(BEAT_S)
            for name, preparer in self._preparers.items():
                preparer.silent_beats += 1
                most = self._misses if preparer.ever_received else READY_LIMIT_S / BEAT_S
                if preparer.silent_beats > most and preparer.channel.ended is None:
                    raise _lost(name, f"sent nothing for {preparer.silent_beats * BEAT_S:.0f} s")


def _lost(name: str, how: str) -> ConfigError:
    return ConfigError(f"{name}: lost while it prepared mailboxes: {how}")
