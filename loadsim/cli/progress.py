"""How far a command has got: a bar where somebody watches a terminal, else a line at each tenth of the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from loadsim.provisioning.sessions import Progress as Tell


def watched_terminal() -> Console | None:
    """The terminal on standard error, if it is one that can be drawn on again and again (`TERM=dumb` cannot).

    Colours are left out where `NO_COLOR` is set.
    """
    console = Console(stderr=True)
    return console if sys.stderr.isatty() and console.is_interactive else None


@contextmanager
def shown_progress(unit: str = "accounts", *, quiet: bool = False) -> Iterator[Tell]:
    """What to tell: the name of the phase, how many `unit` are done, of how many. All goes to standard error."""
    if quiet:
        yield lambda *_: None
        return
    console = watched_terminal()
    if console is None:
        yield _Lines(unit).tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        phases: dict[str, TaskID] = {}

        def tell(phase: str, done: int, total: int) -> None:
            if phase not in phases:
                phases[phase] = bar.add_task(phase, total=total)
            bar.update(phases[phase], completed=done, total=total)

        yield tell


class _Lines:
    """Prints a line at each whole tenth of a phase; nothing before the server has let anybody do anything."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._tenths: dict[str, int] = {}

    def tell(self, phase: str, done: int, total: int) -> None:
        tenths = 10 * done // total if total else 10
        if tenths > self._tenths.get(phase, 0):
            self._tenths[phase] = tenths
            print(f"{phase}: {done} of {total} {self._unit}", file=sys.stderr, flush=True)
