"""Progress in accounts, or in shares of a whole: a bar on a terminal, elsewhere a line at each tenth."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from loadsim.provisioning.sessions import Progress as ShowProgress

SILENT_S = 30.0
"""Elsewhere than on a terminal, a share is shown after this time: output must not depend on a machine's speed."""


def watched_terminal() -> Console | None:
    """Return the terminal on standard error; None if it is not one, or cannot be redrawn (`TERM=dumb`).

    It has no colours if `NO_COLOR` is set.
    """
    if not sys.stderr.isatty():
        return None
    from rich.console import Console  # not without a terminal

    console = Console(stderr=True)
    return console if console.is_interactive else None


@contextmanager
def shown_progress() -> Iterator[ShowProgress]:
    """Yield a function that shows on standard error how many accounts have passed a phase, of how many."""
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
def shown_share(title: str, now_s: Callable[[], float] = time.monotonic) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows the finished share of some work on standard error, if the work takes long.

    Elsewhere than on a terminal, there is a line at each tenth, if the work takes `SILENT_S`.
    """
    console = watched_terminal()
    if console is None:
        tenths = _Tenths(now_s, SILENT_S)
        yield lambda share: tenths.show(share, f"{title}: {10 * int(10 * share)} %")
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        work = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(work, completed=share)


@contextmanager
def shown_work(title: str) -> Iterator[None]:
    """Show on a terminal that the block is at work."""
    console = watched_terminal()
    with nullcontext() if console is None else console.status(title):
        yield


class Lines:
    """Prints a line at each whole tenth of a phase, none before the first: the server may refuse all."""

    def __init__(self) -> None:
        self._phases: dict[str, _Tenths] = {}

    def show(self, phase: str, done: int, total: int) -> None:
        tenths = self._phases.setdefault(phase, _Tenths())
        tenths.show(done / total if total else 1.0, f"{phase}: {done} of {total} accounts")


class _Tenths:
    """Prints a line at each whole tenth of some work, once it has taken `silent_s`."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, silent_s: float = 0.0) -> None:
        self._now_s = now_s
        self._from_s = now_s() + silent_s
        self._tenths = 0

    def show(self, share: float, line: str) -> None:
        if self._now_s() >= self._from_s and int(10 * share) > self._tenths:
            self._tenths = int(10 * share)
            print(line, file=sys.stderr, flush=True)
