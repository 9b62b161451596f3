"""The report on a comparison: what a reader of its first screen learns, and that names of others stay text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from compared_runs import HEADER, three, write_run
from timing_samples import ENDED, done, ms, write_sample

from loadsim.analysis.compare_runs import compare_runs
from loadsim.cli import main
from loadsim.report.compare_report import describe_comparison
from loadsim.report.differences import Facts, between, differing_table
from loadsim.report.document import Document, Drawing, Listing, Table
from loadsim.report.html import policy, to_html
from loadsim.report.markdown import to_markdown
from loadsim.report.style import STYLE

Capture = pytest.CaptureFixture[str]

HOSTILE = "<script>alert(1)</script>&<b>"


def described(base: Sequence[Path], new: Sequence[Path], **options: Any) -> Document:
    """The report on a comparison."""
    return describe_comparison(compare_runs(base, new, **options))


def section(document: Document, title: str) -> Sequence[Any]:
    """The blocks of a section."""
    (found,) = (one for one in document.sections if one.title == title)
    return found.blocks


def table(document: Document, title: str, caption: str) -> Mapping[Any, Sequence[Any]]:
    """The rows of a table of a section, by their first cells."""
    (found,) = (one for one in section(document, title) if isinstance(one, Table) and one.caption.startswith(caption))
    return {row[0]: row[1:] for row in found.rows}


def listed(document: Document, caption: str) -> tuple[str, ...]:
    """The items of a list of the first screen."""
    (found,) = (
        one for one in section(document, "Summary") if isinstance(one, Listing) and one.caption.startswith(caption)
    )
    return found.items


def next_step(document: Document) -> str:
    """The advice of the first screen."""
    (found,) = (one for one in section(document, "Summary") if str(one).startswith("What to do next: "))
    return str(found)


def with_scenario(place: Path, scenario: Mapping[str, Any]) -> Path:
    """A run directory with a scenario."""
    (place / "scenario.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    return place


# --- the first screen -------------------------------------------------------------------------------------------


def test_the_verdict_and_the_figures_are_those_of_the_command(tmp_path: Path, capsys: Capture) -> None:
    """READ takes 20 % longer: the title, the sentence and the rows agree with `--json`, and the sections follow."""
    base, new = three(tmp_path, "base", 102), three(tmp_path, "new", 122.4, (52.02, 51, 50))
    file = tmp_path / "c.json"
    command = ["compare", "--base", *map(str, base), "--new", *map(str, new), "--max-regression", "5%"]
    assert main([*command, "--report", str(file)]) == 1
    out = capsys.readouterr().out
    report = json.loads(file.read_text("utf-8"))
    assert report["title"] == "sample, 2 users: new against base"
    assert report["subtitle"] == "Base: 3 runs on mail.example; New: 3 runs on mail.example"
    assert report["verdict"] == "Failed: new is slower by 19 % (95 % CI 13 to 25 %); at most 5 % allowed"
    assert out.startswith(f"Verdict: f{report['verdict'][1:]}\n") and out.endswith(f"Report: {file}\n")
    assert [one["title"] for one in report["sections"]] == [
        "Summary",
        "Tasks",
        "Runs",
        "How to read this",
        "Disclosure",
    ]
    main([*command, "--json", "--report", str(file)])
    figures = json.loads(capsys.readouterr().out)
    rows = {row[0]: row for row in report["sections"][1]["tables"][0]["rows"]}
    for one in (*figures["tasks"], *figures["scores"]):
        assert rows[one["name"]][1:4] == [one["base_ms"], one["new_ms"], one["ratio"]]
        assert rows[one["name"]][5] == (one["change"] or "none shown")
    assert rows["READ"][4] == "1.147 to 1.255"


def test_two_runs_of_each_are_no_answer(tmp_path: Path) -> None:
    """No difference is shown, but then, hardly any could be."""
    base, new = ([write_run(tmp_path, f"{side}{at}", 100 + at) for at in (1, 2)] for side in "bn")
    assert "run each at least three times, better five, taking turns: only repeated runs" in next_step(
        described(base, new)
    )


def test_a_ratio_beyond_the_chart_is_a_triangle(tmp_path: Path) -> None:
    """READ takes 50 times as long, SEND the same."""
    base, new = three(tmp_path, "base", 102), three(tmp_path, "new", 5100)
    (chart,) = (one for one in section(described(base, new), "Tasks") if isinstance(one, Drawing))
    read, send, *_ = chart.html.split("</div>")
    assert "<path " in read and "<circle " not in read
    assert "<circle " in send and "<path " not in send
    assert chart.caption.endswith("; triangles: beyond the axis")


def test_single_runs_are_inconclusive(tmp_path: Path) -> None:
    """Twice the time, and no word of significance; the next step are more runs."""
    found = described([write_run(tmp_path, "b", 100, 50)], [write_run(tmp_path, "n", 200, 100)])
    assert found.verdict == "Inconclusive: new took 2.000 times as long, with a single run on a side"
    assert (found.tone, "at least three times" in next_step(found)) == ("doubtful", True)
    assert {row[4] for row in table(found, "Tasks", "95th").values()} == {"inconclusive"}
    (chart,) = (each for each in section(found, "Tasks") if isinstance(each, Drawing))
    assert chart.caption.startswith("New / Base with no confidence interval, as a side has a single run; right of 1")


def test_a_forced_comparison_is_never_good(tmp_path: Path) -> None:
    """It says first that the runs are not comparable, and lists each reason once."""
    base = three(tmp_path, "base", 102)
    new = [write_run(tmp_path, f"n{at}", 80.0 + at, plan_digest="p2") for at in range(3)]
    found = described(base, new, force=True)
    assert found.verdict.startswith("Not comparable; new is faster by ")
    assert found.tone == "bad"
    (reason,) = listed(found, "Warning (--force)")
    assert reason.startswith("plan_digest: ")
    assert to_markdown(found).count("expected the same in all runs, or each") == 1
    assert "the ratios prove nothing" in next_step(found)


def test_fewer_answers_are_no_speed(tmp_path: Path) -> None:
    """A side whose tasks failed is not called faster, in no row and in no sentence; both failure rates are there."""

    def runs(side: str, read_ms: float, failed: int, turn: int) -> list[Path]:
        ok = [done("READ", 900 * at, read_ms) for at in range(100 - failed)]
        bad = [done("READ", 900 * at + 100, 3, outcome="refused", error="NO") for at in range(failed)]
        return [write_run(tmp_path, f"{side}{at}", tasks=ok + bad, hour=2 * at + turn) for at in range(3)]

    found = described(runs("b", 100, 0, 0), runs("n", 60, 50, 1))
    assert "faster" not in found.verdict
    assert "new has a higher failure rate than base" in found.verdict
    row = table(found, "Tasks", "95th")["READ"]
    assert (row[4], row[5], row[6]) == ("higher failure rate in new", 0, 50)
    assert "slow or failed tasks" in next_step(found)


# --- what differs -----------------------------------------------------------------------------------------------


def test_what_differs_is_told_by_side(tmp_path: Path) -> None:
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
    assert table(found, "Summary", "What differs") == {
        "Server": ("mail.example", "mail.test"),
        "Software": ("loadsim 0.1.0", "loadsim 0.2.0"),
        "Scenario key server.imap.host": ("10.0.0.5", "10.0.0.6"),
        "Scenario key server.imap.port": ("not set", "993"),
    }
    text = to_html(found) + to_markdown(found)
    assert "hunter" not in text
    assert table(found, "Disclosure", "The same")["Users"] == ("2, each with their own session",)


def test_nothing_that_is_known_differs(tmp_path: Path) -> None:
    """It is said, because the reader expects a difference."""
    found = described(three(tmp_path, "base", 102), three(tmp_path, "new", 102))
    assert any("have the same server, settings, machines and versions" in str(one) for one in section(found, "Summary"))


def test_other_load_on_the_machines_is_shown(tmp_path: Path) -> None:
    """Of runs that differ in nothing else."""
    runs = {"b": write_run(tmp_path, "b"), "n": write_run(tmp_path, "n")}
    for (name, run), share in zip(runs.items(), (0.52, 0.75), strict=True):
        sample = {"at_ns": ms(1000), "core_shares": [share], "cpu_share": share, "stolen_share": 0.0}
        sample |= {"memory_available_bytes": 2**30, "segments_sent": 5, "segments_sent_again": 0}
        header = HEADER | {"run": name, "engine": "machine", "engine_users": 0}
        write_sample(run / "logs" / "c1.machine.tlog", [], header=header, health=[sample])
    found = table(described([runs["b"]], [runs["n"]]), "Runs", "The runs")
    assert [row[-1] for row in found.values()] == ["52", "75"]


def test_values_of_both_sides() -> None:
    """What varies alike on both sides is no difference between them; of lists, what differs; many are counted."""
    facts: Facts = {
        "Seed": ["1", "2", "2", "1"],
        "Libraries": [
            "numpy 2.1, uvloop 0.2",
            "numpy 2.1, uvloop 0.2",
            "numpy 2.2, uvloop 0.2",
            "numpy 2.2, uvloop 0.2",
        ],
        "Capabilities": ["A, B", "A, B", "A, B, C", "A, B, C"],
        "Order": ["A, B", "A, B", "B, A", "B, A"],
        "Greeting": ["a", "b", "c", "d"],
    }
    assert between(facts, 2) == [
        ("Libraries", "numpy 2.1", "numpy 2.2"),
        ("Capabilities", "nothing more", "C"),
        ("Order", "A, B", "B, A"),
        ("Greeting", "a / b", "c / d"),
    ]
    assert between({"Greeting": ["a", "b", "c", "d", "e", "f"]}, 5) == [("Greeting", "a / b / c / 2 more", "f")]
    versions = {"Libraries": ["a 1, b 1, c 1", "a 1, b 2, c 1", "a 1, b 2, c 2"]}
    assert [row[1] for row in differing_table(versions, "xyz").rows] == ["b 1, c 1", "b 2, c 1", "b 2, c 2"]
    assert between(versions, 1) == [("Libraries", "b 1, c 1", "b 2, c 1 / b 2, c 2")]
    assert differing_table({"Seed": ["1", "2", "1"]}, ["x", "y", "z"]).rows == (
        ("Seed", "1", "x, z"),
        ("Seed", "2", "y"),
    )


def test_each_run_has_its_verdict_and_load(tmp_path: Path) -> None:
    """In the order given, with the side; an invalid run that was forced is named as such."""
    base = [write_run(tmp_path, "b1", 100), write_run(tmp_path, "b2", 2000)]
    new = [write_run(tmp_path, "n1", 100, limits={"hits": 6}, hour=9)]
    rows = table(described(base, new, force=True), "Runs", "The runs")
    assert {name: row[:3] for name, row in rows.items()} == {
        "b1": ("Base", "2026-01-05 08:00:00 UTC", "Valid, criteria met"),
        "b2": ("Base", "2026-01-05 08:00:00 UTC", "Valid, criteria missed"),
        "n1": ("New", "2026-01-05 09:00:00 UTC", "Invalid, criteria not judged"),
    }


# --- the chart --------------------------------------------------------------------------------------------------


def drawn(document: Document) -> dict[str, list[float]]:
    """By task, the places of the lines' ends and the point in the chart, in per cent."""
    (chart,) = (one for one in section(document, "Tasks") if isinstance(one, Drawing))
    rows = re.findall(r'aria-label="(.*?): .*?>(<line.*?)</svg>', chart.html)
    return {name: [float(at) for at in re.findall(r'[xc]+[12]?="([\d.]+)%"', marks)] for name, marks in rows}


