"""Delivery reports (RFC 3464): who sends them, and what their delivery status confirms."""

from __future__ import annotations

import re

STATUS_TYPES = frozenset({"message/delivery-status", "message/global-delivery-status"})
"""Content types of a report's delivery status (RFC 3464 section 2, RFC 6533 section 3)."""

LARGEST_STATUS_BYTES = 1 << 16

_REPORTERS = ("mailer-daemon", "postmaster", "microsoftexchange")
"""Prefixes of local parts that send delivery reports."""

_ENVELOPE_ID = re.compile(rb"^Original-Envelope-Id:[ \t]*([!-~]{1,100})[ \t]*\r?$", re.M | re.I)
_CONFIRMED = re.compile(rb"^Action:[ \t]*(?:delivered|relayed|expanded)[ \t]*\r?$", re.M | re.I)
_GROUPS = re.compile(rb"\r?\n\r?\n")


def may_report(sender: str) -> bool:
    """Return whether a From address is one that sends delivery reports."""
    return sender.partition("@")[0].lower().startswith(_REPORTERS)


def confirmed(status: bytes) -> str | None:
    """Return the envelope ID of the message that a delivery status confirms for any of its recipients, or None.

    Delivered, relayed, and expanded (of a list) confirm; failed and delayed do not (RFC 3464 section 2.3.3).
    """
    about, *recipients = _GROUPS.split(status[:LARGEST_STATUS_BYTES].strip())
    found = _ENVELOPE_ID.search(about)
    return found[1].decode("ascii") if found and any(map(_CONFIRMED.search, recipients)) else None
