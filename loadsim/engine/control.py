"""The control protocol: keeps the members of a run in step through JSON objects, one per line, over one channel each.

A coordinator keeps its members in step: a worker's coordinator its engines, the controller's coordinator its workers.
`Control` is a member's view of its coordinator: `participant.RemoteControl` reaches it over a channel, and
`StandaloneControl` serves a run without one. An engine stops when its pipe ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, dataclass_transform

from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.ports import Clock
from loadsim.timinglog.facts import EarlyEnd

ACCEPTED_AT_ONCE = 500
"""The most accepted messages on one line, which keeps lines short."""

LONGEST_LINE_BYTES = 256 * 1024 * 1024
"""`begin` carries all users' accounts if they come from a table."""

LONGEST_LINE_OF_A_MEMBER_BYTES = 16 * 1024 * 1024
"""Enough for a snapshot with 100,000 kinds of failures."""


# --- messages and lines -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the control protocol: on its line, a JSON object whose only key is the kind.

    The value is its only field's, a list of all fields if there are several, or true if there are none.
    """

    kind: ClassVar[str]

    def value(self) -> Any:
        values = [getattr(self, each.name) for each in fields(self)]
        return values if len(values) > 1 else values[0] if values else True

    @classmethod
    def read(cls, value: Any) -> Self:
        count = len(fields(cls))
        return cls(*(value if count > 1 else [value][:count]))


M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    return json.dumps({message.kind: message.value()}).encode() + b"\n"


def decode(line: bytes, known: Iterable[type[M]]) -> M:
    """Return the message on a line, which must be one of the `known` ones. Raises `ValueError` with a one-line message.

    Values are not checked: the program at the other end has the same fingerprint.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("control protocol: expected JSON, found something else") from None
    if not isinstance(found, dict) or len(found) != 1:
        raise ValueError("control protocol: expected a JSON object with one key, found another")
    kind, value = next(iter(found.items()))
    by_kind = {each.kind: each for each in known}
    if kind not in by_kind:
        raise ValueError(f"control protocol: expected one of {', '.join(by_kind)}, found {kind[:40]!r}")
    return by_kind[kind].read(value)


@dataclass_transform(frozen_default=True)
def message(kind: str) -> Callable[[type[M]], type[M]]:
    """Turn a class into a message: a frozen dataclass with this kind."""

    def make(cls: type[M]) -> type[M]:
        made = dataclass(frozen=True, slots=True)(cls)
        made.kind = kind
        return made

    return make


# --- to a member, after the message that begins it (`process.Begin`) ----------------------------------------------


@message("log on")
class LogOn(Message):
    """All members are ready: begin to log on."""


@message("start")
class Start(Message):
    """The common start, on the member's monotonic clock."""

    at_ns: int


@message("accepted")
class Accepted(Message):
    """Accepted messages, each with its recipient: sent to the recipient's member, or by any other member."""

    mails: Sequence[tuple[str, int]]


@message("drain")
class Drain(Message):
    """No more tasks are running: wait for mail in transit."""


@message("drained")
class Drained(Message):
    """All mail of the run has been seen: stop waiting."""


@message("stop")
class Stop(Message):
    """End early; after a second one, at once. A worker receives the reason, or true if someone interrupted the run."""

    end: EarlyEnd | Literal[True] = True

    @classmethod
    def read(cls, value: Any) -> Self:
        return cls(True if value is True else EarlyEnd(*value))


@message("given up")
class GivenUp(Message):
    """End: the run goes on without this member, or has already ended."""

    why: str


TO_A_MEMBER = (LogOn, Start, Accepted, Drain, Drained, Stop, GivenUp)


# --- from a member ------------------------------------------------------------------------------------------------


@message("ready")
class Ready(Message):
    """The member has everything it needs, and its log is open."""

    process: int


@message("refused")
class Refused(Message):
    """The member is unable to begin."""

    why: str


@message("on")
class On(Message):
    """The member has finished logging on, and waits for the common start."""


@message("snapshot")
class Snapshot(Message):
    """The member's heartbeat, once a second. `received` counts the accepted messages that it has received so far."""

    snapshot: LiveSnapshot
    received: int

    def value(self) -> dict[str, Any]:
        figures = {each.name: getattr(self.snapshot, each.name) for each in fields(self.snapshot)}
        return {**figures, "heard": self.received}

    @classmethod
    def read(cls, value: dict[str, Any]) -> Self:
        received = value.pop("heard")
        return cls(LiveSnapshot(**value), received)


@message("finished")
class Finished(Message):
    """The member's tasks have ended, and it will send no more mail."""


@message("event")
class Event(Message):
    line: Mapping[str, Any]


@message("over")
class Over(Message):
    """The member has ended of its own accord, and its log is complete."""


FROM_A_MEMBER = (Ready, Refused, On, Snapshot, Accepted, Finished, Event, Over)


# --- a member's view ----------------------------------------------------------------------------------------------


class Control(Protocol):
    """Keeps an engine, or a worker's coordinator, in step with the other members of a run."""

    async def all_ready(self) -> None:
        """Report that this member is ready, and wait until all are."""

    async def common_start(self) -> int | None:
        """Report that the log-on is over, and wait. Return the instant of the common start; None if none will come."""

    def stop_waiting(self) -> None:
        """Stop waiting for other members, because this one is stopping."""

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Report that the server accepted a message for a user of another member."""

    async def all_finished(self) -> None:
        """Report that our tasks have ended, and wait until all members' have: until then, more mail may come."""

    def all_delivered(self, outstanding: int) -> bool:
        """Return True if all mail of the run has been seen; `outstanding` messages for our own users have not."""


class StandaloneControl:
    """The `Control` of a run without a coordinator above: for its only engine, or its only coordinator.

    The common start comes `ahead_s` after it was asked for, so that it can reach all members in time.
    """

    def __init__(self, clock: Clock, ahead_s: float = 0.0) -> None:
        self._clock = clock
        self._ahead_ns = round(ahead_s * 1e9)

    async def all_ready(self) -> None:
        """Return at once."""

    async def common_start(self) -> int:
        return self._clock.now_ns() + self._ahead_ns

    def stop_waiting(self) -> None:
        """Do nothing: no call waits."""

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Do nothing: there are no other members."""

    async def all_finished(self) -> None:
        """Return at once."""

    def all_delivered(self, outstanding: int) -> bool:
        """Return True if our own users have seen all mail: there are no others."""
        return not outstanding
