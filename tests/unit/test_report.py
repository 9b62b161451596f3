"""The report: its tables in three forms, its series against numpy, a page that needs nothing and gives nothing away."""

from __future__ import annotations

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
from loadsim.analysis.health_series import engine_series, machine_cpu_series, server_cpu_series
from loadsim.analysis.mail_series import mail_series
from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.summary import summarise
from loadsim.analysis.time_series import (
    Bins,
    bins_of,
    lateness_series,
    service_time_series,
    task_series,
    throughput_series,
)
from loadsim.cli import BAD_INPUT, main
from loadsim.cli.report import document_of
from loadsim.cli.run import report_on
from loadsim.errors import LogError
from loadsim.model.terms import Window
from loadsim.report.charts import COLOURS, DASHES, MARKERS, drawn
from loadsim.report.differences import differing_in_words
from loadsim.report.document import Axis, Chart, Column, Document, Line, Listing, Panel, Section, Table, tables, to_json
from loadsim.report.html import to_html
from loadsim.report.many_runs import SAME, describe_runs
from loadsim.report.markdown import to_markdown
from loadsim.report.scales import x_scale
from loadsim.timinglog.writer import TimingLogWriter

GOLDEN = GOLDEN_FILES / "report.md"
VOID = ("meta", "br", "hr", "img", "link", "input")

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
        """Begin an element."""
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
        """An element that ends at once, as in SVG."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """End the innermost element, which must be this one."""
        assert self._open.pop() == tag
        if tag in ("th", "td", "caption"):
            assert self._cell is not None
            said, self._cell = "".join(self._cell), None
            if tag == "caption":
                self.tables[-1] = (said, self.tables[-1][1])
            else:
                self.tables[-1][1][-1].append(said)

    def handle_data(self, data: str) -> None:
        """Text of whatever is open."""
        self.texts.append(data)
        if self._cell is not None:
            self._cell.append(data)

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of these kinds."""
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Document, str]]:
    """Reports on runs of every kind that there is, each with its page."""
    place = tmp_path_factory.mktemp("runs")
    two = write_two_clients(place / "two")
    found = {"two clients": document_of([str(two)], {}), "several runs": document_of([str(two), str(two)], {})}
    for name, write in KINDS.items():
        write(place / name)
        found[name] = document_of([str(place / name)], {"Storage": "a <disk>"})
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
    mails = [
        event("accepted", "n1.0", 2, 1000),
        event("seen", "n1.0", 2, 1400),
        event("accepted", "n1.1", 2, 2000),
    ]
    write_sample(place / "logs" / "c1.0.tlog", [done("SEND", 900, 90, late_ms=3), done("READ", 1500, 20)], mails)
    _write_health(
        place / "logs" / "c1.1.tlog", {"engine": "1"}, [_engine_sample(1, [500, 9000]), _engine_sample(2, [])]
    )
    facts = {"server_here": True, "imap_greeting": "OK ready", "imap_capabilities": ["IMAP4rev1", "IDLE"]}
    machine = {"core_shares": [0.5, 0.7], "cpu_share": 0.6, "stolen_share": 0.0, "memory_available_bytes": 2**30}
    sample = machine | {"at_ns": ms(1000), "segments_sent": 5, "segments_sent_again": 0}
    _write_health(place / "logs" / "c1.machine.tlog", {"engine": "machine", "engine_users": 0}, [sample], facts)


def _engine_sample(at_s: float, lags_us: list[int]) -> dict[str, Any]:
    ticks = {"at_ns": ms(at_s * 1000), "lags_from_ns": ms(at_s * 1000 - 10 * len(lags_us)), "lags_us": lags_us}
    return ticks | {"cpu_share": 0.25 * at_s, "rss_bytes": 2**20 * round(at_s)}


