"""Scalars with units, for the fields of documents, and the names that errors suggest."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated

from loadsim.documents.typed import Reads, mismatch, nearest, show


def nearest_path(name: object, names: Iterable[str]) -> str | None:
    """Return the name, such as loadsim-5.5/medium, that this one resembles in whole or in its last part, or None.

    If several names have the same last part, the last of them is returned.
    """
    names = list(names)
    last_parts = {known.rpartition("/")[2]: known for known in names}
    return nearest(name, names) or last_parts.get(nearest(name, last_parts) or "")


def with_nearest(name: object, names: Iterable[str]) -> str:
    """Format a wrong name for an error, with the name that was probably meant."""
    near = nearest_path(name, names)
    return show(name) + (f" (perhaps {near})" if near else "")


NAME_OR_PATH = "name or path"
"""The phrase, in errors, for a shipped file or one of the user's own."""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


MOST_WHOLE = 2**53
"""The largest whole number up to which all are exact as floating-point numbers."""


def whole(least: int, most: int = MOST_WHOLE) -> Reads:
    words = f"a whole number from {least} to {most}"
    at_least = f"a whole number of at least {least}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            open_ended = most == MOST_WHOLE and not (isinstance(value, int) and value > most)
            raise mismatch(at_least if open_ended else words)
        return value

    return Reads(read, f"from {least}" if most == MOST_WHOLE else f"{least} to {most:,}")


def _amount(value: object) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise mismatch("a number of at least 0")
    if number > 1e15:  # above this, microseconds and sums lose digits
        raise mismatch("a number of at most 1e15")
    return number


_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,300})?)\s*%", re.ASCII)


def _share(value: object) -> float:
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(Fraction(percent[1]) / 100) if percent else _number(value)  # exact: 0.7% is 0.007
    if share is None or not 0 <= share <= 1:
        raise mismatch("a share such as 30% or 0.3, from 0% to 100%")
    return share


_DURATION = re.compile(
    r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII
)


LONGEST_S = 366 * 24 * 3600.0
"""The longest duration. With a longer one, surely a typing error, a plan or wait would never end."""


def _duration(value: object) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise mismatch("a duration such as 90s, 10m, 8h or 1h30m")
    parts = zip(match.groups("0"), (3600.0, 60.0, 1.0, 1e-3), strict=True)
    seconds = sum(float(part) * unit for part, unit in parts)
    if seconds > LONGEST_S:
        raise mismatch(f"a duration of at most {LONGEST_S / 3600:.0f}h")
    return seconds


def _positive_duration(value: object) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise mismatch("a duration above 0s")
    return seconds


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)", re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _size(value: object) -> int:
    text = str(value) if type(value) is int and 0 <= value < 10**15 else value
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise mismatch("a size such as 22K (of 1024 bytes)")
    return round(float(match[1]) * _UNITS[match[2]])


def text(value: object) -> str:
    if isinstance(value, bool | int | float):
        raise mismatch("a text (a number, yes and no need quotes)")
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise mismatch("a text of printable characters")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise mismatch("yes or no")
    return value


def matching(pattern: str, expected: str) -> Reads:
    """Accept a text that matches the whole pattern, which `expected` describes."""
    compiled = re.compile(pattern, re.ASCII)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise mismatch(expected)
        return value

    return Reads(read, "text")


def word(*words: str) -> Reads:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise mismatch(" or ".join(words), with_nearest(value, words) if isinstance(value, str) else None)
        return value

    return Reads(read, ", ".join(words))


Count = Annotated[int, whole(0)]
Positive = Annotated[int, whole(1)]
Amount = Annotated[float, Reads(_amount, "number")]
Share = Annotated[float, Reads(_share, "share")]
"""30% or 0.3 in the file; from 0 to 1 as a value."""
Duration = Annotated[float, Reads(_duration, "duration")]
"""8h in the file; seconds as a value."""
PositiveDuration = Annotated[float, Reads(_positive_duration, "duration above 0")]
Milliseconds = Annotated[int, Reads(lambda value: round(_duration(value) * 1000), "duration")]
"""A duration in the file; whole milliseconds as a value."""
Size = Annotated[int, Reads(_size, "size")]
"""22K in the file; bytes as a value (K is 1024)."""
Text = Annotated[str, Reads(text, "text")]
Switch = Annotated[bool, Reads(_switch, "yes, no")]
