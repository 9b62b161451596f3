"""The flow of mail over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadsim.analysis.aggregate import compact
from loadsim.analysis.delivery import journeys
from loadsim.analysis.series.tasks import Bins, Floats, Grouped, named, windowed
from loadsim.model.terms import SENDING
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME


@dataclass(frozen=True, slots=True)
class MailSeries:
    """The flow of mail by bin: due and sent messages, and accepted and arrived copies, one for each recipient.

    `under_way` counts copies that were accepted but had not arrived by the end of the bin. Delivery times (ms) are
    those of copies accepted in the bin; they are infinite for copies that never arrived.
    """

    due_per_s: Floats
    sent_per_s: Floats
    accepted_per_s: Floats
    arrived_per_s: Floats
    under_way: Floats
    p50_ms: Floats
    p95_ms: Floats


def mail_series(log: TimingLog, bins: Bins) -> MailSeries:
    """Return the flow of mail over time. This takes four bytes of memory per copy."""
    due, sent, accepted, arrived = (np.zeros(len(bins), np.int64) for _ in range(4))
    makes_mail = named(log, [*SENDING])
    for tasks in windowed(log):
        sending = tasks.kept(makes_mail[tasks["task"]])
        due += bins.count(sending["scheduled_us"])
        sent += bins.count(sending["ended_us"][sending["outcome"] == OUTCOME["ok"]])
    ends_us = np.rint((bins.starts_s + bins.lengths_s) * 1e6).astype(np.int64)
    under_way, missing = np.zeros(len(bins), np.int64), np.zeros(len(bins), np.int64)
    took_us = Grouped()
    for mail in journeys(log):
        # A message that arrives before its sender has read the acceptance is never under way.
        came_us = np.maximum(mail.arrived_us, mail.accepted_us)
        seen_us = came_us[mail.arrived_us != NEVER]
        accepted += bins.count(mail.accepted_us)
        arrived += bins.count(seen_us)
        known_us = np.sort(mail.accepted_us[~mail.unwatched])  # the fate of the others is unknown
        under_way += np.searchsorted(known_us, ends_us) - np.searchsorted(np.sort(seen_us), ends_us)
        missing += bins.count(mail.accepted_us[(mail.arrived_us == NEVER) & ~mail.unwatched])
        timed = mail.arrived_us != NEVER
        took_us.add(bins.of(mail.accepted_us[timed]), compact((came_us - mail.accepted_us)[timed]))
    p50_us, p95_us = took_us.percentiles(len(bins), (50, 95), infinite=missing)
    return MailSeries(
        due_per_s=due / bins.lengths_s,
        sent_per_s=sent / bins.lengths_s,
        accepted_per_s=accepted / bins.lengths_s,
        arrived_per_s=arrived / bins.lengths_s,
        under_way=under_way.astype(np.float64),
        p50_ms=p50_us / 1000,
        p95_ms=p95_us / 1000,
    )
