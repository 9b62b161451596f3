"""A comparison of two sets of runs as JUnit XML, for continuous integration: a case for each task and the score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from loadsim.report.compare_text import finding, limit_text


def compare_junit(figures: Mapping[str, Any]) -> str:
    """The document for what `loadsim compare --json` prints.

    It says what the exit status says: the score's case fails with 1 and is in error with 4 (undecided); all others
    only say what was found.
    """
    decision = figures["decision"]
    suite = Element(
        "testsuite",
        name="loadsim compare",
        tests=str(len(figures["tasks"]) + len(figures["scores"])),
        failures=str(len(figures["scores"]) * (decision == "failed")),
        errors=str(len(figures["scores"]) * (decision == "undecided")),
    )
    for one in (*figures["tasks"], *figures["scores"]):
        case = SubElement(suite, "testcase", classname="loadsim.compare", name=one["name"])
        if one in figures["scores"] and decision in ("failed", "undecided"):
            SubElement(case, "failure" if decision == "failed" else "error", message=limit_text(figures))
        SubElement(
            case, "system-out"
        ).text = f"base {one['base_ms']:.3f} ms, new {one['new_ms']:.3f} ms, ratio {one['ratio']:.4f}: {finding(one)}"
    indent(suite)
    document: bytes = tostring(suite, encoding="utf-8", xml_declaration=True)
    return document.decode() + "\n"
