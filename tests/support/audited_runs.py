"""Audits of runs in virtual time: what the in-memory mailboxes hold, against the records in the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from virtual_runs import Lived

from loadsim.audit.audit import Auditor
from loadsim.audit.judged import Fault, Found
from loadsim.audit.ledger import Totals, open_ledger
from loadsim.model.message_tag import INITIAL_RUN
from loadsim.model.workload import Workload
from loadsim.protocols.in_memory import InMemoryMailbox
from loadsim.timinglog.reader import TimingLog


def held(mailbox: InMemoryMailbox) -> Iterator[Found]:
    """All of loadsim's messages in a mailbox, with the digests that they state."""
    for name in mailbox._names:
        folder = mailbox.folder(name)
        for uid in folder.messages:
            header = mailbox.header(folder, uid)
            if header.tag is not None and header.tag.run in ("run-1", INITIAL_RUN):
                flags = frozenset(flag.lower() for flag in header.flags)
                yield Found(header.tag.id, name, flags, True, header.tag.sender)


def audited(lived: Lived, place: Path, log: TimingLog | None = None) -> tuple[list[tuple[int, Fault]], Totals]:
    """The faults by user, and the totals."""
    with open_ledger(place / "audit.sqlite", log or lived.log) as ledger:
        auditor = Auditor(Workload(lived.scenario), log or lived.log, ledger)
        for user, mailbox in lived.module.mailboxes.items():
            auditor.judge(user, list(held(mailbox)))
        totals = ledger.settle(auditor.unsure_senders)
        return list(ledger.faults()), totals
