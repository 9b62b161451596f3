"""Searches on servers whose runs depend on each other: the interval holds the capacity, or there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from loadsim.analysis.capacity_order import depends_on_order
from loadsim.analysis.capacity_search import FAILED, PASSED, Found, Measure, Settings, Step, next_step

LOW, HIGH = 1000, 1200


def test_the_ends_take_turns() -> None:
    """So a server that changes changes both; no end is measured three times in a row."""
    steps = [Step(LOW, PASSED), Step(HIGH, FAILED), Step(HIGH, FAILED)]
    while isinstance(step := next_step(steps, Settings(LOW, 10_000)), Measure):
        steps.append(Step(step.users, PASSED if step.users == LOW else FAILED))
    assert step == Found(LOW, HIGH, "criteria")
    assert [each.users for each in steps[3:]] == [LOW, HIGH, LOW, HIGH, LOW, HIGH, LOW]


@pytest.mark.parametrize(
    ("figures", "depends"),
    [
        ([1.0] * 12, False),
        ([None] * 12, False),
        ([100.0 + each for each in range(12)], True),  # a drift
        ([100.0 - each for each in range(12)], True),
        ([1, 1.1, 1.2, 1, 1.1, 1.2, 5, 5.1, 5.2, 5, 5.1, 5.2], True),  # bad hours
        ([1, 5.1, 1.2, 5, 1.1, 5.2, 5, 1.1, 5.2, 1, 5.1, 1.2], False),
    ],
)
def test_figures_of_runs_in_turns(figures: list[float | None], depends: bool) -> None:
    users = [LOW, HIGH] * 6
    of_high = [
        None if each is None else each * (1 + at % 2) for at, each in enumerate(figures)
    ]  # more users, more time
    assert depends_on_order(users, of_high) is depends


def test_independent_runs_rarely_depend_on_their_order() -> None:
    """At the level of 10 %, with figures of any distribution."""
    draw = np.random.default_rng(6)
    found = [depends_on_order([LOW, HIGH] * 6, draw.exponential(1, 12).tolist()) for _ in range(100)]
    assert sum(found) <= 16


@dataclass
class Server:
    """A server whose number of users from which runs fail is AR(1) in logarithms, with a drift for each run."""

    rho: float
    spread: float
    drift: float = 0.0

    def search(self, seed: int) -> tuple[Found, float]:
        """Return the end of a search, and the capacity by then."""
        draw = np.random.default_rng((seed, 31))
        truth, state = float(draw.integers(300, 5000)), draw.normal()
        steps: list[Step] = []
        while isinstance(step := next_step(steps, Settings(100, 10_000)), Measure):
            now = truth * math.exp(self.spread * state - self.drift * len(steps))
            figure = (step.users / now) ** 1.5 * math.exp(0.03 * draw.normal())
            steps.append(Step(step.users, PASSED if step.users <= now else FAILED, figure))
            state = self.rho * state + math.sqrt(1 - self.rho**2) * draw.normal()
        assert isinstance(step, Found)
        return step, truth * math.exp(-self.drift * (len(steps) - 1))

    def shares(self, searches: int) -> tuple[float, float, float]:
        """Return the shares of searches with an interval that is right, with one that is wrong, and of "order"."""
        found = [self.search(seed) for seed in range(searches)]
        stated = [(end.low or 0) <= truth < (end.high or math.inf) for end, truth in found if end.stopped_by != "order"]
        return stated.count(True) / searches, stated.count(False) / searches, 1 - len(stated) / searches


@pytest.mark.parametrize(("rho", "spread"), [(0.0, 0.05), (0.9, 0.1)])
def test_a_search_rarely_states_a_wrong_interval(rho: float, spread: float) -> None:
    right, wrong, _ = Server(rho, spread).shares(30)
    assert wrong <= 0.1
    assert right >= 0.8 or rho


@pytest.mark.nightly(part="runs")
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("spread", [0.02, 0.05, 0.1])
def test_of_many_searches_few_state_a_wrong_interval(rho: float, spread: float) -> None:
    """The table of decision 54."""
    _, wrong, by_order = Server(rho, spread).shares(1000)
    assert wrong <= 0.1
    assert by_order <= 0.13 or rho


def test_a_leak_is_not_decided() -> None:
    """Of 1 % a run: by the end of the search, the server takes a third less than at its begin."""
    right, wrong, by_order = Server(0.0, 0.02, drift=0.01).shares(20)
    assert wrong <= 0.1 and by_order >= 0.7, (right, wrong, by_order)
