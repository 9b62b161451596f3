"""Tests on busy machines: how long they wait for what should come soon, and what they do not ask."""

from __future__ import annotations

from loadsim.model.criteria import DEFAULT

PATIENCE_S = 600.0
"""Then it has not come, and the test fails. So much because machines may be very busy: it is no measure of anything."""

UNASKED: dict[str, None] = dict.fromkeys(DEFAULT)
"""Criteria of a scenario that asks nothing of its server by default: on a busy machine every server is slow."""
