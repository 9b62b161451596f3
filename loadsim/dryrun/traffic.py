"""The traffic of a plan for the server: rates by hour and their peaks, sessions, growth of mailboxes, and its limits.

A command is what a client sends and a server answers: connections, DONE and QUIT are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from loadsim.dryrun.tally import GATHER_NS, TRAFFIC, Tally
from loadsim.model.documents.scenario_server import Server
from loadsim.model.mail_program import KEPT, OUTLOOK_LIKE, MailProgram, program_names
from loadsim.model.population import further_connections
from loadsim.model.scenario import Scenario
from loadsim.model.terms import STORED

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

ADDED_BYTES = 350
"""The headers that Postfix and Dovecot add to each copy of a message: the mean of 1,400 copies, with short host names.
"""


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


def knows_imap(scenario: Scenario) -> bool:
    """Return whether all users have the only mail program that a plan simulates."""
    return all(group.programs == (OUTLOOK_LIKE,) for group in scenario.topology)


def sessions(scenario: Scenario) -> dict[str, int]:
    """Return the IMAP sessions that users keep, and the most that they can have at once."""
    kept = sum(group.users * sum(one.session == KEPT for one in group.programs) for group in scenario.topology)
    return {"imap_kept": kept, "imap_most": scenario.users + further_connections(scenario)}


def storage(stored_bytes: Mapping[str, int], days: float) -> dict[str, float]:
    """Return the growth of all mailboxes in bytes per day, by its causes and in all, as loadsim wrote the messages."""
    each = {f"{cause}_bytes_per_day": stored_bytes.get(cause, 0) / days for cause in STORED}
    return {"growth_bytes_per_day": sum(each.values()), **each}


def left_out(scenario: Scenario, tally: Tally) -> list[dict[str, str]]:
    """Return what a plan cannot know of a server (`what`), each with its effect on the figures (`effect`)."""
    # 1. The figures that the effects are shares of.
    commands: Counter[str] = sum((hour.commands for hour in tally.hours.values()), Counter())
    imap, smtp = _commands(commands, "IMAP "), _commands(commands, "SMTP ") - commands[CONNECT]
    received = sum(tally.traffic["bytes_received"])
    added = ADDED_BYTES * sum(tally.traffic["messages_received"])
    groups, server = scenario.topology, scenario.server
    # 2. What any scenario leaves open.
    found = [
        (
            f"a server that gathers new mail for {GATHER_NS / 1e6:g} ms before it announces it, as Dovecot does",
            f"{_share(2 * tally.gathered, imap)} fewer IMAP commands (UID FETCH, IDLE)",
        ),
        (
            "a server without MOVE",
            f"{_share(2 * commands['IMAP UID MOVE'], imap)} more IMAP commands (UID COPY, STORE, EXPUNGE instead)",
        ),
        ("failed tasks and lost sessions", "each try costs its commands again, a lost session those of a log-on"),
        (
            "what the server adds to messages, its indexes and file formats",
            f"on Postfix and Dovecot, headers of about {ADDED_BYTES} bytes, {_share(added, received)} of received mail",
        ),
    ]
    # 3. What this scenario leaves open.
    smtp_endpoint = server.smtp if isinstance(server, Server) else None
    if commands["SMTP AUTH"] and not (smtp_endpoint and smtp_endpoint.methods):
        found.append(("a server that offers no AUTH", f"{_share(commands['SMTP AUTH'], smtp)} fewer SMTP commands"))
    if commands[CONNECT] < commands["SMTP DATA"]:
        found.append(
            (
                "a server that closes idle SMTP connections",
                f"up to {_share(2 * (commands['SMTP DATA'] - commands[CONNECT]), smtp)} more SMTP commands",
            )
        )
    for group in groups:
        if group.programs != (OUTLOOK_LIKE,):
            found.append(
                (
                    f"the IMAP commands of {program_names(group.programs)}",
                    f"{group.users:,} users have other commands than the plan, which simulates {OUTLOOK_LIKE.name}"
                    f" only; so IMAP commands have no rates{_polls(group.programs)}",
                )
            )
    return [{"what": what, "effect": effect} for what, effect in found]


def _polls(programs: Sequence[MailProgram]) -> str:
    """Return how often users of these programs look for new mail, if they do."""
    each = [f"{program.name} asks for new mail each {program.poll_s:g} s" for program in programs if not program.idle]
    return "; " + ", ".join(each) if each else ""


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.1f} %"
