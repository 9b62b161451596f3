"""A mailbox in planners' units: the mail of its day, and what Microsoft planned for as much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.model.figures import Day
from loadsim.size.server_blocks import Rates

SIZING_CHECKER = "Microsoft, SizingChecker.ps1 1.0, March 2015"

MEGACYCLES = (("Exchange 2013, Mailbox role", 0.0425), ("Exchange 2013, with Client Access", 0.0585))
"""Megacycles per second of an active mailbox at the peak, for each of its messages a day (`SIZING_CHECKER`).

They are of a core of 2,000 MHz with a SPECint_rate2006 of 33.75: a cycle of today's core does more.
"""

DISK_OPERATIONS = (
    ("Exchange 2013 and 2016", 150, 0.101, "Atlantis, HyperScale, 2016"),
    ("Exchange 2010, without copies", 100, 0.120, "QLogic SN0430948"),
)
"""Disk operations per second of a mailbox with a number of messages a day, and the source.

Microsoft's values for other numbers were read in no source, so they are not here.
"""


@dataclass(frozen=True, slots=True)
class PublishedMailbox:
    """Published requirements of a mailbox at the peak, per second; None if the source has none."""

    name: str
    messages_per_day: float
    megacycles: float | None
    disk_operations: float | None
    source: str


@dataclass(frozen=True, slots=True)
class MailboxDay:
    """The mail of a mailbox on a day whose busiest part has the window's rates.

    The day has `day_s`, as in the profile; its busiest part has `peak` times the mean rate.
    """

    sent_per_day: float
    received_per_day: float
    day_s: float
    peak: float
    published: Sequence[PublishedMailbox]

    @property
    def messages_per_day(self) -> float:
        return self.sent_per_day + self.received_per_day


def mailbox_day(rates: Rates, users: int, day: Day) -> MailboxDay | None:
    """Return the day to which the window's rates belong; None without mail."""
    peak = max(day.day_shape) * len(day.day_shape) / sum(day.day_shape) if any(day.day_shape) else 1.0
    sent, received = (
        float(per_s.mean()) / users * day.profile_day_s / peak for per_s in (rates.messages, rates.deliveries)
    )
    messages = sent + received
    if not messages:
        return None
    published = [PublishedMailbox(name, messages, each * messages, None, SIZING_CHECKER) for name, each in MEGACYCLES]
    published += [
        PublishedMailbox(name, own, None, operations, source) for name, own, operations, source in DISK_OPERATIONS
    ]
    return MailboxDay(sent, received, day.profile_day_s, peak, published)
