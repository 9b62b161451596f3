"""A plan as text: the tasks of each profile compared with its published figures, and the load by hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadsim.report.table import table

PER_USER = {
    "sent": "sent",
    "new": "  new",
    "reply": "  reply",
    "reply_all": "  reply all",
    "forward": "  forward",
    "received": "received",
    "recipients_per_message": "recipients per message",
    "read": "read",
    "browsed": "browsed",
}
"""The rows of the first table: keys of `per_user`, with their labels."""

PUBLISHED = {"recipients_per_message": "recipients"}
"""Keys that differ in the published calculated load."""

TRAFFIC_ROWS = (
    "messages sent",
    "messages received",
    "recipients each",
    "MB sent",
    "MB received",
    "IMAP commands",
    "  per second",
)

HOURS_ACROSS = 8
"""The most hours in a row of the table."""


LITTLE_MAIL = 0.9
"""The share of the published mail below which a plan without lists says so."""


def plan_text(figures: Mapping[str, Any], needs: Sequence[str] = (), *, lists: bool = True) -> str:
    """Return the output of `loadsim plan --json` as text, with the needs of the run as further lines.

    `lists` says that the scenario has distribution lists.
    """
    totals, rates = figures["totals"], figures["rates_per_s"]
    lines = [
        _headline(figures),
        f"Messages: {totals['messages_sent']:,} sent ({totals['bytes_sent'] / 1e6:,.1f} MB),"
        f" {totals['messages_received']:,} received ({totals['bytes_received'] / 1e6:,.1f} MB),"
        f" {figures['per_user']['recipients_per_message']:.2f} recipients each",
        "Rates: "
        + ", ".join(
            f"{rates[key]:,.2f} {name} per second"
            for key, name in (("log_ons", "log-ons"), ("imap_commands", "IMAP commands"), ("messages", "messages"))
            if rates[key] is not None
        ),
    ]
    share = None if lists else _received_share(figures)
    if share is not None and share < LITTLE_MAIL:
        lines.insert(2, f"Without lists, users receive {share:.0%} of the published mail.".replace("%", " %"))
    if figures["failures"]:
        lines.append("Failures: " + ", ".join(f"{name} ({n})" for name, n in figures["failures"].items()))
    lines += [*needs, "", *_per_user(figures), *_by_hour(figures), "", f"Plan digest: {figures['plan_digest']}"]
    return "\n".join(lines)


def _received_share(figures: Mapping[str, Any]) -> float | None:
    """Return the planned share of the published received mail; None without published figures."""
    known = [each for each in figures["by_profile"].values() if each["calculated"] is not None]
    published = sum(each["users"] * each["calculated"]["received"] for each in known)
    return sum(each["users"] * each["per_user"]["received"] for each in known) / published if published else None


def _headline(figures: Mapping[str, Any]) -> str:
    days, day_s, faster = figures["days"], figures["day_s"], figures["compression"]
    length = _length(day_s)
    night = f" with a night of {_length(figures['night_s'])}" if figures["night_s"] else ""
    pace = "" if faster == 1 else f" ({faster:g} times as fast as the profiles' day)"
    whole = f"{days:g} day{'s' * (days > 1)} of {length}"
    part = f"{days * day_s / 60:g} min of a day of {length}"
    return f"{figures['users']:,} users, {whole if days >= 1 else part}{night}{pace}"


def _length(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"


def _per_user(figures: Mapping[str, Any]) -> Iterable[str]:
    """Return the planned and the published figures of each profile, and the planned figures of all."""
    profiles = figures["by_profile"].items()
    groups = [(name, profile["users"], profile["per_user"], profile["calculated"]) for name, profile in profiles]
    if len(groups) > 1:
        groups.append(("all", figures["users"], figures["per_user"], None))
    rows = [
        ["Per user and day", *(name for name, *_ in groups)],
        ["", *(f"{users:,} users" for _, users, *_ in groups)],
        ["", *("planned" + " published" * (calculated is not None) for *_, calculated in groups)],
    ]
    for key, label in PER_USER.items():
        cells = []
        for *_, planned, calculated in groups:
            published = "" if calculated is None else f"{_figure(calculated.get(PUBLISHED.get(key, key))):>10}"
            cells.append(_figure(planned[key]) + published)
        rows.append([label, *cells])
    return table(rows)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _by_hour(figures: Mapping[str, Any]) -> Iterable[str]:
    """Return a row for each task and a column for each hour of the profiles' day, with the load before and after."""
    before, *inside, after = figures["by_hour"]
    whole = {
        **figures["totals"],
        "tasks": figures["tasks"],
        "imap_commands": sum(hour["imap_commands"] for hour in figures["by_hour"]),
        "imap_commands_per_s": figures["rates_per_s"]["imap_commands"],
    }
    columns = [(str(hour["hour"] + 1), hour) for hour in inside]
    for first in range(0, len(columns), HOURS_ACROSS):
        across = columns[first : first + HOURS_ACROSS]
        if first == 0:
            across = [("before", before), *across]
        if first + HOURS_ACROSS >= len(columns):
            across = [*across, ("after", after), ("total", whole)]
        cells = [list(_load(hour)) for _, hour in across]
        labels = [*figures["tasks"], *TRAFFIC_ROWS]
        yield ""
        yield from table([["In hour", *(label for label, _ in across)], *zip(labels, *cells, strict=True)])


def _load(hour: Mapping[str, Any]) -> Iterable[str]:
    """Yield a column: every task, then the rows of `TRAFFIC_ROWS`."""
    yield from (f"{count:,}" for count in hour["tasks"].values())
    sent, received, per_s = hour["messages_sent"], hour["messages_received"], hour["imap_commands_per_s"]
    yield f"{sent:,}"
    yield f"{received:,}"
    yield f"{received / sent:.2f}" if sent else ""
    yield f"{hour['bytes_sent'] / 1e6:.1f}"
    yield f"{hour['bytes_received'] / 1e6:.1f}"
    yield f"{hour['imap_commands']:,}"
    yield "" if per_s is None else f"{per_s:,.2f}"
