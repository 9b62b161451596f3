"""The report: its tables in three forms, its series against numpy, a page that needs nothing and gives nothing away."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import all_tables, listed, table
from health_samples import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from paths import GOLDEN_FILES, ROOT
from patience import PATIENCE_S
from timing_samples import (
    DELIVERED,
    ENDED,
    EPOCH_NS,
    HEADER,
    LOGGED_ON,
    done,
    event,
    ms,
    sample_log,
    skipped,
    write_sample,
    write_two_clients,
)

from loadsim.analysis.failures import failures
from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.series.health import engine_series, machine_cpu_series
from loadsim.analysis.series.mail import mail_series
from loadsim.analysis.series.tasks import (
    Bins,
    bins_of,
    lateness_series,
    service_time_series,
    task_series,
    throughput_series,
)
from loadsim.analysis.summary import summarise
from loadsim.cli import main
from loadsim.cli.report import document_of
from loadsim.cli.run import report_on
from loadsim.comparison.many_runs import describe_runs
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.verdict import Verdict
from loadsim.report.charts import drawn
from loadsim.report.document import Axis, Chart, Column, Document, Line, Listing, Panel, Section, Table
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown
from loadsim.report.one_run import mail_blocks
from loadsim.report.text import to_text
from loadsim.timinglog.writer import TimingLogWriter

VOID = ("meta", "br", "wbr", "hr", "img", "link", "input")

HOSTILE = """<b>&"'</b> a|b `c` $x$ </title><script>alert(1)</script>"""
"""A name that means something in HTML, Markdown and mathematics."""


class Page(HTMLParser):
    """An HTML page: its elements with their attributes, its text, and its tables; it fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._open: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("th", "td", "caption"):
            self._cell = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag in ("th", "td", "caption"):
            assert self._cell is not None
            said, self._cell = "".join(self._cell), None
            if tag == "caption":
                self.tables[-1] = (said, self.tables[-1][1])
            else:
                self.tables[-1][1][-1].append(said)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._cell is not None:
            self._cell.append(data)

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Document, str]]:
    place = tmp_path_factory.mktemp("runs")
    two = write_two_clients(place / "two")
    found = {"two clients": document_of([str(two)]), "several runs": document_of([str(two), str(two)])}
    for name, write in KINDS.items():
        write(place / name)
        found[name] = document_of([str(place / name)])
    return {name: (document, to_html(document)) for name, document in found.items()}


def _without_hits(place: Path) -> None:
    write_sample(place / "a.tlog", [done("READ", 1000, 5, outcome="refused", error="NO FETCH"), skipped("SEND", 2000)])


def _without_tasks(place: Path) -> None:
    write_sample(place / "a.tlog", facts={})


def _damaged(place: Path) -> None:
    log = write_sample(place / "a.tlog", [done("READ", number, 5) for number in range(50)])
    log.write_bytes(log.read_bytes()[:-3])


def _stress(place: Path) -> None:
    tasks = [done("READ", number * 100, 50 + number % 7) for number in range(60)]
    write_sample(place / "a.tlog", tasks, header={"mode": "stress"})


def _two_modules(place: Path) -> None:
    tasks = [done("READ", number * 100, 50, protocol=("imap", "aioimaplib")[number % 2]) for number in range(60)]
    write_sample(place / "a.tlog", tasks)


def _in_no_time(place: Path) -> None:
    write_sample(place / "a.tlog", [done("READ", 500, 0), done("READ", 700, 0)])


def _hostile(place: Path) -> None:
    tasks = [done("READ", 500, 9), done(HOSTILE, 700, 12), done("SEND", 900, 5, outcome="refused", error=HOSTILE)]
    names = {"name": HOSTILE, "run": HOSTILE, "server": HOSTILE, "client": "c1"}
    write_sample(place / "logs" / "a.tlog", tasks, header=names)
    told = {"event": "failure", "task": "SEND", "outcome": "refused", "kind": HOSTILE, "line": HOSTILE, "at_s": 0.9}
    (place / "events.jsonl").write_text(json.dumps(told) + '\nno JSON\n[1]\n{"event": "fail', encoding="utf-8")
    (place / "scenario.yaml").write_text(json.dumps({"name": HOSTILE, HOSTILE: [{"a": HOSTILE}]}), encoding="utf-8")


def _watched(place: Path) -> None:
    """With health samples of engine and machine, and with mail."""
    mails = [event("accepted", "n1.0", 2, 1000), event("seen", "n1.0", 2, 1400), event("accepted", "n1.1", 2, 2000)]
    write_sample(place / "logs" / "c1.0.tlog", [done("SEND", 900, 90, late_ms=3), done("READ", 1500, 20)], mails)
    _write_health(
        place / "logs" / "c1.1.tlog", {"engine": "1"}, [_engine_sample(1, [500, 9000]), _engine_sample(2, [])]
    )
    facts = {"server_here": True, "imap_greeting": "OK ready"}
    machine = {"core_shares": [0.5, 0.7], "cpu_share": 0.6, "stolen_share": 0.0, "memory_available_bytes": 2**30}
    sample = machine | {"at_ns": ms(1000), "segments_sent": 5, "segments_sent_again": 0}
    _write_health(place / "logs" / "c1.machine.tlog", {"engine": "machine", "engine_users": 0}, [sample], facts)


def _engine_sample(at_s: float, lags_us: list[int]) -> dict[str, Any]:
    ticks = {"at_ns": ms(at_s * 1000), "lags_from_ns": ms(at_s * 1000 - 10 * len(lags_us)), "lags_us": lags_us}
    return ticks | {"cpu_share": 0.25 * at_s, "rss_bytes": 2**20 * round(at_s)}


def _write_health(
    path: Path, header: Mapping[str, Any], samples: list[dict[str, Any]], facts: Mapping[str, Any] | None = None
) -> None:
    writer = TimingLogWriter(path, HEADER | dict(header), EPOCH_NS)
    for one in samples:
        writer.health(one)
    writer.facts(ENDED | dict(facts or {}))
    writer.close()


KINDS = {
    "without hits": _without_hits,
    "without tasks": _without_tasks,
    "damaged": _damaged,
    "stress": _stress,
    "two modules": _two_modules,
    "in no time": _in_no_time,
    "hostile": _hostile,
    "watched": _watched,
}


def test_a_run_has_its_tables(tmp_path: Path) -> None:
    """The whole report in Markdown, as it was read and held against the answer's own golden file."""
    assert to_markdown(document_of([str(write_two_clients(tmp_path / "run"))])) == (
        GOLDEN_FILES / "report.md"
    ).read_text("utf-8")


