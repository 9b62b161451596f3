"""The tables of tasks, commands and clients, and the sentences that belong to them, of answers and reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadsim.analysis.breakdown import Breakdown, TaskRow
from loadsim.analysis.figures import Coverage, DriverFigures
from loadsim.analysis.generator.per_client import ClientFigures
from loadsim.analysis.score import FEW_HITS, CommandFigures, TaskFigures
from loadsim.findings.formats import duration, known_decimals, rounded
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.report.document import Cell, Column, Table, table_of

FURTHER = (("90th", "p90_ms"), ("99th", "p99_ms"), ("99.9th", "p99_9_ms"), ("Max", "max_ms"))
"""The titles of further times, and their names."""


def score_table(
    caption: str,
    tasks: Sequence[TaskFigures | TaskRow],
    scores: tuple[Cell, Cell],
) -> Table:
    """Return LsLog's table of tasks with a row of the scores, and further times."""
    columns = [Column("Category"), Column("Weight", 0), Column("Hits", 0)]
    columns += [Column(title, "time") for title in ("50th", "95th", "Mean", "Std. Dev.", "Due 95th")]
    columns += [Column("Failed", 0), *(Column(title, "time") for title, _ in FURTHER), Column("95 % interval", "time")]
    rows: list[tuple[Cell, ...]] = [
        (
            task.task,
            f"{task.weight:g}" if task.weight else None,
            task.hits,
            task.service.p50_ms,
            task.service.p95_ms,
            task.service.mean_ms,
            task.service.stddev_ms,
            task.response.p95_ms,
            task.failed,
            *(getattr(task.service, name) for _, name in FURTHER),
            interval_words(task.interval_ms) if isinstance(task, TaskFigures) else None,
        )
        for task in tasks
    ]
    scored = [task for task in tasks if task.weight and task.hits]
    weight, hits = f"{sum(task.weight for task in scored):g}", sum(task.hits for task in scored)
    failed = sum(task.failed for task in tasks if task.weight)
    rows.append(("Weighted Avg", weight, hits, "", scores[0], "", "", scores[1], failed, *[""] * (len(FURTHER) + 1)))
    return Table(caption, tuple(columns), tuple(rows))


def scores_of(module: DriverFigures, *, invalid: bool) -> tuple[Cell, Cell]:
    """Return the score and the response score; those of an invalid run are not shown."""
    return (None, None) if invalid else (score_words(module, module.score_ms), module.response_score_ms)


def score_words(module: DriverFigures, time_ms: float | None) -> str:
    """Return the score, or an end of its interval, with the digits that the interval supports."""
    interval_ms = module.score_interval_ms
    if not module.score_ms or time_ms is None or interval_ms is None:
        return duration(time_ms)
    return f"{rounded(time_ms, known_decimals(module.score_ms, interval_ms))} ms"


def interval_words(bounds_ms: Sequence[float] | None) -> str | None:
    return None if bounds_ms is None else f"{duration(bounds_ms[0])} to {duration(bounds_ms[1])}"


def stress_table(caption: str, module: DriverFigures, window_s: Window) -> Table:
    """Return a table without weights and score; LOGON and LOGOFF have no window, and hence no rate."""
    length_s = window_s.length_s
    return table_of(
        caption,
        module.tasks,
        ("Category", None, lambda task: task.task),
        ("Hits", 0, lambda task: task.hits),
        ("Per s", 1, lambda task: None if task.task in WITHOUT_WINDOW else task.hits / length_s),
        ("50th", "time", lambda task: task.service.p50_ms),
        ("95th", "time", lambda task: task.service.p95_ms),
        ("Mean", "time", lambda task: task.service.mean_ms),
        ("Std. Dev.", "time", lambda task: task.service.stddev_ms),
        ("Failed", 0, lambda task: task.failed),
        ("99th", "time", lambda task: task.service.p99_ms),
        ("Max", "time", lambda task: task.service.max_ms),
    )


def due_table(caption: str, tasks: Sequence[TaskFigures]) -> Table:
    """Return the outcomes of all due tasks that have a window."""
    return table_of(
        caption,
        [task for task in tasks if task.done_per_s is not None],
        ("Category", None, lambda task: task.task),
        ("Due", 0, lambda task: task.planned),
        ("Begun", 0, lambda task: task.attempted),
        ("Succeeded", 0, lambda task: task.hits),
        ("Failed", 0, lambda task: task.failed),
        ("Failed by the generator", 0, lambda task: task.generator_failed),
        ("Still running", 0, lambda task: task.unfinished),
        ("Not begun", 0, lambda task: task.skipped),
        ("Hits per second", 2, lambda task: task.done_per_s),
    )


def parts_tables(found: Breakdown, *, invalid: bool) -> Iterator[Table]:
    """Yield a table for each part; the scores of an invalid run are left out."""
    modules = {one.module for one in found.tables}
    for one in found.tables:
        module = f", driver {one.module}" if len(modules) > 1 else ""
        caption = f"{found.what.capitalize()} {one.value}{module}"
        scores = (None, None) if invalid else (one.score_ms, one.response_score_ms)
        yield score_table(caption, one.tasks, scores)


def command_table(commands: Sequence[CommandFigures], window_s: Window) -> Table:
    return table_of(
        "Commands that began in the window",
        commands,
        ("Command", None, lambda one: one.command),
        ("Hits", 0, lambda one: one.hits),
        ("50th", "time", lambda one: one.took.p50_ms),
        ("95th", "time", lambda one: one.took.p95_ms),
        ("Max", "time", lambda one: one.took.max_ms),
        ("Mean", "time", lambda one: one.took.mean_ms),
        ("Std. Dev.", "time", lambda one: one.took.stddev_ms),
        ("Failed", 0, lambda one: one.failed),
        ("99th", "time", lambda one: one.took.p99_ms),
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
        ("Clock ahead (s)", 3, lambda one: one.clock_ahead_s),
        ("Clock fast (ppm)", 1, lambda one: one.clock_fast_ppm),
    )


# --- sentences below a table of tasks ---


def covers(covers: Coverage) -> str:
    if not covers.scored:
        return "There is no score: no task with a weight has a hit."
    line = f"The score covers {', '.join(covers.scored)}"
    if covers.without_hits:
        line += f"; without hits: {', '.join(covers.without_hits)}"
    if covers.not_planned:
        line += f"; never due in the window: {', '.join(covers.not_planned)}"
    return line + "."


def certainty(module: DriverFigures) -> Iterator[str]:
    """Yield how exact the score is."""
    if module.provisional:
        few = [f"{task.task} {task.hits}" for task in module.tasks if task.task in module.covers.few_hits]
        yield f"The score is provisional, with fewer than {FEW_HITS} hits: {', '.join(few)}."
    if module.score_interval_ms:
        low, high = (score_words(module, end_ms) for end_ms in module.score_interval_ms)
        yield (
            f"95 % confidence interval of the score within this run: {low.removesuffix(' ms')} to {high}"
            f" (valid for slow spells of up to {module.spell_s:.3g} s that occur ten times or more)."
        )
    elif module.score_ms is not None:
        yield f"No confidence interval of the score: {module.no_score_interval}."


def of_whole_run(module: DriverFigures) -> Iterator[str]:
    """Yield a note on the tasks of a table that belong to no window."""
    tasks = [task for task in WITHOUT_WINDOW if any(row.task == task for row in module.tasks)]
    if tasks:
        yield f"{' and '.join(tasks)} {'is' if len(tasks) == 1 else 'are'} of the whole run, not of the window."
