"""Addressed randomness: each draw is a keyed hash of its address (seed, user, stream, index).

With a stateful generator, a user's actions would depend on the other users in the process. A hash has no state: the
same address gives the same number on every machine, in any order, with any version of any library.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

_TO_UNIT = 2.0**-53
_number = int.from_bytes  # most significant byte first

_LN_2 = 0.6931471805599453
_ODD_INVERSES = tuple(1 / odd for odd in range(23, 0, -2))
"""1/23, 1/21, ... 1: as many terms of the artanh series as `exponential` needs for the precision of a float."""


def draw(seed: int, user: int, stream: str, index: int | str) -> float:
    """Return a uniform number in [0, 1) that depends only on its arguments.

    `index` counts the user's draws from one stream, or names the message that the draw is about.
    """
    digest = blake2b(f"{seed}/{user}/{stream}/{index}".encode(), digest_size=8).digest()
    return (_number(digest) >> 11) * _TO_UNIT


def pick(u: float, count: int) -> int:
    """Turn a uniform number into an index below `count`, each equally likely (bias below 2^-40 for a million)."""
    return int(u * count)


def weighted(u: float, cumulative: Sequence[float]) -> int:
    """Turn a uniform number into an index, given the running sums of the indices' chances (the last is the total)."""
    return min(bisect_right(cumulative, u * cumulative[-1]), len(cumulative) - 1)


def exponential(u: float) -> float:
    """Turn a uniform number in [0, 1) into an exponentially distributed one of mean 1: -ln(1 - u).

    It only adds, multiplies and divides, which all machines round alike. C libraries' logarithms differ in the last
    bit, which would change due times and the plan's digest.
    """
    mantissa, exponent = math.frexp(1 - u)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    s = (mantissa - 1) / (mantissa + 1)  # ln m = 2 artanh s, and |s| < 0.172
    square, series = s * s, 0.0
    for term in _ODD_INVERSES:
        series = series * square + term
    return -exponent * _LN_2 - 2 * s * series


def gap_s(rate_per_s: float, seed: int, user: int, stream: str, index: int) -> float:
    """Return the time from a Poisson process's previous event, or its start, to the `index`th event (from 0)."""
    return exponential(draw(seed, user, stream, index)) / rate_per_s
