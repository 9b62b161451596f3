"""Limits of the string table of a timing log, which numpy holds and 16 bits number."""

from __future__ import annotations

from typing import Any

from loadsim.errors import LogError
from loadsim.timinglog.documents import read_as

LONGEST_NAME = 1000
"""The most characters of a name in the string table."""

MOST_CHARACTERS = 2**25
"""The most characters of all names together: numpy pads each name to the longest."""

MOST_NUMBERED = 2**16
"""The number of names that 16 bits can number; a writer uses one fewer."""


def check_names(name: str, names: Any) -> None:
    """Raise `LogError`, with the file's name, for names that are no texts, too many, or too long."""
    read_as(tuple[str, ...], names, f"{name}: names")
    if len(names) > MOST_NUMBERED:
        raise LogError(f"{name}: names: expected at most {MOST_NUMBERED}, found {len(names)}")
    if (longest := max(map(len, names), default=0)) > LONGEST_NAME:
        raise LogError(f"{name}: names: expected at most {LONGEST_NAME} characters each, found {longest}")
    if longest * len(names) > MOST_CHARACTERS:
        found = f"{len(names)} names of up to {longest}"
        raise LogError(f"{name}: names: expected at most {MOST_CHARACTERS} characters together, found {found}")
