"""Reports on storage tests and tunings: the sections found in Jetstress's reports, and an author's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from loadsim.campaign.runs import DECIDING
from loadsim.documents.yaml_reader import read_document
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.formats import count, data_size, percent
from loadsim.findings.next_step import next_step
from loadsim.findings.verdict import Tone, Verdict
from loadsim.report.answer import findings
from loadsim.report.answer_tables import facts_table
from loadsim.report.document import (
    FAILED,
    PASSED,
    Axis,
    Block,
    Cell,
    Chart,
    Column,
    ColumnOf,
    Document,
    Limit,
    Line,
    Listing,
    Panel,
    Section,
    Table,
    table_of,
)
from loadsim.storage.load import OPERATIONS
from loadsim.storage.recording import DatabaseFigures, Recording
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import Io, summed
from loadsim.storage.tune import Try, best_of, exit_status
from loadsim.storage.verdict import AVERAGE_MS, LOADED, judge

NAMES = {kind: f"{kind.value.replace('_', ' ').capitalize()}s" for kind in Io}  # such as Log writes
TONES: Mapping[int, Tone] = {0: "good", 1: "bad", 3: "doubtful"}  # by exit status
RESULTS = {"pass": PASSED, "passed": PASSED, "fail": FAILED, "failed": FAILED}

DISCLAIMER = (
    "The results are those of loadsim's storage test on this configuration. They are not part of Microsoft's Exchange"
    " Solution Reviewed Program, and Microsoft has not reviewed them."
)


def storage_json(recording: Recording) -> dict[str, Any]:
    """Return the figures and the verdict of a test as JSON."""
    verdict, databases, header = judge(recording), recording.databases, recording.header
    return {
        "software": header.software,
        "test": header.test,
        "began": header.began,
        "machine": header.machine,
        "store": header.scenario["store"],
        "scenario": header.scenario,
        "window_s": recording.window_s,
        "target_iops": recording.scenario.target_iops,
        "achieved_iops": recording.together.iops,
        "databases": [each.document for each in databases],
        **{kind: [asdict(each) for each in getattr(recording, kind)] for kind in ("checked", "proved", "recovered")},
        "verdict": {
            "validity": verdict.validity,
            "passed": verdict.passed,
            "findings": [each.document for each in verdict.findings],
        },
        "next_step": next_step(verdict.findings),
    }


def describe_storage(recording: Recording) -> Document:
    verdict, databases, header = judge(recording), recording.databases, recording.header
    return Document(
        title=f"Storage: {header.scenario['name']}",
        subtitle=f"{header.test} test, begun {header.began}, by loadsim {header.software}",
        verdict=verdict_words(recording, verdict),
        tone=TONES[verdict.exit_status],
        sections=(
            Section("", tuple(_charts(recording))),
            Section("Findings", tuple(findings(verdict.findings)), brief=True),
            Section("Test summary", tuple(_summary(recording)), brief=True),
            *(_inputs_and_outputs(recording, databases) if header.test in LOADED else ()),
            Section("Integrity", tuple(_integrity(recording)), brief=True),
            Section("Host", tuple(_host(recording, databases))),
            Section("Test log", (Table("Begun", (Column("UTC"), Column("Part")), tuple(recording.log)),)),
        ),
        label="Storage",
    )


def result_word(verdict: Verdict) -> str:
    if verdict.validity != "invalid" and not verdict.passed:
        return "failed"
    return "passed" if verdict.validity == "valid" else verdict.validity


def verdict_words(recording: Recording, verdict: Verdict) -> str:
    """Return a test's result; for a judged load, also its rate and the target."""
    words = f"{recording.header.test} test {result_word(verdict)}"
    if recording.header.test in LOADED and verdict.validity != "invalid":
        achieved, target = recording.together.iops, recording.scenario.target_iops
        words += f": {achieved:,.1f} of {target:,.1f} reads and writes per second"
    return words


def _summary(recording: Recording) -> Iterator[Block]:
    scenario, header, together = recording.scenario, recording.header, recording.together
    size, message_size = data_size(scenario.mailbox_size), data_size(scenario.message_size)
    cache = f"cache of {data_size(scenario.cache)} each"
    facts = [
        ("Mailboxes", f"{scenario.mailboxes:,} of {size}, messages of {message_size}"),
        ("Store", f"{scenario.store}, {count(scenario.databases, 'database')}, {cache}"),
        ("Machine", header.machine),
        *((f"Disk {number}", words) for number, words in enumerate(header.file_systems, 1)),
    ]
    if header.test in LOADED:
        done = Counter(together.operations)
        mix = [f"{name} {percent(round(done[name] / done.total(), 3))}" for name in OPERATIONS if done]
        achieved = f"{together.iops:,.1f} reads and writes per second, target {scenario.target_iops:,.1f}"
        facts = [("Achieved", achieved), *facts, ("Load per database", setting(scenario.threads, scenario.pause_s))]
        if recording.sizes:
            facts.append(("Databases", "{} before, {} after".format(*map(data_size, recording.sizes))))
        facts.append(("Window", f"{recording.window_s:,.0f} s, samples of {header.sample_s:.3g} s"))
        facts.append(("Operations", ", ".join([f"{done.total():,}", *mix])))
    yield facts_table("What was tested", facts)


