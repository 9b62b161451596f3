"""The tables of probes in a report: averages over the window, all figures, and their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loadsim.analysis.figures import Figures
from loadsim.analysis.monitors import MonitorPlace, monitor_places
from loadsim.analysis.probes import probe_facts, probe_figures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.resources import kind_of
from loadsim.model.terms import Window
from loadsim.report.digits import duration
from loadsim.report.document import Cell, Column, Table, table_of
from loadsim.report.probe_panels import in_order


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


@dataclass(frozen=True, slots=True)
class _Average:
    """A row of the averages: its words with the unit, the pattern of its figure, and the factor to that unit."""

    words: str
    figure: str
    factor: float = 1.0


AVERAGES: Mapping[str, Sequence[_Average]] = {
    "host": (
        _Average("Processor time (% of all cores)", "cpu_busy_share", 100),
        _Average("Processor time (% of the server's cores)", "server_cores_busy_share", 100),
        _Average("Processor time of the server (cores)", "server_cpu_cores"),
        _Average("Processor quota used (%)", "quota_busy_share", 100),
        _Average("Queue of the disk {} (requests)", "disk_(.+)_queue_requests"),
        _Average("Disk {} busy (% of the time)", "disk_(.+)_busy_share", 100),
        _Average("Memory available (MiB)", "memory_available_bytes", 2**-20),
        _Average("Memory of the server (MiB)", "server_rss_bytes", 2**-20),
    ),
    "postfix": (
        _Average("Length of the send queue (messages)", "send_queue_messages"),
        _Average("Send queue (seconds of the mean throughput)", "send_queue_s"),
        _Average("Deliveries by Postfix (recipients per minute)", "sent_per_s", 60),
    ),
    "dovecot": (
        _Average("IMAP sessions", "imap_sessions"),
        _Average("IMAP commands (per second)", "commands_per_s"),
    ),
}
"""The counters whose averages published papers on the sizing of mail servers print, by kind of probe."""


def probe_averages(figures: Figures) -> tuple[Table, ...]:
    """Return the table of averages over the window; none without a probe of which it has figures.

    The delivered messages are those that users saw: one for each recipient, accepted in the window.
    """
    rows: list[tuple[Cell, ...]] = []
    probes = figures.probes or {}
    for probe in in_order(probes):
        own = probes[probe]
        for row in AVERAGES.get(kind_of(probe), ()):
            for figure, found in own.items():
                if match := re.fullmatch(row.figure, figure):
                    known = (found.mean, found.p95, found.max)
                    values = [None if value is None else value * row.factor for value in known]
                    rows.append((row.words.format(*match.groups()), *values, probe))
    if not rows:
        return ()
    delivered_per_min = 60 * figures.delivery.delivered / figures.window_s.length_s
    rows.append(("Messages delivered to users (copies per minute)", delivered_per_min, None, None, "loadsim"))
    counted = (Column(title, 2) for title in ("Average", "95th percentile", "Maximum"))
    return (Table("Averages over the window", (Column("Counter"), *counted, Column("Source")), tuple(rows)),)
