"""The report on a capacity search.

Seen from outside, it could be wrong in these ways, and each has a test: its first sentence says more than the search
found, or hides what its runs warn of; passes and failures differ by colour alone, or look otherwise in another report;
the limit or an interval is not drawn; a time of an invalid run is quoted; a link leads nowhere, or to a place that a
damaged file names; the two kinds of users are mixed up; a text of a server becomes markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finished_searches import capacity
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loadsim.analysis.campaign import Average, CampaignRun, Criterion
from loadsim.analysis.capacity import Capacity, Refused
from loadsim.analysis.capacity_search import Found
from loadsim.analysis.criteria import missed_texts
from loadsim.analysis.resources import Resource
from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.report.campaign_runs import run_text
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.capacity_text import capacity_text
from loadsim.report.capacity_words import doubts, facts
from loadsim.report.document import Chart, Document, Link, Panel, Table, tables, to_json
from loadsim.report.figure_words import reason_in_words
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown
from loadsim.runs.campaign_file import read_campaign, resumed, write

FOUND = Found(1000, 1200, "criteria")


def searched(found: Found = FOUND, **options: Any) -> Capacity:
    return capacity(found, (500, "pass"), (1000, "pass"), (1200, "fail"), (2000, "undecided"), **options)


def described(found: Capacity) -> Document:
    return describe_capacity(found, (), {})


def table(document: Document, caption: str) -> Table:
    blocks = [block for section in document.sections for block in section.blocks]
    (found,) = (one for one in tables(blocks) if one.caption.startswith(caption))
    return found


# --- files of others ---

OWN = Resource("processor", "mx1", True, "host", "cpu_busy_share", 0.5, 0.7, 1.0, 0.5)
OF_READ = (Criterion("tasks.READ.p95_ms", None, 100.0, None, 90.0, each=False),)
SEARCHED = capacity(FOUND, (1000, "pass"), (1200, "fail"), resources=(OWN,), interval_ms=(1.0, 2.0))
WHOLE = replace(
    SEARCHED,
    runs=tuple(
        replace(
            step,
            averages=(Average("host", "cpu_busy_share", 0.5),),
            criteria=OF_READ,
            warnings=("90% taken",),
            load_share=0.97,
            received_share=0.7,
            taken_share=0.6,
        )
        for step in SEARCHED.runs
    ),
    refused=(Refused(2000, "too few hits"),),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value of a document."""
    yield path
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(below, (*path, key))


PLACES = list(places(json.loads(json.dumps(WHOLE.document))))
NUMBERS = (0, -1, 1, 2**70, 10**400, 0.0, -0.5, 1e-320, 1e308, *(float(each) for each in ("nan", "inf", "-inf")))
TEXTS = ("", "inf", "nan", "pass", "\x1b]0;x\x07")
ANYTHING = st.sampled_from([None, True, *NUMBERS, *TEXTS, [], {}, [None], [1, 2, 3], [[]], {"users": 1}])