def _inputs_and_outputs(recording: Recording, databases: Sequence[DatabaseFigures]) -> Iterator[Section]:
    """Yield a table of what the verdict judges, and one for each kind of I/O, as in the published reports."""
    rows = (*databases, recording.together)
    transactional = table_of(
        "In the window; max is the largest mean of a sample",
        rows if len(databases) > 1 else databases,
        ("Database", None, lambda database: database.name),
        *_columns(Io.READ, "reads/s")[:3],
        *_columns(Io.WRITE, "writes/s")[:2],
        *_columns(Io.LOG_WRITE, "log/s")[:3],
    )
    yield Section("Transactional I/O", (transactional,), brief=True)
    by_kind = [
        table_of(NAMES[kind], rows, ("Database", None, lambda database: database.name), *_columns(kind, "per s"))
        for kind in Io
        if recording.together.io[kind].per_s
    ]
    total = table_of(
        "Total: databases and logs, also in the background",
        rows,
        ("Database", None, lambda database: database.name),
        ("reads/s", 1, lambda database: database.per_s((Io.READ, Io.MAINTENANCE, Io.REPLICATION))),
        ("writes/s", 1, lambda database: database.per_s((Io.WRITE, Io.LOG_WRITE))),
    )
    yield Section("Inputs and outputs by kind", (*by_kind, total))


def _columns(kind: Io, rate: str) -> Sequence[ColumnOf[DatabaseFigures]]:
    """Return the columns for a kind; `rate` is the title of the first."""
    return (
        (rate, 1, lambda database: database.io[kind].per_s),
        ("mean", "time", lambda database: database.io[kind].ms),
        ("max", "time", lambda database: database.io[kind].max_ms),
        ("slowest", "time", lambda database: database.io[kind].slowest_ms),
        ("KiB", 1, lambda database: None if (size := database.io[kind].bytes) is None else size / 1024),
    )


def _integrity(recording: Recording) -> Iterator[Block]:
    """Yield what was verified: files in all databases at the same time, logs one after another."""
    rows: list[tuple[Cell, ...]] = []
    if passes := recording.checked:
        size, took_s = sum(each.bytes for each in passes), max(each.took_s for each in passes)
        speed = f"{size / took_s / 1e6:,.0f} MB/s" if took_s else None
        rows.append(("Checksums of all files", data_size(size), speed, sum(each.damaged for each in passes)))
    if passes := recording.recovered:
        size, took_s = sum(each.bytes for each in passes), sum(each.took_s for each in passes)
        speed = (
            f"{took_s * 1e6 / size:.3g} s per MB" if size >= 1e6 else None
        )  # otherwise it is the time to open the store
        rows.append(("Logs replayed", data_size(size), speed, None))
    if passes := recording.proved:
        messages, damaged = sum(each.messages for each in passes), sum(each.damaged for each in passes)
        rows.append(("Messages, as acknowledged", f"{messages:,}", None, damaged))
    if recording.kernel_errors is None:
        rows.append(("Errors in the kernel's log", "not known", None, None))
    if rows:
        columns = (Column("Verified"), Column("Amount"), Column("Speed"), Column("damaged", 0))
        yield Table("Verified afterwards", columns, tuple(rows))


def _host(recording: Recording, databases: Sequence[DatabaseFigures]) -> Iterator[Block]:
    if used := [recording.host[number] for number in recording.counted if number < len(recording.host)]:
        rows = [
            (name, *(percent(round(share, 3)) for share in (sum(shares) / len(shares), min(shares), max(shares))))
            for name, shares in zip(("Processors", "Memory"), zip(*used, strict=True), strict=True)
        ]
        yield Table("The machine", (Column("Used"), Column("mean"), Column("min"), Column("max")), tuple(rows))
        yield table_of(
            "The processes of the databases",
            databases,
            ("Database", None, lambda database: database.name),
            ("CPU (cores)", 2, lambda database: database.cpu_share),
            ("lag (99th percentile)", "time", lambda database: database.lag_p99_ms),
        )


