"""The first screen of a report: the table of criteria says what the figures say, and hides no miss."""

from pathlib import Path

import pytest
from documents import full_answer, short_answer, table
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import done, sample_log

from loadsim.analysis.criteria import Result, missed_criteria
from loadsim.analysis.summary import summarise
from loadsim.cli.report import document_of
from loadsim.report.answer_tables import criteria_tables
from loadsim.report.document import MET
from loadsim.report.markdown import to_markdown


def test_an_invalid_run_has_no_score(tmp_path: Path) -> None:
    """Its criteria show no times either; a missed limit is a reason, and stays, as do shares."""
    criteria = {"score_ms": {"max": 1000}, "response_score_ms": {"max": 1}, "tasks.READ.p95_ms": {"max": 9}}
    header = {"limits": {"hits": 5}, "criteria": {**criteria, "failed_share": {"max": 0.5}}}
    sample_log(tmp_path / "a.tlog", [done("READ", 0, 5)], header=header | {"day_s": 100, "profile_day_s": 28800})
    assert table(document_of([str(tmp_path / "a.tlog")]), "Missed or not") == {
        "score_ms": ("not shown: the run is invalid", "at most 1,000 ms", "- not judged"),
        "response_score_ms": ("5.0 ms", "at most 1 ms", "\N{MULTIPLICATION SIGN} missed"),
        "tasks.READ.p95_ms": ("not shown: the run is invalid", "at most 9 ms", "- not judged"),
        "failed_share": ("0 %", "at most 50 %", "- not judged"),
    }


@pytest.mark.parametrize(("hits", "shown"), [(1, True), (5, False)])
def test_no_table_has_the_scores_of_an_invalid_run(tmp_path: Path, hits: int, shown: bool) -> None:
    """Neither in the answer, nor in the report; `score.json` keeps them."""
    tasks = [done("READ", at, 40, late_ms=7) for at in range(3)] + [done("SEND", 1, 51, late_ms=7)]
    header = {"limits": {"hits": hits}, "weights": {"READ": 1, "SEND": 1}, "criteria": {"score_ms": {"max": 1000}}}
    log = sample_log(tmp_path / "a.tlog", tasks, header=header)
    summary = summarise([log])
    assert (summary.score["score_ms"], summary.score["response_score_ms"]) == (45.5, 52.5)
    assert (summary.verdict.validity != "invalid") is shown
    for text in (full_answer(summary), short_answer(summary, 80)):
        averages = [line for line in text.splitlines() if line.startswith("Score, weighted")]
        assert ("45.5" in averages[0] and "52.5" in averages[0]) is shown
        assert ("[no-interval]" in " ".join(text.split())) is shown
    report = to_markdown(document_of([str(tmp_path / "a.tlog")]))
    assert ("45.5" in report) is shown
    assert ("52.5" in report) is shown
    assert "| Score, weighted | 2 | 4 |" in report


def test_equal_tasks_have_no_worst_one() -> None:
    """A name next to 0 % would look like the one that fails."""

    def found(read: float, send: float) -> object:
        shares = {"READ": read, "SEND": send}
        each = [Result(f"tasks.{task}.failed_share", {"max": 0.01}, share, each=True) for task, share in shares.items()]
        return next(criteria_tables(each)).rows[0][1]

    assert (found(0, 0), found(0, 0.001)) == ("0 %", "0.1 % (SEND, the worst)")


limits = st.sampled_from([{"max": 10.0}, {"below": 10.0}, {"min": 10.0}, {"min": 5.0, "max": 15.0}])
figures = st.one_of(st.none(), st.just(float("inf")), st.floats(0, 20), st.sampled_from([9.96, 10.0, 10.04]))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["READ", "SEND", "MOVE"]), limits, figures, st.booleans()), max_size=8))
def test_each_missed_criterion_is_shown(drawn: list[tuple[str, dict[str, float], float | None, bool]]) -> None:
    """A row is met only if all its tasks meet it, and each missed criterion is in the list of missed ones."""
    results = [
        Result(f"tasks.{task}.p95_ms" if each else "score_ms", bound, figure, each=each)
        for task, bound, figure, each in drawn
    ]
    rows = [row for one in criteria_tables(results) for row in one.rows]
    assert all(row[3] == MET for row in rows) == all(one.passed for one in results)
    missed = " ".join(one.text for one in missed_criteria(results, ended_early=False))
    for one in results:
        if not one.passed:
            assert (one.name.split(".")[1] if one.each else "score_ms") in missed
    for _, found, wanted, result in rows:
        if str(found).startswith("10.0 ms") and wanted == "at most 10 ms":
            assert result == MET
