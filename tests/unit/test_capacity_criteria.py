"""The criteria in the report of a search: those that decided are drawn over users, with their limits.

Seen from outside, it could be wrong so: the criterion that decided is not drawn, because others were missed, too; a
limit or a unit differs from the scenario's; a run that says nothing about the server makes a criterion look decisive;
Markdown and JSON lack what the page shows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from finished_searches import capacity, probed

from loadsim.analysis.campaign import CampaignRun, Criterion
from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import Found
from loadsim.report.capacity_curves import MOST_CRITERIA
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.document import Chart, Document, to_json
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown

READ = "95th percentile from due times of READ"
FOUND = Found(1000, 1200, "criteria")


def described(found: Capacity) -> Document:
    return describe_capacity(found, (), {})


def chart(found: Capacity) -> Chart | None:
    blocks = [block for block in described(found).sections[1].blocks if isinstance(block, Chart)]
    return next((block for block in blocks if block.caption.startswith("Criteria")), None)


def drawn(found: Capacity) -> list[str]:
    shown = chart(found)
    return [panel.title for panel in shown.panels] if shown else []


def searched(*criteria: dict[str, float | str], **steps: Any) -> Capacity:
    """A search with criteria of at most 100 ms on READ, MOVE and so on, and their figures by number of users."""
    tasks = ("READ", "MOVE", "COPY", "SEND", "REPLY", "BROWSE", "DELETE", "FORWARD")
    found = capacity(FOUND, (500, "pass"), (1000, "pass"), (1200, "fail"), runs=1)

    def judged(step: CampaignRun) -> CampaignRun:
        each = [
            Criterion(f"tasks.{task}.p95_ms", None, 100.0, None, figures[str(step.users)], each=False)  # type: ignore[arg-type]
            for task, figures in zip(tasks, criteria, strict=False)
        ]
        return replace(step, criteria=tuple(each), **steps)

    return replace(found, runs=tuple(map(judged, found.runs)))


def at(first: float, second: float, third: float | str) -> dict[str, float | str]:
    return {"500": first, "1000": second, "1200": third}


def test_the_criterion_that_decided_comes_first_with_its_limit() -> None:
    """Those that all runs met, or that have a panel in any case, or are counts, are left out."""
    found = probed()
    shown = chart(found)
    assert shown is not None
    assert [panel.title for panel in shown.panels] == [READ, "95th percentile from due times of SEND"]
    assert [[(limit.name, limit.value) for limit in panel.limits] for panel in shown.panels] == [
        [("at most 75 ms", 75)],
        [("at most 1,000 ms", 1000)],
    ]
    scores = next(block for block in described(found).sections[1].blocks if isinstance(block, Chart))
    assert shown.axis == scores.axis and shown.shaded == scores.shaded
    read = {line.name: line.values for line in shown.panels[0].lines}
    assert min(value for value in read["failed"] if value is not None) > 75
    assert max(value for value in read["passed"] if value is not None) < 75


def test_many_criteria_are_named_and_the_decisive_ones_drawn() -> None:
    """Also those that fewer users missed by chance, but that did not decide."""
    missed, early = at(1, 1, 100.5), at(1, 120, 90)
    found = searched(early, missed, early, early, early, missed, early, early)
    assert drawn(found)[:2] == ["95th percentile of BROWSE", "95th percentile of MOVE"]
    assert len(drawn(found)) == MOST_CRITERIA
    page = to_html(described(found))
    assert "2 more: 95th percentile of " in page


def test_runs_that_say_nothing_about_the_server_decide_nothing() -> None:
    slow = at(200, 200, 200)
    assert drawn(searched(slow)) == ["95th percentile of READ"]
    for result in ("void", "generator"):
        assert drawn(searched(slow, result=result)) == []
    assert drawn(searched(at(1, 1, 99))) == []
    assert drawn(searched(at(1, 101, 1))) == ["95th percentile of READ"]


def test_an_infinite_figure_is_shown_in_all_forms() -> None:
    document = described(searched(at(1, 50, "inf")))
    assert "never" in to_markdown(document) and to_html(document).count('href="#mi"') > 0
    tables = to_json(document)["sections"][1]["tables"]
    (found,) = (one for one in tables if one["caption"].startswith("Criteria"))
    assert [[row[0], *row[2:]] for row in json.loads(json.dumps(found["rows"]))] == [
        *([500, None, 1.0], [1000, None, 50.0], [1200, "inf", None])
    ]


def test_markdown_and_json_have_each_figure() -> None:
    found = probed()
    (table,) = (
        one for one in to_json(described(found))["sections"][1]["tables"] if one["caption"].startswith("Criteria")
    )
    assert table["columns"][:4] == ["Users", *(f"{READ}: {name} (ms)" for name in ("median", "failed", "passed"))]
    own = [next(one.figure for one in step.criteria if "READ" in one.name) for step in found.runs]
    assert [row[2] or row[3] for row in table["rows"]] == own
    assert READ in to_markdown(described(found))
