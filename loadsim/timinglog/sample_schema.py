"""The schema of health samples: the type of each key, and the keys that a key needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypedDict, get_type_hints

from loadsim.errors import LogError
from loadsim.model.terms import FIGURE_NAME
from loadsim.timinglog.documents import Within, read_as, shown
from loadsim.timinglog.facts import check_monitored
from loadsim.timinglog.quantities import Change, Instant_ns, Instant_s, Length_ns, Level

_OF_MONITORS = frozenset(("at_ns", "wall_clock_ns", "wall_clock_error_ns", "probe", "figures"))


class SampledClock(TypedDict):
    """A reading of the controller's clock (`cluster.clock_sync`)."""

    at_ns: Instant_ns
    controller_ns: Instant_ns
    ahead_ns: Instant_ns
    error_ns: Length_ns


class SampleFields:
    """The fields of samples, of which each kind of sample has some; others are kept with any value."""

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
"""Keys that a sample must have if it has another."""


class SampleCheck:
    """Checks the samples of a log at `where`; `monitor` is the name of the monitor whose file it is."""

    def __init__(self, where: str, monitor: str | None) -> None:
        self._where, self._monitor = where, monitor
        self._types = get_type_hints(SampleFields, include_extras=True)

    def keys(self, keys: Collection[str]) -> None:
        """Raise `LogError` for samples that lack a key that another one needs, or with keys of another maker."""
        if self._monitor is not None:
            for key in sorted({*keys} & self._types.keys() - _OF_MONITORS):
                raise LogError(f"{self._where}: {key}: expected no such key of a monitor, found one")
        for key in {*keys} & _NEEDED.keys():
            if missing := _NEEDED[key] - {*keys}:
                raise LogError(f"{self._where}: {min(missing)}: expected a value with {key}, found none")

    def value(self, key: str, value: Any) -> None:
        """Raise `LogError` for a value of a key that loadsim does not write."""
        if key in self._types:
            read_as(self._types[key], value, f"{self._where}: {key}")
        if key == "probe" and self._monitor is not None:
            check_monitored(f"{self._where}: probe", value, self._monitor)
        if key == "figures":
            for figure in value:
                if not FIGURE_NAME.fullmatch(figure):
                    expected = "names of a-z, 0-9 and _, at most 40 characters"
                    raise LogError(f"{self._where}: figures: expected {expected}, found {shown(figure)}")