def damaged(place: tuple[Any, ...], value: Any) -> str:
    """The text of a file in which one value is another."""
    document: Any = {"": json.loads(json.dumps(WHOLE.document))}
    *above, last = ("", *place)
    holder = document
    for key in above:
        holder = holder[key]
    holder[last] = value
    return json.dumps(document[""])


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), ANYTHING)
@example(("runs", 9, "resources", 0, "probe"), "\x1b]0;x\x07")
def test_a_damaged_file_is_refused_in_a_line_or_makes_a_report(
    tmp_path: Path, place: tuple[Any, ...], value: Any
) -> None:
    (tmp_path / "campaign.json").write_text(damaged(place, value))
    try:
        found = read_campaign(tmp_path)
        assert isinstance(found, Capacity)
    except ConfigError as error:
        assert len(error.lines) == 1
    else:
        document = describe_capacity(found, (), {})
        for text in (to_markdown(document), to_html(document), capacity_text(found, 80), json.dumps(to_json(document))):
            assert "\x1b" not in text and "\x07" not in text
    with suppress(ConfigError):
        resumed(tmp_path, WHOLE.terms)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("runs", 0, "score_ms"), float("nan")),
        (("runs", 0, "tasks_per_s"), float("inf")),
        (("runs", 0, "score_ms"), "nan"),
        (("runs", 0, "score_interval_ms", 1), "inf"),
        (("runs", 0, "resources", 0, "full"), 0),
        (("runs", 0, "users"), 2**70),
        (("users",), None),
        (("users",), 1200),
        (("users",), 900),
        (("failed_users",), None),
        (("failed_users",), 1000),
        (("terms",), {}),
        (("stopped_by",), "luck"),
        (("users",), "many"),
        (("runs",), [{}]),
        (("runs",), None),
        (("runs", 0, "run"), "../../etc"),
        (("runs", 0, "run"), "javascript:alert(1)"),
        (("runs", 0, "result"), "great"),
        (("runs", 0, "score_ms"), "never"),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    whole = replace(WHOLE, directory=tmp_path)
    write(whole)
    assert read_campaign(tmp_path) == whole
    text = damaged(place, value)
    if place == ("users",) and value is None:  # neither end
        text = json.dumps(json.loads(text) | {"failed_users": None})
    (tmp_path / "campaign.json").write_text(text)
    with pytest.raises(ConfigError, match=r"expected a search or suite of loadsim, found something else") as refused:
        read_campaign(tmp_path)
    assert len(refused.value.lines) == 1
    if place[0] == "steps":
        with pytest.raises(ConfigError, match="expected a search or suite of loadsim"):
            resumed(tmp_path, WHOLE.terms)


def test_a_file_of_many_levels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text("[" * 100_000)
    for read in (read_campaign, lambda directory: resumed(directory, WHOLE.terms)):
        with pytest.raises(ConfigError, match="expected a search or suite of loadsim"):
            read(tmp_path)


@pytest.mark.parametrize("key", ["name", "software"])
def test_terminal_controls_of_a_file_reach_no_report(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "campaign.json").write_text(damaged(("terms", key), "a\x1b]0;owned\x07\u202eb"))
    assert main(["report", str(tmp_path), "--format", "md"]) == 0
    shown = capsys.readouterr().out
    assert "owned" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


# --- the report ---


@pytest.mark.parametrize(
    ("found", "runs", "tone", "verdict"),
    [
        (FOUND, 5, "good", "1,000 users, interval 1,000 to 1,200: 1,200 users miss the criteria"),
        (FOUND, 2, "doubtful", "About 1,000 users: too few runs agree to state an interval"),
        (Found(None, 1200, "criteria"), 5, "bad", "None, 1,200 users miss the criteria"),
        (
            Found(1000, None, "generator"),
            5,
            "doubtful",
            "At least 1,000 users; the load generator was too slow for more",
        ),
        (Found(1000, None, "limit"), 5, "doubtful", "At least 1,000 users; 4,000 are the most of this search"),
        (Found(500, 1200, "noise"), 5, "doubtful", "Not decided, from 500 users to 1,200 users"),
    ],
)
def test_the_verdict_says_what_the_search_found(found: Found, runs: int, tone: str, verdict: str) -> None:
    document = described(searched(found, runs=runs))
    assert (document.tone, document.verdict) == (tone, verdict)
    assert any(str(block).startswith("What to do next: ") for block in document.sections[0].blocks)


def test_the_day_is_in_hours() -> None:
    """In the text and in each part of the report that states it."""
    found = searched()
    page = to_html(described(found))
    assert "28800" not in page
    assert page.count("a day of 8 h") >= 3  # subtitle, users and the equivalent
    assert "each with a day of 8 h, by the plan" in capacity_text(found, 200)


def test_the_embedded_server_is_never_good() -> None:
    found = searched()
    document = described(replace(found, terms=replace(found.terms, embedded=True)))
    assert document.tone == "doubtful"
    assert "this is no measurement of a server" in to_html(document)