def test_html_and_markdown_have_the_same_tables(reports: dict[str, tuple[Document, str]]) -> None:
    """HTML has each table of the document, charts as their figures, cell by cell; so has Markdown."""
    for name, (document, written) in reports.items():
        wanted = all_tables(document)
        assert wanted, name
        page = Page(written)
        assert page.tables == [(table.caption, [titles(table), *cells(table)]) for table in wanted], name
        text = to_markdown(document)
        rows = sum(len(table.rows) + 2 for table in wanted)
        assert sum(line.startswith("| ") for line in text.splitlines()) == rows, name


def titles(table: Table) -> list[str]:
    return [column.title for column in table.columns]


def cells(table: Table) -> list[list[str]]:
    return [[column.shown(cell) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows]


def test_cells_are_formatted_by_column() -> None:
    """Figures with the digits of their column, words as they are, and what is not known as a dash."""
    assert [Column("a", 1).shown(cell) for cell in (1.25, 3, None, "x", 0.0)] == ["1.2", "3.0", "-", "x", "0.0"]
    assert [Column("a", 0).shown(cell) for cell in (1234567, math.inf)] == ["1,234,567", "never"]
    times = [Column("a", "time").shown(cell) for cell in (1.25, 1234.5, 228_307.4, math.inf, None, "x")]
    assert times == ["1.2 ms", "1,234 ms", "228 s", "never", "-", "x"]


def test_markdown_characters_are_escaped() -> None:
    """A cell cannot end its row or begin another, and a text is no heading, list or link."""
    table = Table("a*b", (Column("c|d"), Column("e")), (("x\ny|z", "`<q>` [l](m) #1"),))
    text = to_markdown(Document("t", "s", "v", "good", (Section("heading", (table,)),)))
    assert text.splitlines()[-5:] == [
        r"**a\*b**",
        "",
        r"| c\|d | e |",
        "| --- | --- |",
        r"| x y\|z | \`&lt;q&gt;\` \[l\](m) \#1 |",
    ]


def test_the_page_is_self_contained_and_well_formed(reports: dict[str, tuple[Document, str]]) -> None:
    """No script, no address, no other file; a language, a title, and a head for every row and column."""
    for name, (_, text) in reports.items():
        page = Page(text)
        assert page.of("script", "link", "img", "iframe", "object", "embed", "form", "base") == [], name
        without_policy = re.sub(r"<meta http-equiv=.*?>", "", text)  # it has hashes
        assert not re.search(r"https?:|//|@import|url\((?!#)", without_policy), name
        for _, attributes in page.elements:
            assert not {"src", "srcset", "xlink:href", "action"} & attributes.keys(), name
            assert all(not key.startswith("on") for key in attributes), name
            assert (attributes.get("href") or "#").startswith("#"), name
        assert page.of("html") == [{"lang": "en"}], name
        assert len(page.of("title")) == len(page.of("h1")) == 1, name
        assert {attributes.get("scope") for attributes in page.of("th")} <= {"col", "row"}, name
        assert len(page.of("caption")) == len(page.of("table")) > 0, name
        plots = [svg for svg in page.of("svg") if svg.get("class") == "plot"]
        assert all(svg["role"] == "img" and svg["aria-label"] for svg in plots), name
        named = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(named) == len(set(named)), name
        assert "@media print" in text, name


def test_foreign_names_are_escaped(tmp_path: Path) -> None:
    """Names of runs, tasks, servers and errors are shown as they are, and none of them is an element."""
    _hostile(tmp_path / "hostile")
    document = document_of([str(tmp_path / "hostile")])
    text = to_html(document)
    page = Page(text)
    assert page.of("script", "b") == []
    assert HOSTILE in "".join(page.texts)
    assert any(HOSTILE in row for _, rows in page.tables for row in rows)
    markdown = to_markdown(document)
    assert "<script" not in markdown and "<b>" not in markdown


def test_control_characters_of_a_scenario_are_escaped(tmp_path: Path) -> None:
    """A run directory from elsewhere: its scenario sends no terminal a colour, a bell or another direction."""
    (run := tmp_path / "run").mkdir()
    write_sample(run / "a.tlog", [done("READ", 500, 9)])
    odd = "a\x1b[31m\x07\u202eb"
    scenario = {"name": odd, odd: odd, "topology": [{"users": 2, "profile": odd}]}
    (run / "scenario.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    document = document_of([str(run)])
    for text in (to_html(document), to_markdown(document)):
        assert "31m" in text
        assert not {"\x1b", "\x07", "\u202e"} & {*text}


@pytest.mark.slow
def test_reports_are_deterministic(tmp_path: Path) -> None:
    """Here and in a process with other hashes, each form is the same, to the byte."""
    _watched(tmp_path / "run")
    here = to_html(document_of([str(tmp_path / "run")]))
    assert here.count('<svg class="plot"') >= 4
    made = subprocess.run(
        [sys.executable, "-m", "loadsim", "report", str(tmp_path / "run"), "-o", str(tmp_path / "again.html")],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "again.html").read_text("utf-8") == here


def test_no_password_is_in_a_report(tmp_path: Path) -> None:
    """Not even with a user's own scenario in the directory of the logs."""
    place = write_two_clients(tmp_path / "run")
    scenario = "accounts:\n  password: hunter2\nserver:\n  imap:\n    Password: [hunter2]\n"
    (place / "scenario.yaml").write_text(scenario, encoding="utf-8")
    document = document_of([str(place)])
    for text in (to_html(document), to_markdown(document)):
        assert "hunter2" not in text
        assert "accounts.password" in text


def test_the_first_screen_of_a_page_has_few_words(tmp_path: Path) -> None:
    """Of a run without other findings than notes: title, verdict, and what stands above the criteria."""
    reads = [done("READ", 500 + at, 9) for at in range(20)]
    write_sample(tmp_path / "a.tlog", [LOGGED_ON, *reads], DELIVERED, header={"limits": {}})
    document = document_of([str(tmp_path)])
    assert document.tone == "good"
    above = [block for section in document.sections[:2] for block in section.blocks]
    assert sum(isinstance(block, Chart) for block in above) == 1
    texts = [text for block in above if isinstance(block, Listing) for text in (block.caption, *block.texts)]
    texts += [document.title, document.subtitle, document.banner, *(block for block in above if isinstance(block, str))]
    assert len(" ".join(texts).split()) <= 60


def test_each_format_has_the_same_codes(tmp_path: Path) -> None:
    """Those of the run; a page leads from each to its meaning."""
    run = write_two_clients(tmp_path / "run")
    document = document_of([str(run)])
    codes = {one.code for one in summarise([run]).verdict.findings} - {Code.ONE_RUN}
    assert codes == set(document.codes)
    page = to_html(document)
    assert page.index(document.banner) < page.index('<svg class="plot"') < page.index('href="#hits-missing"')
    for code in codes:
        assert f'href="#{code.id}"' in page and f'id="{code.id}"' in page
        assert all(f"{code.id}" in text for text in (to_markdown(document), to_text(document), to_text(document, 80)))


@pytest.mark.parametrize(
    ("limits", "hits", "title"),
    [
        ({"hits": 3}, 2, "no valid score"),
        ({"hits": 1}, 2, "provisional score 5.0 ms"),
        ({"hits": 1}, 300, "score 5.0 ms"),
    ],
)
def test_the_title_quotes_valid_figures_only(tmp_path: Path, limits: dict[str, Any], hits: int, title: str) -> None:
    """No score of an invalid run; one of few hits is called provisional."""
    sample_log(tmp_path / "a.tlog", [done("READ", number, 5) for number in range(hits)], header={"limits": limits})
    assert document_of([str(tmp_path / "a.tlog")]).title == f"sample: 2 users, {title}"


def test_the_servers_greetings_are_disclosed(tmp_path: Path) -> None:
    """The greeting in the machine's log; what is not known is said to be so, unless a note says it."""
    _watched(tmp_path / "run")
    told = disclosed(tmp_path / "run")
    assert told["IMAP greeting"] == "OK ready"
    assert told["SMTP greeting"] == "not known to loadsim"
    assert told["Server runs on"] == "the generator's machine"


def disclosed(run: Path) -> dict[Any, Any]:
    (table,) = document_of([str(run)]).sections[-1].blocks
    assert isinstance(table, Table)
    return dict(table.rows)


def test_the_file_system_of_the_run_directory_is_disclosed(tmp_path: Path) -> None:
    system = {"type": "ext4", "source": "/dev/vdb", "mounted_at": "/", "options": "rw,noatime", "model": "Fast Disk"}
    write_sample(tmp_path / "a.tlog", [done("READ", 500, 9)])
    facts = {"run_file_system": system}
    _write_health(tmp_path / "seen.tlog", {"engine": "machine", "engine_users": 0}, [], facts)
    assert disclosed(tmp_path)["Run directory on"] == "ext4 on /dev/vdb (Fast Disk), mounted at / (rw,noatime)"


def test_the_embedded_server_never_has_a_good_tone(tmp_path: Path) -> None:
    """However well it did, the first line says that it is no measurement, and its colour is not that of success."""
    write_sample(tmp_path / "a.tlog", [LOGGED_ON, done("READ", 500, 9)], DELIVERED, header={"embedded": True})
    document = document_of([str(tmp_path)])
    assert (document.banner, document.tone) == (
        "Valid, criteria met; on the embedded server: no measurement",
        "doubtful",
    )


def test_due_tasks_are_counted_by_outcome(tmp_path: Path) -> None:
    """Due, begun, succeeded, failed, by the generator, still running, not begun. Without log-ons."""
    tasks = [done("READ", 100, 5), done("READ", 200, 5, outcome="lost"), skipped("READ", 300), done("LOGON", 100, 5)]
    tasks.append(done("READ", 400, 5, outcome="unfinished", ended_ns=None))
    write_sample(tmp_path / "a.tlog", tasks, header={"window_s": [0.0, 2.0]})
    found = table(document_of([str(tmp_path / "a.tlog")]), "Due against done")
    assert found == {"READ": (4, 3, 1, 1, 0, 1, 1, 0.5)}


def test_errors_are_counted_with_the_servers_first_line(tmp_path: Path) -> None:
    """Times from the log, the line from the events, in all engines; what broke between tasks from the events alone."""
    place = tmp_path / "run"
    refused = {"outcome": "refused", "error": "NO APPEND"}
    tasks = [
        done("SEND", 500, 9, **refused),
        done("SEND", 300, 9, **refused),
        done("SEND", 150_000, 9, **refused),  # due after the window
        done("READ", 700, 9, outcome="lost", error="lost"),
        done("READ", 800, 9),
    ]
    write_sample(place / "logs" / "a.tlog", tasks, header={"duration_s": 200.0})
    events = [
        {
            "event": "failure",
            "task": "SEND",
            "outcome": "refused",
            "kind": "NO APPEND",
            "line": "over quota",
            "at_s": 9,
        },
        {"event": "failure", "task": "SEND", "outcome": "refused", "kind": "NO APPEND", "line": "later", "at_s": 10},
        {"event": "failure", "task": "IDLE", "outcome": "lost", "kind": "BYE", "line": "going down", "at_s": 12.5},
        {"event": "failures", "task": "IDLE", "outcome": "lost", "kind": "BYE", "times": 2},
        {"event": "failures", "task": "IDLE", "outcome": "lost", "kind": "BYE", "times": 3},
    ]
    (place / "events.jsonl").write_text("".join(json.dumps(told) + "\n" for told in events), encoding="utf-8")
    found = [
        (one.task, one.kind, one.times, one.in_window, one.first_s, one.line) for one in failures(read_run(str(place)))
    ]
    assert found == [
        ("IDLE", "BYE", 5, 0, 12.5, "going down"),
        ("SEND", "NO APPEND", 3, 2, 0.309, "over quota"),
        ("READ", "lost", 1, 1, 0.709, ""),
    ]


def test_several_runs_are_shown_by_number_of_users(tmp_path: Path) -> None:
    """A table in the order of users."""
    for name, users, took_ms in (("c", 20, 40), ("a", 10, 10), ("b", 20, 90), ("d", 20, 60)):
        header = {"users": users, "engine_users": users, "run": f"run-{name}", "criteria": {"score_ms": {"below": 50}}}
        reads = [done("READ", 500 + at, took_ms) for at in range(20)]
        write_sample(tmp_path / name / "logs" / "a.tlog", reads, header=header | {"limits": {}})
    document = document_of([str(tmp_path / name) for name in "cabd"])
    runs, differences, *_ = document.sections
    rows, *_, step = runs.blocks
    assert isinstance(rows, Table)
    assert [column.title for column in rows.columns[:5]] == ["Run", "Users", "Score (ms)", "Failed (%)", "Verdict"]
    assert [(*row[:3], row[4]) for row in rows.rows] == [
        ("a", 10, 10.0, "valid, criteria met"),
        ("b", 20, 90.0, "valid, criteria missed"),
        ("c", 20, 40.0, "valid, criteria met"),
        ("d", 20, 60.0, "valid, criteria missed"),
    ]
    (differing,) = differences.blocks
    assert isinstance(differing, Table)
    assert differing.rows == (("Users", "a", "10"), ("Users", "b, c, d", "20"))
    assert step == f"Next: {Code.CRITERION_MISSED.remedy}."
    assert document.tone == "doubtful"


def test_several_invalid_runs_have_their_reason_on_the_page(tmp_path: Path) -> None:
    """Once, with the range of its figures, so that readers need not open three reports."""
    for at, lag_us in enumerate((7_000, 8_000, 9_800)):
        header = {"users": 10, "engine_users": 10, "run": f"run-{at}", "criteria": {"score_ms": {"below": 50}}}
        health = [sample(second, [lag_us] * 100) for second in range(1, 101)]
        write_sample(
            tmp_path / str(at) / "logs" / "a.tlog", [done("READ", 500, 10)], header=header, health=health, facts=ENDED
        )
    document = document_of([str(tmp_path / str(at)) for at in range(3)])
    (late,) = (one for one in listed(document, "Why runs are not valid") if one.endswith("[event-loop-late]"))
    assert late.startswith("3 of 3 runs: ") and "7.0 ms to 9.8 ms" in late
    assert document.sections[0].blocks[-1] == f"Next: {Code.NOT_OBSERVED.remedy}."


REFUSED = (finding(Code.NO_THROUGHPUT),)


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        (
            [(10, ()), (20, ()), (20, REFUSED)],
            "3 of 4 runs met their criteria; in 1 of them, the server did not take the load",
        ),
        ([(10, REFUSED)], "0 of 2 runs met their criteria; in 2 of them, the server did not take the load"),
        ([(10, ()), (20, (finding(Code.LOAD_UNKNOWN),))], "3 of 3 runs met their criteria; 1 of them degraded"),
    ],
    ids=["refused once", "always refused", "degraded"],
)
def test_the_verdict_on_several_runs_counts_them(
    tmp_path: Path, runs: list[tuple[int, tuple[Finding, ...]]], verdict: str
) -> None:
    """A run with 5 users has the verdict of the first."""
    recorded = []
    for at, (users, more) in enumerate([(5, runs[0][1]), *runs]):
        header = {"users": users, "engine_users": users, "run": f"run-{at}", "limits": {"hits": 1}}
        header["criteria"] = {"score_ms": {"below": 50}}
        place = tmp_path / str(at)
        write_sample(place / "a.tlog", [LOGGED_ON, done("READ", 500, 10)], DELIVERED, header=header)
        run = read_run(str(place))
        verdict_of = Verdict((*run.summary.verdict.findings, *more))
        recorded.append(replace(run, summary=replace(run.summary, verdict=verdict_of)))
    assert describe_runs(recorded).verdict == verdict


