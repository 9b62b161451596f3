"""The verdict on a run as JUnit XML, for continuous integration: a case for its validity and one for each criterion."""

from __future__ import annotations

from loadsim.analysis.summary import Summary
from loadsim.report.junit import Case, Outcome, junit


def verdict_junit(summary: Summary) -> str:
    """Return the document for a summary.

    It is as good as the exit status. A run that may not be believed is in error, and what it seemed to meet counts as
    not tested: nothing of it is green.
    """
    score = summary.score
    verdict = score["verdict"]
    invalid = verdict["validity"] == "invalid"
    missed = sum(not one["passed"] for one in verdict["criteria"])
    reasons = verdict["reasons"][: len(verdict["reasons"]) - missed]  # of the validity; those of criteria come last
    cases = [
        Case(
            "loadsim.validity",
            "validity",
            "error" if invalid else "passed",
            "; ".join(reasons) if invalid else "",
            "\n".join([f"the run is {verdict['validity']}", *reasons, *score["warnings"]]),
        )
    ]
    for one in verdict["criteria"]:
        said = f"{one['found']}, {one['wanted']} wanted"
        outcome: Outcome = "failure" if not one["passed"] else "skipped" if invalid else "passed"
        message = "the run is invalid, so that this proves nothing" if outcome == "skipped" else said
        cases.append(Case("loadsim.criteria", one["name"], outcome, message, f"{one['name']}: {said}"))
    return junit("loadsim", cases)
