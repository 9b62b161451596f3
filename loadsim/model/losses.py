"""What becomes of a run of several machines when one of them, or the station, is lost: the section `cluster`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from loadsim.model.schema import SomeDuration, strict, word

OnLoss = Literal["continue", "stop"]
"""The others go on, or all end the run early."""


@strict
@dataclass(frozen=True, slots=True)
class Losses:
    """`on_client_loss`: what the station does when it has lost a client machine. `on_control_loss`: what a client
    machine does that has not heard of the station for `control_limit_s`."""

    on_client_loss: Annotated[OnLoss, word("continue", "stop")] = "continue"
    on_control_loss: Annotated[OnLoss, word("continue", "stop")] = "continue"
    control_limit_s: SomeDuration = 60.0
