"""The result of an audit, `audit.json` in a run directory: counts, and findings on the first faults."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from loadsim.documents.typed import Reads, Wrong
from loadsim.errors import LogError
from loadsim.files import open_file
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.findings.severity import Severity
from loadsim.model.message_tag import AUTOMATIC_REPLY
from loadsim.timinglog.documents import Count, read_as, read_document

NAME = "audit.json"
MOST_BYTES = 1 << 24

MOST_UNKNOWN_SHARE = 0.01
"""A run fails if failed commands leave a larger share of messages in unknown places."""

AUDITED = (
    *(Code.MAIL_LOST, Code.MAIL_DUPLICATED, Code.MAIL_ALTERED, Code.LINE_ENDS, Code.MAIL_MISDELIVERED),
    *(Code.MAIL_MISFILED, Code.FLAG_LOST, Code.FLAG_UNEXPECTED, Code.MAIL_UNEXPECTED),
)
"""The codes of faults."""


def _finding(document: Any) -> Finding:
    try:
        fault = Finding.read(document)
    except (ValueError, TypeError, LookupError, AttributeError):
        raise Wrong("a finding", document) from None
    if fault.code not in (*AUDITED, Code.MAILBOX_UNREAD) or fault.severity is not fault.code.severity:
        raise Wrong("a finding of an audit", document)
    return fault


def _counts(counts: Mapping[str, int]) -> Mapping[str, int]:
    if not counts.keys() <= {code.id for code in AUDITED}:
        raise Wrong("codes of an audit", counts)
    return counts


_STATUS = re.compile(rf"[245]\.\d{{1,3}}\.\d{{1,3}}|unknown|{AUTOMATIC_REPLY}")


def _statuses(bounces: Mapping[str, int]) -> Mapping[str, int]:
    if wrong := [status for status in bounces if not _STATUS.fullmatch(status)]:
        raise Wrong("a status such as 5.2.2", wrong[0])
    return bounces


class AuditRecord(NamedTuple):
    """The result of a run's audit, which read this many `mailboxes` and `messages`.

    `unread` counts mailboxes that it could not read. Of those that it read, `unjudged` belong to users whose records
    are incomplete, or (`by_plugins`) who do plug-in tasks. For the other users, `unknown` counts messages that may be
    in any of several folders. `bounces` counts delivery reports about loadsim's messages by status (RFC 3463) or
    `unknown`, and automatic replies to them. `counts` has the number of faults by code, `findings` the first one for
    each code. Faults that the run's scenario has `allowed` miss no criterion.
    """

    run: str
    mailboxes: Count
    unread: Count
    unjudged: Count
    messages: Count
    unknown: Count
    counts: Annotated[Mapping[str, Count], _counts]
    findings: tuple[Annotated[Finding, Reads(_finding)], ...]
    bounces: Annotated[Mapping[str, Count], _statuses] = {}
    allowed: tuple[str, ...] = ()
    by_plugins: Count = 0

    @property
    def document(self) -> dict[str, Any]:
        return self._asdict() | {"findings": [fault.document for fault in self.findings]}

    def run_findings(self, most_lost: float) -> list[Finding]:
        """Return the findings for the run's verdict: one for all faults, and those on mail that was not judged.

        `most_lost` is the share of users whose loss only degrades a run.
        """
        findings = []
        unjudged = self.unjudged - self.by_plugins
        if left := self.unread + unjudged:
            whys = (str(fault.values["why"]) for fault in self.findings if fault.code is Code.MAILBOX_UNREAD)
            why = next(whys, "the records of their users are not whole")
            values: dict[str, Value] = {"left": left, "accounts": self.mailboxes + self.unread, "why": why}
            incomplete = self.unread or unjudged / max(1, self.mailboxes) > most_lost
            severity = None if incomplete else Severity.DEGRADED
            findings.append(finding(Code.AUDIT_INCOMPLETE, "", severity, **values))
        if self.by_plugins:
            values = {"left": self.by_plugins, "accounts": self.mailboxes, "why": "their users do tasks of plug-ins"}
            findings.append(finding(Code.AUDIT_INCOMPLETE, "", Severity.NOTE, **values))
        if replies := self.bounces.get(AUTOMATIC_REPLY):
            findings.append(finding(Code.AUTOMATIC_REPLIES, replies=replies))
        if missed := self.missed:
            findings.append(finding(Code.MAIL_FAULTS, accounts=self.mailboxes, faults=_words(missed)))
        if self.allowed:
            allowed = {code: self.counts.get(code, 0) for code in self.allowed}
            findings.append(finding(Code.MAIL_FAULTS_ALLOWED, faults=_words(allowed)))
        if self.unknown:
            severity = Severity.MISSED if self.unknown_share > MOST_UNKNOWN_SHARE else None
            values = {"unknown": self.unknown, "unknown_share": self.unknown_share}
            findings.append(finding(Code.MAIL_UNKNOWN, "", severity, **values))
        return findings

    @property
    def missed(self) -> dict[str, int]:
        """The number of faults by code, leaving out allowed ones."""
        return {code: count for code, count in self.counts.items() if count and code not in self.allowed}

    @property
    def unknown_share(self) -> float:
        return self.unknown / max(1, self.messages)

    def exit_status(self, most_lost: float) -> int:
        """Return 3 if the audit is incomplete, 1 if it found a fault or too much is unknown, otherwise 0."""
        severities = {finding.severity for finding in self.run_findings(most_lost)}
        return 3 if Severity.INVALID in severities else 1 if Severity.MISSED in severities else 0


def _words(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{count:,} {code.removeprefix('mail-').replace('-', ' ')}" for code, count in counts.items())


def write_audit(directory: Path, record: AuditRecord) -> None:
    new = directory / f"{NAME}.new"
    new.write_text(json.dumps(record.document, indent=2) + "\n", encoding="utf-8")
    new.replace(directory / NAME)


def audit_in(places: Sequence[str | Path], run: str) -> AuditRecord | None:
    """Return this run's audit from one of these directories; None if there is none. Raises `LogError`."""
    for place in places:
        path = Path(place) / NAME
        try:
            with open_file(path) as file:
                text = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as failure:
            raise LogError(f"{path}: expected to read it, found: {failure.strerror}") from None
        if len(text) > MOST_BYTES:
            raise LogError(f"{path}: expected at most {MOST_BYTES >> 20} MiB, found more")
        try:
            record = read_as(AuditRecord, read_document(str(path), text), str(path))
        except LogError as failure:
            raise LogError(f"{failure}; if another version wrote it, delete it, and audit again") from None
        if record.run != run:
            raise LogError(f"{path}: run: expected {run!r}, found {record.run!r}")
        return record
    return None
