"""JUnit XML of a verdict: as good as the exit status, never green without a valid run, and XML whatever was said."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from junit_rules import cases_of
from paths import ROOT
from small_runs import written
from timing_samples import done, write_sample

from loadsim.cli import main
from loadsim.cli.junit import junit_file
from loadsim.model.criteria import DEFAULT
from loadsim.model.scenario import load_scenario
from loadsim.report.junit import Case, junit

HOW_TO = ROOT / "docs" / "how-to" / "fail-a-build.md"


@pytest.mark.parametrize(
    ("changes", "status", "validity", "read", "failed"),
    [
        ({}, 0, "passed", "passed", "passed"),
        ({"criteria": {"tasks.READ.p95_ms": {"max": 9}, "failed_share": {"max": 0}}}, 1, "passed", "failure", "passed"),
        ({"limits": {"hits": 99}}, 3, "error", "skipped", "skipped"),
        (
            {"limits": {"hits": 99}, "criteria": {"tasks.READ.p95_ms": {"max": 9}, "failed_share": {"max": 0}}},
            3,
            "error",
            "failure",
            "skipped",
        ),
    ],
)
def test_the_file_says_what_the_exit_status_says(
    tmp_path: Path, changes: dict[str, Any], status: int, validity: str, read: str, failed: str
) -> None:
    """A missed criterion fails; an invalid run is an error, and nothing of it has passed."""
    header = {
        "criteria": {"tasks.READ.p95_ms": {"max": 10}, "failed_share": {"max": 0}},
        "limits": {"hits": 1, "window_s": 1},
    }
    write_sample(tmp_path / "a.tlog", [done("READ", 1, 10)], header=header | changes)
    file = tmp_path / "x.xml"
    assert main(["log", "answer", "--junit", str(file), str(tmp_path / "a.tlog")]) == status
    cases = cases_of(file)
    assert {name: outcome for name, (outcome, _) in cases.items()} == {
        "loadsim.validity/validity": validity,
        "loadsim.criteria/tasks.READ.p95_ms": read,
        "loadsim.criteria/failed_share": failed,
    }
    assert (status == 0) == all(outcome == "passed" for outcome, _ in cases.values())
    if validity == "error":
        assert cases["loadsim.validity/validity"][1] == "READ has too few hits: 1, at least 99 needed"
    if read == "failure":
        assert cases["loadsim.criteria/tasks.READ.p95_ms"][1] == "10.0 ms, at most 9 ms wanted"


def test_an_invalid_run_has_its_reasons_whatever_it_missed(tmp_path: Path) -> None:
    """Several tasks that miss one criterion share a line of the reasons: the lines of the validity all stay."""
    header = {"limits": {"hits": 99, "window_s": 1}, "criteria": {"tasks.scored.p95_ms": {"max": 9}}}
    write_sample(tmp_path / "a.tlog", [done("READ", 1, 10), done("SEND", 1, 10)], header=header)
    file = tmp_path / "x.xml"
    assert main(["log", "answer", "--junit", str(file), str(tmp_path / "a.tlog")]) == 3
    outcome, message = cases_of(file)["loadsim.validity/validity"]
    assert outcome == "error"
    assert message == "; ".join(f"{task} has too few hits: 1, at least 99 needed" for task in ("READ", "SEND"))


def test_what_was_said_of_a_run_that_passed(tmp_path: Path) -> None:
    """A degraded run is no error, and the file says that it is degraded, and why; criteria have figure and limit."""
    header = {"limits": {"hits": 1, "window_s": 1, "lost_users": 1, "done": 0}, "criteria": {"score_ms": {"max": 90}}}
    both = header | {"users": 4}
    killed = write_sample(tmp_path / "a.tlog", [done("READ", 1, 10)], header=both, facts={"start_ns": 80_000_000_000})
    lived = write_sample(tmp_path / "b.tlog", [done("READ", 1, 10)], header=both | {"engine": "1"})
    file = tmp_path / "x.xml"
    assert main(["log", "answer", "--junit", str(file), str(killed), str(lived)]) == 0
    assert {outcome for outcome, _ in cases_of(file).values()} == {"passed"}
    said = file.read_text()
    assert "the run is degraded" in said and "has no end: its 2 users count as lost" in said
    assert "score_ms: 10.0 ms, at most 90 ms wanted" in said


@pytest.mark.parametrize(
    ("arguments", "case", "message"),
    [
        (["log", "answer", "nothing.tlog"], "loadsim.log.answer/log answer", "nothing.tlog: expected a timing log"),
        (["run", "nothing"], "loadsim.run/run", "scenario: expected one of "),
        (["compare", "--base", "no", "--new", "none"], "loadsim.compare/compare", "no: expected a timing log"),
    ],
)
def test_a_refused_command_replaces_a_green_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], case: str, message: str
) -> None:
    """The file of an earlier build is gone; what is there is an error with the line that was printed."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "x.xml"
    file.write_text(junit("earlier", [Case("a", "b")]))
    assert main([*arguments, "--junit", str(file)]) == 2
    ((name, (outcome, said)),) = cases_of(file).items()
    assert (name, outcome) == (case, "error")
    assert said.startswith(message)


