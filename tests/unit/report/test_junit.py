"""JUnit XML of a verdict: it agrees with the exit status, never passes an invalid run, and is XML with any text."""

from pathlib import Path
from typing import Any

import pytest
from compared_runs import write_run
from hypothesis import given, settings
from hypothesis import strategies as st
from junit_rules import cases_of
from timing_samples import ENDED, done, write_sample

from loadsim.analysis.summary import summarise
from loadsim.cli import main
from loadsim.cli.check import _junit
from loadsim.comparison.comparison import compare_runs
from loadsim.errors import ServerRefused
from loadsim.findings.catalogue import Code
from loadsim.model.state_checks import StateChecks, Violation
from loadsim.provisioning.check_state import state_of
from loadsim.provisioning.server_report import ServerReport, TriedTask, lacking
from loadsim.report.junit import Case, junit, verdict_junit


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
def test_the_file_agrees_with_the_exit_status(
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
        assert cases["loadsim.validity/validity"][1].endswith(f"[{Code.FEW_HITS.id}]")
    if read == "failure":
        assert cases["loadsim.criteria/tasks.READ.p95_ms"][1] == "10.0 ms, at most 9 ms wanted"


BROKEN = {"rule": "uid-reused", "section": "RFC 9051 2.3.1.1", "user": 2, "folder": "INBOX", "excerpt": "* 1 EXPUNGE"}


def test_a_broken_imap_rule_fails_a_build_and_a_comparison(tmp_path: Path) -> None:
    """As a rule of IMAP that the server has broken: several findings of a code are one case."""
    checks = StateChecks(1.0)
    for rule in ("uid-reused", "flags-lost"):
        checks.broken(Violation(**BROKEN | {"rule": rule}))
    of_new = ENDED | {"state_checks": checks.document}
    base, new = (
        [write_run(tmp_path, f"{name}-{at}", hour=2 * at + (turn + at) % 2, facts=facts) for at in range(1, 4)]
        for turn, (name, facts) in enumerate((("base", ENDED), ("new", of_new)))
    )
    (tmp_path / "new.xml").write_text(verdict_junit(summarise([new[0]])))
    cases = cases_of(tmp_path / "new.xml")
    assert [name for name, (outcome, _) in cases.items() if outcome == "failure"] == [
        "loadsim.findings/server-state-wrong"
    ]
    found = compare_runs(base, new, max_regression=0.05)
    assert found.document["missed_more"] == ["server-state-wrong"]
    assert found.figures.decision != "passed"


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


@settings(deadline=None, max_examples=25)
@given(st.text(min_size=1), st.text(min_size=1))
def test_any_text_is_valid_xml(tmp_path_factory: pytest.TempPathFactory, name: str, said: str) -> None:
    """Control characters, half pairs, brackets and quotes: a server may say anything."""
    file = tmp_path_factory.mktemp("junit") / "x.xml"
    cases = [Case("c", f"n{name}", "failure", f"m{said}", f"s{said}"), Case("c", "skipped", "skipped", said)]
    file.write_text(junit("suite", cases), encoding="utf-8")
    assert [outcome for outcome, _ in cases_of(file).values()] == ["failure", "skipped"]


def test_a_check_that_fails_once_fails_its_case(tmp_path: Path) -> None:
    """Two drivers, or two users, do the same task; GitLab takes the first case of a name, others the last."""
    failure = lacking("MOVE, u2", ServerRefused("NO MOVE"))
    broken = [Violation(rule, "RFC 9051 7", 1, "INBOX", "* 1 EXPUNGE") for rule in ("uid-reused", "uid-changed")]
    tried = (
        *(TriedTask("imap", task, (task,), 0.1) for task in ("MOVE", "COPY")),
        *(TriedTask("mapi", task, (task,), 0.1, failed) for task, failed in (("MOVE", failure), ("COPY", None))),
    )
    checks = StateChecks(1.0, violations={one.rule: one for one in broken})
    file = tmp_path / "x.xml"
    file.write_text(_junit(ServerReport(("u1", "u2"), (), tried, (*state_of(checks),))), encoding="utf-8")
    cases = cases_of(file)
    assert {name: outcome for name, (outcome, _) in cases.items()} == {
        "loadsim.check/MOVE": "failure",
        "loadsim.check/COPY": "passed",
        "loadsim.check/state": "failure",
    }
    assert all(rule in cases["loadsim.check/state"][1] for rule in ("uid-reused", "uid-changed"))
