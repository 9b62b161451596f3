"""The live state of a run: a line every ten seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.run_times import Run
from loadsim.report.digits import count, duration

ShowSnapshot = Callable[[LiveSnapshot, Mapping[str, LiveSnapshot]], None]
"""Shows the state of a run, and of each client machine of a cluster run by its name."""

BETWEEN_LINES_S = 10.0


def sentence(snapshot: LiveSnapshot) -> str:
    """Return the counts as a line, with lag and CPU share of the worst engine in the last second."""
    at = "" if snapshot.at_s is None else f"{max(snapshot.at_s, 0):.0f} s, "
    lag = "" if snapshot.lag_p99_ms is None else f"; event loop {duration(snapshot.lag_p99_ms)} late"
    busy = "" if snapshot.cpu_share is None else f"; {snapshot.cpu_share:.0%} of a core"
    own = f" {snapshot.generator_failed:,} by the generator itself," if snapshot.generator_failed else ""
    return (
        f"{at}{snapshot.users_on:,} of {snapshot.users:,} users on, {snapshot.done:,} tasks done,"
        f" {snapshot.failed:,} failed,{own} {count(snapshot.accepted_undelivered, 'message')} in transit{lag}{busy}"
    )


class Lines:
    """Prints a line at each change of the phase, and every ten seconds."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._phase = ""
        self._last_s = 0.0

    def show(self, snapshot: LiveSnapshot, _clients: Mapping[str, LiveSnapshot]) -> None:
        at_s = snapshot.at_s or 0.0
        phase = snapshot.phase_of(self._run)
        if phase != self._phase or at_s - self._last_s >= BETWEEN_LINES_S:
            self._phase, self._last_s = phase, at_s
            with suppress(BrokenPipeError):  # the reader has gone: the run goes on
                print(f"{phase}: {sentence(snapshot)}", file=sys.stderr, flush=True)
