"""The documents in a timing log: of which type each key of its header, its facts and its samples of health must be.

A checksum says that a document is as it was written, not that a writer of ours wrote it. It is checked once, where the
log is opened; what works on logs relies on it. Keys that are not named here are carried along, whatever they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from loadsim.errors import LogError, printable
from loadsim.results.documents import LONGEST_SHOWN, shown
from loadsim.results.planned_load import read_planned_load
from loadsim.results.records import GIVEN_UP

LONGEST_S = 2**25
"""Of seconds in a document, more than a year: no run is longer (see `model.fields.LONGEST_S`)."""

MOST_NS = 2**62
"""Of an instant of a clock. The difference of two fits into 64 bits."""

MOST_USERS = 2**24

LONGEST_NAME = 1000
"""Of a name in the string table. numpy gives every name the room of the longest."""

MOST_NAMES = 2**16
"""That 16 bits can number."""

Check = Callable[[Any], str | None]
"""Returns what is expected where a value is not; the key below it, and a colon, may stand before that."""


# --- types of values ------------------------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -math.inf < value < math.inf  # type: ignore[operator]


def _number(least: float, most: float, *, above: bool = False) -> Check:
    words = f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"

    def check(value: Any) -> str | None:
        good = _is_number(value) and least <= value <= most and not (above and value == least)
        return None if good else words

    return check


def _whole(least: int, most: int) -> Check:
    words = f"a whole number from {least} to {most}"
    return lambda value: None if type(value) is int and least <= value <= most else words


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def _switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _moment(value: Any) -> str | None:
    """The writer's wall clock, or nothing."""
    if not isinstance(value, str):
        return "a text"
    try:
        begun = datetime.fromisoformat(value) if value else None
    except ValueError:
        return None  # nobody relies on it: see `merge._zero_us`
    return "a year from 1970 to 9998" if begun and not 1970 <= begun.year <= 9998 else None


def _word(*words: str) -> Check:
    return lambda value: None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _either(*checks: Check) -> Check:
    def check(value: Any) -> str | None:
        expected = [one(value) for one in checks]
        return None if None in expected else " or ".join(filter(None, expected))

    return check


def _list(check: Check, least: int = 0) -> Check:
    def check_each(value: Any) -> str | None:
        if not isinstance(value, list | tuple) or len(value) < least:
            return f"a list of at least {least}" if least else "a list"
        return next((f"{place}: {wrong}" for place, one in enumerate(value) if (wrong := check(one))), None)

    return check_each


def _mapping(check: Check, least: int = 0) -> Check:
    def check_each(value: Any) -> str | None:
        if not isinstance(value, dict) or len(value) < least:
            return f"a mapping of at least {least}" if least else "a mapping"
        return next((f"{key}: {wrong}" for key, one in value.items() if (wrong := check(one))), None)

    return check_each


