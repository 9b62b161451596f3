"""New mail in a user's Inbox: shown by lists, announced by the server, and known to the observer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", int, str)


@dataclass(slots=True)
class News(Generic[K, T]):
    """The Inbox's messages by their keys, across sessions. Lists have keys and times of delivery."""

    earliest: T  # not later than any time
    listed: set[K] = field(default_factory=set)
    expected: dict[K, None] = field(default_factory=dict)  # announced, but not listed yet, in order
    untold: set[K] = field(default_factory=set)  # those that the observer does not know of
    before: frozenset[K] = frozenset()  # in the first list
    floor: T | None = None  # the time of the oldest message in the first list; None: no list yet

    def take(self, entries: Iterable[tuple[K, T]], is_whole: bool = False) -> None:
        """Take a list of the newest messages, or of all."""
        times = dict(entries)
        if self.floor is None:
            self.before = frozenset(times)
            self.floor = self.earliest if is_whole else min(times.values(), default=self.earliest)
        self.listed.update(times)
        self.untold.difference_update(times)
        for key in times:
            self.expected.pop(key, None)

    def is_new(self, key: K, time: T, reopen: bool = False) -> bool:
        """Return whether a message arrived after the last list, or with `reopen`, after the first.

        Messages below the floor are old, even if not listed.
        """
        old = self.before if reopen else self.listed
        return key not in old and time >= (self.earliest if self.floor is None else self.floor)

    def event(self, key: K) -> None:
        """Take the announcement of a message."""
        if key not in self.listed and key not in self.expected:
            self.expected[key] = None
            self.untold.add(key)

    def tell(self) -> int:
        """Return the number of messages to announce to the observer, who then knows of them."""
        told = len(self.untold)
        self.untold.clear()
        return told

    def forget_events(self) -> None:
        self.expected.clear()
        self.untold.clear()
