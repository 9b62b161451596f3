"""The state of the page: the current run, those before it, and the result."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import Any

from loadsim.analysis.summary import Summary, Tone
from loadsim.cli.live_view import HEADINGS, LATELY_S, kinds_of_failure, load_progress, shown_figures, task_rows
from loadsim.cli.web.page_watcher import Page
from loadsim.cli.web.probe_charts import ProbeCharts, column_of
from loadsim.cli.web.series import COLUMNS, Series
from loadsim.cli.web.so_far import WindowSoFar
from loadsim.engine.snapshot import LiveSnapshot, Recent
from loadsim.errors import printable
from loadsim.model.scenario import Scenario
from loadsim.report.answer import NO_MEASUREMENT
from loadsim.report.banner import verdict_words
from loadsim.report.key_figures import headline
from loadsim.runs.watcher import Stage

KINDS = 20
"""The most kinds of failure on the page."""

WARNINGS = 20
"""The page shows the last warnings, at most this many."""

EARLIER = 200
"""The page shows the last runs of a sequence, at most this many."""

LONGEST_TEXT = 500
"""Longer texts of servers and warnings are cut."""

SILENT_S = 5.0
"""Snapshots of the load come each second. Without one for this long, the page says so."""

STAGES: Mapping[Stage, str] = {
    "plan": "planning the load",
    "join": "waiting for the clients",
    "prepare": "preparing the mailboxes",
    "wait": "waiting for the common start",
    "load": "starting the engines",
    "collect": "collecting the logs",
    "analyse": "computing the verdict from the logs",
}

STOPPABLE = ("plan", "join", "prepare", "wait", "load")
"""The stages in which the page may end a run. Later, it would only lose the verdict."""

WORKING = ("log-on", "work")
"""The phases in which the end of a run is early."""

ENDING_EARLY, ENDING = "ending early", "ending"
"""The state after the page has ended a run, by whether its users had done their work."""

STOP_EARLY = "As after Ctrl-C, users log off and the logs are complete. Its figures must not be quoted."
STOP_AFTER_WORK = (
    "The users' work is done: this run counts, and waits no longer for mail. A sequence of runs ends after it."
)
STOP_BETWEEN = "No further run is made. The same command, with the same directory, makes the others later."
"""The meaning of the button: before that, after it, and without a run."""

OUTCOMES = {True: "would be kept", False: "would be missed", None: "too near to tell"}

NO_RESULT = "Ended without a result; the terminal tells why"


@dataclass(frozen=True, slots=True)
class Have:
    """The state that a page has already: its version, and the rows of the current run's series."""

    version: int = -1
    run: int = -1
    generation: int = -1
    rows: int = 0


class _Shown:
    """One run on the page. `between` says what happens before or after its load in a sequence; None during the run."""

    def __init__(self, number: int, scenario: Scenario, title: str) -> None:
        self.number = number
        self.scenario = scenario
        self.title = title
        self.stage: Stage = "plan"
        self.share: float | None = None
        self.status = ""
        self.snapshot: LiveSnapshot | None = None
        self.news_s = time.monotonic()
        self.recent = Recent(LATELY_S)
        self.series = Series()
        self.probes = ProbeCharts()
        self.window = WindowSoFar(scenario)
        self.result: dict[str, Any] | None = None
        self.between: str | None = None

    @property
    def stop_means(self) -> str:
        """The meaning of an end at this time."""
        if self.between is not None:
            return STOP_BETWEEN
        return STOP_EARLY if self.snapshot is None or self.snapshot.phase in WORKING else STOP_AFTER_WORK


