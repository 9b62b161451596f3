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
from loadsim.model.content import Contents
from loadsim.model.evidence import HEADER, Evidence
from loadsim.model.ports import Endpoint, Services
from loadsim.model.profile import Calculated
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload, plan_digest

SENDING = {"new": "SEND", "reply": "REPLY", "reply_all": "REPLY ALL", "forward": "FORWARD"}
"""The ways to send, as the published calculated load calls them, and the tasks that do it."""

TRAFFIC = ("messages_sent", "messages_received", "bytes_sent", "bytes_received")

HOUR_S = 3600.0

Counts = defaultdict[tuple[int, str], int]


def _counts() -> Counts:
    return defaultdict(int)


@dataclass(slots=True)
class Tally:
    """Counts what an engine records (`engine.RunLog`), by user and by hour of the profiles' day.

    Hours count from 0; what comes before the common start is in hour -1, what comes after the end in hour `hours`.
    A whole day of many users passes through these few lines, so each counts under one key and no more.
    """

    hour_ns: int
    hours: int
    duration_ns: int
    start_ns: int | None = None
    tasks: Counts = field(default_factory=_counts)  # by user
    traffic: Counts = field(default_factory=_counts)  # by user
    hourly_tasks: Counts = field(default_factory=_counts)
    hourly_traffic: Counts = field(default_factory=_counts)
    hourly_commands: Counts = field(default_factory=_counts)
    failures: Counter[str] = field(default_factory=Counter)
    _data_bytes: int = 0
    _last: int = -1
    _begin_ns: int = 0
    _end_ns: int = 0

    def task(self, *, task: str, user: int, scheduled_ns: int, outcome: str, error: str, **_: Any) -> None:
        """Count a task by its user, and by the hour in which it was due."""
        if outcome != "ok":
            self.failures[f"{task}: {outcome} {error}".strip()] += 1
            return
        self.tasks[user, task] += 1
        hour = self._last if self._begin_ns <= scheduled_ns < self._end_ns else self._hour(scheduled_ns)
        self.hourly_tasks[hour, task] += 1

    def mail(self, *, event: str, user: int, sender: int, at_ns: int, **_: Any) -> None:
        """Count deliveries."""
        if event != "accepted":
            return
        hour = self._last if self._begin_ns <= at_ns < self._end_ns else self._hour(at_ns)
        traffic, hourly = self.traffic, self.hourly_traffic
        traffic[sender, "reached"] += 1
        traffic[user, "messages_received"] += 1
        traffic[user, "bytes_received"] += self._data_bytes
        hourly[hour, "messages_received"] += 1
        hourly[hour, "bytes_received"] += self._data_bytes

    def command(self, *, command: str, user: int, started_ns: int, sent_bytes: int, **_: Any) -> None:
        """Count a protocol command; DATA carries the message whose acceptance is told next."""
        hour = self._last if self._begin_ns <= started_ns < self._end_ns else self._hour(started_ns)
        self.hourly_commands[hour, command] += 1
        if command == "SMTP DATA":
            self._data_bytes = sent_bytes
            for counts, key in ((self.traffic, user), (self.hourly_traffic, hour)):
                counts[key, "messages_sent"] += 1
                counts[key, "bytes_sent"] += sent_bytes

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Learn when the common start is."""
        self.start_ns = facts.get("start_ns", self.start_ns)

    def health(self, sample: Mapping[str, Any]) -> None:
        """Nothing is late in virtual time."""

    def flush(self) -> None:
        """Nothing is written."""

    def _hour(self, at_ns: int) -> int:
        """The hour of an instant; `_last` is that hour until `_end_ns`, so that most need not ask."""
        if self.start_ns is None or at_ns < self.start_ns:
            return -1
        since_ns = at_ns - self.start_ns
        if since_ns >= self.duration_ns:
            return self.hours
        self._last = min(since_ns // self.hour_ns, self.hours - 1)
        self._begin_ns = self.start_ns + self._last * self.hour_ns
        self._end_ns = self.start_ns + min((self._last + 1) * self.hour_ns, self.duration_ns)
        return self._last


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
    """Run the scenario without a server, in virtual time."""
    workload = Workload(scenario)
    contents = PlannedContents(scenario.run.seed)
    hours = math.ceil(scenario.duration_s * scenario.compression / HOUR_S - 1e-9)
    tally = Tally(round(HOUR_S * 1e9 / scenario.compression), hours, workload.duration_us * 1000)

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


def _total(counts: Mapping[tuple[int, str], int]) -> Counter[str]:
    """Counts by name, whatever the user or the hour."""
    total: Counter[str] = Counter()
    for (_, name), times in counts.items():
        total[name] += times
    return total


def _shares(scenario: Scenario, workload: Workload, tally: Tally) -> dict[str, Share]:
    """The load of each profile's users, and under "" that of all."""
    users: Counter[str] = Counter()
    calculated: dict[str, Calculated | None] = {"": None}
    for group in scenario.topology:
        users.update({group.profile.name: group.users, "": group.users})
        calculated[group.profile.name] = group.profile.calculated
    names = {user: workload.profile(user).name for user in range(1, scenario.users + 1)}
    done: dict[str, Counter[str]] = {name: Counter() for name in calculated}
    for counts in (tally.tasks, tally.traffic):
        for (user, figure), times in counts.items():
            done[names[user]][figure] += times
            done[""][figure] += times
    return {name: _share(users[name], scenario.run.days, done[name], calculated[name]) for name in done}


