"""The report on one run: the verdict, the figures behind it, and the test environment."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.failures import failures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.series.health import probe_series
from loadsim.analysis.series.tasks import bins_of
from loadsim.report import run_charts
from loadsim.report.answer import describe_answer
from loadsim.report.audit import audit_blocks
from loadsim.report.disclosure import disclosure_table, scenario_table
from loadsim.report.document import Block, Chart, Document, Section, drawable, table_of
from loadsim.report.mail_flow import mail_blocks
from loadsim.report.probes import probe_tables


def describe_run(run: RecordedRun) -> Document:
    bins = bins_of(run.log)
    probes, scenario = probe_series(run.log, bins), (scenario_table(run.scenario),) if run.scenario else ()
    charts = [run_charts.server_and_generator(run, bins, probes), run_charts.further_probes(run, bins, probes)]
    return describe_answer(
        run.summary,
        run.begun,
        _charts([run_charts.at_a_glance(run, bins)]),
        (
            Section("Server and generator", _charts(charts)),
            Section(
                "Service times over time",
                _charts(
                    [run_charts.times_over_time(run, bins)],
                    f"Each point covers {bins.width_s:g} s; with fewer than 20 samples, its 95th percentile is the"
                    " maximum.",
                    "No task has a hit: there is no time to show.",
                ),
            ),
        ),
        (
            Section("Delivery of mail", mail_blocks(run, bins)),
            Section("Audit of the mail", audit_blocks(run.log.audit)),
            Section("Errors", _errors(run)),
            Section("Disclosure", (disclosure_table(run), *probe_tables(run), *scenario)),
        ),
    )


def _charts(charts: Sequence[Chart], text: str = "", instead: str = "The logs hold no task.") -> tuple[Block, ...]:
    """Return the charts that show anything, above a text; `instead` if none does."""
    shown = [chart for chart in map(drawable, charts) if chart is not None]
    return (*shown, *([text] if text else [])) if shown else (instead,)


def _errors(run: RecordedRun) -> tuple[Block, ...]:
    found = table_of(
        "Failures over the whole run, the most frequent first (see events.jsonl)",
        failures(run),
        ("Kind", None, lambda one: one.kind or None),
        ("Task", None, lambda one: one.task),
        ("Outcome", None, lambda one: one.outcome),
        ("Times", 0, lambda one: one.times),
        ("In the window", 0, lambda one: one.in_window),
        ("First at (s)", 1, lambda one: one.first_s),
        ("First line from the server", None, lambda one: one.line or None),
    )
    return (found,) if found.rows else ("Nothing failed.",)
