"""`loadsim plan`: a run in virtual time on the in-memory mail system, and its totals."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any

from loadsim.dryrun.plan_engine import plan_users
from loadsim.dryrun.planners import plan_in_processes
from loadsim.dryrun.rounds import Progress
from loadsim.dryrun.tally import TRAFFIC, Tally
from loadsim.dryrun.traffic import hours_of, mean_rates, peaks, sessions, storage, unknown_rates
from loadsim.errors import ConfigError
from loadsim.model import terms
from loadsim.model.terms import CANONICAL, STRESS
from loadsim.processes.control_groups import usable_cores
from loadsim.scenario.profile import Calculated
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload, combine_digests
from loadsim.timinglog.planned_load import PlannedLoad

USERS_OF_A_PROCESS = 500
"""Fewer users are not worth a process, which takes a second to start."""

SENDING = {"new": "SEND", "reply": "REPLY", "reply_all": "REPLY ALL", "forward": "FORWARD"}
"""The ways to send, by their names in the published calculated load, with their tasks."""


@dataclass(frozen=True, slots=True)
class UserLoad:
    """The load of some users, per user and day; `calculated` is the load published for their profile."""

    users: int
    per_user: dict[str, float]
    calculated: Calculated | None = None


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The totals of a scenario's run in which commands take no time, and mail arrives after one or two rounds.

    `stored_bytes` is the change in all mailboxes, by cause (`terms.STORED`).
    """

    scenario: Scenario
    tally: Tally
    digest: str
    whole: UserLoad
    by_profile: dict[str, UserLoad]
    stored_bytes: Counter[str]

    @property
    def received_share(self) -> float | None:
        """The mail that users receive, divided by the mail in the published load; None without a published load."""
        known = [
            (load.users * load.per_user["received"], load.users * load.calculated.received)
            for load in self.by_profile.values()
            if load.calculated is not None
        ]
        published = sum(mail for _, mail in known)
        return sum(mail for mail, _ in known) / published if published else None

    def load(self) -> PlannedLoad:
        """Return the tasks due in each part of the run, and the share of the published mail that is received."""
        return replace(self.tally.load(), received_share=self.received_share)


def make_plan(scenario: Scenario, progress: Progress | None = None, *, apart: bool = False) -> DayPlan:
    """Run the scenario in virtual time, without a server. `progress` receives the share done so far.

    Many users are planned by a process on each core; if `apart`, even few are planned by another process. Raises
    `ConfigError` for a closed loop, which has no plan, and `RunInvalid` if a process is killed.
    """
    if scenario.run.mode == STRESS:
        raise ConfigError(
            f"{scenario.name}: run.mode: expected {CANONICAL} (the server decides how much a closed loop does),"
            f" found {STRESS}"
        )
    workload = Workload(scenario)
    processes = min(usable_cores(), scenario.users // USERS_OF_A_PROCESS)
    if processes > 1 or apart:
        planned, *others = plan_in_processes(workload, max(1, processes), progress)
    else:
        planned, *others = [plan_users(workload, range(1, scenario.users + scenario.senders + 1), progress=progress)]
    for other in others:
        planned.add(other)
    loads = _user_loads(scenario, workload, planned.tally)
    digest = combine_digests([planned.digests[user] for user in sorted(planned.digests)])
    return DayPlan(scenario, planned.tally, digest, loads.pop(""), loads, planned.stored_bytes)


def _user_loads(scenario: Scenario, workload: Workload, tally: Tally) -> dict[str, UserLoad]:
    """Return the load of each profile's users, and of all users under ""."""
    users: Counter[str] = Counter()
    calculated: dict[str, Calculated | None] = {"": None}
    for group in scenario.topology:
        users.update({group.profile.name: group.users, "": group.users})
        calculated[group.profile.name] = group.profile.calculated
    names = ["", *(workload.profile(user).name for user in range(1, scenario.users + 1))]
    done: dict[str, Counter[str]] = {name: Counter() for name in calculated}
    for figure, by_number in (*tally.tasks.items(), *tally.traffic.items()):
        by_user = by_number[: len(names)]  # without outside senders
        done[""][figure] = sum(by_user)
        for name, times in zip(names[1:], by_user[1:], strict=True):
            done[name][figure] += times
    return {name: _user_load(users[name], scenario.run.days, done[name], calculated[name]) for name in done}


def _user_load(users: int, days: float, done: Counter[str], calculated: Calculated | None) -> UserLoad:
    share = 1 / (users * days)  # per user and day
    sent = sum(done[task] for task in terms.SENDING)
    receipts = done[terms.RETURN_RECEIPT]
    per_user = {
        "sent": sent * share,
        "received": done["messages_received"] * share,
        **{way: done[task] * share for way, task in SENDING.items()},
        **({"read_receipts": receipts * share} if receipts else {}),
        "read": done["READ"] * share,
        "browsed": done["BROWSE"] * share,
        "recipients_per_message": done["recipients"] / sent if sent else 0.0,
    }
    return UserLoad(users, per_user, calculated)


def to_json(plan: DayPlan) -> dict[str, Any]:
    """Return the plan as `loadsim plan --json` prints it."""
    tally, scenario = plan.tally, plan.scenario
    commands: Counter[str] = sum((hour.commands for hour in tally.hours.values()), Counter())
    totals = {figure: sum(tally.traffic[figure]) for figure in TRAFFIC}
    by_hour, active_s = hours_of(tally), scenario.run.active_s
    rates: dict[str, float | None] = {**mean_rates(by_hour, active_s)}
    busiest = peaks(by_hour, active_s)
    for rate in unknown_rates(scenario):
        rates[rate] = busiest[rate] = None
        by_hour = [{**hour, f"{rate}_per_s": None} for hour in by_hour]
    return {
        "users": scenario.users,
        **({"senders": scenario.senders} if scenario.outside else {}),
        "day_s": scenario.run.day_length_s,
        "night_s": scenario.run.night_length_s,
        "days": scenario.run.days,
        "compression": scenario.compression,
        "totals": totals,
        "per_user": plan.whole.per_user,
        "received_share": plan.received_share,
        "tasks": {task: sum(by_user) for task, by_user in tally.tasks.items()},
        "plan_digest": plan.digest,
        "by_profile": {name: asdict(load) for name, load in plan.by_profile.items()},
        "by_hour": by_hour,
        "commands": dict(sorted(commands.items())),
        "rates_per_s": {
            "log_ons": scenario.users / scenario.run.ramp_up_s if scenario.run.ramp_up_s else None,
            **rates,
        },
        "peaks": busiest,
        "sessions": sessions(scenario),
        "storage": storage(plan.stored_bytes, scenario.run.days),
        "first_sync": {what: tally.copied[what] for what in ("headers", "bodies", "bytes")},
        "gathered_syncs": tally.gathered,
        "failures": dict(sorted(tally.failures.items())),
    }
