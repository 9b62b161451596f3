"""Suite files: their errors, their cells, and an order of runs that slow drift of a machine cannot favour."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_suites import suite
from hypothesis import given
from hypothesis import strategies as st
from small_runs import written

from loadsim.campaign.runs import CampaignRun, Result, Validity
from loadsim.cli import main
from loadsim.documents.json_values import to_json
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.scenario.suite import load_suite
from loadsim.suite.cells import scenarios_of, terms_of
from loadsim.suite.suite import CellFigures, CellTerms, SuiteFigures, SuiteTerms

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)
"""The two-sided critical t of 95 % for 1 to 11 degrees of freedom, from the tables of textbooks."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "small.yaml", topology=[{"profile": "loadsim-5.5/light", "users": 6}])
    return tmp_path


def problems(**keys: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        scenarios_of(suite(**keys), passwords=False)
    return [str(each) for each in refused.value.problems]


def test_cells_are_all_combinations_in_the_order_of_the_file() -> None:
    """Settings apply from the suite to the variant; commands of the suite are around those of the others."""
    found = suite(
        set={"run.seed": 1, "name": "a"},
        servers=[{"name": "old", "set": {"run.seed": 2}, "before": [{"run": ["true"]}]}, {"name": "new"}],
        users=[4, 12],
        settings=[{"name": "a", "set": {"run.seed": 3}}, {"name": "b", "after": [{"run": ["sh", "-c", "echo b"]}]}],
        before=[{"run": ["sync"]}],
        after=[{"run": ["sync"]}],
    )
    names = [f"{s}/{u}/{v}" for s in ("old", "new") for u in (4, 12) for v in "ab"]
    assert [cell.name for cell in found.cells] == names
    scenarios = scenarios_of(found, passwords=False)
    seeds = {name: scenarios[name].run.seed for name in names if name.endswith(("/4/a", "/4/b"))}
    assert seeds == {"old/4/a": 3, "old/4/b": 2, "new/4/a": 3, "new/4/b": 1}
    assert {name: one.users for name, one in scenarios.items()} == {name: int(name.split("/")[1]) for name in names}
    assert {one.lists.population for one in scenarios.values()} == {12}
    cell = found.cells[1]
    assert [hook.program for hook in (*cell.before, *cell.after)] == ["sync", "true", "sh", "sync"]


def test_all_errors_of_the_file_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of single values first, each once, with its line; then what does not fit."""
    Path("suite.yaml").write_text(
        "scenario: small.yaml\n"
        "repeats: 0\n"
        "sevrers: []\n"
        "users: [4, 4]\n"
        "before: [{run: []}]\n"
        "settings: [{name: a b}, {name: c, set: {x=: 1}}]\n"
    )
    assert main(["suite", "suite.yaml", "--list"]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    expected = [
        "loadsim: suite.yaml: line 2: repeats: expected a whole number from 1 to 1000, found 0",
        "loadsim: suite.yaml: line 3: sevrers: expected one of the keys name, scenario, set, before, after, ",
        "loadsim: suite.yaml: line 5: before[0].run: expected the words of a command, found none",
        "loadsim: suite.yaml: line 6: settings[0].name: expected a name of at most 40 letters",
        "loadsim: suite.yaml: line 6: settings[1].set.x=: expected the path of a key, such as run.window, found 'x='",
    ]
    lines = said.splitlines()
    assert len(lines) == len(expected)
    assert all(line.startswith(begin) for line, begin in zip(lines, expected, strict=True)), lines
    Path("suite.yaml").write_text("scenario: small.yaml\nusers: [4, 4]\nsettings: [{name: a}, {name: a}]\n")
    assert main(["suite", "suite.yaml", "--list"]) == 2
    assert [line.partition(": expected")[0] for line in capsys.readouterr().err.splitlines()] == [
        "loadsim: suite.yaml: line 2: users[1]",
        "loadsim: suite.yaml: line 3: settings[1]",
    ]


def test_errors_of_scenarios_name_the_cells() -> None:
    """The first with an error: a setting that its scenario rejects, an unknown profile, a program that is not there."""
    settings = [{"name": name, "set": {"topology.0.profile": f"loadsim-5.5/{name}"}} for name in ("light", "lihgt")]
    found = problems(servers=[{"name": "old"}, {"name": "new"}], settings=settings)
    assert any("old/lihgt: topology[0].profile" in one.replace(".0.", "[0].") for one in found), found
    found = problems(
        servers=[{"name": "old", "before": [{"run": ["no-such-program"]}]}, {"name": "new"}],
        settings=settings,
        set={"run.window": "5", "accounts.password": ["hunter2"]},
    )
    assert "suite.yaml: run: expected the command 'no-such-program' to be installed, found none" in found
    assert any(one.startswith("suite.yaml: cell old/light: run.window: expected a duration") for one in found)
    assert not any("hunter2" in one for one in found)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"scenario": "smal"}, 0),
        ({"before": [{"run": ["./no-such-program"]}]}, 0),
        ({"users": [6, 1]}, 0),
        ({"users": [6, 2], "set": {"topology": [{"profile": "loadsim-5.5/light", "users": 2}] * 3}}, 0),
    ],
)
def test_errors_of_the_suite_have_its_file_and_line(keys: dict[str, Any], line: int) -> None:
    with pytest.raises(ConfigError) as refused:
        scenarios_of(suite(**keys), passwords=False)
    assert {(each.file, each.line) for each in refused.value.problems} == {("suite.yaml", line)}


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"base": {"server": "odl"}, "new": {"server": "new"}}, "compare[0].base.server: expected one of old, new"),
        ({"base": {"server": "old"}, "new": {"settings": "x"}}, "expected no level: the suite has none, found 'x'"),
        ({"base": {"server": "old"}, "new": {}}, "expected the same dimensions in base and new, found server and none"),
        ({"base": {"server": "old"}, "new": {"server": "old"}}, "expected two servers or two settings"),
        (
            {"base": {"server": "old", "users": 4}, "new": {"server": "new", "users": 6}},
            "new.users: expected the same users in base and new: scores of different ones are not comparable, found 6",
        ),
    ],
)
def test_meaningless_comparisons_are_rejected(keys: dict[str, Any], error: str) -> None:
    servers = [{"name": "old"}, {"name": "new"}]
    assert any(error in one for one in problems(servers=servers, users=[4, 6], compare=[keys]))


def test_cells_with_other_load_are_not_compared() -> None:
    """It is known before the first run that their scores are not comparable."""
    compare = [{"base": {"server": "old"}, "new": {"server": "new"}}]
    assert suite(servers=[{"name": "old"}, {"name": "new", "set": {"limits.drain": "9s"}}], compare=compare).pairs
    scenarios_of(load_suite("suite.yaml"), passwords=False)
    for key, value in (("run.window", "17s"), ("run.audit_allow", ["flag-lost"])):
        servers = [{"name": "old"}, {"name": "new", "set": {key: value}}]
        (error,) = problems(servers=servers, compare=[{"base": {"server": "old"}, "new": {"server": "new"}}])
        assert f"found old and new that differ in {key}: their scores are not comparable" in error


def test_cells_that_differ_in_one_dimension_are_compared() -> None:
    servers = [{"name": "old"}, {"name": "new"}]
    compare = [{"base": {"server": "old"}, "new": {"server": "new"}, "max_regression": "5%"}]
    pairs = suite(servers=servers, users=[4, 6], compare=compare).pairs
    assert [(pair.base, pair.new, pair.max_regression) for pair in pairs] == [
        ("old/4", "new/4", 0.05),
        ("old/6", "new/6", 0.05),
    ]


GENERAL = {"base": {"server": "old"}, "new": {"server": "new"}, "max_regression": "5%"}
OF_SIX = {"base": {"server": "old", "users": 6}, "new": {"server": "new", "users": 6}, "max_regression": "50%"}


@pytest.mark.parametrize(("compare", "users"), [([GENERAL, OF_SIX], 6), ([OF_SIX, GENERAL], 6), ([GENERAL] * 2, 4)])
def test_a_pair_has_one_comparison(compare: list[Any], users: int) -> None:
    """Otherwise one entry would silently replace the limit of the other."""
    (error,) = problems(servers=[{"name": "old"}, {"name": "new"}], users=[4, 6], compare=compare)
    assert f"compare[1]: expected each pair of cells once, found 'new/{users}' against 'old/{users}' twice" in error


def test_a_closed_loop_and_criteria_on_monitors_are_rejected() -> None:
    assert "expected canonical for a suite, found stress" in problems(set={"run.mode": "stress"})[0]
    monitored = {"criteria": {"probes.host@mx1.cpu_busy_share.mean": {"max": 0.8}}}
    (error,) = problems(set=monitored)
    assert error.endswith(
        "criteria: expected figures that are known at the end of each run, found those of the monitor mx1, whose file"
        " is there later; the key monitors of a scenario collects it"
    )
    assert error.startswith("suite.yaml: ")
    declared = suite(set={**monitored, "monitors": {"mx1": {"command": "ssh mx1"}}})
    assert scenarios_of(declared, passwords=False)


@given(levels=st.integers(1, 6), repeats=st.integers(1, 6), seed=st.integers(0, 99))
def test_each_repeat_is_a_block_of_all_cells(levels: int, repeats: int, seed: int) -> None:
    """Each cell once in each block, and the same order each time that the file is read."""
    found = suite(users=list(range(2, 2 + levels)), repeats=repeats, seed=seed)
    slots = found.slots
    assert [slot.number for slot in slots] == list(range(1, levels * repeats + 1))
    for repeat in range(1, repeats + 1):
        block = [slot.cell.name for slot in slots[(repeat - 1) * levels : repeat * levels]]
        assert sorted(block) == sorted(cell.name for cell in found.cells)
        if repeat % 2 == 0:  # no two cells alternate
            assert block == [slot.cell.name for slot in slots[(repeat - 2) * levels : (repeat - 1) * levels]][::-1]
    assert all(slot.repeat == 1 + (slot.number - 1) // levels for slot in slots)
    assert load_suite("suite.yaml").slots == slots


RESULTS: Mapping[str, tuple[Result, Validity | None]] = {
    "measured": ("passed", "valid"),
    "overloaded": ("failed", "invalid"),
    "invalid": ("void", "invalid"),
    "failed": ("void", None),
}


def run(number: int = 1, result: str = "measured", score_ms: float | str | None = 10.0, **keys: Any) -> CampaignRun:
    name, validity = RESULTS[result]
    made = CampaignRun(
        run=f"runs/{number:03d}-a-1",
        number=number,
        users=2,
        cell="a",
        repeat=number,
        result=name,
        began="2026-01-05T08:00:00+00:00",
        took_s=61.0,
        validity=validity,
        passed=True if validity else None,
        tasks_per_s=5.0 if validity else None,
        scored=("imap: READ",),
        failure="no answer" if result == "failed" else None,
        findings=(finding(Code.NO_SCORE),) if validity == "invalid" else (),
    )
    return CampaignRun.read(to_json(made) | {"score_ms": score_ms if validity else None} | keys)


def cell(*runs: CampaignRun, planned: int | None = None) -> CellFigures:
    return CellFigures.of("a", {}, len(runs) if planned is None else planned, runs)


@given(st.lists(st.floats(0.5, 50), min_size=2, max_size=12))
def test_the_interval_of_a_cell_is_that_of_students_t(scores: list[float]) -> None:
    """Student's t of the logarithms, the run as the unit."""
    found = cell(*(run(at, score_ms=score) for at, score in enumerate(scores, 1))).score_ms
    assert found is not None and found.low is not None and found.high is not None
    logs = np.log(scores)
    half = T_95[len(scores) - 2] * logs.std(ddof=1) / math.sqrt(len(scores))
    wanted = [logs.mean() - half, logs.mean(), logs.mean() + half]
    assert np.allclose(np.log([found.low, found.mean, found.high]), wanted, rtol=1e-3, atol=1e-3)


def test_invalid_runs_are_in_no_figure() -> None:
    found = cell(run(1, score_ms=10.0), run(2, "invalid", 1.0), run(3, "failed"), planned=2)
    assert found.score_ms is not None and found.score_ms.mean == pytest.approx(10.0)
    assert (found.measured, found.invalid, found.failed, found.verdict) == (1, 1, 1, "incomplete")


@pytest.mark.parametrize(
    ("runs", "planned", "verdict"),
    [
        ([run(1), run(2)], 2, "met"),
        ([run(1), run(2)], 3, "incomplete"),
        ([run(1), run(2, passed=False)], 3, "missed"),
        ([run(1, "invalid"), run(2)], 1, "met"),
        ([run(1, "overloaded"), run(2)], 2, "missed"),
        ([run(1, "overloaded"), run(2)], 1, "missed"),
        ([], 1, "incomplete"),
    ],
)
def test_a_cell_is_met_only_if_every_repeat_met_its_criteria(
    runs: list[CampaignRun], planned: int, verdict: str
) -> None:
    assert cell(*runs, planned=planned).verdict == verdict


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"score_ms": "inf"}, Code.CELL_NOT_FINITE),
        ({"score_ms": None}, Code.CELL_NOT_FINITE),
        ({"result": "overloaded"}, Code.CELL_OVERLOADED),
        ({"scored": ["imap: SEND"]}, Code.CELL_TASKS_DIFFER),
    ],
)
def test_a_cell_of_unequal_runs_has_no_score(second: dict[str, Any], why: Code) -> None:
    found = cell(run(1), run(2, **second))
    assert found.score_ms is None and found.no_score is not None and found.no_score.code is why


