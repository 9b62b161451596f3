"""The prediction of a capacity search: what the sizing by one of its runs says, to compare with the capacity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from loadsim.analysis.utilisation import Estimate
from loadsim.errors import printable
from loadsim.model.lazy_pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Prediction:
    """The resource that is full first, and the users that fill it, by a run with `measured_users`; or why not.

    `run` is the run directory, relative to that of the search. `at_least`: more users may fit. `doubts` are those of
    the sizing.
    """

    measured_users: int
    run: str
    resource: str | None = None
    users: Estimate | None = None
    at_least: bool = False
    doubts: tuple[str, ...] = ()
    why_not: str | None = None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Prediction:
        """Return the prediction with this document. Raises `TypeError` or `ValueError` for any other."""
        found = _PREDICTION.validate_python(document)
        if (found.users is None) == (found.why_not is None) or (found.users is None) != (found.resource is None):
            raise ValueError(found)
        if found.users and not 0 < found.users.low <= found.users.value <= found.users.high < math.inf:
            raise ValueError(found)
        return replace(
            found,
            run=printable(found.run),
            resource=found.resource and printable(found.resource),
            doubts=tuple(map(printable, found.doubts)),
            why_not=found.why_not and printable(found.why_not),
        )


_PREDICTION = TypeAdapter(Prediction)