def test_results_have_shapes_of_their_own_and_limits_are_drawn() -> None:
    document = described(searched(interval_ms=(900.0, 1050.0)))
    charts = [block for block in document.sections[1].blocks if isinstance(block, Chart)]
    chart = charts[0]
    assert [(line.name, line.look) for line in chart.panels[0].lines] == [
        ("median", None),
        ("failed", 1),
        ("passed", 2),
        ("undecided", 3),
    ]
    assert [limit.value for panel in chart.panels for limit in panel.limits] == [1000, 5000]
    assert [each.shaded for each in charts] == [(1000, 1200)] * 2
    page = to_html(document)
    assert all(f'href="#m{number}"' in page for number in range(4))
    assert page.count('<line class="line c2') >= 10  # an interval at each pass
    assert all(f"</svg>limit of the {name}</li>" in page for name in ("score: 1,000 ms", "response score: 5,000 ms"))
    assert "<script" not in page and "http://" not in page and "https://" not in page


def test_a_result_looks_the_same_without_the_others() -> None:
    """A pass without failures is not orange."""
    page = to_html(described(capacity(Found(1000, None, "limit"), (1000, "pass"))))
    assert 'class="c2" href="#m2"' in page and 'href="#m1"' not in page


def of_validity(validity: str | None, *places: int) -> Capacity:
    """A search in which the runs at these places have another validity."""
    found = searched()
    steps = [replace(one, validity=validity) if number in places else one for number, one in enumerate(found.runs)]
    return replace(found, runs=tuple(steps))  # five runs each with 500, 1,000, 1,200 and 2,000 users


@pytest.mark.parametrize(("invalid", "ends_at"), [((10, 11), 1200), ((10, 11, 12), 1000)])
def test_the_line_of_times_ends_where_most_runs_are_invalid(invalid: tuple[int, ...], ends_at: int) -> None:
    """Their points are hollow. The line of the throughput goes on: it is no time."""
    found = of_validity("invalid", *invalid, *range(15, 20))
    charts = [block for block in described(found).sections[1].blocks if isinstance(block, Chart)]
    times, rates = charts[0].panels[0], charts[1].panels[0]

    def last(panel: Panel) -> float:
        median = panel.lines[0].values
        return max(at for at, value in zip(charts[0].axis.positions, median, strict=True) if value is not None)

    assert (last(times), last(rates)) == (ends_at, 2000)
    hollow = [line for line in times.lines if line.hollow]
    assert [(line.name, line.look) for line in hollow] == [("failed, run invalid", 1), ("undecided, run invalid", 3)]
    assert len([value for value in hollow[0].values if value is not None]) == len(invalid)
    assert 'class="c1 hollow" href="#m1"' in to_html(described(found))


def test_an_invalid_run_is_slower_than_all_others() -> None:
    """It made less load: its own time must not lower the median."""
    found = of_validity("invalid", 10)
    steps = [replace(one, score_ms=1.0 if number == 10 else 100.0 * number) for number, one in enumerate(found.runs)]
    median = described(replace(found, runs=tuple(steps))).sections[1].blocks[1]
    assert isinstance(median, Chart)
    assert 1300.0 in median.panels[0].lines[0].values  # of 1,100, 1,200, 1,300, 1,400 and the invalid one


def test_no_table_has_a_time_of_an_invalid_run() -> None:
    found = of_validity("invalid", *range(15, 20))
    document = described(found)
    runs = table(document, "The runs")
    places = [n for n, column in enumerate(runs.columns) if column.title in ("Score", "Response score")]
    assert [row[place] == "not shown" for row in runs.rows for place in places] == [False] * 30 + [True] * 10
    figures = table(document, "Response time")
    assert [any(isinstance(cell, float) for cell in row[1:]) for row in figures.rows] == [True] * 15 + [False] * 5
    last = [line for line in capacity_text(found, 200).splitlines() if line.startswith("2,000")]
    assert len(last) == 5 and all(line.split()[3:5] == ["not", "shown"] and "#" not in line for line in last)