def figures(*runs: CampaignRun, planned: int, retries: int = 0) -> SuiteFigures:
    terms = SuiteTerms(
        software="loadsim 1",
        name="s",
        repeats=planned,
        seed=1,
        pause_s=0,
        engines=None,
        pin=False,
        embedded=False,
        compare=(),
        cells={"a": CellTerms({}, "0" * 64)},
        retries=retries,
    )
    return SuiteFigures(Path("out"), terms, runs)


@pytest.mark.parametrize(
    ("runs", "planned", "retries", "left", "status"),
    [
        ([run(1)], 1, 0, 0, 0),
        ([run(1)], 2, 0, 1, 3),
        ([run(1, passed=False)], 1, 0, 0, 1),
        ([run(1, "invalid")], 1, 0, 0, 3),
        ([run(1, "invalid")], 1, 1, 1, 3),
        ([run(1, "overloaded")], 1, 1, 0, 1),
        ([run(1, "overloaded"), run(2, "failed")], 2, 0, 0, 3),
        ([run(1, "failed"), run(1, passed=False)], 1, 1, 0, 1),
        ([run(1, passed=False), run(2, "failed")], 2, 0, 0, 3),
    ],
)
def test_unmeasured_repeats_decide_the_exit_status(
    runs: list[CampaignRun], planned: int, retries: int, left: int, status: int
) -> None:
    """3 precedes 1: a suite with a repeat that was not measured has no answer."""
    found = figures(*runs, planned=planned, retries=retries)
    assert (found.left, found.exit_status) == (left, status)


