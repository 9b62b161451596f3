"""A run as it was recorded: its log and answer, and, of a run directory, its events and its scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadsim.analysis.summary import summarise
from loadsim.errors import ConfigError, LogError, printable
from loadsim.files import open_file
from loadsim.model.yaml_reader import read_file
from loadsim.timinglog.json_checks import harmless, having, number, or_none, text, whole
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

MOST_EVENT_BYTES = 1 << 27
"""The most that is read of events.jsonl; the rest is left out."""

SECRET, MASK = "password", "***"

SCENARIO = "scenario.yaml"
"""The file of a run directory that has the scenario."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run. `place` is what it was asked for by; `score` is what score.json holds, and the single commands besides,
    computed anew from the log.

    Of a log without a run directory, nothing is known of events and scenario.
    """

    place: str
    log: TimingLog
    score: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...] = ()
    scenario: Mapping[str, Any] = field(default_factory=dict)

    @property
    def modules(self) -> Mapping[str, Any]:
        """What each client module came to."""
        modules: Mapping[str, Any] = self.score["by_protocol"]
        return modules

    @property
    def window_s(self) -> tuple[float, float]:
        """Begin and end of what is scored."""
        begin_s, end_s = self.score["window_s"]
        return begin_s, end_s

    @property
    def stress(self) -> bool:
        """Whether it was a closed loop, in which nothing is planned and nothing scored."""
        return self.score["throughput"] is not None


def read_run(place: str) -> RecordedRun:
    """Read a run directory, a timing log or a pattern. Raises `LogError` when there is no log that can be read."""
    log = read_logs([place])
    directory = Path(place)
    return RecordedRun(
        place=printable(place),
        log=log,
        score=summarise([log], commands=True).score,
        events=_events(directory / "events.jsonl"),
        scenario=_scenario(directory / SCENARIO),
    )


def _events(path: Path) -> tuple[Mapping[str, Any], ...]:
    """What happened, in the order of the file; lines that were cut, or are none of ours, are left out."""
    try:
        with open_file(path) as file:
            lines = file.read(MOST_EVENT_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple(event for event in map(_json, lines) if _EVENT(event) is None)


_EVENT = having({"event": text}, {"at_s": or_none(number(-1e9, 1e9)), "times": whole(0, 2**53)})


def _json(line: str) -> Any:
    try:
        return harmless("events.jsonl", json.loads(line))
    except (ValueError, RecursionError, LogError):
        return None


def _scenario(path: Path) -> Mapping[str, Any]:
    """The scenario with passwords masked, whoever wrote the file; nothing where there is none that can be read."""
    if not path.is_file():
        return {}
    try:
        scenario = _masked(read_file(path, path.name))
    except ConfigError:
        return {}
    assert isinstance(scenario, dict)
    return scenario


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: MASK if SECRET in str(key).lower() else _masked(each) for key, each in value.items()}
    return [_masked(each) for each in value] if isinstance(value, list) else value