def test_invalid_runs_have_no_times(tmp_path: Path) -> None:
    for name, users, took_ms, hits in (("a", 10, 10, 1), ("b", 20, 30, 1), ("c", 20, 90, 5), ("d", 30, 70, 1)):
        header = {"users": users, "engine_users": users, "run": f"run-{name}", "limits": {"hits": hits}}
        write_sample(tmp_path / name / "a.tlog", [LOGGED_ON, done("READ", 500, took_ms)], DELIVERED, header=header)
    document = document_of([str(tmp_path / name) for name in "abcd"])
    assert document.verdict == "3 of 3 runs met their criteria; 1 more invalid and not counted"
    table = document.sections[0].blocks[0]
    assert isinstance(table, Table)
    assert {row[0]: row[2] for row in table.rows} == {"a": 10.0, "b": 30.0, "c": "not shown", "d": 70.0}
    for time in (5, 6):  # response score, and delivery
        assert [row[0] for row in table.rows if row[time] == "not shown"] == ["c"]


def test_a_closed_loop_has_no_score(tmp_path: Path) -> None:
    """Its report has throughput instead, and nothing of plan, weights or lateness."""
    _stress(tmp_path / "run")
    document = document_of([str(tmp_path / "run")])
    text = to_markdown(document)
    assert document.title == "sample: 2 users, 0.6 tasks per second"
    assert "| Throughput | 0.6 successful tasks/s" in text
    for word in ("Weight", "| due |", "Tasks: due", "Lateness", "Score, weighted"):
        assert word not in text


