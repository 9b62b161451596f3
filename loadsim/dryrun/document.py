"""The report on a plan: its load, and each profile's tasks compared with published figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadsim.findings.formats import length
from loadsim.model.terms import FIRST_SYNC, INJECT
from loadsim.report.answer_tables import facts_table
from loadsim.report.document import Block, Column, Document, Section, Table, table_of
from loadsim.timinglog.planned_load import received_of_published

PER_USER = {
    "sent": "sent",
    "new": "  new",
    "reply": "  reply",
    "reply_all": "  reply all",
    "forward": "  forward",
    "read_receipts": "  read receipts",
    "received": "received",
    "recipients_per_message": "recipients per message",
    "read": "read",
    "browsed": "browsed",
}
"""The rows of a profile's table: keys of `per_user`, with their labels."""

PUBLISHED = {"recipients_per_message": "recipients"}
"""Keys that have other names in the published calculated load."""

RATES = {
    "tasks": ("Tasks", 1),
    "messages": ("Messages", 1),
    "recipients": ("Recipients", 1),
    "bytes_sent": ("kB sent", 1e3),
    "bytes_received": ("kB received", 1e3),
    "imap_commands": ("IMAP commands", 1),
    "smtp_commands": ("SMTP commands", 1),
    "smtp_connections": ("SMTP connections", 1),
    "lmtp_commands": ("LMTP commands", 1),
    "lmtp_connections": ("LMTP connections", 1),
}
"""The rates, with their titles, and the divisor that converts figures to the unit shown."""


def describe_plan(figures: Mapping[str, Any], needs: Sequence[str] = (), *, lists: bool = True) -> Document:
    """Return the report of `loadsim plan` from its figures and the needs of the run.

    `lists` is True if the scenario has distribution lists.
    """
    blocks: tuple[Block, ...] = (
        facts_table("The load", _facts(figures, lists)),
        *needs,
        _rates(figures),
        *_profiles(figures),
        f"Plan digest: {figures['plan_digest']}",
    )
    return Document("Plan", "", _headline(figures), "good", (Section("Load", blocks, brief=True),), label="Plan")


def _facts(figures: Mapping[str, Any], lists: bool) -> Iterator[tuple[str, str]]:
    totals, kept, storage = figures["totals"], figures["sessions"], figures["storage"]
    log_ons = figures["rates_per_s"]["log_ons"]
    more = f" (at most {kept['imap_most']:,})" if kept["imap_most"] != kept["imap_kept"] else ""
    yield (
        "Messages",
        f"{totals['messages_sent']:,} sent ({totals['bytes_sent'] / 1e6:,.1f} MB),"
        f" {totals['messages_received']:,} received ({totals['bytes_received'] / 1e6:,.1f} MB),"
        f" {figures['per_user']['recipients_per_message']:.2f} recipients each",
    )
    if senders := figures.get("senders"):
        yield "From outside", f"{figures['tasks'][INJECT]:,} messages tried, by {senders:,} senders without a mailbox"
    if received := received_of_published(None if lists else figures["received_share"]):
        yield "Without lists", f"users receive {received}"
    rate = "" if log_ons is None else f"; {log_ons:,.2f} log-ons per second before the start"
    yield "Sessions", f"{kept['imap_kept']:,} are kept{more}{rate}"
    yield (
        "Storage",
        f"{_mb(storage, 'growth')} MB a day: received {_mb(storage, 'received')}, sent copies {_mb(storage, 'saved')},"
        f" other copies {_mb(storage, 'copied')}, schedules {_mb(storage, 'schedules')},"
        f" emptied at log-off {_mb(storage, 'emptied')}",
    )
    if (copied := figures["first_sync"])["headers"]:
        yield (
            "First sync",
            f"{figures['tasks'][FIRST_SYNC]:,} users copy {copied['headers']:,} headers,"
            f" {copied['bodies']:,} bodies ({copied['bytes'] / 1e6:,.1f} MB)",
        )
    if figures["failures"]:
        yield "Failures", ", ".join(f"{name} ({times})" for name, times in figures["failures"].items())


def _mb(storage: Mapping[str, float], cause: str) -> str:
    return f"{storage[f'{cause}_bytes_per_day'] / 1e6:+,.1f}"


def _headline(figures: Mapping[str, Any]) -> str:
    days, day_s, faster = figures["days"], figures["day_s"], figures["compression"]
    night = f" with a night of {length(figures['night_s'])}" if figures["night_s"] else ""
    pace = "" if faster == 1 else f" ({faster:g} times as fast as the profiles' day)"
    whole = f"{days:g} day{'s' * (days > 1)} of {length(day_s)}"
    part = f"{days * day_s / 60:g} min of a day of {length(day_s)}"
    return f"{figures['users']:,} users, {whole if days >= 1 else part}{night}{pace}"


def _rates(figures: Mapping[str, Any]) -> Table:
    mean, peaks = figures["rates_per_s"], figures["peaks"]
    return table_of(
        "Rates per second",
        [rate for rate in RATES.items() if mean[rate[0]] or not rate[0].startswith("lmtp")],
        ("Per second", None, lambda rate: rate[1][0]),
        ("mean", 2, lambda rate: _in_unit(mean[rate[0]], rate[1][1])),
        ("busiest hour", 2, lambda rate: (peak := peaks[rate[0]]) and _in_unit(peak["per_s"], rate[1][1])),
        ("in hour", 0, lambda rate: (peak := peaks[rate[0]]) and peak["hour"] + 1),
        ("to mean", 2, lambda rate: (peak := peaks[rate[0]]) and peak["to_mean"]),
    )


def _in_unit(per_s: float | None, unit: float) -> float | None:
    return None if per_s is None else per_s / unit


def _profiles(figures: Mapping[str, Any]) -> Iterator[Table]:
    for name, load in figures["by_profile"].items():
        published = load["calculated"]
        columns = [Column("Per user and day"), Column("planned", 2), *([Column("published", 2)] if published else [])]
        rows = []
        for key, label in ((key, label) for key, label in PER_USER.items() if key in load["per_user"]):
            own = [load["per_user"][key], *([published.get(PUBLISHED.get(key, key), "")] if published else [])]
            rows.append((label, *own))
        yield Table(f"{load['users']:,} users of {name}", tuple(columns), tuple(rows))
