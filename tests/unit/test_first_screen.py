"""The first screen of a report: sentences and criteria in words say what the figures say, and hide no miss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import ENDED, START_NS, done, sample_log

from loadsim.analysis.criteria import Result
from loadsim.analysis.summary import summarise
from loadsim.cli.report import document_of
from loadsim.model.criteria import DEFAULT, documents
from loadsim.report.answer import full_answer, short_answer
from loadsim.report.criterion_words import criteria_in_words, missed_in_words
from loadsim.report.digits import percent
from loadsim.report.document import Listing, Table
from loadsim.report.figure_words import named
from loadsim.report.markdown import to_markdown
from loadsim.report.resources import NOT_MONITORED


def texts(place: Path, **header: Any) -> list[str]:
    """The paragraphs of the first section."""
    tasks = [done("READ", 0, 5), done("READ", 1, 5)]
    sample_log(place / "a.tlog", tasks, header={"limits": {"hits": 1}} | header)
    (summary, *_) = document_of([str(place / "a.tlog")], {}).sections
    return [block for block in summary.blocks if isinstance(block, str)]


def test_it_says_what_was_tested(tmp_path: Path) -> None:
    """Users by profile, as the header has them; a foreign profile keeps its name."""
    groups = [
        {"profile": "loadsim-5.5/medium", "module": "imap", "users": 1500},
        {"profile": "loadsim-5.5/medium", "module": "aioimaplib", "users": 1},
        {"profile": "office", "module": "imap", "users": 2},
    ]
    (tested, *_) = texts(tmp_path, groups=groups, users=1503)
    assert "(1,501 Medium of LoadSim 5.5, 2 office) did a day's mail" in tested


@pytest.mark.parametrize(
    ("lasted_s", "words"),
    [
        (124, "the mail of 62 % of a day"),
        (198, "the mail of 99 % of a day"),
        (200, "a day's mail"),
        (202, "1.01 days' mail"),
        (600, "3 days' mail"),
    ],
)
def test_it_says_how_much_of_a_day_was_simulated(tmp_path: Path, lasted_s: float, words: str) -> None:
    """Users with 124 s of a day of 200 s have not done a day's mail."""
    assert f" did {words}: a day of" in " ".join(texts(tmp_path, day_s=200, duration_s=lasted_s))


def test_it_says_what_a_score_is(tmp_path: Path) -> None:
    """In the words of the reports on comparisons and suites; a closed loop has no score."""
    (tested, *_) = texts(tmp_path / "a")
    assert tested.endswith(
        "The score is the weighted average, over the kinds of task, of the time within which 19 of 20 tasks of a kind"
        " end."
    )
    assert "score" not in " ".join(texts(tmp_path / "b", mode="stress"))


DEFAULT_LIMITS = documents(DEFAULT)
ALL = {"criteria": DEFAULT_LIMITS}
MET = {"criteria": {"score_ms": {"max": 1000}, "response_score_ms": {"max": 1000}}}
MISSED = {"criteria": {"score_ms": {"max": 1}, "response_score_ms": {"max": 1}, "failed_share": {"max": 0.5}}}
SKIPPED = [done("READ", at, 5, outcome="skipped", started_ns=None, ended_ns=None) for at in range(3)]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"criteria": {"score_ms": {"max": 1}}}, "look for the tasks, commands or mail that the criteria name"),
        ({"embedded": True}, "run it on a mail server of your own (loadsim new)."),
        ({}, "take more days (run.days) or more users, and make three such runs or more"),
        ({"limits": {"hits": 3}}, "for more hits, more days"),
    ],
)
def test_it_says_what_to_do_next(tmp_path: Path, header: dict[str, Any], says: str) -> None:
    """By the verdict."""
    texts_there = texts(tmp_path, **{"criteria": {"score_ms": {"max": 1000}}} | header)
    assert any(text.startswith(f"What to do next: {says}") for text in texts_there)


@pytest.mark.parametrize(("hits", "first"), [(1, "Criteria"), (3, "What to do next")])
def test_an_invalid_run_has_the_next_step_before_what_was_not_judged(tmp_path: Path, hits: int, first: str) -> None:
    header = {"limits": {"hits": hits}, "criteria": {"score_ms": {"max": 1000}}}
    sample_log(tmp_path / "a.tlog", [done("READ", 0, 5), done("READ", 1, 5)], header=header)
    (summary, *_) = document_of([str(tmp_path / "a.tlog")], {}).sections
    criteria = next(at for at, block in enumerate(summary.blocks) if getattr(block, "caption", "") == "Criteria")
    step = next(at for at, block in enumerate(summary.blocks) if str(block).startswith("What to do next"))
    assert ("Criteria" if criteria < step else "What to do next") == first