class PageView(Page):
    """Collects what the page shows. The run calls it in its own thread, the server in others."""

    def __init__(self, scenario: Scenario, title: str) -> None:
        self._changed = Condition()
        self._version = 0
        self._run = _Shown(0, scenario, title)
        self._warnings: deque[str] = deque(maxlen=WARNINGS)
        self._earlier: deque[dict[str, str]] = deque(maxlen=EARLIER)
        self._ending: str | None = None
        self.finished = False

    # --- what the run reports ---

    def begin(self, scenario: Scenario, title: str) -> None:
        with self._changed:
            self._run = _Shown(self._run.number + 1, scenario, title)
            self._ending = None
            self._news()

    def stage(self, stage: Stage) -> None:
        with self._changed:
            self._run.stage, self._run.share, self._run.status = stage, None, ""
            self._news()

    def warning(self, line: str) -> None:
        with self._changed:
            self._warnings.append(_cut(line))
            self._news()

    def planned(self, share: float) -> None:
        with self._changed:
            self._run.share = share
            self._news()

    def prepared(self, phase: str, done: int, total: int, client: str | None = None) -> None:
        if client is not None:
            return
        with self._changed:
            self._run.share = done / total if total else None
            self._run.status = f"{phase}: {done:,} of {total:,} accounts"
            self._news()

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        with self._changed:
            run = self._run
            run.snapshot = snapshot
            run.recent.add(snapshot)
            run.series.add(snapshot, run.probes.taken())
            run.window.add(snapshot)
            self._news()

    def sampled(self, probe: str, figures: Mapping[str, float]) -> None:
        with self._changed:
            self._run.probes.add(probe, figures)

    def done(self, summary: Summary, directory: Path) -> None:
        figures, verdict = summary.figures, summary.verdict
        words = verdict_words(summary) + (NO_MEASUREMENT if figures.embedded else "")
        with self._changed:
            self._run.result = {
                "verdict": words,
                "tone": summary.tone,
                "headline": headline(figures, verdict.validity),
                "reasons": [_cut(reason) for reason in verdict.reasons],
                "directory": printable(str(directory)),
                "report": None,
            }
            self._news()

    def report(self, line: str) -> None:
        with self._changed:
            if self._run.result is not None:
                self._run.result["report"] = _cut(line)
            self._news()

    def ended(self, words: str, tone: Tone) -> None:
        with self._changed:
            self._run.between = "between two runs"
            self._earlier.append({"words": _cut(words), "tone": tone})
            self._news()

    def commands(self, when: str) -> None:
        with self._changed:
            self._run.between = f"commands {when} the run"
            self._news()

    def answered(self, verdict: str, tone: Tone, directory: Path) -> None:
        with self._changed:
            self._run.result = {
                "verdict": _cut(verdict),
                "tone": tone,
                "headline": "",
                "reasons": [],
                "directory": printable(str(directory)),
                "report": None,
            }
            self._news()

    def finish(self) -> None:
        """Show that there are no more runs."""
        with self._changed:
            self.finished = True
            self._news()

    def _news(self) -> None:
        self._run.news_s = time.monotonic()
        self._version += 1
        self._changed.notify_all()

    # --- what the server asks ---

    def stop(self) -> bool:
        """Note that the page ends the run; False if that is too late, or has been done."""
        with self._changed:
            if self._ending or not self._stoppable:
                return False
            self._ending = ENDING_EARLY if self._run.stop_means == STOP_EARLY else ENDING
            self._news()
            return True

    @property
    def _stoppable(self) -> bool:
        run = self._run
        return not self.finished and run.result is None and (run.between is not None or run.stage in STOPPABLE)

    def wait(self, have: Have, most_s: float) -> None:
        """Wait until there is something that a page does not have, at most this long."""
        with self._changed:
            self._changed.wait_for(lambda: self.finished or self._version != have.version, most_s)

    def document(self, have: Have) -> dict[str, Any]:
        """Return what to show, as JSON; of the series only the rows that a page does not have."""
        with self._changed:
            run, version, finished, ending = self._run, self._version, self.finished, self._ending
            generation = run.series.generation
            known = have.rows if (have.run, have.generation) == (run.number, generation) else 0
            first = min(known, len(run.series))
            rows = run.series.rows(first)
            snapshot, lately, result = run.snapshot, run.recent.stretch, run.result and dict(run.result)
            stage, share, status = run.stage, run.share, run.status
            stoppable, silent_s, between = self._stoppable, time.monotonic() - run.news_s, run.between
            stop_means = run.stop_means
            warnings, earlier = list(self._warnings), list(self._earlier)
            columns, charts = [*COLUMNS, *map(column_of, run.series.probed)], run.probes.charts
        times, phase = run.scenario.run, STAGES[stage]
        if finished and result is None:
            phase, status, share = NO_RESULT, "", None
        elif result is not None:
            phase, status, share = "ended", "", 1.0
        elif between:
            phase = between
        elif stage == "load" and snapshot is not None:
            phase, share, status = load_progress(snapshot, times)
        return {
            "version": version,
            "title": run.title,
            "finished": finished,
            "ending": None if finished else ending,
            "stoppable": stoppable,
            "stop_means": stop_means,
            "phase": phase,
            "share": share,
            "status": status,
            "silent_s": round(silent_s)
            if stage == "load" and not (finished or between or result) and silent_s > SILENT_S
            else None,
            "figures": _figures(snapshot, lately, run.scenario),
            "task_columns": HEADINGS,
            "tasks": [] if snapshot is None else task_rows(snapshot, lately),
            "failures": _failures(snapshot),
            "so_far": None if result is not None or between else _so_far(run.window),
            "warnings": warnings,
            "result": result,
            "earlier": earlier,
            "columns": columns,
            "charts": charts,
            "series": {
                "run": run.number,
                "generation": generation,
                "first": first,
                "rows": rows,
                "window_s": (times.warm_up_s, times.warm_up_s + times.window_s),
                "duration_s": times.duration_s,
            },
        }


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}..."


def _figures(snapshot: LiveSnapshot | None, lately: Any, scenario: Scenario) -> list[tuple[str, str, bool]]:
    """Return the lines of the terminal with their names; True if a part of it needs a look."""
    if snapshot is None:
        return []
    lines = shown_figures(snapshot, lately, scenario)
    return [
        (name, text.plain, "red" in (str(text.style), *(str(span.style) for span in text.spans)))
        for name, text in lines
        if text.plain
    ]


def _failures(snapshot: LiveSnapshot | None) -> list[tuple[str, str]]:
    kinds = [] if snapshot is None else kinds_of_failure(snapshot)
    rows = [(_cut(kind), f"{count:,}") for kind, count in kinds[:KINDS]]
    if len(kinds) > KINDS:
        rows.append((f"{len(kinds) - KINDS:,} more kinds", f"{sum(count for _, count in kinds[KINDS:]):,}"))
    return rows


def _so_far(window: WindowSoFar) -> dict[str, Any] | None:
    found = window.judged
    if found is None:
        return None
    rows: Sequence[tuple[str, ...]] = [
        (each.words, each.found, each.wanted, OUTCOMES[each.kept]) for each in found.criteria
    ]
    return {
        "summary": found.summary,
        "rows": rows,
        "unknown": found.unknown,
        "generator": found.generator,
    }