def _write_health(
    path: Path,
    header: Mapping[str, Any],
    samples: list[dict[str, Any]],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """A log of samples only."""
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


# --- the three forms ---


def test_the_tables_of_a_run(tmp_path: Path) -> None:
    """The whole report in Markdown, as it was read and held against the answer's own golden file."""
    assert to_markdown(document_of([str(write_two_clients(tmp_path / "run"))], {})) == GOLDEN.read_text("utf-8")


def test_all_forms_have_the_same_tables(reports: dict[str, tuple[Document, str]]) -> None:
    """HTML and JSON have each table of the document, charts as their figures, cell by cell; so has Markdown."""
    for name, (document, written) in reports.items():
        wanted = [table for section in document.sections for table in tables(section.blocks)]
        assert wanted, name
        page = Page(written)
        assert page.tables == [(table.caption, [titles(table), *cells(table)]) for table in wanted], name
        found = [table for section in to_json(document)["sections"] for table in section["tables"]]
        assert found == [
            {
                "caption": table.caption,
                "columns": [one.title_with_unit for one in table.columns],
                "rows": [list(row) for row in table.rows],
            }
            for table in wanted
        ], name
        text = to_markdown(document)
        rows = sum(len(table.rows) + 2 for table in wanted)
        assert sum(line.startswith("| ") for line in text.splitlines()) == rows, name


def titles(table: Table) -> list[str]:
    """The heads of its columns."""
    return [column.title for column in table.columns]


def cells(table: Table) -> list[list[str]]:
    """Its rows as they are shown."""
    return [[column.shown(cell) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows]


def test_json_is_json(reports: dict[str, tuple[Document, str]]) -> None:
    """No figure is NaN or infinite, which JSON does not know."""
    for name, (document, _) in reports.items():
        text = json.dumps(to_json(document), allow_nan=False)
        assert json.loads(text)["title"] == document.title, name


def test_cells_are_shown() -> None:
    """Figures with the digits of their column, words as they are, and what is not known as a dash."""
    assert [Column("a", 1).shown(cell) for cell in (1.25, 3, None, "x", 0.0)] == ["1.2", "3.0", "-", "x", "0.0"]
    assert [Column("a").shown(cell) for cell in ("x", 7, None, "inf")] == ["x", "7", "-", "inf"]
    assert [Column("a", 0).shown(cell) for cell in (1234567, math.inf)] == ["1,234,567", "never"]
    times = [Column("a", "time").shown(cell) for cell in (1.25, 1234.5, 228_307.4, math.inf, None, "x")]
    assert times == ["1.2 ms", "1,234 ms", "228 s", "never", "-", "x"]
    assert [Column("a", digits).title_with_unit for digits in ("time", 1, None)] == ["a (ms)", "a", "a"]


def test_markdown_escapes_its_own_signs() -> None:
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


# --- the page ---


def test_the_page_needs_nothing_and_is_well_made(reports: dict[str, tuple[Document, str]]) -> None:
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


def test_what_others_named_is_text(tmp_path: Path) -> None:
    """Names of runs, tasks, servers and errors are shown as they are, and none of them is an element."""
    _hostile(tmp_path / "hostile")
    document = document_of([str(tmp_path / "hostile")], {HOSTILE: HOSTILE})
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
    document = document_of([str(run)], {})
    for text in (to_html(document), to_markdown(document), json.dumps(to_json(document), ensure_ascii=False)):
        assert "31m" in text
        assert not {"\x1b", "\x07", "\u202e"} & {*text}


@pytest.mark.slow
def test_the_same_log_gives_the_same_bytes(tmp_path: Path) -> None:
    """Here and in a process with other hashes, each form is the same, to the byte."""
    _watched(tmp_path / "run")
    here = to_html(document_of([str(tmp_path / "run")], {}))
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


def test_a_password_is_nowhere(tmp_path: Path) -> None:
    """Not even where somebody put a scenario of his own beside the logs."""
    place = write_two_clients(tmp_path / "run")
    scenario = "accounts:\n  password: hunter2\nserver:\n  imap:\n    Password: [hunter2]\n"
    (place / "scenario.yaml").write_text(scenario, encoding="utf-8")
    document = document_of([str(place)], {})
    for text in (to_html(document), to_markdown(document), json.dumps(to_json(document))):
        assert "hunter2" not in text
        assert "accounts.password" in text


# --- what it says ---


def test_the_verdict_stands_on_top(tmp_path: Path) -> None:
    """The first lines of the page say whether the run may be believed and was passed, and then why not."""
    document = document_of([str(write_two_clients(tmp_path / "run"))], {})
    assert document.verdict == "Invalid, criteria missed"
    assert document.tone == "bad"
    text = to_html(document)
    assert (
        text.index("Invalid, criteria missed") < text.index("MOVE has too few hits") < text.index('<svg class="plot"')
    )
    assert document.title == "two clients: 2 users, no valid score"


@pytest.mark.parametrize(
    ("limits", "hits", "title"),
    [
        ({"hits": 3}, 2, "no valid score"),
        ({"hits": 1}, 2, "provisional score 5.0 ms"),
        ({"hits": 1}, 300, "score 5.0 ms"),
    ],
)
def test_the_title_quotes_only_what_may_be_quoted(
    tmp_path: Path, limits: dict[str, Any], hits: int, title: str
) -> None:
    """No score of an invalid run; one of few hits is called provisional."""
    sample_log(tmp_path / "a.tlog", [done("READ", number, 5) for number in range(hits)], header={"limits": limits})
    assert document_of([str(tmp_path / "a.tlog")], {}).title == f"sample: 2 users, {title}"


def test_every_section_is_there_in_its_order(tmp_path: Path) -> None:
    """Of one run: the verdict first, the disclosure last."""
    _watched(tmp_path / "run")
    assert [section.title for section in document_of([str(tmp_path / "run")], {}).sections] == [
        "Summary",
        "Score",
        "Server and generator",
        "Service times over time",
        "Throughput",
        "Protocol commands",
        "The generator",
        "Delivery of mail",
        "Errors",
        "Disclosure",
        "Glossary",
    ]


def test_a_report_on_several_runs_explains_its_columns(tmp_path: Path) -> None:
    """In the glossary, with what a score is."""
    for name, users in (("a", 10), ("b", 20)):
        header = {"users": users, "engine_users": users, "run": f"run-{name}"}
        write_sample(tmp_path / name / "logs" / "a.tlog", [done("READ", 500, 5)], header=header)
    document = document_of([str(tmp_path / "a"), str(tmp_path / "b")], {})
    sections = {section.title: section.blocks for section in document.sections}
    assert list(sections)[-2:] == ["Disclosure", "Glossary"]
    (words,) = tables(sections["Glossary"])
    explained = " ".join(str(word) for word, _ in words.rows).lower()
    (runs,) = tables(sections["Runs"])
    titles = {re.sub(r" ?\(.+\)| tasks/s", "", column.title).lower() for column in runs.columns}
    assert {title for title in titles - {"run", "users", "verdict"} if title not in explained} == {
        "failed",
        "delivery, 95th",
    }


def test_what_the_server_said_is_disclosed_and_notes_go_before_it(tmp_path: Path) -> None:
    """Greeting and capabilities of the machine's log; what is not known is said to be so, unless a note says it."""
    _watched(tmp_path / "run")
    notes = {"Storage and file system": "NVMe, ext4", "Price": "none"}
    (table,) = document_of([str(tmp_path / "run")], notes).sections[-2].blocks
    assert isinstance(table, Table)
    told = dict(table.rows)
    assert told["IMAP greeting"] == "OK ready"
    assert told["IMAP capabilities before log-on"] == "IMAP4rev1, IDLE"
    assert told["SMTP greeting"] == "not known to loadsim"
    assert told["Server runs on"] == "the generator's machine"
    assert (told["Storage and file system"], told["Price"]) == ("NVMe, ext4", "none")


def test_storage_is_disclosed_as_the_kernel_told_it(tmp_path: Path) -> None:
    """Of the run directory and of the server's open files; of a server that cannot be seen, that it is not known."""
    system = {"type": "ext4", "source": "/dev/vdb", "mounted_at": "/var/mail", "options": "rw,noatime", "model": None}
    facts = {
        "run_file_system": {**system, "mounted_at": "/", "model": "Fast Disk"},
        "server_file_systems": [
            {**system, "open_by": ["imap", "lmtp"]},
            {**system, "type": "xfs", "open_by": ["qmgr"]},
        ],
    }
    write_sample(tmp_path / "a.tlog", [done("READ", 500, 9)])
    for name, told, wanted in (
        (
            "seen",
            facts,
            (
                "ext4 on /dev/vdb, mounted at /var/mail (rw,noatime), where imap, lmtp had files open;"
                " xfs on /dev/vdb, mounted at /var/mail (rw,noatime), where qmgr had files open",
                "ext4 on /dev/vdb (Fast Disk), mounted at / (rw,noatime)",
            ),
        ),
        ("unseen", {"server_file_systems": []}, ("not known to loadsim", "not known to loadsim")),
    ):
        header = {"engine": "machine", "engine_users": 0}
        machine = tmp_path / f"{name}.tlog"
        _write_health(machine, header, [], told)
        (table,) = document_of([str(tmp_path)], {}).sections[-2].blocks
        assert isinstance(table, Table)
        rows = dict(table.rows)
        assert (rows["Storage and file system"], rows["Run directory on"]) == wanted
        machine.unlink()


def test_the_processes_with_open_files_are_no_difference(tmp_path: Path) -> None:
    """One run saw lmtp with a file open, the other did not: the file systems are the same. Another one differs."""
    ext4 = {"type": "ext4", "source": "/dev/vdb", "mounted_at": "/var/mail", "options": "rw", "model": None}
    for name, systems in (
        ("a", [{**ext4, "open_by": ["imap", "lmtp"]}]),
        ("b", [{**ext4, "open_by": ["imap"]}]),
        ("c", [{**ext4, "type": "xfs", "open_by": ["imap"]}]),
    ):
        write_sample(tmp_path / name / "a.tlog", [done("READ", 500, 9)], header={"run": name})
        header = {"engine": "machine", "engine_users": 0, "run": name}
        _write_health(tmp_path / name / "machine.tlog", header, [], {"server_file_systems": systems})
    same, other = (document_of([str(tmp_path / name) for name in names], {}) for names in ("ab", "abc"))
    assert SAME in same.sections[0].blocks
    assert "What differs between the runs" not in [section.title for section in same.sections]
    (differing,) = other.sections[2].blocks
    assert isinstance(differing, Table)
    assert differing.rows == (
        ("Storage and file system", "ext4 on /dev/vdb", "a, b"),
        ("Storage and file system", "xfs on /dev/vdb", "c"),
    )


def test_the_embedded_server_is_never_good(tmp_path: Path) -> None:
    """However well it did, the first line says that it is no measurement, and its colour is not that of success."""
    write_sample(tmp_path / "a.tlog", [LOGGED_ON, done("READ", 500, 9)], DELIVERED, header={"embedded": True})
    document = document_of([str(tmp_path)], {})
    assert (document.verdict, document.tone) == (
        "Valid, criteria met; on the embedded server: no measurement",
        "doubtful",
    )


def test_what_came_of_everything_due_task_by_task(tmp_path: Path) -> None:
    """Due, begun, succeeded, failed, still running, not begun; shares are of what was due. Without log-ons."""
    tasks = [done("READ", 100, 5), done("READ", 200, 5, outcome="lost"), skipped("READ", 300), done("LOGON", 100, 5)]
    tasks.append(done("READ", 400, 5, outcome="unfinished", ended_ns=None))
    write_sample(tmp_path / "a.tlog", tasks, header={"window_s": [0.0, 2.0]})
    (section,) = (one for one in document_of([str(tmp_path)], {}).sections if one.title == "Throughput")
    table = section.blocks[-1]
    assert isinstance(table, Table)
    assert table.rows == (("READ", 4, 3, 1, 25.0, 1, 25.0, 1, 1, 0.5),)
    assert [column.title for column in table.columns[:3]] == ["Task", "Due", "Begun"]


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


@pytest.mark.parametrize("runs", [2, 3, 7, 40])
def test_an_axis_of_an_order_has_places_of_runs_only(runs: int) -> None:
    """From half a place before the first to half a place behind the last; no run is the 0th or the 1.5th."""
    positions = tuple(map(float, range(1, runs + 1)))
    scale = x_scale(Axis("order of the runs", "order", positions, Column("Run"), positions))
    places = list(map(scale.place, positions))
    assert places == pytest.approx([(at - 0.5) / runs for at in positions])
    assert scale.ticks and {place for place, _ in scale.ticks} <= set(positions)
    assert all(name == f"{place:.0f}" for place, name in scale.ticks)


def test_several_runs_are_held_against_their_users(tmp_path: Path) -> None:
    """A table in the order of users; score and READ with the limit; where users repeat, lines through the medians."""
    for name, users, took_ms in (("c", 20, 40), ("a", 10, 10), ("b", 20, 90), ("d", 20, 60)):
        header = {"users": users, "engine_users": users, "run": f"run-{name}", "criteria": {"score_ms": {"below": 50}}}
        write_sample(tmp_path / name / "logs" / "a.tlog", [done("READ", 500, took_ms)], header=header)
    document = document_of([str(tmp_path / name) for name in "cabd"], {})
    runs, curve, differences, *_ = document.sections
    table, bounds, spread, differ_in, advice = runs.blocks
    assert spread.startswith("3 runs with 20 users have scores from 40.0 ms to 90.0 ms (125 % more); geometric mean 60")
    assert isinstance(table, Table)
    assert [column.title for column in table.columns[:5]] == ["Run", "Users", "Verdict", "Load made (%)", "Score (ms)"]
    assert [(*row[:3], row[4]) for row in table.rows] == [
        ("a", 10, "Valid, criteria met", 10.0),
        ("b", 20, "Valid, criteria missed", 90.0),
        ("c", 20, "Valid, criteria met", 40.0),
        ("d", 20, "Valid, criteria missed", 60.0),
    ]
    assert bounds == (
        "The most users with whom every run met its criteria: 10."
        " The fewest users with whom a run missed its criteria: 20."
    )
    chart = curve.blocks[1]
    assert isinstance(chart, Chart)
    times = {line.name: line for line in chart.panels[0].lines}
    assert times["score"].values == (10.0, 90.0, 40.0, 60.0)
    assert times["score, median"].values == (10.0, 60.0, None, None)
    assert not times["score"].joined and times["score, median"].joined
    assert [(limit.name, limit.value) for limit in chart.panels[0].limits] == [("score below 50 ms", 50.0)]
    (differing,) = differences.blocks
    assert isinstance(differing, Table)
    assert [column.title for column in differing.columns] == ["Fact", "Value", "Runs"]
    assert differing.rows == (
        ("Users", "10", "a"),
        ("Users", "20", "b, c, d"),
    )
    assert differ_in == "The runs differ in: the number of users. The values are below the charts."
    assert advice == (
        "What to do next: measure more than 10 and fewer than 20 users, each number at least three times (loadsim"
        " capacity does so by itself)."
    )
    assert document.tone == "doubtful"


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (
            {
                "Users": ["10, each", "20, each"],
                "Profiles": ["10 medium", "20 medium"],
                "Scenario digest": ["a", "b"],
                "Plan digest": ["c", "d"],
                "Start state digest": ["e", "f"],
                "Scenario key topology.0.users": ["10", "20"],
            },
            "the number of users",
        ),
        (
            {
                "Users": ["10", "20"],
                "Profiles": ["10 medium", "20 heavy"],
                "IMAP greeting": ["x", "y"],
                "Scenario key run.days": ["1", "2"],
                "Scenario key run.seed": ["1", "2"],
            },
            "the number of users; Profiles; IMAP greeting; the scenario's run.days, run.seed",
        ),
        ({"Plan digest": ["c", "d"], "Profiles": ["1 a", "1 b"]}, "Plan digest; Profiles"),
        (
            {f"Scenario key k{number}": ["1", "2"] for number in range(10)},
            "the scenario's k0, k1, k2, k3, k4, k5, k6, k7 and 2 more keys",
        ),
        (
            {f"Scenario key k{number}": ["1", "2"] for number in range(9)},
            "the scenario's k0, k1, k2, k3, k4, k5, k6, k7, k8",
        ),
    ],
    ids=["users alone", "more", "not the users", "many", "not too many"],
)
def test_what_differs_by_the_users_is_one_difference(facts: dict[str, list[str]], says: str) -> None:
    """And nothing else is hidden by it: not other profiles, nor a plan that differs with equal users."""
    assert differing_in_words(facts) == says


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([(10, 10), (20, 40)], "measure more than 20 users, each number"),
        ([(10, 60), (20, 70)], "measure fewer than 10 users"),
        ([(10, 60), (20, 40)], "measure more than 20 and fewer than 10 users"),
        ([(10, 40), (10, 60)], "measure fewer than 10 users"),
        ([(10, 40), (10, 45)], "repeat the run until at least 3 are valid: two may be alike by chance."),
        ([(10, 40), (10, 45), (10, 42)], "compare this server with another by runs that"),
    ],
    ids=["all met", "all missed", "contradictory", "once met, once missed", "met twice", "met three times"],
)
def test_several_runs_lead_to_the_next(tmp_path: Path, runs: list[tuple[int, int]], says: str) -> None:
    """Each run's users, and the time of its only task, whose limit is 50 ms."""
    for at, (users, took_ms) in enumerate(runs):
        header = {"users": users, "engine_users": users, "run": f"run-{at}", "criteria": {"score_ms": {"below": 50}}}
        write_sample(tmp_path / str(at) / "logs" / "a.tlog", [done("READ", 500, took_ms)], header=header)
    document = document_of([str(tmp_path / str(at)) for at in range(len(runs))], {})
    assert str(document.sections[0].blocks[-1]).startswith(f"What to do next: {says}")


