"""Mail that the preparation of the mailboxes removed shortly before a run.

Each run begins with mailboxes from which the mail of the run before has been removed. On ext4 without a journal, each
new file then has to pass the inodes of files that were deleted in the last 60 s, or 300 s more if that has not been
written back (Linux, fs/ext4/ialloc.c, find_inode_bit and recently_deleted). Until then, a Maildir server needs more
processor time for each message, and one that is nearly full has a much worse score (`docs/explanation/measurement.md`).
"""

from __future__ import annotations

from dataclasses import dataclass

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

SLOW_S = 360.0
"""Within this time after a removal, ext4 without a journal may pass the inode of the file."""

MANY = 1000
"""Fewer removed messages are not worth a warning: at most an eighth of the 8,192 inodes of a usual block group."""


@dataclass(frozen=True, slots=True)
class PreparationFigures:
    put: int
    removed: int
    """Messages that the preparation of the mailboxes put and removed."""
    ended_before_window_s: float
    """The time from its end, or the end of the last removal, to the window."""
    without_journal: bool
    """True if a server here had files open on an ext4 without a journal."""

    @property
    def suffers(self) -> bool:
        """True if the server is slower in the window, because much mail was removed shortly before it."""
        return self.without_journal and self.removed >= MANY and self.ended_before_window_s < SLOW_S


def preparation(log: TimingLog, window_s: Window) -> PreparationFigures | None:
    """Return the figures of a run's preparation; None if its log does not state it."""
    found = [
        (source.facts, source.facts.prepared, (source.facts.start_ns - source.facts.prepared.ended_ns) / 1e9)
        for source in log.sources
        if source.facts.prepared and source.facts.start_ns is not None
    ]
    # The time from the end of a machine's preparation to the common start is by the machine's clock.
    before = [(facts, mail, before_s) for facts, mail, before_s in found if before_s >= 0]
    if not before:
        return None
    removals = [before_s for _, mail, before_s in before if mail.removed]
    return PreparationFigures(
        put=sum(mail.put for _, mail, _ in before),
        removed=sum(mail.removed for _, mail, _ in before),
        ended_before_window_s=window_s.begin_s + min(removals or [before_s for _, _, before_s in before]),
        without_journal=any(
            system.journal is False for facts, _, _ in before for system in facts.server_file_systems or ()
        ),
    )


def preparation_findings(figures: PreparationFigures | None, embedded: bool) -> list[Finding]:
    """Return the warning of a run on a server that suffers from removals, if there is one."""
    if figures is None or embedded or not figures.suffers:
        return []
    before_s = round(figures.ended_before_window_s)
    return [finding(Code.REMOVALS_SLOW_SERVER, removed=figures.removed, before_s=before_s)]
