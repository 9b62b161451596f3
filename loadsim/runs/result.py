"""A run's result: its summary, computed from the logs in its directory and written there."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loadsim.analysis.summary import Summary, summarise
from loadsim.errors import LogError, RunInvalid
from loadsim.processes.signals import handled_by
from loadsim.report.answer import describe_answer
from loadsim.report.text import to_text
from loadsim.runs.watcher import Watcher


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run's directory, and the summary of its logs; `written` is true if its files could be written."""

    directory: Path
    summary: Summary
    written: bool = True

    @property
    def score_ms(self) -> float | None:
        """The score; None if the run has none, or has several, one per driver."""
        return self.summary.figures.score_ms

    @property
    def exit_status(self) -> int:
        """The exit status of the verdict: 0 pass, 1 criteria missed, 3 invalid; at least 2 if a file is missing."""
        return max(self.summary.exit_status, 0 if self.written else 2)


def write_summary(directory: Path, watcher: Watcher) -> RunResult:
    """Compute the summary of the logs in a run directory, and write score.json and answer.txt there.

    Signals do not interrupt this, but end what comes after it. Raises `RunInvalid` if the logs are missing or
    unreadable.
    """
    with handled_by(lambda _: None):
        watcher.stage("analyse")
        try:
            summary = summarise([directory])
        except LogError as failure:
            raise RunInvalid(f"the run has ended, but its logs cannot be read: {failure}") from None
        score, answer = json.dumps(summary.score, indent=2), to_text(describe_answer(summary), whole=True)
        written = write_whole(directory / "score.json", score, watcher)
        written &= write_whole(directory / "answer.txt", answer, watcher)
    return RunResult(directory, summary, written)


def write_whole(path: Path, text: str, watcher: Watcher) -> bool:
    """Write a file; if not all of it can be written, remove it, warn, and return False."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
        return True
    except OSError as failure:
        with suppress(OSError):
            path.unlink()
        watcher.warning(f"{path} not written: {failure.strerror}")
        return False
