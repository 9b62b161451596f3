"""Checks of the built-in probes' settings, and of the numbers that they read, with one-line errors.

The line shows neither the probe's name nor any of the text, which may be secret.
"""

from __future__ import annotations

import math
import re

from loadsim.documents.typed import show
from loadsim.errors import ConfigError

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def text_of(name: str, value: object, expected: str) -> str:
    """Return printable, non-empty text. Raises `ConfigError` with what was `expected`."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected {expected}, found {show(value)}")
    if not value.strip():
        raise ConfigError(f"{name}: expected {expected}, found an empty text")
    if not value.isprintable():
        raise ConfigError(f"{name}: expected {expected}, found characters that cannot be printed")
    return value


def number_of(name: str, value: object, least: float, most: float) -> float:
    """Return a number from `least` to `most`. Raises `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{name}: expected a number from {least:g} to {most:g}, found {show(value)}")
    return float(value)


def finite_number(text: str, name: str) -> float:
    """Return a decimal number. Raises `ValueError`, which shows none of the text."""
    if _NUMBER.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    found = "NaN" if text.lower() == "nan" else "something else"
    raise ValueError(f"{name}: expected a finite number, found {found}")
