"""The workload in logs: rates per user and day, their sampling errors, sizes, hours, bursts, clients and groups."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import gmtime, strftime

from loadsim.characterise.files import DAY_S
from loadsim.characterise.groups import boundaries
from loadsim.characterise.reading import LogReading
from loadsim.characterise.traffic import BUCKETS_PER_DOUBLING, HOUR_S, MailboxCounts, Sizes
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding

WORKING_SHARE = 0.5
"""A day counts if it has at least this share of the busiest day's mail: weekends usually do not."""

LEAST_FOR_HOURS = 240
"""The fewest sent messages from which the day's shape is taken; otherwise it is taken from received ones."""

UNMATCHED_SHARE = 0.05
"""The share of users who may send or log on without receiving mail: devices and programs do."""

LEAST_LINES = 100
"""If hours have fewer lines on average, one without any may be a quiet one."""

SHAPES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate per user and day, and its standard error from chance alone (Poisson; messages to many count as one)."""

    per_day: float
    error: float
    count: int


@dataclass(frozen=True, slots=True)
class MeasuredSizes:
    """Sizes of messages; `shares` has the cumulative share up to each power of two."""

    messages: int
    median_bytes: float
    mean_bytes: float
    max_bytes: int
    shares: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class UserGroup:
    users: int
    sent: Rate | None
    received: Rate | None
    from_messages_per_day: float
    median_messages_per_day: float


@dataclass(frozen=True, slots=True)
class MeasuredClients:
    log_ons: int
    failed_log_ons: int
    services: tuple[tuple[str, int], ...]
    methods: tuple[tuple[str, int], ...]
    programs: tuple[tuple[str, int], ...]
    encrypted_share: float
    ipv6_share: float
    bodies_per_user_day: float | None
    expunged_per_user_day: float | None


@dataclass(frozen=True, slots=True)
class LineCounts:
    read: int
    foreign: int
    unknown: int
    shapes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MeasuredWorkload:
    """A server's users as its logs show them; None if they do not show a figure.

    `mail_software` logged the messages. `days` is the number of days' worth of mail: all messages divided by those of a
    counted day. `hours` has sent, received and log-ons per user for each hour, and is empty if no day is complete.
    """

    software: tuple[str, ...]
    mail_software: str
    begin: str
    end: str
    files: int
    size_bytes: int
    days: float
    days_complete: int
    days_counted: int
    users: int
    sent: Rate | None
    received: Rate | None
    log_ons: Rate | None
    recipients: float | None
    outside_share: float | None
    sizes: MeasuredSizes | None
    hours: tuple[tuple[float, float, float], ...]
    day_shape: tuple[int, ...]
    busiest_minute: int
    busiest_minute_to_hour: float | None
    most_recipients: int
    groups: tuple[UserGroup, ...]
    clients: MeasuredClients | None
    counts: dict[str, int]
    lines: LineCounts
    findings: tuple[Finding, ...]


def workload_of(reading: LogReading) -> MeasuredWorkload:
    traffic, first, last = reading.traffic, reading.first or 0, reading.last
    mailboxes = list(traffic.mailboxes.values())
    users = len(mailboxes)
    # 1. Count days: complete ones, without the quiet ones.
    by_day: dict[int, int] = {}
    for number, hour in traffic.hours.items():
        day = number * HOUR_S // DAY_S
        by_day[day] = by_day.get(day, 0) + hour.sent + hour.received
    complete = [
        day for day in by_day if day * DAY_S >= first - HOUR_S and (day + 1) * DAY_S <= last + HOUR_S and by_day[day]
    ]
    busiest = max((by_day[day] for day in complete), default=0)
    counted = [day for day in complete if by_day[day] >= WORKING_SHARE * busiest]
    days = max(last - first, 1) / DAY_S
    if counted:
        days = sum(by_day.values()) * len(counted) / sum(by_day[day] for day in counted)
    # 2. Rates.
    sent, received = (sum(getattr(mailbox, name) for mailbox in mailboxes) for name in ("sent", "received"))
    from_inside = min(traffic.inside, received)
    fan_out = traffic.recipients_squared * traffic.inside / traffic.recipients if traffic.recipients else 0.0
    log_ons = sum(mailbox.log_ons for mailbox in mailboxes)
    hours = _hours(reading, counted, users)
    shape = [hour[0 if sent >= LEAST_FOR_HOURS else 1] for hour in hours]
    at, in_minute = max(traffic.minutes.items(), key=lambda item: item[1], default=(0, 0))
    in_hour = sum(traffic.minutes[minute] for minute in range(at // 60 * 60, at // 60 * 60 + 60))
    sees_sent = bool({"Postfix", "Exchange"} & set(traffic.software)) and sent > 0
    return MeasuredWorkload(
        software=tuple(sorted(traffic.software)),
        mail_software=" and ".join(sorted({"Postfix", "Exchange"} & set(traffic.software))) or "Dovecot",
        begin=_moment(first),
        end=_moment(last),
        files=reading.files,
        size_bytes=reading.size_bytes,
        days=days,
        days_complete=len(complete),
        days_counted=len(counted),
        users=users,
        sent=_rate(sent, users * days) if sees_sent else None,
        received=_rate(received, users * days, fan_out + received - from_inside) if received else None,
        log_ons=_rate(log_ons, users * days) if log_ons else None,
        recipients=traffic.recipients / sent if sees_sent else None,
        outside_share=(received - from_inside) / received if received and sees_sent else None,
        sizes=_sizes(traffic.sizes),
        hours=hours,
        day_shape=_weights(shape),
        busiest_minute=in_minute,
        busiest_minute_to_hour=60 * in_minute / in_hour if in_hour else None,
        most_recipients=traffic.most_recipients,
        groups=tuple(_groups(mailboxes, days, sees_sent)),
        clients=_clients(reading, users * days),
        counts={name: number for name, number in sorted(traffic.counts.items()) if number},
        lines=LineCounts(
            reading.lines, reading.foreign, reading.unknown.lines, tuple(reading.unknown.most_common(SHAPES_SHOWN))
        ),
        findings=tuple(_findings(reading, len(complete), len(counted))),
    )


def _moment(when: int) -> str:
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(when))


def _rate(count: int, user_days: float, variance: float | None = None) -> Rate:
    return Rate(count / user_days, math.sqrt(count if variance is None else variance) / user_days, count)


def _hours(reading: LogReading, counted: Sequence[int], users: int) -> tuple[tuple[float, float, float], ...]:
    if not counted:
        return ()
    days, sums = set(counted), [[0, 0, 0] for _ in range(24)]
    for number, hour in reading.traffic.hours.items():
        if number * HOUR_S // DAY_S in days:
            for at, count in enumerate((hour.sent, hour.received, hour.log_ons)):
                sums[number % 24][at] += count
    per = len(counted) * max(users, 1)
    return tuple((sent / per, received / per, log_ons / per) for sent, received, log_ons in sums)


def _weights(hours: Sequence[float]) -> tuple[int, ...]:
    """Return the hours as weights in thousandths of the busiest one; () if they are all equal, or unknown."""
    most = max(hours, default=0.0)
    weights = tuple(round(1000 * hour / most) for hour in hours) if most else ()
    return weights if len({*weights}) > 1 else ()


def _sizes(sizes: Sizes) -> MeasuredSizes | None:
    if not sizes.messages:
        return None
    shares, passed = [], 0
    first, last = min(sizes.buckets), max(sizes.buckets)
    for bucket in range(first, last + BUCKETS_PER_DOUBLING):
        passed += sizes.buckets.get(bucket, 0)
        if (bucket + 1) % BUCKETS_PER_DOUBLING == 0:
            shares.append((2 ** ((bucket + 1) // BUCKETS_PER_DOUBLING), passed / sizes.messages))
    mean = sizes.total_bytes / sizes.messages
    return MeasuredSizes(sizes.messages, sizes.median_bytes, mean, sizes.max_bytes, tuple(shares))


def _groups(mailboxes: Sequence[MailboxCounts], days: float, sees_sent: bool) -> Iterator[UserGroup]:
    """Yield the groups, those with the least mail first."""
    counts = [mailbox.sent + mailbox.received for mailbox in mailboxes]
    edges = boundaries(counts, days) if counts else []
    members: list[list[MailboxCounts]] = [[] for _ in range(len(edges) + 1)]
    for mailbox, count in zip(mailboxes, counts, strict=True):
        members[bisect_right(edges, count)].append(mailbox)
    for group, edge in zip(members, [0.0, *edges], strict=True):
        sent, received = sum(mailbox.sent for mailbox in group), sum(mailbox.received for mailbox in group)
        middle = sorted(mailbox.sent + mailbox.received for mailbox in group)[len(group) // 2]
        yield UserGroup(
            len(group),
            _rate(sent, len(group) * days) if sees_sent else None,
            _rate(received, len(group) * days) if any(mailbox.received for mailbox in mailboxes) else None,
            edge / days,
            middle / days,
        )


def _clients(reading: LogReading, user_days: float) -> MeasuredClients | None:
    clients = reading.traffic.clients
    if not clients.log_ons:
        return None
    return MeasuredClients(
        clients.log_ons,
        clients.failed,
        tuple(clients.services.most_common()),
        tuple(clients.methods.most_common(10)),
        tuple(clients.programs.most_common(10)),
        clients.encrypted / clients.log_ons,
        clients.ipv6 / clients.log_ons,
        clients.bodies / user_days if clients.sessions_ended else None,
        clients.expunged / user_days if clients.sessions_ended else None,
    )


def _findings(reading: LogReading, complete: int, counted: int) -> Iterator[Finding]:
    """Yield what limits the figures: lines, hours, days and queue ids that are missing."""
    traffic, unknown = reading.traffic, reading.unknown
    if unknown.lines:
        shapes = tuple(f"{count:,} like {shape!r}" for shape, count in unknown.most_common(SHAPES_SHOWN))
        yield finding(Code.LOG_LINES_UNKNOWN, lines=unknown.lines, shapes=shapes)
    begin, end = (reading.first or 0) // HOUR_S, reading.last // HOUR_S
    silent = sum(
        1 for number in range(begin, end + 1) if number not in traffic.hours or not traffic.hours[number].lines
    )
    if silent and reading.lines >= LEAST_LINES * len(traffic.hours):
        yield finding(Code.LOG_HOURS_MISSING, hours=silent, of=end + 1 - begin)
    if not complete:
        yield finding(Code.LOG_DAYS_INCOMPLETE)
    elif counted < complete:
        yield finding(Code.LOG_DAYS_QUIET, quiet=complete - counted, days=complete)
    if traffic.counts["evicted"]:
        yield finding(Code.QUEUE_IDS_EVICTED, messages=traffic.counts["evicted"])
    if traffic.counts["undecided"]:
        yield finding(Code.SENDERS_FORGOTTEN, messages=traffic.counts["undecided"])
    if traffic.counts["untraced"]:
        yield finding(Code.FILTERED_MAIL_UNTRACED, messages=traffic.counts["untraced"])
    if {"Postfix", "Exchange"} <= traffic.software.keys():
        yield finding(Code.LOGS_OVERLAP)
    if traffic.counts["unmatched"] > UNMATCHED_SHARE * len(traffic.mailboxes):
        yield finding(Code.LOG_ON_NAMES_UNMATCHED, names=traffic.counts["unmatched"])
    if reading.yearless:
        yield finding(Code.LOG_YEAR_ASSUMED, begin=_moment(reading.first or 0)[:10], end=_moment(reading.last)[:10])
