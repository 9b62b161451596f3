"""The tables of an answer as plain text, with the lines that belong to them. Times are in milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadsim.analysis.breakdown import Breakdown, TaskRow
from loadsim.analysis.figures import Coverage, DriverFigures, TaskFigures
from loadsim.analysis.per_client import ClientFigures
from loadsim.analysis.score import FEW_HITS, CommandFigures
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.report.digits import NEVER, known_decimals, rounded, time_digits
from loadsim.report.document import Table, table_of
from loadsim.report.table import shown_rows, table

COLUMNS = ("Category", "Weight", "Hits", "50th", "95th", "Mean", "Std. Dev.", "Due 95th", "Failed")


def score_rows(module: DriverFigures, *, invalid: bool = False) -> list[Sequence[str]]:
    """Return the table of a driver's tasks and its scores; those of an invalid run are left out, as in the report."""
    scores = (None, None) if invalid else (module.score_ms, module.response_score_ms)
    return _rows(module.tasks, *scores, _decimals(module))


def _rows(
    tasks: Sequence[TaskFigures | TaskRow],
    score_ms: float | None,
    response_score_ms: float | None,
    decimals: int | None = None,
) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [COLUMNS]
    rows += [
        (
            task.task,
            f"{task.weight:g}" if task.weight else "-",
            f"{task.hits:,}",
            *map(ms, (task.service.p50_ms, task.service.p95_ms, task.service.mean_ms, task.service.stddev_ms)),
            ms(task.response.p95_ms),
            f"{task.failed:,}",
        )
        for task in tasks
    ]
    scored = [task for task in tasks if task.weight and task.hits]
    rows.append(
        (
            "Weighted Avg",
            f"{sum(task.weight for task in scored):g}",
            f"{sum(task.hits for task in scored):,}",
            "",
            ms(score_ms, decimals),
            "",
            "",
            ms(response_score_ms),
            f"{sum(task.failed for task in tasks if task.weight):,}",
        )
    )
    return rows


def stress_table(module: DriverFigures, window_s: Window) -> Table:
    """Return a table without weights and score; LOGON and LOGOFF have no window, and hence no rate."""
    length_s = window_s.length_s
    return table_of(
        "",
        module.tasks,
        ("Category", None, lambda task: task.task),
        ("Hits", None, lambda task: f"{task.hits:,}"),
        ("Per s", 1, lambda task: None if task.task in WITHOUT_WINDOW else task.hits / length_s),
        ("50th", 1, lambda task: task.service.p50_ms),
        ("95th", 1, lambda task: task.service.p95_ms),
        ("Mean", 1, lambda task: task.service.mean_ms),
        ("Std. Dev.", 1, lambda task: task.service.stddev_ms),
        ("Failed", None, lambda task: f"{task.failed:,}"),
    )


def beyond_table(module: DriverFigures) -> Table:
    return table_of(
        "",
        module.tasks,
        ("Category", None, lambda task: task.task),
        ("Due", None, lambda task: f"{task.planned:,}"),
        ("Ended", None, lambda task: f"{task.done:,}"),
        ("Per s", 1, lambda task: task.done_per_s),
        ("90th", 1, lambda task: task.service.p90_ms),
        ("99th", 1, lambda task: task.service.p99_ms),
        ("99.9th", 1, lambda task: task.service.p99_9_ms),
        ("Max", 1, lambda task: task.service.max_ms),
        ("95th from", 1, lambda task: task.interval_ms and task.interval_ms[0]),
        ("to", 1, lambda task: task.interval_ms and task.interval_ms[1]),
        ("Due 50th", 1, lambda task: task.response.p50_ms),
        ("99th", 1, lambda task: task.response.p99_ms),
        ("Max", 1, lambda task: task.response.max_ms),
    )


BEYOND_LEGEND = (
    "From, to: 95 % confidence interval of the 95th percentile. Due 50th, 99th, Max: from the due time.",
    "Ended: succeeded or failed. Per s: succeeded, per second.",
)


def breakdown_text(found: Breakdown, *, invalid: bool) -> list[str]:
    """Return a table for each part; the scores of an invalid run are left out."""
    lines = []
    modules = {one.module for one in found.tables}
    for one in found.tables:
        module = f", driver {one.module}" if len(modules) > 1 else ""
        lines.append(f"{found.what.capitalize()} {one.value}{module}")
        scores = (None, None) if invalid else (one.score_ms, one.response_score_ms)
        lines += [*table(_rows(one.tasks, *scores)), ""]
    return lines


def command_table(commands: Sequence[CommandFigures]) -> Table:
    return table_of(
        "",
        commands,
        ("Command", None, lambda one: one.command),
        ("Hits", None, lambda one: f"{one.hits:,}"),
        ("50th", 1, lambda one: one.took.p50_ms),
        ("95th", 1, lambda one: one.took.p95_ms),
        ("Max", 1, lambda one: one.took.max_ms),
        ("Mean", 1, lambda one: one.took.mean_ms),
        ("Std. Dev.", 1, lambda one: one.took.stddev_ms),
        ("Failed", None, lambda one: f"{one.failed:,}"),
    )


