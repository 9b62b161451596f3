"""The sizing of a server as plain text: the verdict first, then resources, demands and what limits the answer."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf, log10

from loadsim.analysis.sizing import Sizing
from loadsim.analysis.sizing_demands import Demand, DiskOperations
from loadsim.analysis.sizing_resources import AT_LEAST, BUSY_SHARE, Resource
from loadsim.analysis.utilisation import Estimate
from loadsim.errors import printable
from loadsim.report.digits import percent
from loadsim.report.plain_lines import LEAST_WIDTH, listed, wrapped
from loadsim.report.table import table


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
        *wrapped([*_demands(sizing), *_disk(sizing.disk), *_data(sizing)], width),
    ]
    for heading, each in (
        ("Doubts", sizing.doubts),
        ("Not covered", sizing.not_covered),
        ("Assumed", sizing.assumptions),
    ):
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
    if first is None or first.users is None or first.users_at_target is None:
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
    least = min(sizing.resources, key=_lowest)
    certain = "" if least is first else "probably "
    about, interval = ("", "") if at_least else ("about ", f" (95 %: {interval_words(first.users)})")
    yield (
        f"Size: {about}{_users(first.users, at_least)} users fill the {printable(first.name)}, {certain}the first to be"
        f" full of the measured resources{interval}"
    )
    share = percent(sizing.target)
    of_it = "it" if least is first else f"the {printable(least.name)}"
    use = (
        f"at most {share} of {of_it}"
        if least.bound == AT_LEAST
        else f"{share} of {of_it} at the lower end of the interval"
    )
    yield (
        f"Measure first: {users_words(_lowest(least))} users, who use {use} (loadsim run, loadsim capacity)."
        " The server may take fewer: response times exceed their limits before a resource is full, and work that it"
        " puts off until after the window is not counted."
    )


def _lowest(resource: Resource) -> float:
    """Return the users at the target share of a resource, at the lower end of the interval."""
    return inf if resource.users_at_target is None else resource.users_at_target.low


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
    if sizing.equivalent != 1:
        yield (
            f"A user of this run makes the load of {_digits(sizing.equivalent)} users with a day of 8 h; they have the"
            " session and the mailbox of one"
        )


def _resources(sizing: Sizing) -> list[str]:
    rows = [["Resource", "used", "of", "share", "full: users", "95 %", f"{percent(sizing.target)}: users"]]
    for each in sizing.resources:
        rows.append(
            [
                printable(each.name),
                _amount(each, each.used),
                _amount(each, each.available),
                "-" if each.utilisation is None else f"{100 * each.utilisation.value:.1f} %",
                "-" if each.users is None else _users(each.users, each.bound == AT_LEAST, ">="),
                "-" if each.users is None or each.bound == AT_LEAST else interval_words(each.users),
                "-" if each.users_at_target is None else users_words(each.users_at_target.low),
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
    for name, value, unit in (
        ("submitted message", disk.per_message, ""),
        ("delivered copy", disk.per_delivery, ""),
        ("mailbox", disk.per_mailbox_per_s, " per second"),
        ("mailbox of a user with a day of 8 h", disk.per_mailbox_8h_per_s, " per second"),
    ):
        if value is not None:
            yield f"  - for each {name}: {_with_interval(value)}{unit}"


def _data(sizing: Sizing) -> Iterable[str]:
    data = sizing.data
    mailboxes = (
        "not known (no scenario.yaml that can be read)"
        if data.mailbox_bytes is None
        else f"about {_size(data.mailbox_bytes)}"
    )
    memory = "not known" if data.memory_bytes is None else _size(data.memory_bytes)
    free = "" if data.cache_bytes is None else f", of which {_size(data.cache_bytes)} could hold files"
    yield f"Mailboxes: {mailboxes}; memory of the server: {memory}{free}"
    if data.cache_resident is not None:
        yield "  - cache-resident: reads hardly need the disk" if data.cache_resident else "  - larger than the cache"


def _with_interval(value: Estimate) -> str:
    return f"{_digits(value.value)} ({_digits(max(value.low, 0))} to {_digits(value.high)})"


def full_words(users: Estimate, at_least: bool) -> str:
    """Return the number of users that fills a resource, with its interval; of a bound, its lower end alone."""
    return f"{_users(users, at_least)} users" + ("" if at_least else f" (95 %: {interval_words(users)})")


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


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:,.0f} MB"
