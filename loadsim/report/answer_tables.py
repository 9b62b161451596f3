"""An answer's tables: tasks, commands, clients and criteria."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from loadsim.analysis.criteria import Result, may_judge
from loadsim.findings.formats import duration
from loadsim.model.figures import ClientFigures, CommandFigures, DriverFigures, TaskFigures
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.report.document import MET, MISSED, UNJUDGED, Cell, Column, ColumnOf, Table, table_of

TIMES = (("50th", "p50_ms"), ("95th", "p95_ms"))
FURTHER = (
    ("Mean", "mean_ms"),
    ("Std. Dev.", "stddev_ms"),
    ("90th", "p90_ms"),
    ("99th", "p99_ms"),
    ("99.9th", "p99_9_ms"),
    ("Max", "max_ms"),
)
"""The titles and names of times. Narrow terminals leave out the last columns, so failures precede `FURTHER`."""


def _times(times: Iterable[tuple[str, str]], of: str) -> list[ColumnOf[Any]]:
    """Return columns of statistics; `of` is the attribute that holds the times."""
    return [(title, "time", attrgetter(f"{of}.{name}")) for title, name in times]


def score_table(caption: str, tasks: Sequence[TaskFigures], scores: tuple[Cell, Cell]) -> Table:
    """Return LsLog's table of tasks, with a row for the scores and with further times."""
    table = table_of(
        caption,
        tasks,
        ("Category", None, lambda task: task.task),
        ("Weight", 0, lambda task: f"{task.weight:g}" if task.weight else None),
        ("Hits", 0, lambda task: task.hits),
        *_times(TIMES, "service"),
        ("From due", "time", lambda task: task.response.p95_ms),
        ("Failed", 0, lambda task: task.failed),
        *_times(FURTHER, "service"),
        ("95 % interval", "time", lambda task: interval_words(task.interval_ms)),
    )
    scored = [task for task in tasks if task.weight and task.hits]
    weight, hits = f"{sum(task.weight for task in scored):g}", sum(task.hits for task in scored)
    failed = sum(task.failed for task in tasks if task.weight)
    average = ("Score, weighted", weight, hits, "", scores[0], scores[1], failed, *[""] * (len(FURTHER) + 1))
    return replace(table, rows=(*table.rows, average))


def scores_of(driver: DriverFigures, *, invalid: bool) -> tuple[Cell, Cell]:
    """Return the score and the response score, or nothing for an invalid run."""
    return (None, None) if invalid else (driver.score_ms, driver.response_score_ms)


def interval_words(bounds_ms: Sequence[float] | None) -> str | None:
    return None if bounds_ms is None else f"{duration(bounds_ms[0])} to {duration(bounds_ms[1])}"


def stress_table(caption: str, driver: DriverFigures, window_s: Window) -> Table:
    """Return a table without weights and score; LOGON, FIRST SYNC and LOGOFF have no window, hence no rate."""
    return table_of(
        caption,
        driver.tasks,
        ("Category", None, lambda task: task.task),
        ("Hits", 0, lambda task: task.hits),
        ("Per s", 1, lambda task: None if task.task in WITHOUT_WINDOW else task.hits / window_s.length_s),
        *_times(TIMES, "service"),
        ("Failed", 0, lambda task: task.failed),
        *_times(FURTHER, "service"),
    )


def due_table(caption: str, tasks: Sequence[TaskFigures]) -> Table:
    return table_of(
        caption,
        [task for task in tasks if task.done_per_s is not None],
        ("Category", None, lambda task: task.task),
        ("Due", 0, lambda task: task.planned),
        ("Begun", 0, lambda task: task.attempted),
        ("Succeeded", 0, lambda task: task.hits),
        ("Failed", 0, lambda task: task.failed),
        *([("Interrupted", 0, lambda task: task.interrupted)] if any(task.interrupted for task in tasks) else []),
        ("Failed by the generator", 0, lambda task: task.generator_failed),
        ("Still running", 0, lambda task: task.unfinished),
        ("Not begun", 0, lambda task: task.skipped),
        ("Hits per second", 2, lambda task: task.done_per_s),
    )


def command_table(commands: Sequence[CommandFigures], window_s: Window) -> Table:
    return table_of(
        "Commands that began in the window",
        commands,
        ("Command", None, lambda one: one.command),
        ("Hits", 0, lambda one: one.hits),
        *_times(TIMES, "took"),
        ("Failed", 0, lambda one: one.failed),
        *_times(FURTHER, "took"),
        ("Per second", 1, lambda one: one.hits / window_s.length_s),
    )


def clients_table(clients: Sequence[ClientFigures]) -> Table:
    return table_of(
        "Client machines, each with its worst engine; start: delay relative to the scheduled start",
        clients,
        ("Client", None, lambda one: one.client),
        ("Users", 0, lambda one: one.users),
        ("Lost", 0, lambda one: one.lost_users),
        ("By itself", None, lambda one: one.validity),
        ("Engines", 0, lambda one: one.engines),
        ("Lag 99th", "time", lambda one: one.lag_p99_ms),
        ("CPU (% of a core)", 0, lambda one: None if one.cpu_share is None else 100 * one.cpu_share),
        ("Late 95th", "time", lambda one: one.lateness_p95_ms),
        ("Start (ms)", 2, lambda one: one.start_late_ms),
        ("give or take", 2, lambda one: one.start_error_ms),
    )


def facts_table(caption: str, found: Iterable[tuple[str, str]]) -> Table:
    return Table(caption, (Column("Fact"), Column("Value")), tuple(found))


NOT_SHOWN = "not shown: the run is invalid"
"""Replaces times of an invalid run."""


def criteria_tables(results: Sequence[Result], ended_early: bool = False, valid: bool = True) -> Iterator[Table]:
    """Yield a table of the criteria that were not met, and a folded table of the others.

    Each criterion has a row. Tasks that share a criterion share its row, which shows the worst of them.

    A run that is not `valid` meets no criterion. Those that it misses are shown, as they help explain why; other times
    are not.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        name = f"{result.name.rpartition('.')[2]} of each task" if result.each else result.name
        groups.setdefault((name, result.wanted), []).append(result)
    rows: list[tuple[Cell, ...]] = []
    for (name, wanted), group in groups.items():
        worst, misses = max(group, key=_distance), [result for result in group if not result.passed]
        shown = valid or bool(misses) or not worst.name.endswith("_ms")
        found = worst.found if shown else NOT_SHOWN
        if worst.each and shown:
            if any(result.figure != worst.figure for result in group):
                found += f" ({worst.name.rpartition('.')[0].removeprefix('tasks.')}, the worst)"
            found += f"; {len(misses)} missed" if len(misses) > 1 else ""
        known = any(may_judge(result, ended_early) for result in misses) if misses else valid
        rows.append((name, found, wanted, (MISSED if misses else MET) if known else UNJUDGED))
    columns = (Column("Criterion"), Column("Found"), Column("Wanted"), Column("Result"))
    met = tuple(row for row in rows if row[-1] == MET)
    if len(met) < len(rows):
        yield Table("Missed or not judged", columns, tuple(row for row in rows if row[-1] != MET))
    if met:
        yield Table(f"Met: {len(met)}", columns, met, folded=True)


def _distance(result: Result) -> tuple[bool, bool, float]:
    """Return a key that is larger the worse a figure is: missed is worse than met, and unmeasured is worst."""
    figure = result.figure or 0.0
    return not result.passed, result.figure is None, -figure if "min" in result.limits else figure