def clients_text(clients: Sequence[ClientFigures], width: int | None = None) -> list[str]:
    """Return a table of the client machines after a blank line; nothing for a single machine."""
    if not clients:
        return []
    found = table_of(
        "",
        clients,
        ("Client", None, lambda one: one.client),
        ("Users", None, lambda one: f"{one.users:,}"),
        ("Lost", None, lambda one: f"{one.lost_users:,}"),
        ("Engines", None, lambda one: one.engines),
        ("Start", None, lambda one: None if one.start_late_ms is None else f"{one.start_late_ms:+.2f}"),
        ("give or take", 2, lambda one: one.start_error_ms),
        ("Lag 99th", 1, lambda one: one.lag_p99_ms),
        ("CPU", None, lambda one: None if one.cpu_share is None else f"{one.cpu_share:.0%}"),
        ("Late 95th", 1, lambda one: one.lateness_p95_ms),
        ("By itself", None, lambda one: one.validity),
    )
    return [
        "",
        *fitting(shown_rows(found), width, LEAST_NEEDED_OF_CLIENTS),
        "Start: delay relative to the scheduled start, in ms. Lag and CPU: of the client's worst engine.",
    ]


def covers(covers: Coverage) -> list[str]:
    if not covers.scored:
        return ["There is no score: no task with a weight has a hit."]
    line = f"The score covers {', '.join(covers.scored)}"
    if covers.without_hits:
        line += f"; without hits: {', '.join(covers.without_hits)}"
    if covers.not_planned:
        line += f"; never due in the window: {', '.join(covers.not_planned)}"
    return [line + "."]


def certainty_of(module: DriverFigures) -> list[str]:
    """Return how exact the score is."""
    lines = []
    if module.provisional:
        lines.append(f"The score is provisional, with fewer than {FEW_HITS} hits: {', '.join(few_tasks(module))}.")
    if module.score_interval_ms:
        low, high = (ms(end_ms, _decimals(module)) for end_ms in module.score_interval_ms)
        lines.append(
            f"95 % confidence interval of the score within this run: {low} to {high} ms"
            f" (valid for slow spells of up to {module.spell_s:.3g} s that occur ten times or more)."
        )
    elif module.score_ms is not None:
        lines.append(f"No confidence interval of the score: {module.no_score_interval}.")
    return lines


def few_tasks(module: DriverFigures) -> list[str]:
    """Return the scored tasks whose few hits make the score provisional, each with its hits."""
    return [f"{task.task} {task.hits}" for task in module.tasks if task.task in module.covers.few_hits]


LEAST_NEEDED = (6, 5, 3, 1)
"""The columns that a narrow score table lacks, the first ones first: Std. Dev., Mean, 50th, Weight."""

LEAST_NEEDED_OF_CLIENTS = (5, 8, 4, 7, 3)
"""Columns that a narrow table of clients lacks: give or take, Late 95th, Start, CPU, Engines."""


def fitting(rows: Sequence[Sequence[str]], width: int | None, least_needed: Sequence[int] = LEAST_NEEDED) -> list[str]:
    """Return the lines of a table, without columns that do not fit into `width` (None: with all)."""
    lines = table(rows)
    for count in range(1, len(least_needed) + 1):
        if width is None or max(map(len, lines)) <= width:
            break
        left = [at for at in range(len(rows[0])) if at not in least_needed[:count]]
        lines = table([[row[at] for at in left] for row in rows])
    return lines


def legend(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the meaning of a score table's columns and words."""
    never = any(cell == NEVER for row in rows for cell in row)
    words = f"; {NEVER}: too many tasks failed or were not done" if never else ""
    return [
        "Times are in milliseconds, those with s in seconds. Due: from the instant at which a task was due, when its"
        f" user may still be busy{words}."
    ]


def of_whole_run(module: DriverFigures) -> list[str]:
    """Return a note on the tasks of a table that belong to no window."""
    tasks = [task for task in WITHOUT_WINDOW if any(row.task == task for row in module.tasks)]
    if not tasks:
        return []
    return [f"{' and '.join(tasks)} {'is' if len(tasks) == 1 else 'are'} of the whole run, not of the window."]


def _decimals(module: DriverFigures) -> int | None:
    """Return the number of decimals of the score that its interval supports; None without one."""
    interval_ms = module.score_interval_ms
    return known_decimals(module.score_ms, interval_ms) if module.score_ms and interval_ms else None


def ms(time_ms: float | None, decimals: int | None = None) -> str:
    """Return a time in a table; with `decimals`, so many digits after the point."""
    if time_ms is None:
        return "-"
    if math.isinf(time_ms):
        return NEVER
    return time_digits(time_ms) if decimals is None else rounded(time_ms, decimals)
