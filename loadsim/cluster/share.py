"""What a machine has of a run, and what it is to do when its station is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from loadsim.client.control import encode
from loadsim.client.engine_process import Begin, packed, unpacked
from loadsim.client.events import Events
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.results.hand import Hand

OnControlLoss = Literal["continue", "stop"]
"""What a machine does that has not heard of its station for `control_limit_s`."""


@dataclass(frozen=True, slots=True)
class Share:
    """A machine's part of a run (`pool.Part`): `hands`, one for each of its engines, that follow each other.

    `name` is what the machine is called, and `header` what all timing logs of the run have in common.
    """

    scenario: Scenario
    services: Services
    name: str
    hands: Sequence[Hand]
    header: Mapping[str, Any]
    on_control_loss: OnControlLoss = "continue"
    control_limit_s: float = 60.0

    @property
    def hand(self) -> Hand:
        """All its users."""
        first, last = self.hands[0], self.hands[-1]
        return Hand(first.users, first.step, first.begin, last.end)

    def encode(self) -> bytes:
        """The line that begins a machine."""
        return encode(
            begin={
                "values": packed(self.scenario, self.services),
                "name": self.name,
                "hands": [asdict(hand) for hand in self.hands],
                "header": self.header,
                "on_control_loss": self.on_control_loss,
                "control_limit_s": self.control_limit_s,
            }
        )

    @classmethod
    def decode(cls, about: Mapping[str, Any]) -> Share:
        """The inverse."""
        told = dict(about)
        scenario, services = unpacked(told.pop("values"))
        hands = [Hand(**hand) for hand in told.pop("hands")]
        return cls(scenario, services, hands=hands, **told)

    def begins(self, logs: Path) -> list[Begin]:
        """What each of the machine's engines is told to begin with; their timing logs are in the directory `logs`."""
        begins = []
        for engine, hand in enumerate(self.hands, 1):
            own = {"client": self.name, "engine": str(engine), "engine_users": len(hand), "hand": asdict(hand)}
            log = logs / f"{self.name}.{engine}.tlog"
            begins.append(Begin(self.scenario, self.services, hand, str(log), {**self.header, **own}))
        return begins

    def say_ready(self, events: Events, process: int) -> None:
        """Tell that the machine is ready, in a process of this number."""
        events.say("client ready", client=self.name, pid=process, users=len(self.hand), engines=len(self.hands))

    def say_lost(self, events: Events, why: str) -> None:
        """Tell that the machine is lost."""
        events.say("client lost", client=self.name, users=len(self.hand), why=why)
