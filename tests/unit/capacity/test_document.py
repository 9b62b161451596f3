"""The report on a capacity search."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import all_tables
from findings_of import codes
from finished_searches import WHOLE, capacity, missed

from loadsim.campaign.file import read_campaign, write
from loadsim.capacity.capacity import Capacity
from loadsim.capacity.document import describe_capacity
from loadsim.capacity.search import Found
from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.model.figures import Resource
from loadsim.report.document import Chart, Document, Link, Panel, Table
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown
from loadsim.report.text import to_text

FOUND = Found(1000, 1200, "criteria")


def searched(found: Found = FOUND, **options: Any) -> Capacity:
    return capacity(found, (500, "passed"), (1000, "passed"), (1200, "failed"), (2000, "undecided"), **options)


def described(found: Capacity) -> Document:
    return describe_capacity(found, ())


def table(document: Document, caption: str) -> Table:
    (found,) = (one for one in all_tables(document) if one.caption.startswith(caption))
    return found


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, {"validity": "invalid"}),
        (0, {"broken": True}),
        (0, {"findings": [missed("failed_share", "2 %", "at most 1 %").document]}),
        (-1, {"findings": []}),
        (-1, {"result": "undecided", "broken": True, "findings": []}),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(tmp_path: Path, at: int, change: dict[str, Any]) -> None:
    """One that passed, with a reason why it did not; one that failed, without any."""
    document = json.loads(json.dumps(WHOLE.document))
    document["runs"][at] |= change
    (tmp_path / "campaign.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="found something else"):
        read_campaign(tmp_path, Capacity)


@pytest.mark.parametrize("key", ["name", "software"])
def test_control_characters_of_a_file_are_escaped_in_reports(tmp_path: Path, key: str) -> None:
    document = json.loads(json.dumps(WHOLE.document))
    document["terms"][key] = "a\x1b]0;owned\x07\u202eb"
    (tmp_path / "campaign.json").write_text(json.dumps(document))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "r.md")]) == 0
    shown = (tmp_path / "r.md").read_text()
    assert "owned" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    ("found", "runs", "tone"),
    [
        (FOUND, 5, "good"),
        (FOUND, 2, "doubtful"),
        (Found(None, 1200, "criteria"), 5, "bad"),
        (Found(1000, None, "generator"), 5, "doubtful"),
        (Found(1000, None, "limit"), 5, "doubtful"),
        (Found(500, 1200, "noise"), 5, "doubtful"),
    ],
)
def test_only_a_capacity_with_an_interval_has_a_good_tone(found: Found, runs: int, tone: str) -> None:
    of_search = searched(found, runs=runs)
    document = described(of_search)
    assert document.tone == tone
    assert document.verdict.lower() == "; ".join(one.words for one in of_search.answer).lower()


def test_the_embedded_server_never_has_a_good_tone() -> None:
    found = searched()
    document = described(replace(found, terms=replace(found.terms, embedded=True)))
    assert document.tone == "doubtful"
    assert Code.EMBEDDED in document.codes


def drawn(document: Document) -> list[Chart]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, Chart)]


def test_results_have_their_marks_and_limits_are_drawn() -> None:
    document = described(searched(interval_ms=(900.0, 1050.0)))
    charts = drawn(document)
    chart = charts[0]
    assert [(line.name, line.look) for line in chart.panels[0].lines] == [
        ("median", None),
        ("failed", 1),
        ("passed", 2),
        ("undecided", 3),
    ]
    assert [limit.value for panel in chart.panels for limit in panel.limits] == [1000, 5000]
    assert [each.shaded for each in charts] == [(925, 1297)] * 2
    page = to_html(document)
    assert all(f'href="#m{number}"' in page for number in range(4))
    assert page.count('<line class="line c2') >= 10  # an interval at each pass
    assert all(f"</svg>limit of the {name}</li>" in page for name in ("score: 1,000 ms", "response score: 5,000 ms"))
    assert "<script" not in page and "http://" not in page and "https://" not in page


def of_validity(validity: str | None, *places: int) -> Capacity:
    """A search in which the runs at these places have another validity."""
    found = searched()
    steps = [replace(one, validity=validity) if number in places else one for number, one in enumerate(found.runs)]
    return replace(found, runs=tuple(steps))  # five runs each with 500, 1,000, 1,200 and 2,000 users


def test_the_line_of_times_ends_before_the_first_invalid_run() -> None:
    """Its point is hollow. The line of the throughput goes on: it is no time."""
    found = of_validity("invalid", 10, *range(15, 20))
    charts = drawn(described(found))
    times, rates = charts[0].panels[0], charts[1].panels[0]

    def last(panel: Panel) -> float:
        median = panel.lines[0].values
        return max(at for at, value in zip(charts[0].axis.positions, median, strict=True) if value is not None)

    assert (last(times), last(rates)) == (1000, 2000)
    hollow = [line for line in times.lines if line.hollow]
    assert [(line.name, line.look) for line in hollow] == [("failed, run invalid", 1), ("undecided, run invalid", 3)]
    assert len([value for value in hollow[0].values if value is not None]) == 1
    assert 'class="c1 hollow" href="#m1"' in to_html(described(found))


def test_no_table_has_a_time_of_an_invalid_run() -> None:
    found = of_validity("invalid", *range(15, 20))
    document = described(found)
    runs = table(document, "The runs")
    places = [n for n, column in enumerate(runs.columns) if column.title in ("Score", "Response score")]
    assert [row[place] == "not shown" for row in runs.rows for place in places] == [False] * 30 + [True] * 10
    figures = table(document, "Response time")
    assert [any(isinstance(cell, float) for cell in row[1:]) for row in figures.rows] == [True] * 15 + [False] * 5
    last = [line for line in to_text(describe_capacity(found, ()), 200).splitlines() if line.startswith("2000 users")]
    assert len(last) == 5 and all("not shown" in line for line in last)


def contended(*others: float | None, **changes: Any) -> Capacity:
    """A search in which others took these parts of the server's cores, by the place of the run."""
    found = searched()
    shares = [*others, *[None] * (len(found.runs) - len(others))]
    steps = [replace(step, taken_share=share, **changes) for step, share in zip(found.runs, shares, strict=True)]
    return replace(found, runs=tuple(steps))


