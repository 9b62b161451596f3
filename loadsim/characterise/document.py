"""The report on a workload in logs: rates, groups, hours, sizes and clients; what is measured, and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

from loadsim.characterise.groups import RULE
from loadsim.characterise.profile import BASE, Habits, both_rates, lognormal
from loadsim.characterise.workload import MeasuredClients, MeasuredSizes, MeasuredWorkload, Rate
from loadsim.findings.finding import Finding
from loadsim.findings.formats import count, data_size, percent
from loadsim.findings.severity import Severity
from loadsim.report.answer import findings
from loadsim.report.answer_tables import facts_table
from loadsim.report.document import Axis, Block, Chart, Column, Document, Line, Panel, Section, table_of

_COUNTS = (
    ("messages", "messages accepted"),
    ("authenticated", "of these, from users who had authenticated"),
    ("to_outside", "deliveries to other servers and programs"),
    ("passed_on", "hand-overs to filters and between queues, which are no deliveries"),
    ("deferred", "deferrals"),
    ("bounced", "recipients whose mail was returned"),
    ("rejected", "rejected messages and recipients"),
    ("probes", "events of messages with which Exchange watches itself, not counted"),
    ("still_queued", "messages still in the queue at the end"),
    ("begun_before", "messages accepted before the logs begin, or whose first line is missing: not counted as sent"),
)


def describe_workload(workload: MeasuredWorkload, habits: Sequence[Habits], found: Sequence[Finding]) -> Document:
    doubtful = any(one.severity is Severity.WARNING for one in found)
    return Document(
        title=f"Workload: {count(workload.users, 'user')} in logs of {' and '.join(workload.software)}",
        subtitle=f"From {workload.begin} to {workload.end}, {count(workload.files, 'file')},"
        f" {data_size(workload.size_bytes)}",
        verdict=workload_verdict(workload),
        tone="doubtful" if doubtful else "good",
        sections=(
            Section("", tuple(_charts(workload))),
            Section("Findings", tuple(findings(found)), brief=True),
            Section("Rates", tuple(_rates(workload)), brief=True),
            Section("Groups", tuple(_groups(workload, habits)), brief=True),
            Section("Mail programs", tuple(_clients(workload.clients))),
            Section("What was read", tuple(_read(workload))),
        ),
        label="Workload",
    )


def workload_verdict(workload: MeasuredWorkload) -> str:
    sent, received = both_rates(workload)
    groups = f" in {count(len(workload.groups), 'group')}" if len(workload.groups) > 1 else ""
    rates = f"{sent:,.3g} sent and {received:,.3g} received per user and day"
    return f"{count(workload.users, 'user')}{groups}, {rates}"


def _per_day(rate: Rate | None) -> float | None:
    return rate.per_day if rate else None


def _interval(rate: Rate | None) -> str | None:
    if rate is None:
        return None
    return f"{max(0.0, rate.per_day - 1.96 * rate.error):,.4g} to {rate.per_day + 1.96 * rate.error:,.4g}"


def _rates(workload: MeasuredWorkload) -> Iterator[Block]:
    base = f"Medium ({BASE})"
    rows = (
        ("Messages sent", workload.sent, "14.18"),
        ("Messages received", workload.received, "66.3"),
        ("Log-ons", workload.log_ons, None),
    )
    yield table_of(
        f"Per user and day, from {workload.days:,.3g} days' worth of mail",
        rows,
        ("Rate", None, lambda row: row[0]),
        ("per day", 2, lambda row: _per_day(row[1])),
        ("95 % by chance", None, lambda row: _interval(row[1])),
        ("counted", 0, lambda row: row[1].count if row[1] else None),
        (base, None, lambda row: row[2]),
    )
    facts = []
    if workload.recipients is not None:
        facts.append(("Recipients per message", f"{workload.recipients:,.3g}, after lists were expanded; Medium 4.68"))
    facts.append(("Largest message", f"{count(workload.most_recipients, 'recipient')}"))
    if workload.outside_share is not None:
        facts.append(("Received from outside", percent(round(workload.outside_share, 3))))
    if workload.sizes:
        sizes = workload.sizes
        facts.append(
            (
                "Sizes",
                f"median {data_size(sizes.median_bytes)}, mean {data_size(sizes.mean_bytes)}, largest"
                f" {data_size(sizes.max_bytes)}",
            )
        )
    if workload.hours:
        busiest = max(range(24), key=lambda hour: sum(workload.hours[hour][:2]))
        mean = sum(sum(hour[:2]) for hour in workload.hours) / 24
        times = sum(workload.hours[busiest][:2]) / mean if mean else 0.0
        facts.append(("Busiest hour", f"{busiest}:00 to {busiest + 1}:00, {times:.3g} times the mean hour"))
    if workload.busiest_minute_to_hour is not None:
        facts.append(
            (
                "Busiest minute",
                f"{count(workload.busiest_minute, 'message')}, {workload.busiest_minute_to_hour:.3g} times the mean"
                " minute of its hour",
            )
        )
    days = f"{workload.days_counted} counted, {workload.days_complete} complete"
    yield facts_table("Messages, hours and bursts", [*facts, ("Days", days)])


def _groups(workload: MeasuredWorkload, habits: Sequence[Habits]) -> Iterator[Block]:
    yield table_of(
        "The users by their messages per day, and the profiles of these groups",
        zip(workload.groups, habits, strict=True),
        ("Profile", None, lambda row: row[1].name),
        ("users", 0, lambda row: row[0].users),
        ("messages from", 1, lambda row: row[0].from_messages_per_day),
        ("median", 1, lambda row: row[0].median_messages_per_day),
        ("sent", 2, lambda row: _per_day(row[0].sent)),
        ("received", 2, lambda row: _per_day(row[0].received)),
        ("new", 2, lambda row: row[1].new),
        ("recipients", 0, lambda row: row[1].recipients),
        ("list", None, lambda row: percent(round(row[1].list_chance, 4))),
    )
    yield f"The rule: {RULE}."


def _clients(clients: MeasuredClients | None) -> Iterator[Block]:
    if clients is None:
        return
    facts = [
        ("Log-ons", f"{clients.log_ons:,}, {clients.failed_log_ons:,} failed"),
        ("Protocols", _mix(clients.services, clients.log_ons)),
        ("Methods", _mix(clients.methods, clients.log_ons)),
        ("Encrypted", percent(round(clients.encrypted_share, 3))),
        ("By IPv6", percent(round(clients.ipv6_share, 3))),
    ]
    if clients.programs:
        facts.append(("Programs", _mix(clients.programs, sum(number for _, number in clients.programs))))
    if clients.bodies_per_user_day is not None:
        facts.append(("Bodies fetched", f"{clients.bodies_per_user_day:,.3g} per user and day, in any program's way"))
    if clients.expunged_per_user_day is not None:
        facts.append(("Expunged", f"{clients.expunged_per_user_day:,.3g} per user and day"))
    yield facts_table("How users log on", facts)


def _mix(counts: Sequence[tuple[str, int]], total: int) -> str:
    return ", ".join(f"{name} {percent(round(number / total, 3))}" for name, number in counts)


def _read(workload: MeasuredWorkload) -> Iterator[Block]:
    lines = workload.lines
    facts = [("lines", f"{lines.read:,}"), ("lines of other programs", f"{lines.foreign:,}")]
    facts.append(("unknown lines", f"{lines.unknown:,}"))
    facts += [(name, f"{workload.counts[key]:,}") for key, name in _COUNTS if key in workload.counts]
    yield facts_table("Counts", facts)


def _charts(workload: MeasuredWorkload) -> Iterator[Chart]:
    if workload.hours:
        yield _hours(workload)
    if workload.sizes and len(workload.sizes.shares) > 1:
        yield _sizes(workload.sizes)


def _hours(workload: MeasuredWorkload) -> Chart:
    positions = tuple(hour + 0.5 for hour in range(24))
    lines = [
        Line(name, tuple(hour[at] for hour in workload.hours))
        for at, name in enumerate(("sent", "received", "log-ons"))
        if any(hour[at] for hour in workload.hours)
    ]
    axis = Axis("hour of the day", "time", positions, Column("Hour", 0), tuple(range(24)), span=(0.0, 24.0), unit="h")
    return Chart("Hours of the day", axis, (Panel("Per user and hour", "per hour", tuple(lines), digits=2),))


def _sizes(sizes: MeasuredSizes) -> Chart:
    """Return the cumulative distribution of sizes, and that of the profile's lognormal distribution."""
    median, mean, most = lognormal(sizes)
    sigma = math.sqrt(2 * math.log(mean / median))
    fit = [
        1.0
        if edge >= most
        else NormalDist(math.log(median), sigma).cdf(math.log(edge))
        if sigma
        else float(edge >= median)
        for edge, _ in sizes.shares
    ]
    axis = Axis(
        "size (doublings from 1 KiB)",
        "count",
        tuple(math.log2(edge / 1024) for edge, _ in sizes.shares),
        Column("Up to"),
        tuple(data_size(edge) for edge, _ in sizes.shares),
    )
    lines = (
        Line("measured", tuple(100 * share for _, share in sizes.shares)),
        Line("profile (lognormal)", tuple(100 * share for share in fit)),
    )
    return Chart("Sizes of messages", axis, (Panel("Messages up to this size", "%", lines),))
