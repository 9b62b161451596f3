"""Runs on machines that do not communicate: each runs one slice, and all start at an agreed instant."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from loadsim.engine.engine import LOG_ON_LIMIT_S
from loadsim.errors import ConfigError
from loadsim.model.partition import Slice
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_server import Server
from loadsim.protocols.registry import needs_one_engine

READY_S = 60.0
"""Engines start this long before the first log-on, because they generate message contents first."""

CLOCK_LOOK_S = 1.0
"""The longest interval between two looks at the wall clock, which can be set meanwhile."""


def check_shareable(scenario: Scenario, option: str) -> None:
    """Check that several machines can share this scenario. Raises `ConfigError`, which names the option."""
    if not isinstance(scenario.server, Server):
        raise ConfigError(f"{option}: {scenario.name}: server: expected one that all machines reach, found embedded")
    if driver := needs_one_engine(scenario):
        raise ConfigError(f"{option}: {scenario.name}: expected mailboxes on a server, found protocol {driver}")


def check_slice(part: Slice, scenario: Scenario) -> None:
    """Check that this machine can run a slice of the scenario. Raises `ConfigError`."""
    check_shareable(scenario, "--slice")
    if not len(part.assignment(scenario.users)):
        raise ConfigError(f"--slice {part}: expected a slice with users in it, found none of {scenario.users}")


def check_start(start: datetime, ramp_up_s: float, now: datetime, found_late: str = "") -> None:
    """Check that users can log on before a common start. Raises `ConfigError`."""
    ahead = start - now
    if ahead < timedelta(0):
        ago = f"{utc_text(start)}, {_length(-ahead)} ago"
        raise ConfigError(f"--start-at: expected an instant to come, found {ago}{found_late}")
    if ahead < timedelta(seconds=ramp_up_s):
        expected = f"expected at least the ramp-up of {ramp_up_s:g} s before {utc_text(start)}"
        raise ConfigError(f"--start-at: {expected}, found {_length(ahead)}{found_late}")


def planning_limit_s(start: datetime, ramp_up_s: float, now: datetime) -> float:
    """Return how long planning may take before a common start: half the time until the first log-on."""
    return max(0.0, (start - now).total_seconds() - ramp_up_s) / 2


def _length(span: timedelta) -> str:
    return str(timedelta(seconds=round(span.total_seconds())))


def expectation(start: datetime) -> str:
    """Return the line that announces a common start."""
    return f"Common start at {utc_text(start)}, in {_length(start - datetime.now(UTC))}"


def utc_text(instant: datetime) -> str:
    """Format an instant in UTC, without a fraction of a second if it is 0: the same on all machines."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def common_run_id(start: datetime, scenario: Scenario) -> str:
    """Derive the run ID from start and scenario, so that machines that do not communicate agree on it."""
    name = sha256(f"{utc_text(start)} {scenario.digest()}".encode()).hexdigest()
    return f"{start.astimezone(UTC):%Y%m%dT%H%M%SZ}-{name[:6]}"


async def wait_to_begin(
    start: datetime, ramp_up_s: float, log_on_limit_s: float = LOG_ON_LIMIT_S, ready_s: float = READY_S
) -> None:
    """Wait until the engines must start for their users to be on at the common start.

    Not earlier: sessions that wait for hours are load, and servers end them. Raises `ConfigError` if it is too late.
    """
    begin = start - timedelta(seconds=ramp_up_s + log_on_limit_s + ready_s)
    while (left_s := (begin - datetime.now(UTC)).total_seconds()) > 0:  # noqa: ASYNC110 - time passes
        await asyncio.sleep(min(left_s, CLOCK_LOOK_S))
    check_start(start, ramp_up_s, datetime.now(UTC), ": looking into the mailboxes took too long")
