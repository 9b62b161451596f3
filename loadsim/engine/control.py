"""The control protocol: keeps the members of a run in step by JSON objects, one a line, over one channel each.

A coordinator keeps its members in step: a worker's coordinator its engines, the controller's coordinator its workers.
To both kinds of members:

    {"begin": {...}}                all that it needs, see `process.Begin`
    {"log on": true}                every member is ready: begin to log on
    {"start": NANOSECONDS}          the common start, on the member's monotonic clock
    {"accepted": [[id, user], ...]} messages that users of other members sent to users of this one
    {"drain": true}                 no task runs any more: wait for mail in transit
    {"drained": true}               all mail of the run has been seen: do not wait for any
    {"stop": true}                  end early; a second time: at once. To a worker, instead of true: why
    {"given up": why}               end: the run goes on, or has ended, without this member

From a member:

    {"ready": PROCESS ID}           it has all it needs, and its log is open
    {"refused": "one line"}         it cannot begin
    {"on": true}                    its log-on is over, and it waits for the common start
    {"snapshot": {...}}             its heartbeat, once a second: a `LiveSnapshot`; counts are cumulative
    {"accepted": [[id, user], ...]} messages that its users sent to users of other members
    {"finished": true}              its tasks have ended, and it sends no more mail
    {"event": {...}}                a line of events.jsonl
    {"over": true}                  it has ended by itself, and its log is complete

An engine stops at the end of its pipe. `Control` is a member's view of its coordinator: `participant.RemoteControl`
reaches it over a channel, and `StandaloneControl` serves a run without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loadsim.engine.snapshot import LiveSnapshot, read_snapshot
from loadsim.model.ports import Clock
from loadsim.timinglog.json_checks import Check, each_of, having, text, whole

ACCEPTED_AT_ONCE = 500
"""The most accepted messages in one line: lines stay short."""

LONGEST_LINE_BYTES = 256 * 1024 * 1024
"""`begin` carries the accounts of all users if they come from a table."""

LONGEST_LINE_OF_A_MEMBER_BYTES = 16 * 1024 * 1024
"""Enough for a snapshot with 100,000 kinds of failures."""


def encode(**message: Any) -> bytes:
    """Return one line of the protocol."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes, known: Mapping[str, Check] | None = None) -> tuple[str, Any]:
    """Return the kind of a message and its value, checked by the kinds in `known` if they are given.

    Raises `ValueError` with a one-line message: a peer with a valid certificate may still be faulty.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("control protocol: expected JSON, found something else") from None
    if not isinstance(message, dict) or len(message) != 1:
        raise ValueError("control protocol: expected a JSON object with one key, found another")
    kind, about = next(iter(message.items()))
    if known is not None:
        if kind not in known:
            raise ValueError(f"control protocol: expected one of {', '.join(known)}, found {kind[:40]!r}")
        if wrong := known[kind](about):
            *keys, expected = wrong.split(": ")
            raise ValueError(f"control protocol: {': '.join([kind, *keys])[:80]}: expected {expected}, found another")
    return kind, about


def _true(value: Any) -> str | None:
    return None if value is True else "true"


def _why(value: Any) -> str | None:
    return None if value is True else text(value)


def _event(value: Any) -> str | None:
    return having({"event": text})(value)


def _message(value: Any) -> str | None:
    good = isinstance(value, list) and len(value) == 2
    return None if good and isinstance(value[0], str) and _USER(value[1]) is None else "a message's id and its user"


_USER = whole(1, 2**32 - 1)
_INSTANT = whole(-(2**62), 2**62)

TO_A_MEMBER: Mapping[str, Check] = {
    "log on": _true,
    "start": _INSTANT,
    "accepted": each_of(_message),
    "drain": _true,
    "drained": _true,
    "stop": _why,
    "given up": text,
}
"""The messages to a member after `begin`, by kind."""

FROM_A_MEMBER: Mapping[str, Check] = {
    "ready": whole(0, 2**32),
    "refused": text,
    "on": _true,
    "snapshot": having({}),
    "accepted": each_of(_message),
    "finished": _true,
    "event": _event,
    "over": _true,
}
"""The messages from a member, by kind; `snapshot.read_snapshot` checks the values of a snapshot."""


# --- typed messages -----------------------------------------------------------------------------------------------

Mails = Sequence[tuple[str, int]]
"""Accepted messages: each one's id, and the user whom it was accepted for."""


