"""Audits of runs in virtual time: what the in-memory mailboxes hold, against the records in the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from virtual_runs import Lived

from loadsim.audit.audit import Auditor
from loadsim.audit.audit_file import AuditTotals, open_audit_file
from loadsim.audit.judged import Fault, HeldCopy
from loadsim.model.message_tag import INITIAL_RUN
from loadsim.model.workload import Workload
from loadsim.protocols.in_memory import InMemoryMailbox
from loadsim.timinglog.reader import TimingLog


def held(mailbox: InMemoryMailbox) -> Iterator[HeldCopy]:
    """All of loadsim's messages in a mailbox, with the digests that they state."""
    for name in mailbox._names:
        folder = mailbox.folder(name)
        for uid in folder.messages:
            header = mailbox.header(folder, uid)
            if header.tag is not None and header.tag.run in ("run-1", INITIAL_RUN):
                flags = frozenset(flag.lower() for flag in header.flags)
                yield HeldCopy(header.tag.id, name, flags, True, header.tag.sender)


def audited(lived: Lived, place: Path, log: TimingLog | None = None) -> tuple[list[tuple[int, Fault]], AuditTotals]:
    """The faults by user, and the totals."""
    with open_audit_file(place / "audit.sqlite", log or lived.log) as file:
        auditor = Auditor(Workload(lived.scenario), log or lived.log, file)
        for user, mailbox in lived.module.mailboxes.items():
            auditor.judge(user, list(held(mailbox)))
        totals = file.settle(auditor.unsure_senders)
        return list(file.faults()), totals
