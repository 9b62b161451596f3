"""Letting users go to work a few at a time, with the loop's other work in between.

A message to a distribution list is announced to dozens of users in one moment, and all of them want to look at once.
If they did, an answer that comes meanwhile would wait for every one of them, and that time would count as the server's.
The other engines on the same core have their turn in between, too, where they are pinned (`--pin`): then they go in the
order in which they come, and none before the one that works has nothing left to do. Elsewhere the system shares out the
cores, and whoever offers his own may not see it again for a while.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

A_TURN = 2
"""How many go in one turn of the loop. What each sets off takes about a quarter of a millisecond, and as long again in
the turn of its answer; a turn by itself takes a tenth of that."""


class Turnstile:
    """Calls what it is given: at once as long as few come in a turn of the loop, else in their order in later turns."""

    __slots__ = ("_a_turn", "_gone", "_waiting")

    def __init__(self, a_turn: int = A_TURN) -> None:
        self._a_turn = a_turn
        self._gone = 0  # in this turn
        self._waiting: deque[Callable[[], object]] = deque()

    def enter(self, go: Callable[[], object]) -> None:
        """Call `go`, now or in its turn."""
        if self._gone < self._a_turn:
            self._let_go(go)
        else:
            self._waiting.append(go)

    def _let_go(self, go: Callable[[], object]) -> None:
        if not self._gone:
            asyncio.get_running_loop().call_soon(self._turn)
        self._gone += 1
        go()

    def _turn(self) -> None:
        self._gone = 0
        if self._waiting and os.sched_getscheduler(0) == os.SCHED_RR:
            os.sched_yield()
        for _ in range(min(self._a_turn, len(self._waiting))):
            self._let_go(self._waiting.popleft())


def at_once(go: Callable[[], object]) -> None:
    """What `Turnstile.enter` does where there is never a crowd."""
    go()
