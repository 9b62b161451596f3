"""Formats for times, shares, sizes and counts, chosen by the unit at the end of a figure's name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

from loadsim.errors import printable

Value = str | int | float | tuple[str, ...] | None
"""A finding's value: a figure, one or more texts; None if unknown."""

LONGEST_TEXT = 500
"""The most characters shown of a text, which may quote a server or a command."""

OF_SPANS = ("begin_s", "end_s")
"""The ends of a span, which a sentence joins with "to"."""

NEVER = "never"
"""The word for an infinite time."""


def duration(time_ms: float | None) -> str:
    """Format a time with its unit and its significant digits: 7.6 ms, 1,388 ms, 12.3 s, 205 s; "never" if infinite."""
    if time_ms is None:
        return "-"
    if math.isinf(time_ms):
        return NEVER
    digits = time_digits(time_ms)
    return digits if digits.endswith(" s") else f"{digits} ms"


def time_digits(time_ms: float) -> str:
    """Format a finite time: in milliseconds without the unit or, from 10 s, in seconds with it."""
    if round(time_ms) >= 10_000:
        time_s = time_ms / 1000
        return f"{time_s:.1f} s" if round(time_s, 1) < 100 else f"{time_s:,.0f} s"
    return f"{time_ms:.1f}" if round(time_ms, 1) < 100 else f"{time_ms:,.0f}"


def percent(share: float) -> str:
    """Format a share as a percentage with up to four digits; 100 and 0 stand for exactly all and nothing."""
    shown = f"{100 * share:.4g}"
    if shown == "100" and share != 1:
        shown = f"{math.floor(share * 1e6) / 1e4:.6g}" if share < 1 else f"{100 * share:.6g}"
    return f"{shown} %"


def in_short(text: str) -> str:
    """Return a printable text, cut off with `...` if it is too long."""
    return printable(text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 3]}...")


def length(length_s: float) -> str:
    """Format a length of time in the largest unit that divides it: 8 h, 90 min, 12.5 s."""
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if length_s >= unit_s and length_s % unit_s == 0:
            return f"{length_s / unit_s:g} {unit}"
    return f"{length_s:g} s"


def count(number: float, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


SCALES = {"%": 100.0, "MiB": 2**-20}
"""The factors that convert figures to their units, if they are not 1."""


def data_size(size_bytes: float) -> str:
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:,.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return f"{size_bytes:,.0f} bytes"


def unit_of(name: str) -> str:
    """Return the unit of a figure with this dotted name: "%" for a share, "" for a count."""
    if name.startswith("probes."):
        name = name.rpartition(".")[0]  # without the statistic
    *_, group, last = ("", *name.split("."))
    if last.endswith("_share") or last == "share":
        return "%"
    if last.endswith("_ms") or group.endswith("_ms"):
        return "ms"
    if last.endswith("_per_s") or group in ("by_task", "commands"):
        return "per s"
    if last.endswith("_s"):
        return "s"
    return "MiB" if last.endswith("_bytes") else ""


def shown(name: str, value: Value, noun: str = "") -> str:
    """Format a value by the unit at the end of its name; a number may count a noun."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return in_short(value)
    if isinstance(value, tuple):
        return in_short(", ".join(value)) or "none"
    if noun:
        return count(value, noun)
    unit = unit_of(name)
    if unit == "ms":
        return duration(value)
    if unit == "%":
        return percent(value)
    if unit == "MiB":
        return f"{value / 2**20:,.4g} MiB"
    if unit == "s":
        return NEVER if math.isinf(value) else f"{_digits(value)} s"
    return _digits(value)


def _digits(value: float) -> str:
    """Format a number with four digits, or with all digits before the point if there are more."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def shown_range(name: str, values: Sequence[Value], noun: str = "") -> str:
    """Format the minimum and maximum of several values, or the only one; list distinct texts."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values):
        if len({*values}) == 1:
            return shown(name, values[0])
        texts = (value if isinstance(value, tuple) and value else (shown(name, value),) for value in values)
        return in_short(", ".join(dict.fromkeys(chain.from_iterable(texts))))
    low, high = (shown(name, end, noun) for end in (min(numbers), max(numbers)))
    if low != high and name in OF_SPANS:
        return f"between {low} and {high}"
    return low if low == high else f"{shown(name, min(numbers)) if noun else low} to {high}"
