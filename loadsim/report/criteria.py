"""The table of criteria, and the misses that an early end of the run explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadsim.analysis.criteria import Result, judged
from loadsim.report.document import MET, MISSED, UNJUDGED, Cell, Column, Table

NOT_SHOWN = "not shown: the run is invalid"
"""Stands for a time of an invalid run."""


def criteria_tables(results: Sequence[Result], ended_early: bool = False, valid: bool = True) -> Iterator[Table]:
    """Yield the criteria that were not met, and, folded, those that were.

    Each has a row, and one for all tasks that have the same criterion of each task, by the worst.

    A run that is not `valid` meets no criterion; one that it misses is a reason. A time that it does not miss is not to
    be quoted.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        name = f"{one.name.rpartition('.')[2]} of each task" if one.each else one.name
        groups.setdefault((name, one.wanted), []).append(one)
    rows: list[tuple[Cell, ...]] = []
    for (name, wanted), group in groups.items():
        worst, misses = max(group, key=_distance), [one for one in group if not one.passed]
        shown = valid or bool(misses) or not worst.name.endswith("_ms")
        found = worst.found if shown else NOT_SHOWN
        if worst.each and shown:
            if any(one.figure != worst.figure for one in group):
                found += f" ({worst.name.rpartition('.')[0].removeprefix('tasks.')}, the worst)"
            found += f"; {len(misses)} missed" if len(misses) > 1 else ""
        known = any(judged(one, ended_early) for one in misses) if misses else valid
        rows.append((name, found, wanted, (MISSED if misses else MET) if known else UNJUDGED))
    columns = (Column("Criterion"), Column("Found"), Column("Wanted"), Column("Result"))
    met = tuple(row for row in rows if row[-1] == MET)
    if len(met) < len(rows):
        yield Table("Missed or not judged", columns, tuple(row for row in rows if row[-1] != MET))
    if met:
        yield Table(f"Met: {len(met)}", columns, met, folded=True)


def _distance(result: Result) -> tuple[bool, bool, float]:
    """Return a key that is larger for a figure that is worse: first those that miss, and unmeasured ones first."""
    figure = result.figure or 0.0
    return not result.passed, result.figure is None, -figure if "min" in result.limits else figure