def nearest_rank(values: NDArray[Any], share: Fraction) -> float:
    """The smallest value that at least this share of all do not exceed: the definition, counted out.

    (numpy's `inverted_cdf` computes the rank in floating point: it takes the eighth of 100 for 7 %.)
    """
    return float(next(value for value in np.sort(values) if np.count_nonzero(values <= value) >= share * len(values)))


@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(st.integers(-5_000_000, 30_000_000), st.integers(0, 10_000)), max_size=200),
    width_s=st.sampled_from([1.0, 2.0, 7.0, 20.0]),
    percent=st.integers(1, 100),
)
def test_percentiles_in_bins_are_numpys(rows: list[tuple[int, int]], width_s: float, percent: int) -> None:
    """Each is the nearest-rank percentile of the values in [begin, end) of its bin; none where there is no value."""
    bins = Bins(2.0, 20.0, width_s)
    at_us, values = np.array(rows, np.int64).reshape(-1, 2).T
    (found,) = bins.percentiles(at_us, values, (percent,))
    assert len(bins) == len(bins.starts_s) == len(found) == -(-18 // int(width_s))
    assert bins.lengths_s.sum() == 18
    for index, (begin_s, length_s) in enumerate(zip(bins.starts_s, bins.lengths_s, strict=True)):
        own = values[(at_us >= begin_s * 1e6) & (at_us < (begin_s + length_s) * 1e6)]
        if len(own):
            assert found[index] == nearest_rank(own, Fraction(percent, 100))
        else:
            assert np.isnan(found[index])
        assert bins.count(at_us)[index] == len(own)


def test_times_of_tasks_are_shown_by_bin(tmp_path: Path) -> None:
    """By bin over the whole run: hits only, by due time, without log-ons."""
    generator = np.random.default_rng(7)
    due_ms = np.sort(generator.uniform(0, 40_000, 500)).round(3)
    took_ms = generator.gamma(2, 20, 500).round(3)
    tasks = [done("READ", due, took) for due, took in zip(due_ms.tolist(), took_ms.tolist(), strict=True)]
    others = [done("LOGON", 100, 5), done("READ", 10_000, 9e6, outcome="timeout"), done("SEND", 35_000, 3)]
    log = sample_log(tmp_path / "a.tlog", [*tasks, *others], header={"duration_s": 40.0})
    bins = bins_of(log)
    assert (bins.begin_s, bins.end_s, bins.width_s) == (0.0, 40.0, 1.0)
    send, read = task_series(log, bins, {"SEND": 2})
    assert (send.task, read.task) == ("SEND", "READ")
    own = took_ms[(due_ms >= 7000) & (due_ms < 8000)]
    assert read.p50_ms[7] == pytest.approx(nearest_rank(own, Fraction(50, 100)))
    assert read.p95_ms[7] == pytest.approx(nearest_rank(own, Fraction(95, 100)))
    assert np.flatnonzero(~np.isnan(send.p50_ms)).tolist() == [35]
    median_ms, p95_ms = service_time_series(log, bins)
    all_ms = np.append(took_ms[(due_ms >= 35_000) & (due_ms < 36_000)], 3)
    assert median_ms[35] == pytest.approx(nearest_rank(all_ms, Fraction(50, 100)))
    assert p95_ms[35] == pytest.approx(nearest_rank(all_ms, Fraction(95, 100)))


def test_due_and_done_tasks_are_counted_by_bin(tmp_path: Path) -> None:
    """Due by due time, done and failed by their end; what never ended is due only."""
    tasks = [
        done("READ", 100, 50),
        done("READ", 900, 200),  # ends a second later
        done("SEND", 950, 60, outcome="lost"),
        done("SEND", 200, 10, outcome="unfinished", ended_ns=None),
        skipped("MOVE", 1500),
        done("LOGON", 10, 10),
    ]
    log = sample_log(tmp_path / "a.tlog", tasks, header={"duration_s": 2.0})
    found = throughput_series(log, bins_of(log))
    assert {name: per_s.tolist() for name, per_s in found.items()} == {"due": [4, 1], "done": [1, 2], "failed": [0, 1]}


def test_lateness_is_shown_by_cause(tmp_path: Path) -> None:
    """The 95th percentile of each, over the tasks of the answer: followers are, SYNC, log-ons and spans are not."""
    late = {"late_busy_s": 0.004, "late_down_s": 0.5, "late_generator_s": 0.25}
    unplanned = [done(name, 400, 5, late_generator_s=90.0) for name in ("SYNC", "LOGON", "PROCESS INBOX", "NO SESSION")]
    log = sample_log(
        tmp_path / "a.tlog",
        [done("READ", 100, 5, **late), done("MOVE", 200, 5, late_generator_s=9.0), skipped("READ", 300), *unplanned],
        header={"duration_s": 2.0, "window_s": [0.0, 1.0]},
    )
    found = lateness_series(log, bins_of(log))
    of_first = {cause: late_ms[0] for cause, late_ms in found.items()}
    assert of_first == pytest.approx({"busy": 4, "down": 500, "generator": 9000})
    assert of_first == pytest.approx(summarise([log]).score["lateness_p95_ms"])
    assert all(np.isnan(late_ms[1]) for late_ms in found.values())


def test_mail_is_shown_over_time(tmp_path: Path) -> None:
    """Copies accepted and delivered, what is under way at each bin's end, delivery times by acceptance."""
    log = sample_log(
        tmp_path / "a.tlog",
        [done("SEND", 100, 150), done("REPLY", 500, 1000), done("READ", 500, 1), skipped("FORWARD", 2500)],
        [
            event("accepted", "n1.0", 2, 250),
            event("accepted", "n1.0", 3, 250),
            event("seen", "n1.0", 2, 240),  # before its sender has read the acceptance
            event("accepted", "n1.1", 2, 1500),
            event("seen", "n1.0", 3, 1750),
            event("found", "n1.1", 2, 2900),
            event("accepted", "n1.2", 2, 2999),
        ],
        header={"duration_s": 4.0},
    )
    found = mail_series(log, bins_of(log))
    assert found.due_per_s.tolist() == [2, 0, 1, 0]
    assert found.sent_per_s.tolist() == [1, 1, 0, 0]
    assert found.accepted_per_s.tolist() == [2, 1, 1, 0]
    assert found.arrived_per_s.tolist() == [1, 1, 1, 0]
    assert found.under_way.tolist() == [1, 1, 1, 1]
    assert found.p50_ms[:3].tolist() == [0, 1400, math.inf]  # the second was found by polling, the third never came
    assert found.p95_ms[:3].tolist() == [1500, 1400, math.inf]
    assert np.isnan(found.p50_ms[3]) and np.isnan(found.p95_ms[3])  # nothing was accepted


def test_health_is_shown_over_time(tmp_path: Path) -> None:
    """Of each engine the lags of a bin's ticks, its share of a core; of the machine all its cores."""
    _watched(tmp_path / "run")
    log = read_run(str(tmp_path / "run")).log
    bins = Bins(0.0, 4.0, 1.0)
    ((lag_ms, cpu_share),) = engine_series(log, bins)
    assert lag_ms[1] == 9.0
    assert np.isnan(lag_ms[2])
    assert cpu_share[1:3].tolist() == [0.25, 0.5]
    assert np.isnan(cpu_share[[0, 3]]).all()
    machines = machine_cpu_series(log, bins)
    assert list(machines) == ["c1"]
    assert machines["c1"][1] == 0.6


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"duration_s": 60.0}, (0, 60, 1)),
        ({"duration_s": 61.0}, (0, 61, 2)),
        ({"duration_s": 28_800.0}, (0, 28_800, 600)),
        ({"duration_s": 10_000_000.0}, (0, 10_000_000, 166_667)),
        ({}, (0, 71, 2)),  # as far as tasks were due
    ],
)
def test_bins_suit_the_length_of_the_run(header: dict[str, Any], expected: tuple[float, ...], tmp_path: Path) -> None:
    """At most sixty, of a length that people count in."""
    bins = bins_of(sample_log(tmp_path / "a.tlog", [done("READ", 69_500, 5)], header=header))
    assert (bins.begin_s, bins.end_s, bins.width_s) == expected
    assert len(bins) <= 60


