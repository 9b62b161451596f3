"""Time that tests wait for what should come soon, and what they ask of servers on machines that may be very busy."""

from typing import Any

PATIENCE_S = 600.0
"""Then it has not come, and the test fails. So much because machines may be very busy: it is no measure of anything."""

PATIENT_CRITERIA: dict[str, Any] = {
    "score_ms": {"max": 30000},
    "response_score_ms": None,
    "done_share": None,
    "delivery.p95_ms": None,
    "tasks.scored.response_p95_ms": None,
    "tasks.scored.done_share": None,
}
"""Criteria of a scenario that ask for no time and for nothing to be in time. What is left, a server that works keeps on
any machine: nothing fails, no session is lost, each message comes once."""
