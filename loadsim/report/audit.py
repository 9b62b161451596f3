"""The audit of a run's mail: the answer of `loadsim audit`, and a section of reports."""

from __future__ import annotations

from loadsim.findings.formats import count
from loadsim.model.message_tag import AUTOMATIC_REPLY
from loadsim.report.document import Block, Document, Listing, Section, item_of, table_of
from loadsim.timinglog.audited import AuditRecord

VERDICTS = {
    0: "Each message is where it must be, its body as it was sent",
    1: "Mail is not as it must be",
    3: "Not all mailboxes could be judged",
}
"""Verdicts by exit status."""


def describe_audit(audit: AuditRecord, most_lost: float) -> Document:
    """Return the answer; `most_lost` is the largest share of users whose loss only degrades the run."""
    status = audit.exit_status(most_lost)
    verdict = VERDICTS[status]
    if not status:
        verdict += ", or where it may be" if audit.unknown else ""
        verdict += ", but for faults that the scenario allows" if any(audit.counts.values()) else ""
        verdict += f"; not judged: {count(audit.unjudged, 'account')}" if audit.unjudged else ""
    return Document(
        title=f"Audit of run {audit.run}",
        subtitle="",
        verdict=verdict,
        tone="bad" if status else "doubtful" if audit.allowed else "good",
        sections=(Section("Findings", audit_blocks(audit), brief=True),),
        label="",
    )


def audit_blocks(audit: AuditRecord | None) -> tuple[Block, ...]:
    """Return counts of what the audit read and of faults by code, and each code's first faults; () without an audit."""
    if audit is None:
        return ()
    numbers = {"Mailboxes read": audit.mailboxes, "Mailboxes not read": audit.unread, "Messages": audit.messages}
    numbers |= {"Mailboxes not judged": audit.unjudged, "Messages of unknown place": audit.unknown}
    names = {
        status: f"{'Delivery receipts' if status.startswith('2') else 'Bounces'} with status {status}"
        for status in audit.bounces
    }
    names[AUTOMATIC_REPLY] = "Automatic replies"
    numbers |= {names[status]: times for status, times in audit.bounces.items()} | dict(audit.counts)
    table = table_of(
        "Audit", numbers.items(), ("Count of", None, lambda row: row[0]), ("Number", 0, lambda row: row[1])
    )
    if not audit.findings:
        return (table,)
    listed = len(audit.findings)
    total = sum(audit.counts.values()) + audit.unread
    caption = "Faults" if total == listed else f"The first of each kind of {count(total, 'fault')}: audit.csv has all"
    return table, Listing(caption, tuple(map(item_of, audit.findings)))
