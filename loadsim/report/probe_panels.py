"""The probe figures that a report draws: the chief ones, next to the server's response times, and others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadsim.analysis.probes.resources import by_kind, kind_of
from loadsim.analysis.series.tasks import Floats
from loadsim.findings.formats import SCALES, unit_of
from loadsim.report.document import Line, Panel, figures

ProbeSeries = Mapping[str, Mapping[str, Floats]]
"""The mean of each figure in each bin, by probe and figure."""

MOST_OF_OTHERS = 4
"""The most figures drawn for a probe without panels of its own; the folded table has all."""


@dataclass(frozen=True, slots=True)
class ProbePanel:
    """A panel of a probe's figures. `lines` maps patterns of their names to names of lines.

    A figure times `factor` is in `unit`. In a line's name, `{}` stands for the text that the pattern captured. `chief`:
    the panel is next to the server's response times.
    """

    title: str
    unit: str
    lines: Sequence[tuple[str, str]]
    factor: float = 1.0
    digits: int = 1
    chief: bool = False


PANELS: Mapping[str, Sequence[ProbePanel]] = {
    "host": (
        ProbePanel(
            "Processor",
            "%",
            (
                ("cpu_busy_share", "all cores busy"),
                ("server_cores_busy_share", "the server's cores busy"),
                ("busiest_core_busy_share", "the busiest core"),
                ("cpu_system_share", "in the kernel"),
                ("cpu_iowait_share", "idle, waiting for a disk"),
                ("quota_busy_share", "of the quota"),
            ),
            100,
            chief=True,
        ),
        ProbePanel(
            "Disks",
            "% of the time",
            (("disk_(.+)_busy_share", "{} busy"), ("pressure_io_some_share", "a thread waits")),
            100,
            chief=True,
        ),
        ProbePanel("Disk queue", "requests", (("disk_(.+)_queue_requests", "{}"),), digits=2),
        ProbePanel("Time of a write to disk", "ms", (("disk_(.+)_write_ms", "{}"),)),
        ProbePanel(
            "Memory",
            "MiB",
            (("memory_available_bytes", "available"), ("server_rss_bytes", "the server's processes")),
            2**-20,
            digits=0,
        ),
        ProbePanel(
            "Cores taken",
            "cores",
            (("server_cpu_cores", "the server"), ("loadsim_cpu_cores", "loadsim"), ("others_cpu_cores", "others")),
            digits=2,
        ),
    ),
    "postfix": (
        ProbePanel(
            "Send queue", "messages", (("send_queue_messages", "all"), ("deferred_messages", "deferred")), chief=True
        ),
        ProbePanel("Oldest message in the queue", "s", (("oldest_message_s", "oldest"),)),
        ProbePanel(
            "Mail through Postfix",
            "per minute",
            (("queued_per_s", "messages taken in"), ("sent_per_s", "delivered to a recipient")),
            60,
        ),
    ),
}
"""Panels for loadsim's own probes."""


def panels_of_probes(series: ProbeSeries, *, chief: bool) -> list[Panel]:
    """Return either all probes' chief panels or all other panels, from series by probe and figure."""
    return [
        Panel(
            f"{one.title} ({probe})",
            one.unit,
            tuple(Line(name, figures(series[probe][figure] * one.factor)) for name, figure in lines),
            digits=one.digits,
        )
        for probe in by_kind(series, PANELS)
        for one, lines in panels_of(probe, [*series[probe]])
        if one.chief == chief
    ]


def panels_of(probe: str, names: Sequence[str]) -> Iterator[tuple[ProbePanel, Sequence[tuple[str, str]]]]:
    """Yield the panels of a probe with figures of these names, each with its lines' names and figures."""
    for panel in PANELS.get(kind_of(probe)) or _of_others(names):
        if lines := [*_lines(panel, names)]:
            yield panel, lines


def _lines(panel: ProbePanel, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pattern, line in panel.lines:
        for figure in names:
            if match := re.fullmatch(pattern, figure):
                yield line.replace("{}", match[match.lastindex or 0]), figure


def _of_others(names: Sequence[str]) -> Iterator[ProbePanel]:
    for figure in names[:MOST_OF_OTHERS]:
        unit = unit_of(figure)
        yield ProbePanel(figure, unit, ((re.escape(figure), figure),), SCALES.get(unit, 1.0), digits=2)
