"""Progress in accounts, or in shares of a whole: a bar on a terminal, elsewhere a line at each tenth."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from loadsim.provisioning.sessions import Progress as ShowProgress

WORTH_TELLING_S = 10.0
"""The time left is told in phases that take longer."""

SILENT_S = 2.0
"""The progress of a share is shown on a terminal after this time."""

SILENT_ELSEWHERE_S = 30.0
"""Elsewhere it is shown after this time: what a script reads must not depend on a machine's speed."""


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

    A terminal shows before the first share that the block is at work, and nothing after the whole: nothing else may be
    printed between. Elsewhere, there is a line at each tenth.
    """
    console = watched_terminal()
    if console is None:
        tenths = _Tenths(now_s, SILENT_ELSEWHERE_S)
        yield lambda share: tenths.show(share, f"{title}: {10 * int(10 * share)} %")
        return
    from rich import progress as rich

    name = rich.TextColumn("{task.description}")
    bar = rich.Progress(rich.SpinnerColumn(), name, rich.TimeElapsedColumn(), console=console, transient=True)
    work = bar.add_task(title, total=None)
    after = Timer(SILENT_S, bar.start)
    after.start()

    def show(share: float) -> None:
        bar.columns = (name, rich.BarColumn(), rich.TaskProgressColumn(), rich.TimeRemainingColumn())
        bar.update(work, total=1.0, completed=share)
        if share >= 1:  # what follows may show progress of its own
            end()

    def end() -> None:
        after.cancel()
        after.join()
        bar.stop()

    try:
        yield show
    finally:
        end()


@contextmanager
def shown_work(title: str) -> Iterator[None]:
    """Show on a terminal, with the time taken so far, that the block is still at work after `SILENT_S`.

    Nothing may be printed in the block.
    """
    with shown_share(title):
        yield


class Lines:
    """Prints a line at each whole tenth of a phase, none before the first: the server may refuse all."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._phases: dict[str, _Tenths] = {}

    def show(self, phase: str, done: int, total: int) -> None:
        tenths = self._phases.setdefault(phase, _Tenths(self._now_s))
        tenths.show(done / total if total else 1.0, f"{phase}: {done} of {total} accounts")


class _Tenths:
    """Prints a line at each whole tenth of some work, once it has taken `silent_s`.

    The time left is by the pace since the first call: work may take seconds to begin.
    """

    def __init__(self, now_s: Callable[[], float], silent_s: float = 0.0) -> None:
        self._now_s, self._silent_s = now_s, silent_s
        self._began_s = now_s()
        self._tenths = 0
        self._first: tuple[float, float] | None = None

    def show(self, share: float, line: str) -> None:
        at_s = self._now_s()
        first_s, first = self._first = self._first or (at_s, share)
        if at_s - self._began_s >= self._silent_s and int(10 * share) > self._tenths:
            self._tenths = int(10 * share)
            print(f"{line}{_left(at_s - first_s, share - first, 1 - share)}", file=sys.stderr, flush=True)


def _left(taken_s: float, done: float, rest: float) -> str:
    """Return the time left at the pace so far, for the end of a line; "" for short work, or without a pace."""
    left_s = taken_s * rest / done if done else 0.0
    if taken_s + left_s <= WORTH_TELLING_S or left_s < 1:
        return ""
    return f", about {timedelta(seconds=round(left_s))} left"
