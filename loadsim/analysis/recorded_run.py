"""A recorded run: its log and summary, and the events and scenario in its run directory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadsim.analysis.summary import Summary, summary_of
from loadsim.documents.yaml_reader import read_document
from loadsim.errors import ConfigError, LogError, printable
from loadsim.files import open_file
from loadsim.findings.finding import GREATEST
from loadsim.model.figures import Figures
from loadsim.timinglog.documents import harmless
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

MOST_EVENT_BYTES = 1 << 27
"""At most this much of events.jsonl is read."""

SECRET, MASK = "password", "***"

SCENARIO = "scenario.yaml"
"""The file in a run directory that holds the scenario."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run. `place` is the run directory, log or pattern as the user stated it.

    The summary is computed from the log, and includes single commands. Without a run directory, there are no events and
    no scenario.
    """

    place: str
    log: TimingLog
    summary: Summary
    events: tuple[Mapping[str, Any], ...] = ()
    scenario: Mapping[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> Figures:
        return self.summary.figures

    @property
    def begun(self) -> str:
        """The wall-clock time at which the first engine began; "" if unknown."""
        engines = (source for source in self.log.sources if not source.is_monitor)
        first = min((source.wall_clock_start for source in engines if source.wall_clock_start), default="")
        with suppress(ValueError):  # show a value unchanged if it is not a time
            at = datetime.fromisoformat(first)
            first = f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S} UTC"
        return first


def read_run(place: str) -> RecordedRun:
    """Read a run directory, a timing log or a pattern. Raises `LogError` if no log can be read."""
    log = read_logs([place])
    directory = Path(place)
    return RecordedRun(
        place=printable(place),
        log=log,
        summary=summary_of(log, commands=True),
        events=_events(directory / "events.jsonl"),
        scenario=_scenario(directory / SCENARIO),
    )


def without_records(place: str, log: TimingLog, summary: Summary) -> RecordedRun:
    """Return a run without records and events, so that many runs fit into memory."""
    return RecordedRun(
        place=printable(place),
        log=replace(log, streams={}, health=()),
        summary=summary,
        scenario=_scenario(Path(place) / SCENARIO),
    )


def names_of(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the last part of each run's path, or the whole path if runs share the last part."""
    short = [Path(run.place).name or run.place for run in runs]
    seen = Counter(short)
    return [name if seen[name] == 1 else run.place for name, run in zip(short, runs, strict=True)]


def _events(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the events in the order of the file; skip truncated lines, and lines that are not events."""
    try:
        with open_file(path) as file:
            lines = file.read(MOST_EVENT_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple(event for event in map(_json, lines) if _is_event(event))


def _is_event(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    at_s, times = document.get("at_s"), document.get("times", 1)
    timed = at_s is None or (type(at_s) in (int, float) and abs(at_s) <= GREATEST)
    return isinstance(document.get("event"), str) and timed and type(times) is int and 0 <= times <= GREATEST


def _json(line: str) -> Any:
    try:
        return harmless("events.jsonl", json.loads(line))
    except (ValueError, RecursionError, LogError):
        return None


def _scenario(path: Path) -> Mapping[str, Any]:
    """Return the scenario with passwords masked; {} if no scenario can be read."""
    if not path.is_file():
        return {}
    try:
        scenario = harmless(path.name, _masked(read_document(path, path.name)[0]))
    except ConfigError:
        return {}
    assert isinstance(scenario, dict)
    return scenario


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: MASK if SECRET in str(key).lower() else _masked(each) for key, each in value.items()}
    return [_masked(each) for each in value] if isinstance(value, list) else value
