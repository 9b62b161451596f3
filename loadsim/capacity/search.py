"""The search for the largest number of users that passes: which number to measure next, as a pure function.

The problem: a run takes minutes to hours, and near the limit its result is a matter of chance. A plain bisection trusts
every result: after one unlucky run below the limit, it never looks above again.

The only state is the list of steps measured so far, so an interrupted search continues as if it had never stopped.
`next_step` reads this list from the beginning each time, and returns a number or the end. An example, with a limit near
160:

    100 passed                    rising steps (SPECjbb2015, run and reporting rules): double after a pass
    200 failed, 200 failed        a failure counts when it is repeated (`AGREEING`)
    150 passed                    the middle between the last pass and the first failure
    175 failed, 175 failed        150 and 175 differ by less than 20 % of their middle, the wanted width
    175 failed, 150 passed, ...   each end is repeated, in random order, until five results agree (`EVIDENCE`), or
                                  eight with one exception
    end                           Found(150, 175): `interval` states it, possibly wider

If the results of a number contradict each other, it is undecided: it lies within the interval, which is widened to its
neighbours, and the gap around it is narrowed only to a `FINEST`th of the wanted width.

`interval` moves the ends apart if they are closer to the limit than `REACH` deviations of the runs: five runs in a row
meet the same neighbours, and vary less than the server does. If figures are uninformative, as with a server that fails
abruptly, the ends are at least `LEAST_RATIO` apart.

A result may also be worthless (`VOID`, or the generator was too slow), forbid a number (`refused`), or end the search
(`broken`: lost mail outvotes any number of passes).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from loadsim.campaign.runs import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, CampaignRun, Result
from loadsim.capacity.order import depends_on_order
from loadsim.model.draws import draw

StoppedBy = Literal["broken", "criteria", "generator", "limit", "noise", "order", "refused"]
"""The reason for the end: higher numbers miss the criteria, cannot be generated, or were not to be measured. `refused`:
no run can be made with the next number, for example because it would have too few hits; it may be below one that
failed. `noise`: results contradict each other, or settle nothing, so the interval is wider than wanted. `order`:
results depend on the order of the runs (`capacity.order`), so their agreement proves nothing. `broken`: something that
must never happen did, with a number that otherwise passed; no majority can outvote lost mail."""

AGREEING = 2
"""The number of equal results that settle a number while the search moves; until its end, one pass is enough."""

MOST_OTHERS = 1
"""The most results that may differ at a decided number. With more, it is undecided."""

EVIDENCE = 5
"""The number of equal results that an end of a stated interval needs, if none differs.

If half of all runs with a number pass, five in a row pass in 3.1 % of cases. The rule works for any criterion, and
needs no interval for its figure."""

EVIDENCE_OF_MIXED = 8
"""The number of equal results that an end needs if one result differs. Together, both rules err in at most 4.1 % of
cases at each end: 1/32 + 5/512."""

REACH = 4
"""The least distance of the interval's ends from the limit, in standard deviations of the runs at the measured ends.

Successive runs are alike, and vary less than the server does. With correlations of up to 0.9, nine of ten stated
intervals contain the capacity (decision 51)."""

STEEPEST = 3.0
"""The steepest rise of figures from end to end, as a power of the users, that still tells how far off the limit is.

A server with a steeper rise fails abruptly, and its figures give no warning."""

LEAST_RATIO = 1.4
"""The least ratio between an interval's ends if figures are uninformative. If the number from which runs miss criteria
varies by 10 %, with a correlation of 0.9, at least 95 % of these intervals contain the capacity (decision 51)."""

MOST_STEPS = 100
"""The most steps of a search. Without noise, ten million users need at most 60."""

FINEST = 4
"""Gaps around undecided numbers are narrowed to the wanted width divided by this."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers of a search: the `first`, `least` and `most` users to measure.

    `width` is the wanted length of the interval, as a share of its middle: 0.2 means +-10 %. `evidence` is the number
    of equal results that end the search; with fewer than `EVIDENCE`, it is quick, and usually states no interval.
    """

    first: int
    most: int
    least: int = 1
    width: float = 0.2
    most_steps: int = MOST_STEPS
    evidence: int = EVIDENCE


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search: the largest number that passed, and the smallest that failed; None if absent."""

    low: int | None
    high: int | None
    stopped_by: StoppedBy