def test_several_invalid_runs_have_their_reason_on_the_page(tmp_path: Path) -> None:
    """Once, with the range of its figures, and the advice that all have: nobody must open three reports for it."""
    for at, lag_us in enumerate((7_000, 8_000, 9_800)):
        header = {"users": 10, "engine_users": 10, "run": f"run-{at}", "criteria": {"score_ms": {"below": 50}}}
        health = [sample(second, [lag_us] * 100) for second in range(1, 101)]
        write_sample(tmp_path / str(at) / "logs" / "a.tlog", [done("READ", 500, 10)], header=header, health=health)
    *_, advice = blocks = document_of([str(tmp_path / str(at)) for at in range(3)], {}).sections[0].blocks
    (reasons,) = [block for block in blocks if isinstance(block, Listing)]
    late = "the event loop of engine c1.0 was late: 99th percentile 7.0 to 9.8 ms, at most 2 ms allowed"
    assert reasons.caption == "Why runs are not valid"
    assert f"3 of 3 runs: {late}" in reasons.items
    assert str(advice).startswith("What to do next: ") and "another machine for the generator" in str(advice)


REFUSED: Mapping[str, Any] = {"validity": "invalid", "causes": ("load",)}
DEGRADED: Mapping[str, Any] = {"validity": "degraded"}


