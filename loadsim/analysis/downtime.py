"""Time of users without a session in a window: a server that is down is asked for little, and is fast at that."""

from __future__ import annotations

import numpy as np

from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, NO_SESSION


def down_share(log: TimingLog, window_s: tuple[float, float], users: int) -> float | None:
    """Return the share of the window's user-seconds in which a user had no session; None without users.

    `users` are those of all runs in the log. A session that never came back was missing to the end of the window.
    """
    if not users:
        return None
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    is_down = np.array(log.strings) == NO_SESSION
    down_us = 0
    for tasks in log.pieces("tasks"):
        spans = tasks.kept(is_down[tasks["task"]])
        ended_us = spans["ended_us"]
        up_us = np.where(ended_us == NEVER, end_us, np.minimum(ended_us, end_us))
        down_us += int(np.maximum(up_us - np.maximum(spans["scheduled_us"], begin_us), 0).sum())
    return down_us / (users * (end_us - begin_us))
