"""JUnit XML for continuous integration: verdicts and comparisons as suites of test cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from loadsim.analysis.compare_runs import Comparison
from loadsim.analysis.summary import Summary
from loadsim.report.compare_words import finding, limit_text

Outcome = Literal["passed", "failure", "error", "skipped"]
"""A failure is a failed test; an error prevented the test; a skipped case was not tested and is not green."""

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) does not allow, not even as references."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: `message` is the reason of a bad outcome, `output` the text of `system-out`."""

    classname: str
    name: str
    outcome: Outcome = "passed"
    message: str = ""
    output: str = ""


def junit(suite: str, cases: Sequence[Case]) -> str:
    """Return the document. All times are 0: durations of cases mean nothing here."""

    def how_many(outcome: Outcome) -> str:
        return str(sum(case.outcome == outcome for case in cases))

    root = Element(
        "testsuite",
        name=suite,
        tests=str(len(cases)),
        failures=how_many("failure"),
        errors=how_many("error"),
        skipped=how_many("skipped"),
        time="0",
    )
    for case in cases:
        element = SubElement(root, "testcase", classname=case.classname, name=_xml(case.name), time="0")
        if case.outcome == "skipped":
            SubElement(element, "skipped", message=_xml(case.message))
        elif case.outcome != "passed":
            SubElement(element, case.outcome, type=case.classname, message=_xml(case.message)).text = _xml(case.message)
        if case.output:
            SubElement(element, "system-out").text = _xml(case.output)
    indent(root)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document.decode() + "\n"


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def verdict_junit(summary: Summary) -> str:
    """Return the document of a summary: a case for its validity, one for each criterion, one for runs that miss any.

    It agrees with the exit status. An invalid run is in error, and the criteria that it seemed to meet are skipped:
    nothing of it is green.
    """
    verdict = summary.verdict
    invalid = verdict.validity == "invalid"
    cases = [
        Case(
            "loadsim.validity",
            "validity",
            "error" if invalid else "passed",
            "; ".join(verdict.defects) if invalid else "",
            "\n".join([f"the run is {verdict.validity}", *verdict.defects, *verdict.warnings]),
        )
    ]
    for one in summary.criteria:
        why = f" ({one.reason})" if one.reason else ""
        text = f"{one.found}{why}, {one.wanted} wanted"
        outcome: Outcome = "failure" if not one.passed else "skipped" if invalid else "passed"
        message = "the run is invalid, so that this proves nothing" if outcome == "skipped" else text
        cases.append(Case("loadsim.criteria", one.name, outcome, message, f"{one.name}: {text}"))
    if verdict.missed_runs:
        cases.append(Case("loadsim.criteria", "each run", "failure", "; ".join(verdict.missed_runs)))
    return junit("loadsim", cases)


def compare_junit(comparison: Comparison) -> str:
    """Return the document of a comparison: a case for each task, score and response score.

    It agrees with the exit status: the cases of scores and response scores fail with 1 and are in error with 4
    (undecided), with the reasons. Those of tasks pass and only report the figures.
    """
    figures = comparison.figures
    outcomes: Mapping[str | None, Outcome] = {"failed": "failure", "undecided": "error"}
    of_score = outcomes.get(figures.decision, "passed")
    message = "" if of_score == "passed" else limit_text(figures)
    cases = []
    for one in figures.all_figures:
        found = one.difference
        text = f"base {found.base_ms:.3f} ms, new {found.new_ms:.3f} ms, ratio {found.ratio:.4f}: {finding(one)}"
        case = Case("loadsim.compare", found.name, output=text)
        cases.append(replace(case, outcome=of_score, message=message) if one in figures.all_scores else case)
    return junit("loadsim compare", cases)
