"""The tables of probes in a report: averages over the window, all figures, and their sources."""

from __future__ import annotations

from dataclasses import replace

from loadsim.analysis.figures import Figures
from loadsim.analysis.probes.averages import counted, delivered_per_min
from loadsim.analysis.probes.monitors import MonitorPlace, monitor_places
from loadsim.analysis.probes.statistics import probe_facts, probe_figures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.findings.formats import duration
from loadsim.model.terms import Window
from loadsim.report.document import Cell, Column, Table, table_of


def probe_tables(run: RecordedRun) -> tuple[Table, ...]:
    """Return the figures of probes in the window, and where they come from; none without probes."""
    facts, figures = probe_facts(run.log), probe_figures(run.log, Window(*run.figures.window_s))
    if not facts and not figures:
        return ()
    all_figures = replace(
        table_of(
            "Probes: figures in the window, which are in no score",
            figures,
            ("Figure", None, lambda each: f"{each.probe}: {each.figure}"),
            ("Samples", 0, lambda each: each.samples),
            ("Mean", 2, lambda each: each.mean),
            ("Least", 2, lambda each: each.least),
            ("Most", 2, lambda each: each.most),
        ),
        folded=True,
    )
    return (
        all_figures,
        *_monitors(run),
        table_of(
            "Sources of the probes",
            facts,
            ("Probe", None, lambda each: each.probe),
            ("Package", None, lambda each: each.package),
            ("Samples taken", 0, lambda each: each.samples),
            ("Failed samples", 0, lambda each: each.failures),
            ("Last failure", None, lambda each: each.last_failure),
        ),
    )


def _monitors(run: RecordedRun) -> tuple[Table, ...]:
    """Return the files of monitors, and how exactly their samples are placed; none without any."""
    places = monitor_places(run.log)
    found = table_of(
        "Files of loadsim monitor",
        places,
        ("Monitor", None, lambda each: each.name),
        ("From (s)", 1, lambda each: each.span_s and each.span_s[0]),
        ("To (s)", 1, lambda each: each.span_s and each.span_s[1]),
        ("Samples of the run", 0, lambda each: each.samples),
        ("End", None, _end),
        ("Place on the time axis", None, placed_by),
    )
    return (found,) if places else ()


def _end(place: MonitorPlace) -> str:
    if place.damages:
        return "; ".join(place.damages)
    return "by itself" if place.ended else "none: killed, or still running when copied"


def placed_by(place: MonitorPlace) -> str:
    """Return by which clocks a monitor's samples are placed, and how exactly."""
    if place.same_machine:
        return "by the monotonic clock of the machine, which the run has, too"
    if place.span_s is None:
        return "none: no time of day is known"
    if place.error_ms is None:
        return "by the time of day; how exactly is unknown, as no time service disciplines one of the clocks"
    return f"by the time of day, give or take {duration(place.error_ms)} as the kernels of the machines state"


def probe_averages(figures: Figures) -> tuple[Table, ...]:
    """Return the table of averages over the window; none without a probe of which it has figures."""
    rows: list[tuple[Cell, ...]] = []
    probes = figures.probes or {}
    for one in counted({probe: [*own] for probe, own in probes.items()}):
        found = probes[one.probe][one.figure]
        known = (found.mean, found.p95, found.max)
        values = [None if value is None else value * one.factor for value in known]
        rows.append((one.words, *values, one.probe))
    if not rows:
        return ()
    delivered = delivered_per_min(figures.delivery.delivered, figures.window_s.length_s)
    rows.append(("Messages delivered to users (copies per minute)", delivered, None, None, "loadsim"))
    columns = (Column(title, 2) for title in ("Average", "95th percentile", "Maximum"))
    return (Table("Averages over the window", (Column("Counter"), *columns, Column("Source")), tuple(rows)),)
