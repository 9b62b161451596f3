"""The progress of a run on standard error: lines, a bar for the preparation, a screen for the load."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

from loadsim.cli.live.figures import LiveFigures, View
from loadsim.cli.live.progress import shown_progress, shown_share, shown_work, watched_terminal
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.live.words import sentence
from loadsim.runs.watcher import Stage, Watcher


class Warnings(Watcher):
    def warning(self, line: str) -> None:
        print_line(f"loadsim: {line}")


class RunView(View):
    """Shows a run on standard error; only warnings if `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._stage: Stage | None = None
        self._shown = ExitStack()
        self._draw: Callable[[LiveFigures], None] = lambda _: None

    def close(self) -> None:
        self._shown.close()

    def show(self, figures: LiveFigures) -> None:
        if self._quiet:
            return
        if figures.stage != self._stage:
            self.close()
            self._stage, self._draw = figures.stage, self._display(figures.stage)
        self._draw(figures)

    def message(self, line: str) -> None:
        if not self._quiet:
            print_line(line)

    def warning(self, line: str) -> None:
        print_line(f"loadsim: {line}")

    def _display(self, stage: Stage) -> Callable[[LiveFigures], None]:
        """Begin the display of a stage, and return the function that draws its figures."""
        if stage == "plan":
            share = self._shown.enter_context(shown_share("Planning"))
            return lambda figures: None if figures.share is None else share(figures.share)
        if stage in ("prepare", "audit"):
            progress = self._shown.enter_context(shown_progress())

            def show_steps(figures: LiveFigures) -> None:
                for step, (passed, all_of_them) in figures.prepared.items():
                    if (step == "audit") == (stage == "audit"):
                        progress(step, passed, all_of_them)

            return show_steps
        if stage == "load":
            console = watched_terminal()
            if console is None:
                return RunLines().show
            from loadsim.cli.live.view import Screen  # imports rich

            return self._shown.enter_context(closing(Screen(console))).show
        if stage == "analyse":
            self._shown.enter_context(shown_work("Computing the summary"))
        return lambda _: None


class RunLines:
    """Prints a line at each change of phase, and every ten seconds."""

    def __init__(self) -> None:
        self._phase = ""
        self._last_s = 0.0

    def show(self, figures: LiveFigures) -> None:
        if figures.load is None:
            return
        at_s = figures.load.at_s or 0.0
        if figures.phase != self._phase or at_s - self._last_s >= 10.0:
            self._phase, self._last_s = figures.phase, at_s
            print_line(f"{figures.phase}: {sentence(figures.load)}")
