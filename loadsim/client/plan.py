"""`loadsim plan`: the whole run in virtual time through the in-memory mail system, and what it adds up to."""

from __future__ import annotations

import gc
import io
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from loadsim.client.clock import LoopClock, run_virtual
from loadsim.client.engine import Engine
from loadsim.client.events import Events
from loadsim.client.modules import open_module
from loadsim.client.tasks import TASKS
from loadsim.errors import ConfigError
from loadsim.model.content import Contents
from loadsim.model.evidence import HEADER, Evidence
from loadsim.model.ports import Endpoint, Services
from loadsim.model.profile import Calculated
from loadsim.model.scenario import CANONICAL, STRESS, Scenario
from loadsim.model.workload import Workload, plan_digest

SENDING = {"new": "SEND", "reply": "REPLY", "reply_all": "REPLY ALL", "forward": "FORWARD"}
"""The ways to send, as the published calculated load calls them, and the tasks that do it."""

TRAFFIC = ("messages_sent", "messages_received", "bytes_sent", "bytes_received")

HOUR_S = 3600.0


@dataclass(slots=True)
class Hour:
    """What is counted of one hour, by name."""

    tasks: Counter[str] = field(default_factory=Counter)
    traffic: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)


class Tally:
    """Counts what an engine records (`engine.RunLog`), by user and by hour of the profiles' day.

    Hours count from 0; what comes before the common start is in hour -1, what comes after the end in hour `last`.
    A whole day of many users passes through these few lines.
    """

    def __init__(self, users: int, hour_ns: int, last: int, duration_ns: int) -> None:
        self.hour_ns = hour_ns
        self.last = last
        self.duration_ns = duration_ns
        self.start_ns: int | None = None
        self.hours = {hour: Hour() for hour in range(-1, last + 1)}
        # How often, or how much, by name and then by user; the first place of each list is nobody's.
        self.tasks: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (users + 1))
        self.traffic: dict[str, list[int]] = {figure: [0] * (users + 1) for figure in (*TRAFFIC, "recipients")}
        self.failures: Counter[str] = Counter()
        self._data_bytes = 0
        self._hour = self.hours[-1]  # the one that was asked for last
        self._begin_ns = self._end_ns = 0

    def task(
        self,
        *,
        task: str,
        user: int,
        profile: str,
        protocol: str,
        scheduled_ns: int,
        started_ns: int | None,
        ended_ns: int | None,
        late_busy_s: float,
        late_down_s: float,
        late_generator_s: float,
        outcome: str,
        error: str,
        moved_bytes: int,
    ) -> None:
        """Count a task by its user, and by the hour in which it was due."""
        if outcome != "ok":
            self.failures[f"{task}: {outcome} {error}".strip()] += 1
            return
        self.tasks[task][user] += 1
        hour = self._hour if self._begin_ns <= scheduled_ns < self._end_ns else self._hour_of(scheduled_ns)
        hour.tasks[task] += 1

    def mail(self, *, event: str, message: str, user: int, sender: int, at_ns: int, folder: str) -> None:
        """Count deliveries."""
        if event != "accepted":
            return
        self.traffic["recipients"][sender] += 1
        self.traffic["messages_received"][user] += 1
        self.traffic["bytes_received"][user] += self._data_bytes
        hour = self._hour if self._begin_ns <= at_ns < self._end_ns else self._hour_of(at_ns)
        hour.traffic["messages_received"] += 1
        hour.traffic["bytes_received"] += self._data_bytes

    def command(
        self,
        command: str,
        user: int,
        started_ns: int,
        ended_ns: int,
        outcome: str,
        sent_bytes: int,
        received_bytes: int,
    ) -> None:
        """Count a protocol command; DATA carries the message whose acceptance is told next."""
        hour = self._hour if self._begin_ns <= started_ns < self._end_ns else self._hour_of(started_ns)
        hour.commands[command] += 1
        if command == "SMTP DATA":
            self._data_bytes = sent_bytes
            self.traffic["messages_sent"][user] += 1
            self.traffic["bytes_sent"][user] += sent_bytes
            hour.traffic["messages_sent"] += 1
            hour.traffic["bytes_sent"] += sent_bytes

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Learn when the common start is."""
        self.start_ns = facts.get("start_ns", self.start_ns)

    def health(self, sample: Mapping[str, Any]) -> None:
        """Nothing is late in virtual time."""

    def gather(self) -> None:
        """Nothing is written."""

    def write(self) -> None:
        """Nothing is written."""

    def _hour_of(self, at_ns: int) -> Hour:
        """The hour of an instant; `_hour` is that hour until `_end_ns`, so that most need not ask."""
        if self.start_ns is None or at_ns < self.start_ns:
            return self.hours[-1]
        since_ns = at_ns - self.start_ns
        if since_ns >= self.duration_ns:
            return self.hours[self.last]
        number = min(since_ns // self.hour_ns, self.last - 1)
        self._hour = self.hours[number]
        self._begin_ns = self.start_ns + number * self.hour_ns
        self._end_ns = self.start_ns + min((number + 1) * self.hour_ns, self.duration_ns)
        return self._hour


class PlannedContents(Contents):
    """Contents without the schedules' text, which costs more to write than the rest of the day, and nobody reads."""

    def schedule(self, *, id: str, user: int, size_bytes: int, **_: Any) -> bytes:  # noqa: A002
        """As many bytes as the schedule file has, with its evidence."""
        evidence = Evidence("plan", user, id, "schedule", 0, "").header()
        return f"{HEADER}: {evidence}\r\n\r\n".encode().ljust(size_bytes, b".")


