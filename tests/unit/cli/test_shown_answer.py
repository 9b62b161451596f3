"""The answer in a terminal: it fits, loses no reason, and shows the digits that matter."""

import io
import re
import sys
from pathlib import Path

import pytest
from documents import full_answer, short_answer
from hypothesis import given
from hypothesis import strategies as st
from timing_samples import ENDED, done, event, sample_log, skipped, write_two_clients

from loadsim.analysis.summary import Summary, summarise
from loadsim.cli.report import document_of
from loadsim.cli.shown_answer import MOST_WIDTH, WIDTH, shown
from loadsim.findings.catalogue import Code
from loadsim.findings.formats import duration
from loadsim.model.ports import ALL_TASKS
from loadsim.model.terms import ASSISTANT_TASKS, PUBLIC_TASKS, RECEIPT_TASKS
from loadsim.report.answer import describe_answer
from loadsim.report.markdown import to_markdown
from loadsim.report.text import LEAST_WIDTH

SLOW = {"criteria": {"score_ms": {"below": 10_000}, "tasks.READ.p95_ms": {"max": 60_000}}, "limits": {"hits": 1}}


@pytest.fixture
def two_clients(tmp_path: Path) -> Summary:
    return summarise([write_two_clients(tmp_path)])


def of_one_task(place: Path, service_ms: float, **header: object) -> Summary:
    log = sample_log(place / f"{service_ms}{len(header)}.tlog", [done("READ", 0, service_ms)], header=SLOW | header)
    return summarise([log])


@pytest.mark.parametrize("width", [1, LEAST_WIDTH, 60, 72, 80, 100])
def test_lines_fit_and_no_word_is_lost(two_clients: Summary, width: int) -> None:
    """Reasons, facts and the columns that matter most are there at any width."""
    text = short_answer(two_clients, width)
    assert max(map(len, text.splitlines())) <= max(width, LEAST_WIDTH), text
    words = " ".join(text.split())
    wide = " ".join(full_answer(two_clients).split())
    for fact in re.findall(r"(?:Failures|Delivery)[^:]*:.*?(?= [A-Z][a-z]+[^:]*:)", wide):
        assert fact in words
    for defect in (*two_clients.verdict.defects, *two_clients.verdict.warnings):
        assert defect.text in words
    head = next(line for line in text.splitlines() if line.startswith("Category"))
    assert {"Weight", "Hits", "50th"} <= set(head.split())
    assert ("Failed" in head) == (width >= 60)


def test_an_answer_fits_on_one_screen(tmp_path: Path) -> None:
    """All tasks of a canonical run, and the notes on its score; four lines for where the rest is."""
    others = {
        "FIRST SYNC",
        "COPY",
        "EVICT",
        "RESOLVE",
        "SEARCH",
        "DELETE UNREAD",
        *RECEIPT_TASKS,
        *PUBLIC_TASKS,
        *ASSISTANT_TASKS,
    }
    names = [task for task in ALL_TASKS if task not in others]
    tasks = [done(name, at, 5) for at, name in enumerate(names * 20)]
    log = sample_log(tmp_path / "a.tlog", tasks, header={"criteria": {"score_ms": {"below": 1000}}, "limits": {}})
    assert len(short_answer(summarise([log])).splitlines()) + 4 <= 40


def test_a_figure_stays_with_its_unit(two_clients: Summary) -> None:
    """No line ends with a figure whose unit begins the next one."""
    for width in range(LEAST_WIDTH, 100):
        lines = short_answer(two_clients, width).splitlines()
        assert not re.search(r"\d\n *(ms|s|%|h|min)\b", "\n".join(lines))
        assert "\N{NO-BREAK SPACE}" not in "".join(lines)


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        *((0.0, "0.0 ms"), (7.64, "7.6 ms"), (99.94, "99.9 ms"), (99.96, "100 ms"), (1388.3, "1,388 ms")),
        *((9999.4, "9,999 ms"), (9999.6, "10.0 s"), (12_345.0, "12.3 s"), (99_949.0, "99.9 s"), (99_960.0, "100 s")),
        *((228_307.4, "228 s"), (12_345_678.0, "12,346 s"), (float("inf"), "never"), (None, "-")),
    ],
)
def test_times_have_the_digits_that_matter(time_ms: float | None, shown: str) -> None:
    """Seconds from 10 s on, and three digits or whole units."""
    assert duration(time_ms) == shown