@pytest.mark.parametrize(
    ("runs", "verdict", "capacity", "says"),
    [
        (
            [(10, {}), (20, {}), (20, REFUSED)],
            "3 of 4 runs met their criteria; in 1 of them, the server did not take the load",
            "The most users with whom every run met its criteria: 10. The fewest users with whom a run missed its"
            " criteria: 20.",
            "measure more than 10 and fewer than 20 users",
        ),
        (
            [(10, REFUSED)],
            "0 of 2 runs met their criteria; in 2 of them, the server did not take the load",
            "With no number of users did every run meet its criteria. The fewest users with whom a run missed its"
            " criteria: 5.",
            "measure fewer than 5 users",
        ),
        (
            [(10, {}), (20, DEGRADED)],
            "3 of 3 runs met their criteria; 1 of them degraded",
            "The most users with whom every run met its criteria: 10. 1 run decided nothing: invalid or degraded.",
            "measure more than 10 users",
        ),
    ],
    ids=["refused once", "always refused", "degraded"],
)
def test_a_server_that_did_not_take_the_load_has_no_capacity_there(
    tmp_path: Path, runs: list[tuple[int, Mapping[str, Any]]], verdict: str, capacity: str, says: str
) -> None:
    """A run with 5 users has the verdict of the first; a degraded run decides nothing."""
    recorded = []
    for at, (users, changes) in enumerate([(5, runs[0][1]), *runs]):
        header = {"users": users, "engine_users": users, "run": f"run-{at}", "limits": {"hits": 1}}
        header["criteria"] = {"score_ms": {"below": 50}}
        place = tmp_path / str(at)
        write_sample(place / "a.tlog", [LOGGED_ON, done("READ", 500, 10)], DELIVERED, header=header)
        run = read_run(str(place))
        recorded.append(replace(run, summary=replace(run.summary, verdict=replace(run.summary.verdict, **changes))))
    document = describe_runs(recorded, {})
    assert document.verdict == verdict
    assert document.sections[0].blocks[1] == capacity
    assert str(document.sections[0].blocks[-1]).startswith(f"What to do next: {says}")


