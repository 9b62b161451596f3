"""Mailboxes prepared by many at once, in step: all are inspected before any is changed, whoever inspects which.

A station has machines prepare the mailboxes of their users, and a machine has a process for the users of each of its
engines (`prepare_process`). Both by the same words, one line each. To whoever prepares:

    {"prepare": {...}}              whose mailboxes, and everything that it needs to know
    {"change": true}                everybody has inspected, and nothing was wrong anywhere
    {"stop": true}                  to a machine: there will be no run

From whoever prepares:

    {"progress": [PHASE, DONE, OF]} once a second, its heartbeat: where it stands, in accounts
    {"inspected": COUNT}            so many of its mailboxes are to be changed
    {"prepared": {...}}             what was done (`Initialised`); it stays until it is told something else, or ended
    {"refused": "one line"}         what is wrong, with which account
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from loadsim.engine.channel import Channel
from loadsim.engine.control import decode, encode
from loadsim.engine.coordinator import READY_LIMIT_S
from loadsim.errors import ConfigError
from loadsim.provisioning.initialise import INITIALISE, INSPECT, Initialised
from loadsim.timinglog.json_checks import Check, having, having_only, or_none, text, whole

BEAT_S = 1.0
"""How often whoever prepares says where he stands."""

CHECK = "check"
"""What comes before mailboxes are looked into."""

PHASES = (CHECK, INSPECT, INITIALISE)


class Standing(NamedTuple):
    """How far a phase has come, in accounts."""

    phase: str = CHECK
    done: int = 0
    of: int = 0


def _standing(value: Any) -> str | None:
    good = isinstance(value, list) and len(value) == 3 and value[0] in PHASES
    return None if good and all(_COUNT(count) is None for count in value[1:]) else "a phase and two counts"


_COUNT = whole(0, 2**53)
_PREPARED: Mapping[str, Check] = {
    **dict.fromkeys((each.name for each in fields(Initialised)), _COUNT),
    "start_state": or_none(text),
    "first_kept": text,
}

FROM_A_PREPARER: Mapping[str, Check] = {
    "progress": _standing,
    "inspected": _COUNT,
    "prepared": having_only(having(_PREPARED), *_PREPARED),
    "refused": text,
}
"""The messages of a process or machine that prepares mailboxes, by kind."""


def together(standings: Mapping[str, Standing]) -> Standing:
    """Where all stand: how far the latest phase has come, with those that have begun it, or have yet to begin any."""
    phase = max((each.phase for each in standings.values()), key=PHASES.index, default=CHECK)
    in_it = [each for each in standings.values() if each.phase in (phase, CHECK)]
    return Standing(phase, sum(each.done for each in in_it), sum(each.of for each in in_it))


class _Preparer:
    """One of them, as far as we have heard."""

    def __init__(self, channel: Channel, users: int) -> None:
        self.channel = channel
        self.standing = Standing(of=users)
        self.heard = False
        self.quiet_beats = 0  # since it was heard of
        self.to_change: int | None = None
        self.done: Initialised | None = None


class Preparation:
    """Keeps in step those who prepare, by their names: each by a channel by which it was told to, with how many users.

    `watch` hears where all stand, whenever one of them says it. One that is not heard of for more than `misses` beats
    is lost.
    """

    def __init__(
        self,
        channels: Mapping[str, tuple[Channel, int]],
        watch: Callable[[Mapping[str, Standing]], None],
        misses: int,
    ) -> None:
        self._preparers = {name: _Preparer(*about) for name, about in channels.items()}
        self._watch = watch
        self._misses = misses
        self._changed = asyncio.Event()

    async def run(self, agree: Callable[[int], Awaitable[None]]) -> dict[str, Initialised]:
        """From the first look into the mailboxes to the last change; what each has done.

        `agree` is told how many mailboxes are to be changed, and returns when that may be. Raises `ConfigError` for
        whatever goes wrong with one, the first time. All the others are ended then, as they are when this is cancelled.
        """
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._listen(name, each)) for name, each in self._preparers.items()]
                beside.append(group.create_task(self._supervise()))
                await self._until(lambda each: each.to_change is not None)
                await agree(sum(each.to_change or 0 for each in self._preparers.values()))
                for each in self._preparers.values():
                    each.channel.send(encode(change=True))
                await self._until(lambda each: each.done is not None)
                for task in beside:
                    task.cancel()
        except BaseException as failure:
            for each in self._preparers.values():
                each.channel.kill()
            if isinstance(failure, BaseExceptionGroup):
                raise failure.exceptions[0] from None
            raise
        return {name: each.done for name, each in self._preparers.items() if each.done is not None}

    async def _until(self, reached: Callable[[_Preparer], bool]) -> None:
        while not all(map(reached, self._preparers.values())):
            self._changed.clear()
            await self._changed.wait()

    async def _listen(self, name: str, preparer: _Preparer) -> None:
        """Hear one. Its channel should not end before all have done their part, for it is needed after that."""
        while (line := await preparer.channel.receive()).endswith(b"\n"):
            try:
                kind, about = decode(line, FROM_A_PREPARER)
            except ValueError as problem:
                raise _lost(name, str(problem)) from None
            preparer.heard, preparer.quiet_beats = True, 0
            if kind == "progress":
                preparer.standing = Standing(*about)
                self._watch({name: each.standing for name, each in self._preparers.items()})
            elif kind == "inspected":
                preparer.to_change = about
            elif kind == "prepared":
                preparer.done = Initialised(**about)
            elif kind == "refused":
                raise ConfigError(about)
            self._changed.set()
        raise _lost(name, await preparer.channel.wait())

    async def _supervise(self) -> None:
        """Once a beat: who has not been heard of? Counted in our own, in which all that came was read."""
        while True:
            await asyncio.sleep(BEAT_S)
            for name, each in self._preparers.items():
                each.quiet_beats += 1
                most = self._misses if each.heard else READY_LIMIT_S / BEAT_S
                if each.quiet_beats > most and each.channel.ended is None:
                    raise _lost(name, f"not heard of for {each.quiet_beats * BEAT_S:.0f} s")


def _lost(name: str, how: str) -> ConfigError:
    return ConfigError(f"{name}: lost while it prepared mailboxes: {how}")