def _charts(recording: Recording) -> Iterator[Chart]:
    """Yield the latencies and the IOPS of all databases over time."""
    sample_s, window = recording.header.sample_s, recording.counted
    starts = tuple(number * sample_s for number in range(recording.complete))
    by_sample = [
        summed([samples[number]["io"] for samples in recording.samples.values()]) for number in range(len(starts))
    ]
    means = {kind: tuple(each[kind].mean_ms for each in by_sample) for kind in (Io.READ, Io.WRITE, Io.LOG_WRITE)}
    latencies = tuple(Line(NAMES[kind], line) for kind, line in means.items() if any(line))
    limits = tuple(Limit(f"limit of {NAMES[kind].lower()}", limit) for kind, limit in AVERAGE_MS.items())
    if latencies:
        iops = tuple((each[Io.READ].count + each[Io.WRITE].count) / sample_s for each in by_sample)
        target = Limit("target", recording.scenario.target_iops)
        yield Chart(
            "Latency (mean of each sample) and IOPS of all databases",
            Axis("seconds of load", "time", starts, Column("From (s)", 0), starts, unit="s"),
            (
                Panel("Latency", "ms", latencies, limits=limits),
                Panel("IOPS", "per s", (Line("reads and writes", iops),), limits=(target,)),
            ),
            across=2,
            shaded=(window.start * sample_s, window.stop * sample_s) if window else None,
        )


def describe_tuning(scenario: StorageScenario, tries: Sequence[Try], why: Code) -> Document:
    """Return the report on a tuning: the best run, the reason why it ended, and all runs."""
    best, target = best_of(tries), f"target {scenario.target_iops:,.1f}"
    runs = table_of(
        "The runs, by what they made",
        sorted(tries, key=lambda attempt: attempt.iops),
        ("Threads and pause", None, lambda attempt: setting(*attempt.setting)),
        ("reads and writes/s", 1, lambda attempt: attempt.iops),
        ("operations/s", 1, lambda attempt: attempt.operations_per_s),
        ("Result", None, lambda attempt: RESULTS.get(attempt.result, attempt.result)),
    )
    return Document(
        title=f"Tuning: {scenario.name}",
        subtitle=count(len(tries), "run"),
        verdict=f"{best.iops:,.1f} reads and writes per second, {target}, with {setting(*best.setting)}"
        if best
        else f"no run passed, {target}",
        tone=TONES[exit_status(tries, why)],
        sections=(
            Section("Findings", tuple(findings([finding(why)])), brief=True),
            Section("Runs", (runs,), brief=True),
        ),
        label="Tuning",
    )


def setting(threads: int, pause_s: float) -> str:
    return count(threads, "thread") + (f", pauses of {1000 * pause_s:.3g} ms" if pause_s else "")


# --- several tests ---


def load_paper(path: Path) -> tuple[Section, ...]:
    """Read an author's sections by title: each is text, a list, or text by name. Raises `ConfigError`."""
    document, origin = read_document(path, str(path))
    sections = []
    for title, value in document.items():
        texts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise origin.error((title,), "a text, a list of texts, or texts by name", value)
        block: Block = value if isinstance(value, str) else Listing("", tuple(value))
        if isinstance(value, dict):
            block = facts_table("As stated by the author", value.items())
        sections.append(Section(title, (block,)))
    return *sections, Section("Disclaimer", (DISCLAIMER,))


def worst_exit_status(tests: Sequence[Recording]) -> int:
    """Return the worst exit status of the tests: 3 invalid, 1 failed, 0 passed."""
    return max(judge(test).exit_status for test in tests)


def describe_tests(tests: Sequence[Recording], paper: Sequence[Section] = ()) -> Document:
    """Return the report on one or more tests, preceded by an author's sections."""
    status, passed = worst_exit_status(tests), sum(result_word(judge(test)) == "passed" for test in tests)
    return Document(
        title="Storage",
        subtitle="",
        verdict=f"{passed} of {len(tests)} tests passed",
        tone=TONES[status],
        sections=(*paper, Section("Results", (_results(tests),), brief=True), *_sections(tests)),
        label="Storage",
    )


def _results(tests: Sequence[Recording]) -> Block:
    rows = [(number, test, test.scenario, test.header.test in LOADED) for number, test in enumerate(tests, 1)]
    return table_of(
        "The tests",
        rows,
        ("Test", None, lambda row: f"{row[0]}: {row[1].header.test}"),
        ("Result", None, lambda row: RESULTS.get(word := result_word(judge(row[1])), word)),
        ("Why", None, lambda row: ", ".join(_deciding(row[1]))),
        ("Machine", None, lambda row: row[1].header.machine.partition(",")[0]),
        ("Mailboxes", 0, lambda row: row[2].mailboxes),
        ("Threads and pause", None, lambda row: setting(row[2].threads, row[2].pause_s)),
        ("IOPS", 1, lambda row: row[1].together.iops if row[3] else None),
        ("target", 1, lambda row: row[2].target_iops if row[3] else None),
    )


def _deciding(test: Recording) -> Sequence[str]:
    deciding = (finding.code.id for finding in judge(test).findings if finding.severity in DECIDING)
    return list(dict.fromkeys(deciding))


def _sections(tests: Sequence[Recording]) -> Iterator[Section]:
    """Yield the sections of each test, under its number."""
    for number, test in enumerate(tests, 1):
        name = f"Test {number}: {verdict_words(test, judge(test))}"
        for position, section in enumerate(describe_storage(test).filled):
            title = f"{number}. {section.title}" if position else name
            yield replace(section, title=title, brief=False)
