"""Delivery receipts (RFC 3461): a user's requests, and the delivery reports that may answer them."""

from __future__ import annotations

from collections.abc import Callable

from loadsim.errors import GeneratorFailed, InboxRenumbered, MailMissing, ServerRefused, TaskFailed
from loadsim.model.delivery_report import LARGEST_STATUS_BYTES, STATUS_TYPES, confirmed
from loadsim.model.ports import Mailbox, MessageRef
from loadsim.users.host import Host
from loadsim.users.inbox import Inbox, Unread

Record = Callable[[int, int | None, int | None, str], None]
"""Records a request: when the message was accepted, the same if a receipt was requested, when it arrived, outcome."""

_FINAL = (MailMissing, InboxRenumbered, GeneratorFailed)
"""Failures after which a report is not tried again: it is gone, has another reference, or the fault is ours."""


class DeliveryReceipts:
    """A user's delivery receipts, by the envelope ID of the message.

    The first report that confirms delivery to any recipient is a message's receipt. Later ones are known, too, so they
    are not foreign mail.
    """

    def __init__(self, number: int, host: Host, inbox: Inbox, record: Record) -> None:
        self._number = number
        self._host = host
        self._inbox = inbox
        self._record = record
        self._requested_ns: dict[str, int | None] = {}  # None: the receipt has arrived
        self._again: set[MessageRef] = set()  # reports that could not be read once

    def requested(self, envelope_id: str, at_ns: int, offered: bool) -> None:
        """Note a message with a planned request; if the server does not offer receipts, none was made."""
        if offered:
            self._requested_ns[envelope_id] = at_ns
            self._host.mail_accepted(envelope_id, self._number)
        else:
            self._record(at_ns, None, None, "skipped")

    async def track(self, mailbox: Mailbox, report: Unread) -> None:
        """Fetch the delivery status of what may be a report, which stays there, unread.

        If this fails, it is tried again: in the next session or, after a refusal, when mail is next listed. A second
        time is the last, as a report may end each session. Anyone can send reports: unless its status confirms a
        request, it stays foreign.
        """
        try:
            structure = await mailbox.structure(report.header.ref)
            for part in structure.attachments:
                if part.content_type in STATUS_TYPES and part.size_bytes <= LARGEST_STATUS_BYTES:
                    self._arrived(bytes(await mailbox.part(report.header.ref, part)), report)
                    break
        except TaskFailed as failure:
            if report.header.ref not in self._again and not isinstance(failure, _FINAL):
                self._again.add(report.header.ref)
                inbox, is_refused = self._inbox, isinstance(failure, ServerRefused)
                (inbox.refused_reports if is_refused else inbox.reports).append(report)
            raise

    def _arrived(self, status: bytes, report: Unread) -> None:
        envelope_id = confirmed(status)
        if envelope_id is None or envelope_id not in self._requested_ns:
            return
        self._inbox.is_receipt(report.header)
        at_ns, self._requested_ns[envelope_id] = self._requested_ns[envelope_id], None
        if at_ns is not None:
            self._host.mail_seen(envelope_id, self._number, 0)
            self._record(at_ns, at_ns, max(at_ns, report.since_ns), "ok")

    def end(self) -> None:
        """Record the receipts that did not arrive."""
        for at_ns in filter(None, self._requested_ns.values()):
            self._record(at_ns, at_ns, None, "unfinished")
        self._requested_ns.clear()
