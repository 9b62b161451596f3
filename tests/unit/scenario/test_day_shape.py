"""Busy and quiet hours: the activities of a flat day at other times, by a clock of uneven speed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.dryrun.plan import make_plan, to_json
from loadsim.model.terms import Window
from loadsim.scenario.day_shape import DayShape, factor_of_window, normalised
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.header_words import shown

CHI_SQUARE = 24.3
"""Of 7 degrees of freedom: exceeded by chance once in a thousand times."""

WEIGHTS = st.lists(st.floats(0, 1e6), min_size=2, max_size=50).filter(lambda weights: sum(weights) > 0)

SCENARIO = """
server: embedded
topology: [{profile: loadsim-5.5/medium, users: 40}]
run: {day_length: 80s, ramp_up: 1s, window: 40s, %s}
"""


def scenario_with(place: Path, run: str) -> Scenario:
    path = place / "shaped.yaml"
    path.write_text(SCENARIO % run)
    return load_scenario(str(path))


@given(WEIGHTS, st.lists(st.floats(0, 5), min_size=2, max_size=20))
def test_due_times_are_the_inverse_of_the_cumulative_rate(weights: list[float], at_days: list[float]) -> None:
    """numpy's interpolation of the cumulative weights back to flat time is where each came from; the order stays."""
    day_us = 28_800_000_000
    shape = DayShape(weights)
    due_us = [shape.due_us(at * day_us / 1e6, day_us) for at in sorted(at_days)]
    assert due_us == sorted(due_us)
    edges = np.concatenate([[0], np.cumsum(weights) / np.sum(weights)])
    for at, due in zip(sorted(at_days), due_us, strict=True):
        days, inside = divmod(due / day_us, 1)
        back = days + np.interp(inside, np.linspace(0, 1, len(edges)), edges)
        # A microsecond of a day, in a part as steep as there is
        assert back == pytest.approx(at, abs=2e-6 + 2 * len(weights) / day_us)


@given(WEIGHTS, st.floats(0, 3), st.floats(0.01, 2), st.sampled_from([0.0, 7.0]))
def test_the_factor_of_a_window_is_its_mean_weight(
    weights: list[float], begin: float, length: float, night_s: float
) -> None:
    """Integrated by numpy in fine steps, without the nights."""
    day_s, cycle_s = 100.0, 100.0 + night_s
    window = Window(begin * cycle_s, (begin + length) * cycle_s)
    at_s = np.linspace(window.begin_s, window.end_s, 20_001)[:-1] + window.length_s / 40_000
    inside = at_s % cycle_s / day_s
    of_day = inside < 1
    if of_day.sum() < 1_000:
        return  # almost all night
    part = np.minimum((inside[of_day] * len(weights)).astype(int), len(weights) - 1)
    expected = np.asarray(weights)[part].mean() / np.mean(weights)
    found = factor_of_window(weights, window, day_s, night_s)
    assert found == pytest.approx(expected, rel=0.01, abs=0.01 * len(weights))


def test_each_user_does_the_same_in_the_same_order(tmp_path: Path) -> None:
    """Only the times differ: in two days with quiet and busy halves, as in two flat ones."""
    flat = Workload(scenario_with(tmp_path, "days: 2"))
    shaped = Workload(scenario_with(tmp_path, "days: 2, day_shape: [1, 0, 3]"))
    for user in range(1, 41):
        before, after = list(flat.activities(user)), list(shaped.activities(user))
        assert [one[1:] for one in before] == [one[1:] for one in after]
        for one, moved in zip(before, after, strict=True):
            assert moved.due_us // 80_000_000 == one.due_us // 80_000_000
            assert not 1 / 3 < moved.due_us / 80e6 % 1 < 2 / 3


