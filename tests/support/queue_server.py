"""A simulated server whose demands are known: what probes would see of it, and the tasks that it does."""

import random

import numpy as np


def server(
    seed: int, users: int, tasks_per_user_s: float, demand_s: float
) -> tuple[list[tuple[float, float]], list[int]]:
    """A queue with one server, Poisson arrivals and exponential demands, for 700 s.

    Return its busy share each second, and the ends of its tasks in microseconds. What is busy in a second depends on
    what came before, as on a real server.
    """
    draws = random.Random(seed)
    at_s, free_s, busy, ends = 0.0, 0.0, np.zeros(700), []
    while True:
        at_s += draws.expovariate(users * tasks_per_user_s)
        if at_s >= 699:
            break
        begin_s = max(at_s, free_s)
        free_s = begin_s + draws.expovariate(1 / demand_s)
        ends.append(round(free_s * 1e6))
        left_s = begin_s
        while left_s < min(free_s, 700):
            second = int(left_s)
            until_s = min(second + 1, free_s)
            busy[second] += until_s - left_s
            left_s = until_s if until_s > left_s else second + 1
    return [(second + 1.0, share) for second, share in enumerate(busy)], ends
