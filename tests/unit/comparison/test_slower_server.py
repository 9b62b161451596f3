"""From the run to the comparison, held against a known truth: a server that is slower by a factor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from health_samples import write_observed_machine
from virtual_runs import live, quiet, scenario_of

from loadsim.comparison.comparison import Comparison, compare_runs

REPEATS = 3


def header(name: str, users: int, window_s: float) -> dict[str, Any]:
    return {
        "run": name,
        "users": users,
        "engine_users": users,
        "window_s": [0.0, window_s],
        "weights": {"BROWSE": 1, "SCHEDULE": 1},
        "limits": {"hits": 1, "window_s": 1, "done": 0.5, "generator_lag_p99_ms": None, "generator_lag_share": None}
        | {"generator_cpu": None, "generator_lateness_p95_ms": None},
        "start_state_digest": "as it was",
    }


def by_name(found: Comparison) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for key in ("tasks", "scores") for one in found.document[key]}


def virtual_run(place: Path, name: str, service_s: float, seed: int) -> Path:
    """A run in virtual time on a server that takes this long for a command, on average: its log."""
    run = {"day_length": "200s", "ramp_up": "1s", "warm_up": "0s", "window": "200s", "seed": seed}
    browser = quiet(browse={"per_day": 50}, schedule={"per_day": 50})
    scenario = scenario_of(place / name, (browser, 5), run=run)
    stated = header(name, 5, 200.0)
    live(scenario, place / name, service_s=service_s, header=stated)
    write_observed_machine(place / name / "machine.tlog", stated)
    return place / name


@pytest.fixture(scope="module")
def virtual_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Three runs of a server, three more of the same, and three of one whose commands take 1.4 times as long."""
    place = tmp_path_factory.mktemp("virtual")
    means_s = {"base": 0.020, "same": 0.020, "slower": 0.020 * 1.4}
    seeds = iter(range(1, 1 + REPEATS * len(means_s)))
    return {
        name: [virtual_run(place, f"{name}-{at}", mean_s, next(seeds)) for at in range(REPEATS)]
        for name, mean_s in means_s.items()
    }


def test_the_factor_of_a_slower_server_is_found(virtual_runs: Mapping[str, Sequence[Path]]) -> None:
    """Browsing, the schedule and the score take 1.4 times as long: each is found, with an interval that holds it."""
    found = compare_runs(virtual_runs["base"], virtual_runs["slower"], max_regression=0.05)
    for name in ("BROWSE", "SCHEDULE", "Score"):
        assert by_name(found)[name]["low"] <= 1.4 <= by_name(found)[name]["high"]
        assert by_name(found)[name]["change"] == "slower"
    assert found.document["decision"] == "failed"


def test_the_same_server_is_not_found_different(virtual_runs: Mapping[str, Sequence[Path]]) -> None:
    """Only chance differs: no task is called different, nor the score."""
    found = compare_runs(virtual_runs["base"], virtual_runs["same"])
    assert not [name for name, one in by_name(found).items() if one["change"]]
    assert by_name(found)["Score"]["low"] <= 1 <= by_name(found)["Score"]["high"]
