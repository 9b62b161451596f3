"""The report on one run: the verdict, the figures behind it, and the test environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from loadsim.analysis.failures import failures
from loadsim.analysis.figures import DriverFigures, Figures, TaskFigures
from loadsim.analysis.json_values import finite
from loadsim.analysis.per_client import ClientFigures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.throughput import Throughput
from loadsim.analysis.time_series import Bins, bins_of
from loadsim.report import run_charts
from loadsim.report.answer import certainty
from loadsim.report.answer_facts import companions, inbox, tasks_line
from loadsim.report.answer_tables import covers, of_whole_run
from loadsim.report.banner import banner
from loadsim.report.digits import count, duration, percent
from loadsim.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    ColumnOf,
    Document,
    Section,
    Table,
    drawable,
    table_of,
)
from loadsim.report.first_screen import first_screen
from loadsim.report.glossary import glossary
from loadsim.report.key_figures import headline, interval_words, of_module
from loadsim.report.mail_flow import mail_blocks
from loadsim.report.probes import probe_averages, probe_tables
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.report.test_environment import disclosure_table, scenario_table

TIMES = (
    ("p50_ms", "Median"),
    ("p95_ms", "95th percentile"),
    ("p99_ms", "99th percentile"),
    ("max_ms", "Maximum"),
    ("mean_ms", "Mean"),
    ("stddev_ms", "Standard deviation"),
)
"""The times of a task or a command and the titles of their columns; curves show all percentiles."""

FROM_COMMAND = (
    "Tasks consist of these commands. Times are of the commands that succeeded, until the last byte of the response."
    " IDLE lasts until the server's continuation request; DONE ends it."
)

FEW_IN_A_STRETCH = "where a point has fewer than 20 samples, its 95th percentile is the maximum."

OUTCOME_WORDS = {
    "refused": "refused by the server",
    "lost": "connection broke",
    "timeout": "timed out",
    "unfinished": "still running at the end",
    "skipped": "never begun",
    "generator": "failed by the generator",
}

TOGETHER = (
    "If answers grow slower while the generator is neither busy nor late, the server is the limit. If both happen at"
    " once, the generator may be: look at its section."
)


def describe_run(run: RecordedRun, notes: Mapping[str, str]) -> Document:
    """Return the report; `notes` are facts that only the user knows, such as the server's storage."""
    figures, bins = run.figures, bins_of(run.log)
    return Document(
        title=f"{figures.name or 'A run'}: {headline(figures, run.summary.verdict.validity)}",
        subtitle=subtitle(run),
        verdict=banner(run.summary),
        tone=run.summary.tone,
        sections=(
            Section("Summary", first_screen(run)),
            Section("Tasks" if run.figures.stress else "Score", _score(run)),
            *_over_time(run, bins),
            Section("Delivery of mail", (*inbox(figures), *mail_blocks(run, bins))),
            Section("Errors", _errors(run)),
            Section("Disclosure", _disclosure(run, notes)),
            glossary(run.figures.stress),
        ),
    )


def subtitle(run: RecordedRun) -> str:
    at = begun(run)
    part = run.figures.slice and f"slice {run.figures.slice} only"
    drivers = run.figures.by_protocol
    driver = f"driver{'s' * (len(drivers) > 1)} {', '.join(drivers)}" if drivers else None
    parts = (run.figures.run and f"Run {run.figures.run}", part, at and f"begun {at}", run.figures.server, driver)
    return "; ".join(filter(None, parts))


def begun(run: RecordedRun) -> str:
    """Return when the first engine began; "" if unknown."""
    engines = (source for source in run.log.sources if not source.is_monitor)
    first = min((source.wall_clock_start for source in engines if source.wall_clock_start), default="")
    with suppress(ValueError):  # a foreign value is shown unchanged
        at = datetime.fromisoformat(first)
        first = f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S} UTC"
    return first


def _score(run: RecordedRun) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if run.figures.throughput is not None:
        blocks.append(_throughput_table(run.figures.throughput))
    for name, module in run.figures.by_protocol.items():
        blocks.append(_task_table(run, name, module))
        if not run.figures.stress:
            blocks += covers(module.covers)
            blocks += certainty(run.summary, name)
        blocks += of_whole_run(module)
    return tuple(blocks) if run.figures.by_protocol else (*blocks, "The logs hold no task.")


def _throughput_table(found: Throughput) -> Table:
    rows: list[tuple[Cell, ...]] = [
        ("Tasks that succeeded", found.tasks_per_s),
        ("Messages", found.messages_per_s),
        ("Deliveries", found.deliveries_per_s),
        *((f"{service} commands", per_s) for service, per_s in found.commands.items()),
    ]
    return Table("Throughput of a closed loop", (Column("What"), Column("Per second", 1)), tuple(rows))


