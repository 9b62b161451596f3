"""JUnit XML, as continuous integration reads it: a suite of test cases, each good, failed, in error or skipped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

Outcome = Literal["passed", "failure", "error", "skipped"]
"""A failure is what was tested for; an error kept from testing; what is skipped was not tested, and is not green."""

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) does not allow, not even as references."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: `message` says why it is not good, `said` what was found."""

    classname: str
    name: str
    outcome: Outcome = "passed"
    message: str = ""
    said: str = ""


def junit(suite: str, cases: Sequence[Case]) -> str:
    """The document. Times are 0: what a case took is not what it is about."""

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
        if case.said:
            SubElement(element, "system-out").text = _xml(case.said)
    indent(root)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document.decode() + "\n"


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
