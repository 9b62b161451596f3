"""Users without usable service: in too much of the window, their tasks failed or came late, or their mail did.

Tasks and mail come in bursts, so each sixtieth of the window counts once, with its share of bad ones. The mean of
`n` independent shares, each expected to be at most `p`, is `x` or more with a probability of at most exp(-n KL(x, p)):
theorem 1 of W. Hoeffding, J. Am. Stat. Assoc. 58, 1963. KL is the Kullback-Leibler divergence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.criteria import Limits
from loadsim.analysis.delivery import journeys
from loadsim.model.records import FAILURES, GENERATOR, OUTCOMES
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.scenario.criteria import SCORED
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

PARTS = 60
"""The parts of the window. A longer stall is within few of them."""

LEAST_PARTS = 3
"""Users with scored tasks, or mail, in fewer parts of the window are not judged by them."""

LATE_SHARE = 0.05
"""The share of tasks or messages that may exceed the limit of a 95th percentile."""

CHANCE = 0.001
"""The most users, as a share, whose tasks are as bad by chance if the server just keeps the limits for each."""

MOST_NAMED = 5

_LEAST_SORTED = 1 << 18
"""Keys that are sorted at once: 2 MiB."""

_P95 = "response_p95_ms"
_IS_FAILURE = np.isin(OUTCOMES, FAILURES)


@dataclass(frozen=True, slots=True)
class Unserved:
    """`users` had no usable service; `first` has the numbers of some.

    `share` is the larger one of two: of users who are judged by their tasks, and of those judged by their mail.
    """

    users: int
    share: float
    first: tuple[str, ...]


def unserved(
    log: TimingLog, window_s: Window, weights: Mapping[str, float], criteria: Mapping[str, Limits | None]
) -> Unserved | None:
    """Count the users without usable service by their scored tasks and mail in the window; None without such tasks."""
    judged, bad = _judged(_tasks(log, window_s, weights, criteria), _most(criteria.get("failed_share")))
    if judged is None:
        return None
    receiving, waiting = _judged(_mail(log, window_s, 1000 * _most(criteria.get("delivery.p95_ms"))), math.inf)
    share = max(len(bad) / max(1, len(judged)), len(waiting) / max(1, len(receiving if receiving is not None else ())))
    found = np.union1d(bad, waiting).tolist()
    return Unserved(len(found), share, tuple(str(user) for user in found[:MOST_NAMED]))


def _judged(
    pieces: Iterable[NDArray[np.int64]], failed_most: float
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Return the users who are judged by pieces of keys (None: there are no keys), and those who are not served."""
    kinds, counts = _counted(pieces)
    if not len(kinds):
        return None, kinds
    parts, planned = _summed(kinds >> 2, counts)
    late, failed = (_summed(kinds >> 2, counts * (kinds >> bit & 1))[1] / planned for bit in (1, 0))
    users, active = _summed(parts >> 6, np.ones(len(parts)))
    late, failed = (_summed(parts >> 6, each)[1] / active for each in (late, failed))
    judged = active >= LEAST_PARTS
    bad = _beyond(late, active, LATE_SHARE) | _beyond(failed, active, failed_most)
    return users[judged], users[judged & bad]


def _tasks(
    log: TimingLog, window_s: Window, weights: Mapping[str, float], criteria: Mapping[str, Limits | None]
) -> Iterator[NDArray[np.int64]]:
    """Yield user, part of the window, and two bits for a late and a failed one, of all scored tasks in pieces.

    A task is late if its response time exceeds the limit of its 95th percentile in `criteria`; without a hit, it is
    infinite. The tasks of a user that fail have the limit of `failed_share`. Tasks in which the generator failed do not
    count.
    """
    is_scored = np.array([weights.get(name, 0) > 0 and name not in WITHOUT_WINDOW for name in log.strings])
    begin_us, length_us = round(window_s.begin_s * 1e6), round(window_s.length_s * 1e6)

    def limit_us(pair: int) -> float:
        protocol, task = (log.strings[number] for number in divmod(pair, 1 << 16))
        names = (f"by_protocol.{protocol}.tasks.{task}.{_P95}", f"tasks.{task}.{_P95}", f"{SCORED}{_P95}")
        return 1000 * _most(next((criteria[name] for name in names if name in criteria), None))

    for piece in log.pieces("tasks"):
        counted = is_scored[piece["task"]] & in_window(piece["scheduled_us"], window_s)
        tasks = piece.kept(counted & (piece["outcome"] != OUTCOME[GENERATOR]))
        pairs, which = np.unique(tasks["protocol"].astype(np.int64) << 16 | tasks["task"], return_inverse=True)
        limits_us = np.array([limit_us(pair) for pair in pairs.tolist()])[which]
        outcome, took_us = tasks["outcome"], tasks["ended_us"] - tasks["scheduled_us"]
        is_late = np.where(outcome == OUTCOME["ok"], took_us, np.inf) > limits_us
        part = (tasks["scheduled_us"] - begin_us) * PARTS // length_us
        yield (tasks["user"].astype(np.int64) << 6 | part) << 2 | is_late << 1 | _IS_FAILURE[outcome]


def _mail(log: TimingLog, window_s: Window, limit_us: float) -> Iterator[NDArray[np.int64]]:
    """Yield keys as `_tasks`, of all messages by recipient: late if they took longer than the limit, or never came."""
    begin_us, length_us = round(window_s.begin_s * 1e6), round(window_s.length_s * 1e6)
    for mail in journeys(log):
        counted = in_window(mail.accepted_us, window_s) & ~mail.unwatched
        is_late = np.where(mail.arrived_us == NEVER, np.inf, mail.arrived_us - mail.accepted_us) > limit_us
        part = (mail.accepted_us - begin_us) * PARTS // length_us
        yield ((mail.recipient << 6 | part) << 2 | is_late.astype(np.int64) << 1)[counted]


def _most(limits: Limits | None) -> float:
    return min((most for limit, most in (limits or {}).items() if limit != "min"), default=math.inf)


def _counted(pieces: Iterable[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each key once, and how often it occurs.

    Pieces wait until they are as many as the keys that are known: each is sorted a few times, however many there are.
    """
    keys, counts = np.zeros(0, np.int64), np.zeros(0)
    waiting: list[NDArray[np.int64]] = []
    for piece in pieces:
        waiting.append(piece)
        if (length := sum(map(len, waiting))) >= max(len(keys), _LEAST_SORTED):
            keys, counts = _summed(np.concatenate([keys, *waiting]), np.append(counts, np.ones(length)))
            waiting = []
    return _summed(np.concatenate([keys, *waiting]), np.append(counts, np.ones(sum(map(len, waiting)))))


def _summed(keys: NDArray[np.int64], counts: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each key once, sorted, and the sum of its counts."""
    distinct, which = np.unique(keys, return_inverse=True)
    return distinct, np.asarray(np.bincount(which, counts, len(distinct)), np.float64)


def _beyond(share: NDArray[np.float64], parts: NDArray[np.float64], allowed: float) -> NDArray[np.bool_]:
    """Return which mean shares of bad tasks are above the allowed one with a probability of at most `CHANCE`."""
    if allowed >= 1:
        return np.zeros(len(share), np.bool_)
    with np.errstate(divide="ignore", invalid="ignore"):  # the limit of x log(x) at 0 is 0
        divergence = sum(
            np.where(each > 0, each * np.log(each / of_limit), 0.0)
            for each, of_limit in ((share, np.float64(allowed)), (1 - share, np.float64(1 - allowed)))
        )
    return np.asarray((share > allowed) & (parts * divergence >= -math.log(CHANCE)))