@given(st.floats(0, 1e9))
def test_a_shown_time_is_rounded_by_at_most_its_last_digit(time_ms: float) -> None:
    """Within half a per cent, or half of the last digit."""
    number, unit = duration(time_ms).split()
    shown_ms = float(number.replace(",", "")) * (1000 if unit == "s" else 1)
    assert abs(shown_ms - time_ms) <= max(0.0501, 0.0051 * time_ms)


def test_missed_criteria_have_the_names_of_their_figures(tmp_path: Path) -> None:
    """With the limit, and no rounding that hides why it was missed."""
    missed = of_one_task(tmp_path, 60_000.4).verdict.missed
    assert [(one.where, one.values["found"], one.values["limit"]) for one in missed] == [
        ("score_ms", "60.0 s", "below 10,000 ms"),
        ("tasks.READ.p95_ms", "60,000.4 ms", "at most 60,000 ms"),
    ]


def test_an_early_end_is_not_shown_as_a_missed_criterion(tmp_path: Path) -> None:
    """Unmeasured and infinite figures, and mail left at the end, are not judged; a figure that missed is."""
    limits = {"score_ms": {"max": 100}, "response_score_ms": {"max": 100}, "delivery.undelivered_at_end": {"max": 0}}
    mails = [event("accepted", "a.1", 2, 1, "individual"), event("accepted", "a.2", 2, 1, "individual")]
    for name, tasks in {
        "none": [],
        "left": [done("READ", 0, 5), skipped("READ", 3)],
        "slow": [done("READ", 0, 200)],
    }.items():
        header = {"criteria": limits, "limits": {"hits": 0}}
        summary = summarise(
            [sample_log(tmp_path / f"{name}.tlog", tasks, mails, header=header, facts=ENDED | {"ended": "early"})]
        )
        assert (summary.exit_status, summary.verdict.passed) == (3, False)
        missed = {one.where for one in summary.verdict.missed if one.code is Code.CRITERION_MISSED}
        assert missed == ({"score_ms", "response_score_ms"} if name == "slow" else set())
        unjudged = {one.where for one in summary.verdict.missed if one.code is Code.CRITERION_NOT_JUDGED}
        assert "delivery.undelivered_at_end" in unjudged
        text, report = full_answer(summary), to_markdown(document_of([str(tmp_path / f"{name}.tlog")]))
        words = "missed" if missed else "not judged in full"
        assert text.startswith(f"Verdict: invalid, criteria {words}\n")
        assert f"**Invalid, criteria {words}**" in report
        assert re.search(r"^delivery\.undelivered_at_end +2 +at most 0 +- not judged$", text, re.MULTILINE)
        assert "| delivery.undelivered\\_at\\_end | 2 | at most 0 | - not judged |" in report
        assert "; the run ended early and did not wait for its last mail\n" in text


def test_colours_are_for_terminals_only(two_clients: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is coloured in a pipe, with NO_COLOR, or on a dumb terminal; the text is the same."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain = shown(describe_answer(two_clients), wide=False)
    assert plain == short_answer(two_clients, WIDTH).rstrip()
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    coloured = shown(describe_answer(two_clients), wide=False)
    assert coloured.startswith("\x1b[1;31mVerdict: invalid, criteria missed\x1b[0m\n")
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(describe_answer(two_clients), wide=False) == plain
    monkeypatch.setenv("COLUMNS", "300")
    assert shown(describe_answer(two_clients), wide=False) == short_answer(two_clients, MOST_WIDTH).rstrip()
    assert shown(describe_answer(two_clients), wide=True) == full_answer(two_clients).rstrip()
