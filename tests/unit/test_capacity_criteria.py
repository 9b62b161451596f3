"""The criteria in the report of a search: those that decided are drawn over users, with their limits.

Seen from outside, it could be wrong so: the criterion that decided is not drawn, because others came near, too; a limit
or a unit differs from the scenario's; a least share is taken for a largest one; a limit of 0 counts as near if it is
kept; a run that says nothing about the server makes a criterion look decisive; Markdown and JSON lack what the page
shows.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from finished_searches import capacity, probed

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import Found
from loadsim.analysis.capacity_step import MeasuredStep, StepCriterion
from loadsim.analysis.criteria import Result
from loadsim.report.capacity_criteria import MOST_CRITERIA, used_of_limit
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.document import Chart, Document, to_json
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown
from loadsim.report.scales import y_scale

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

    def judged(step: MeasuredStep) -> MeasuredStep:
        each = [
            StepCriterion(f"tasks.{task}.p95_ms", None, 100.0, None, figures[str(step.users)], each=False)  # type: ignore[arg-type]
            for task, figures in zip(tasks, criteria, strict=False)
        ]
        return replace(step, criteria=tuple(each), **steps)

    return replace(found, steps=tuple(map(judged, found.steps)))


def at(first: float, second: float, third: float | str) -> dict[str, float | str]:
    return {"500": first, "1000": second, "1200": third}


def test_the_criterion_that_decided_comes_first_with_its_limit() -> None:
    """Those that were far from their limits, or have a panel in any case, or are counts, are left out."""
    found = probed()
    shown = chart(found)
    assert shown is not None
    assert [panel.title for panel in shown.panels] == [
        READ,
        "95th percentile from due times of SEND",
        "Tasks that succeeded",
    ]
    assert [[(limit.name, limit.value) for limit in panel.limits] for panel in shown.panels] == [
        [("at most 75 ms", 75)],
        [("at most 1,000 ms", 1000)],
        [("at least 98 %", 98)],
    ]
    ticks = [tick for tick, _ in y_scale(shown.panels[2]).ticks]
    assert min(ticks) > 90 and len(ticks) > 2  # shares near 100 % are told apart
    scores = next(block for block in described(found).sections[1].blocks if isinstance(block, Chart))
    assert shown.axis == scores.axis and shown.shaded == scores.shaded
    read = {line.name: line.values for line in shown.panels[0].lines}
    assert min(value for value in read["failed"] if value is not None) > 75
    assert max(value for value in read["passed"] if value is not None) < 75
    assert max(value for line in shown.panels[2].lines for value in line.values if value is not None) < 100


def test_many_criteria_are_named_and_the_decisive_ones_drawn() -> None:
    """Also those that fewer users missed by chance, but that did not decide."""
    near, missed, early = at(1, 1, 99.5), at(1, 1, 100.5), at(1, 120, 90)
    found = searched(near, near, near, near, near, early, missed, near)
    assert drawn(found)[:2] == ["95th percentile of DELETE", "95th percentile of BROWSE"]
    assert len(drawn(found)) == MOST_CRITERIA
    page = to_html(described(found))
    assert "2 more: 95th percentile of " in page


def test_runs_that_say_nothing_about_the_server_decide_nothing() -> None:
    slow = at(200, 200, 200)
    assert drawn(searched(slow)) == ["95th percentile of READ"]
    for result in ("void", "generator"):
        assert drawn(searched(slow, result=result)) == []
    assert drawn(searched(at(1, 1, 79))) == []
    assert drawn(searched(at(1, 81, 1))) == ["95th percentile of READ"]


def test_an_infinite_figure_is_shown_in_all_forms() -> None:
    document = described(searched(at(1, 50, "inf")))
    assert "never" in to_markdown(document) and to_html(document).count('href="#mi"') > 0
    tables = to_json(document)["sections"][1]["tables"]
    (found,) = (one for one in tables if one["caption"].startswith("Criteria"))
    rows = [[500, "passed", 1.0], [1000, "passed", 50.0], [1200, "failed", "inf"]]
    assert json.loads(json.dumps(found["rows"])) == rows


def test_markdown_and_json_have_each_figure_with_its_limit() -> None:
    found = probed()
    (table,) = (
        one for one in to_json(described(found))["sections"][1]["tables"] if one["caption"].startswith("Criteria")
    )
    assert table["columns"][:3] == ["Users", "Result", f"{READ}, at most 75 ms (ms)"]
    own = [next(one.figure for one in step.criteria if "READ" in one.name) for step in found.steps]
    assert [row[2] for row in table["rows"]] == own
    assert f"{READ}, at most 75 ms" in to_markdown(described(found))


@pytest.mark.parametrize(
    ("name", "figure", "limits", "used"),
    [
        ("score_ms", 80, {"max": 100}, 0.8),
        ("score_ms", 150, {"below": 100}, 1.5),
        ("score_ms", math.inf, {"max": 100}, math.inf),
        ("score_ms", 0, {"max": 0}, 0),
        ("score_ms", 1, {"max": 0}, math.inf),
        ("score_ms", 200, {"min": 100}, 0.5),
        ("score_ms", 0, {"min": 100}, math.inf),
        ("score_ms", 30, {"min": 20, "max": 100}, 2 / 3),
        ("done_share", 0.99, {"min": 0.98}, 0.5),
        ("done_share", 0.97, {"min": 0.98}, 1.5),
        ("load.share", 1.1, {"min": 0.98}, -5),
        ("done_share", 1, {"min": 1}, 0),
        ("done_share", 0.99, {"min": 1}, math.inf),
        ("failed_share", 0, {"max": 0}, 0),
    ],
)
def test_the_used_part_of_a_limit(name: str, figure: float, limits: dict[str, float], used: float) -> None:
    assert used_of_limit(Result(name, limits, figure)) == pytest.approx(used)
