"""The sizing of a server as plain text: the verdict first, then resources, demands and what limits the answer."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf, log10

from loadsim.analysis.sizing import Sizing
from loadsim.analysis.sizing_demands import Demand, DiskOperations
from loadsim.analysis.sizing_resources import AT_LEAST, BUSY_SHARE, Resource
from loadsim.analysis.utilisation import Estimate
from loadsim.errors import printable
from loadsim.report.text import LEAST_WIDTH, listed, table, wrapped


def size_text(sizing: Sizing, width: int) -> str:
    """Return the answer, without a final line break."""
    width = max(width, LEAST_WIDTH)
    lines = [
        *wrapped(size_verdict(sizing), width),
        "",
        *wrapped(_facts(sizing), width),
        "",
        *_resources(sizing),
        "",
        *wrapped([*_demands(sizing), *_disk(sizing.disk)], width),
    ]
    for heading, each in (("Doubts", sizing.doubts), ("Not covered", sizing.not_covered)):
        if each:
            lines += ["", *wrapped(listed(heading, map(printable, each)), width)]
    return "\n".join(lines)


def size_verdict(sizing: Sizing) -> Iterable[str]:
    """Yield the verdict: its first line is the number, or why there is none."""
    first = sizing.first
    if sizing.missed is not None:
        yield (
            f"Size: not decided, since the run missed its criteria with {sizing.users:,} users:"
            f" {printable(sizing.missed)}"
        )
        return
    if first is None or first.users is None:
        unknown = [each for each in sizing.resources if each.users is None]
        beyond = [each.users_beyond for each in unknown if each.users_beyond is not None]
        if beyond and len(beyond) == len(sizing.resources):
            yield (
                f"Size: more than {min(beyond):,.0f} users; no resource was used enough for a number."
                " Measure more users, or a faster day"
            )
            return
        blocking = [each for each in unknown if each.users_beyond is None] or unknown
        reasons = "; ".join(printable(f"{each.name}: {each.why_not}") for each in blocking)
        yield f"Size: not decided, since a resource without a number may be full first: {reasons}"
        return
    at_least = first.bound == AT_LEAST
    # A resource with a wider interval may be full before the one whose estimate is the lowest.
    least = min(sizing.resources, key=lambda each: inf if each.users is None else each.users.low)
    certain = "" if least is first else "probably "
    about, interval = ("", "") if at_least else ("about ", f" (95 %: {interval_words(first.users)})")
    yield (
        f"Size: {about}{_users(first.users, at_least)} users fill the {printable(first.name)}, {certain}the first to be"
        f" full of the measured resources{interval}"
    )
    yield (
        "The server may take fewer: response times exceed their limits before a resource is full, and work that it puts"
        " off until after the window is not counted. loadsim capacity measures how many."
    )


def _facts(sizing: Sizing) -> Iterable[str]:
    begin_s, end_s = sizing.window_s
    yield (
        f"Run: {sizing.run}, {sizing.validity}, {sizing.users:,} users; {sizing.tasks_per_s:,.1f} tasks and"
        f" {sizing.messages_per_s:,.2f} messages per second, from {begin_s:,.0f} s to {end_s:,.0f} s"
    )
    if sizing.server_cores is not None:
        ours, all_cores = sizing.server_cores
        yield (
            f"The server may run on {ours:.3g} of the machine's {all_cores:.3g} cores (taskset, --pin or a control"
            " group): the processor is these"
        )


def _resources(sizing: Sizing) -> list[str]:
    rows = [["Resource", "used", "of", "share", "full: users", "95 %"]]
    for each in sizing.resources:
        rows.append(
            [
                printable(each.name),
                _amount(each, each.used),
                _amount(each, each.available),
                "-" if each.utilisation is None else f"{100 * each.utilisation.value:.1f} %",
                "-" if each.users is None else _users(each.users, each.bound == AT_LEAST, ">="),
                "-" if each.users is None or each.bound == AT_LEAST else interval_words(each.users),
            ]
        )
    return table(rows)


def _amount(resource: Resource, amount: float | None) -> str:
    """Return an amount of a resource with its unit; of one whose share alone is known, in per cent."""
    if amount is None:
        return "-"
    return f"{100 * amount:,.3g} %" if resource.unit == BUSY_SHARE else f"{amount:,.3g} {resource.unit}"


def _demands(sizing: Sizing) -> Iterable[str]:
    yield "Demands (of each alone; they do not add up):"
    yield from (_demand(each) for each in sizing.demands)


def _demand(demand: Demand) -> str:
    found = printable(str(demand.why_not)) if demand.value is None else f"{_with_interval(demand.value)} {demand.unit}"
    return f"  - {demand.name}: {found}"


def _disk(disk: DiskOperations) -> Iterable[str]:
    if disk.per_s is None:
        yield f"Disk operations: {printable(str(disk.why_not))}"
        return
    reads = "" if disk.read_share is None else f", {100 * disk.read_share:.0f} % of them reads"
    yield f"Disk operations (of all programs): {_with_interval(disk.per_s)} per second{reads}"
    for name, value in (("submitted message", disk.per_message), ("delivered copy", disk.per_delivery)):
        if value is not None:
            yield f"  - for each {name}: {_with_interval(value)}"


def _with_interval(value: Estimate) -> str:
    return f"{_digits(value.value)} ({_digits(max(value.low, 0))} to {_digits(value.high)})"


def _users(users: Estimate, at_least: bool, sign: str = "at least ") -> str:
    """Return the estimate, or of a bound the lower end, which has no interval: more users may fit in any case."""
    return f"{sign}{users_words(users.low)}" if at_least else users_words(users.value)


def users_words(users: float) -> str:
    """Return a number of users with two digits, rounded down."""
    unit = 10 ** max(len(str(int(users))) - 2, 0)
    return f"{int(users) // unit * unit:,}"


def interval_words(value: Estimate) -> str:
    return f"{value.low:,.0f} to {value.high:,.0f}"


def _digits(value: float) -> str:
    """Return a figure with three digits."""
    if not value:
        return "0"
    decimals = max(0, 2 - floor(log10(abs(value))))
    return f"{value:,.{decimals}f}"
