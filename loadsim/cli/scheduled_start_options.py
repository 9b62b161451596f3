"""Machines that make one run without a word to each other: which slice each has, and when all of them start."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from loadsim.engine.engine import LOG_ON_LIMIT_S
from loadsim.errors import ConfigError
from loadsim.model.partition import Slice
from loadsim.model.scenario import Scenario, Server
from loadsim.protocols.registry import needs_one_engine

READY_S = 60.0
"""How long before the first log-on engines are started: they make the contents of their messages first."""

LOOK_S = 1.0
"""How often the wall clock is looked at, at least: it may be set meanwhile."""


def slice_from(text: str | None, scenario: Scenario) -> Slice | None:
    """What `--slice` says. Raises `ConfigError` for what is no slice of these users, or of a server of its own."""
    if text is None:
        return None
    try:
        part = Slice.parse(text)
    except ValueError:
        expected = "expected K/N, the Kth of N equal slices, or K/W,W,..., the Kth of slices of these weights"
        raise ConfigError(f"--slice: {expected}, found {text!r}") from None
    if not isinstance(scenario.server, Server):
        raise ConfigError(f"--slice: {scenario.name}: server: expected one that all machines reach, found embedded")
    if alone := needs_one_engine(scenario):
        raise ConfigError(f"--slice: {scenario.name}: expected mailboxes on a server, found protocol {alone}")
    if not len(part.assignment(scenario.users)):
        raise ConfigError(f"--slice {text}: expected a slice with users in it, found none of {scenario.users}")
    return part


def start_from(text: str | None, ramp_up_s: float, now: datetime) -> datetime | None:
    """What `--start-at` says: ISO 8601 with a zone, an instant or a time of day; of these, the one nearest to `now`.

    Raises `ConfigError` for what is no such instant, for one that has passed, or is too near to log on before.
    """
    if text is None:
        return None
    start = _instant(text, now)
    if start.tzinfo is None:
        raise ConfigError(f"--start-at: expected a time zone, such as the Z of {text}Z, found {text}")
    check_ahead(start, ramp_up_s, now)
    return start


def _instant(text: str, now: datetime) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        start = datetime.fromisoformat(f"{now:%Y-%m-%d}T{text}")
    except ValueError:
        expected = "expected an instant such as 14:00:00Z or 2026-01-05T14:00:00Z"
        raise ConfigError(f"--start-at: {expected}, found {text!r}") from None
    return start if start.tzinfo is None else start + timedelta(days=round((now - start) / timedelta(days=1)))


def check_ahead(start: datetime, ramp_up_s: float, now: datetime, found_late: str = "") -> None:
    """Refuse a common start that cannot be kept: users must log on before. Raises `ConfigError`."""
    ahead = start - now
    if ahead < timedelta(0):
        ago = f"{told(start)}, {_length(-ahead)} ago"
        raise ConfigError(f"--start-at: expected an instant to come, found {ago}{found_late}")
    if ahead < timedelta(seconds=ramp_up_s):
        expected = f"expected at least the ramp-up of {ramp_up_s:g} s before {told(start)}"
        raise ConfigError(f"--start-at: {expected}, found {_length(ahead)}{found_late}")


def planning_limit_s(start: datetime, ramp_up_s: float, now: datetime) -> float:
    """Return how long the load may be planned before a common start: the mailboxes need time, too."""
    return max(0.0, (start - now).total_seconds() - ramp_up_s) / 2


def _length(span: timedelta) -> str:
    """h:mm:ss, in whole seconds."""
    return str(timedelta(seconds=round(span.total_seconds())))


def expectation(start: datetime) -> str:
    """The line that says what is waited for."""
    return f"Common start at {told(start)}, in {_length(start - datetime.now(UTC))}"


def told(instant: datetime) -> str:
    """In UTC, as all machines understand it; without a fraction of a second where there is none."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def common_run(start: datetime, scenario: Scenario) -> str:
    """The name of the run that all machines come to by themselves which start this scenario then."""
    name = sha256(f"{told(start)} {scenario.digest()}".encode()).hexdigest()
    return f"{start.astimezone(UTC):%Y%m%dT%H%M%SZ}-{name[:6]}"


async def time_to_begin(start: datetime, ramp_up_s: float) -> None:
    """Wait until engines should be started for their users to be on at the common start.

    Sessions that wait for hours are load, too, and servers end them. Raises `ConfigError` when it is too late.
    """
    begin = start - timedelta(seconds=ramp_up_s + LOG_ON_LIMIT_S + READY_S)
    while (left_s := (begin - datetime.now(UTC)).total_seconds()) > 0:  # noqa: ASYNC110 - time passes
        await asyncio.sleep(min(left_s, LOOK_S))
    check_ahead(start, ramp_up_s, datetime.now(UTC), ": looking into the mailboxes took too long")
