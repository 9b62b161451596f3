"""The verdict on a run, derived from its findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.severity import Cause, Severity

Tone = Literal["good", "doubtful", "bad"]

EARLY_ENDS = (Code.ABORTED, Code.STOPPED, Code.FAULT_ENDED)
"""The findings for a run that ended early."""

_OF_CRITERIA = frozenset(
    (
        *(Code.CRITERION_MISSED, Code.MAIL_CRITERION_MISSED, Code.CRITERION_NOT_MEASURED, Code.CRITERION_NOT_JUDGED),
        *(Code.MAIL_FAULTS, Code.MAIL_UNKNOWN),
    )
)
"""The findings that repeat results of criteria."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run: its findings, the decisive ones first."""

    findings: tuple[Finding, ...]

    def of(self, *severities: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity in severities)

    @property
    def validity(self) -> Literal["valid", "degraded", "invalid"]:
        if self.of(Severity.INVALID):
            return "invalid"
        return "degraded" if self.of(Severity.DEGRADED) else "valid"

    @property
    def passed(self) -> bool:
        """True if nothing was missed: all criteria were met, and the server broke no rule."""
        return not self.of(Severity.MISSED)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why a run is invalid, in the order of `Cause`."""
        causes = {finding.cause for finding in self.findings}
        return tuple(cause for cause in Cause if cause in causes)

    @property
    def ended_early(self) -> bool:
        return any(finding.code in EARLY_ENDS for finding in self.findings)

    @property
    def defects(self) -> tuple[Finding, ...]:
        return self.of(Severity.INVALID, Severity.DEGRADED)

    @property
    def missed(self) -> tuple[Finding, ...]:
        return self.of(Severity.MISSED)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The `missed` findings that concern no criterion: the server broke a rule that always holds."""
        return tuple(finding for finding in self.missed if finding.code not in _OF_CRITERIA)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self.of(Severity.WARNING)

    @property
    def exit_status(self) -> int:
        """3 for invalid or ended early, 1 for criteria missed, 0 for a pass; the first that applies."""
        if self.validity == "invalid":
            return 3
        return 0 if self.passed else 1


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, most severe first; those with the same severity keep their order."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def server_failed(causes: Collection[str]) -> bool:
    """Return whether the server made a run invalid: it did not handle the load, or the run was aborted as hopeless."""
    return bool(causes) and {*causes} <= {Cause.LOAD, Cause.ABORTED}
