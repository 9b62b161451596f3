"""The score of a run in words, and the headline of its report."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.figures import DriverFigures, Figures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.digits import count, duration, known_decimals, rounded


def score_words(module: DriverFigures, time_ms: float | None) -> str:
    """Return the score, or an end of its interval, with the digits that the interval supports, as an answer has it."""
    if module.score_ms is None or time_ms is None or module.score_interval_ms is None:
        return duration(time_ms)
    return f"{rounded(time_ms, known_decimals(module.score_ms, module.score_interval_ms))} ms"


def interval_words(bounds_ms: Sequence[float] | None) -> str | None:
    return None if bounds_ms is None else f"{duration(bounds_ms[0])} to {duration(bounds_ms[1])}"


def of_module(run: RecordedRun, module: str) -> str:
    """Return the name of a driver in brackets; "" if it is the only one."""
    return f" ({module})" if len(run.figures.by_protocol) > 1 else ""


def headline(figures: Figures, validity: str) -> str:
    """Return the users and the scores; figures of an invalid run are not quoted, and provisional ones are called so."""
    users = count(figures.users, "user")
    if validity == "invalid":
        return f"{users}, no valid {'score' if figures.throughput is None else 'throughput'}"
    if figures.throughput is not None:
        return f"{users}, {figures.throughput.tasks_per_s:,.1f} tasks per second"
    scores = [
        f"{'provisional ' if module.provisional else ''}score {score_words(module, module.score_ms)}"
        + (f" ({name})" if len(figures.by_protocol) > 1 else "")
        for name, module in figures.by_protocol.items()
        if module.score_ms is not None
    ]
    return ", ".join([users, *(scores or ["no score"])])
