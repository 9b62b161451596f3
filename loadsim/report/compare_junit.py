"""A comparison of two sets of runs as JUnit XML, for continuous integration: a case for each task and the score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadsim.analysis.compare_runs import Comparison
from loadsim.report.compare_text import finding, limit_text
from loadsim.report.junit import Case, Outcome, junit


def compare_junit(comparison: Comparison) -> str:
    """Return the document for a comparison.

    It says what the exit status says: the score's case fails with 1 and is in error with 4 (undecided); all others
    only say what was found.
    """
    figures = comparison.figures
    outcomes: Mapping[str | None, Outcome] = {"failed": "failure", "undecided": "error"}
    of_score = outcomes.get(figures["decision"], "passed")
    message = "" if of_score == "passed" else limit_text(figures)
    cases = []
    for one in (*figures["tasks"], *figures["scores"]):
        said = f"base {one['base_ms']:.3f} ms, new {one['new_ms']:.3f} ms, ratio {one['ratio']:.4f}: {finding(one)}"
        case = Case("loadsim.compare", one["name"], said=said)
        cases.append(replace(case, outcome=of_score, message=message) if one in figures["scores"] else case)
    return junit("loadsim compare", cases)
