"""Remedies that are printed, obeyed to the letter: the plan of the changed scenario has what was missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loadsim.analysis.score import FEW_HITS
from loadsim.dryrun.forecast import NOT_VALID, forecast, notes
from loadsim.dryrun.remedy import MOST_DAYS, plan_of, scored_in_window
from loadsim.model.run_times import rounded_up, typed
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.schema import LONGEST_S
from loadsim.timinglog.planned_load import PlannedLoad

LIGHT, MEDIUM, HEAVY = (
    f"topology=[{{profile: loadsim-5.5/{name}, users: %d}}]" for name in ("light", "medium", "heavy")
)
NO_LISTS = "lists.count=0"
ONLY_READ = [f"weights.{task}=0" for task in load_scenario("quickstart").weights if task != "READ"]
"""Settings with which few users have hundreds of hits of each scored task."""

FEW = "limits.hits=5"
"""A fourth of the default, for a fourth of the users."""

_plans: dict[str, PlannedLoad] = {}


def planned_once(scenario: Scenario) -> PlannedLoad:
    """Return the planned load; a remedy that is obeyed has the same digest as the one that was tried."""
    return _plans.get(scenario.digest()) or _plans.setdefault(scenario.digest(), plan_of(scenario))


def printed(scenario: Scenario, load: PlannedLoad | None) -> str:
    """The reason for which a run cannot become valid, or else that of a provisional score, or else nothing."""
    lines = forecast(scenario, load, planned=planned_once) or [
        note for note in notes(scenario, load, planned=planned_once) if "a provisional score" in note
    ]
    return lines[0] if lines else ""


def remedies_in(line: str) -> list[list[str]]:
    """The settings of each remedy that a line prints, as `--set` takes them."""
    return [found.removeprefix("--set ").split(" --set ") for found in re.findall(r"\((--set [^;)]*)[;)]", line)]


def obey(base: str, overrides: list[str], line: str) -> None:
    """Obey each remedy of a line, and plan again."""
    for remedy in remedies_in(line):
        changed = load_scenario(base, [*overrides, *remedy], passwords=False)
        load = planned_once(changed)
        assert forecast(changed, load) == [], (overrides, remedy)
        if not line.startswith(NOT_VALID):
            least = min(scored_in_window(changed, load).values())
            assert least >= FEW_HITS, (overrides, remedy)


CASES = {
    "scarcest-task-not-planned": ([LIGHT % 10, "run.days=1", NO_LISTS, FEW], {"run.days", "topology.0.users"}),
    "few-users": ([MEDIUM % 3, "run.days=4", NO_LISTS], {"run.days", "topology.0.users"}),
    "provisional": ([MEDIUM % 4, "run.days=1", NO_LISTS, *ONLY_READ], {"run.days", "topology.0.users"}),
    "short-day": ([MEDIUM % 15, "run.day_length=30s", FEW], {"run.day_length"}),
    "short-day-of-few": (
        [MEDIUM % 4, "run.day_length=30s"],
        {"run.day_length", "run.days", "topology.0.users"},
    ),
    "too-many-days": ([LIGHT % 2, "run.day_length=20s", FEW], {"run.day_length", "topology.0.users"}),
    "short-window": ([MEDIUM % 50, "run={day_length: 100s, warm_up: 20s, window: 10s}"], {"run.window"}),
    "stated-window": (
        [MEDIUM % 2, "run={day_length: 2m, window: 40s}", FEW],
        {"run.window", "run.warm_up", "run.days", "topology.0.users"},
    ),
    "stated-duration": (
        [MEDIUM % 8, "run={duration: 40s, day_length: 5m}", FEW],
        {"run.duration", "topology.0.users"},
    ),
    "nights": ([(LIGHT % 40).replace("5.5", "4.0"), "run.days=2"], {"run.window", "topology.0.users"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "keys"), CASES.values(), ids=CASES)
def test_each_remedy_works_as_printed(overrides: list[str], keys: set[str]) -> None:
    scenario = load_scenario("dovecot-postfix", overrides, passwords=False)
    line = printed(scenario, planned_once(scenario))
    found = remedies_in(line)
    assert {setting.partition("=")[0] for remedy in found for setting in remedy} == keys, line
    obey("dovecot-postfix", overrides, line)


@pytest.mark.slow
def test_the_users_of_each_group_are_set() -> None:
    """The quickstart has three groups, and states its warm-up and window."""
    few = [f"topology.{at}.users=1" for at in range(3)] + ONLY_READ
    scenario = load_scenario("quickstart", few)
    line = printed(scenario, planned_once(scenario))
    days, users = remedies_in(line)
    assert [setting.partition("=")[0] for setting in days] == ["run.days", "run.window"]
    assert [setting.partition("=")[0] for setting in users] == [f"topology.{at}.users" for at in range(3)]
    obey("quickstart", few, line)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    topology=st.sampled_from([LIGHT, MEDIUM, HEAVY]),
    users=st.integers(2, 12),
    days=st.integers(1, 3),
    day_length=st.sampled_from(["20s", "45s", "5m"]),
    window=st.sampled_from(["", "run.window=10s", "run.warm_up=0s", "run.window=9s"]),
    seed=st.integers(1, 99),
)
def test_remedies_of_any_scenario_work(
    topology: str, users: int, days: int, day_length: str, window: str, seed: int
) -> None:
    overrides = [
        topology % users,
        f"run.days={days}",
        f"run.day_length={day_length}",
        f"run.seed={seed}",
        NO_LISTS,
        *ONLY_READ,
    ]
    overrides += [window] if window else []
    scenario = load_scenario("dovecot-postfix", overrides, passwords=False)
    line = printed(scenario, planned_once(scenario))
    obey("dovecot-postfix", overrides, line)


def test_absurd_remedies_are_not_printed(tmp_path: Path) -> None:
    """Nor are users for which the scenario has no accounts or mailboxes, and nothing is planned for them."""
    planned: list[Scenario] = []

    def none(scenario: Scenario) -> PlannedLoad:
        planned.append(scenario)
        return PlannedLoad(300.0, {"READ": (1,) * 400})

    few = PlannedLoad(300.0, {"READ": (1,) * 400})
    vast = load_scenario("dovecot-postfix", ["limits.hits=100000000"], passwords=False)
    (line,) = forecast(vast, few, planned=none)
    assert remedies_in(line) == []
    assert line.endswith("each scored task needs 100000000 hits (limits.hits)")
    own = load_scenario("dovecot-postfix", ["limits.hits=500", "mailbox.population=200"], passwords=False)
    planned.clear()
    (line,) = forecast(own, few, planned=none)
    assert all("users" not in setting for remedy in remedies_in(line) for setting in remedy)
    assert {scenario.users for scenario in planned} <= {200}
    table = tmp_path / "accounts.csv"
    table.write_text("user,password\n" + "".join(f"u{n},p\n" for n in range(210)))
    own = load_scenario("dovecot-postfix", ["limits.hits=500", f"accounts={{csv: {table}}}"], passwords=False)
    planned.clear()
    (line,) = forecast(own, few, planned=none)
    assert all("users" not in setting for remedy in remedies_in(line) for setting in remedy)
    assert {scenario.users for scenario in planned} <= {200}


def test_a_computed_remedy_has_a_margin() -> None:
    """A load that takes long to plan is not planned again: 100 hits grow to 300, with a margin for chance."""
    load = PlannedLoad(300.0, {"READ": (1000,) * 400, "SEND": (*((0,) * 100), *((1,) * 100), *((0,) * 200))})
    scenario = load_scenario("dovecot-postfix", [], passwords=False)

    def never(scenario: Scenario) -> PlannedLoad:
        raise AssertionError(scenario.name)

    (line, *_) = notes(scenario, load, planned=never)
    (days,), (users,) = remedies_in(line)
    number = int(days.removeprefix("run.days="))
    assert 3 < number <= MOST_DAYS
    # By chance alone, the first count may be 1.5 standard deviations too high, and the second as much too low.
    more = int(users.removeprefix("topology.0.users=")) / 200
    assert more * (100 - 1.5 * 100**0.5) - 1.5 * (100 * more) ** 0.5 >= FEW_HITS


def test_capacity_searches_set_the_users_themselves() -> None:
    scenario = load_scenario("dovecot-postfix", ["limits.hits=400"], passwords=False)
    load = PlannedLoad(300.0, {"READ": (1000,) * 400, "SEND": (1,) * 400})
    assert "users" in forecast(scenario, load, planned=plan_of)[0]
    assert "users=" not in forecast(scenario, load, users=False)[0]


@settings(max_examples=30)
@given(st.floats(1e-3, LONGEST_S / 2))
@example(3520679.4)
def test_typed_durations_are_read_back(value_s: float) -> None:
    """Those of remedies, which are rounded up, and exact ones."""
    for length_s in (rounded_up(value_s), round(value_s, 3)):
        text = typed(length_s)
        changed = load_scenario("medium", [f"run.day_length={text}", "run.warm_up=0s", "run.window=1ms"])
        assert changed.run.day_length_s == pytest.approx(length_s, rel=1e-12)
    assert value_s <= rounded_up(value_s) * (1 + 1e-12)


def test_durations_are_typed_as_people_do() -> None:
    lengths = {3600: "1h", 5400: "1.5h", 150: "2.5m", 300: "5m", 61: "61s", 2.5: "2.5s", 412: "412s"}
    assert {length_s: typed(length_s) for length_s in lengths} == lengths
