"""A part of the benchmark: a measurement, its extent at each effort, and the tables of its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from bench.processes import Cpus, machine
from bench.table import NOTHING

Size = TypeVar("Size")


class Effort(StrEnum):
    """The extent of all measurements. The figures of the smallest mean nothing: it is for tests."""

    SMALLEST = "smallest"
    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a part, in JSON's types, and the circumstances; `load` is the load average of the last five minutes.

    The load average is None in results of older versions.
    """

    rows: Any
    effort: str
    at: str
    machine: str
    load: float | None


@dataclass(frozen=True, slots=True)
class Part(Generic[Size]):
    """A measurement that takes CPUs and a size, and functions that make tables of its rows, by title.

    The sizes are those of the efforts; an effort without a size leaves the part out.
    """

    name: str
    measure: Callable[[Cpus, Size], Any]
    tables: Mapping[str, Callable[[Any], str]]
    smallest: Size
    full: Size
    short: Size | None = None
    needs_root: bool = False

    def lacking(self, effort: Effort) -> str | None:
        """Return the missing precondition of this effort on this machine; None if there is none."""
        if getattr(self, effort) is None:
            return "the option --full"
        return "to be root" if self.needs_root and os.geteuid() else None

    def result(self, cpus: Cpus, effort: Effort) -> Result:
        """Measure with the size of this effort."""
        rows = self.measure(cpus, getattr(self, effort))
        at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        return Result(rows, effort, at, machine(), round(os.getloadavg()[1], 1))

    def text(self, result: Result) -> str:
        """Return all tables, and the circumstances."""
        load = "" if result.load is None else f"; load average {result.load}"
        where = f"`python -m bench{option_of(result.effort)} {self.name}`, {result.at}: {result.machine}{load}."
        return f"{self.tables_of(result)}\n\n{where}"

    def tables_of(self, result: Result) -> str:
        """Return all tables with their titles. No table is made of no rows."""
        pieces = []
        for title, table in self.tables.items():
            pieces += [f"### {title}", table(result.rows) if result.rows else NOTHING]
        return "\n\n".join(pieces)


def option_of(effort: str) -> str:
    """Return the option of an effort."""
    return "" if effort == Effort.SHORT else f" --{effort}"
