"""JUnit XML of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadsim.analysis.compare import Decision
from loadsim.analysis.compare_runs import Comparison
from loadsim.report.compare_words import change_words
from loadsim.report.junit import Case, Outcome, junit

_OUTCOMES: Mapping[Decision, Outcome] = {"passed": "passed", "failed": "failure", "undecided": "error"}


def compare_junit(comparison: Comparison) -> str:
    """Return the document of a comparison: a case for each task and time, and one for each other decision.

    A case fails if its figure does, and is in error if that is undecided. Those of tasks pass and only report.
    """
    figures = comparison.figures
    cases = {}
    for row in figures.all_figures:
        found = row.difference
        change = row.change or "no difference shown"
        text = f"base {found.base_ms:.3f} ms, new {found.new_ms:.3f} ms, ratio {found.ratio:.4f}: {change}"
        cases[found.name] = Case("loadsim.compare", found.name, output=text)
    for one in figures.decisions:
        case = cases.get(one.name, Case("loadsim.compare", one.name))
        message = "" if one.decision == "passed" else f"{one.decision}: {change_words(one) or 'no interval'}"
        cases[one.name] = replace(case, outcome=_OUTCOMES[one.decision], message=message)
    return junit("loadsim compare", [*cases.values()])