def test_the_load_made_is_drawn_if_it_is_less_than_that_of_a_valid_run() -> None:
    found = searched()
    for share, drawn in ((0.99, False), (0.97, True)):
        steps = tuple(replace(one, load_share=share if one.users == 1200 else 1.0) for one in found.runs)
        blocks = described(replace(found, runs=steps)).sections[1].blocks
        panels = [panel for block in blocks if isinstance(block, Chart) for panel in block.panels]
        limits = [panel.limits[0].value for panel in panels if panel.title == "Load made, share of the plan"]
        assert limits == ([98] if drawn else [])


# --- what its runs warn of ---

TAKEN = "{}% of the cores of mx-1 were taken, 4% by loadsim's engines, the rest by the server and other programs"


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
def test_an_answer_from_cores_that_others_took_is_doubtful(others: tuple[float | None, ...], doubtful: bool) -> None:
    """If most runs at an end of the interval have it. The doubts count all runs, and the exit status stays."""
    found = contended(*others)
    document, text = described(found), " ".join(capacity_text(found, 80).split())
    assert (document.tone, found.exit_status) == ("doubtful" if doubtful else "good", 0)
    assert found.document["contended"] is doubtful
    assert ("in doubt, since other work shared the server's cores" in document.verdict) is doubtful
    assert ("; in doubt, since other work" in text) is doubtful
    assert any(
        "do not take this number for the server's own" in str(block) for block in document.sections[0].blocks
    ) is (doubtful)
    taken = [share for share in others if share is not None and share > 0.1]
    low, high = (f"{100 * end:.0f}" for end in (min(taken), max(taken)))
    shares = low if low == high else f"{low} to {high}"
    assert (
        f"In {len(taken)} of 20 runs others than the server (programs, the kernel, virtual machines) took more than"
        f" 10 % of its cores ({shares} %)"
    ) in text


def test_warnings_with_signs_and_lists_are_grouped_as_they_read() -> None:
    """Clocks go back as well as forth; a comma after a number ends it; a run may have two of a kind."""
    found = searched()
    back = [(f"the clock went by -{step}.5 s",) for step in range(1, 4)]
    each = [*back, ("cores 5, 6 busy", "the clock went by +9.0 s"), ("cores 19, 6 busy",)]
    steps = [replace(one, warnings=texts) for one, texts in zip(found.runs, [*each, *[()] * 15], strict=True)]
    steps[0] = replace(steps[0], warnings=(*back[0], "the clock went by -8.0 s"))
    lines = [line for line in doubts(replace(found, runs=tuple(steps))) if line.startswith("In ")]
    assert lines == [
        "In 4 of 20 runs: the clock went by -8.0 to +9.0 s",
        "In 2 of 20 runs: cores 5 to 19, 6 busy",
    ]


def test_warnings_of_runs_are_a_sentence_each() -> None:
    """With the least and the greatest of each number; a name keeps its digits. Void runs do not count."""
    found = searched()
    each = [(TAKEN.format(share),) for share in (91, 98, 100)] + [("mx-2 sent 5 of 1,200 TCP segments again", "a")]
    steps = [replace(one, warnings=texts) for one, texts in zip(found.runs, [*each, *[()] * 16], strict=True)]
    steps[-1] = replace(steps[-1], result="void", warnings=(TAKEN.format(95),))
    found = replace(found, runs=tuple(steps))
    words = (
        f"In 3 of 19 runs: {TAKEN.format('91 to 100')}",
        "In 1 of 19 runs: mx-2 sent 5 of 1,200 TCP segments again",
        "In 1 of 19 runs: a",
    )
    assert [line for line in doubts(found) if line.startswith("In ")] == [*words]
    assert all(line in capacity_text(found, 500) for line in words)
    page = to_markdown(described(found))
    assert "3 of 19 runs: 91 to 100%" in page and described(found).tone == "good"


