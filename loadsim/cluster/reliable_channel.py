"""A control channel that outlives its connections: lines are numbered, acknowledged, and resent where needed.

Between a worker and its controller there are an agent and a network, and either may disappear for a while. So each end
numbers the lines that it sends, from 1 on, and keeps each line until the other end acknowledges it. A connection
carries two kinds of lines:

    heard NUMBER        the number of lines received: the first line of each connection, repeated after each line
    NUMBER LINE         a line of the control protocol

An end sends lines once it knows what the other end has received. A `ReliableChannel` does no I/O: the caller feeds it
the lines of a connection, and it writes lines to the attached connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

BEAT_S = 1.0
"""Seconds between the heartbeats of each end."""

MOST_UNACKNOWLEDGED = 64
"""The most lines that are sent without an acknowledgement; further lines are queued."""

_HEARD = b"heard"
_MOST_DIGITS = 18


class ReliableChannel:
    """One end of the channel. It calls `deliver` once for each line from the other end, in order."""

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self._received = 0  # lines in total
        self._sent: deque[bytes] = deque()  # lines sent but not acknowledged
        self._acknowledged = 0  # the number of lines before those
        self._queued: deque[tuple[bytes, bool]] = deque()  # unsent lines, and whether each is replaceable
        self._write: Callable[[bytes], None] | None = None
        self._greeted = False  # the other end has acknowledged lines on this connection
        self.ever_received = False
        self.silent_beats = 0  # own heartbeats since the other end's last line

    @property
    def all_acknowledged(self) -> bool:
        return not self._sent and not self._queued

    def send(self, line: bytes, replaceable: bool = False) -> None:
        """Send a line that ends with a newline. A `replaceable` line replaces an earlier one that is still queued."""
        if replaceable:
            self._queued = deque(queued for queued in self._queued if not queued[1])
        self._queued.append((line, replaceable))
        self._send_queued()

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Use a new connection, to which `write` writes, in place of the previous one."""
        self._write = write
        self._greeted = False
        self._acknowledge()

    def detach(self) -> None:
        self._write = None

    def beat(self) -> None:
        """Send a heartbeat. Both ends call this every `BEAT_S`."""
        self.silent_beats += 1
        self._acknowledge()

    def _acknowledge(self) -> None:
        if self._write is not None:
            self._write(b"%s %d\n" % (_HEARD, self._received))

    def feed(self, line: bytes) -> None:
        """Take a whole line from the connection.

        Raises `ValueError` for a line that the other end cannot have sent; the caller then closes the connection.
        """
        word, _, rest = line.partition(b" ")
        if word == _HEARD:
            self._note_acknowledged(_number(rest))
        else:
            number = _number(word)
            if number > self._received + 1:
                raise ValueError(f"control link: expected line {self._received + 1}, found line {number}")
            if number > self._received:
                self._received = number
                self._deliver(rest)
            self._acknowledge()
        self.ever_received = True
        self.silent_beats = 0

    def _note_acknowledged(self, lines: int) -> None:
        most = self._acknowledged + len(self._sent)
        if not self._acknowledged <= lines <= most:
            raise ValueError(f"control link: expected {self._acknowledged} to {most} lines heard, found {lines}")
        while self._acknowledged < lines:
            self._sent.popleft()
            self._acknowledged += 1
        if not self._greeted and self._write is not None:
            self._greeted = True
            self._write_from(0)  # resent on the new connection
        self._send_queued()

    def _send_queued(self) -> None:
        if not self._greeted or self._write is None:
            return
        before = len(self._sent)
        while self._queued and len(self._sent) < MOST_UNACKNOWLEDGED:
            self._sent.append(self._queued.popleft()[0])
        self._write_from(before)

    def _write_from(self, index: int) -> None:
        assert self._write is not None
        for number, line in enumerate(islice(self._sent, index, None), self._acknowledged + index + 1):
            self._write(b"%d %s" % (number, line))


def _number(digits: bytes) -> int:
    digits = digits.removesuffix(b"\n")
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise ValueError("control link: expected the number of a line, found something else")
    return int(digits)
