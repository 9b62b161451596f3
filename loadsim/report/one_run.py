"""The report on one run: the verdict, the figures behind it, and the test environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loadsim.analysis.failures import failures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.series.tasks import Bins, bins_of
from loadsim.report import run_charts
from loadsim.report.answer import (
    banner,
    criteria_of,
    facts_table,
    findings,
    headline,
    score_blocks,
)
from loadsim.report.answer_facts import facts, head
from loadsim.report.answer_tables import clients_table, command_table, due_table
from loadsim.report.document import Block, Chart, Document, Section, drawable, table_of
from loadsim.report.glossary import GLOSSARY
from loadsim.report.mail_flow import mail_blocks
from loadsim.report.probes import probe_averages, probe_tables
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.report.test_environment import disclosure_table, scenario_table

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
    " once, the generator may be."
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
            Section("Summary", tuple(_summary(run))),
            Section("Tasks" if run.figures.stress else "Score", _score(run)),
            *_over_time(run, bins),
            Section("Delivery of mail", mail_blocks(run, bins)),
            Section("Errors", _errors(run)),
            Section("Disclosure", _disclosure(run, notes)),
            GLOSSARY,
        ),
    )


def subtitle(run: RecordedRun) -> str:
    at = run.begun
    drivers = run.figures.by_protocol
    driver = f"driver{'s' * (len(drivers) > 1)} {', '.join(drivers)}" if drivers else None
    parts = (run.figures.run and f"Run {run.figures.run}", at and f"begun {at}", run.figures.server, driver)
    return "; ".join(filter(None, parts))


def _summary(run: RecordedRun) -> Iterator[Block]:
    """Yield what a reader needs who reads nothing else."""
    summary = run.summary
    yield from findings(summary)
    yield facts_table("What was run", head(run.figures))
    yield facts_table("What happened", facts(run.figures, summary.verdict.ended_early))
    if summary.criteria:
        yield criteria_of(summary)


def _score(run: RecordedRun) -> tuple[Block, ...]:
    blocks = [block for name in run.figures.by_protocol for block in score_blocks(run.summary, name)]
    return tuple(blocks) or ("The logs hold no task.",)


def _over_time(run: RecordedRun, bins: Bins) -> tuple[Section, ...]:
    figures, series = run.figures, run_charts.series_of(run, bins)
    resources = (resource_table(figures.resources), NO_PROOF) if figures.resources else ()
    shaded = "The window, which the tables above cover, is shaded." if run_charts.window_is_part(run, bins) else ""
    charts = [run_charts.server_and_generator(run, bins, series), run_charts.further_probes(run, bins, series)]
    load = _charts(charts, f"{TOGETHER} {shaded}".strip(), "The logs hold no task.")
    return (
        Section("Server and generator", (*load, *probe_averages(figures), *resources)),
        Section(
            "Service times over time",
            _charts(
                [run_charts.times_over_time(run, bins)],
                f"Each point covers {bins.width_s:g} s; {FEW_IN_A_STRETCH} {shaded}".strip(),
                "No task has a hit: there is no time to show.",
            ),
        ),
        *_due(run),
        Section("Protocol commands", _commands(run)),
        *([Section("Client machines", (clients_table(figures.per_client),))] if figures.per_client else []),
    )


def _charts(charts: Sequence[Chart], text: str, instead: str) -> tuple[Block, ...]:
    """Return the charts that show anything, below a text; `instead` if none does."""
    shown = [chart for chart in map(drawable, charts) if chart is not None]
    return (text, *shown) if shown else (instead,)


def _due(run: RecordedRun) -> Iterator[Section]:
    """Yield the outcomes of all due tasks for each driver; none for a closed loop."""
    if not run.figures.stress:
        modules = run.figures.by_protocol
        found = (due_table(f"Due against done, driver {name}", module.tasks) for name, module in modules.items())
        yield Section("Throughput", tuple(found))


def _commands(run: RecordedRun) -> tuple[Block, ...]:
    if not run.figures.commands:
        return ("The logs hold no commands.",)
    return (FROM_COMMAND, command_table(run.figures.commands, run.figures.window_s))


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
