"""The page's state: the live figures of a run, and its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from threading import Condition
from typing import Any

from loadsim.analysis.probes.resources import by_kind
from loadsim.analysis.summary import Summary
from loadsim.cli.live.figures import LiveFigures, View
from loadsim.cli.live.words import HEADINGS, lines, status, task_row
from loadsim.errors import printable
from loadsim.report.answer import describe_answer, headline
from loadsim.report.probe_panels import PANELS, panels_of
from loadsim.runs.watcher import Stage

WARNINGS = 20
"""The most warnings shown; older ones are dropped."""

MOST_CHARTS, MOST_LINES = 24, 7
"""The most probe charts, and the most lines in a chart: each line has its own colour."""

LONGEST_TEXT = 500
"""Longer server texts and warnings are cut."""

STAGES: Mapping[Stage, str] = {
    "plan": "planning the load",
    "join": "waiting for the clients",
    "prepare": "preparing the mailboxes",
    "load": "starting the engines",
    "collect": "collecting the logs",
    "audit": "reading the mail of all users",
    "analyse": "computing the verdict from the logs",
}

Chart = tuple[str, str, Sequence[tuple[str, float | None]]]
"""A title, a unit, and for each line its name and current value."""


class PageView(View):
    """Collects what the page shows. The run and the server call it from different threads."""

    def __init__(self, figures: LiveFigures) -> None:
        self._changed = Condition()
        self._version = 0
        self._figures = figures
        self._warnings: deque[str] = deque(maxlen=WARNINGS)
        self._result: dict[str, Any] | None = None
        self.finished = False

    @contextmanager
    def _news(self) -> Iterator[None]:
        with self._changed:
            yield
            self._version += 1
            self._changed.notify_all()

    # --- what the run reports ---

    def show(self, figures: LiveFigures) -> None:
        with self._news():
            self._figures = figures
            if figures.summary is not None and figures.directory is not None:
                self._result = _result_of(figures.summary, figures.directory)

    def warning(self, line: str) -> None:
        with self._news():
            self._warnings.append(_cut(line))

    def finish(self) -> None:
        with self._news():
            self.finished = True

    # --- what the server asks ---

    def wait(self, version: int, most_s: float) -> None:
        """Wait until the state has a different version, for at most `most_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self.finished or self._version != version, most_s)

    def document(self) -> dict[str, Any]:
        with self._changed:
            figures, version, finished = self._figures, self._version, self.finished
            warnings, result = list(self._warnings), self._result
        return {
            "version": version,
            "title": printable(figures.scenario),
            "finished": finished,
            "phase": _phase(figures, result is not None, finished),
            "share": None if finished or result is not None else figures.share,
            "status": "" if finished else status(figures),
            "figures": lines(figures),
            "columns": HEADINGS,
            "tasks": [task_row(task) for task in figures.tasks],
            "at_s": None if figures.load is None else figures.load.at_s,
            "charts": [*_charts(figures), *_of_probes(figures.probes)],
            "warnings": warnings,
            "result": result,
        }


def _phase(figures: LiveFigures, has_result: bool, finished: bool) -> str:
    if has_result:
        return "ended"
    if finished:
        return "Ended without a result; the terminal shows why"
    return figures.phase if figures.stage == "load" and figures.load is not None else STAGES[figures.stage]


def _result_of(summary: Summary, directory: Path) -> dict[str, Any]:
    return {
        "verdict": _cut(describe_answer(summary).banner),
        "tone": summary.tone,
        "headline": headline(summary.figures, summary.verdict.validity),
        "reasons": [_cut(finding.text) for finding in (*summary.verdict.defects, *summary.verdict.missed)],
        "directory": printable(str(directory)),
    }


def _charts(figures: LiveFigures) -> Iterator[Chart]:
    load, lately = figures.load, figures.lately
    if load is None:
        return
    if lately is not None:
        yield "Tasks", "per second", [("ended", lately.per_s), ("failed", lately.per_s * lately.failed_share)]
        yield (
            "Service times, 95th percentile, about",
            "ms",
            [(task.name, task.p95_ms) for task in figures.tasks[:MOST_LINES]],
        )
        causes = [("user busy", lately.busy_ms), ("session down", lately.down_ms), ("generator", lately.generator_ms)]
        yield "Late starts of tasks, mean", "ms", causes
    yield "Lag of the event loop", "ms", [("99th percentile", load.lag_p99_ms), ("largest", load.lag_max_ms)]
    yield "Users on", "", [("users", load.users_on)]
    yield "Mail in transit", "messages", [("messages", load.accepted_undelivered)]


def _of_probes(probes: Mapping[str, Mapping[str, float]]) -> list[Chart]:
    panels = [
        (probe, panel, chosen)
        for probe in by_kind(probes, PANELS)
        for panel, chosen in panels_of(probe, [*probes[probe]])
    ]
    return [
        (
            printable(f"{panel.title} ({probe})"),
            panel.unit,
            [
                (printable(name), value if isfinite(value := probes[probe][figure] * panel.factor) else None)
                for name, figure in chosen[:MOST_LINES]
            ],
        )
        for probe, panel, chosen in sorted(panels, key=lambda row: not row[1].chief)[:MOST_CHARTS]
    ]


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}..."