@pytest.mark.parametrize(
    ("days_s", "words"),
    [
        ((28_800, 28_800), None),
        ((300, 300), "Each user has the task rate of 96 users with a day of 8 h."),
        ((289, 289), "Each user has the task rate of 100 users with a day of 8 h."),
        ((300, 28_800), "Each user has the task rate of 1 to 96 users with a day of 8 h."),
    ],
)
def test_users_of_a_compressed_day_are_not_all_that_is_stated(
    tmp_path: Path, days_s: tuple[int, int], words: str | None
) -> None:
    """Of a day of 300 s, each user makes the load of 96 with one of 8 h."""
    for day_s, users in zip(days_s, (10, 20), strict=True):
        header = {"users": users, "engine_users": users, "run": f"run-{users}", "day_s": day_s}
        write_sample(tmp_path / str(users) / "logs" / "a.tlog", [done("READ", 500, 10)], header=header)
    blocks = document_of([str(tmp_path / str(users)) for users in (10, 20)], {}).sections[0].blocks
    assert [block for block in blocks if str(block).startswith("Each user has")] == ([words] if words else [])


def test_a_usual_day_has_no_load_of_a_user(tmp_path: Path) -> None:
    """Nor has one with 97 % of its load made, nor a run without users, which has no load at all."""
    runs = []
    for users in (0, 200):
        header = {"users": users, "engine_users": users, "run": f"run-{users}"}
        write_sample(tmp_path / str(users) / "a.tlog", [done("READ", 500, 10)], header=header)
        run = read_run(str(tmp_path / str(users)))
        made = replace(run.summary.figures, load_equivalent_users=0.97 * users)
        runs.append(replace(run, summary=replace(run.summary, figures=made)))
    assert "Each user has" not in str(describe_runs(runs, {}).sections[0].blocks)


def test_the_limits_of_the_generator_stand_in_the_legends(tmp_path: Path) -> None:
    """With their values: 5 ms of lag, as the only task takes 90 ms; none is a mark.

    Lag and late starts have their own panels: one line over the limit of the other would look exceeded.
    """
    health = [sample(at) for at in range(1, 101)]
    write_sample(tmp_path / "a.tlog", [done("READ", 500 * at, 90) for at in range(100)], health=health)
    page = to_html(document_of([str(tmp_path / "a.tlog")], {}))
    assert page.count("</svg>limit of the 99th percentile over the whole window: 5 ms</li>") == 1
    lag, late = (page.partition(title)[2].partition("</div>")[0] for title in ("Generator: lag", "Late starts of"))
    assert "limit of the 99th percentile over the whole window: 5 ms" in lag and "limit of the generator" not in lag
    assert "limit of the generator over the whole window: 50 ms" in late and "limit of the 99th" not in late
    assert re.search(">0 s</text>.*>20</text>", lag) and re.search(">0 s</text>.*>20</text>", late)
    assert not re.search("<text[^>]*>limit of", page)


def test_limits_of_several_runs_have_the_words_of_their_criteria(tmp_path: Path) -> None:
    """One is stated in the legend, not beside its line, where the figures are."""
    for at, criterion in enumerate(({"max": 10_000}, {"below": 900}, {"below": 900})):
        criteria = {"score_ms": criterion, "tasks.READ.p95_ms": {"max": 50}}
        header = {"users": 10 + at, "engine_users": 10 + at, "run": f"run-{at}", "criteria": criteria}
        write_sample(tmp_path / str(at) / "logs" / "a.tlog", [done("READ", 500, 10)], header=header)
    document = document_of([str(tmp_path / str(at)) for at in range(3)], {})
    (chart,) = (block for block in document.sections[1].blocks if isinstance(block, Chart))
    limits = [(limit.name, limit.value) for limit in chart.panels[0].limits]
    assert limits == [
        ("READ, 95th, at most 50 ms", 50),
        ("score below 900 ms", 900),
        ("score at most 10 s", 10_000),
    ]
    page = to_html(document)
    for words, _ in limits:
        assert f"</svg>{words}</li>" in page and not re.search(f"<text[^>]*>{words}", page)


@pytest.mark.parametrize(
    ("embedded", "verdict", "advice"),
    [
        ((True, True), "2 of 2 runs met their criteria; 2 on the embedded server: no measurement", "run it on a mail"),
        ((True, False), "2 of 2 runs met their criteria; 1 on the embedded server: no measurement", "run it on"),
        ((False, False), "2 of 2 runs met their criteria", "measure more than 20 users"),
    ],
)
def test_several_runs_on_the_embedded_server_measure_nothing(
    tmp_path: Path, embedded: tuple[bool, ...], verdict: str, advice: str
) -> None:
    """The banner says why it is amber, and no further run there is advised."""
    for at, here in enumerate(embedded):
        users = 10 + 10 * at
        header = {"users": users, "engine_users": users, "run": f"run-{at}", "criteria": {"score_ms": {"below": 50}}}
        write_sample(
            tmp_path / str(at) / "logs" / "a.tlog", [done("READ", 500, 10)], header=header | {"embedded": here}
        )
    document = document_of([str(tmp_path / str(at)) for at in range(2)], {})
    assert (document.verdict, document.tone) == (verdict, "doubtful" if any(embedded) else "good")
    assert str(document.sections[0].blocks[-1]).startswith(f"What to do next: {advice}")