def test_a_file_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line, with nothing done: the scenario is not even looked for."""
    for arguments in (["run", "nothing"], ["log", "answer", "nothing"]):
        assert main([*arguments, "--junit", str(tmp_path / "no" / "x.xml")]) == 2
        said = capsys.readouterr().err
        assert said.endswith("x.xml: expected a file or directory that can be used, found: No such file or directory\n")
        assert said.count("\n") == 1


def test_a_file_that_cannot_be_written_at_the_end_leaves_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told, in a line; an answer after eight hours is not thrown away for it."""
    file = tmp_path / "x.xml"
    with junit_file(file, "run") as write:
        assert cases_of(file) == {"loadsim.run/run": ("error", "the command has not ended")}
        file.unlink()
        file.mkdir()
        write(junit("suite", []))
    assert capsys.readouterr().err == f"loadsim: --junit {file} not written: Is a directory\n"


@settings(deadline=None, max_examples=25)
@given(st.text(min_size=1), st.text(min_size=1))
def test_whatever_is_said_is_xml(tmp_path_factory: pytest.TempPathFactory, name: str, said: str) -> None:
    """Control characters, half pairs, brackets and quotes: a server may say anything."""
    file = tmp_path_factory.mktemp("junit") / "x.xml"
    cases = [Case("c", f"n{name}", "failure", f"m{said}", f"s{said}"), Case("c", "skipped", "skipped", said)]
    file.write_text(junit("suite", cases), encoding="utf-8")
    assert [outcome for outcome, _ in cases_of(file).values()] == ["failure", "skipped"]


@pytest.mark.nightly(part="runs")
def test_a_run_as_the_how_to_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its scenario is taken as it stands; a shorter one runs as it is typed, and fails its build by one criterion."""
    text = HOW_TO.read_text(encoding="utf-8")
    document = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    (tmp_path / "nightly.yaml").write_text(yaml.safe_dump(document))
    asked = set(load_scenario(str(tmp_path / "nightly.yaml")).criteria)
    assert asked == {*document["criteria"], *DEFAULT}
    command = next(line for line in text.splitlines() if line.startswith("loadsim run nightly.yaml"))
    small = written(
        tmp_path / "small.yaml",
        topology=[{"profile": "loadsim-5.5/medium", "users": 2}],
        run={"day_length": "6s", "ramp_up": "1s", "warm_up": "1s", "window": "5s"},
        criteria={"score_ms": {"max": 60_000}, "tasks.READ.p95_ms": {"max": 0.001}},
    )
    small.rename(tmp_path / "nightly.yaml")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(command)[1:], "--no-report"]) == 1
    out = capsys.readouterr().out
    # valid, or degraded where the machine is busy
    assert ", criteria missed; on the embedded server: no measurement\n" in out
    assert "(tasks.READ.p95_ms): " in out
    outcomes = {name: outcome for name, (outcome, _) in cases_of(tmp_path / "results" / "loadsim.xml").items()}
    score = json.loads((tmp_path / "results" / "run" / "score.json").read_text())
    assert outcomes == {
        "loadsim.validity/validity": "passed",
        **{
            f"loadsim.criteria/{one['name']}": "passed" if one["passed"] else "failure"
            for one in score["verdict"]["criteria"]
        },
    }
    assert outcomes["loadsim.criteria/tasks.READ.p95_ms"] == "failure"
    for name in ("score_ms", "failed_share", "delivery.undelivered_at_end", "tasks.READ.failed_share"):
        assert outcomes[f"loadsim.criteria/{name}"] == "passed"
    again = tmp_path / "results" / "again.xml"
    assert main(["log", "answer", "--junit", str(again), str(tmp_path / "results" / "run")]) == 1
    assert again.read_bytes() == (tmp_path / "results" / "loadsim.xml").read_bytes()
