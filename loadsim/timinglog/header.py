"""A timing log's header: its writer, and the terms of its run.

A checksum proves that a document is unchanged, not that loadsim wrote it. Header, facts and samples are checked once,
when a log is opened; all other code relies on this. Unknown keys are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from loadsim.documents.typed import Reads, Row, Within, Wrong, show
from loadsim.errors import LogError
from loadsim.findings.finding import Finding
from loadsim.findings.severity import Severity
from loadsim.model.partition import CIRCLE, Assignment
from loadsim.model.terms import MONITOR_NAME, MOST_USERS, Acknowledgements, FaultOnPurpose, OutageCause, Window
from loadsim.scenario.criteria import DEFAULT, LIMITS
from loadsim.timinglog.documents import (
    LONGEST_S,
    Amount,
    Count,
    Day_s,
    Instant_ns,
    Seconds,
    Share,
    Users,
    at_least,
    read_as,
)
from loadsim.timinglog.planned_load import PlannedLoad

MONITOR = "monitor"
"""The header key that names the monitor in a file from `loadsim monitor`."""


class ClientUsers(NamedTuple):
    """The number of users assigned to a client machine."""

    client: str
    users: Users


class StatedOutage(NamedTuple):
    """The outage that a scenario states (`scenario.sections.Outage`), in seconds after the common start."""

    at_s: Seconds
    by: OutageCause


class RunLimits(TypedDict, total=False):
    """The limits of a valid run (`scenario.limits.Limits.in_header`); None means off."""

    lost_users: Share
    done: Share
    load: Share
    hits: Count
    window_s: Seconds
    generator_lag_p99_ms: Amount | None
    generator_lag_share: Share | None
    generator_cpu: Amount | None
    generator_lateness_p95_ms: Amount | None


def _moment(text: str) -> str:
    """Check the writer's wall clock, which may be empty."""
    try:
        begun = datetime.fromisoformat(text) if text else None
    except ValueError:
        return text  # `Source.zero_wall_ns` accepts this, too
    if begun and not 1970 <= begun.year <= 9998:
        raise Wrong("a year from 1970 to 9998", text)
    return text


def _in_circle(assignment: Assignment) -> Assignment:
    bounds = {"users": (0, MOST_USERS), "step": (1, CIRCLE), "begin": (0, 2**33), "end": (0, 2**33)}
    for name, (least, most) in bounds.items():
        if not least <= (value := getattr(assignment, name)) <= most:
            raise Wrong(f"a whole number from {least} to {most}", value, name)
    return assignment


def _near(window_s: Window) -> Window:
    if not all(-LONGEST_S <= at_s <= LONGEST_S for at_s in window_s):
        raise Wrong(f"instants within {LONGEST_S} s of the start", window_s)
    return window_s


def _bounds(limits: Mapping[str, float]) -> Mapping[str, float]:
    if not limits or not limits.keys() <= {*LIMITS}:
        raise Wrong("limits by min, max and below", limits)
    return limits


def _warning(document: Any) -> Finding:
    """Read a finding about the scenario, which must be a warning: others would change the verdict."""
    try:
        warning = Finding.read(document)
    except (ValueError, TypeError, LookupError, AttributeError):
        raise Wrong("a finding", document) from None
    if not warning.severity is warning.code.severity is Severity.WARNING:
        raise Wrong("a warning", document)
    return warning


Bounds = Annotated[Mapping[str, float], _bounds]


def _complete(criteria: Mapping[str, Bounds | None]) -> Mapping[str, Bounds | None]:
    """Check that every built-in criterion is stated: a log made before one was added is rejected."""
    stated = {re.sub(r"^by_protocol\.[^.]+\.", "", name) for name in criteria}
    if missing := next((name for name in DEFAULT if name not in stated), None):
        raise Wrong("limits, or null if off", None, missing)
    return criteria


class LogHeader(NamedTuple):
    """The header of a log from an engine, a machine or a monitor; a merged log's header has no maker.

    `wall_clock_start` (ISO 8601) is the time of day when the maker's clock showed `epoch_ns`; "" if unknown. `hand` is
    the assignment of users, and of the outside `senders`, whose numbers follow. `load_unknown`: the run was not
    planned. `acknowledgements`: of loadsim's own connections. Other keys come from the scenario.
    """

    epoch_ns: Instant_ns
    wall_clock_start: Annotated[str, _moment] = ""
    run: str = ""
    client: str = ""
    engine: str = ""
    monitor: str | None = None
    hand: Annotated[Assignment, _in_circle] | None = None
    users: Users = 0
    senders: Users = 0
    engine_users: Users | None = None
    mode: Literal["canonical", "stress"] = "canonical"
    software: str | None = None
    name: str | None = None
    server: str | None = None
    embedded: bool = False
    audited: bool | None = None
    audit_allow: tuple[FaultOnPurpose, ...] = ()
    event_loop: str | None = None
    acknowledgements: Acknowledgements = "delayed"
    submission: str | None = None
    programs: str | None = None
    calendars: str | None = None
    log_on: str | None = None
    plugins: Mapping[str, str] | None = None
    scenario_digest: str | None = None
    accounts_digest: str | None = None
    plan_digest: str | None = None
    start_state_digest: str | None = None
    profiles: tuple[str, ...] | None = None
    profile_day_s: Day_s | None = None
    day_s: Day_s | None = None
    night_s: Seconds | None = None
    day_shape: Annotated[tuple[Amount, ...], at_least(2)] | None = None
    compression: Annotated[float, Within(0, 1e12, above=True)] | None = None
    duration_s: Seconds | None = None
    window_s: Annotated[Window, Row, _near] | None = None
    weights: Mapping[str, Amount] | None = None
    criteria: Annotated[Mapping[str, Bounds | None], _complete] = {}
    limits: RunLimits | None = None
    planned_load: PlannedLoad | None = None
    load_unknown: bool = False
    machines: tuple[ClientUsers, ...] = ()
    findings: tuple[Annotated[Finding, Reads(_warning)], ...] = ()
    monitors: tuple[str, ...] = ()
    outage: StatedOutage | None = None

    def by_key(self) -> dict[str, Any]:
        """Return all known values by key, as in the document."""
        known = {key: value for key, value in self._asdict().items() if value is not None}
        return {key: [*value] if isinstance(value, tuple) else value for key, value in known.items()}


def read_header(document: Mapping[str, Any], where: str) -> LogHeader:
    """Read a header. Raises `LogError` if loadsim cannot have written it."""
    header = read_as(LogHeader, document, where)
    if header.monitor is None:
        if "criteria" not in document:
            raise LogError(f"{where}: criteria: expected a value, found nothing")
        return header
    # Engines' keys count in verdicts, so a monitor's header must not have them.
    if not MONITOR_NAME.fullmatch(header.monitor):
        expected = "a-z, 0-9 and -, at most 40 characters"
        raise LogError(f"{where}: monitor: expected {expected}, found {show(header.monitor)}")
    own = {"run": "", "client": header.monitor, "engine": MONITOR, "users": 0, "engine_users": 0}
    for key, value in own.items():
        if (stated := getattr(header, key)) != value:
            raise LogError(f"{where}: {key}: expected {value!r} of a monitor, found {show(stated)}")
    return header
