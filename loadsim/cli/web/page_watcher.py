"""The interface of a page, which is imported without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.model.scenario import Scenario
from loadsim.runs.watcher import Watcher

if TYPE_CHECKING:
    from loadsim.analysis.summary import Summary, Tone


class Page(Watcher):
    """Receives what a page shows, next to the progress of runs. This one shows nothing."""

    def begin(self, scenario: Scenario, title: str) -> None:
        """Show the next run of a sequence."""

    def done(self, summary: Summary, directory: Path) -> None:
        """Show the verdict of the current run."""

    def report(self, line: str) -> None:
        """Show where the report of the current run is, or why there is none."""

    def ended(self, words: str, tone: Tone) -> None:
        """Add the current run to the list of those that have ended."""

    def commands(self, when: str) -> None:
        """Show that the commands before or after a run are at work."""

    def answered(self, verdict: str, tone: Tone, directory: Path) -> None:
        """Show the answer of a sequence of runs."""