def test_a_chart_has_its_table() -> None:
    """A column for each line of each panel, named after both where there are several panels."""
    axis = _axis((1.0, 2.0))
    low, high = Panel("low", "ms", (Line("a", (1.0, None)),), digits=2), Panel("high", "s", (Line("b", (3.0, 4.0)),))
    table = Chart("both", axis, (low, high)).table()
    assert [column.title for column in table.columns] == ["From", "low: a", "high: b"]
    assert cells(table) == [["1", "1.0 ms", "3.0"], ["2", "-", "4.0"]]
    assert [column.title for column in Chart("one", axis, (low,)).table().columns] == ["From", "a"]


def _axis(positions: tuple[float, ...]) -> Axis:
    return Axis("time", "time", positions, Column("From", 0), positions)


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
@pytest.mark.parametrize(
    "values", [(0.0, 0.0), (None, 3.0), (5.0, 5.0), (1e-9, 1e9), (math.inf, 3.0), (math.inf, math.inf)]
)
def test_any_figures_can_be_drawn(scale: Any, values: tuple[float | None, ...]) -> None:
    """Zeros, gaps, a single figure and figures far apart, on each scale, without a complaint of the library."""
    found = drawn(Chart("c", _axis((0.5, 1.5)), (Panel("p", "ms", (Line("a", values),), scale),)))
    assert ">p</p>" in found
    assert not re.search(r"nan|inf[^i]", found.replace("mi", ""))
    places = [float(place) for place in re.findall(r'(?:x|y|width)="(-?[0-9.e+-]+)%"', found)]
    assert places and all(-0.01 <= place <= 100.01 for place in places)


