"""Where a run stands while it lasts: one line that moves on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from loadsim.client.engine import LiveSnapshot
from loadsim.model.scenario import Scenario

BETWEEN_LINES_S = 10.0


@contextmanager
def shown_run(scenario: Scenario) -> Iterator[Callable[[LiveSnapshot], None]]:
    """What to give each snapshot to. All goes to standard error; nothing is drawn but when a snapshot comes."""
    if not sys.stderr.isatty():
        yield _Lines().show
        return
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda snapshot: live.update(_screen(snapshot, scenario.duration_s), refresh=True)


def _screen(snapshot: LiveSnapshot, duration_s: float) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_row(
        snapshot.phase,
        ProgressBar(total=duration_s, completed=min(max(snapshot.at_s or 0.0, 0.0), duration_s), width=30),
        sentence(snapshot),
    )
    return row


def sentence(snapshot: LiveSnapshot) -> str:
    """The counts in words, and how the generator is: the worst of its engines in the last second."""
    at = "" if snapshot.at_s is None else f"{max(snapshot.at_s, 0):.0f} s, "
    lag = "" if snapshot.lag_p99_ms is None else f"; event loop {snapshot.lag_p99_ms:.1f} ms late"
    busy = "" if snapshot.cpu_share is None else f"; {snapshot.cpu_share:.0%} of a core"
    return (
        f"{at}{snapshot.users_on} of {snapshot.users} users on, {sum(snapshot.tasks.values())} tasks done,"
        f" {snapshot.failed} failed, {snapshot.accepted_undelivered} messages under way{lag}{busy}"
    )


class _Lines:
    """A line when the phase changes, and every ten seconds."""

    def __init__(self) -> None:
        self._phase = ""
        self._last_s = 0.0

    def show(self, snapshot: LiveSnapshot) -> None:
        at_s = snapshot.at_s or 0.0
        if snapshot.phase != self._phase or at_s - self._last_s >= BETWEEN_LINES_S:
            self._phase, self._last_s = snapshot.phase, at_s
            with suppress(BrokenPipeError):  # nobody looks any more: no reason to end the run
                print(f"{snapshot.phase}: {sentence(snapshot)}", file=sys.stderr, flush=True)