def test_the_chart_has_each_interval_at_its_place(tmp_path: Path) -> None:
    """On a logarithmic axis: equal ratios are equal distances; the limit is where a ratio of 1.05 would be."""
    found = described(three(tmp_path, "base", 102), three(tmp_path, "new", 122.4, (52.02, 51, 50)), max_regression=0.05)
    rows = drawn(found)
    assert list(rows) == ["READ", "SEND", "Score", "Response score"]
    one, _, limit, _, low, high, ratio = rows["READ"]
    scale = (ratio - one) / math.log(1.2)
    for at, of in ((limit, 1.05), (low, 1.147), (high, 1.255)):
        assert at - one == pytest.approx(scale * math.log(of), abs=scale * 0.001)
    assert rows["SEND"][6] == pytest.approx(one, abs=0.1)
    assert all(0 < at < 100 for each in rows.values() for at in each)
    (chart,) = (each for each in section(found, "Tasks") if isinstance(each, Drawing))
    assert 'aria-label="READ: 1.200 (1.147 to 1.255)"' in chart.html
    assert chart.caption == (
        "New / Base with its 95 % confidence interval; right of 1, new is slower; dashed: the limit of 1.05"
    )
    assert re.findall(r'<svg class="(\w+)" role="img" aria-label="(\w+):', chart.html) == [
        ("slower", "READ"),
        ("slower", "Score"),
    ]


