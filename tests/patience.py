"""How long tests wait for what should come soon."""

from __future__ import annotations

PATIENCE_S = 600.0
"""Then it has not come, and the test fails. So much because machines may be very busy: it is no measure of anything."""