@pytest.mark.parametrize(
    ("score", "share", "is_contended"),
    [
        ({}, None, False),
        (
            {"probes": {"host": {"server_cores_taken_by_others": {"mean": 0.5}, "server_cores": {"mean": 2.0}}}},
            0.25,
            False,
        ),
        (
            {"probes": {"host@b": {"server_cores_taken_by_others": {"mean": 1.1}, "server_cores": {"mean": 2.0}}}},
            0.55,
            True,
        ),
        (
            {
                "probes": {
                    "host": {
                        "server_cores_taken_by_others": {"mean": 0.9},
                        "server_cores": {"mean": 2.0},
                        "server_cores_steal_share": {"mean": 0.1},
                    }
                }
            },
            0.55,
            True,
        ),
        (
            {"probes": {"host": {"server_cores_taken_by_others": {"mean": None}, "server_cores": {"mean": 2.0}}}},
            None,
            False,
        ),
        ({"machines": [{"shares_cpus": True}]}, None, True),
        ({"machines": [{"shares_cpus": True}], "embedded": True}, None, False),
        ({"machines": [{"server_here": True, "stolen_share": 0.06, "shares_cpus": False}]}, None, True),
        ({"machines": [{"server_here": False, "stolen_share": 0.06, "shares_cpus": None}]}, None, False),
    ],
)
def test_a_step_knows_who_else_used_the_servers_cores(
    score: dict[str, Any], share: float | None, is_contended: bool
) -> None:
    step = CampaignRun("runs/00100-1", "100 users", 100).with_score(SCORE | score)
    assert step.taken_share == (None if share is None else pytest.approx(share))
    assert step.contended is is_contended


SCORE: dict[str, Any] = {
    "verdict": {"validity": "valid", "passed": True, "reasons": [], "causes": [], "criteria": []},
    "score_ms": 10.0,
    "response_score_ms": 20.0,
    "tasks_per_s": 10.0,
    "window_s": [0.0, 60.0],
    "delivery": {"delivered": 1},
    "load_equivalent_users": 100,
    "by_protocol": {},
    "warnings": ["too warm"],
    "received_share": 0.8,
    "load": {"share": 0.99},
}


# --- what the users are ---


def test_each_user_of_a_compressed_day_states_their_load() -> None:
    """First of all facts, next to the verdict, and with the mail that users receive."""
    found = searched()
    steps = tuple(replace(one, load_equivalent_users=30 * one.users, received_share=0.75) for one in found.runs)
    short = replace(found, runs=steps, terms=replace(found.terms, day_s=960.0, compression=30))
    assert facts(short)[0] == (
        "Users",
        "each makes the load of about 30 users with a day of 8 h; their day has 16 min, 30 times as fast as their"
        " profile's, by the plan of run.seed 1",
    )
    assert ("8-hour equivalent", "30,000 users with a day of 8 h, who receive 75 % of the published mail") in facts(
        short
    )
    assert facts(found)[0] == ("Users", "each with a day of 8 h, by the plan of run.seed 1")
    assert ("8-hour equivalent", "1,000 users with a day of 8 h") in facts(found)


def test_without_evidence_no_interval_is_shaded() -> None:
    charts = [block for block in described(searched(runs=2)).sections[1].blocks if isinstance(block, Chart)]
    assert [chart.shaded for chart in charts] == [None, None]


def test_steps_lead_to_their_runs_and_name_both_kinds_of_users() -> None:
    document = described(searched(runs=1))
    steps = table(document, "The runs")
    titles = [column.title for column in steps.columns]
    assert titles.index("8-hour equivalent, in users") > titles.index("Cell")
    assert [(row[0], row[1], row[4]) for row in steps.rows][:3] == [
        ("runs/00500-1", "500 users", "\N{CHECK MARK} passed"),
        ("runs/01000-1", "1000 users", "\N{CHECK MARK} passed"),
        ("runs/01200-1", "1200 users", "\N{MULTIPLICATION SIGN} failed"),
    ]
    assert isinstance(steps.rows[0][0], Link)
    assert '<a href="runs/00500-1/">runs/00500-1</a>' in to_html(document)
    assert "[runs/00500-1](runs/00500-1/)" in to_markdown(document)
    (section,) = (one for one in json.loads(json.dumps(to_json(document)))["sections"] if one["title"] == "Runs")
    assert section["tables"][0]["rows"][0][0] == "runs/00500-1"