def test_a_ratio_right_of_1_is_marked(tmp_path: Path) -> None:
    """New takes a third of the time; without a tick above 1, the limit of 1.02 could not be read."""
    found = described(three(tmp_path, "base", 300), three(tmp_path, "new", 100), max_regression=0.02)
    (chart,) = (each for each in section(found, "Tasks") if isinstance(each, Drawing))
    (ticks,) = re.findall('aria-label="Axis: ([^"]+)"', chart.html)
    assert [float(tick) > 1 for tick in ticks.split(", ")] == [False, False, False, True], ticks


@pytest.mark.parametrize(
    ("base_ms", "new_ms"), [((5, 100), (5, 100)), ((1, 100_000), (100_000, 1)), ((1, 1), (9e5, 9e5))]
)
def test_wild_intervals_stay_in_the_chart(tmp_path: Path, base_ms: Sequence[float], new_ms: Sequence[float]) -> None:
    """Ends and points beyond a tenth or tenfold are at its edges."""
    base, new = (
        [write_run(tmp_path, f"{side}{at}", ms, ms) for at, ms in enumerate(times)]
        for side, times in (("b", base_ms), ("n", new_ms))
    )
    assert all(0 <= at <= 100 for each in drawn(described(base, new)).values() for at in each)


# --- the page ---------------------------------------------------------------------------------------------------


def test_names_of_others_are_text(tmp_path: Path) -> None:
    """Names of servers, runs, tasks, scenarios and keys are escaped, in HTML and in Markdown."""

    def run(name: str, server: str, turn: int) -> Path:
        tasks = [done(HOSTILE, 1000 * at, 100) for at in range(1, 6)]
        place = write_run(
            tmp_path,
            name,
            tasks=tasks,
            run=f"{name}{HOSTILE}",
            name=HOSTILE,
            server=server,
            weights={HOSTILE: 1},
            hour=turn,
            facts=ENDED | {"log_on_methods": [server]},
        )
        return with_scenario(place, {HOSTILE: server})

    found = described(
        [run("b1", HOSTILE, 1), run("b2", HOSTILE, 3)], [run("n1", HOSTILE * 2, 2), run("n2", HOSTILE * 2, 4)]
    )
    page, text = to_html(found), to_markdown(found)
    assert "<script" not in page and "<b>" not in page
    assert page.count("&lt;script&gt;") > 5
    assert policy(STYLE) in page
    assert "<script" not in text and "<b>" not in text
