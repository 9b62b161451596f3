"""JUnit XML for continuous integration: verdicts and comparisons as suites of test cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args
from xml.etree.ElementTree import Element, SubElement, indent, tostring

if TYPE_CHECKING:
    from loadsim.analysis.summary import Summary

Outcome = Literal["passed", "skipped", "failure", "error"]
"""A skipped case was not tested, and is not green. A failure is a failed test; an error kept the test from running."""

_NO_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Characters that XML 1.0 (section 2.2) does not allow, even as references. Compiling this takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case. `message` explains a bad outcome; `output` is the text of `system-out`."""

    classname: str
    name: str
    outcome: Outcome = "passed"
    message: str = ""
    output: str = ""


def _joined(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield one case per name, with the worst outcome and all texts: readers show only one of several."""
    by_name: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        by_name.setdefault((case.classname, _xml(case.name)), []).append(case)
    for name, some in by_name.items():
        worst = max((case.outcome for case in some), key=get_args(Outcome).index)
        message, output = "; ".join(case.message for case in some if case.message), [case.output for case in some]
        yield Case(*name, worst, message, "\n".join(filter(None, output)))


def junit(suite: str, cases: Iterable[Case]) -> str:
    """Return the document. All times are 0: cases have no meaningful durations here."""
    cases = [*_joined(cases)]

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
        element = SubElement(root, "testcase", classname=case.classname, name=case.name, time="0")
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
    return re.sub(_NO_XML, "\N{REPLACEMENT CHARACTER}", text)


def verdict_junit(summary: Summary) -> str:
    """Return the document of a summary: cases for the validity, each criterion, and each code of other misses.

    It agrees with the exit status. An invalid run is an error, and the criteria that it seemed to meet are skipped: no
    case is green.
    """
    verdict = summary.verdict
    invalid = verdict.validity == "invalid"
    cases = [
        Case(
            "loadsim.validity",
            "validity",
            "error" if invalid else "passed",
            "; ".join(one.text for one in verdict.defects) if invalid else "",
            "\n".join([f"the run is {verdict.validity}", *(one.text for one in (*verdict.defects, *verdict.warnings))]),
        )
    ]
    for one in summary.criteria:
        why = f" ({'; '.join(reason.words for reason in one.reasons)})" if one.reasons else ""
        text = f"{one.found}{why}, {one.wanted} wanted"
        outcome: Outcome = "failure" if not one.passed else "skipped" if invalid else "passed"
        message = "the run is invalid, so that this proves nothing" if outcome == "skipped" else text
        cases.append(Case("loadsim.criteria", one.name, outcome, message, f"{one.name}: {text}"))
    others: dict[str, list[str]] = {}
    for fault in verdict.faults:
        others.setdefault(fault.code.id, []).append(fault.text)
    cases += [Case("loadsim.findings", code, "failure", "; ".join(texts)) for code, texts in others.items()]
    return junit("loadsim", cases)
