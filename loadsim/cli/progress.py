"""Progress in accounts: a bar on a terminal, elsewhere a line at each tenth."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from loadsim.provisioning.sessions import Progress as ShowProgress


def watched_terminal() -> Console | None:
    """Return the terminal on standard error; None if it is not one, or cannot be redrawn (`TERM=dumb`).

    It has no colours if `NO_COLOR` is set.
    """
    console = Console(stderr=True)
    return console if sys.stderr.isatty() and console.is_interactive else None


@contextmanager
def shown_progress() -> Iterator[ShowProgress]:
    """Yield a function that shows on standard error how many accounts have passed a phase, of how many."""
    console = watched_terminal()
    if console is None:
        yield _Lines().show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("accounts"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        phases: dict[str, TaskID] = {}

        def show(phase: str, done: int, total: int) -> None:
            if phase not in phases:
                phases[phase] = bar.add_task(phase, total=total)
            bar.update(phases[phase], completed=done, total=total)

        yield show


class _Lines:
    """Prints a line at each whole tenth of a phase, none before the first: the server may refuse all."""

    def __init__(self) -> None:
        self._tenths: dict[str, int] = {}

    def show(self, phase: str, done: int, total: int) -> None:
        tenths = 10 * done // total if total else 10
        if tenths > self._tenths.get(phase, 0):
            self._tenths[phase] = tenths
            print(f"{phase}: {done} of {total} accounts", file=sys.stderr, flush=True)