def test_a_degraded_run_of_several_is_counted(tmp_path: Path) -> None:
    """Of 200 tasks, 1.5 % never began: the amber banner says so."""
    late = [done("READ", 100 * at, 10) for at in range(197)] + [skipped("READ", 50_000 + at) for at in range(3)]
    for name, tasks in (("a", late), ("b", [done("READ", 500, 10)])):
        header = {"run": name, "criteria": {"score_ms": {"below": 50}}}
        write_sample(tmp_path / name / "a.tlog", tasks, header=header)
    document = document_of([str(tmp_path / name) for name in "ab"], {})
    assert (document.verdict, document.tone) == ("2 of 2 runs met their criteria; 1 of them degraded", "doubtful")


def test_a_median_of_two_runs_is_their_mean(tmp_path: Path) -> None:
    """Runs of one load with the same users: neither of two is the middle one."""
    for name, users, took_ms in (("a", 20, 10), ("b", 20, 40), ("c", 30, 50)):
        header = {"run": name, "users": users, "engine_users": users}
        write_sample(tmp_path / name / "a.tlog", [done("READ", 500, took_ms)], header=header)
    document = document_of([str(tmp_path / name) for name in "abc"], {})
    (chart,) = (block for block in document.sections[1].blocks if isinstance(block, Chart))
    assert {line.name: line.values for line in chart.panels[0].lines}["score, median"] == (25.0, None, 50.0)


def test_repeats_are_drawn_in_their_order(tmp_path: Path) -> None:
    """Runs with equal users in a line, which shows if they became slower; over their users, all had one place."""
    for name, took_ms in (("20260105T100000-c", 40), ("20260105T090000-a", 10), ("20260105T093000-b", 20)):
        write_sample(tmp_path / name / "a.tlog", [done("READ", 500, took_ms)], header={"run": name})
    text, chart = document_of([str(each) for each in tmp_path.iterdir()], {}).sections[1].blocks
    assert str(text).startswith("Lines join runs with comparable scores")
    assert isinstance(chart, Chart)
    assert (chart.axis.title, chart.axis.positions) == ("order of the runs", (1.0, 2.0, 3.0))
    assert chart.axis.cells == ("20260105T090000-a", "20260105T093000-b", "20260105T100000-c")
    score, *_ = chart.panels[0].lines
    assert (score.name, score.values, score.joined) == ("score", (10.0, 20.0, 40.0), True)


DIFFERENT_LOADS = "These runs have different loads, and their scores are not comparable"


def test_runs_of_different_loads_are_no_repeats(tmp_path: Path) -> None:
    """Days of 5 and 2 min with the same users: two series, no median, and a capacity of each day."""
    for name, users, day_s, took_ms in (("a", 20, 300, 10), ("b", 20, 120, 40), ("c", 30, 300, 20), ("d", 20, 300, 14)):
        header = {
            "users": users,
            "engine_users": users,
            "run": name,
            "day_s": day_s,
            "criteria": {"score_ms": {"below": 50}},
        }
        write_sample(tmp_path / name / "a.tlog", [done("READ", 500, took_ms)], header=header)

    def described(names: str) -> tuple[tuple[Any, ...], Any, dict[str, Line]]:
        runs, curve, *_ = document_of([str(tmp_path / name) for name in names], {}).sections
        text, chart = curve.blocks
        assert isinstance(chart, Chart)
        return runs.blocks, text, {line.name: line for line in chart.panels[0].lines}

    blocks, _, lines = described("abc")
    assert blocks[1:4] == (
        f"{DIFFERENT_LOADS}: length of the day (run.day_length): 5 min or 2 min.",
        "Length of the day 5 min: The most users with whom every run met its criteria: 30.",
        "Length of the day 2 min: The most users with whom every run met its criteria: 20.",
    )
    assert (
        lines["score, length of the day 5 min"].values == (10.0, None, 20.0)
        and lines["score, length of the day 5 min"].joined
    )
    assert lines["score, length of the day 2 min"].values == (None, 40.0, None)
    assert not [name for name in lines if "median" in name]
    _, _, lines = described("abdc")
    assert lines["score, length of the day 5 min, median"].values == (12.0, None, None, 20.0)
    assert [name for name in lines if "median" in name and "2 min" in name] == []


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (
            {"window_s": [0, 90]},
            "window (run.warm_up, run.window): 100 s from 0 s on or 90 s from 0 s on",
        ),
        ({"profiles": ["loadsim-5.5/heavy"]}, "profiles (topology): the default or loadsim-5.5/heavy"),
        ({"weights": {"READ": 5, "SEND": 1}}, "weights: READ 10 or READ 5"),
        ({"limits": {"hits": 1, "done": 0.5}}, None),
    ],
)
def test_what_makes_loads_different(tmp_path: Path, header: dict[str, Any], says: str | None) -> None:
    """The same users; limits decide on the verdict, not on the score."""
    for name, own in (("a", {}), ("b", header)):
        common = {"run": name, "weights": {"READ": 10, "SEND": 1}}
        write_sample(tmp_path / name / "a.tlog", [done("READ", 500, 10)], header=common | own)
    blocks = document_of([str(tmp_path / name) for name in "ab"], {}).sections[0].blocks
    found = [block for block in blocks if str(block).startswith(DIFFERENT_LOADS)]
    assert found == ([f"{DIFFERENT_LOADS}: {says}."] if says else [])


@pytest.mark.parametrize(
    ("mailbox", "says"),
    [
        ("{sizes: 1K, folders: 3}", "sizes 2K or sizes 1K"),
        ("none", "sizes 2K, folders 3 or none"),
        ("{1: 2, sizes: 2K}", "1 the default, folders 3 or 1 2, folders the default"),
    ],
)
def test_start_states_are_those_of_the_scenarios(tmp_path: Path, mailbox: str, says: str) -> None:
    """Also those that no scenario may have: a report reads what is there."""
    for name, own in (("a", "{sizes: 2K, folders: 3}"), ("b", mailbox)):
        write_sample(tmp_path / name / "logs" / "a.tlog", [done("READ", 500, 10)], header={"run": name})
        (tmp_path / name / "scenario.yaml").write_text(f"name: sample\nmailbox: {own}\n", encoding="utf-8")
    blocks = document_of([str(tmp_path / name) for name in "ab"], {}).sections[0].blocks
    assert f"{DIFFERENT_LOADS}: start state (mailbox): {says}." in blocks