@dataclass(frozen=True, slots=True)
class Share:
    """What some of the users do: per user and day, beside what was published for their profile."""

    users: int
    per_user: dict[str, float]
    calculated: Calculated | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scenario's run amounts to, when the server takes no time at all."""

    scenario: Scenario
    tally: Tally
    digest: str
    whole: Share
    by_profile: dict[str, Share]


def make_plan(scenario: Scenario) -> Plan:
    """Run the scenario without a server, in virtual time. Raises `ConfigError` for a closed loop, which has no plan."""
    if scenario.run.mode == STRESS:
        raise ConfigError(
            f"{scenario.name}: run.mode: expected {CANONICAL} (how much a closed loop does, the server decides),"
            f" found {STRESS}"
        )
    workload = Workload(scenario)
    contents = PlannedContents(scenario.run.seed)
    hours = math.ceil(scenario.duration_s * scenario.compression / HOUR_S - 1e-9)
    tally = Tally(scenario.users, round(HOUR_S * 1e9 / scenario.compression), hours, workload.duration_us * 1000)

    async def live(clock: LoopClock) -> None:
        nowhere = Services(Endpoint("localhost", 0), Endpoint("localhost", 0))
        module = open_module(
            "fake",
            nowhere,
            workload=workload,
            contents=contents,
            service_s=0.0,
            empty=scenario.initialise == "never",
        )
        engine = Engine(
            workload=workload,
            users=range(1, scenario.users + 1),
            modules={group.protocol: module for group in scenario.topology},
            contents=contents,
            recorder=tally,
            events=Events(io.StringIO()),
            clock=clock,
            run_id="plan",
            wall_clock_us=0,
            self_observing=False,  # there is nothing to write, and nothing can be late
        )
        await engine.run()

    gc.disable()  # nothing of the users is garbage before the end, and to look for it takes a tenth of the time
    try:
        run_virtual(live)
    finally:
        gc.enable()
    shares = _shares(scenario, workload, tally)
    return Plan(scenario, tally, plan_digest(workload), shares.pop(""), shares)


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
        "days": scenario.run.days,
        "compression": scenario.compression,
        "totals": totals,
        "per_user": plan.whole.per_user,
        "tasks": _in_order({task: sum(by_user) for task, by_user in tally.tasks.items()}),
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
        "commands": dict(_commands(tally)),
        "rates_per_s": {
            "log_ons": scenario.users / scenario.run.ramp_up_s if scenario.run.ramp_up_s else None,
            "imap_commands": sum(hour["imap_commands"] for hour in inside) / scenario.duration_s,
            "messages": totals["messages_sent"] / scenario.duration_s,
        },
        "failures": dict(tally.failures),
    }


def _in_order(tasks: Mapping[str, int]) -> dict[str, int]:
    """Every task, those that were never done too, in the order of the tasks' own table."""
    return {**dict.fromkeys(TASKS, 0), **tasks}


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
                "tasks": _in_order(hour.tasks),
                **{figure: hour.traffic[figure] for figure in TRAFFIC},
                "imap_commands": imap,
                "imap_commands_per_s": imap / seconds if seconds else None,
                "commands": dict(sorted(hour.commands.items())),
            }
        )
    return records