def test_a_score_of_enough_hits_is_to_be_repeated(tmp_path: Path) -> None:
    header = {"limits": {"hits": 1}, "criteria": {"score_ms": {"max": 1000}}}
    sample_log(tmp_path / "a.tlog", [done("READ", at, 5) for at in range(300)], header=header)
    (summary, *_) = document_of([str(tmp_path / "a.tlog")], {}).sections
    assert str(summary.blocks[-1]).startswith("What to do next: make three such runs or more")


def test_the_load_has_two_rates(tmp_path: Path) -> None:
    """Of the plan's tasks those that began, in a window of 10 s; of all due tasks those that succeeded."""
    plan = {"duration_s": 100, "tasks": {"READ": [1, 1] + [0] * 998}}
    tasks = [done("READ", 0, 5), done("READ", 1, 5, outcome="refused"), done("SYNC", 2, 5)]
    sample_log(tmp_path / "a.tlog", tasks, header={"limits": {"hits": 1}, "planned_load": plan, "window_s": [0, 10]})
    (summary, *_) = document_of([str(tmp_path / "a.tlog")], {}).sections
    assert summary.blocks[1] == (
        "Users began 2 of 2 tasks that the plan expects (100 %). 0.2 of 0.3 due tasks per second succeeded; 1 task"
        " failed."
    )


def test_an_invalid_run_has_no_score(tmp_path: Path) -> None:
    """Nor another time, among the criteria; a missed limit is a reason, and stays, as do shares."""
    criteria = {"score_ms": {"max": 1000}, "response_score_ms": {"max": 1}, "tasks.READ.p95_ms": {"max": 9}}
    header = {"limits": {"hits": 5}, "criteria": {**criteria, "failed_share": {"max": 0.5}}}
    sample_log(tmp_path / "a.tlog", [done("READ", 0, 5)], header=header | {"day_s": 100, "profile_day_s": 28800})
    (summary, *_) = document_of([str(tmp_path / "a.tlog")], {}).sections
    tables = {block.caption: block for block in summary.blocks if isinstance(block, Table)}
    assert tables["Criteria"].rows == (
        ("Score", "not shown: the run is invalid", "at most 1,000 ms", "- not judged"),
        ("Score from due times", "5.0 ms", "at most 1 ms", "\N{MULTIPLICATION SIGN} missed"),
        ("95th percentile of READ", "not shown: the run is invalid", "at most 9 ms", "- not judged"),
        ("Failed tasks", "0 %", "at most 50 %", "- not judged"),
    )


@pytest.mark.parametrize(("hits", "shown"), [(1, True), (5, False)])
def test_the_scores_of_an_invalid_run_are_in_no_table(tmp_path: Path, hits: int, shown: bool) -> None:
    """Neither in the answer, nor in the report; `score.json` keeps them."""
    tasks = [done("READ", at, 40, late_ms=7) for at in range(3)] + [done("SEND", 1, 51, late_ms=7)]
    header = {"limits": {"hits": hits}, "weights": {"READ": 1, "SEND": 1}, "criteria": {"score_ms": {"max": 1000}}}
    log = sample_log(tmp_path / "a.tlog", tasks, header=header)
    summary = summarise([log])
    assert (summary.score["score_ms"], summary.score["response_score_ms"]) == (45.5, 52.5)
    assert (summary.verdict.validity != "invalid") is shown
    for text in (full_answer(summary), short_answer(summary, 80)):
        averages = [line for line in text.splitlines() if line.startswith("Weighted Avg")]
        assert averages
        assert ("45.5" in averages[0] and "52.5" in averages[0]) is shown
        assert all("." in line for line in averages) is shown
        assert ("interval of the score" in text) is shown
    report = to_markdown(document_of([str(tmp_path / "a.tlog")], {}))
    assert ("45.5" in report) is shown
    assert ("52.5" in report) is shown
    assert "| Weighted average | 2 | 4 |" in report