def next_step(steps: Sequence[CampaignRun], settings: Settings, refused: Collection[int] = ()) -> int | Found:
    """Return the next number to measure, or the end. `refused` numbers cannot be measured."""
    # 1. Repeat a number that is not decided yet.
    results: dict[int, list[Result]] = {}
    for step in steps:
        results.setdefault(step.users, []).append(step.result)
    state = _State.of(results, settings, refused)
    full = len(steps) >= settings.most_steps
    again = next((users for users, own in results.items() if decision(own) is None), None)
    if again is not None and not full:
        return again

    # 2. Find the next number, unless the interval is as short as wanted.
    if full:
        return Found(state.low, state.high, _unless_doubtful(steps, settings, state.low, "noise"))
    wanted = _between(state, settings)
    if isinstance(wanted, int):
        return wanted

    # 3. Repeat both ends of the interval until enough results agree.
    high = state.high if wanted in ("criteria", "noise", "refused") else None
    ends = [users for users in (state.low, high) if users is not None]
    if all(established(steps, users, settings.evidence) for users in ends):
        return Found(state.low, high, _unless_doubtful(steps, settings, state.low, wanted))
    return _next_end(steps, ends, settings.evidence)


def _next_end(steps: Sequence[CampaignRun], ends: Sequence[int], evidence: int) -> int:
    """Choose the end of the interval to measure next, at random, so that changes in the server affect both.

    If they took turns, a server that alternates between two states would show each end only one of them. After two runs
    with one end, the other follows.
    """
    numbers = [step.users for step in steps if step.result != VOID]
    quick = evidence < EVIDENCE
    needing = [users for users in ends if not established(steps, users, evidence)]
    first = needing[int(draw(0, 0, "end of the interval", len(numbers)) * len(needing))]
    return next(users for users in (first, *ends) if numbers[-2:] != [users, users] or len(ends) == 1 or quick)


def interval(steps: Sequence[CampaignRun], found: Found) -> tuple[int | None, int | None] | None:
    """Return the ends of the interval, each None if too few of its results agree; None if both are.

    Results that depend on the order of the runs, or that hide a broken run, do not count. Measured ends that are closer
    to the limit than `REACH` are moved outwards, along the line through their mean figures. If there is no such line,
    they are moved apart to `LEAST_RATIO`.
    """
    if found.stopped_by in ("broken", "order"):
        return None
    low, high = (users if users and established(steps, users) else None for users in (found.low, found.high))
    if low is None or high is None:
        return None if low is high else (low, high)
    figures = [
        [
            math.log(step.nearest)
            for step in steps
            if step.users == end and step.result in (PASSED, FAILED) and step.nearest
        ]
        for end in (low, high)
    ]
    steepest = STEEPEST * math.log(high / low)
    if min(map(len, figures)) < 2 or not 0 < (failed := fmean(figures[1])) - (passed := fmean(figures[0])) <= steepest:
        apart = max(1.0, math.sqrt(LEAST_RATIO * low / high))
        return math.floor(low / apart), math.ceil(high * apart)
    runs = sum(map(len, figures))
    spread = math.sqrt(sum((len(own) - 1) * variance(own) for own in figures) / (runs - 2))
    users_each = (high - low) / (failed - passed)
    below, above = (max(0.0, REACH * spread - distance) * users_each for distance in (-passed, failed))
    return max(0, math.floor(low - below)), math.ceil(high + above)


def _unless_doubtful(steps: Sequence[CampaignRun], settings: Settings, low: int | None, wanted: StoppedBy) -> StoppedBy:
    """Return the wanted end, or the reason why agreeing results do not support it."""
    if any(step.broken and step.users <= (low or 0) for step in steps):
        return "broken"
    if wanted not in ("criteria", "noise") or settings.evidence < EVIDENCE:
        return wanted
    judged = [step for step in steps if step.result in (PASSED, FAILED)]
    figures = [math.log(step.nearest) if step.nearest else None for step in judged]
    results = [float(step.result == PASSED) for step in judged]
    return "order" if depends_on_order([step.users for step in judged], figures, results) else wanted


