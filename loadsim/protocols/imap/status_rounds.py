"""Rounds of STATUS: mail programs ask about folders that they do not show (RFC 9051 section 6.3.11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.model.ports import INBOX


@dataclass(slots=True, eq=False)
class StatusTimes:
    """When a user's next round is due, across sessions, and the folders to ask about.

    `items` are in parentheses. Instants are those of the event loop's clock.
    """

    items: bytes
    every_s: float
    _folders: Sequence[str] = field(default=(), init=False)  # all but the Inbox, as listed last
    _due_s: float = field(default=-math.inf, init=False)

    def listed(self, folders: Sequence[str]) -> None:
        self._folders = [folder for folder in folders if folder != INBOX]

    def begin(self, now_s: float) -> Sequence[str]:
        """Return the folders to ask about now, and plan the next round; none if no round is due."""
        if now_s < self._due_s or not self._folders:
            return ()
        self._due_s = now_s + self.every_s
        return self._folders

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self._due_s - now_s) if self._folders else math.inf
