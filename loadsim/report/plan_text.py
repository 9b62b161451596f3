"""A plan as text: the load by hour, and the tasks of each profile compared with its published figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadsim.report.text import table, wrapped
from loadsim.timinglog.header_words import length
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
"""The rows of the table of a profile: keys of `per_user`, with their labels."""

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

MOST_HOURS = 24
"""A run of more hours has no table of them: the busiest ones are in that of the rates."""


def plan_text(figures: Mapping[str, Any], needs: Sequence[str] = (), *, lists: bool = True, width: int = 80) -> str:
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
    left_out = [f"- {each['what']}: {each['effect']}" for each in figures["left_out"]]
    return "\n".join(
        [
            *wrapped([*lines, *needs, ""], width),
            *_rates(figures),
            *_rates_by_hour(figures),
            *_profiles(figures),
            *wrapped(["", "A server may change these figures:", *left_out, ""], width),
            *wrapped([f"Plan digest: {figures['plan_digest']}"], width),
        ]
    )


def _mb(storage: Mapping[str, float], cause: str) -> float:
    return storage[f"{cause}_bytes_per_day"] / 1e6


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
    """Return a row of rates for each hour of the profiles' day."""
    inside = [hour for hour in figures["by_hour"] if hour["seconds"]]
    if len(inside) > MOST_HOURS:
        return []
    shown = {rate: unit for rate, (_, unit) in RATES.items() if rate != "smtp_connections"}
    rows = [["In hour", "tasks", "messages", "recipients", "kB sent", "kB received", "IMAP", "SMTP"]]
    for number, hour in enumerate(inside, 1):
        rows.append([str(number), *(_rate(hour[f"{rate}_per_s"], unit) for rate, unit in shown.items())])
    return ["", *table(rows)]


def _headline(figures: Mapping[str, Any]) -> str:
    days, day_s, faster = figures["days"], figures["day_s"], figures["compression"]
    night = f" with a night of {length(figures['night_s'])}" if figures["night_s"] else ""
    pace = "" if faster == 1 else f" ({faster:g} times as fast as the profiles' day)"
    whole = f"{days:g} day{'s' * (days > 1)} of {length(day_s)}"
    part = f"{days * day_s / 60:g} min of a day of {length(day_s)}"
    return f"{figures['users']:,} users, {whole if days >= 1 else part}{night}{pace}"


def _profiles(figures: Mapping[str, Any]) -> Iterable[str]:
    """Yield a table for each profile, with its published figures if it has any."""
    for name, load in figures["by_profile"].items():
        published = load["calculated"]
        rows = [[f"{load['users']:,} users of {name}, each a day", "planned", *(["published"] if published else [])]]
        for key, label in PER_USER.items():
            of_profile = [_figure(published.get(PUBLISHED.get(key, key)))] if published else []
            rows.append([label, _figure(load["per_user"][key]), *of_profile])
        yield from ("", *table(rows))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