def decision(results: Sequence[Result]) -> Result | None:
    """Return the verdict of all steps at one number; None if another step is needed.

    Two equal results settle it if at most one differs. Until the search ends, one pass is enough.
    """
    judged = [result for result in results if result != VOID]
    if judged == [PASSED]:
        return PASSED
    possible = [result for result in (FAILED, PASSED, GENERATOR) if len(judged) - judged.count(result) <= MOST_OTHERS]
    return next((result for result in possible if judged.count(result) >= AGREEING), None if possible else UNDECIDED)


def established(steps: Sequence[CampaignRun], users: int, wanted: int = EVIDENCE) -> bool:
    """Return True if enough results of a number agree for an end of a stated interval."""
    own = [step for step in steps if step.users == users and step.result != VOID]
    result = decision([step.result for step in own])
    equal = [step for step in own if step.result == result]
    needed = wanted if len(equal) == len(own) else wanted + EVIDENCE_OF_MIXED - EVIDENCE
    return result in (PASSED, FAILED) and len(equal) >= needed


@dataclass(frozen=True, slots=True)
class _State:
    """The decided numbers. `low` is the largest pass below all failures, `high` the smallest failure above all passes.

    `wall` is the smallest number above `low` that could not be generated or is refused, if there is no `high`.
    `doubtful` are the numbers between `low` and the top that remain undecided, in rising order. `floor` is the largest
    refused number below all measured ones. `refused` is True if the search is between `floor` and `high`, or at a
    refused wall.
    """

    low: int | None
    high: int | None
    wall: int | None
    doubtful: tuple[int, ...]
    floor: int | None
    refused: bool

    @property
    def reached(self) -> StoppedBy:
        """The end of the range of numbers that pass: `limit` only if the largest number passed."""
        if self.refused:
            return "refused"
        if self.wall:
            return "generator"
        return "noise" if self.doubtful else "criteria" if self.high else "limit"

    @classmethod
    def of(cls, results: Mapping[int, Sequence[Result]], settings: Settings, refused: Collection[int] = ()) -> _State:
        decided = {users: decision(own) for users, own in results.items()}
        passes = [users for users, result in decided.items() if result == PASSED]
        fails = [users for users, result in decided.items() if result == FAILED]
        low = max((users for users in passes if users < min(fails, default=users + 1)), default=None)
        high = min((users for users in fails if users > max(passes, default=0)), default=None)
        least = min(results, default=settings.most + 1)
        floor = max((users for users in refused if users < least), default=None)
        skipped = [users for users in refused if users > least]
        wall = None
        if high is None:
            walls = [*(users for users, result in decided.items() if result == GENERATOR), *skipped]
            wall = min((users for users in walls if users > max(passes, default=0)), default=None)
        top = high or wall or settings.most + 1
        doubtful = tuple(sorted(users for users in (*decided, *skipped) if (low or 0) < users < top))
        at_refused = wall in skipped or (low is None and floor is not None and not doubtful)
        return cls(low, high, wall, doubtful, floor, at_refused)


def _between(state: _State, settings: Settings) -> int | StoppedBy:
    """Return the next number of the search, or why there is none."""
    low, doubtful = state.low, state.doubtful
    if low is None and not doubtful and state.high is None and state.wall is None:
        return settings.first

    # 1. Rise until a number fails.
    top = state.high or state.wall
    if top is None:
        highest = doubtful[-1] if doubtful else low
        assert highest is not None
        if highest < settings.most:
            share = settings.width / 2 * 2 ** (len(doubtful) - 1)
            rising = 2 * highest if not doubtful else max(highest + 1, round(highest * (1 + share)))
            return min(rising, settings.most)
        if not doubtful:
            return state.reached
        top = settings.most  # which is undecided

    # 2. Narrow the gap between the largest pass and the top, or the gaps around undecided numbers.
    if low is not None and top - low <= max(1, settings.width * (top + low) / 2):
        return "criteria" if state.high else state.reached
    doubtful = tuple(users for users in doubtful if users < top)
    bottom = low or state.floor or settings.least - 1
    if doubtful and low is None:
        gaps = [(bottom, doubtful[0])]  # without a pass there is no interval
    else:
        gaps = [(bottom, doubtful[0]), (doubtful[-1], top)] if doubtful else [(bottom, top)]
    begin, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    finest = settings.width / FINEST * top if doubtful and low is not None else 0
    if end - begin <= max(1, finest):
        return state.reached
    if low is None:  # fall as fast as steps rise
        falling = max(settings.least, end // 2)
        return falling if falling > begin else (begin + end) // 2
    return (begin + end) // 2
