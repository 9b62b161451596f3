"""How a run is kept in step: the control protocol, JSON objects one a line, over a channel each.

A pool keeps its members in step: a machine's pool its engines, a station's pool its machines. To both kinds of members:

    {"begin": {...}}                everything it needs to know, see `Begin`
    {"log on": true}                every member is ready: begin to log on
    {"start": NANOSECONDS}          the common start, on the member's monotonic clock
    {"accepted": [[id, user], ...]} messages that users of other members sent to users of this one
    {"drain": true}                 nobody's tasks run any more: wait for the mail that is under way
    {"drained": true}               all mail of the run has been seen: do not wait for any
    {"stop": true}                  end early; said again: at once. To a machine, instead of true: why
    {"given up": why}               end: the run goes on, or has ended, without us

From a member:

    {"ready": PROCESS ID}           it has all it needs, and its log is open
    {"refused": "one line"}         it cannot begin
    {"on": true}                    its log-on is over, and it waits for the common start
    {"snapshot": {...}}             once a second, its heartbeat: a `LiveSnapshot`, all counts from the beginning on
    {"accepted": [[id, user], ...]} messages that its users sent to users of other members
    {"finished": true}              its tasks have ended, and it sends no more
    {"event": {...}}                a line of events.jsonl
    {"over": true}                  it has ended by itself, and its log is complete

An engine whose pipe ends has nobody left to run for, and stops. `Control` is what a member asks,
`participant.Leader` asks it over a channel, and `StandaloneControl` is for whoever has nobody above him.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from loadsim.model.ports import Clock
from loadsim.timinglog.json_checks import Check, each_of, having, text, whole

ACCEPTED_AT_ONCE = 500
"""How many messages are told in one line at most: lines stay short."""

LONGEST_LINE_BYTES = 256 * 1024 * 1024
"""`begin` carries the accounts of all users when they come from a table."""

LONGEST_LINE_OF_A_MEMBER_BYTES = 16 * 1024 * 1024
"""Holds a snapshot with 100,000 kinds of failures."""


def encode(**message: Any) -> bytes:
    """One line of the protocol."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes, known: Mapping[str, Check] | None = None) -> tuple[str, Any]:
    """Return the kind of a message and its value, checked by the kinds in `known` if they are given.

    Raises `ValueError` with one line for anything else: a peer with a valid certificate may still be faulty.
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


def _yes(value: Any) -> str | None:
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
    "log on": _yes,
    "start": _INSTANT,
    "accepted": each_of(_message),
    "drain": _yes,
    "drained": _yes,
    "stop": _why,
    "given up": text,
}
"""The messages to a member after `begin`, by kind."""

FROM_A_MEMBER: Mapping[str, Check] = {
    "ready": whole(0, 2**32),
    "refused": text,
    "on": _yes,
    "snapshot": having({}),
    "accepted": each_of(_message),
    "finished": _yes,
    "event": _event,
    "over": _yes,
}
"""The messages of a member, by kind; `snapshot.read_snapshot` checks the values of a snapshot."""


class Control(Protocol):
    """What an engine, or a machine's pool, asks of whoever keeps it in step with the others."""

    async def all_ready(self) -> None:
        """Say that we are ready, and wait until everybody is."""
        ...

    async def common_start(self) -> int | None:
        """Say that everybody is on; the instant of the common start, or None when there will be none."""
        ...

    def stop_waiting(self) -> None:
        """We were told to stop: nobody waits for the others any more."""
        ...

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """The server took a message for a user who is none of ours."""
        ...

    async def all_finished(self) -> None:
        """Say that our tasks have ended, and wait until everybody's have: until then there may be more mail."""
        ...

    def all_delivered(self, outstanding: int) -> bool:
        """Whether all mail of the run has been seen, when `outstanding` messages for our own users have not."""
        ...


class StandaloneControl:
    """For the one engine of a run, or the one pool, who need not ask anybody.

    The common start lies `ahead_s` ahead of when it is asked for, so that all members have heard of it by then.
    """

    def __init__(self, clock: Clock, ahead_s: float = 0.0) -> None:
        self._clock = clock
        self._ahead_ns = round(ahead_s * 1e9)

    async def all_ready(self) -> None:
        """There are no others."""

    async def common_start(self) -> int:
        """Without waiting for anybody."""
        return self._clock.now_ns() + self._ahead_ns

    def stop_waiting(self) -> None:
        """Nobody waits."""

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Nobody will see it."""

    async def all_finished(self) -> None:
        """There are no others."""

    def all_delivered(self, outstanding: int) -> bool:
        """All mail is for our own users."""
        return not outstanding
