"""A plan as text: what each profile's users do beside what was published for them, and the load hour by hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ROWS = ("sent", "received", "new", "reply", "reply_all", "forward", "read", "browsed")


def plan_text(figures: Mapping[str, Any]) -> str:
    """The text of what `loadsim plan --json` gives."""
    totals, rates = figures["totals"], figures["rates_per_s"]
    lines = [
        f"{figures['users']} users, {figures['days']} day(s) of {figures['day_s']:g} s"
        f" ({figures['compression']:g} times faster than the profiles' day)",
        f"Messages: {totals['messages_sent']} sent ({totals['bytes_sent'] / 1e6:.1f} MB), {totals['messages_received']}"
        f" received ({totals['bytes_received'] / 1e6:.1f} MB),"
        f" {figures['per_user']['recipients_per_message']:.2f} recipients each",
        "Rates: "
        + ", ".join(
            f"{rates[key]:.2f} {name} per second"
            for key, name in (("log_ons", "log-ons"), ("imap_commands", "IMAP commands"), ("messages", "messages"))
            if rates[key] is not None
        ),
        "",
        *_per_user(figures),
        "",
        *_by_hour(figures),
        "",
        f"Plan digest: {figures['plan_digest']}",
    ]
    if figures["failures"]:
        lines.insert(3, "Failures: " + ", ".join(f"{name} ({n})" for name, n in figures["failures"].items()))
    return "\n".join(lines)


def _per_user(figures: Mapping[str, Any]) -> Iterable[str]:
    """A column for each profile and one beside it for its published load, and one for all users."""
    head = ["Per user and day"]
    columns: list[Mapping[str, float]] = []
    for name, share in figures["by_profile"].items():
        head.append(f"{name} ({share['users']})")
        columns.append(share["per_user"])
        if share["calculated"] is not None:
            head.append("published")
            columns.append(share["calculated"])
    head.append("all")
    columns.append(figures["per_user"])
    cells = [
        [row.replace("_", " "), *(f"{column[row]:.2f}" if row in column else "" for column in columns)] for row in ROWS
    ]
    return _table([head, *cells])


def _by_hour(figures: Mapping[str, Any]) -> Iterable[str]:
    """A row for each task and a column for each hour; log-ons before the start stand in the first column."""
    hours = figures["by_hour"]
    head = ["Tasks by hour", *("before" if hour["hour"] < 0 else str(hour["hour"] + 1) for hour in hours), "total"]
    tasks = figures["tasks"]
    rows = [[task, *(str(hour["tasks"].get(task, 0)) for hour in hours), str(tasks[task])] for task in sorted(tasks)]
    imap = [sum(times for name, times in hour["commands"].items() if name.startswith("IMAP ")) for hour in hours]
    return _table([head, *rows, ["IMAP commands", *map(str, imap), str(sum(imap))]])


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([f"{first:<{widths[0]}}", *cells]).rstrip()
