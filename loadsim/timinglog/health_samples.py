"""Health samples: the types of their keys, and a store of columns whose rows are samples.

An engine takes one sample a second, with a hundred lags in it. As Python objects, eight engines' samples over eight
hours would take up a gigabyte.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any, Protocol, TypedDict, get_type_hints

import numpy as np

from loadsim.documents.typed import Within, show
from loadsim.errors import LogError
from loadsim.model.terms import FIGURE_NAME
from loadsim.timinglog.documents import Change, Instant_ns, Instant_s, Length_ns, Level, harmless, read_as
from loadsim.timinglog.facts import check_monitored

# --- the schema -------------------------------------------------------------------------------------------------------

_OF_MONITORS = frozenset(("at_ns", "wall_clock_ns", "wall_clock_error_ns", "probe", "figures"))


class SampledClock(TypedDict):
    """A reading of the controller's clock (`cluster.channel`)."""

    at_ns: Instant_ns
    controller_ns: Instant_ns
    ahead_ns: Instant_ns
    error_ns: Length_ns


class SampleFields:
    """The fields of samples. Each kind of sample has some of them; unknown ones are kept with any value."""

    __slots__ = ()

    at_ns: Instant_ns
    at_s: Instant_s
    lags_from_ns: Instant_ns
    lags_us: tuple[Level, ...]
    cpu_share: Change
    stolen_share: Change
    core_shares: tuple[Annotated[float, Within(0, 1e6)], ...]
    rss_bytes: Level
    open_files: Level
    memory_available_bytes: Level
    segments_sent: Level
    segments_sent_again: Level
    clock_step_ms: Change
    gc_max_ms: Change
    late_busy_s: Change
    late_down_s: Change
    late_generator_s: Change
    run: str
    client: str
    engine: str
    controller_clock: SampledClock
    wall_clock_ns: Instant_ns
    wall_clock_error_ns: Length_ns
    probe: str
    figures: Mapping[str, Change]


_NEEDED: Mapping[str, frozenset[str]] = {
    "core_shares": frozenset(
        ("cpu_share", "stolen_share", "memory_available_bytes", "segments_sent", "segments_sent_again")
    ),
    "lags_us": frozenset(("lags_from_ns",)),
    "lags_from_ns": frozenset(("at_ns",)),
    "controller_clock": frozenset(("at_ns",)),
    "wall_clock_ns": frozenset(("at_ns",)),
    "wall_clock_error_ns": frozenset(("wall_clock_ns",)),
    "probe": frozenset(("at_ns", "figures")),
}
"""Keys that another key requires."""


class SampleCheck:
    """Checks a log's samples at `where`; `monitor` is the monitor's name if it is a monitor's file."""

    def __init__(self, where: str, monitor: str | None) -> None:
        self._where, self._monitor = where, monitor
        self._types = get_type_hints(SampleFields, include_extras=True)

    def keys(self, keys: Collection[str]) -> None:
        """Raise `LogError` if a key is missing that another one requires, or if there are other makers' keys."""
        if self._monitor is not None:
            for key in sorted({*keys} & self._types.keys() - _OF_MONITORS):
                raise LogError(f"{self._where}: {key}: expected no such key of a monitor, found one")
        for key in {*keys} & _NEEDED.keys():
            if missing := _NEEDED[key] - {*keys}:
                raise LogError(f"{self._where}: {min(missing)}: expected a value with {key}, found none")

    def value(self, key: str, value: Any) -> None:
        """Raise `LogError` for a value that loadsim does not write."""
        if key in self._types:
            read_as(self._types[key], value, f"{self._where}: {key}")
        if key == "probe" and self._monitor is not None:
            check_monitored(f"{self._where}: probe", value, self._monitor)
        if key == "figures":
            for figure in value:
                if not FIGURE_NAME.fullmatch(figure):
                    expected = "names of a-z, 0-9 and _, at most 40 characters"
                    raise LogError(f"{self._where}: figures: expected {expected}, found {show(figure)}")


# --- the store --------------------------------------------------------------------------------------------------------

_WHOLE, _LARGE, _REAL, _OTHER = "i", "q", "d", "O"
"""The ways to store a column: whole numbers of 32 or 64 bits, real numbers, or other values as Python objects."""

_NOTHING: Mapping[str, Any] = {}


class _Column(Protocol):
    def append(self, value: Any) -> None: ...

    def __getitem__(self, row: int) -> Any: ...


class _Lists:
    """Lists of numbers of one kind, stored in one array, and where each list ends."""

    def __init__(self, code: str) -> None:
        self.numbers, self._ends = array(code), array("q", [0])

    def append(self, values: list[Any]) -> None:
        self.numbers.extend(values)
        self._ends.append(len(self.numbers))

    def __getitem__(self, row: int) -> list[Any]:
        return self.numbers[self._ends[row] : self._ends[row + 1]].tolist()


