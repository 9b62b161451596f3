"""The schema of the documents in a timing log: the type of each key of its header, facts and samples of health.

A checksum proves that a document is unchanged, not that loadsim wrote it. The schema is checked once, when a log is
opened; all other code relies on it. Keys that are not named here are kept with any value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from loadsim.errors import LogError
from loadsim.findings.catalogue import Severity
from loadsim.findings.finding import Finding
from loadsim.model.criteria import DEFAULT, LIMITS
from loadsim.model.partition import CIRCLE
from loadsim.model.terms import CANONICAL, FIGURE_NAME, MONITOR_NAME, MOST_USERS, STRESS
from loadsim.timinglog.early_end import ENDED_BY, ENDED_WHY, by
from loadsim.timinglog.json_checks import (
    Check,
    each_in,
    each_of,
    having,
    having_only,
    number,
    or_none,
    refuse,
    shown,
    switch,
    text,
    whole,
    word,
)
from loadsim.timinglog.planned_load import PLANNED_LOAD
from loadsim.timinglog.records import GIVEN_UP

LONGEST_S = 2**25
"""The most seconds in a document. A run is shorter (see `model.schema.LONGEST_S`)."""

SHORTEST_DAY_S = 1e-6
"""The shortest day in a header. Figures are divided by it, and must stay finite."""

MOST_NS = 2**62
"""The largest instant of a clock. The difference of two fits into 64 bits."""

LONGEST_NAME = 1000
"""The most characters of a name in the string table."""

MOST_CHARACTERS = 2**25
"""The most characters of all names together: numpy pads each name to the longest."""

MOST_NUMBERED = 2**16
"""The number of names that 16 bits can number; a writer uses one fewer."""


def _finding(value: Any) -> str | None:
    """Check a finding of the scenario: a warning, as others would change the verdict."""
    try:
        return None if Finding.read(value).severity is Severity.WARNING else "a warning"
    except (ValueError, TypeError, LookupError, AttributeError):
        return "a finding"


# --- the header -----------------------------------------------------------------------------------------------------


def _moment(value: Any) -> str | None:
    """Check the writer's wall clock, which may be empty."""
    if not isinstance(value, str):
        return "a text"
    try:
        begun = datetime.fromisoformat(value) if value else None
    except ValueError:
        return None  # `Source.zero_wall_ns` accepts it, too
    return "a year from 1970 to 9998" if begun and not 1970 <= begun.year <= 9998 else None


_INSTANT = whole(-MOST_NS, MOST_NS)
_COUNT = whole(0, 2**53)
_USERS = whole(0, MOST_USERS)
_SECONDS = number(0, LONGEST_S)
_SHARE = number(0, 1)
_AMOUNT = number(0, 1e300)
_FACTOR = number(0, 1e12, above=True)
_TEXTS = each_of(text)


def _window(value: Any) -> str | None:
    if not isinstance(value, list) or len(value) != 2:
        return "a list of begin and end"
    return each_of(number(-LONGEST_S, LONGEST_S))(value)


def _limits(found: Any) -> str | None:
    if not isinstance(found, dict) or not found or not found.keys() <= set(LIMITS):
        return "limits by min, max and below"
    return each_in(number(-1e300, 1e300))(found)


def _criteria(value: Any) -> str | None:
    if wrong := each_in(or_none(_limits))(value):
        return wrong
    stated = {re.sub(r"^by_protocol\.[^.]+\.", "", name) for name in value}
    missing = next((name for name in DEFAULT if name not in stated), None)
    return f"{missing}: limits, or null if off" if missing else None


_LIMITS = having(
    {},
    {
        **dict.fromkeys(("lost_users", "done", "load"), _SHARE),
        "hits": _COUNT,
        "window_s": _SECONDS,
        **dict.fromkeys(("generator_lag_p99_ms", "generator_cpu", "generator_lateness_p95_ms"), or_none(_AMOUNT)),
        "generator_lag_share": or_none(_SHARE),
    },
)

_ASSIGNMENT = having({"users": _USERS, "step": whole(1, CIRCLE), **dict.fromkeys(("begin", "end"), whole(0, 2**33))})
_assignment = having_only(_ASSIGNMENT, "users", "step", "begin", "end")


def _groups(value: Any) -> str | None:
    group = having({"profile": text, "module": text, "users": whole(1, MOST_USERS)})
    if wrong := each_of(group)(value):
        return wrong
    return _USERS(sum(one["users"] for one in value))


_FILE_SYSTEM = {"source": text, "type": text, "mounted_at": text, "options": text, "model": or_none(text)}
_JOURNAL = {"journal": or_none(switch)}

_COMPANIONS = (
    *("count", "tried", "log_ons", "log_ons_failed", "sessions_lost", "failures", "looks", "listed"),
    *("planned_ns", "down_ns"),
)