def _share(users: int, days: int, done: Counter[str], calculated: Calculated | None) -> Share:
    each = 1 / (users * days)
    sent = sum(done[task] for task in SENDING.values())
    per_user = {
        "sent": sent * each,
        "received": done["messages_received"] * each,
        **{way: done[task] * each for way, task in SENDING.items()},
        "read": done["READ"] * each,
        "browsed": done["BROWSE"] * each,
        "recipients_per_message": done["reached"] / sent if sent else 0.0,
    }
    return Share(users, per_user, calculated)


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as `loadsim plan --json` prints it."""
    tally, scenario = plan.tally, plan.scenario
    traffic = _total(tally.traffic)
    by_hour = _by_hour(tally)
    inside = [hour for hour in by_hour if hour["seconds"]]
    return {
        "users": scenario.users,
        "day_s": scenario.run.day_length_s,
        "days": scenario.run.days,
        "compression": scenario.compression,
        "totals": {figure: traffic[figure] for figure in TRAFFIC},
        "per_user": plan.whole.per_user,
        "tasks": _in_order(_total(tally.tasks)),
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
        "commands": dict(_total(tally.hourly_commands)),
        "rates_per_s": {
            "log_ons": scenario.users / scenario.run.ramp_up_s if scenario.run.ramp_up_s else None,
            "imap_commands": sum(hour["imap_commands"] for hour in inside) / scenario.duration_s,
            "messages": traffic["messages_sent"] / scenario.duration_s,
        },
        "failures": dict(tally.failures),
    }


def _in_order(tasks: Mapping[str, int]) -> dict[str, int]:
    """Every task, those that were never done too, in the order of the tasks' own table."""
    return {**dict.fromkeys(TASKS, 0), **tasks}


def _by_user(scenario: Scenario, tally: Tally) -> dict[str, dict[str, Any]]:
    tasks: dict[int, dict[str, int]] = {user: {} for user in range(1, scenario.users + 1)}
    for (user, task), times in tally.tasks.items():
        tasks[user][task] = times
    return {
        str(user): {
            **{figure: tally.traffic.get((user, figure), 0) for figure in TRAFFIC},
            "recipients": tally.traffic.get((user, "reached"), 0),
            "tasks": done,
        }
        for user, done in tasks.items()
    }


def _by_hour(tally: Tally) -> list[dict[str, Any]]:
    """A record for each hour; -1 is before the start, the one after the last hour is after the end.

    `seconds` is how long the hour takes in the run, None for those two.
    """
    tasks, commands = _by_first(tally.hourly_tasks), _by_first(tally.hourly_commands)
    records: list[dict[str, Any]] = []
    for hour in range(-1, tally.hours + 1):
        left_ns = tally.duration_ns - hour * tally.hour_ns
        seconds = min(tally.hour_ns, left_ns) * 1e-9 if 0 <= hour < tally.hours else None
        imap = sum(times for name, times in commands.get(hour, {}).items() if name.startswith("IMAP "))
        records.append(
            {
                "hour": hour,
                "seconds": seconds,
                "tasks": _in_order(tasks.get(hour, {})),
                **{figure: tally.hourly_traffic.get((hour, figure), 0) for figure in TRAFFIC},
                "imap_commands": imap,
                "imap_commands_per_s": imap / seconds if seconds else None,
                "commands": commands.get(hour, {}),
            }
        )
    return records


def _by_first(counts: Mapping[tuple[int, str], int]) -> dict[int, dict[str, int]]:
    """Counts by (hour, name) as counts by name for each hour."""
    found: dict[int, dict[str, int]] = {}
    for (hour, name), times in sorted(counts.items()):
        found.setdefault(hour, {})[name] = times
    return found
