"""The answer in a terminal: it fits, loses no reason, and shows the digits that matter."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing_samples import ENDED, done, event, sample_log, skipped, write_two_clients

from loadsim.analysis.generator import MachineHealth
from loadsim.analysis.generator_limits import Generator, suspicious
from loadsim.analysis.score import FEW_HITS, CommandFigures, Times
from loadsim.analysis.summary import Summary, summarise
from loadsim.cli.report import document_of
from loadsim.cli.run import next_steps, scrolled_away
from loadsim.cli.shown_answer import MOST_WIDTH, WIDTH, shown_answer
from loadsim.report.answer import full_answer, short_answer
from loadsim.report.answer_tables import command_table, score_rows
from loadsim.report.digits import duration
from loadsim.report.first_screen import next_step
from loadsim.report.key_figures import score_words
from loadsim.report.markdown import to_markdown
from loadsim.report.plain_lines import LEAST_WIDTH
from loadsim.report.table import text_table
from loadsim.runs.result import RunResult

SLOW = {"criteria": {"score_ms": {"below": 10_000}, "tasks.READ.p95_ms": {"max": 60_000}}, "limits": {"hits": 1}}


@pytest.fixture
def two_clients(tmp_path: Path) -> Summary:
    """An invalid run with two clients that misses criteria."""
    return summarise([write_two_clients(tmp_path)])


def of_one_task(place: Path, service_ms: float, **header: object) -> Summary:
    """A run with one READ of this time."""
    log = sample_log(place / f"{service_ms}{len(header)}.tlog", [done("READ", 0, service_ms)], header=SLOW | header)
    return summarise([log])


def of_enough_hits(place: Path, hits: int = FEW_HITS, **header: object) -> Summary:
    """A run with so many READs of 5 ms; by default, its score is not provisional."""
    return summarise([sample_log(place / f"{hits}hits.tlog", [done("READ", 0, 5)] * hits, header=SLOW | header)])


@pytest.mark.parametrize("width", [1, LEAST_WIDTH, 60, 72, 80, 100])
def test_lines_fit_and_no_word_is_lost(two_clients: Summary, width: int) -> None:
    """Reasons, facts and the columns that matter most are there at any width."""
    text = short_answer(two_clients, width)
    assert max(map(len, text.splitlines())) <= max(width, 60), text  # the table of nine clients' columns is 60 wide
    words = " ".join(text.split())
    wide = " ".join(full_answer(two_clients).split())
    for fact in re.findall(r"(?:Load made|Failures|Delivery|Lateness)[^:]*:.*?(?= [A-Z][a-z]+[^:]*:)", wide):
        assert fact in words
    for defect in (*two_clients.verdict.defects, *two_clients.verdict.warnings):
        assert defect in words
    head = next(line for line in text.splitlines() if line.startswith("Category"))
    assert {"Hits", "95th", "Failed"} <= set(head.split())
    assert ("Std." in head) == (width >= 80)


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
def test_a_shown_time_is_near(time_ms: float) -> None:
    """Within half a per cent, or half of the last digit."""
    number, unit = duration(time_ms).split()
    shown_ms = float(number.replace(",", "")) * (1000 if unit == "s" else 1)
    assert abs(shown_ms - time_ms) <= max(0.0501, 0.0051 * time_ms)


def test_missed_criteria_are_in_words(tmp_path: Path) -> None:
    """With the name of the figure, its limit with all digits, and no rounding that hides why it was missed."""
    text = full_answer(of_one_task(tmp_path, 60_000.4))
    assert "  - score (score_ms): 60.0 s, below 10 s wanted\n" in text
    assert "  - 95th percentile of READ (tasks.READ.p95_ms): 60,000.4 ms, at most 60 s wanted\n" in text


EARLY = ENDED | {"ended": "early"}


def test_an_early_end_is_no_miss(tmp_path: Path) -> None:
    """What was not measured, is infinite or was left at the end is not judged; a figure that missed is."""
    limits = {"score_ms": {"max": 100}, "response_score_ms": {"max": 100}, "delivery.undelivered_at_end": {"max": 0}}
    mails = [event("accepted", "a.1", 2, 1, "individual"), event("accepted", "a.2", 2, 1, "individual")]
    texts = {}
    for name, tasks in {
        "none": [],
        "left": [done("READ", 0, 5), skipped("READ", 3)],
        "slow": [done("READ", 0, 200)],
    }.items():
        header = {"criteria": limits, "limits": {"hits": 0}}
        summary = summarise([sample_log(tmp_path / f"{name}.tlog", tasks, mails, header=header, facts=EARLY)])
        assert (summary.exit_status, summary.verdict.passed) == (3, False)
        texts[name] = full_answer(summary), to_markdown(document_of([str(tmp_path / f"{name}.tlog")], {}))
    for name, (text, report) in texts.items():
        missed = name == "slow"
        words = "missed" if missed else "not judged in full"
        assert text.startswith(f"Verdict: invalid, criteria {words}\n")
        assert f"**Invalid, criteria {words}**" in report
        assert ("Criteria missed:" in text, "Criteria missed:" in report) == (missed, missed)
        left = "messages not delivered by the end (delivery.undelivered_at_end): 2, at most 0 wanted"
        unjudged = text.partition("Criteria not judged, as the run ended early and did not wait for its last mail:\n")[
            2
        ]
        assert left in unjudged.partition("\n\n")[0]
        assert re.search(r"^delivery.undelivered_at_end +2 +at most 0 +not judged$", text, re.MULTILINE)
        assert "| Messages not delivered by the end | 2 | at most 0 | - not judged |" in report
        assert "; the run ended early and did not wait for its last mail\n" in text
        assert "The run ended early and did not wait for its last mail." in report
        assert "What to do next: run again, up to the end." in report
    assert "score (score_ms): 200 ms, at most 100 ms wanted" in texts["slow"][0]
    assert re.search(r"^score_ms +200 ms +at most 100 ms +missed$", texts["slow"][0], re.MULTILINE)


def test_only_log_on_and_log_off_are_of_the_whole_run(tmp_path: Path) -> None:
    """A note names those that are shown."""
    logged = [done("LOGON", -10, 5), done("LOGOFF", 400_000, 5)]
    for tasks, note in (
        ([], ""),
        (logged[:1], "LOGON is of the whole run, not of the window.\n"),
        (logged, "LOGON and LOGOFF are of the whole run, not of the window.\n"),
    ):
        log = sample_log(tmp_path / f"{len(tasks)}.tlog", [done("READ", 0, 5), *tasks])
        summary = summarise([log])
        for text in (full_answer(summary), short_answer(summary, 80)):
            assert ("of the whole run" in text) == bool(note)
            assert note in text


@pytest.mark.parametrize(
    ("interval_ms", "shown"),
    [(None, "105"), ((104.9, 105.7), "105.3"), ((101.0, 111.0), "105"), ((60.0, 160.0), "110")],
)
def test_answer_and_report_show_the_score_with_the_same_digits(
    tmp_path: Path, interval_ms: tuple[float, float] | None, shown: str
) -> None:
    """Those that its interval supports; without one, those of any time."""
    (module,) = of_one_task(tmp_path, 105.3).figures.by_protocol.values()
    module = replace(module, score_interval_ms=interval_ms)
    assert score_rows(module)[-1][4] == shown
    assert score_words(module, module.score_ms) == f"{shown} ms"


def test_numbers_have_separators(tmp_path: Path) -> None:
    """Of counts, rates and times in the lists and tables of criteria."""
    limits = {"score_ms": {"below": 1500}, "log_ons": {"min": 12345}, "delivery.max_ms": {"max": 2000.5}}
    text = full_answer(summarise([sample_log(tmp_path / "a.tlog", [done("READ", 0, 2)], header={"criteria": limits})]))
    assert "log_ons: 0, at least 12,345 wanted" in text
    assert "below 1,500 ms" in text
    assert "at most 2,000.5 ms" in text
    assert not re.search(r"\d{4,} (?:ms|wanted)", text)


def test_colour_only_on_a_terminal(two_clients: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is coloured in a pipe, with NO_COLOR, or on a dumb terminal; the text is the same."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain = shown_answer(two_clients, wide=False)
    assert plain == short_answer(two_clients, WIDTH)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    coloured = shown_answer(two_clients, wide=False)
    assert coloured.startswith("\x1b[1;31mVerdict: invalid, criteria missed\x1b[0m\n")
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown_answer(two_clients, wide=False) == plain
    monkeypatch.setenv("COLUMNS", "300")
    assert shown_answer(two_clients, wide=False) == short_answer(two_clients, MOST_WIDTH)
    assert shown_answer(two_clients, wide=True) == full_answer(two_clients)


@pytest.mark.parametrize(
    ("took_ms", "keys", "last"),
    [
        (5, {}, "Verdict: valid, criteria met; score 5.0 ms"),
        (5, {"embedded": True}, "Verdict: valid, criteria met; on the embedded server: no measurement"),
        (70_000, {"limits": {"hits": 99}}, "Verdict: invalid, criteria missed"),
    ],
)
def test_a_terminal_that_has_scrolled_shows_the_verdict_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_ms: float, keys: dict[str, Any], last: str
) -> None:
    """As the last line, with a score that may be quoted; not where all of the answer is in view, nor in a pipe."""
    summary = of_one_task(tmp_path, took_ms, **keys)
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")
    assert scrolled_away(summary, ["a line"] * 60) == []  # standard output is no terminal here
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert scrolled_away(summary, ["a line"] * 24) == ["", last]  # and the prompt
    assert scrolled_away(summary, ["a line", ""] * 11 + ["x" * 80]) == []
    assert scrolled_away(summary, ["a line", ""] * 11 + ["x" * 81]) == ["", last]


def test_the_next_steps_follow_a_run_on_the_embedded_server(tmp_path: Path) -> None:
    """It worked only if it is valid and met its criteria."""
    good = next_steps(RunResult(tmp_path, of_one_task(tmp_path, 5, embedded=True)))
    assert good[1].endswith(f" log answer --wide {tmp_path}")
    assert "This worked." in "\n".join(good)
    steps = [line.split()[:2] for line in good[2:] if line.startswith("  ") and not line.startswith("  #")]
    assert [step[-1] for step in steps] == ["new", "check", "run"]
    assert "--set run.day_length=5m" in good[-3]  # the shortest run first: the whole one takes 2 h
    assert max(map(len, good[2:])) <= 80
    bad = next_steps(RunResult(tmp_path, of_one_task(tmp_path, 70_000, embedded=True)))
    assert "This worked." not in "\n".join(bad)


WARM_UP = "the window is not steady: a longer warm-up may help (run.warm_up)"
SAME_CORES = suspicious(Generator(machines=(MachineHealth("c1", 2, 0.5, 0.0, 0.1, shares_cpus=True),)), False)
ONE_CORE = suspicious(Generator(machines=(MachineHealth("c1", 1, 0.5, 0.0, 0.1, shares_cpus=True),)), False)


@pytest.mark.parametrize(
    ("warnings", "hits", "change"),
    [
        ((), 300, None),
        ((), 299, "more days (run.days) or more users"),
        ((WARM_UP,), 300, "a longer warm-up (run.warm_up)"),
        (SAME_CORES, 300, "--pin (as root)"),
        (ONE_CORE, 300, None),
        ((WARM_UP, *SAME_CORES), 300, "a longer warm-up (run.warm_up), --pin (as root)"),
    ],
)
def test_repeats_do_not_have_a_fault_that_is_known(
    tmp_path: Path, warnings: tuple[str, ...], hits: int, change: str | None
) -> None:
    """A warning of the run would be one of its repeats: what avoids it is advised."""
    one = of_enough_hits(tmp_path, hits)
    one = replace(one, verdict=replace(one.verdict, warnings=tuple(warnings)))
    advised = f"take {change}, and make three" if change else "make three"
    assert next_step(one) == f"{advised} such runs or more before you quote a score."
    lines = next_steps(RunResult(tmp_path, one))
    assert f"Next: {next_step(one)}" in " ".join(lines)
    assert max(map(len, lines[2:])) <= 80


def test_a_run_that_missed_a_criterion_is_not_to_be_repeated(tmp_path: Path) -> None:
    assert len(next_steps(RunResult(tmp_path, of_one_task(tmp_path, 70_000)))) == 2


def test_counts_have_separators_of_thousands() -> None:
    """In the table of commands, too."""
    took = Times(max_ms=1153.8)
    commands = [CommandFigures("DONE", hits, 0, took) for hits in (2271, 396)]
    rows = [line.split() for line in text_table(command_table(commands))]
    assert [row[1] for row in rows[1:]] == ["2,271", "396"]
    assert "1,153.8" in rows[1]
