"""The answer in parts, for `score.json`: a table for each profile, client machine, minute and the like."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from loadsim.analysis.aggregate import ModuleRecords, gather
from loadsim.analysis.breakdown import OUTCOME, fields_of, in_order
from loadsim.analysis.json_values import finite, table_row, times_figures
from loadsim.analysis.score import Times, percentile, score_parts
from loadsim.timinglog.reader import TimingLog


def breakdown(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: tuple[float, float],
    by: str,
    percent: int | Fraction,
    method: str,
) -> dict[str, Any]:
    """`what` the log was parted by, and `tables`: one for each value and client module, with its score.

    Of an outcome, the tables say how often it was and how long tasks took that came to it; there is no score, and
    percentiles are of the merged records. `by` is one of `breakdown.BY`.
    """
    if by == OUTCOME:
        gathered = gather(log, window_s, fields_of(log, by), all_ended=True)
        tables: list[dict[str, Any]] = [
            {"value": value, "module": module, "score_ms": None, "tasks": _outcome_rows(records, percent)}
            for value, part in in_order(log, by, [*gathered])
            for module, records in gathered[part].items()
        ]
    else:
        parts = score_parts(log, weights, window_s, fields_of(log, by), percent, method)
        tables = [
            {
                "value": value,
                "module": module.protocol,
                "score_ms": module.score_ms,
                "response_score_ms": finite(module.response_score_ms),
                "tasks": [table_row(task) for task in module.tasks],
            }
            for value, part in in_order(log, by, [*parts])
            for module in parts[part]
        ]
    return {"what": by, "tables": tables}


def _outcome_rows(module: ModuleRecords, percent: int | Fraction) -> list[dict[str, Any]]:
    return [
        {
            "task": task,
            "count": sum(records.counts.values()),
            **times_figures(Times.of_sorted(records.took_us)),
            "percentile_ms": percentile(records.took_us, percent) / 1000 if len(records.took_us) else None,
        }
        for task, records in sorted(module.tasks.items())
    ]