def test_a_capacity_below_all_runs_is_stated_in_whole_sentences(tmp_path: Path) -> None:
    """No run meets its criteria, and an invalid one is not counted."""
    for name, users, hits in (("a", 10, 1), ("b", 20, 5)):
        header = {"users": users, "engine_users": users, "run": name, "limits": {"hits": hits}}
        header["criteria"] = {"score_ms": {"below": 50}}
        write_sample(tmp_path / name / "a.tlog", [LOGGED_ON, done("READ", 500, 90)], DELIVERED, header=header)
    document = document_of([str(tmp_path / name) for name in "ab"], {})
    assert document.verdict == "0 of 1 runs met their criteria; 1 more invalid and not counted"
    assert document.sections[0].blocks[1] == (
        "With no number of users did every run meet its criteria. The fewest users with whom a run missed its criteria:"
        " 10. 1 run decided nothing: invalid or degraded."
    )
    only = document_of([str(tmp_path / "b"), str(tmp_path / "b")], {})
    assert only.verdict == "no run can be judged: all 2 are invalid"
    assert only.sections[0].blocks[-1] == (
        "What to do next: for more hits, more days (run.days), more users, or a longer window that fits into the run"
        " (run.window)."
    )


def test_invalid_runs_have_no_times_and_are_not_drawn(tmp_path: Path) -> None:
    for name, users, took_ms, hits in (("a", 10, 10, 1), ("b", 20, 30, 1), ("c", 20, 90, 5), ("d", 30, 70, 1)):
        header = {"users": users, "engine_users": users, "run": f"run-{name}", "limits": {"hits": hits}}
        write_sample(tmp_path / name / "a.tlog", [LOGGED_ON, done("READ", 500, took_ms)], DELIVERED, header=header)
    document = document_of([str(tmp_path / name) for name in "abcd"], {})
    assert document.verdict == "3 of 3 runs met their criteria; 1 more invalid and not counted"
    table = document.sections[0].blocks[0]
    assert isinstance(table, Table)
    assert {row[0]: row[5] for row in table.rows} == {"a": 10.0, "b": 30.0, "c": "not shown", "d": 70.0}
    assert {row[0]: row[4] for row in table.rows} == {"a": 10.0, "b": 30.0, "c": "not shown", "d": 70.0}
    assert [row[0] for row in table.rows if row[10] == "not shown"] == ["c"]
    _, chart = document.sections[1].blocks
    assert isinstance(chart, Chart)
    times, rates = ({line.name: line for line in panel.lines} for panel in chart.panels)
    assert times["score"].values == (10.0, 30.0, None, 70.0)
    assert times["score"].joined
    assert [value is None for value in rates["achieved"].values] == [False, False, True, False]


def test_a_closed_loop_has_no_score(tmp_path: Path) -> None:
    """Its report has throughput instead, and nothing of plan, weights or lateness."""
    _stress(tmp_path / "run")
    document = document_of([str(tmp_path / "run")], {})
    text = to_markdown(document)
    assert document.title == "sample: 2 users, 0.6 tasks per second"
    assert "Throughput of a closed loop" in text
    for word in ("Weight", "| due |", "Tasks: due", "How late tasks began", "Weighted average"):
        assert word not in text


# --- series, against numpy ---


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
def test_percentiles_of_bins_are_numpys(rows: list[tuple[int, int]], width_s: float, percent: int) -> None:
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


def test_times_of_tasks(tmp_path: Path) -> None:
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


def test_tasks_due_and_done(tmp_path: Path) -> None:
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
    assert found.planned_per_s.tolist() == [4, 1]
    assert found.done_per_s.tolist() == [1, 2]
    assert found.failed_per_s.tolist() == [0, 1]


def test_lateness_by_cause(tmp_path: Path) -> None:
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


def test_mail_over_time(tmp_path: Path) -> None:
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
    found = mail_series(log, bins_of(log), Window(0.0, 3.0))
    assert found.due_per_s.tolist() == [2, 0, 1, 0]
    assert found.sent_per_s.tolist() == [1, 1, 0, 0]
    assert found.accepted_per_s.tolist() == [2, 1, 1, 0]
    assert found.arrived_per_s.tolist() == [1, 1, 1, 0]
    assert found.under_way.tolist() == [1, 1, 1, 1]
    assert found.p50_ms[:3].tolist() == [0, 1400, math.inf]  # the second was found by polling, the third never came
    assert found.p95_ms[:3].tolist() == [1500, 1400, math.inf]
    assert np.isnan(found.p50_ms[3]) and np.isnan(found.p95_ms[3])  # nothing was accepted


def test_health_over_time(tmp_path: Path) -> None:
    """Of each engine the lags of a bin's ticks, its share of a core, its memory; of the machine all its cores."""
    _watched(tmp_path / "run")
    log = read_run(str(tmp_path / "run")).log
    bins = Bins(0.0, 4.0, 1.0)
    (engine,) = engine_series(log, bins)
    assert engine.name == "c1.1"
    assert engine.lag_p99_ms[1] == engine.lag_max_ms[1] == 9.0
    assert np.isnan(engine.lag_max_ms[2])
    assert engine.cpu_share[1:3].tolist() == [0.25, 0.5]
    assert engine.rss_bytes[1:3].tolist() == [2**20, 2**21]
    assert np.isnan(engine.cpu_share[[0, 3]]).all()
    machines = machine_cpu_series(log, bins)
    assert list(machines) == ["c1"]
    assert machines["c1"][1] == 0.6
    assert server_cpu_series(log, bins) == {}


