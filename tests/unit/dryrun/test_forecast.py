"""Forecasts before a run name all that must make it invalid, and nothing else."""

from math import exp, fsum, lgamma, log

import pytest
from findings_of import codes
from hypothesis import example, given
from hypothesis import strategies as st

from loadsim.dryrun.forecast import forecast, refusal
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.runs.log_header import load_of_plan
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.timinglog.planned_load import PlannedLoad

RUN = "run={day_length: 100s, ramp_up: 1s, warm_up: 20s, window: 40s}"


def scenario(*overrides: str) -> Scenario:
    """A scenario with a window from 20 to 60 of 100 s, which needs 20 hits."""
    return load_scenario("quickstart", [RUN, "limits.hits=20", *overrides])


def even(**per_s: int) -> PlannedLoad:
    return PlannedLoad(100.0, {task.replace("_", " "): (count,) * 100 for task, count in per_s.items()})


def invalid(load: PlannedLoad | None, *overrides: str) -> list[Finding]:
    return [one for one in forecast(scenario(*overrides), load) if one.severity is Severity.INVALID]


def test_a_load_of_enough_tasks_has_no_finding() -> None:
    """Tasks that are never planned or not scored have none either."""
    assert invalid(even(READ=1, SEND=1, COPY=0, SAVE_SENT=0)) == []
    assert invalid(PlannedLoad(100.0, {"READ": (1,) * 100, "SAVE SENT": (1, *[0] * 99)})) == []


def test_too_few_tasks_are_counted_in_the_window() -> None:
    """19 in the window and many outside are too few, and 20 are enough."""
    outside = (9,) * 20
    for inside, few in ((19, True), (20, False)):
        counts = (*outside, *((1,) * inside + (0,) * (40 - inside)), *(9,) * 40)
        found = invalid(PlannedLoad(100.0, {"READ": (1,) * 100, "SEND": counts}))
        assert found == ([finding(Code.FEW_PLANNED, tasks=("19 SEND",), limit=20, factor=1.8)] if few else [])


def test_tasks_that_chance_may_leave_with_too_few_are_warned_of() -> None:
    """By the margin of the load that is recommended; the run is made."""
    for inside, few in ((19, Severity.INVALID), (20, Severity.WARNING), (33, Severity.WARNING), (34, None)):
        load = PlannedLoad(100.0, {"READ": (99,) * 100, "SEND": (0,) * 20 + (1,) * inside + (0,) * (80 - inside)})
        found = [one.severity for one in forecast(scenario(), load) if one.code is Code.FEW_PLANNED]
        assert found == ([few] if few else [])


def test_a_short_window_is_named_without_a_plan() -> None:
    """Also if the load is unknown; in stress mode only the window counts."""
    assert invalid(None, "limits.window=41s") == [finding(Code.SHORT_WINDOW, window_s=40, limit_s=41)]
    assert invalid(None, "limits.window=40s") == []
    assert invalid(even(READ=0, SEND=0), "run.mode=stress") == []


@given(st.integers(1, 19), st.integers(20, 300))
@example(3, 266)
def test_the_suggested_load_is_sufficient(planned: int, needed: int) -> None:
    """By Poisson's distribution, in all but 2.2 % of runs: the factor has two digits."""
    load = PlannedLoad(100.0, {"READ": (needed,) * 100, "SEND": (0,) * 40 + (1,) * planned + (0,) * (60 - planned)})
    (few,) = invalid(load, f"limits.hits={needed}")
    factor = few.values["factor"]
    assert isinstance(factor, float)
    expected = planned * factor
    assert fsum(exp(hits * log(expected) - expected - lgamma(hits + 1)) for hits in range(needed)) <= 0.022


def test_tasks_outside_the_window_are_named() -> None:
    """They would be missing from the score; a task that the run never has, or without a weight, is not named."""
    late = {"REPLY": (0,) * 80 + (1,) * 20, "COPY": (0,) * 100, "SAVE SENT": (0,) * 99 + (1,)}
    few = PlannedLoad(100.0, {"READ": (1,) * 59 + (0,) * 41, "SEND": (0, 1) * 19 + (0,) * 62} | late)
    first, other = forecast(scenario(), few)
    assert (first.code, first.values["tasks"]) == (Code.FEW_PLANNED, ("9 SEND",))
    assert other == finding(Code.NONE_PLANNED, tasks=("REPLY",))
    assert other in forecast(scenario(), PlannedLoad(100.0, {"READ": (9,) * 100} | late))


def test_notes_are_for_runs_that_can_become_valid() -> None:
    """A provisional score has a task with fewer than 300 hits; an interval needs a window of an hour."""
    lacks = finding(Code.NO_INTERVAL, window_s=40, limit_s=3600)
    users = "topology=[{profile: loadsim-5.5/light, users: 60}]"
    few = finding(Code.EXPECT_PROVISIONAL, tasks=("280 SEND",), limit=300, factor=1.3)
    assert forecast(scenario(users, "mailbox.population=60"), even(READ=8000, SEND=7)) == (few, lacks)
    assert forecast(scenario(), even(READ=8, SEND=8)) == forecast(scenario(), None) == (lacks,)
    hour = scenario("run={day_length: 2h, warm_up: 30m, window: 1h}")
    assert forecast(hour, PlannedLoad(7200.0, {"READ": (6,) * 100})) == ()
    assert codes(forecast(scenario("run.window=3599s", "run.duration=2h"), None)) == [Code.NO_INTERVAL]
    assert codes(forecast(scenario("limits.window=41s"), None)) == [Code.SHORT_WINDOW]  # it cannot become valid
    assert forecast(scenario("run.mode=stress"), even(READ=1)) == ()


class Warned(Watcher):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, line: str) -> None:
        self.lines.append(line)


def test_a_run_that_cannot_become_valid_is_refused() -> None:
    """Unless that is wanted; nothing is said of a run that can become valid, although its score will be provisional."""
    watcher = Warned()
    stress = ("run={mode: stress, day_length: 2h, warm_up: 1s, window: 10s}", "limits.hits=1")  # it needs no plan
    load_of_plan(scenario(*stress, "limits.window=10s"), watcher)
    too_short = scenario(*stress, "limits.window=11s")
    with pytest.raises(ConfigError, match=r"short-window.*--even-invalid makes it all the same, and takes 2 h"):
        load_of_plan(too_short, watcher)
    assert watcher.lines == []
    load_of_plan(too_short, watcher, even_invalid=True)
    assert watcher.lines == [f"warning: {refusal(forecast(too_short, None))}"]