@dataclass(frozen=True, slots=True)
class LogOn:
    """Every member is ready: begin to log on."""


@dataclass(frozen=True, slots=True)
class Start:
    """The common start is at this instant of the member's clock."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server accepted messages: to a member, for its users; from a member, for users of others."""

    mails: Mails


@dataclass(frozen=True, slots=True)
class Drain:
    """No task runs any more: wait for mail in transit."""


@dataclass(frozen=True, slots=True)
class Drained:
    """All mail of the run has been seen."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End early; a second time: at once."""

    why: str | None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """End: the run goes on, or has ended, without this member."""

    why: str


ToMember = LogOn | Start | Accepted | Drain | Drained | Stop | GivenUp


@dataclass(frozen=True, slots=True)
class Ready:
    """The member can begin."""

    process: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The member cannot begin."""

    why: str


@dataclass(frozen=True, slots=True)
class On:
    """The member's log-on is over."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The member's state; `received` counts the accepted messages that it had received by then."""

    snapshot: LiveSnapshot
    received: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The member's tasks have ended."""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of events.jsonl."""

    line: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Over:
    """The member has ended by itself."""


FromMember = Ready | Refused | On | Snapshot | Accepted | Finished | Event | Over

_TO_A_MEMBER: Mapping[str, Callable[[Any], ToMember]] = {
    "log on": lambda _: LogOn(),
    "start": Start,
    "accepted": Accepted,
    "drain": lambda _: Drain(),
    "drained": lambda _: Drained(),
    "stop": lambda why: Stop(None if why is True else why),
    "given up": GivenUp,
}

_FROM_A_MEMBER: Mapping[str, Callable[[Any], FromMember]] = {
    "ready": Ready,
    "refused": Refused,
    "on": lambda _: On(),
    "snapshot": lambda about: Snapshot(*read_snapshot(about)),
    "accepted": Accepted,
    "finished": lambda _: Finished(),
    "event": Event,
    "over": lambda _: Over(),
}


def decode_to_member(line: bytes) -> ToMember:
    """Return a message to a member, after `begin`. Raises `ValueError` as `decode` does."""
    kind, value = decode(line, TO_A_MEMBER)
    return _TO_A_MEMBER[kind](value)


def decode_from_member(line: bytes) -> FromMember:
    """Return a message from a member. Raises `ValueError` as `decode` does."""
    kind, value = decode(line, FROM_A_MEMBER)
    return _FROM_A_MEMBER[kind](value)


# --- a member's view ----------------------------------------------------------------------------------------------


class Control(Protocol):
    """Keeps an engine, or a worker's coordinator, in step with the other members of a run."""

    async def all_ready(self) -> None:
        """Report that this member is ready, and wait until all are."""

    async def common_start(self) -> int | None:
        """Report the end of the log-on, and wait. Return the instant of the common start, or None if there is none."""

    def stop_waiting(self) -> None:
        """End all waiting for other members, because this one stops."""

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Report that the server accepted a message for a user of another member."""

    async def all_finished(self) -> None:
        """Report that our tasks have ended, and wait until all members' have: until then there may be more mail."""

    def all_delivered(self, outstanding: int) -> bool:
        """Return True if all mail of the run has been seen; `outstanding` messages for our own users have not."""


class StandaloneControl:
    """The `Control` of a run without a coordinator above: of its one engine, or of its one coordinator.

    The common start is `ahead_s` after the call for it, so that all members have received it by then.
    """

    def __init__(self, clock: Clock, ahead_s: float = 0.0) -> None:
        self._clock = clock
        self._ahead_ns = round(ahead_s * 1e9)

    async def all_ready(self) -> None:
        """Return at once."""

    async def common_start(self) -> int:
        """Return the common start without waiting."""
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
