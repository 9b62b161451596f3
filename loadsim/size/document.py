"""The report on a server's sizing: the verdict first, then resources, demands, and the limits of the result."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, inf, log10

from loadsim.findings.formats import length
from loadsim.report.document import Block, Document, Listing, Section, table_of
from loadsim.size.resources import (
    AT_LEAST,
    BUSY_SHARE,
    MAILBOX,
    MEGACYCLES_PER_S,
    OPERATIONS_PER_S,
    Demand,
    SizedResource,
)
from loadsim.size.sizing import Sizing
from loadsim.size.utilisation import Estimate

FEWER = (
    "The server may take fewer: response times exceed their limits before a resource is full, and work that the server"
    " defers until after the window is not counted. loadsim capacity measures how many it takes."
)


def describe_sizing(sizing: Sizing) -> Document:
    return Document(
        title=f"Size: {sizing.run}",
        subtitle="",
        verdict=size_verdict(sizing),
        tone="good" if sizing.first and not sizing.doubts else "doubtful",
        sections=(Section("Resources and demands", tuple(_blocks(sizing)), brief=True),),
        label="Size",
    )


def size_verdict(sizing: Sizing) -> str:
    """Return a sentence with the number of users, or the reason why there is none."""
    first = sizing.first
    if sizing.missed:
        missed = "; ".join(finding.text for finding in sizing.missed)
        return f"not decided, since the run missed its criteria with {sizing.users:,} users: {missed}"
    if first is None or first.users is None:
        unknown = [resource for resource in sizing.resources if resource.users is None]
        beyond = [resource.users_beyond for resource in unknown if resource.users_beyond is not None]
        if beyond and len(beyond) == len(sizing.resources):
            return f"more than {min(beyond):,.0f} users; no resource was used enough for a number"
        blocking = [resource for resource in unknown if resource.users_beyond is None] or unknown
        reasons = "; ".join(resource.why_not.text for resource in blocking if resource.why_not)
        return f"not decided, since a resource without a number may be full first: {reasons}"
    at_least = first.bound == AT_LEAST
    # A resource with a wider interval may be full before the one with the lowest estimate is.
    least = min(sizing.resources, key=lambda resource: inf if resource.users is None else resource.users.low)
    certain = "" if least is first else "probably "
    about, interval = ("", "") if at_least else ("about ", f" (95 %: {_interval(first.users)})")
    return (
        f"{about}{_users(first.users, at_least)} users fill the {first.name}, {certain}the first of the measured"
        f" resources to be full{interval}"
    )


def _blocks(sizing: Sizing) -> Iterator[Block]:
    if sizing.first:
        yield FEWER
    begin_s, end_s = sizing.window_s
    yield (
        f"Run: {sizing.run}, {sizing.validity}, {sizing.users:,} users; {sizing.tasks_per_s:,.1f} tasks and"
        f" {sizing.messages_per_s:,.2f} messages per second, from {begin_s:,.0f} s to {end_s:,.0f} s"
    )
    if sizing.server_cores is not None:
        ours, all_cores = sizing.server_cores
        yield (
            f"The server may run on {ours:.3g} of the machine's {all_cores:.3g} cores (taskset, --pin or a control"
            " group): these count as the processor"
        )
    yield table_of(
        "The resources, and the number of users who fill each",
        sizing.resources,
        ("Resource", None, lambda row: row.name),
        ("used", 0, lambda row: _amount(row, row.used)),
        ("of", 0, lambda row: _amount(row, row.available)),
        ("share", 0, lambda row: f"{100 * row.utilisation.value:.1f} %" if row.utilisation else None),
        ("full: users", 0, lambda row: _users(row.users, row.bound == AT_LEAST, ">=") if row.users else None),
        ("95 %", 0, lambda row: _interval(row.users) if row.users and row.bound != AT_LEAST else None),
    )
    yield Listing("Demands (each on its own; they do not add up)", tuple(map(_demand, sizing.demands)))
    yield from _mailbox(sizing)
    for caption, items in (("Doubts", sizing.doubts), ("Not covered", sizing.not_covered)):
        if items:
            yield Listing(caption, tuple(finding.text for finding in items))
    if sizing.next_step:
        yield f"Next: {sizing.next_step}."


def _mailbox(sizing: Sizing) -> Iterator[Block]:
    """Yield the mailbox in planners' units, above published ones."""
    day = sizing.mailbox
    if day is None:
        return
    by_unit = {demand.unit: demand.value.value for demand in sizing.demands if demand.name == MAILBOX and demand.value}
    here = ("this server", day.messages_per_day, by_unit.get(MEGACYCLES_PER_S), by_unit.get(OPERATIONS_PER_S))
    published = [(one.name, one.messages_per_day, one.megacycles, one.disk_operations) for one in day.published]
    yield table_of(
        "A mailbox at the peak, per second",
        [here, *published],
        ("Mailbox", None, lambda row: row[0]),
        ("messages a day", 0, lambda row: row[1]),
        ("megacycles", 0, lambda row: None if row[2] is None else _digits(row[2])),
        ("disk operations", 0, lambda row: None if row[3] is None else _digits(row[3])),
    )
    shape = "" if day.peak == 1 else f", with {day.peak:.3g} times the mean rate at the peak"
    yield (
        f"The window's rates count as the peak of a day of {length(day.day_s)}{shape}: {_digits(day.sent_per_day)}"
        f" messages sent, {_digits(day.received_per_day)} received"
    )


def _amount(resource: SizedResource, amount: float | None) -> str | None:
    """Format an amount of a resource with its unit, or as a percentage if only the used share is known."""
    if amount is None:
        return None
    return f"{100 * amount:,.3g} %" if resource.unit == BUSY_SHARE else f"{amount:,.3g} {resource.unit}"


def _demand(demand: Demand) -> str:
    value = demand.value
    if value is None:
        return demand.why_not.text if demand.why_not else demand.name
    interval = f"{_digits(max(value.low, 0))} to {_digits(value.high)}"
    return f"for each {demand.name}: {_digits(value.value)} ({interval}) {demand.unit}"


def _users(users: Estimate, at_least: bool, sign: str = "at least ") -> str:
    """Format an estimate, or the lower end of a bound, with two digits. A bound has no interval: more may fit."""
    number = int(users.low if at_least else users.value)
    unit = 10 ** max(len(str(number)) - 2, 0)
    return f"{sign if at_least else ''}{number // unit * unit:,}"


def _interval(value: Estimate) -> str:
    return f"{value.low:,.0f} to {value.high:,.0f}"


def _digits(value: float) -> str:
    if not value:
        return "0"
    decimals = max(0, 2 - floor(log10(abs(value))))
    return f"{value:,.{decimals}f}"
