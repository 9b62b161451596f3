"""Several storage tests in one report: of a queue, of several machines, or of a solution, as ESRP papers have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from loadsim.campaign.runs import DECIDING
from loadsim.documents.yaml_reader import read_document
from loadsim.report.answer_tables import facts_table
from loadsim.report.document import FAILED, PASSED, Block, Document, Listing, Section, table_of
from loadsim.storage.document import TONES, describe_storage, result_word, setting, verdict_words
from loadsim.storage.recording import Recording
from loadsim.storage.verdict import LOADED, judge

DISCLAIMER = (
    "The results are those of loadsim's storage test on this configuration. They are not part of Microsoft's Exchange"
    " Solution Reviewed Program, and Microsoft has not reviewed them."
)

RESULTS = {"passed": PASSED, "failed": FAILED}


def load_paper(path: Path) -> tuple[Section, ...]:
    """Read an author's sections by title: each a text, a list of texts, or texts by name. Raises `ConfigError`."""
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


def exit_status(tests: Sequence[Recording]) -> int:
    """Return the worst one: 3 invalid, 1 failed, 0 passed."""
    return max(judge(each).exit_status for each in tests)


def describe_tests(tests: Sequence[Recording], paper: Sequence[Section] = ()) -> Document:
    """Return the report on several tests, at least one, after the sections of an author."""
    status, passed = exit_status(tests), sum(result_word(judge(each)) == "passed" for each in tests)
    return Document(
        title="Storage",
        subtitle="",
        verdict=f"{passed} of {len(tests)} tests passed",
        tone=TONES[status],
        sections=(*paper, Section("Results", (_results(tests),), brief=True), *_each(tests)),
        label="Storage",
    )


def _results(tests: Sequence[Recording]) -> Block:
    rows = [(number, each, each.scenario, each.header.test in LOADED) for number, each in enumerate(tests, 1)]
    return table_of(
        "The tests",
        rows,
        ("Test", None, lambda row: f"{row[0]}: {row[1].header.test}"),
        ("Result", None, lambda row: RESULTS.get(word := result_word(judge(row[1])), word)),
        ("Why", None, lambda row: ", ".join(_deciding(row[1]))),
        ("Machine", None, lambda row: row[1].machine),
        ("Mailboxes", 0, lambda row: row[2].mailboxes),
        ("Threads and pause", None, lambda row: setting(row[2].threads, row[2].pause_s)),
        ("IOPS", 1, lambda row: row[1].together.iops if row[3] else None),
        ("target", 1, lambda row: row[2].target_iops if row[3] else None),
    )


def _deciding(test: Recording) -> Sequence[str]:
    return list(dict.fromkeys(each.code.id for each in judge(test).findings if each.severity in DECIDING))


def _each(tests: Sequence[Recording]) -> Iterator[Section]:
    """Yield the sections of each test, under its number."""
    for number, each in enumerate(tests, 1):
        of_test = describe_storage(each)
        name = f"Test {number}: {verdict_words(each, judge(each))}"
        for position, section in enumerate(of_test.filled):
            title = f"{number}. {section.title}" if position else name
            yield replace(section, title=title, brief=False)
