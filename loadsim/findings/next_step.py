"""The next step after an answer: a table of rules, of which the first match decides."""

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
    (Cause.ENDED,),  # what is missing then is no fault of the load
    (Code.SERVER_STATE_WRONG,),  # no load is an excuse for these
    (Code.MAIL_FAULTS,),
    (Code.MAIL_SHOWN_ALTERED,),
    (Code.MAIL_CRITERION_MISSED,),
    (Code.TASK_REFUSED,),
    (Cause.LOAD,),
    (Cause.ABORTED,),
    (Cause.TERMS,),
    (Severity.INVALID,),  # of a comparison or a check: those of runs have causes
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
"""A rule holds if there is a finding with a remedy of each of its kinds. The step is the remedy of the last one."""


def next_step(findings: Iterable[Finding]) -> str:
    """Return the remedy of the first rule that holds; "" if none does."""
    present = [one for one in findings if one.code.remedy]
    for rule in RULES:
        of_kinds = [
            next((one for one in present if kind in (one.code, one.severity, one.cause)), None) for kind in rule
        ]
        if None not in of_kinds and (last := of_kinds[-1]):
            return last.code.remedy
    return ""
