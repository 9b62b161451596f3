"""The codes of findings."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadsim.analysis.summary import Summary
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding


def codes(findings: Iterable[Finding]) -> list[Code]:
    return [one.code for one in findings]


def findings_in(score: Mapping[str, Any]) -> list[Finding]:
    return [Finding.read(one) for one in score["findings"]]


def warnings_of(summary: Summary) -> tuple[Finding, ...]:
    """The warnings of a run, but that its limits are less strict, as those of small samples are."""
    return tuple(one for one in summary.verdict.warnings if one.code is not Code.RELAXED)
