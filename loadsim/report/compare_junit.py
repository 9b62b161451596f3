"""JUnit XML of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadsim.analysis.compare_runs import Comparison
from loadsim.report.compare_words import finding, limit_text
from loadsim.report.junit import Case, Outcome, junit


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
