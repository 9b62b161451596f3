"""Audits of runs in virtual time: what the in-memory mailboxes hold, against the records of a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loadsim.audit.audit import Auditor
from loadsim.audit.audit_file import AuditFile, AuditTotals, open_audit_file
from loadsim.audit.judged import HeldCopy
from loadsim.errors import ServerRefused
from loadsim.model.message_tag import INITIAL_RUN
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox
from loadsim.timinglog.reader import TimingLog


@contextmanager
def audit_in_memory(
    path: Path, log: TimingLog, driver: InMemoryDriver, run: str
) -> Iterator[tuple[AuditFile, AuditTotals]]:
    """Yield the audit of all mailboxes after this run, kept at `path`, and its totals."""
    with open_audit_file(path, log) as file:
        auditor = Auditor(driver.workload, log, file)
        for user, mailbox in driver.mailboxes.items():
            auditor.judge(user, list(_held(mailbox, run)))
        yield file, file.settle(auditor.unsure_senders)


def _held(mailbox: InMemoryMailbox, run: str) -> Iterator[HeldCopy]:
    """Yield loadsim's messages in the folders that can be opened, as if each body were whole."""
    for name in mailbox._names:
        with suppress(ServerRefused):
            folder = mailbox.folder(name)
            for uid in folder.messages:
                header = mailbox.header(folder, uid)
                if header.tag is not None and header.tag.run in (run, INITIAL_RUN):
                    flags = frozenset(flag.lower() for flag in header.flags)
                    yield HeldCopy(header.tag.id, name, flags, header.tag.sender)
