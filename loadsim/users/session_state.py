"""Periods with and without a session: the pause before the next log-on, and why a task was late."""

from __future__ import annotations

FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 60.0

STEADY_NS = 10_000_000_000
"""A session that breaks sooner counts as a failed log-on, so there is a pause before the next one."""

DROPPED = "dropped by loadsim"
"""The kind of failure of a session that `run.outage.drop_sessions` ends."""

LAST_DOWNS = 8
"""The number of past periods without a session that are kept to explain lateness."""

Late = tuple[int, int, int]
"""The nanoseconds by which a task started late, by cause: user busy (server), session down (server), generator late."""

ON_TIME: Late = (0, 0, 0)


def next_look_ns(due_ns: int | None, now_ns: int, poll_ns: int, share: float) -> int:
    """Return when a program with a session per view next looks for new mail; missed looks are dropped.

    The first look (`due_ns` is None) comes after `share` of the interval. Otherwise, all users would look at once after
    a short ramp-up.
    """
    if due_ns is None:
        return now_ns + round(share * poll_ns)
    return due_ns if due_ns > now_ns else due_ns + ((now_ns - due_ns) // poll_ns + 1) * poll_ns


class SessionState:
    """The state of a user's session.

    `failed_log_ons` counts consecutive failures. `down_since_ns` is when the session last ended.
    """

    def __init__(self) -> None:
        self.failed_log_ons = 0
        self._downs: tuple[tuple[int, int], ...] = ()  # the last periods without a session
        self.down_since_ns = 0
        self._up_since_ns = 0

    def down(self, now_ns: int) -> None:
        self.down_since_ns = now_ns

    def up(self, now_ns: int) -> None:
        self._up_since_ns = now_ns
        self._downs = (*self._downs[1 - LAST_DOWNS :], (self.down_since_ns, now_ns))

    def broke(self, now_ns: int) -> None:
        steady = now_ns - self._up_since_ns >= STEADY_NS
        self.failed_log_ons = 0 if steady else self.failed_log_ons + 1

    def back_off_ns(self, jitter: float) -> int:
        """Return the pause before the next log-on: 1, 2, 4, ... 60 s, times 0.5 to 1.5 to spread the users.

        `jitter` is drawn from [0, 1).
        """
        pause_s = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(self.failed_log_ons - 1, 10))
        return round(pause_s * (0.5 + jitter) * 1e9)

    def lateness_ns(self, ready_ns: int, began_ns: int, free_ns: int) -> Late:
        """Return, by cause, how long a task that was ready waited until it started.

        `free_ns` is the end of the previous task, or of the period without a session.
        """
        down_ns = 0
        for down, up in self._downs:
            if up > ready_ns:
                down_ns += max(0, min(up, began_ns) - max(down, ready_ns))
        generator_ns = max(0, began_ns - max(ready_ns, free_ns))
        busy_ns = max(0, began_ns - ready_ns - down_ns - generator_ns)
        return busy_ns, down_ns, generator_ns
