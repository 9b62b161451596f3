"""What cannot become valid is said before the run, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.dryrun.forecast import NOT_VALID, little_mail, not_valid, notes
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.runs.log_header import load_of_plan
from loadsim.runs.watcher import Watcher
from loadsim.timinglog.planned_load import PlannedLoad

RUN = "run={day_length: 100s, ramp_up: 1s, warm_up: 20s, window: 40s}"


def scenario(*overrides: str) -> Scenario:
    """A scenario with a window from 20 to 60 of 100 s, which needs 20 hits."""
    return load_scenario("quickstart", [RUN, "limits.hits=20", *overrides])


def even(**per_s: int) -> PlannedLoad:
    """A load with so many tasks in each second."""
    return PlannedLoad(100.0, {task.replace("_", " "): (count,) * 100 for task, count in per_s.items()})


def test_a_load_of_enough_tasks_says_nothing() -> None:
    """Nor do tasks that are never planned, or not scored."""
    assert not_valid(scenario(), even(READ=1, SEND=1, COPY=0, SAVE_SENT=0)) is None
    assert not_valid(scenario(), PlannedLoad(100.0, {"READ": (1,) * 100, "SAVE SENT": (1, *[0] * 99)})) is None


def test_too_few_tasks_are_counted_in_the_window() -> None:
    """19 in the window and many outside are too few, and 20 are enough."""
    outside = (9,) * 20
    for inside, few in ((19, True), (20, False)):
        counts = (*outside, *((1,) * inside + (0,) * (40 - inside)), *(9,) * 40)
        reason = not_valid(scenario(), PlannedLoad(100.0, {"READ": (1,) * 100, "SEND": counts}))
        expected = (
            f"{NOT_VALID}planned in its window are 19 SEND, and each scored task needs 20 hits (limits.hits); 1.8 times"
            " the users, or as many more days in the window, have enough"
        )
        assert reason == (expected if few else None)


def test_a_window_below_the_limit_is_named_without_a_plan() -> None:
    """Also if the load is unknown; in stress mode only the window counts."""
    expected = f"{NOT_VALID}its window is 40 s long, at least 41 s needed (limits.window)"
    assert not_valid(scenario("limits.window=41s"), None) == expected
    assert not_valid(scenario("limits.window=40s"), None) is None
    assert not_valid(scenario("run.mode=stress"), even(READ=0, SEND=0)) is None


@given(st.integers(1, 19), st.integers(20, 300), st.integers(0, 2**32))
def test_the_load_that_is_named_has_enough(planned: int, needed: int, seed: int) -> None:
    """By Poisson's distribution, but for one case in hundreds; numpy draws them."""
    why = not_valid(
        scenario(f"limits.hits={needed}"),
        PlannedLoad(100.0, {"READ": (needed,) * 100, "SEND": (0,) * 40 + (1,) * planned + (0,) * (60 - planned)}),
    )
    factor = float(str(why).rpartition("; ")[2].partition(" times")[0])
    hits = numpy.random.default_rng(seed).poisson(planned * factor, 1000)
    assert (hits >= needed).mean() > 0.98


def test_a_short_window_without_any_task_is_named_once() -> None:
    """No more users help: their number is not in the reason."""
    why = not_valid(scenario("limits.window=41s"), PlannedLoad(100.0, {"READ": (0,) * 80 + (1,) * 20}))
    assert why is not None
    assert "limits.hits" in why and " times the users" not in why


def test_tasks_outside_the_window_are_named() -> None:
    """They would be missing from the score; a task that the run never has, or without a weight, is not named."""
    late = {"REPLY": (0,) * 80 + (1,) * 20, "COPY": (0,) * 100, "SAVE SENT": (0,) * 99 + (1,)}
    reason = not_valid(
        scenario(), PlannedLoad(100.0, {"READ": (1,) * 59 + (0,) * 41, "SEND": (0, 1) * 19 + (0,) * 62} | late)
    )
    assert reason is not None
    assert "planned in its window are 9 SEND, " in reason
    assert "; none are REPLY, which would be missing from the score; " in reason
    assert notes(scenario(), PlannedLoad(100.0, {"READ": (9,) * 100} | late))[0] == (
        "the score will lack REPLY: none is planned in the window"
    )


def test_notes_are_of_runs_that_can_become_valid() -> None:
    """A provisional score has a task with fewer than 300 hits; an interval needs a window of an hour."""
    lacks = "the score will have no confidence interval: the window is 40 s long, at least 1 h needed"
    lacks += " (run.window, run.days)"
    users = "topology=[{profile: loadsim-5.5/light, users: 60}]"
    assert notes(scenario(users, "mailbox.population=60"), even(READ=8000, SEND=7)) == [
        "expect a provisional score: planned in the window are 280 SEND, and a score that is not provisional needs 300"
        " hits of each scored task; 1.3 times the users, or as many more days in the window, have enough",
        lacks,
    ]
    assert notes(scenario(), even(READ=8, SEND=8)) == notes(scenario(), None) == [lacks]
    hour = scenario("run={day_length: 2h, warm_up: 30m, window: 1h}")
    assert notes(hour, PlannedLoad(7200.0, {"READ": (6,) * 100})) == []
    assert notes(scenario("run.window=3599s", "run.duration=2h"), None) != []
    assert notes(scenario("limits.window=41s"), None) == []  # it cannot become valid
    assert notes(scenario("run.mode=stress"), even(READ=1)) == []


def test_mail_without_lists_is_noted_with_its_share() -> None:
    """From 90 % on, and without a plan, the note has no figure; with lists, there is none."""
    without, load = scenario("lists.count=0"), even(READ=1)
    little = replace(load, received_share=0.3412)
    assert little_mail(without, little) == (finding(Code.LITTLE_MAIL, received_share=0.3412),)
    for much in (load, None, replace(load, received_share=0.95)):
        assert little_mail(without, much) == without.findings == (finding(Code.NO_LISTS),)
    assert little_mail(scenario(), replace(load, received_share=0.3412)) == ()


class Warned(Watcher):
    """Keeps the warnings."""

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
    with pytest.raises(ConfigError) as refused:
        load_of_plan(too_short, watcher)
    assert watcher.lines == []
    reason = f"{NOT_VALID}its window is 10 s long, at least 11 s needed (limits.window)"
    assert str(refused.value) == f"quickstart: {reason}; --even-invalid makes it all the same, and takes 2 h"
    load_of_plan(too_short, watcher, even_invalid=True)
    assert watcher.lines == [f"warning: {reason}"]
