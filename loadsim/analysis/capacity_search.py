"""The search for the largest number of users that passes: which number to measure next, as a pure function.

The only state is the list of steps measured so far, so an interrupted search continues as if it had never stopped.
The procedure is that of a response-throughput curve (SPECjbb2015, run and reporting rules): rising steps, and a retry
before a step counts as failed. Bisection between the last pass and the first failure follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Result = Literal["pass", "fail", "undecided", "generator", "void"]
"""The result of a step. `generator`: the load generator was the bottleneck. `void`: invalid for another reason."""

PASSED: Result = "pass"
FAILED: Result = "fail"
UNDECIDED: Result = "undecided"
GENERATOR: Result = "generator"
VOID: Result = "void"

RESULTS = (PASSED, FAILED, UNDECIDED, GENERATOR, VOID)

StoppedBy = Literal["criteria", "generator", "limit", "noise"]
"""The reason for the end: numbers from here on miss the criteria, or cannot be generated, or were not to be measured.
`noise`: results contradict each other, or do not decide, so the interval is wider than wanted."""

AGREEING = 2
"""The results of one number that decide it, of at most `RUNS`. A first pass counts until the end of the search."""

RUNS = 3
"""The most steps with one number, void ones aside."""

MOST_VOID = 2
"""The search fails after this number of void steps with one number."""

MOST_STEPS = 100
"""The most steps of a search. Without noise, one over ten million users needs at most 60."""

FINEST = 8
"""Gaps of undecided numbers are narrowed to this part of the wanted width."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers of a search: the `first` and the `least` and `most` users that can be measured.

    `width` is the wanted length of the interval, as a share of its middle: 0.2 is +-10 %. With `steps`, a rising list,
    only these numbers are measured, until one fails, and `width` is not used.
    """

    first: int
    most: int
    least: int = 1
    width: float = 0.2
    steps: tuple[int, ...] = ()
    most_steps: int = MOST_STEPS


@dataclass(frozen=True, slots=True)
class Step:
    """A measured step, as far as the search knows it."""

    users: int
    result: Result


@dataclass(frozen=True, slots=True)
class Measure:
    """The next number of users, and why it is measured."""

    users: int
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search: the largest number that passed, and the smallest that failed; None if there is none."""

    low: int | None
    high: int | None
    stopped_by: StoppedBy


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The end of a search without an answer: two steps with this number are void."""

    users: int


def next_step(steps: Sequence[Step], settings: Settings) -> Measure | Found | NoAnswer:
    """Return the next number to measure, or the end."""
    # 1. A number that is not decided yet.
    results = _by_users(steps)
    for step in steps:
        if results[step.users].count(VOID) >= MOST_VOID:
            return NoAnswer(step.users)
    state = _State.of(results, settings)
    full = len(steps) >= settings.most_steps
    again = next((users for users, own in results.items() if decision(own) is None), None)
    if again is not None and not full:
        return Measure(again, _why_again(results[again]))

    # 2. The next number, unless the interval is as short as wanted.
    if full:
        return Found(state.low, state.high, "noise")
    wanted = _from_list(results, settings) if settings.steps else _between(state, settings)
    if isinstance(wanted, Measure):
        return wanted

    # 3. The largest number that passed is measured again before the answer.
    if state.low is not None and results[state.low].count(PASSED) < AGREEING:
        return Measure(state.low, "the largest number that passed, again")
    return Found(state.low, state.high if wanted in ("criteria", "noise") else None, wanted)


def decision(results: Sequence[Result]) -> Result | None:
    """Return the result of all steps with one number; None if another step is needed.

    Two of three decide. One pass is enough until the search ends. A number without two equal results is undecided.
    """
    judged = [result for result in results if result != VOID]
    if judged == [PASSED]:
        return PASSED
    for result in (FAILED, PASSED, GENERATOR):
        if judged.count(result) >= AGREEING:
            return result
    left = RUNS - len(judged)
    open_results = (FAILED, PASSED, GENERATOR)
    if any(judged.count(result) + left >= AGREEING for result in open_results):
        return None
    return UNDECIDED


def _by_users(steps: Sequence[Step]) -> dict[int, list[Result]]:
    found: dict[int, list[Result]] = {}
    for step in steps:
        found.setdefault(step.users, []).append(step.result)
    return found


def _why_again(results: Sequence[Result]) -> str:
    """Return why a number is measured again."""
    return {
        FAILED: "a failure is retried before it counts",
        PASSED: "its results differ",
        UNDECIDED: "it was undecided",
        GENERATOR: "the generator was too slow; once more before it counts",
        VOID: "its step was void",
    }[results[-1]]


@dataclass(frozen=True, slots=True)
class _State:
    """The decided numbers. `low` is the largest pass below all failures, `high` the smallest failure above all passes.

    `wall` is the smallest number above `low` that could not be generated, if there is no `high`. `doubtful` are the
    measured numbers between `low` and the top that decide nothing, in rising order.
    """

    low: int | None
    high: int | None
    wall: int | None
    doubtful: tuple[int, ...]

    @classmethod
    def of(cls, results: Mapping[int, Sequence[Result]], settings: Settings) -> _State:
        decided = {users: decision(own) for users, own in results.items()}
        passes = [users for users, result in decided.items() if result == PASSED]
        fails = [users for users, result in decided.items() if result == FAILED]
        low = max((users for users in passes if users < min(fails, default=users + 1)), default=None)
        high = min((users for users in fails if users > max(passes, default=0)), default=None)
        wall = None
        if high is None:
            above = max(passes, default=0)
            wall = min((users for users, one in decided.items() if one == GENERATOR and users > above), default=None)
        top = high or wall or settings.most + 1
        doubtful = tuple(sorted(users for users in decided if (low or 0) < users < top))
        return cls(low, high, wall, doubtful)


def _from_list(results: Mapping[int, Sequence[Result]], settings: Settings) -> Measure | StoppedBy:
    """Return the next of the listed numbers, or why there is none."""
    for users in settings.steps:
        if users not in results:
            return Measure(users, "the next step")
        result = decision(results[users])
        if result == FAILED:
            return "criteria"
        if result == GENERATOR:
            return "generator"
    return "limit"


def _between(state: _State, settings: Settings) -> Measure | StoppedBy:
    """Return the next number of the search, or why there is none."""
    low, doubtful = state.low, state.doubtful
    if low is None and not doubtful and state.high is None and state.wall is None:
        return Measure(settings.first, "the first step")

    # 1. Rise until a number fails.
    top = state.high or state.wall
    if top is None:
        highest = doubtful[-1] if doubtful else low
        assert highest is not None
        if highest < settings.most:
            share = settings.width / 2 * 2 ** (len(doubtful) - 1)
            rising = 2 * highest if not doubtful else max(highest + 1, round(highest * (1 + share)))
            return Measure(min(rising, settings.most), "a rising step")
        if not doubtful:
            return "limit"
        top = settings.most  # it is undecided
    reached: StoppedBy = "criteria" if state.high else "generator" if state.wall else "limit"

    # 2. Narrow the gap between the largest pass and the top, or the gaps around the undecided numbers.
    if _short_enough(low, top, settings.width):
        return reached
    doubtful = tuple(users for users in doubtful if users < top)
    bottom = settings.least - 1 if low is None else low
    if doubtful and low is None:
        gaps = [(bottom, doubtful[0])]  # without a pass there is no interval
    else:
        gaps = [(bottom, doubtful[0]), (doubtful[-1], top)] if doubtful else [(bottom, top)]
    begin, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    finest = settings.width / FINEST * top if doubtful and low is not None else 0
    if end - begin <= max(1, finest):
        if low is None and not doubtful:
            return reached
        return "noise" if state.high else reached
    if low is None:  # fall as fast as rising steps rise
        return Measure(max(settings.least, end // 2), "a falling step")
    return Measure((begin + end) // 2, "between a pass and a failure" if state.high else "below the top")


def _short_enough(low: int | None, top: int, width: float) -> bool:
    return low is not None and (top - low <= 1 or top - low <= width * (top + low) / 2)
