"""What a machine has of a run, what it must understand as the station does, and what it does when that is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.cluster.prepare_process import PrepareRequest
from loadsim.engine.control import encode
from loadsim.engine.event_log import Events
from loadsim.engine.process import Begin, packed, unpacked
from loadsim.errors import ConfigError
from loadsim.model.partition import Assignment
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_sections import OnLoss
from loadsim.model.workload import Workload, combine_digests
from loadsim.provisioning.initialise import start_state_after
from loadsim.provisioning.sessions import AT_ONCE

MAILBOXES_OF_A_PROCESS = 25
"""Fewer are not worth another process that prepares them: it takes a second to start."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What a station and a machine must come to by themselves, and come to the same: the software, and digests.

    `plan` is over the plans of the machine's own users. `start_state` is None where mailboxes are left as they are.
    """

    software: str
    scenario: str
    start_state: str | None
    plan: str

    def check(self, found: Fingerprints) -> None:
        """Raises `ConfigError` unless what was found elsewhere is the same."""
        for each in fields(self):
            ours, theirs = getattr(self, each.name), getattr(found, each.name)
            if ours != theirs:
                what = each.name.replace("_", " ")
                named = what if each.name == "software" else f"digest of the {what}"
                raise ConfigError(f"{named}: expected the station's, {ours}, found {theirs}: is the software the same?")


def fingerprints(workload: Workload, users: Iterable[int]) -> Fingerprints:
    """What this machine makes of a scenario, and of these users of it. It takes about half a ms a user and day."""
    return Fingerprints(
        software=build_fingerprint(),
        scenario=workload.scenario.digest(),
        start_state=start_state_after(workload, workload.scenario.initialise),
        plan=combine_digests([workload.user_digest(user) for user in users]),
    )


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """A worker's assignment (`coordinator.MemberAssignment`): `hands`, one for each of its engines, in order.

    `name` is the machine's name, `header` what all timing logs of the run have in common, and `fingerprints` what
    the station computed. A share that is `prepared` is with its machine, which has prepared the mailboxes.
    """

    scenario: Scenario
    services: Services
    name: str
    hands: Sequence[Assignment]
    header: Mapping[str, Any]
    fingerprints: Fingerprints
    on_control_loss: OnLoss = "continue"
    control_limit_s: float = 60.0
    prepared: bool = False

    @property
    def assignment(self) -> Assignment:
        """All its users."""
        first, last = self.hands[0], self.hands[-1]
        return Assignment(first.users, first.step, first.begin, last.end)

    def encode(self) -> bytes:
        """The line that has a machine make its load."""
        return encode(begin=None if self.prepared else self._told())

    def encode_to_prepare(self) -> bytes:
        """The line that has it prepare its users' mailboxes first."""
        return encode(prepare=self._told())

    def _told(self) -> dict[str, Any]:
        return {
            "values": packed(self.scenario, self.services),
            "name": self.name,
            "hands": [asdict(hand) for hand in self.hands],
            "header": self.header,
            "fingerprints": asdict(self.fingerprints),
            "on_control_loss": self.on_control_loss,
            "control_limit_s": self.control_limit_s,
        }

    @classmethod
    def decode(cls, about: Mapping[str, Any]) -> WorkerAssignment:
        """What such a line is about."""
        told = dict(about)
        scenario, services = unpacked(told.pop("values"))
        hands = [Assignment(**hand) for hand in told.pop("hands")]
        return cls(scenario, services, hands=hands, fingerprints=Fingerprints(**told.pop("fingerprints")), **told)

    def errands(self) -> dict[str, PrepareRequest]:
        """What the processes are told that prepare the mailboxes of its users, by what they are called.

        They are as many as its engines, if there is work enough.
        """
        processes = max(1, min(len(self.hands), len(self.assignment) // MAILBOXES_OF_A_PROCESS))
        at_once = max(1, AT_ONCE // processes)
        return {
            f"process {number} of {processes}": PrepareRequest(self.scenario, self.services, hand, at_once)
            for number, hand in enumerate(self.assignment.cut([1] * processes), 1)
        }

    def begins(self, logs: Path) -> list[Begin]:
        """What each of the machine's engines is told to begin with; their timing logs are in the directory `logs`."""
        begins = []
        for engine, hand in enumerate(self.hands, 1):
            own = {"engine": str(engine), "engine_users": len(hand), "hand": asdict(hand)}
            log = logs / f"{self.name}.{engine}.tlog"
            header = {**self.header, "client": self.name, "engines": len(self.hands), **own}
            begins.append(Begin(self.scenario, self.services, hand, str(log), header))
        return begins

    def say_ready(self, events: Events, process: int) -> None:
        """Tell that the machine is ready, in a process of this number."""
        events.say("client ready", client=self.name, pid=process, users=len(self.assignment), engines=len(self.hands))

    def say_lost(self, events: Events, why: str) -> None:
        """Tell that the machine is lost."""
        events.say("client lost", client=self.name, users=len(self.assignment), why=why)
