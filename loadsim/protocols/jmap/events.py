"""Pushed state changes: a stream of events (RFC 8620 section 7.3, and the HTML standard, section 9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from loadsim.errors import ProtocolError
from loadsim.protocols.jmap.values import parse

LONGEST_EVENT_BYTES = 1 << 16

_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end may be half of CRLF


class StreamEvent(NamedTuple):
    name: str
    data: str


@dataclass(slots=True)
class EventParser:
    """Parses a stream of events from the pieces in which it arrives. An overlong one raises `ProtocolError`."""

    _held: bytearray = field(default_factory=bytearray)
    _name: str = ""
    _data: list[str] = field(default_factory=list)
    _bytes: int = 0  # of the event so far

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the events that end in these bytes."""
        self._held += data
        at = 0
        while (end := _END.search(self._held, at)) is not None:
            line = bytes(self._held[at : end.start()])
            self._bytes += end.end() - at
            at = end.end()
            self._check(0)
            if (event := self._line(line.decode("utf-8", "replace").removeprefix("\ufeff"))) is not None:
                yield event
        del self._held[:at]
        self._check(len(self._held))

    def _check(self, more_bytes: int) -> None:
        if self._bytes + more_bytes > LONGEST_EVENT_BYTES:
            raise ProtocolError("JMAP event", f"more than {LONGEST_EVENT_BYTES} bytes")

    def _line(self, line: str) -> StreamEvent | None:
        if not line:
            event = StreamEvent(self._name or "message", "\n".join(self._data))
            is_event, self._name, self._data, self._bytes = bool(self._data), "", [], 0
            return event if is_event else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        return None


def email_state(event: StreamEvent, account_id: str) -> str | None:
    """Return the state of Email in a StateChange (RFC 8620 section 7.1); None for any other event.

    Cyrus pushes Email alone, so no other type is waited for.
    """
    if event.name != "state":
        return None
    changed = parse(event.data.encode(), "StateChange").object("changed")
    if account_id not in changed or "Email" not in changed.object(account_id):
        return None
    return changed.object(account_id).text("Email")
