"""The traffic that a plan sends a server: hourly rates and peaks, sessions, growth of mailboxes.

A command is what a client sends and a server answers; connections, DONE and QUIT do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadsim.dryrun.tally import TRAFFIC, Tally
from loadsim.model.mail_program import KEPT, OUTLOOK_LIKE
from loadsim.model.terms import STORED
from loadsim.protocols.registry import needed_services
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server

COUNTED = {
    "tasks": "tasks",
    "messages": "messages_sent",
    "recipients": "messages_received",
    "bytes_sent": "bytes_sent",
    "bytes_received": "bytes_received",
    "imap_commands": "imap_commands",
    "smtp_commands": "smtp_commands",
    "smtp_connections": "smtp_connections",
    "lmtp_commands": "lmtp_commands",
    "lmtp_connections": "lmtp_connections",
}
"""The rates, with the hourly counts from which they are computed."""

LEAST_HOUR_SHARE = 0.5
"""An hour can be a peak only if at least this share of it lies in the run."""


def hours_of(tally: Tally) -> list[dict[str, Any]]:
    """Return a record for each hour. Hour -1 is before the start; the hour after the last is after the end.

    `seconds` is how much of the hour lies in the run; it and the rates are None for those two hours.
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
            **_submission(hour.commands, "SMTP"),
            **_submission(hour.commands, "LMTP"),
        }
        rates = {f"{rate}_per_s": _count(record, rate) / seconds if seconds else None for rate in COUNTED}
        records.append({**record, **rates, "commands": dict(sorted(hour.commands.items()))})
    return records


def _submission(commands: Mapping[str, int], service: str) -> dict[str, int]:
    connections, name = commands.get(f"{service} CONNECT", 0), service.lower()
    others = _commands(commands, f"{service} ") - connections
    return {f"{name}_commands": others, f"{name}_connections": connections}


def _commands(commands: Mapping[str, int], service: str) -> int:
    return sum(times for name, times in commands.items() if name.startswith(service))


def _count(record: Mapping[str, Any], rate: str) -> int:
    counted = record[COUNTED[rate]]
    return sum(counted.values()) if rate == "tasks" else counted


def mean_rates(by_hour: Sequence[Mapping[str, Any]], active_s: float) -> dict[str, float]:
    """Return the mean rates per second within the run, over days without nights."""
    inside = [hour for hour in by_hour if hour["seconds"]]
    return {rate: sum(_count(hour, rate) for hour in inside) / active_s for rate in COUNTED}


def peaks(by_hour: Sequence[Mapping[str, Any]], active_s: float) -> dict[str, dict[str, Any] | None]:
    """Return each rate's busiest hour, with the rate per second and its ratio to the mean; None if there is none."""
    means = mean_rates(by_hour, active_s)
    longest_s = max((hour["seconds"] or 0.0 for hour in by_hour), default=0.0)
    whole = [hour for hour in by_hour if (hour["seconds"] or 0.0) >= LEAST_HOUR_SHARE * longest_s > 0]
    peak_of: dict[str, dict[str, Any] | None] = {}
    for rate in COUNTED:
        busiest = max(whole, key=lambda hour: float(hour[f"{rate}_per_s"]), default=None)
        peak_of[rate] = None
        if busiest is not None and means[rate]:
            per_s = busiest[f"{rate}_per_s"]
            peak_of[rate] = {"hour": busiest["hour"], "per_s": per_s, "to_mean": per_s / means[rate]}
    return peak_of


def unknown_rates(scenario: Scenario) -> tuple[str, ...]:
    """Return the rates that a plan cannot know: it simulates only one mail program, over IMAP and SMTP.

    Its public folder is in the mailbox.
    """
    if not needed_services(scenario) <= {"imap", "smtp"}:
        return ("imap_commands", "smtp_commands", "smtp_connections")
    known = all(group.programs == (OUTLOOK_LIKE,) for group in scenario.topology)
    newsgroup = isinstance(scenario.server, Server) and scenario.server.nntp is not None
    return () if known and not newsgroup else ("imap_commands",)


def sessions(scenario: Scenario) -> dict[str, int]:
    """Return the number of IMAP sessions that users keep open, and the most that they can have at once."""
    kept = sum(group.users * sum(program.session == KEPT for program in group.programs) for group in scenario.topology)
    return {"imap_kept": kept, "imap_most": sum(group.users * group.connections for group in scenario.topology)}


def storage(stored_bytes: Mapping[str, int], days: float) -> dict[str, float]:
    """Return how all mailboxes grow in bytes per day, by cause and in total, for messages as loadsim wrote them."""
    by_cause = {f"{cause}_bytes_per_day": stored_bytes.get(cause, 0) / days for cause in STORED}
    return {"growth_bytes_per_day": sum(by_cause.values()), **by_cause}
