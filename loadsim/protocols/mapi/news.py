"""New mail in a user's Inbox: shown by lists, announced by events, and known to the observer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.protocols.mapi import tags
from loadsim.protocols.mapi.objects import Row, identifier, number

COLUMNS = (tags.MID, tags.MESSAGE_DELIVERY_TIME)
"""The first columns of these lists' rows."""


@dataclass(slots=True)
class News:
    """The Inbox's messages by number, across folders and sessions."""

    listed: set[int] = field(default_factory=set)
    expected: set[int] = field(default_factory=set)  # announced by events, but not listed yet
    untold: set[int] = field(default_factory=set)  # those that the observer does not know of
    before: frozenset[int] = frozenset()  # in the first list
    floor: int | None = None  # the delivery time of the oldest message in the first list; None: no list yet

    def take(self, rows: Sequence[Row], is_whole: bool = False) -> None:
        """Take a list of the newest messages, or of all."""
        numbers = frozenset([message for row in rows if (message := identifier(row[0])) is not None])
        if self.floor is None:
            self.before, self.floor = numbers, 0 if is_whole else min([number(row[1]) or 0 for row in rows], default=0)
        self.listed |= numbers
        self.expected -= numbers
        self.untold -= numbers

    def is_new(self, row: Row, reopen: bool) -> bool:
        """Return whether a message arrived after the last list, or with `reopen`, after the first.

        Messages below the floor are old, even if not listed.
        """
        old = self.before if reopen else self.listed
        return identifier(row[0]) not in old and (number(row[1]) or 0) >= (self.floor or 0)

    def event(self, message: int) -> None:
        if message not in self.listed and message not in self.expected:
            self.expected.add(message)
            self.untold.add(message)

    def tell(self) -> int:
        """Return the number of messages to announce to the observer, who then knows of them."""
        told = len(self.untold)
        self.untold.clear()
        return told

    def forget_events(self) -> None:
        self.expected.clear()
        self.untold.clear()
