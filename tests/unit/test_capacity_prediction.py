"""The prediction of a search: what `loadsim size` says of one of its runs, next to the capacity that was found.

Seen from outside, it could be wrong so: the number is not that of the known demand; a failed run predicts; the
smallest run predicts, though a larger one gives a number; the number of another run is shown; a bound is shown as an
estimate; a search without a number hides why; the embedded server predicts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finished_searches import capacity
from queue_server import server
from small_runs import written
from timing_samples import DELIVERED, ENDED, LOGGED_ON, START_NS, done, write_sample

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_prediction import Prediction
from loadsim.analysis.capacity_search import Found
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.json_values import to_json
from loadsim.analysis.resources import Resource
from loadsim.analysis.utilisation import Estimate
from loadsim.cli import main
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.capacity_text import capacity_text
from loadsim.report.markdown import to_markdown
from loadsim.runs.capacity import Wanted, find_capacity
from loadsim.runs.capacity_file import read_capacity, write
from loadsim.runs.capacity_prediction import predicted

FULL_USERS = 500
"""A task takes 20 ms of the only core, and a user does one each 10 s."""

BUSY = Resource("processor", "mx1", True, "host", "cpu_busy_share", 0.5, 0.7, 1.0, 0.5)
FOUND = Found(300, 450, "criteria")


def busy_run(place: Path, users: int, **replaced: float) -> None:
    """The log of a run on a server with one core, whose queue is simulated."""
    samples, ends = server(1, users, 0.1, 0.02)
    idle = {"cores": 1.0, "others_cpu_cores": 0.0, "cpu_steal_share": 0.0, "loadsim_cpu_cores": 0.0}
    of_server = {
        "server_cores": 1.0,
        "server_core_sets": 1.0,
        "server_cores_taken_by_others": replaced.get("others_cpu_cores", 0.0),
        "server_cores_steal_share": 0.0,
    }
    memory = {"server_rss_bytes": 1e9, "memory_available_bytes": 8e9, "memory_used_share": 0.2}
    health = [
        {
            "at_ns": START_NS + round(at_s * 1e9),
            "probe": "host",
            "figures": {**idle, **of_server, **memory, "server_cpu_cores": busy, **replaced},
        }
        for at_s, busy in samples
    ]
    header = {
        "users": users,
        "engine_users": users,
        "window_s": [60.0, 660.0],
        "limits": {"hits": 1, "window_s": 1.0},
        "criteria": {"failed_share": {"max": 0.01}},
    }
    tasks = [done("READ", end / 1000 - 5, 5, user=1 + n % users) for n, end in enumerate(ends)]
    log = place / "logs" / "c1.0.tlog"
    write_sample(log, [LOGGED_ON, *tasks], DELIVERED, header=header, facts=ENDED, health=health)


def searched(directory: Path) -> Capacity:
    """A search whose numbers have one run each."""
    results = ((100, "pass"), (200, "pass"), (300, "pass"), (450, "fail"))
    found = capacity(FOUND, *results, runs=1, resources=(BUSY,))  # type: ignore[arg-type]
    return replace(found, directory=directory)


def of(found: Capacity) -> Prediction | None:
    return predicted(found.directory, found.steps)


def with_prediction(found: Capacity) -> Capacity:
    return replace(found, predicted=of(found))


def test_the_largest_passed_run_predicts_the_known_demand(tmp_path: Path) -> None:
    """Not the larger one that failed. Each run alone predicts the same."""
    for users in (100, 200, 450):
        busy_run(tmp_path / "steps" / f"{users:05d}-1", users)
    found = of(searched(tmp_path))
    assert found is not None and found.users is not None
    assert (found.measured_users, found.run, found.resource) == (200, "steps/00200-1", "processor")
    assert found.users.low <= FULL_USERS <= found.users.high
    assert not found.at_least


def test_the_answer_and_the_report_have_both_numbers(tmp_path: Path) -> None:
    """As they are after the search was written and read."""
    busy_run(tmp_path / "steps" / "00200-1", 200)
    write(with_prediction(searched(tmp_path)))
    found = read_capacity(tmp_path)
    assert found.predicted is not None and found.predicted.users is not None
    value = found.predicted.users.value
    assert value == pytest.approx(FULL_USERS, rel=0.1)
    text = " ".join(capacity_text(found, 100).split())
    number = f"processor full with {int(value) // 10 * 10} users (95 %: "
    assert f"Predicted from 200 users: {number}" in text and "found: About" not in text
    assert "; found: 300 users" in text
    report = to_markdown(describe_capacity(found, (), {}))
    assert "Predicted from 200 users" in report and number in report and "predicts no number" not in report


def test_the_number_is_that_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "steps" / "00200-1"
    busy_run(place, 200)
    found = of(searched(tmp_path))
    assert main(["size", str(place), "--json", "--target", "100%"]) == 0
    said = json.loads(capsys.readouterr().out)
    (processor,) = (each for each in said["resources"] if each["name"] == said["first"])
    assert found is not None and to_json(found.users) == processor["users"]


def test_without_a_number_only_the_report_says_why(tmp_path: Path) -> None:
    """The reason of the largest: its log has gone, or its processor was taken by others."""
    busy_run(tmp_path / "steps" / "00300-1", 300, others_cpu_cores=0.7)
    found = with_prediction(searched(tmp_path))
    assert found.predicted is not None and found.predicted.users is None
    assert found.predicted.run == "steps/00300-1"
    assert "Predicted" not in capacity_text(found, 100)
    report = to_markdown(describe_capacity(found, (), {}))
    assert "loadsim size predicts no number from steps/00300-1: not decided" in report
    (tmp_path / "steps" / "00300-1" / "logs" / "c1.0.tlog").unlink()
    gone = of(searched(tmp_path))
    assert gone is not None and gone.users is None and "steps/00300-1" in str(gone.why_not)


def test_bounds_and_doubts_are_stated() -> None:
    found = replace(
        capacity(FOUND, (300, "pass"), (450, "fail")),
        predicted=Prediction(300, "steps/00300-1", "disk vda", Estimate(1234, 1000, 1500), True, ("other load",)),
    )
    text = " ".join(capacity_text(found, 200).split())
    assert (
        "Predicted from 300 users: disk vda full with at least 1,000 users, by loadsim size of steps/00300-1;"
        " doubts: other load; found: 300 users, so criteria were missed before the disk vda was full"
    ) in text


def test_without_the_probe_there_is_no_prediction(tmp_path: Path) -> None:
    busy_run(tmp_path / "steps" / "00200-1", 200)
    found = searched(tmp_path)
    bare = replace(found, steps=tuple(replace(step, resources=()) for step in found.steps))
    assert of(bare) is None
    assert "predicts no number" not in to_markdown(describe_capacity(bare, (), {}))


@pytest.mark.slow
@pytest.mark.parametrize("embedded", [False, True])
def test_a_search_predicts_at_its_end(tmp_path: Path, embedded: bool) -> None:
    """Unless its server is embedded. Its runs lie in its directory, as after a crash."""
    out = tmp_path / "out"
    changes: dict[str, Any] = {
        "server": {"imap": {"host": "127.0.0.1", "port": 1}, "smtp": {"host": "127.0.0.1", "port": 1}},
        "accounts": {"user": "user{index:05d}", "password": "secret"},
    }
    path = written(tmp_path / "small.yaml", **({} if embedded else changes))

    def read(settings: Sequence[str]) -> Scenario:
        return load_scenario(str(path), settings)

    def stop(_: Capacity) -> None:
        raise KeyboardInterrupt

    wanted = Wanted(steps=(100, 200, 450), pause_s=0.0, quick=True)
    with pytest.raises(KeyboardInterrupt):
        find_capacity(read, wanted, out, begun=stop)
    for users, number in ((100, 1), (100, 2), (200, 1), (200, 2), (450, 1), (450, 2)):
        place = out / "steps" / f"{users:05d}-{number}"
        busy_run(place, users)
        score = score_of(users, users <= 200)
        (place / "score.json").write_text(json.dumps(score), encoding="utf-8")
    ended: list[MeasuredStep] = []
    found = find_capacity(read, wanted, out, ended_step=ended.append)
    assert (found.users, len(ended)) == (200, len(found.steps))
    document = json.loads((out / "capacity.json").read_text())
    assert document == found.document
    if embedded:
        assert document["predicted"] is None
    else:
        assert document["predicted"]["measured_users"] == 200
        assert document["predicted"]["users"]["value"] == pytest.approx(FULL_USERS, rel=0.1)
        assert read_capacity(out) == found


def score_of(users: int, passed: bool) -> dict[str, Any]:
    """The part of score.json that a search reads."""
    limits = {"min": None, "max": 0.01, "below": None, "wanted": "at most 1 %"}
    criterion = {"name": "failed_share", **limits, "each": False}
    reasons = [] if passed else ["failed_share 5 %, at most 1 % wanted"]
    judged = {**criterion, "figure": 0.0 if passed else 0.05, "passed": passed}
    verdict = {"validity": "valid", "passed": passed, "reasons": reasons, "causes": [], "criteria": [judged]}
    return {
        "verdict": verdict,
        "score_ms": 10.0,
        "response_score_ms": 20.0,
        "tasks_per_s": users / 10,
        "window_s": [60.0, 660.0],
        "delivery": {"delivered": 1},
        "load_equivalent_users": users,
        "by_protocol": {},
        "resources": [to_json(BUSY)],
    }
