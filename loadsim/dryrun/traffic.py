"""The traffic of a plan for the server: rates by hour and their peaks, sessions, growth of mailboxes.

A command is what a client sends and a server answers: connections, DONE and QUIT are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadsim.dryrun.tally import TRAFFIC, Tally
from loadsim.model.mail_program import KEPT, OUTLOOK_LIKE
from loadsim.model.terms import STORED
from loadsim.protocols.registry import needed_services
from loadsim.scenario.scenario import Scenario

CONNECT = "SMTP CONNECT"

COUNTED = {
    "tasks": "tasks",
    "messages": "messages_sent",
    "recipients": "messages_received",
    "bytes_sent": "bytes_sent",
    "bytes_received": "bytes_received",
    "imap_commands": "imap_commands",
    "smtp_commands": "smtp_commands",
    "smtp_connections": "smtp_connections",
}
"""The rates, with the counts of an hour that they are made of."""

LEAST_HOUR_SHARE = 0.5
"""A peak is that of an hour of which at least this share lies in the run."""


def hours_of(tally: Tally) -> list[dict[str, Any]]:
    """Return a record for each hour. Hour -1 is before the start, the one behind the last hour after the end.

    `seconds` is the hour's duration in the run; it and the rates are None for those two.
    """
    records: list[dict[str, Any]] = []
    for number, hour in tally.hours.items():
        left_ns = tally.duration_ns - number * tally.hour_ns
        seconds = min(tally.hour_ns, left_ns) * 1e-9 if 0 <= number < tally.last else None
        record = {
            "hour": number,
            "seconds": seconds,
            "tasks": {task: hour.tasks[task] for task in tally.tasks},
            **{figure: hour.traffic[figure] for figure in TRAFFIC},
            "imap_commands": _commands(hour.commands, "IMAP "),
            "smtp_commands": _commands(hour.commands, "SMTP ") - hour.commands[CONNECT],
            "smtp_connections": hour.commands[CONNECT],
        }
        rates = {f"{rate}_per_s": _count(record, rate) / seconds if seconds else None for rate in COUNTED}
        records.append({**record, **rates, "commands": dict(sorted(hour.commands.items()))})
    return records


def _commands(commands: Mapping[str, int], service: str) -> int:
    return sum(times for name, times in commands.items() if name.startswith(service))


def _count(record: Mapping[str, Any], rate: str) -> int:
    found = record[COUNTED[rate]]
    return sum(found.values()) if rate == "tasks" else found


def mean_rates(by_hour: Sequence[Mapping[str, Any]], active_s: float) -> dict[str, float]:
    """Return the mean rates per second over the days without their nights, of what is done within the run."""
    inside = [hour for hour in by_hour if hour["seconds"]]
    return {rate: sum(_count(hour, rate) for hour in inside) / active_s for rate in COUNTED}


def peaks(by_hour: Sequence[Mapping[str, Any]], active_s: float) -> dict[str, dict[str, Any] | None]:
    """Return the busiest hour of each rate, with the rate per second and its ratio to the mean; None without any."""
    means = mean_rates(by_hour, active_s)
    longest_s = max((hour["seconds"] or 0.0 for hour in by_hour), default=0.0)
    whole = [hour for hour in by_hour if (hour["seconds"] or 0.0) >= LEAST_HOUR_SHARE * longest_s > 0]
    found: dict[str, dict[str, Any] | None] = {}
    for rate in COUNTED:
        busiest = max(whole, key=lambda hour: float(hour[f"{rate}_per_s"]), default=None)
        found[rate] = None
        if busiest is not None and means[rate]:
            per_s = busiest[f"{rate}_per_s"]
            found[rate] = {"hour": busiest["hour"], "per_s": per_s, "to_mean": per_s / means[rate]}
    return found


def unknown_rates(scenario: Scenario) -> tuple[str, ...]:
    """Return the rates that a plan does not know: it simulates one mail program only, over IMAP and SMTP."""
    if not needed_services(scenario) <= {"imap", "smtp"}:
        return ("imap_commands", "smtp_commands", "smtp_connections")
    known = all(group.programs == (OUTLOOK_LIKE,) for group in scenario.topology)
    return () if known else ("imap_commands",)


def sessions(scenario: Scenario) -> dict[str, int]:
    """Return the IMAP sessions that users keep, and the most that they can have at once."""
    kept = sum(group.users * sum(one.session == KEPT for one in group.programs) for group in scenario.topology)
    return {"imap_kept": kept, "imap_most": sum(group.users * group.connections for group in scenario.topology)}


def storage(stored_bytes: Mapping[str, int], days: float) -> dict[str, float]:
    """Return the growth of all mailboxes in bytes per day, by its causes and in all, as loadsim wrote the messages."""
    each = {f"{cause}_bytes_per_day": stored_bytes.get(cause, 0) / days for cause in STORED}
    return {"growth_bytes_per_day": sum(each.values()), **each}
