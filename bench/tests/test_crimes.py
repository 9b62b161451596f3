"""The verdicts on servers that do wrong: runs in virtual time, one for each crime."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench import crimes
from bench.crimes import Row, commit, document, judged, scenario_of
from bench.misdeeds import ACCEPTED, CRIMES, DROPPED, LASTING, LENGTHS_S, NONE, UNSEEN, Crime
from bench.table import is_current
from loadsim.comparison.comparison import compare_runs
from loadsim.dryrun.plan import make_plan
from loadsim.model.content.compose import Contents

BY_TITLE = {crime.title: crime for crime in CRIMES}


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    """Rows of the answers, by the crimes' titles."""
    return {row.crime.title: row for row in judged(CRIMES)}


def response_score_ms(row: Row) -> float:
    """Infinite where too few were answered, or none."""
    found = row.score["response_score_ms"]
    return math.inf if found is None else float(found)


@pytest.mark.parametrize("title", [title for title in BY_TITLE if title not in {NONE.title, *ACCEPTED}])
def test_a_crime_does_not_pass(rows: dict[str, Row], title: str) -> None:
    """The run is invalid, or misses a criterion, also if its mail is audited and not all well; and it says why."""
    assert not rows[title].passes, rows[title].score["verdict"]
    assert rows[title].passes_audited == (title in UNSEEN), rows[title].audited["verdict"]
    assert rows[title].reasons


@pytest.mark.parametrize("title", [NONE.title, *ACCEPTED])
def test_healthy_runs_and_accepted_crimes_pass(rows: dict[str, Row], title: str) -> None:
    """Each crime that the page accepts has its reason, and is found so."""
    assert rows[title].passes and rows[title].passes_audited, rows[title].reasons


@pytest.mark.parametrize("name", sorted(LASTING.keys() - {DROPPED}))
def test_worse_harm_has_no_better_response_score(rows: dict[str, Row], name: str) -> None:
    """The longer it lasts, the worse; and none is as good as a healthy server."""
    found = [response_score_ms(rows[f"{name}, {length_s:g} s"]) for length_s in LENGTHS_S]
    assert [response_score_ms(rows[NONE.title]), *found] == sorted([response_score_ms(rows[NONE.title]), *found])


SEEDS = (1, 2, 3)
"""The seeds of the runs that are compared: each occurs once on both sides."""


def runs_of(crime: Crime, place: Path, minute: int) -> list[Path]:
    """Runs of three seeds, an hour apart."""
    logs = []
    for seed in SEEDS:
        logs.append(place / f"{minute}-{seed}.tlog")
        plan, begun = make_plan(scenario_of(place, seed)), f"2026-01-05T{8 + seed:02d}:{minute:02d}:00+00:00"
        commit(crime, plan, logs[-1], Contents(seed), run=logs[-1].stem, begun=begun)
    return logs


@pytest.mark.nightly(part="runs")
def test_a_server_with_an_outage_does_not_pass_against_a_healthy_one(tmp_path: Path) -> None:
    """Service times differ by 1 %, but users waited 20 s longer, and all criteria of waiting were missed."""
    healthy, down = (
        runs_of(BY_TITLE[title], tmp_path, minute)
        for minute, title in enumerate((NONE.title, "outage, connections refused, 25 s"))
    )
    found = compare_runs(healthy, down, max_regression=0.05)
    assert (found.figures.decision, found.exit_status) == ("failed", 1)
    assert {"response_score_ms", "down_share", "logon_failed_share"} <= set(found.figures.missed_more)
    (score,), (response,) = found.figures.scores, found.figures.response_scores
    assert score.difference.ratio == pytest.approx(1, abs=0.02)
    assert response.change == "slower" and response.difference.ratio > 10


def test_the_page_has_the_table(rows: dict[str, Row]) -> None:
    """As these runs give it: `python -m bench.crimes --write` puts it there."""
    assert is_current(crimes.PAGE, document(rows.values()), crimes.MARK)


@pytest.mark.nightly(part="runs")
def test_healthy_runs_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that differ in their seeds alone; `python -m bench.crimes --healthy 200` makes more of them."""
    assert crimes.main(["--healthy", "20"]) == 0
    assert "20 of 20 healthy runs pass" in capsys.readouterr().out