def test_infinite_figures_are_drawn_at_the_upper_edge() -> None:
    """A mark for each figure that is, and none where there is no figure; the scale is that of the others."""

    def marks(*values: float | None) -> int:
        found = drawn(Chart("c", _axis((0.5, 1.5, 2.5)), (Panel("p", "ms", (Line("a", values),), "log"),)))
        return found.count('href="#mi"')

    assert (marks(2.0, math.inf, math.inf), marks(2.0, None, None)) == (2, 0)


def test_a_report_has_its_default_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTML into the run's directory, or the current one for several runs or a log; or as told."""
    monkeypatch.chdir(tmp_path)
    write_two_clients(tmp_path / "run")
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().out == "run/report.html\n"
    assert (tmp_path / "run" / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert main(["report", "run", "run/logs/c1.0.tlog"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert main(["report", "run", "-o", "a.md"]) == 0
    assert capsys.readouterr().out == "a.md\n"
    assert (tmp_path / "a.md").read_text("utf-8").startswith("# ")


@pytest.mark.slow
def test_a_failed_report_does_not_fail_the_run(tmp_path: Path) -> None:
    """Where none can be made, there is a line instead; where one can, the line says where it is."""
    (tmp_path / "none").mkdir()
    made, line = report_on(tmp_path / "none")
    assert not made
    assert line.startswith(f"No report.html: {tmp_path / 'none'}: expected ")
    run = write_two_clients(tmp_path / "run")
    assert report_on(run) == (True, f"Report: {run / 'report.html'}")
    assert (run / "report.html").exists()


def test_the_table_counts_messages_and_copies(tmp_path: Path) -> None:
    """Messages by their due time, copies by their acceptance, in sight at any time, announced or found by polling."""
    write_sample(
        tmp_path / "run" / "a.tlog",
        [done("SEND", 100, 50), done("REPLY", 500, 100), skipped("FORWARD", 900), done("READ", 500, 1)],
        [
            event("accepted", "n1.0", 2, 150),
            event("accepted", "n1.0", 256, 150),
            event("seen", "n1.0", 2, 200),
            event("found", "n1.0", 256, 1500),
            event("accepted", "rnnnn", 3, 600),
            event("accepted", "n1.1", 2, 1001),  # after the window
            event("seen", "n1.1", 2, 1002),
        ],
        header={"window_s": [0.0, 1.0], "duration_s": 2.0},
    )
    run = read_run(str(tmp_path / "run"))
    table, *_ = mail_blocks(run, bins_of(run.log))
    assert isinstance(table, Table)
    assert [number for _, number in table.rows] == [3, 2, 0, 1, 3, 2, 1, 0, 1, 0, 1]