def _companions(value: Any) -> str | None:
    if wrong := having(dict.fromkeys(_COMPANIONS, whole(0, MOST_NS)))(value):
        return wrong
    return None if value["down_ns"] <= value["planned_ns"] else "down_ns: at most planned_ns"


_PREPARED = having({**dict.fromkeys(("put", "removed"), _COUNT), "ended_ns": _INSTANT})

_FACTS: Mapping[str, Check] = {
    "prepared": _PREPARED,
    "collection": text,
    "boot_id": or_none(text),
    "wall_clock_error_ns": or_none(whole(0, MOST_NS)),
    "companions": _companions,
    **dict.fromkeys(("start_ns", "began_ns", "watched_until_ns"), _INSTANT),
    "drain_s": _SECONDS,
    "ended": word("completed", "early", GIVEN_UP),
    ENDED_BY: by,
    **dict.fromkeys((ENDED_WHY, "given_up_why"), text),
    **dict.fromkeys(("lost_users", "undelivered", "unannounced", "silent_activities"), _COUNT),
    **dict.fromkeys(("sessions_lost", "sessions_restored"), _COUNT),
    "own_faults": each_in(_COUNT),
    "users_given_up": _COUNT,
    "log_on_methods": _TEXTS,
    **dict.fromkeys(("server_here", "shares_cpus"), or_none(switch)),
    "pinned": switch,
    **dict.fromkeys(("generator_cpus", "server_cpus"), each_of(whole(0, 2**16))),
    **dict.fromkeys(("imap_greeting", "imap_identity", "smtp_greeting"), or_none(text)),
    **dict.fromkeys(("imap_capabilities", "smtp_extensions"), or_none(_TEXTS)),
    **dict.fromkeys(("processor", "system", "python"), or_none(text)),
    "memory_bytes": or_none(_COUNT),
    "libraries": each_in(text),
    "probes": each_in(
        having({"package": text, **dict.fromkeys(("samples", "failures"), _COUNT), "last_failure": or_none(text)})
    ),
    "run_file_system": or_none(having(_FILE_SYSTEM, _JOURNAL)),
    "server_file_systems": each_of(having({**_FILE_SYSTEM, "open_by": _TEXTS}, _JOURNAL)),
}

FACTS = having({}, _FACTS)

_MONITOR_FACTS = frozenset(
    (
        *("processor", "memory_bytes", "system", "python", "libraries"),
        *("boot_id", "wall_clock_error_ns", "server_here", "probes", "ended", "collection"),
    )
)
"""The facts of a monitor's file. No other one counts: a monitor is no part of the generator."""

_MONITOR_SAMPLE = frozenset(("at_ns", "wall_clock_ns", "wall_clock_error_ns", "probe", "figures"))

_HEADER: Mapping[str, Check] = {
    **dict.fromkeys(("run", "client", "engine"), text),
    "wall_clock_start": or_none(_moment),
    "hand": or_none(_assignment),
    "mode": word(CANONICAL, STRESS),
    **dict.fromkeys(("users", "engine_users"), _USERS),
    **dict.fromkeys(("software", "name", "server", "event_loop"), or_none(text)),
    **dict.fromkeys(("submission", "programs", "log_on"), or_none(text)),
    **dict.fromkeys(("scenario_digest", "plan_digest", "start_state_digest"), or_none(text)),
    "plugins": or_none(each_in(text)),
    "monitor": or_none(text),
    "embedded": switch,
    "profiles": or_none(_TEXTS),
    "groups": or_none(_groups),
    **dict.fromkeys(("profile_day_s", "day_s"), or_none(number(SHORTEST_DAY_S, LONGEST_S))),
    **dict.fromkeys(("night_s", "duration_s"), or_none(_SECONDS)),
    "day_shape": each_of(_AMOUNT, 2),
    "compression": or_none(_FACTOR),
    "window_s": or_none(_window),
    "weights": or_none(each_in(_AMOUNT)),
    "criteria": _criteria,
    "limits": or_none(_LIMITS),
    "planned_load": or_none(PLANNED_LOAD),
    "machines": or_none(each_of(having({"client": text, "users": _USERS}))),
    "findings": each_of(_finding),
    "monitors": _TEXTS,
}

HEADER_OF_MONITOR = having({"epoch_ns": _INSTANT}, _HEADER)
HEADER = having({"epoch_ns": _INSTANT, "criteria": _criteria}, _HEADER)
"""The header of an engine. It states each built-in criterion, so that logs of different versions are judged alike."""


# --- samples of health ----------------------------------------------------------------------------------------------

_CLOCK = having({**dict.fromkeys(("at_ns", "station_ns", "ahead_ns"), _INSTANT), "error_ns": whole(0, MOST_NS)})

