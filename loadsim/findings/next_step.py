"""The next step to recommend: the first rule in a table that matches the findings decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.severity import Cause, Severity

Kind = Code | Severity | Cause

RULES: Sequence[tuple[Kind, ...]] = (
    (Cause.FAULT,),
    (Cause.GENERATOR, Code.CORES_SHARED),
    (Cause.GENERATOR, Code.CORES_BUSY_BY_OTHERS),
    (Cause.GENERATOR,),
    (Cause.ENDED,),  # the run was stopped, so nothing that is missing is due to the load
    (Code.SERVER_STATE_WRONG,),  # no load excuses these
    (Code.MAIL_FAULTS,),
    (Code.MAIL_SHOWN_ALTERED,),
    (Code.MAIL_CRITERION_MISSED,),
    (Code.TASK_REFUSED,),
    (Code.NULL_PATH_REFUSED,),
    (Cause.LOAD,),
    (Cause.ABORTED,),
    (Cause.TERMS,),
    (Severity.INVALID,),  # from a comparison or a check; findings about runs have causes
    (Severity.MISSED,),
    (Severity.DEGRADED,),
    (Code.SUITE_ENDED,),
    (Code.EMBEDDED,),
    (Code.CORES_CONTENDED,),
    (Code.MUST_NEVER_HAPPEN,),
    (Code.ORDER_MATTERS,),
    (Code.RESULTS_DIFFER,),
    (Code.GENERATOR_TOO_SLOW,),
    (Code.MOST_MEASURED,),
    (Code.NOT_MEASURABLE,),
    (Code.CAPACITY_ABOUT,),
    (Code.CAPACITY_FOUND,),
    (Code.FEW_RUNS,),
    (Code.UNDECIDED,),
    (Severity.WARNING,),
    (Code.PROVISIONAL,),
    (Code.ONE_RUN,),
    (Code.GROUPS_OVERLAP,),
    (Code.CORES_CHANGED,),
    (Code.CORES_OF_SOME,),
    (Code.CORES_OF_OTHERS,),
    (Code.WIDE_INTERVAL,),
    (Code.HARDLY_USED,),
)
"""A rule matches if each of its kinds has a finding with a remedy. The step is the remedy for the last kind."""


def next_step(findings: Iterable[Finding]) -> str:
    """Return the remedy from the first rule that matches; "" if none does."""
    present = [item for item in findings if item.code.remedy]
    for rule in RULES:
        matches = [
            next((item for item in present if kind in (item.code, item.severity, item.cause)), None) for kind in rule
        ]
        if None not in matches and (last := matches[-1]):
            return last.code.remedy
    return ""
