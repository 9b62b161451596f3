"""Progress of long work: a bar on a terminal, otherwise a line for each tenth of the accounts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from loadsim.provisioning.sessions import Progress as ShowProgress


def watched_terminal() -> Console | None:
    """Return the terminal on standard error, without colours if `NO_COLOR` is set.

    None if standard error is not a terminal, or is one that cannot be redrawn (`TERM=dumb`).
    """
    if not sys.stderr.isatty():
        return None
    from rich.console import Console  # only with a terminal

    console = Console(stderr=True)
    return console if console.is_interactive else None


@contextmanager
def shown_progress() -> Iterator[ShowProgress]:
    """Yield a function that shows on standard error how many of all accounts have passed a phase."""
    console = watched_terminal()
    if console is None:
        yield Lines().show
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("accounts"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        phases: dict[str, TaskID] = {}

        def show(phase: str, done: int, total: int) -> None:
            if phase not in phases:
                phases[phase] = bar.add_task(phase, total=total)
            bar.update(phases[phase], completed=done, total=total)

        yield show


@contextmanager
def shown_share(title: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows the finished share of some work on a terminal."""
    console = watched_terminal()
    if console is None:
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        work = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(work, completed=share)


@contextmanager
def shown_work(title: str) -> Iterator[None]:
    """Show on a terminal that the block is running."""
    console = watched_terminal()
    with nullcontext() if console is None else console.status(title):
        yield


class Lines:
    """Prints a line at each full tenth of a phase, but not at its start: the server may refuse all accounts."""

    def __init__(self) -> None:
        self._tenths: dict[str, int] = {}

    def show(self, phase: str, done: int, total: int) -> None:
        tenths = 10 * done // total if total else 10
        if tenths > self._tenths.get(phase, 0):
            self._tenths[phase] = tenths
            print(f"{phase}: {done} of {total} accounts", file=sys.stderr, flush=True)
