"""The recently used things of a store, up to a size in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class RecentlyUsed(Generic[V]):
    """Values by key, each with a size. The least recently used ones go first. All threads may use it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: OrderedDict[int, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: int) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: int, value: V, size_bytes: int) -> list[V]:
        """Add a value, and return those that it displaces."""
        displaced: list[V] = []
        with self._lock:
            self._remove(key)
            self._values[key] = value, size_bytes
            self._bytes += size_bytes
            while self._bytes > self._most_bytes:
                _, (old, old_bytes) = self._values.popitem(last=False)
                self._bytes -= old_bytes
                displaced.append(old)
        return displaced

    def remove(self, key: int) -> None:
        with self._lock:
            self._remove(key)

    def _remove(self, key: int) -> None:
        self._bytes -= self._values.pop(key, (None, 0))[1]

    @property
    def filled_share(self) -> float:
        """The filled part; 1 if there is no room for another value of the mean size."""
        with self._lock:
            return min(1.0, self._bytes * (1 + 1 / max(1, len(self._values))) / self._most_bytes)