def _task_table(run: RecordedRun, name: str, module: DriverFigures) -> Table:
    tasks = module.tasks
    # In a closed loop nothing is due.
    times = TIMES if run.figures.stress else (*TIMES, ("response_p95_ms", "95th percentile from due time"))
    weights = () if run.figures.stress else (Column("Weight", 0),)
    certain = any(task.interval_ms for task in tasks)
    interval = (Column("95 % interval of the 95th percentile", "time"),) if certain else ()
    counted = (Column("Hits", 0), *(Column(title, "time") for _, title in times), Column("Failed", 0), *interval)
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        weight = () if run.figures.stress else (f"{task.weight:g}" if task.weight else None,)
        lies_in = (interval_words(task.interval_ms),) if certain else ()
        rows.append((task.task, *weight, task.hits, *(_time(task, key) for key, _ in times), task.failed, *lies_in))
    invalid = run.summary.verdict.validity == "invalid"
    if not run.figures.stress:
        lies_in = (None if invalid else interval_words(module.score_interval_ms),) if certain else ()
        rows.append((*_weighted(module, [key for key, _ in times], invalid=invalid), *lies_in))
    no_result = "; the run is invalid: these times are no result" if invalid else ""
    caption = f"Service times of {count(module.users, 'user')} through the driver {name}{no_result}"
    return Table(caption, (Column("Task"), *weights, *counted), tuple(rows))


def _time(task: TaskFigures, key: str) -> Cell:
    own = key.removeprefix("response_")
    return finite(getattr(task.service if own == key else task.response, own))


def _weighted(module: DriverFigures, keys: Sequence[str], *, invalid: bool) -> tuple[Cell, ...]:
    """Return the row of the scores, which are not shown if the run is invalid."""
    scored = [task for task in module.tasks if task.weight and task.hits]
    averages: dict[str, Cell] = {"p95_ms": module.score_ms, "response_p95_ms": finite(module.response_score_ms)}
    if invalid:
        averages = dict.fromkeys(averages, "-")
    times = (averages.get(key, "") for key in keys)
    weight = f"{sum(task.weight for task in scored):g}"
    failed = sum(task.failed for task in module.tasks if task.weight)
    return ("Weighted average", weight, sum(task.hits for task in scored), *times, failed)


def _over_time(run: RecordedRun, bins: Bins) -> tuple[Section, ...]:
    tasks, series = run_charts.tasks_of(run, bins), run_charts.series_of(run, bins)
    shaded = "The window, which the tables above cover, is shaded." if run_charts.window_is_part(run, bins) else ""
    return (
        Section(
            "Server and generator",
            _charts(
                [
                    run_charts.server_and_generator(run, bins, series),
                    run_charts.further_probes(run, bins, series),
                ],
                f"{TOGETHER} {shaded}".strip(),
                "The logs hold no task.",
            )
            + _probed(run.figures),
        ),
        Section(
            "Service times over time",
            _charts(
                [run_charts.times_over_time(run, bins, tasks)],
                f"Each point covers {bins.width_s:g} s; {FEW_IN_A_STRETCH} {shaded}".strip(),
                "No task has a hit: there is no time to show.",
            ),
        ),
        Section(
            "Throughput",
            (tasks_line(run.figures), *companions(run.figures), *_planned_tables(run)),
        ),
        Section("Protocol commands", _commands(run)),
        Section("The generator", _generator(run)),
    )


def _probed(figures: Figures) -> tuple[Block, ...]:
    """Return the tables of probes that belong to the window: averages, and resources."""
    resources = (resource_table(figures.resources), NO_PROOF) if figures.resources else ()
    return (*probe_averages(figures), *resources)


def _charts(charts: Sequence[Chart], text: str, instead: str) -> tuple[Block, ...]:
    """Return the charts that show anything, below a text; `instead` if none does."""
    shown = [chart for chart in map(drawable, charts) if chart is not None]
    return (text, *shown) if shown else (instead,)


def _planned_tables(run: RecordedRun) -> tuple[Table, ...]:
    """Return a table of the outcomes of all due tasks for each driver; none for a closed loop."""
    if run.figures.stress:
        return ()
    own = any(task.generator_failed for module in run.figures.by_protocol.values() for task in module.tasks)
    by_generator: ColumnOf[TaskFigures] = (
        "Failed by the generator",
        0,
        lambda task: task.generator_failed,
    )
    return tuple(
        table_of(
            f"Due against done, by task{of_module(run, name)}",
            [task for task in module.tasks if task.done_per_s is not None],
            ("Task", None, lambda task: task.task),
            ("Due", 0, lambda task: task.planned),
            ("Begun", 0, lambda task: task.attempted),
            ("Succeeded", 0, lambda task: task.hits),
            ("Succeeded (%)", 1, lambda task: 100 * (task.done_share or 0)),
            ("Failed", 0, lambda task: task.failed),
            ("Failed (%)", 1, lambda task: 100 * (task.failed_share or 0)),
            *([by_generator] if own else []),
            ("Still running", 0, lambda task: task.unfinished),
            ("Not begun", 0, lambda task: task.skipped),
            ("Hits per second", 2, lambda task: task.done_per_s),
        )
        for name, module in run.figures.by_protocol.items()
    )


