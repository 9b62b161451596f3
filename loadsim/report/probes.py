"""The tables of probes in a report's disclosure."""

from __future__ import annotations

from loadsim.analysis.probes import probe_facts, probe_figures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.model.terms import Window
from loadsim.report.document import Table, table_of


def probe_tables(run: RecordedRun) -> tuple[Table, ...]:
    """Return the figures of probes in the window, and where they come from; none without probes."""
    facts, figures = probe_facts(run.log), probe_figures(run.log, Window(*run.figures.window_s))
    if not facts and not figures:
        return ()
    return (
        table_of(
            "Probes: figures in the window, which are in no score",
            figures,
            ("Figure", None, lambda each: f"{each.probe}: {each.figure}"),
            ("Samples", 0, lambda each: each.samples),
            ("Mean", 2, lambda each: each.mean),
            ("Least", 2, lambda each: each.least),
            ("Most", 2, lambda each: each.most),
        ),
        table_of(
            "Sources of the probes",
            facts,
            ("Probe", None, lambda each: each.probe),
            ("Package", None, lambda each: each.package),
            ("Samples in the run", 0, lambda each: each.samples),
            ("Failed samples", 0, lambda each: each.failures),
            ("Last failure", None, lambda each: each.last_failure),
        ),
    )
