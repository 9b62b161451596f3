"""`capacity.json`: the state and the answer of a capacity search, replaced as a whole after each step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from loadsim.analysis.capacity import Capacity, Refused, Terms
from loadsim.analysis.capacity_search import FAILED, PASSED, Found, StoppedBy
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.errors import ConfigError, printable
from loadsim.files import read_text
from loadsim.model.lazy_pydantic import TypeAdapter
from loadsim.model.terms import MOST_USERS
from loadsim.runs.resumable import INCOMPLETE, write_state

T = TypeVar("T")

FILE_NAME = "capacity.json"

STEPS = "steps"
"""The directory of the run directories of the steps."""


def write(capacity: Capacity) -> None:
    """Replace the file of a search. Raises `ConfigError` if the directory does not take it."""
    write_state(capacity.directory / FILE_NAME, capacity.document)


def resumed(directory: Path, terms: Terms, *, keep_pause: bool = False) -> Capacity:
    """Return a search with the same terms, as if it had not ended; without a file, one that begins.

    `keep_pause`: none was stated, and that of the file stays. Defaults differ between versions, and by a name server.
    Raises `ConfigError` for a search with others, unless it has no step yet, and for a damaged file.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return Capacity(directory, terms, ())
    try:
        document = _document(path)
        before, steps = document["terms"], _steps(document)
        measured = bool(steps or _any_run(directory))
        if keep_pause and measured and _number(before["pause_s"]) >= 0:
            terms = replace(terms, pause_s=float(before["pause_s"]))
        changed = _changed(before, terms.document)
    except DAMAGED:
        raise ConfigError(f"{path}: expected a file of loadsim capacity, found something else") from None
    if changed and measured:
        raise ConfigError(
            f"--out {directory}: expected the terms of the search that it holds, found changed: {', '.join(changed)}"
            " (take a new directory, or the old terms)"
        )
    return Capacity(directory, terms, steps)


DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors of a reader whose document is not as expected."""

GREATEST = 1e15
"""No number of a search is greater: users and times of a thousand years in ms."""


def _document(path: Path) -> Any:
    """Return the content of a file. Raises one of `DAMAGED`, also for numbers that are not finite."""
    return json.loads(
        read_text(path, str(path)),
        parse_constant=_number,
        parse_float=_number,
        parse_int=lambda text: int(text) if _number(text) else 0,
    )


def _number(text: str) -> float:
    found = float(text)
    if not abs(found) <= GREATEST:  # NaN is not, either
        raise ValueError(text)
    return found


def _steps(document: Mapping[str, Any]) -> tuple[MeasuredStep, ...]:
    return tuple(map(_step, document["steps"]))


def _step(document: Mapping[str, Any]) -> MeasuredStep:
    """Return a step. Raises one of `DAMAGED`, also for numbers of which none can be computed."""
    step = MeasuredStep.read(document)
    if not 1 <= step.users <= MOST_USERS or any(resource.full <= 0 for resource in step.resources):
        raise ValueError(step)
    return _finite(step)


def _finite(read: T) -> T:
    """Return a dataclass. Raises `ValueError` for a number that is not finite, which a text such as "nan" becomes."""
    values: list[Any] = [asdict(read)]  # type: ignore[call-overload]
    while values:
        value = values.pop()
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(value)
        values += value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return read


def _refused(document: Mapping[str, Any]) -> tuple[Refused, ...]:
    found = _REFUSED.validate_python(document.get("refused", ()))
    return tuple(replace(one, why=printable(one.why)) for one in found)


def is_search(directory: Path) -> bool:
    """Return True for the directory of a capacity search."""
    return (directory / FILE_NAME).is_file()


def read_capacity(directory: Path) -> Capacity:
    """Return a search from its directory. Raises `ConfigError` for a damaged file and an unfinished search."""
    path = directory / FILE_NAME
    try:
        document = _document(path)
        steps = _steps(document)
        terms = _finite(_TERMS.validate_python(document["terms"]))
        terms = replace(terms, name=printable(terms.name), software=printable(terms.software))
        refused = _refused(document)
        ends = [document["users"], document["failed_users"], document["stopped_by"]]
        found = None if ends[-1] is None else _found(ends, steps)
    except DAMAGED:
        raise ConfigError(f"{path}: expected a file of loadsim capacity, found something else") from None
    if found is None:
        made = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
        raise ConfigError(
            f"{path}: expected a finished search, found one with {made} so far; loadsim capacity, typed as before,"
            " resumes it"
        )
    return Capacity(directory, terms, steps, found, refused)


def _found(values: Any, steps: Sequence[MeasuredStep]) -> Found:
    """Return the end of a search. Raises `ValueError` for one that its steps do not have."""
    found = Found(*_FOUND.validate_python(values))
    for end, result in ((found.low, PASSED), (found.high, FAILED)):
        if end is not None and not any((step.users, step.result) == (end, result) for step in steps):
            raise ValueError(values)
    if (found.high is None and found.stopped_by == "criteria") or (found.low or 0) >= (found.high or MOST_USERS + 1):
        raise ValueError(values)
    return found


_REFUSED = TypeAdapter(tuple[Refused, ...])
_NUMBER = TypeAdapter(int)
_TERMS = TypeAdapter(Terms)
_FOUND = TypeAdapter(tuple[int | None, int | None, StoppedBy])


def _any_run(directory: Path) -> bool:
    """Return True if the search may have measured something, also if a crash kept it from its file."""
    place = directory / STEPS
    return place.is_dir() and any(INCOMPLETE not in each.name for each in place.iterdir())


MAY_CHANGE = {"evidence"}
"""The terms that may change while a search is resumed: a quick search may go on to an interval."""


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the terms that differ and must not."""
    settings, others = dict(before["settings"]), {key: value for key, value in before.items() if key != "settings"}
    wanted, rest = now["settings"], {key: value for key, value in now.items() if key != "settings"}
    pairs = [(settings, wanted), (others, rest)]
    return sorted(
        key for old, new in pairs for key in (old.keys() | new.keys()) - MAY_CHANGE if old.get(key) != new.get(key)
    )