def _clients(clients: Sequence[ClientFigures]) -> tuple[Table, ...]:
    found = table_of(
        "Client machines, each with its worst engine",
        clients,
        ("Client", None, lambda one: one.client),
        ("Users", 0, lambda one: one.users),
        ("Lost users", 0, lambda one: one.lost_users),
        ("Engines", 0, lambda one: one.engines),
        ("Start delay", "time", lambda one: one.start_late_ms),
        ("Uncertainty", "time", lambda one: one.start_error_ms),
        ("Clock ahead (s)", 3, lambda one: one.clock_ahead_s),
        ("Clock fast (ppm)", 1, lambda one: one.clock_fast_ppm),
        ("Event loop's lag, 99th percentile", "time", lambda one: one.lag_p99_ms),
        ("CPU (% of a core)", 0, lambda one: None if one.cpu_share is None else 100 * one.cpu_share),
        ("Lateness, 95th percentile", "time", lambda one: one.lateness_p95_ms),
        ("By itself", None, lambda one: one.validity),
    )
    return (found,) if clients else ()


def _commands(run: RecordedRun) -> tuple[Block, ...]:
    if not run.figures.commands:
        return ("The logs hold no commands.",)
    begin_s, end_s = run.figures.window_s
    times = (Column(title, "time") for _, title in TIMES)
    columns = (Column("Command"), Column("Hits", 0), Column("Per second", 1), *times, Column("Failed", 0))
    rows = tuple(
        (one.command, one.hits, one.hits / (end_s - begin_s), *(getattr(one.took, key) for key, _ in TIMES), one.failed)
        for one in run.figures.commands
    )
    return (FROM_COMMAND, Table("Commands that began in the window", columns, rows))


def _generator(run: RecordedRun) -> tuple[Block, ...]:
    figures, worst = run.figures, run.figures.generator
    blocks: list[Block] = [*_clients(figures.per_client)]
    if not run.figures.stress:
        late = figures.lateness_p95_ms
        rows = (
            ("The user was still busy", late.busy, "server"),
            ("The session was down", late.down, "server"),
            ("The generator was late", late.generator, "loadsim"),
        )
        columns = (Column("Cause"), Column("95th percentile", "time"), Column("Attributed to"))
        blocks.append(Table("How late tasks began in the window", columns, rows))
    own: tuple[tuple[Cell, ...], ...] = (
        ("Event loop's lag, median", _or_unknown(worst.lag_p50_ms, duration)),
        ("Event loop's lag, 99th percentile", _or_unknown(worst.lag_p99_ms, duration)),
        ("Allowed 99th percentile", _or_unknown(worst.lag_limit_ms, duration)),
        ("Event loop's lag, maximum", _or_unknown(worst.lag_max_ms, duration)),
        ("Share of a core", _or_unknown(worst.cpu_share, percent)),
        ("Memory", _or_unknown(worst.rss_bytes, lambda size_bytes: f"{size_bytes / 2**20:,.0f} MiB")),
        ("Longest pause of the garbage collector", _or_unknown(worst.gc_max_ms, duration)),
    )
    blocks.append(Table("The worst of any engine in the window", (Column("Figure"), Column("Found")), own))
    return tuple(blocks)


def _or_unknown(figure: float | None, shown: Callable[[float], str]) -> str | None:
    return None if figure is None else shown(figure)


def _errors(run: RecordedRun) -> tuple[Block, ...]:
    found = table_of(
        "Failures over the whole run, the most frequent first",
        failures(run),
        ("Kind", None, lambda one: one.kind or None),
        ("Task", None, lambda one: one.task),
        ("Outcome", None, lambda one: OUTCOME_WORDS.get(one.outcome, one.outcome)),
        ("Times", 0, lambda one: one.times),
        ("In the window", 0, lambda one: one.in_window),
        ("First at (s)", 1, lambda one: one.first_s),
        ("First line from the server", None, lambda one: one.line or None),
    )
    return (found,) if found.rows else ("Nothing failed.",)


def _disclosure(run: RecordedRun, notes: Mapping[str, str]) -> tuple[Block, ...]:
    tables = disclosure_table(run, notes), *probe_tables(run)
    return (*tables, scenario_table(run.scenario)) if run.scenario else tables