def test_terms_record_changes_but_no_password() -> None:
    """Another scenario, command, order or comparison counts; another password or number of retries does not."""

    def terms(**keys: Any) -> dict[str, Any]:
        found = suite(**keys)
        return dict(to_json(replace(terms_of(found, scenarios_of(found, passwords=False)), retries=0)))

    accounts = {"accounts.user": "user{index}", "accounts.password": "hunter2-{index}"}
    first = terms(set=accounts)
    assert "hunter2" not in json.dumps(first)
    assert terms(set=accounts | {"accounts.password": "other-{index}"}, retries=5, stop_after=9) == first
    for changed in ({"repeats": 4}, {"seed": 2}, {"pause": "1s"}, {"before": [{"run": ["sync"]}]}):
        assert terms(set=accounts, **changed) != first, changed
    assert terms(set=accounts | {"run.seed": 7}) != first
    pair = {"base": {"settings": "a"}, "new": {"settings": "b"}}
    compared = [
        terms(settings=[{"name": "a"}, {"name": "b"}], compare=[pair | limit])["compare"]
        for limit in ({}, {"max_regression": "5%"}, {"max_regression": "10%"})
    ]
    assert compared == [[["a", "b", None]], [["a", "b", 0.05]], [["a", "b", 0.1]]]
