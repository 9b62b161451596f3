"""Progress in accounts, or in shares of a whole: a bar on a terminal, elsewhere a line at each tenth."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from loadsim.provisioning.sessions import Progress as ShowProgress

WORTH_TELLING_S = 10.0
"""The time left is told in phases that take longer."""

SILENT_S = 2.0
"""The progress of a share is shown after this time."""

FIRST_SHARE = 0.01
"""The first line of a share comes here: it says how long the rest may take."""


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
    """Yield a function that shows the finished share of some work on standard error, if the work takes `SILENT_S`.

    Elsewhere than on a terminal, the first line comes at `FIRST_SHARE`, and others at whole tenths. The time left is by
    the pace since the first call: work may take seconds to begin.
    """
    console = watched_terminal()
    began_s = now_s()
    tenths = -1
    first: tuple[float, float] | None = None
    with ExitStack() as shown, ExitStack() as waiting:
        bar: Progress | None = None
        waiting.enter_context(shown_work(title))  # millions of users take long before the first share

        def show(share: float) -> None:
            nonlocal bar, tenths, first
            at_s = now_s()
            if first is None:
                waiting.close()
                first = at_s, share
            if at_s - began_s < SILENT_S or (console is not None and bar is None and share >= 1):
                return
            if console is not None:
                if bar is None:
                    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

                    columns = (
                        TextColumn("{task.description}"),
                        BarColumn(),
                        TaskProgressColumn(),
                        TimeRemainingColumn(),
                    )
                    bar = shown.enter_context(Progress(*columns, console=console, transient=True))
                    bar.add_task(title, total=1.0)
                bar.update(bar.task_ids[0], completed=share)
                if share >= 1:  # what follows may show progress of its own
                    shown.close()
            elif share >= FIRST_SHARE and int(10 * share) > tenths and (share > first[1] or share >= 0.1):
                percent = int(100 * share) if tenths < 0 else 10 * int(10 * share)
                tenths = int(10 * share)
                left = _left(at_s - first[0], share - first[1], 1 - share)
                print(f"{title}: {percent} %{left}", file=sys.stderr, flush=True)

        yield show


@contextmanager
def shown_work(title: str) -> Iterator[None]:
    """Show on a terminal, with the time taken so far, that the block is still at work after `SILENT_S`.

    Nothing may be printed in the block.
    """
    console = watched_terminal()
    if console is None:
        yield
        return
    with ExitStack() as shown:

        def show() -> None:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            bar = shown.enter_context(Progress(*columns, console=console, transient=True))
            bar.add_task(title, total=None)

        after = Timer(SILENT_S, show)
        after.start()
        try:
            yield
        finally:
            after.cancel()
            after.join()


class Lines:
    """Prints a line at each whole tenth of a phase, none before the first: the server may refuse all.

    Lines have the time left if the phase takes more than `WORTH_TELLING_S`.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._tenths: dict[str, int] = {}
        self._began_s: dict[str, float] = {}

    def show(self, phase: str, done: int, total: int) -> None:
        taken_s = self._now_s() - self._began_s.setdefault(phase, self._now_s())
        tenths = 10 * done // total if total else 10
        if tenths > self._tenths.get(phase, 0):
            self._tenths[phase] = tenths
            left = _left(taken_s, done, total - done)
            print(f"{phase}: {done} of {total} accounts{left}", file=sys.stderr, flush=True)


def _left(taken_s: float, done: float, rest: float) -> str:
    """Return the time left at the pace so far, for the end of a line; "" for short work, or without a pace."""
    left_s = taken_s * rest / done if done else 0.0
    if taken_s + left_s <= WORTH_TELLING_S or left_s < 1:
        return ""
    return f", about {timedelta(seconds=round(left_s))} left"