def test_a_missed_criterion_of_a_task_has_words_and_digits() -> None:
    """As in the report on its run: no key, and separators of thousands."""
    late = Criterion("tasks.REPLY ALL.response_p95_ms", None, None, 5000.0, 6217.04, each=True)
    found = searched()
    reasons = tuple(missed_texts([late.result]))
    assert reasons == ("tasks.REPLY ALL.response_p95_ms 6217.0 ms, below 5000 ms wanted",)
    steps = tuple(replace(one, criteria=(late,), reasons=one.reasons and reasons) for one in found.runs)
    found = replace(found, runs=steps)
    words = "95th percentile from due times of each task: REPLY ALL 6,217 ms; below 5,000 ms wanted"
    assert f"Missed with 1,200 users: {words}; by runs/01200-1, the last of 5" in capacity_text(found, 300)
    assert words in to_markdown(described(found)) and words in run_text(found.runs[10], 300)


def test_missed_criteria_are_in_words() -> None:
    page = to_html(described(searched()))
    assert "score: 1100.0 ms, below 1000 ms wanted" in page and "score_ms" not in page
    assert reason_in_words("response_p95_ms of READ 5001.0 ms, SEND inf; below 5000 ms wanted") == (
        "95th percentile from due times of READ 5001.0 ms, SEND inf; below 5000 ms wanted"
    )
    assert reason_in_words("89 % of the plan, at least 98 % wanted") == "89 % of the plan, at least 98 % wanted"


def test_a_report_elsewhere_leads_to_the_same_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        Resource(name, "mx1", True, "host", figure, share, share, 1.0, share)
        for name, figure, share in (("processor", "cpu_busy_share", 0.97), ("disk vda", "disk_vda_busy_share", 0.1))
    )
    found = replace(
        capacity(Found(1000, 1100, "criteria"), (1000, "pass"), (1100, "fail"), resources=resources), directory=tmp_path
    )
    line = "Nearest to full on mx1, where the server is, with 1,100 users: processor 97 % (95th 97 %), disk vda 10 %"
    assert line in " ".join(capacity_text(found, 80).split())
    of_failure = table(described(found), "Resources with 1,100 users (runs/01100-1)")
    assert "Figure" not in [column.title for column in of_failure.columns]
    assert [row[:3] for row in of_failure.rows] == [
        ("processor", "mx1, where the server is", 97.0),
        ("disk vda", "mx1, where the server is", 10.0),
    ]
    write(found)
    again = read_campaign(tmp_path)
    assert isinstance(again, Capacity)
    assert again.document["resources"][0]["name"] == "processor"
    assert again.document == found.document
    passed = capacity(Found(1000, None, "limit"), (1000, "pass"), resources=resources)
    assert passed.nearest_to_full is not None and passed.nearest_to_full.users == 1000
    assert capacity(Found(1000, 1100, "criteria"), (1000, "pass"), (1100, "fail")).document["resources"] is None


def test_texts_of_a_server_stay_texts() -> None:
    hostile = "<script>alert(1)</script>&[x](javascript:1)"
    found = searched()
    steps = tuple(replace(step, reasons=(hostile,)) for step in found.runs)
    document = described(replace(found, runs=steps, terms=replace(found.terms, name=hostile)))
    assert "<script" not in to_html(document)
    assert "<script" not in to_markdown(document) and "[x](" not in to_markdown(document)


def test_an_unfinished_search_has_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(replace(searched(), directory=tmp_path, found=None))
    assert main(["report", str(tmp_path)]) == 2
    assert (
        "expected a finished search, found one with 20 runs so far; loadsim capacity, typed as before, resumes it"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "report.html").exists()
