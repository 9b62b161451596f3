"""The tables of probes in a report: all figures, and their sources."""

from __future__ import annotations

from dataclasses import replace

from loadsim.analysis.probes.statistics import probe_facts
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.document import Table, table_of


def probe_tables(run: RecordedRun) -> tuple[Table, ...]:
    """Return the figures of probes in the window, and where they come from; none without probes."""
    facts = probe_facts(run.log)
    figures = [
        (f"{probe}: {name}", one) for probe, own in (run.figures.probes or {}).items() for name, one in own.items()
    ]
    if not facts and not figures:
        return ()
    all_figures = table_of(
        "Probes: figures in the window, which are in no score",
        figures,
        ("Figure", None, lambda row: row[0]),
        ("Samples", 0, lambda row: row[1].samples),
        ("Mean", 2, lambda row: row[1].mean),
        ("95th percentile", 2, lambda row: row[1].p95),
        ("Least", 2, lambda row: row[1].min),
        ("Most", 2, lambda row: row[1].max),
    )
    return (
        replace(all_figures, folded=True),
        *_monitors(run),
        table_of(
            "Sources of the probes",
            facts.items(),
            ("Probe", None, lambda row: row[0]),
            ("Package", None, lambda row: row[1].package),
            ("Samples taken", 0, lambda row: row[1].samples),
            ("Failed samples", 0, lambda row: row[1].failures),
            ("Last failure", None, lambda row: row[1].last_failure),
        ),
    )


def _monitors(run: RecordedRun) -> tuple[Table, ...]:
    """Return the files of monitors, and how exactly their samples are placed; none without any."""
    found = table_of(
        "Files of loadsim monitor",
        [(source, source.monitor) for source in run.log.sources if source.monitor],
        ("Monitor", None, lambda row: row[0].client),
        ("From (s)", 1, lambda row: row[1].span_s and row[1].span_s[0]),
        ("To (s)", 1, lambda row: row[1].span_s and row[1].span_s[1]),
        ("Has an end", None, lambda row: "yes" if row[0].ended else "no"),
        ("Error of its clock", "time", lambda row: row[1].error_ms),
    )
    return (found,) if found.rows else ()
