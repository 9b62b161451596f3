"""How the simulated users' programs behave, whatever their client module: the scenario's section `client`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from loadsim.model.fields import strict, word
from loadsim.model.ports import SUBMISSIONS


@strict
@dataclass(frozen=True, slots=True)
class Client:
    """`submission` names the SMTP driver; it changes what the server has to do, and so is part of the result."""

    submission: Annotated[str, word(*SUBMISSIONS)] = SUBMISSIONS[0]
