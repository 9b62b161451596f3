"""Audits of runs in virtual time: what the in-memory mailboxes hold, against the records in the log."""

from __future__ import annotations

from pathlib import Path

from virtual_runs import Lived

from bench.audit_in_memory import audit_in_memory
from loadsim.audit.audit_file import AuditTotals
from loadsim.audit.judged import Fault
from loadsim.timinglog.reader import TimingLog


def audited(lived: Lived, place: Path, log: TimingLog | None = None) -> tuple[list[tuple[int, Fault]], AuditTotals]:
    """The faults by user, and the totals."""
    with audit_in_memory(place / "audit.sqlite", log or lived.log, lived.driver, "run-1") as (file, totals):
        return list(file.faults()), totals
