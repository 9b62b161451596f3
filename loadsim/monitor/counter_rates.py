"""Rates of a server's counters between two of a probe's samples."""

from __future__ import annotations

from collections.abc import Hashable, Mapping


class RisingCounters:
    """The last sample of counters that only rise until they are reset, say by a server's restart."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] | None = None
        self._at_s = 0.0
        self._era: Hashable = None

    def rates(self, counters: Mapping[str, float], at_s: float, era: Hashable = None) -> dict[str, float]:
        """Return the increases per second since the last sample, at `at_s` of the monotonic clock.

        There are none for the first sample, or after a reset: a counter fell or disappeared, or `era` changed, a value
        that changes with each server start. One reset counter is enough, as a server resets all of them.
        """
        before, before_s, before_era = self._before, self._at_s, self._era
        self._before, self._at_s, self._era = dict(counters), at_s, era
        if before is None or era != before_era or at_s <= before_s:
            return {}
        if any(name not in counters or counters[name] < value for name, value in before.items()):
            return {}
        return {name: (counters[name] - value) / (at_s - before_s) for name, value in before.items()}
