"""`loadsim plan`: the whole run in virtual time through the in-memory mail system, and what it adds up to."""

from __future__ import annotations

import gc
import io
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from loadsim.client.clock import LoopClock, run_virtual
from loadsim.client.engine import Engine
from loadsim.client.events import Events
from loadsim.client.modules import open_module
from loadsim.model.content import Contents
from loadsim.model.evidence import HEADER, Evidence
from loadsim.model.ports import Endpoint, Services
from loadsim.model.profile import Calculated
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload, plan_digest

SENDING = {"new": "SEND", "reply": "REPLY", "reply_all": "REPLY ALL", "forward": "FORWARD"}
"""The ways to send, as the published calculated load calls them, and the tasks that do it."""

HOUR_S = 3600.0


@dataclass(slots=True)
class Tally:
    """Counts what an engine records (`engine.RunLog`), by hour of the profiles' day; log-ons before the start: -1.

    A whole day of many users passes through these few lines, so each counts under one key and no more.
    """

    hour_ns: int
    start_ns: int | None = None
    tasks: defaultdict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))  # by user
    hourly_tasks: defaultdict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    hourly_commands: defaultdict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    received: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # by recipient
    failures: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    received_bytes: int = 0
    _data_bytes: int = 0

    def task(self, *, task: str, user: int, scheduled_ns: int, outcome: str, error: str, **_: Any) -> None:
        """Count a task by its user, and by the hour in which it was due."""
        if outcome != "ok":
            self.failures[f"{task}: {outcome} {error}".strip()] += 1
            return
        self.tasks[user, task] += 1
        self.hourly_tasks[self._hour(scheduled_ns), task] += 1

    def mail(self, *, event: str, user: int, **_: Any) -> None:
        """Count deliveries."""
        if event == "accepted":
            self.received[user] += 1
            self.received_bytes += self._data_bytes

    def command(self, *, command: str, started_ns: int, sent_bytes: int, **_: Any) -> None:
        """Count a protocol command; DATA carries the message whose acceptance is told next."""
        self.hourly_commands[self._hour(started_ns), command] += 1
        if command == "SMTP DATA":
            self._data_bytes = sent_bytes
            self.sent_bytes += sent_bytes

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Learn when the common start is."""
        self.start_ns = facts.get("start_ns", self.start_ns)

    def flush(self) -> None:
        """Nothing is written."""

    def _hour(self, at_ns: int) -> int:
        return -1 if self.start_ns is None else (at_ns - self.start_ns) // self.hour_ns


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

    @property
    def tasks(self) -> Counter[str]:
        """How often each task was done."""
        return _total(self.tally.tasks)

    @property
    def messages_sent(self) -> int:
        """Messages that were submitted."""
        tasks = self.tasks
        return sum(tasks[task] for task in SENDING.values())

    @property
    def messages_received(self) -> int:
        """Messages that were delivered, one for each recipient."""
        return sum(self.tally.received.values())

    @property
    def recipients_per_message(self) -> float:
        """Mailboxes that a message reached, on average."""
        return self.messages_received / self.messages_sent if self.messages_sent else 0.0


def make_plan(scenario: Scenario) -> Plan:
    """Run the scenario without a server, in virtual time."""
    workload = Workload(scenario)
    contents = PlannedContents(scenario.run.seed)
    tally = Tally(round(HOUR_S * 1e9 / scenario.compression))

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
            beat_s=HOUR_S,  # there is nothing to write and nobody to show it to
        )
        gc.freeze()  # nothing of the users is garbage before the end
        await engine.run()

    try:
        run_virtual(live)
    finally:
        gc.unfreeze()
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
    received: Counter[str] = Counter()
    tasks: dict[str, Counter[str]] = {"": _total(tally.tasks)}
    calculated: dict[str, Calculated | None] = {"": None}
    for group in scenario.topology:
        users.update({group.profile.name: group.users, "": group.users})
        calculated[group.profile.name] = group.profile.calculated
        tasks[group.profile.name] = Counter()
    names = {user: workload.profile(user).name for user in range(1, scenario.users + 1)}
    for (user, task), times in tally.tasks.items():
        tasks[names[user]][task] += times
    for user, messages in tally.received.items():
        received.update({names[user]: messages, "": messages})
    return {
        name: _share(users[name], scenario.run.days, tasks[name], received[name], calculated[name]) for name in users
    }


def _share(users: int, days: int, done: Counter[str], received: int, calculated: Calculated | None) -> Share:
    sent = {way: done[task] / (users * days) for way, task in SENDING.items()}
    per_user = {
        "sent": sum(sent.values()),
        "received": received / (users * days),
        **sent,
        "read": done["READ"] / (users * days),
        "browsed": done["BROWSE"] / (users * days),
    }
    return Share(users, per_user, calculated)


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as `loadsim plan --json` prints it."""
    tally, scenario = plan.tally, plan.scenario
    commands = _total(tally.hourly_commands)
    imap = sum(times for name, times in commands.items() if name.startswith("IMAP "))
    by_user: dict[str, dict[str, int]] = {
        str(user): {"received": tally.received[user]} for user in range(1, scenario.users + 1)
    }
    for (user, task), times in sorted(tally.tasks.items()):
        by_user[str(user)][task] = times
    hours: dict[int, dict[str, dict[str, int]]] = {}
    for key, counts in (("tasks", tally.hourly_tasks), ("commands", tally.hourly_commands)):
        for (hour, name), times in sorted(counts.items()):
            hours.setdefault(hour, {"tasks": {}, "commands": {}})[key][name] = times
    return {
        "users": scenario.users,
        "day_s": scenario.run.day_length_s,
        "days": scenario.run.days,
        "compression": scenario.compression,
        "totals": {
            "messages_sent": plan.messages_sent,
            "messages_received": plan.messages_received,
            "bytes_sent": tally.sent_bytes,
            "bytes_received": tally.received_bytes,
        },
        "per_user": {**plan.whole.per_user, "recipients_per_message": plan.recipients_per_message},
        "tasks": dict(plan.tasks),
        "plan_digest": plan.digest,
        "by_profile": {
            name: {
                "users": share.users,
                "per_user": share.per_user,
                "calculated": None if share.calculated is None else asdict(share.calculated),
            }
            for name, share in plan.by_profile.items()
        },
        "by_user": by_user,
        "by_hour": [{"hour": hour, **counts} for hour, counts in sorted(hours.items())],
        "commands": dict(commands),
        "rates_per_s": {
            "log_ons": scenario.users / scenario.run.ramp_up_s if scenario.run.ramp_up_s else None,
            "imap_commands": imap / scenario.duration_s,
            "messages": plan.messages_sent / scenario.duration_s,
        },
        "failures": dict(tally.failures),
    }