class _Table:
    """Samples with the same keys and the same kinds of values."""

    def __init__(self, shape: Mapping[str, str]) -> None:
        self.columns: dict[str, _Column] = {key: _column(code) for key, code in shape.items()}
        self.rows = 0

    def add(self, sample: Mapping[str, Any]) -> Sample:
        for key, value in sample.items():
            self.columns[key].append(sys.intern(value) if isinstance(value, str) else value)
        self.rows += 1
        return Sample(self, self.rows - 1)


class Sample(SampleFields, Mapping[str, Any]):
    """One stored sample; `whose` and, unless None, `at_s` replace its own values.

    Its fields are also attributes; a missing one raises `KeyError`.
    """

    __slots__ = ("_at_s", "_row", "_table", "_whose")

    def __init__(self, table: _Table, row: int, whose: Mapping[str, Any] = _NOTHING, at_s: float | None = None) -> None:
        self._table, self._row, self._whose, self._at_s = table, row, whose, at_s

    def placed(self, at_s: float | None, whose: Mapping[str, Any] = _NOTHING) -> Sample:
        """Return this sample at another time (None: its own), and with another maker if one is given."""
        return Sample(self._table, self._row, whose or self._whose, self._at_s if at_s is None else at_s)

    @property
    def maker(self) -> tuple[str, ...]:
        """The values of `records.MAKERS`, once the sample belongs to a log."""
        return tuple(self._whose.values())

    def __getitem__(self, key: str) -> Any:
        if key == "at_s" and self._at_s is not None:
            return self._at_s
        return self._whose[key] if key in self._whose else self._table.columns[key][self._row]

    def __contains__(self, key: object) -> bool:
        return key in self._table.columns or key in self._whose or (key == "at_s" and self._at_s is not None)

    def __iter__(self) -> Iterator[str]:
        yield from self._whose
        yield from (key for key in self._table.columns if key not in self._whose)
        if self._at_s is not None and "at_s" not in self._table.columns:
            yield "at_s"

    def __len__(self) -> int:
        return sum(1 for _ in self)


for _key in SampleFields.__annotations__:
    setattr(Sample, _key, property(itemgetter(_key)))


class Samples:
    """A store of samples in columns."""

    def __init__(self) -> None:
        self._tables: dict[tuple[tuple[str, str], ...], _Table] = {}

    def add(self, sample: Mapping[str, Any]) -> Sample:
        shape = {key: _code(value) for key, value in sample.items()}
        as_key = tuple(shape.items())
        if as_key not in self._tables:
            self._tables[as_key] = _Table(shape)
        return self._tables[as_key].add(sample)

    def check(self, name: str, monitor: str | None = None) -> None:
        """Escape all text. Raises `LogError`, naming the file, for samples that loadsim does not write.

        `monitor` is the monitor's name if it is a monitor's file; None for the log of a run.
        """
        check = SampleCheck(f"{name}: health", monitor)
        for table in self._tables.values():
            check.keys(table.columns)
            for key, column in table.columns.items():
                if isinstance(column, list):
                    column[:] = [harmless(f"{name}: health: {key}", value) for value in column]
                    values: Iterable[Any] = column
                elif isinstance(column, _Lists):
                    values = ([number] for number in _extremes(column.numbers))
                else:
                    assert isinstance(column, array)
                    values = _extremes(column)
                for value in values:
                    check.value(key, value)


def _extremes(numbers: array[Any]) -> list[Any]:
    """Return the minimum and maximum of the numbers; NaN if one of them is NaN."""
    column = np.frombuffer(numbers, numbers.typecode)
    return [column.min().item(), column.max().item()]


def _code(value: object) -> str:
    """Return a value's storage code; for a list of numbers, their code and an `s`."""
    if not isinstance(value, list):
        return _code_of({type(value)}, value, value)
    kinds = set(map(type, value))
    if kinds - {int, float} or not kinds:
        return _OTHER
    code = _code_of(kinds, min(value), max(value))
    return code if code == _OTHER else f"{code}s"


def _code_of(kinds: set[type], least: Any, most: Any) -> str:
    if kinds == {float}:
        return _REAL
    if kinds != {int} or not -(2**63) <= least <= most < 2**63:
        return _OTHER
    return _WHOLE if least >= -(2**31) and most < 2**31 else _LARGE


def _column(code: str) -> _Column:
    if code == _OTHER:
        return []
    return _Lists(code[0]) if code.endswith("s") else array(code)
