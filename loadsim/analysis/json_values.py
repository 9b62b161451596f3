"""Figures as JSON holds them: the row of a score table, and what is infinite.

JSON has no infinity, and `null` already says that nothing was measured. So a time that is longer than any, because what
was waited for never came, is the text "inf", which `float()` takes.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from loadsim.analysis.score import PERCENTS, TaskStatistics, Times

INFINITE = "inf"


def finite(figure: float | None) -> float | str | None:
    """A figure, or what stands for it when it is infinite."""
    return INFINITE if figure == math.inf else figure


def times_figures(times: Times) -> dict[str, Any]:
    """All statistics of a time."""
    return {name: finite(figure) for name, figure in asdict(times).items()}


def response_figures(times: Times) -> dict[str, Any]:
    """The percentiles of the response time, which may be infinite; the mean would then tell nothing."""
    return {f"response_{name}": finite(getattr(times, name)) for name in PERCENTS}


def table_row(task: TaskStatistics) -> dict[str, Any]:
    """What the score table has of a task."""
    return {
        "task": task.task,
        "weight": task.weight,
        "hits": task.hits,
        "failed": task.failed,
        **times_figures(task.service),
        "percentile_ms": task.percentile_ms,
        "response_percentile_ms": finite(task.response_percentile_ms),
    }