_SAMPLE: Mapping[str, Check] = {
    **dict.fromkeys(("at_ns", "lags_from_ns"), _INSTANT),
    "at_s": number(-LONGEST_S, LONGEST_S),
    **dict.fromkeys(("rss_bytes", "open_files", "memory_available_bytes"), whole(-(2**53), 2**53)),
    **dict.fromkeys(("segments_sent", "segments_sent_again"), whole(-(2**53), 2**53)),
    **dict.fromkeys(("cpu_share", "stolen_share", "clock_step_ms", "gc_max_ms"), number(-1e15, 1e15)),
    **dict.fromkeys(("late_busy_s", "late_down_s", "late_generator_s"), number(-1e15, 1e15)),
    "lags_us": each_of(whole(-(2**53), 2**53)),
    "core_shares": each_of(number(0, 1e6)),
    **dict.fromkeys(("run", "client", "engine"), text),
    "station_clock": _CLOCK,
    "wall_clock_ns": _INSTANT,
    "wall_clock_error_ns": whole(0, MOST_NS),
    "probe": text,
    "figures": each_in(number(-1e15, 1e15)),
}

_NEEDED: Mapping[str, frozenset[str]] = {
    "core_shares": frozenset(
        ("cpu_share", "stolen_share", "memory_available_bytes", "segments_sent", "segments_sent_again")
    ),
    "lags_us": frozenset(("lags_from_ns",)),
    "lags_from_ns": frozenset(("at_ns",)),
    "station_clock": frozenset(("at_ns",)),
    "wall_clock_ns": frozenset(("at_ns",)),
    "wall_clock_error_ns": frozenset(("wall_clock_ns",)),
    "probe": frozenset(("at_ns", "figures")),
}
"""Keys that a sample must have if it has another."""


# --- checks of an opened log ----------------------------------------------------------------------------------------


def check_names(name: str, names: Any) -> None:
    """Raise `LogError` for a string table that numpy cannot hold, or that 16 bits cannot number."""
    if wrong := _TEXTS(names):
        refuse(f"{name}: names", wrong, names)
    if len(names) > MOST_NUMBERED:
        raise LogError(f"{name}: names: expected at most {MOST_NUMBERED}, found {len(names)}")
    if (longest := max(map(len, names), default=0)) > LONGEST_NAME:
        raise LogError(f"{name}: names: expected at most {LONGEST_NAME} characters each, found {longest}")
    if longest * len(names) > MOST_CHARACTERS:
        found = f"{len(names)} names of up to {longest}"
        raise LogError(f"{name}: names: expected at most {MOST_CHARACTERS} characters together, found {found}")


def check_monitor(name: str, header: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Raise `LogError` for the file of a monitor with a header or facts of an engine, which count in verdicts."""
    monitor = header["monitor"]
    if not MONITOR_NAME.fullmatch(monitor):
        expected = "a-z, 0-9 and -, at most 40 characters"
        raise LogError(f"{name}: header: monitor: expected {expected}, found {shown(monitor)}")
    own = {"run": "", "client": monitor, "engine": "monitor", "users": 0, "engine_users": 0}
    for key, value in own.items():
        if (found := header.get(key, value)) != value:
            raise LogError(f"{name}: header: {key}: expected {value!r} of a monitor, found {shown(found)}")
    for key in sorted(facts.keys() & _FACTS.keys() - _MONITOR_FACTS):
        raise LogError(f"{name}: facts: {key}: expected no such fact of a monitor, found {shown(facts[key])}")
    if facts.get("ended", "completed") != "completed":
        raise LogError(f"{name}: facts: ended: expected completed of a monitor, found {shown(facts['ended'])}")
    for probe in facts.get("probes", ()):
        _check_monitored(f"{name}: facts: probes", probe, monitor)


def _check_monitored(where: str, probe: str, monitor: str) -> None:
    if not probe.endswith(f"@{monitor}"):
        raise LogError(f"{where}: expected names that end with @{monitor}, found {shown(probe)}")


def check_keys(name: str, keys: Mapping[str, Any], monitor: str | None = None) -> None:
    """Raise `LogError` if samples with these keys lack a key that another one needs.

    Samples of a monitor must not have keys of an engine, such as its name.
    """
    if monitor is not None:
        for key in sorted(keys.keys() & _SAMPLE.keys() - _MONITOR_SAMPLE):
            raise LogError(f"{name}: health: {key}: expected no such key of a monitor, found one")
    for key in keys & _NEEDED.keys():
        if missing := _NEEDED[key] - keys.keys():
            raise LogError(f"{name}: health: {min(missing)}: expected a value with {key}, found none")


def check_sampled(name: str, key: str, value: Any, monitor: str | None = None) -> None:
    """Raise `LogError` for a value of a sample that loadsim does not write; `monitor` is the name of its maker."""
    if key in _SAMPLE:
        refuse(f"{name}: health: {key}", _SAMPLE[key](value), value)
    if key == "probe" and monitor is not None:
        _check_monitored(f"{name}: health: probe", value, monitor)
    if key == "figures":
        for figure in value:
            if not FIGURE_NAME.fullmatch(figure):
                expected = "names of a-z, 0-9 and _, at most 40 characters"
                raise LogError(f"{name}: health: figures: expected {expected}, found {shown(figure)}")