def test_equal_weights_are_a_flat_day(tmp_path: Path) -> None:
    """To the microsecond, by rounding."""
    flat = scenario_with(tmp_path, "days: 1")
    equal = scenario_with(tmp_path, "day_shape: [5, 5, 5]")
    assert equal.run.day_shape == ()
    assert equal.digest() == flat.digest()
    assert list(Workload(equal).activities(7)) == list(Workload(flat).activities(7))
    at_us = [DayShape([5, 5, 5]).due_us(at_s / 7, 80_000_000) for at_s in range(500)]
    assert at_us == pytest.approx([round(at_s / 7 * 1e6) for at_s in range(500)], abs=1)


def test_equal_shapes_are_one_load(tmp_path: Path) -> None:
    """Normalising keeps the ratios, also of shapes whose whole numbers would be too large for a scenario."""
    for one, *others in (
        ("[1, 2]", "[2, 4]", "[0.5, 1]", "[500000, 1000000]"),
        ("[1, 3, 0]", "[0.1, 0.3, 0]", "[0.7, 2.1, 0.0]"),
        ("[0.0000001, 1]", "[0.0000002, 2]"),
        ("[123456.75, 999999.7]", "[12345.675, 99999.97]"),
    ):
        first = scenario_with(tmp_path, f"day_shape: {one}")
        for other in others:
            again = scenario_with(tmp_path, f"day_shape: {other}")
            assert again.run.day_shape == first.run.day_shape
            assert again.digest() == first.digest()


@given(WEIGHTS)
def test_normalised_weights_keep_the_shape(weights: list[float]) -> None:
    """A scenario that loadsim wrote is read as itself, and no part loses its share of the day."""
    found = normalised(weights)
    assert normalised(found or (1.0, 1.0)) == found
    assert all(0 <= one <= 1e6 for one in found)
    shape = found or [1.0] * len(weights)
    assert np.asarray(shape) / sum(shape) == pytest.approx(np.asarray(weights) / sum(weights), rel=1e-12)


def test_different_shapes_have_different_texts() -> None:
    assert shown("day_shape", [[1, 2, 3], [3, 2, 1]]) == ["[1, 2, 3]", "[3, 2, 1]"]
    flat, shape = shown("day_shape", [None, [1, 3]])
    assert flat == "flat" and shape.startswith("2 parts, the busiest at 1.5 times")


def test_the_plan_follows_the_shape(tmp_path: Path) -> None:
    """40 users for 20 days: reads by hour in proportion to the weights, by a chi-square test of new mail."""
    weights = [1.6, 1.4, 1.0, 0.8, 0.6, 1.2, 0.9, 0.5]
    shaped = Workload(scenario_with(tmp_path, f"days: 20, day_shape: {weights}"))
    hours = np.zeros(8)
    for user in range(1, 41):
        for one in shaped.activities(user):
            hours[one.due_us % 80_000_000 // 10_000_000] += one.kind == "process inbox"
    expected = np.asarray(weights) * hours.sum() / np.sum(weights)
    assert hours.sum() > 5000
    assert ((hours - expected) ** 2 / expected).sum() < CHI_SQUARE


@pytest.mark.slow
def test_plan_and_document_state_the_shape(tmp_path: Path) -> None:
    """The hours of `loadsim plan`, the digest of the load, and the scenario of a run directory."""
    flat, shaped = scenario_with(tmp_path, "day_shape: flat"), scenario_with(tmp_path, "day_shape: [1, 3]")
    assert flat.digest() == scenario_with(tmp_path, "seed: 1").digest() != shaped.digest()
    written = tmp_path / "written.yaml"
    written.write_text(shaped.to_yaml())
    assert load_scenario(str(written)).run.day_shape == (1, 3)
    assert "day_shape" not in flat.to_yaml()
    figures = to_json(make_plan(shaped))
    by_hour = [hour["tasks"]["BROWSE"] for hour in figures["by_hour"] if hour["seconds"]]
    assert 2 < sum(by_hour[4:]) / sum(by_hour[:4]) < 4.5
    assert sum(by_hour) == to_json(make_plan(flat))["tasks"]["BROWSE"]