def _object(needed: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    """With these keys, and perhaps others."""
    known = {**needed, **(others or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a mapping"
        if missing := needed.keys() - value.keys():
            return f"{min(missing)}: a value"
        return next(
            (f"{key}: {wrong}" for key, one in value.items() if key in known and (wrong := known[key](one))), None
        )

    return check


# --- the header -----------------------------------------------------------------------------------------------------

_INSTANT = _whole(-MOST_NS, MOST_NS)
_COUNT = _whole(0, 2**53)
_USERS = _whole(0, MOST_USERS)
_SECONDS = _number(0, LONGEST_S)
_SHARE = _number(0, 1)
_AMOUNT = _number(0, 1e300)
_FACTOR = _number(0, 1e12, above=True)
_TEXTS = _list(_text)


def _window(value: Any) -> str | None:
    at_s = _number(-LONGEST_S, LONGEST_S)
    if not isinstance(value, list) or len(value) != 2:
        return "a list of begin and end"
    return _list(at_s)(value)


def _weights(value: Any) -> str | None:
    return _mapping(_AMOUNT)(value)


def _criterion(value: Any) -> str | None:
    if not isinstance(value, dict):
        return _number(-1e300, 1e300)(value)  # as older logs have it
    if not value or not value.keys() <= {"min", "max", "below"}:
        return "limits by min, max and below"
    return _mapping(_number(-1e300, 1e300))(value)


def _planned_load(value: Any) -> str | None:
    try:
        load = read_planned_load(value)
    except LogError as error:
        return str(error).removeprefix("planned_load").lstrip(".:").strip().removeprefix("expected ")
    counts = _list(_COUNT)
    return next((f"tasks.{task}: {wrong}" for task, found in load.tasks.items() if (wrong := counts(found))), None)


_LIMITS = _object(
    {},
    {
        **dict.fromkeys(("lost_users", "done", "load"), _SHARE),
        "hits": _COUNT,
        "window_s": _SECONDS,
        **dict.fromkeys(("generator_lag_p99_ms", "generator_cpu", "generator_lateness_p95_ms"), _or_none(_AMOUNT)),
        "generator_lag_share": _or_none(_SHARE),
    },
)

_HAND = _object({"users": _USERS, "step": _whole(1, 2**32), **dict.fromkeys(("begin", "end"), _whole(0, 2**33))})
_SLICE = _object({"number": _whole(1, 10_000), "weights": _list(_whole(1, 999_999), 1)})


def _slice(value: Any) -> str | None:
    if wrong := _SLICE(value):
        return wrong
    return None if value["number"] <= len(value["weights"]) <= 10_000 else "a number of one of the weights"


def _only(check: Check, *keys: str) -> Check:
    """A mapping that has no other keys."""
    return lambda value: check(value) or (None if value.keys() <= {*keys} else f"the keys {', '.join(keys)}")


_hand = _only(_HAND, "users", "step", "begin", "end")


def _groups(value: Any) -> str | None:
    group = _object({"profile": _text, "module": _text, "users": _whole(1, MOST_USERS)})
    if wrong := _list(group)(value):
        return wrong
    return _USERS(sum(one["users"] for one in value))


_FILE_SYSTEM = {"source": _text, "type": _text, "mounted_at": _text, "options": _text, "model": _or_none(_text)}

_FACTS: Mapping[str, Check] = {
    **dict.fromkeys(("start_ns", "began_ns", "watched_until_ns"), _INSTANT),
    "drain_s": _SECONDS,
    "ended": _word("completed", "early", GIVEN_UP),
    **dict.fromkeys(("ended_why", "given_up_why"), _text),
    **dict.fromkeys(("lost_users", "undelivered", "sessions_lost", "sessions_restored", "silent_activities"), _COUNT),
    **dict.fromkeys(("server_here", "shares_cpus"), _or_none(_switch)),
    "pinned": _switch,
    **dict.fromkeys(("generator_cpus", "server_cpus"), _list(_whole(0, 2**16))),
    **dict.fromkeys(("imap_greeting", "imap_identity", "smtp_greeting"), _or_none(_text)),
    **dict.fromkeys(("imap_capabilities", "smtp_extensions"), _or_none(_TEXTS)),
    **dict.fromkeys(("processor", "system", "python"), _or_none(_text)),
    "memory_bytes": _or_none(_COUNT),
    "libraries": _mapping(_text),
    "run_file_system": _or_none(_object(_FILE_SYSTEM)),
    "server_file_systems": _list(_object({**_FILE_SYSTEM, "open_by": _TEXTS})),
}

_facts = _object({}, _FACTS)

_ABOUT: Mapping[str, Check] = {
    **dict.fromkeys(("run", "client", "engine"), _text),
    "wall_clock_start": _moment,
    "hand": _or_none(_hand),
    "first_user": _USERS,
    "slice": _or_none(_slice),
}
"""Of the header of one engine's log, and of a source of a merged one."""

_OF_A_SOURCE: Mapping[str, Check] = {
    **{key: _ABOUT[key] for key in ("run", "client", "engine", "wall_clock_start")},
    "users": _USERS,
    "epoch_ns": _INSTANT,
}

_source = _only(_object(_OF_A_SOURCE, {**_ABOUT, "facts": _facts}), *_OF_A_SOURCE, *_ABOUT, "facts")

_HEADER: Mapping[str, Check] = {
    **{key: check if key in ("run", "client", "engine") else _or_none(check) for key, check in _ABOUT.items()},
    "mode": _word("canonical", "stress"),
    **dict.fromkeys(("users", "engine_users"), _USERS),
    **dict.fromkeys(
        (
            "software",
            "name",
            "start_at",
            "server",
            "submission",
            "event_loop",
            "scenario_digest",
            "plan_digest",
            "start_state_digest",
        ),
        _or_none(_text),
    ),
    "embedded": _switch,
    "rebased": _switch,
    "profiles": _or_none(_TEXTS),
    "groups": _or_none(_groups),
    **dict.fromkeys(("profile_day_s", "day_s"), _or_none(_number(0, LONGEST_S, above=True))),
    **dict.fromkeys(("night_s", "duration_s"), _or_none(_SECONDS)),
    "compression": _or_none(_FACTOR),
    **dict.fromkeys(("window_s", "truncated_s"), _or_none(_window)),
    "weights": _or_none(_weights),
    "criteria": _or_none(_mapping(_or_none(_criterion))),
    "limits": _or_none(_LIMITS),
    "planned_load": _or_none(_planned_load),
    "machines": _or_none(_list(_object({"client": _text, "users": _USERS}))),
    "sources": _list(_source, 1),
    "damages": _TEXTS,
    "mixed": _TEXTS,
}

_header = _object({"epoch_ns": _INSTANT}, _HEADER)


# --- samples of health ----------------------------------------------------------------------------------------------

_CLOCK = _object({**dict.fromkeys(("at_ns", "station_ns", "ahead_ns"), _INSTANT), "error_ns": _whole(0, MOST_NS)})

_WHOLE_KEYS = frozenset(
    (
        "rss_bytes",
        "open_files",
        "gc_pauses",
        "memory_available_bytes",
        "tcp_sockets",
        "segments_sent",
        "segments_sent_again",
    )
)
_REAL_KEYS = frozenset(
    (
        "cpu_share",
        "stolen_share",
        "load_1min",
        "gc_ms",
        "gc_max_ms",
        "clock_step_ms",
        "late_busy_s",
        "late_down_s",
        "late_generator_s",
    )
)
_SAMPLE: Mapping[str, Check] = {
    **dict.fromkeys(("at_ns", "lags_from_ns"), _INSTANT),
    "at_s": _number(-LONGEST_S, LONGEST_S),
    **dict.fromkeys(_WHOLE_KEYS, _whole(-(2**53), 2**53)),
    **dict.fromkeys(_REAL_KEYS, _number(-1e15, 1e15)),
    "lags_us": _list(_whole(-(2**53), 2**53)),
    "core_shares": _list(_number(0, 1e6)),
    **dict.fromkeys(("run", "client", "engine"), _text),
    "station_clock": _CLOCK,
}

_NEEDED: Mapping[str, frozenset[str]] = {
    "core_shares": frozenset(
        ("cpu_share", "stolen_share", "memory_available_bytes", "segments_sent", "segments_sent_again")
    ),
    "lags_from_ns": frozenset(("at_ns",)),
    "station_clock": frozenset(("at_ns",)),
}
"""A sample that has this key has these, too."""


# --- at the door ----------------------------------------------------------------------------------------------------


def check_header(name: str, header: Mapping[str, Any]) -> None:
    """Raise `LogError` for a header that no writer of ours makes."""
    _refuse(f"{name}: header", _header(header), header)


def check_facts(name: str, facts: Mapping[str, Any]) -> None:
    """Raise `LogError` for facts that no writer of ours makes."""
    _refuse(f"{name}: facts", _facts(facts), facts)


def check_names(name: str, names: Any) -> None:
    """Raise `LogError` for a string table that numpy cannot hold, or that 16 bits cannot number."""
    if wrong := _TEXTS(names):
        _refuse(f"{name}: names", wrong, names)
    if len(names) > MOST_NAMES:
        raise LogError(f"{name}: names: expected at most {MOST_NAMES}, found {len(names)}")
    if (longest := max(map(len, names), default=0)) > LONGEST_NAME:
        raise LogError(f"{name}: names: expected at most {LONGEST_NAME} characters each, found {longest}")


def check_keys(name: str, keys: Mapping[str, Any]) -> None:
    """Raise `LogError` for samples with these keys that lack another."""
    for key in keys & _NEEDED.keys():
        if missing := _NEEDED[key] - keys.keys():
            raise LogError(f"{name}: health: {min(missing)}: expected a value with {key}, found none")


def check_sampled(name: str, key: str, value: Any) -> None:
    """Raise `LogError` for a value of a sample that no writer of ours makes."""
    if key in _SAMPLE:
        _refuse(f"{name}: health: {key}", _SAMPLE[key](value), value)


def _refuse(where: str, wrong: str | None, found: Any) -> None:
    """Raise `LogError` if something is wrong: `KEY: KEY: ...: EXPECTED`; the keys lead to the value that is shown."""
    if wrong is None:
        return
    *keys, expected = wrong.split(": ")
    for key in keys:
        found = _below(found, key)
    path = "".join(f": {printable(key)[:LONGEST_SHOWN]}" for key in keys)
    raise LogError(f"{where}{path}: expected {expected}, found {shown(found)}")


def _below(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    return value[int(key)] if isinstance(value, list) and key.isdecimal() and int(key) < len(value) else None
