"""The verdict of a run in words, as all answers and reports state it."""

from __future__ import annotations

from loadsim.analysis.summary import Summary
from loadsim.report.answer import NO_MEASUREMENT, passed_words


def verdict_words(summary: Summary) -> str:
    return f"{summary.verdict.validity.capitalize()}, {passed_words(summary)}"


def banner(summary: Summary) -> str:
    return verdict_words(summary) + (NO_MEASUREMENT if summary.figures.embedded else "")
