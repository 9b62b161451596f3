"""A line of control that outlives its connections: what a new one finds unheard is said again, and nothing twice.

Between a machine and its station there is an agent, and a network; both may be gone for a while. So each end numbers
what it says, from 1 on, and keeps it until the other has heard it. On a connection there are lines of two kinds:

    heard NUMBER        so many lines were heard in all; the first word on every connection, and again after each line
    NUMBER LINE         a line of the control protocol

Lines are sent once the other end has said what it has received. A `ReliableChannel` moves no bytes itself: it is given
lines, and writes lines to the connection that it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

BEAT_S = 1.0
"""How often each end says that it is there."""

UNHEARD_LINES = 64
"""So many lines are said at most before the first of them was heard; the others wait."""

_HEARD = b"heard"
_MOST_DIGITS = 18


def lines_in(message: object) -> list[bytes]:
    """Return the lines in a message of a connection. Raises `ValueError` for anything else."""
    if not isinstance(message, list | tuple) or not all(
        isinstance(one, bytes | bytearray | memoryview) for one in message
    ):
        raise ValueError("control link: expected a list of lines, found something else")
    return [bytes(one) for one in message]


class ReliableChannel:
    """One end of it. What it hears goes to `hear`, each line once, in the order in which they were said."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self._heard = 0
        self._unheard: deque[bytes] = deque()  # said, and for all we know not heard
        self._known = 0  # how many lines before these were heard
        self._waiting: deque[tuple[bytes, bool]] = deque()  # not said yet, and whether it is passing
        self._write: Callable[[bytes], None] | None = None
        self._welcome = False  # whether the other end has said on this connection what it has heard
        self.ever_received = False  # whether anything ever came
        self.silent_beats = 0  # how many beats in a row nothing came after

    @property
    def all_acknowledged(self) -> bool:
        """Whether the other end has heard everything."""
        return not self._unheard and not self._waiting

    def send(self, line: bytes, passing: bool = False) -> None:
        """Say a line that ends with a newline. One that is `passing` takes the place of another that still waits."""
        if passing:
            self._waiting = deque(each for each in self._waiting if not each[1])
        self._waiting.append((line, passing))
        self._say()

    def attach(self, write: Callable[[bytes], None]) -> None:
        """There is a new connection, to which `write` writes; another one that there was is no more."""
        self._write = write
        self._welcome = False
        self._say_heard()

    def detach(self) -> None:
        """There is no connection."""
        self._write = None

    def beat(self) -> None:
        """Say that we are there; once in `BEAT_S`, by both ends, so that each knows of the other."""
        self.silent_beats += 1
        self._say_heard()

    def _say_heard(self) -> None:
        if self._write is not None:
            self._write(b"%s %d\n" % (_HEARD, self._heard))

    def feed(self, line: bytes) -> None:
        """A whole line came by the connection.

        Raises `ValueError` for what the other end of this link cannot have said; the connection is to be cut.
        """
        word, _, rest = line.partition(b" ")
        if word == _HEARD:
            self._note(_number(rest))
        else:
            number = _number(word)
            if number > self._heard + 1:
                raise ValueError(f"control link: expected line {self._heard + 1}, found line {number}")
            if number > self._heard:
                self._heard = number
                self._hear(rest)
            self._say_heard()
        self.ever_received = True
        self.silent_beats = 0

    def _note(self, heard: int) -> None:
        """The other end has heard so many lines."""
        if not self._known <= heard <= self._known + len(self._unheard):
            raise ValueError(
                f"control link: expected {self._known} to {self._known + len(self._unheard)} lines heard, found {heard}"
            )
        while self._known < heard:
            self._unheard.popleft()
            self._known += 1
        if not self._welcome and self._write is not None:
            self._welcome = True
            self._write_from(0)
        self._say()

    def _say(self) -> None:
        """Number what may be said, and say it."""
        if not self._welcome or self._write is None:
            return
        before = len(self._unheard)
        while self._waiting and len(self._unheard) < UNHEARD_LINES:
            self._unheard.append(self._waiting.popleft()[0])
        self._write_from(before)

    def _write_from(self, place: int) -> None:
        assert self._write is not None
        for number, line in enumerate(islice(self._unheard, place, None), self._known + place + 1):
            self._write(b"%d %s" % (number, line))


def _number(digits: bytes) -> int:
    digits = digits.removesuffix(b"\n")
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise ValueError("control link: expected the number of a line, found something else")
    return int(digits)
