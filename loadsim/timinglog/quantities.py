"""Bounded quantities of the documents in a timing log. Within these bounds, differences and sums stay finite."""

from __future__ import annotations

from typing import Annotated

from loadsim.model.documents.typed import Within
from loadsim.model.terms import MOST_USERS

LONGEST_S = 2**25
"""The most seconds in a document. A run is shorter (see `model.schema.LONGEST_S`)."""

SHORTEST_DAY_S = 1e-6
"""The shortest day in a header. Figures are divided by it, and must stay finite."""

MOST_NS = 2**62
"""The largest instant of a clock. The difference of two fits into 64 bits."""

Instant_ns = Annotated[int, Within(-MOST_NS, MOST_NS)]
Length_ns = Annotated[int, Within(0, MOST_NS)]
Count = Annotated[int, Within(0, 2**53)]
Users = Annotated[int, Within(0, MOST_USERS)]
Seconds = Annotated[float, Within(0, LONGEST_S)]
Instant_s = Annotated[float, Within(-LONGEST_S, LONGEST_S)]
Day_s = Annotated[float, Within(SHORTEST_DAY_S, LONGEST_S)]
Share = Annotated[float, Within(0, 1)]
Amount = Annotated[float, Within(0, 1e300)]
Level = Annotated[int, Within(-(2**53), 2**53)]
Change = Annotated[float, Within(-1e15, 1e15)]
