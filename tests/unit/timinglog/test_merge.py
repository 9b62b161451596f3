"""The answer about the logs of several runs: who took part, what lies in the window, and whose health it was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from findings_of import codes
from timing_samples import done, write_sample

from loadsim.analysis.summary import summarise
from loadsim.cli import main
from loadsim.errors import LogError
from loadsim.findings.catalogue import Code

CRITERIA = {"score_ms": {"below": 1000}, "failed_share": {"max": 0.01}}


def write_run(place: Path, run: str, engines: Sequence[int] = (0, 1), **header: Any) -> list[Path]:
    """The logs of those engines of a run of two: four users, two on each, who read in each of the first 50 s."""
    return [
        write_sample(
            place / f"{run}.{engine}.tlog",
            [done("READ", 1000 * at, 10, user=1 + 2 * engine) for at in range(50)],
            header={"run": run, "engine": str(engine), "users": 4, "criteria": CRITERIA, **header},
        )
        for engine in engines
    ]


def test_a_missing_log_of_an_engine_is_named(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, "first", (0,)))
    assert (summary.figures.users, summary.verdict.validity) == (4, "invalid")
    assert codes(summary.verdict.defects) == [Code.USERS_LOST, Code.LOGS_MISSING]
    assert [(one.values["lost"], one.values["users"]) for one in summary.verdict.defects[:1]] == [(2, 4)]


def test_logs_of_two_runs_are_not_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [*write_run(tmp_path, "first"), *write_run(tmp_path, "second")]
    for verb in (["answer"], ["export", "csv"]):
        assert main(["log", *verb, *map(str, logs)]) == 2
        out, error = capsys.readouterr()
        assert not out and error == (
            "loadsim: merge: expected the logs of one run, found those of 'first', 'second': name one, or use loadsim"
            " report RUN RUN\n"
        )


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"criteria": CRITERIA | {"score_ms": {"below": 5}}}, "criteria.score_ms.below: .* found 1000 in .* and 5 in"),
        ({"limits": {"hits": 7}}, "limits.hits: .* found 1 in c1.0 and 7 in c1.1"),
        ({"window_s": [0.0, 90.0]}, r"window_s: .* found \[0.0, 100.0\] in .* and \[0.0, 90.0\] in"),
        ({"compression": 2.0}, "compression: .* found 1.0 in .* and 2.0 in"),
        ({"acknowledgements": "at once"}, "acknowledgements: .* found 'delayed' in .* and 'at once' in"),
    ],
)
def test_logs_with_different_limits_are_not_merged(tmp_path: Path, header: dict[str, Any], named: str) -> None:
    logs = [*write_run(tmp_path, "run", (0,)), *write_run(tmp_path, "run", (1,), **header)]
    with pytest.raises(LogError, match=f"^merge: {named}"):
        summarise(logs)
