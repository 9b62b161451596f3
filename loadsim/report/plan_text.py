"""A plan as text: the tasks of each profile compared with its published figures, and the load by hour."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadsim.report.table import table
from loadsim.timinglog.planned_load import received_of_published

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

RATES = {
    "tasks": ("Tasks", 1),
    "messages": ("Messages", 1),
    "recipients": ("Recipients", 1),
    "bytes_sent": ("kB sent", 1e3),
    "bytes_received": ("kB received", 1e3),
    "imap_commands": ("IMAP commands", 1),
    "smtp_commands": ("SMTP commands", 1),
    "smtp_connections": ("SMTP connections", 1),
}
"""The rates, with their titles and the factor between the figure and the unit shown."""

MOST_ROWS = 24
"""A table of rates by hour that would be longer is one by day."""


def plan_text(
    figures: Mapping[str, Any],
    needs: Sequence[str] = (),
    *,
    lists: bool = True,
    width: int = 80,
) -> str:
    """Return the output of `loadsim plan --json` as text in `width` columns, with the needs of the run.

    `lists` says that the scenario has distribution lists.
    """
    totals, kept, storage = figures["totals"], figures["sessions"], figures["storage"]
    log_ons = figures["rates_per_s"]["log_ons"]
    more = f" (at most {kept['imap_most']:,})" if kept["imap_most"] != kept["imap_kept"] else ""
    lines = [
        _headline(figures),
        f"Messages: {totals['messages_sent']:,} sent ({totals['bytes_sent'] / 1e6:,.1f} MB),"
        f" {totals['messages_received']:,} received ({totals['bytes_received'] / 1e6:,.1f} MB),"
        f" {figures['per_user']['recipients_per_message']:.2f} recipients each",
        f"Sessions: {kept['imap_kept']:,} are kept{more}"
        + ("" if log_ons is None else f"; {log_ons:,.2f} log-ons per second before the start"),
        f"Storage: {_mb(storage, 'growth'):+,.1f} MB a day: received {_mb(storage, 'received'):+,.1f}, sent copies"
        f" {_mb(storage, 'saved'):+,.1f}, other copies {_mb(storage, 'copied'):+,.1f}, schedules"
        f" {_mb(storage, 'schedules'):+,.1f}, emptied at log-off {_mb(storage, 'emptied'):+,.1f}",
    ]
    if received := received_of_published(None if lists else figures["received_share"]):
        lines.insert(2, f"Without lists, users receive {received}.")
    if figures["failures"]:
        lines.append("Failures: " + ", ".join(f"{name} ({n})" for name, n in figures["failures"].items()))
    lines += [*needs, "", *_rates(figures), *_rates_by_hour(figures), *_per_user_within(figures, width)]
    lines += [
        "",
        "A server may change these figures:",
        *_left_out(figures),
        "",
        f"Plan digest: {figures['plan_digest']}",
    ]
    return "\n".join(_wrapped(lines, width))


def _mb(storage: Mapping[str, float], cause: str) -> float:
    return storage[f"{cause}_bytes_per_day"] / 1e6


def _wrapped(lines: Iterable[str], width: int) -> Iterable[str]:
    """Yield lines of at most this width, continued with two more spaces; words are not broken."""
    for line in lines:
        if len(line) <= width:
            yield line
            continue
        indent = len(line) - len(line.lstrip())
        yield from textwrap.wrap(
            line, width, subsequent_indent=" " * (indent + 2), break_long_words=False, break_on_hyphens=False
        )


def _left_out(figures: Mapping[str, Any]) -> Iterable[str]:
    return (f"- {each['what']}: {each['effect']}" for each in figures["left_out"])


def _rates(figures: Mapping[str, Any]) -> Iterable[str]:
    """Return the mean rates and those of the busiest hour."""
    rows = [["Per second", "mean", "busiest hour", "in hour", "to mean"]]
    for rate, (title, unit) in RATES.items():
        peak = figures["peaks"][rate]
        busiest = ["", "", ""]
        if peak is not None:
            busiest = [_rate(peak["per_s"], unit), str(peak["hour"] + 1), f"{peak['to_mean']:.2f}"]
        rows.append([title, _rate(figures["rates_per_s"][rate], unit), *busiest])
    return table(rows)


def _rate(per_s: float | None, unit: float = 1) -> str:
    if per_s is None:
        return "-"
    return f"{per_s / unit:,.2f}" if per_s / unit < 1000 else f"{per_s / unit:,.0f}"


def _rates_by_hour(figures: Mapping[str, Any]) -> Iterable[str]:
    """Return a row of rates for each hour of the profiles' day, or for each day of a run of many hours.

    As in the means of the run, a night has no part in the rate of its day. Days that begin within an hour have no rows.
    """
    inside = [hour for hour in figures["by_hour"] if hour["seconds"]]
    title, each, active_s = "In hour", 1, math.inf
    if len(inside) > MOST_ROWS:
        hours = (figures["day_s"] + figures["night_s"]) / max(hour["seconds"] for hour in inside)
        title, each, active_s = "On day", round(hours), figures["day_s"]
        if not each or not math.isclose(hours, each, rel_tol=1e-6):
            return []
    shown = {rate: titled for rate, titled in RATES.items() if rate != "smtp_connections"}
    rows = [[title, "tasks", "messages", "recipients", "kB sent", "kB received", "IMAP", "SMTP"]]
    for number, first in enumerate(range(0, len(inside), each)):
        part = inside[first : first + each]
        cells = [_rate(_mean_per_s(part, rate, active_s), unit) for rate, (_, unit) in shown.items()]
        rows.append([str(number + 1), *cells])
    return ["", *table(rows)]


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


def _mean_per_s(hours: Sequence[Mapping[str, Any]], rate: str, active_s: float) -> float | None:
    """Return the mean rate of some hours over their first `active_s` seconds; None if it is not known."""
    if any(hour[f"{rate}_per_s"] is None for hour in hours):
        return None
    passed_s = sum(hour["seconds"] for hour in hours)
    return float(sum(hour[f"{rate}_per_s"] * hour["seconds"] for hour in hours) / min(passed_s, active_s))


Load = tuple[str, int, Mapping[str, Any], Mapping[str, Any] | None]
"""A profile's name, users, planned and published figures."""


def _groups(figures: Mapping[str, Any]) -> list[Load]:
    """Return the profiles and, of several, all together."""
    profiles = figures["by_profile"].items()
    groups: list[Load] = [(name, each["users"], each["per_user"], each["calculated"]) for name, each in profiles]
    if len(groups) > 1:
        groups.append(("all", figures["users"], figures["per_user"], None))
    return groups


def _per_user_within(figures: Mapping[str, Any], width: int) -> Iterable[str]:
    """Yield tables of as many profiles as fit into a width, one below the other."""
    left = _groups(figures)
    while left:
        across = len(left)
        while across > 1 and max(map(len, _per_user(left[:across]))) > width:
            across -= 1
        yield ""
        yield from _per_user(left[:across])
        left = left[across:]


def _per_user(groups: Sequence[Load]) -> list[str]:
    """Return the planned and the published figures of these groups."""
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
