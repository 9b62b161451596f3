"""The progress of a run on standard error: lines, a bar for the mailboxes, a screen for the load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from loadsim.cli.live_lines import Lines, ShowSnapshot
from loadsim.cli.progress import shown_progress, shown_share, shown_work, watched_terminal
from loadsim.cli.stderr_lines import print_line
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.scenario import Scenario
from loadsim.provisioning.sessions import Progress as ShowProgress
from loadsim.runs.watcher import Stage, Watcher


@contextmanager
def shown_run(scenario: Scenario) -> Iterator[ShowSnapshot]:
    """Yield a function that shows a snapshot on standard error: as a screen on a terminal, else as a line."""
    console = watched_terminal()
    if console is None:
        yield Lines(scenario.run).show
    else:
        from loadsim.cli.live_view import Screen  # imports rich

        with closing(Screen(console, scenario)) as view:
            yield view.show


class Warnings(Watcher):
    def warning(self, line: str) -> None:
        print_line(f"loadsim: {line}")


class RunView(Warnings):
    """Shows a run on standard error; only warnings if `quiet`."""

    def __init__(self, scenario: Scenario, *, quiet: bool) -> None:
        self._scenario = scenario
        self._quiet = quiet
        self._rows = watched_terminal() is not None
        self._shown = ExitStack()
        self._progress: ShowProgress = lambda *_: None
        self._planned: Callable[[float], None] = lambda _: None
        self._screen: ShowSnapshot = lambda *_: None

    def close(self) -> None:
        """End the display of the last stage."""
        self._shown.close()

    def stage(self, stage: Stage) -> None:
        self.close()
        if self._quiet:
            return
        if stage == "plan":
            self._planned = self._shown.enter_context(shown_share("Planning"))
        elif stage == "prepare":
            self._progress = self._shown.enter_context(shown_progress())
        elif stage == "load":
            self._screen = self._shown.enter_context(shown_run(self._scenario))
        elif stage == "analyse":
            self._shown.enter_context(shown_work("Computing the summary"))

    def message(self, line: str) -> None:
        if not self._quiet:
            print_line(line)

    def planned(self, share: float) -> None:
        self._planned(share)

    def prepared(self, phase: str, done: int, total: int, client: str | None = None) -> None:
        if client is None:
            self._progress(phase, done, total)
        elif self._rows:
            self._progress(f"{phase}, {client}", done, total)

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        self._screen(snapshot, clients)
