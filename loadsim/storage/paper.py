"""Several storage tests in one report: of several machines, or of a solution, in the structure of ESRP papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.documents.schema import Text
from loadsim.model.documents.typed import strict
from loadsim.model.documents.yaml_reader import parse, read_document
from loadsim.report.answer import findings
from loadsim.report.answer_tables import facts_table
from loadsim.report.document import FAILED, PASSED, Block, Document, Listing, Section, table_of
from loadsim.storage.document import RESULTS, TONES, describe_storage, verdict_words
from loadsim.storage.recording import Recording
from loadsim.storage.verdict import LOADED, achieved_iops, judge

LEAST_COMMON_SHARE = 0.9
"""The part of each window in which the other machines must have measured, too."""

TO_BE_WRITTEN = "To be written by the author (--paper)."
DISCLAIMER = (
    "The results are those of loadsim's storage test on this configuration. They are not part of Microsoft's Exchange"
    " Solution Reviewed Program, and Microsoft has not reviewed them."
)


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The texts of an author."""

    title: Text = "Storage solution"
    overview: Text = TO_BE_WRITTEN
    solution: Text = TO_BE_WRITTEN
    """Description of the solution."""
    customer: Text = TO_BE_WRITTEN
    """Targeted customer profile."""
    hardware: dict[str, str] = field(default_factory=dict)
    """Hardware and disks, by name, for which no probe exists."""
    best_practices: tuple[Text, ...] = ()
    contact: Text = TO_BE_WRITTEN


def load_paper(path: Path) -> Paper:
    """Read the texts of an author. Raises `ConfigError` with all errors."""
    document, origin = read_document(path, str(path))
    paper: Paper = parse(Paper, document, origin)
    return paper


def apart(tests: Sequence[Recording]) -> list[Finding]:
    """Return a finding for each test of a load that other machines did not measure at the same time."""
    found = []
    for kind in LOADED:
        spans = {f"test {number}": each.span_s for number, each in enumerate(tests, 1) if each.header.test == kind}
        known = [span for span in spans.values() if span]
        common_s = min(end for _, end in known) - max(begin for begin, _ in known) if known else 0.0
        for where, span in spans.items() if len(spans) > 1 else ():
            if span is None or common_s < LEAST_COMMON_SHARE * (span[1] - span[0]):
                found.append(finding(Code.MACHINES_APART, where, common_s=max(0.0, common_s)))
    return found


def exit_status(tests: Sequence[Recording]) -> int:
    """Return the worst one: 3 invalid, 1 failed, 0 passed."""
    return 3 if apart(tests) else max(judge(each).exit_status for each in tests)


def describe_tests(tests: Sequence[Recording], paper: Paper | None) -> Document:
    """Return the report on several tests, at least one; with the texts of an author, in the structure of ESRP."""
    loaded = [each for each in tests if each.header.test in LOADED]
    iops = sum(achieved_iops(each.databases) for each in loaded)
    target = sum(each.scenario.target_iops for each in loaded)
    rates = f"; {iops:,.1f} reads and writes per second, target {target:,.1f}" if len(loaded) == len(tests) else ""
    status = exit_status(tests)
    return Document(
        title=paper.title if paper else Paper().title,
        subtitle="",
        verdict=("all tests passed" if status == 0 else RESULTS[status]) + rates,
        tone=TONES[status],
        sections=(
            *(_opening(tests, paper) if paper else ()),
            Section("Findings", tuple(findings(apart(tests))), brief=True),
            Section("Results", (_results(tests),), brief=True),
            *_each(tests),
            *((Section("Contact", (paper.contact,)),) if paper else ()),
        ),
        label="Storage",
    )


def _opening(tests: Sequence[Recording], paper: Paper) -> Iterator[Section]:
    """Yield the sections in front of the results."""
    facts = [*paper.hardware.items()]
    facts += [(f"Test {number}", each.header.machine) for number, each in enumerate(tests, 1)]
    yield Section("Overview", (paper.overview,))
    yield Section("Disclaimer", (DISCLAIMER,))
    yield Section("Solution", (paper.solution,))
    yield Section("Targeted customer profile", (paper.customer,))
    yield Section("Hardware and disks", (facts_table("As stated, and as found", facts),))
    yield Section("Best practices", (Listing("Of the author", paper.best_practices or (TO_BE_WRITTEN,)),))


def _results(tests: Sequence[Recording]) -> Block:
    return table_of(
        "The tests",
        list(enumerate(tests, 1)),
        ("Test", None, lambda row: f"{row[0]}: {row[1].header.test}"),
        ("Machine", None, lambda row: row[1].header.machine.partition(",")[0]),
        ("IOPS", 1, lambda row: achieved_iops(row[1].databases) if row[1].header.test in LOADED else None),
        ("target", 1, lambda row: row[1].scenario.target_iops if row[1].header.test in LOADED else None),
        ("Result", None, lambda row: {0: PASSED, 1: FAILED}.get(judge(row[1]).exit_status, "invalid")),
    )


def _each(tests: Sequence[Recording]) -> Iterator[Section]:
    """Yield the sections of each test, under its number."""
    for number, each in enumerate(tests, 1):
        of_test = describe_storage(each)
        name = f"Test {number}: {verdict_words(each, judge(each))}"
        for position, section in enumerate(of_test.filled):
            title = f"{number}. {section.title}" if position else name
            yield replace(section, title=title, brief=False)