limits = st.sampled_from([{"max": 10.0}, {"below": 10.0}, {"min": 10.0}, {"min": 5.0, "max": 15.0}])
figures = st.one_of(st.none(), st.just(float("inf")), st.floats(0, 20), st.sampled_from([9.96, 10.0, 10.04]))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["READ", "SEND", "MOVE"]), limits, figures, st.booleans()), max_size=8))
def test_no_miss_is_hidden(drawn: list[tuple[str, dict[str, float], float | None, bool]]) -> None:
    """A row is met only if all its tasks meet it, and each missed criterion is in the list of missed ones."""
    results = [
        Result(f"tasks.{task}.p95_ms" if each else "score_ms", bound, figure, each=each)
        for task, bound, figure, each in drawn
    ]
    rows = criteria_in_words(results)
    assert all(row.passed for row in rows) == all(one.passed for one in results)
    missed = " ".join(missed_in_words(results))
    for one in results:
        if not one.passed:
            assert (one.name.split(".")[1] if one.each else "score") in missed
    for row in rows:
        if row.found.startswith("10.0 ms") and row.wanted == "at most 10 ms":
            assert row.passed


def test_every_criterion_of_the_default_has_words() -> None:
    """No key is left, and no two have the same words."""
    words = {name: named(name) for name in DEFAULT_LIMITS}
    assert [name for name, said in words.items() if "_" in said or "." in said] == []
    assert len(set(words.values())) == len(words)


def test_equal_figures_name_no_worst_task() -> None:
    """One of several is the worst only if they differ; the one that misses most is named."""
    bound = {"max": 0.01}
    equal = [Result(f"tasks.{task}.failed_share", bound, 0.0, each=True) for task in ("READ", "SEND")]
    assert [row.found for row in criteria_in_words(equal)] == ["0 %"]
    missed = [Result(f"tasks.{task}.failed_share", bound, share, each=True) for task, share in (("A", 0.5), ("B", 0.2))]
    assert [row.found for row in criteria_in_words(missed)] == ["50 % (A, the worst); 2 missed"]
    done_share = [
        Result(f"tasks.{task}.done_share", {"min": 0.9}, 1 - n / 10, each=True) for n, task in enumerate("AB")
    ]
    assert [row.found for row in criteria_in_words(done_share)] == ["90 % (B, the worst)"]


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.99838, "99.84 %"),
        (0.999_999, "99.9999 %"),
        (0.999_999_999, "99.9999 %"),
        (0.000_012, "0.0012 %"),
    ],
)
def test_a_share_is_all_or_nothing_only_if_it_is(share: float, shown: str) -> None:
    """Four digits, and more where they would hide the rest."""
    assert percent(share) == shown


def test_reasons_stand_before_the_figures(tmp_path: Path) -> None:
    """In the first section, above the first table."""
    sample_log(tmp_path / "b.tlog", [done("READ", 0, 5)], header={"limits": {"hits": 2}})
    (summary, *_) = document_of([str(tmp_path / "b.tlog")], {}).sections
    kinds = [type(block) for block in summary.blocks]
    assert kinds.index(Listing) < kinds.index(Table)


@pytest.mark.parametrize(
    ("server_here", "machine"),
    [(True, "mx1, where the server is"), (None, "mx1"), (False, None)],
)
def test_it_says_what_limits(tmp_path: Path, server_here: bool | None, machine: str | None) -> None:
    """From the probe `host`, of a machine that may be the server's; otherwise it names the setting that samples it."""
    place = tmp_path / "sampled"
    sampled = [
        {"at_ns": START_NS + at * 10**9, "probe": "host", "figures": {"cpu_busy_share": 0.25}} for at in range(100)
    ]
    here = {"client": "mx1", "engine": "machine", "engine_users": 0}
    sample_log(place / "a.tlog", [done("READ", 0, 5)])
    sample_log(place / "b.tlog", header=here, health=sampled, facts=ENDED | {"server_here": server_here})
    line = f"Nearest to full on {machine}: processor 25 % (95th 25 %); evidence, no proof."
    assert limits_of(place) == (line if machine else NOT_MONITORED)
    sample_log(tmp_path / "alone" / "a.tlog", [done("READ", 0, 5)])
    assert limits_of(tmp_path / "alone") == NOT_MONITORED
    sample_log(tmp_path / "embedded" / "a.tlog", [done("READ", 0, 5)], header={"embedded": True})
    (summary, *_) = document_of([str(tmp_path / "embedded")], {}).sections
    assert not any("Nearest to full" in block for block in summary.blocks if isinstance(block, str))


def limits_of(place: Path) -> str:
    (summary, *_) = document_of([str(place)], {}).sections
    (line,) = [block for block in summary.blocks if isinstance(block, str) and block.startswith("Nearest to full")]
    return line