@pytest.mark.parametrize(
    ("others", "doubtful"),
    [
        ((0.9,) * 5, False),  # 500 users decided nothing
        ((*[None] * 5, 0.3, 0.3, 0.3, 0.25, 0.1), True),
        ((*[None] * 5, 0.3, 0.3, 0.25, 0.25, 0.1), False),
        ((*[None] * 10, 0.3, 0.3, 0.3), True),
    ],
)
def test_an_answer_from_contended_runs_is_doubtful(others: tuple[float | None, ...], doubtful: bool) -> None:
    """If most runs at an end of the interval have it. The doubts count all runs, and the exit status stays."""
    found = contended(*others)
    document, text = described(found), " ".join(to_text(describe_capacity(found, ()), 80).split())
    assert (document.tone, found.exit_status) == ("doubtful" if doubtful else "good", 0)
    assert found.document["contended"] is doubtful
    assert (Code.CORES_CONTENDED in codes(found.answer)) is doubtful
    taken = [share for share in others if share is not None and share > 0.1]
    shares = " to ".join(f"{100 * end:.0f} %" for end in sorted({min(taken), max(taken)}))
    assert re.search(rf"In {len(taken)} of 20 runs: [^.]* took {shares} of [^.]*\[cores-taken\]", text)


def test_steps_lead_to_their_runs_and_name_both_kinds_of_users() -> None:
    document = described(searched(runs=1))
    steps = table(document, "The runs")
    titles = [column.title for column in steps.columns]
    assert titles.index("8-hour equivalent, in users") > titles.index("Cell")
    assert [(row[5], row[0], row[1]) for row in steps.rows][:3] == [
        ("runs/00500-1", "500 users", "\N{CHECK MARK} passed"),
        ("runs/01000-1", "1000 users", "\N{CHECK MARK} passed"),
        ("runs/01200-1", "1200 users", "\N{MULTIPLICATION SIGN} failed"),
    ]
    assert isinstance(steps.rows[0][5], Link)
    assert '<a href="runs/00500-1/">runs/00500-1</a>' in to_html(document)
    assert "[runs/00500-1](runs/00500-1/)" in to_markdown(document)


def test_links_of_a_report_in_another_directory_lead_to_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "a search"
    directory.mkdir()
    write(replace(searched(runs=5), directory=directory))
    (tmp_path / "reports").mkdir()
    for out in (directory / "report.html", tmp_path / "reports" / "of it.html"):
        assert main(["report", str(directory), "-o", str(out)]) == 0
        links = re.findall(r'<a href="([^"]*)/">', out.read_text())
        assert links and all(
            (out.parent / link.replace("%20", " ")).resolve().is_relative_to(directory) for link in links
        )
    assert main(["report", str(directory)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(directory / "report.html")


def test_the_resources_are_those_of_the_smallest_failure(tmp_path: Path) -> None:
    """In the text, the report and the file, from which they come back; without a failure, those of the capacity."""
    resources = tuple(
        Resource(name, "mx1", True, "host", figure, share, share)
        for name, figure, share in (("processor", "cpu_busy_share", 0.97), ("disk vda", "disk_vda_busy_share", 0.1))
    )
    found = replace(
        capacity(Found(1000, 1100, "criteria"), (1000, "passed"), (1100, "failed"), resources=resources),
        directory=tmp_path,
    )
    line = "Nearest to full on mx1, where the server is, with 1,100 users: processor 97 % (95th 97 %), disk vda 10 %"
    assert line in " ".join(to_text(describe_capacity(found, ()), 80).split())
    of_failure = table(described(found), "Resources with 1,100 users (runs/01100-1)")
    assert "Figure" not in [column.title for column in of_failure.columns]
    assert [row[:3] for row in of_failure.rows] == [
        ("processor", "mx1, where the server is", 97.0),
        ("disk vda", "mx1, where the server is", 10.0),
    ]
    write(found)
    again = read_campaign(tmp_path, Capacity)
    assert again.document["resources"][0]["name"] == "processor"
    assert again.document == found.document
    passed = capacity(Found(1000, None, "limit"), (1000, "passed"), resources=resources)
    assert passed.nearest_to_full is not None and passed.nearest_to_full.users == 1000
    assert capacity(Found(1000, 1100, "criteria"), (1000, "passed"), (1100, "failed")).document["resources"] is None


@pytest.mark.parametrize(("second", "titles"), [("host", ""), ("host/b", ", host")])
def test_resources_of_several_probes_have_distinct_columns(second: str, titles: str) -> None:
    resources = tuple(replace(WHOLE.runs[0].resources[0], probe=probe) for probe in ("host", second))
    found = described(replace(WHOLE, runs=(replace(WHOLE.runs[0], resources=resources), *WHOLE.runs[1:])))
    columns = [each.title for each in table(found, "The server's resources in each run").columns]
    assert f"processor (% of full){titles}" in columns


def test_an_unfinished_search_has_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(replace(searched(), directory=tmp_path, found=None))
    assert main(["report", str(tmp_path)]) == 2
    assert (
        "expected a finished search, found one with 20 runs so far; the same loadsim capacity command resumes it"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "report.html").exists()
