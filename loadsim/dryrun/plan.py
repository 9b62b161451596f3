"""`loadsim plan`: the whole run in virtual time through the in-memory mail system, and what it adds up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadsim.dryrun.plan_engine import Planned, empty_tally, plan_users
from loadsim.dryrun.plan_process import other_engines
from loadsim.dryrun.tally import TRAFFIC, Tally
from loadsim.errors import ConfigError
from loadsim.model.profile import Calculated
from loadsim.model.scenario import Scenario
from loadsim.model.terms import CANONICAL, STRESS
from loadsim.model.workload import Workload, combine_digests
from loadsim.users.tasks import TASKS

SENDING = {"new": "SEND", "reply": "REPLY", "reply_all": "REPLY ALL", "forward": "FORWARD"}
"""The ways to send, as the published calculated load calls them, and the tasks that do it."""

USERS_OF_AN_ENGINE = 500
"""Fewer are not worth a process of their own: it takes a second to start, and all engines hear of all mail."""

MOST_ENGINES = 16
"""Every two have a pipe: more would be more files than a process may open, and each hears of all mail anyhow."""


@dataclass(frozen=True, slots=True)
class Share:
    """What some of the users do: per user and day, beside what was published for their profile."""

    users: int
    per_user: dict[str, float]
    calculated: Calculated | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scenario's run amounts to, when commands take no time, and mail a round or two."""

    scenario: Scenario
    tally: Tally
    digest: str
    whole: Share
    by_profile: dict[str, Share]


def engines_for(users: int, cores: int) -> int:
    """How many engines plan for so many users, unless the user wants it otherwise."""
    return max(1, min(cores, users // USERS_OF_AN_ENGINE, MOST_ENGINES))


def make_plan(scenario: Scenario, engines: int = 1) -> Plan:
    """Run the scenario without a server, in virtual time, in so many processes: the plan is the same with any number.

    Raises `ConfigError` for a closed loop, which has no plan, and `RunInvalid` when one of the processes is killed.
    """
    if scenario.run.mode == STRESS:
        raise ConfigError(
            f"{scenario.name}: run.mode: expected {CANONICAL} (how much a closed loop does, the server decides),"
            f" found {STRESS}"
        )
    workload = Workload(scenario)  # what is wrong with it is found before there are processes
    with other_engines(scenario, engines) as others:
        planned = plan_users(scenario, 0, engines, others if engines > 1 else None)
        return join(workload, [planned, *others.planned()])


def join(workload: Workload, planned: Sequence[Planned]) -> Plan:
    """The plan, from what its engines have found."""
    scenario = workload.scenario
    tally = empty_tally(workload)
    for part in planned:
        tally.add(part.tally)
    digests = {user: digest for part in planned for user, digest in part.digests.items()}
    digest = combine_digests([digests[user] for user in sorted(digests)])
    shares = _shares(scenario, workload, tally)
    return Plan(scenario, tally, digest, shares.pop(""), shares)


def _commands(tally: Tally) -> Counter[str]:
    """Protocol commands by name, whatever the hour."""
    return sum((hour.commands for hour in tally.hours.values()), Counter())


def _shares(scenario: Scenario, workload: Workload, tally: Tally) -> dict[str, Share]:
    """The load of each profile's users, and under "" that of all."""
    users: Counter[str] = Counter()
    calculated: dict[str, Calculated | None] = {"": None}
    for group in scenario.topology:
        users.update({group.profile.name: group.users, "": group.users})
        calculated[group.profile.name] = group.profile.calculated
    names = ["", *(workload.profile(user).name for user in range(1, scenario.users + 1))]
    done: dict[str, Counter[str]] = {name: Counter() for name in calculated}
    for figure, by_user in (*tally.tasks.items(), *tally.traffic.items()):
        done[""][figure] = sum(by_user)
        for name, times in zip(names[1:], by_user[1:], strict=True):
            done[name][figure] += times
    return {name: _share(users[name], scenario.run.days, done[name], calculated[name]) for name in done}


def _share(users: int, days: float, done: Counter[str], calculated: Calculated | None) -> Share:
    each = 1 / (users * days)
    sent = sum(done[task] for task in SENDING.values())
    per_user = {
        "sent": sent * each,
        "received": done["messages_received"] * each,
        **{way: done[task] * each for way, task in SENDING.items()},
        "read": done["READ"] * each,
        "browsed": done["BROWSE"] * each,
        "recipients_per_message": done["recipients"] / sent if sent else 0.0,
    }
    return Share(users, per_user, calculated)


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as `loadsim plan --json` prints it."""
    tally, scenario = plan.tally, plan.scenario
    totals = {figure: sum(tally.traffic[figure]) for figure in TRAFFIC}
    by_hour = _by_hour(tally)
    inside = [hour for hour in by_hour if hour["seconds"]]
    return {
        "users": scenario.users,
        "day_s": scenario.run.day_length_s,
        "night_s": scenario.run.night_length_s,
        "days": scenario.run.days,
        "compression": scenario.compression,
        "totals": totals,
        "per_user": plan.whole.per_user,
        "tasks": {task: sum(by_user) for task, by_user in tally.tasks.items()},
        "plan_digest": plan.digest,
        "by_profile": {
            name: {
                "users": share.users,
                "per_user": share.per_user,
                "calculated": None if share.calculated is None else asdict(share.calculated),
            }
            for name, share in plan.by_profile.items()
        },
        "by_user": _by_user(scenario, tally),
        "by_hour": by_hour,
        "commands": dict(sorted(_commands(tally).items())),
        "rates_per_s": {
            "log_ons": scenario.users / scenario.run.ramp_up_s if scenario.run.ramp_up_s else None,
            "imap_commands": sum(hour["imap_commands"] for hour in inside) / scenario.run.active_s,
            "messages": totals["messages_sent"] / scenario.run.active_s,
        },
        "failures": dict(sorted(tally.failures.items())),
    }


def _by_user(scenario: Scenario, tally: Tally) -> dict[str, dict[str, Any]]:
    return {
        str(user): {
            **{figure: by_user[user] for figure, by_user in tally.traffic.items()},
            "tasks": {task: by_user[user] for task, by_user in tally.tasks.items() if by_user[user]},
        }
        for user in range(1, scenario.users + 1)
    }


def _by_hour(tally: Tally) -> list[dict[str, Any]]:
    """A record for each hour; -1 is before the start, the one after the last hour is after the end.

    `seconds` is how long the hour takes in the run, None for those two.
    """
    records: list[dict[str, Any]] = []
    for number, hour in tally.hours.items():
        left_ns = tally.duration_ns - number * tally.hour_ns
        seconds = min(tally.hour_ns, left_ns) * 1e-9 if 0 <= number < tally.last else None
        imap = sum(times for name, times in hour.commands.items() if name.startswith("IMAP "))
        records.append(
            {
                "hour": number,
                "seconds": seconds,
                "tasks": {task: hour.tasks[task] for task in TASKS},
                **{figure: hour.traffic[figure] for figure in TRAFFIC},
                "imap_commands": imap,
                "imap_commands_per_s": imap / seconds if seconds else None,
                "commands": dict(sorted(hour.commands.items())),
            }
        )
    return records