def test_the_servers_cores_are_those_it_was_pinned_to(tmp_path: Path) -> None:
    """Their mean; none of a sample that lacks a core, nor where the server could not be moved."""
    machine_sample = {"cpu_share": 0.5, "stolen_share": 0.0, "memory_available_bytes": 2**30}
    machine_sample |= {"segments_sent": 5, "segments_sent_again": 0}
    samples: list[dict[str, Any]] = [
        {"at_ns": ms(1000), "core_shares": [0.1, 0.5, 0.9]} | machine_sample,
        {"at_ns": ms(2000), "core_shares": [0.1, 0.5]} | machine_sample,
    ]
    write_sample(tmp_path / "logs" / "c1.0.tlog", [done("READ", 500, 9)])
    machine = tmp_path / "logs" / "c1.machine.tlog"
    header = {"engine": "machine", "engine_users": 0}
    for facts, found in (
        ({"pinned": True, "generator_cpus": [0], "server_cpus": [1, 2]}, [0.7]),
        ({"pinned": False, "server_cpus": [1]}, []),
        ({"pinned": True, "generator_cpus": [0]}, []),
    ):
        _write_health(machine, header, samples, facts)
        series = server_cpu_series(read_run(str(tmp_path)).log, Bins(0.0, 4.0, 1.0))
        assert [share for each in series.values() for share in each if not np.isnan(share)] == pytest.approx(found)
        machine.unlink()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"duration_s": 60.0}, (0, 60, 1)),
        ({"duration_s": 61.0}, (0, 61, 2)),
        ({"duration_s": 28_800.0}, (0, 28_800, 600)),
        ({"duration_s": 10_000_000.0}, (0, 10_000_000, 166_667)),
        ({}, (0, 71, 2)),  # as far as tasks were due
        ({"duration_s": 60.0, "truncated_s": [10, 40]}, (10, 40, 1)),
    ],
)
def test_bins_suit_the_length_of_the_run(header: dict[str, Any], expected: tuple[float, ...], tmp_path: Path) -> None:
    """At most sixty, of a length that people count in."""
    bins = bins_of(sample_log(tmp_path / "a.tlog", [done("READ", 69_500, 5)], header=header))
    assert (bins.begin_s, bins.end_s, bins.width_s) == expected
    assert len(bins) <= 60


# --- charts ---


def test_a_chart_as_a_table() -> None:
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
def test_whatever_was_measured_can_be_drawn(scale: Any, values: tuple[float | None, ...]) -> None:
    """Zeros, gaps, a single figure and figures far apart, on each scale, without a complaint of the library."""
    found = drawn(Chart("c", _axis((0.5, 1.5)), (Panel("p", "ms", (Line("a", values),), scale),)))
    assert ">p</p>" in found
    assert not re.search(r"nan|inf[^i]", found.replace("mi", ""))
    places = [float(place) for place in re.findall(r'(?:x|y|width)="(-?[0-9.e+-]+)%"', found)]
    assert places and all(-0.01 <= place <= 100.01 for place in places)


def test_what_is_infinite_is_drawn_at_the_upper_edge() -> None:
    """A mark for each figure that is, and none where there is no figure; the scale is that of the others."""

    def marks(*values: float | None) -> int:
        found = drawn(Chart("c", _axis((0.5, 1.5, 2.5)), (Panel("p", "ms", (Line("a", values),), "log"),)))
        return found.count('href="#mi"')

    assert (marks(2.0, math.inf, math.inf), marks(2.0, None, None)) == (2, 0)


def test_a_pointer_shows_each_figure_once() -> None:
    """Its strip has all figures of a place, also of two runs with as many users; gaps and panels have their own."""
    axis = Axis("users", "count", (10.0, 10.0, 20.0, 30.0), Column("Users", 0), (10, 10, 20, 30))
    score = Line("score", (5.0, 7.0, math.inf, None))
    chart = Chart("c", axis, (Panel("p", "ms", (score, Line("READ", (1.0, None, 2.0, None))), "log"),))
    strips = re.findall(r'<g class="at">(.*?)</g>', drawn(chart))
    assert [re.findall(r"<tspan[^>]*>(.*?)</tspan>", strip) for strip in strips] == [
        ["Users: 10", "score: 5.0 ms", "READ: 1.0 ms", "score: 7.0 ms"],
        ["Users: 20", "score: never", "READ: 2.0 ms"],
    ]
    bounds = [re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', strip)[0] for strip in strips]
    (first, width), (second, _) = (tuple(map(float, each)) for each in bounds)
    assert (first, round(first + width, 1)) == (0, round(second, 1))


def test_more_lines_than_colours_are_told_apart() -> None:
    """Each of twenty has a colour, dash and marker that no other has together; colour is never the only sign."""
    looks = [(n % COLOURS, n % DASHES, n % len(MARKERS)) for n in range(20)]
    assert len(set(looks)) == len({(dash, marker) for _, dash, marker in looks}) == 20


# --- the command ---


def test_where_a_report_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTML into the run's directory, or the current one for several runs or a log; the rest is printed; or as told."""
    monkeypatch.chdir(tmp_path)
    write_two_clients(tmp_path / "run")
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().out == "run/report.html\n"
    assert (tmp_path / "run" / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert main(["report", "run", "run/logs/c1.0.tlog"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert main(["report", "run", "--format", "md"]) == 0
    assert capsys.readouterr().out == GOLDEN.read_text("utf-8")
    assert main(["report", "run", "--format", "json", "-o", "a.json", "--note", "Disk: of: rust"]) == 0
    assert capsys.readouterr().out == "a.json\n"
    assert ["Disk", "of: rust"] in json.loads((tmp_path / "a.json").read_text("utf-8"))["sections"][-2]["tables"][0][
        "rows"
    ]


@pytest.mark.slow
def test_a_run_outlives_its_report(tmp_path: Path) -> None:
    """Where none can be made, there is a line instead; where one can, the line says where it is."""
    (tmp_path / "none").mkdir()
    assert report_on(tmp_path / "none").startswith(f"No report.html: {tmp_path / 'none'}: expected ")
    run = write_two_clients(tmp_path / "run")
    assert report_on(run) == f"Report: {run / 'report.html'}"
    assert (run / "report.html").exists()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A directory without logs among several is told by its name."""
    run = write_two_clients(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError, match="empty: expected a timing log or a run directory"):
        document_of([str(run), str(tmp_path / "empty")], {})


def test_a_report_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2; `test_bad_input.py` has what is wrong with arguments."""
    monkeypatch.chdir(tmp_path)
    write_two_clients(tmp_path / "run")
    assert main(["report", "run", "--format", "md", "-o", "no/where.md"]) == BAD_INPUT
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert "-o no/where.md: expected a file to write, found: No" in said
