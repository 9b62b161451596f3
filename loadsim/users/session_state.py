"""When a user has had a session and when not: how long until the next log-on, and why a task of his is late."""

from __future__ import annotations

FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 60.0

STEADY_NS = 10_000_000_000
"""A session that breaks sooner counts like a failed log-on: the next one is made after a pause."""

LAST_DOWNS = 8
"""How many times without a session are remembered, to tell why a task is late."""

Late = tuple[int, int, int]
"""By how many nanoseconds a task began later than it was due: as its user was busy (server), as the session was down
(server), and as the generator was late."""

ON_TIME: Late = (0, 0, 0)


class SessionState:
    """The session's life, as a user of the simulation sees it.

    `failed_log_ons`: so many in a row. `down_since_ns`: since when there was no session, the last time.
    """

    __slots__ = ("_downs", "_up_since_ns", "down_since_ns", "failed_log_ons")

    def __init__(self) -> None:
        self.failed_log_ons = 0
        self._downs: tuple[tuple[int, int], ...] = ()  # the last times without a session
        self.down_since_ns = 0
        self._up_since_ns = 0

    def down(self, now_ns: int) -> None:
        """There is no session from now on."""
        self.down_since_ns = now_ns

    def up(self, now_ns: int) -> None:
        """There is one from now on."""
        self._up_since_ns = now_ns
        self._downs = (*self._downs[1 - LAST_DOWNS :], (self.down_since_ns, now_ns))

    def broke(self, now_ns: int) -> None:
        """The session was lost."""
        steady = now_ns - self._up_since_ns >= STEADY_NS
        self.failed_log_ons = 0 if steady else self.failed_log_ons + 1

    def back_off_ns(self, jitter: float) -> int:
        """1, 2, 4, ... 60 s, each shortened or lengthened by up to a half, so that users do not come all at once.

        `jitter` is drawn from [0, 1).
        """
        pause_s = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(self.failed_log_ons - 1, 10))
        return round(pause_s * (0.5 + jitter) * 1e9)

    def lateness_ns(self, ready_ns: int, began_ns: int, free_ns: int) -> Late:
        """Return by cause how long a task that was ready waited until it began.

        `free_ns` is when the task before it ended, or the session was up again.
        """
        down_ns = 0
        for down, up in self._downs:
            if up > ready_ns:
                down_ns += max(0, min(up, began_ns) - max(down, ready_ns))
        generator_ns = max(0, began_ns - max(ready_ns, free_ns))
        busy_ns = max(0, began_ns - ready_ns - down_ns - generator_ns)
        return busy_ns, down_ns, generator_ns
