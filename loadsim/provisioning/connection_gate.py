"""The number of connections that a server takes at once, found by trying: many limit those of one address."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from loadsim.errors import ServerLost, ServerRefused, TaskFailed

FIRST = 4
"""Connections at the beginning: Courier allows four for each address by default (MAXPERIP)."""

RARELY = 16
"""A number of connections that was refused is tried again after this many times as many successes."""

_LIMIT_CODES = ("[LIMIT]", "[INUSE]", "[UNAVAILABLE]")
_LIMIT_TEXT = re.compile(r"too many|maximum|\blimit|concurren|try again|busy", re.IGNORECASE)


def about_limit(failure: TaskFailed) -> bool:
    """Return whether a failed log-on may be a limit of connections.

    Servers accept and close, say BYE, or refuse the log-on with a code (RFC 5530, RFC 9051 section 7.1) or a text.
    """
    if isinstance(failure, ServerLost):
        return True
    text = f"{failure.kind} {failure.line}"
    return isinstance(failure, ServerRefused) and (
        any(code in text for code in _LIMIT_CODES) or _LIMIT_TEXT.search(failure.line or "") is not None
    )


class ConnectionGate:
    """Admits visits to a server: few at once at first, at most `most`, fewer after a refusal.

    The number doubles whenever as many visits have succeeded, until the first refusal. From then on it is halved by a
    refusal and grows by one; above the number that was refused last it is tried rarely.
    """

    def __init__(self, most: int) -> None:
        self.allowed = min(FIRST, most)
        self.visiting = 0
        self.admitted = 0
        self._most = most
        self._ceiling: int | None = None  # one less than the number that was refused
        self._succeeded = 0
        self._changed = asyncio.Condition()

    async def enter(self) -> Callable[[], bool]:
        """Wait until another visit is admitted. Return whether it is the only one since its begin, when called."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.visiting < self.allowed)
            self.visiting += 1
            self.admitted += 1
            first, number = self.visiting == 1, self.admitted
        return lambda: first and self.admitted == number

    async def leave(self, *, refused: bool | None) -> None:
        """End a visit, which the server has perhaps refused because of the number of connections.

        None: there was nothing to visit.
        """
        async with self._changed:
            self.visiting -= 1
            if refused:
                self._ceiling = max(1, self.visiting)
                self.allowed = max(1, self._ceiling // 2)
                self._succeeded = 0
            elif refused is not None:
                self._count_success()
            self._changed.notify_all()

    def _count_success(self) -> None:
        self._succeeded += 1
        rarely = RARELY if self._ceiling is not None and self.allowed >= self._ceiling else 1
        if self._succeeded >= rarely * self.allowed and self.allowed < self._most:
            self.allowed = min(self._most, 2 * self.allowed if self._ceiling is None else self.allowed + 1)
            self._succeeded = 0
