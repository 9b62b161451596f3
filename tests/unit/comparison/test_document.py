"""The report on a comparison: what a reader of its first screen learns, and that names of others stay text."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pytest
from compared_runs import three, write_run
from documents import section, table, tables

from loadsim.cli import main
from loadsim.comparison.comparison import compare_runs
from loadsim.comparison.document import describe_comparison
from loadsim.findings.catalogue import Code
from loadsim.report.document import Document
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown


def described(base: Sequence[Path], new: Sequence[Path], **options: Any) -> Document:
    return describe_comparison(compare_runs(base, new, **options))


def with_scenario(place: Path, scenario: Mapping[str, Any]) -> Path:
    (place / "scenario.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    return place


def test_the_verdict_and_the_figures_are_those_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """READ takes 20 % longer: the title, the sentence and the rows agree with `--json`, and the sections follow."""
    base, new = three(tmp_path, "base", 102), three(tmp_path, "new", 122.4, (52.02, 51, 50))
    command = ["compare", "--base", *map(str, base), "--new", *map(str, new), "--max-regression", "5%"]
    report = described(base, new, max_regression=0.05)
    assert report.title == "sample, 2 users: new against base"
    assert report.subtitle == "Base: 3 runs on mail.example; New: 3 runs on mail.example"
    assert report.banner == "Failed: new is slower: 1.191 times as long (95 % CI 1.133 to 1.251); at most 1.05 allowed"
    assert [one.title for one in report.sections] == ["Tasks", "Findings", "What differs", "Runs", "Disclosure"]
    file = tmp_path / "c.html"
    assert main([*command, "--json", "--report", str(file)]) == 1
    assert escape(report.banner) in file.read_text("utf-8")
    figures = json.loads(capsys.readouterr().out)
    rows = table(report, "95th")
    for one in (*figures["tasks"], *figures["scores"]):
        ratio, _, result, _, *times = rows[one["name"]][:6]
        assert (ratio, *times) == (one["ratio"], one["base_ms"], one["new_ms"])
        assert result == (one["change"] or "no difference")
    assert rows["READ"][1] == "1.147 to 1.255"


def test_single_runs_are_inconclusive(tmp_path: Path) -> None:
    """Twice the time, and no word of significance; the next step are more runs."""
    found = described([write_run(tmp_path, "b", 100, 50)], [write_run(tmp_path, "n", 200, 100)])
    assert found.banner == "Inconclusive: new took 2.000 times as long, with a single run on a side"
    assert found.tone == "doubtful"
    assert f"Next: {Code.FEW_RUNS.remedy}." in section(found, "Findings")
    assert {row[2] for row in table(found, "95th").values()} == {"inconclusive"}


def test_differences_are_shown_by_side(tmp_path: Path) -> None:
    """Server, software, and the keys of the scenarios; not what is the same, nor what a secret is."""
    base = [
        with_scenario(
            run, {"server": {"imap": {"host": "10.0.0.5"}}, "accounts": {"password": "hunter2"}, "run": {"seed": 1}}
        )
        for run in three(tmp_path, "base", 102)
    ]
    new = [
        with_scenario(
            write_run(tmp_path, f"n{at}", 100.0 + at, server="mail.test", software="loadsim 0.2.0", hour=2 * at + 1),
            {
                "server": {"imap": {"host": "10.0.0.6", "port": 993}},
                "accounts": {"password": "hunter3"},
                "run": {"seed": 1},
            },
        )
        for at in range(3)
    ]
    found = described(base, new)
    (differences,) = tables(section(found, "What differs"))
    assert differences.rows == (
        ("Server", "Base", "mail.example"),
        ("Server", "New", "mail.test"),
        ("Software", "Base", "loadsim 0.1.0"),
        ("Software", "New", "loadsim 0.2.0"),
        ("Scenario key server.imap.host", "Base", "10.0.0.5"),
        ("Scenario key server.imap.host", "New", "10.0.0.6"),
        ("Scenario key server.imap.port", "Base", "not set"),
        ("Scenario key server.imap.port", "New", "993"),
    )
    text = to_html(found) + to_markdown(found)
    assert "hunter" not in text
    assert table(found, "The same")["Users"] == ("2, each with their own session",)
