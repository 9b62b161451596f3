"""One run's charts: load, times, probes, generator and mail over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.series.health import engine_series, machine_cpu_series
from loadsim.analysis.series.mail import MailSeries
from loadsim.analysis.series.tasks import (
    Bins,
    Floats,
    lateness_series,
    service_time_series,
    task_series,
    throughput_series,
)
from loadsim.findings.formats import duration
from loadsim.report.document import Axis, Chart, Column, Limit, Line, Panel, figures
from loadsim.report.probe_panels import ProbeSeries, panels_of_probes

UNITS = ((10_800.0, 3600.0, "hours", "h"), (180.0, 60.0, "minutes", "min"), (0.0, 1.0, "seconds", "s"))
"""Units of time: for each, the shortest run that uses it (s), its length in seconds, its name and its sign."""

MOST_LINES = 6
"""With more machines, a chart shows only the busiest one."""

LATE_BECAUSE = {"busy": "user busy", "down": "session down", "generator": "generator late"}


def _over(run: RecordedRun, bins: Bins, caption: str, panels: Sequence[Panel], across: int = 1) -> Chart:
    length_s = bins.end_s - bins.begin_s
    _, unit_s, unit, sign = next(found for found in UNITS if length_s > found[0])
    axis = Axis(
        title=f"{unit} from the common start",
        kind="time",
        positions=tuple(((bins.starts_s + bins.lengths_s / 2) / unit_s).tolist()),
        column=Column("From (s)", 0),
        cells=tuple(bins.starts_s.tolist()),
        span=(bins.begin_s / unit_s, bins.end_s / unit_s),
        unit=sign,
    )
    begin_s, end_s = max(run.figures.window_s[0], bins.begin_s), min(run.figures.window_s[1], bins.end_s)
    is_part = begin_s < end_s and (begin_s, end_s) != (bins.begin_s, bins.end_s)
    return Chart(caption, axis, tuple(panels), across, (begin_s / unit_s, end_s / unit_s) if is_part else None)


def times_over_time(run: RecordedRun, bins: Bins) -> Chart:
    """Return a panel for each task, with its median and 95th percentile."""
    drivers = run.figures.by_protocol
    weights = {task.task: task.weight for driver in drivers.values() for task in driver.tasks}
    panels = [
        Panel(
            series.task if len(drivers) < 2 else f"{series.task} ({series.protocol})",
            "ms",
            _percentiles(series.p50_ms, series.p95_ms),
            "log",
        )
        for series in task_series(run.log, bins, weights)
    ]
    return _over(run, bins, "Service time of each task by when it was due", panels, across=3)


def _percentiles(p50_ms: Floats, p95_ms: Floats) -> tuple[Line, ...]:
    return Line("median", figures(p50_ms)), Line("95th percentile", figures(p95_ms))


def at_a_glance(run: RecordedRun, bins: Bins) -> Chart:
    """Return the service times and the rate of tasks."""
    load = throughput_series(run.log, bins)
    rates = [Line(name, figures(per_s)) for name, per_s in load.items() if name != "due" or not run.figures.stress]
    panels = [
        Panel("Service time of all tasks", "ms", _percentiles(*service_time_series(run.log, bins)), "log"),
        Panel("Tasks", "per second", tuple(rates)),
    ]
    return _over(run, bins, "Times and load of the run", panels, across=2)


def server_and_generator(run: RecordedRun, bins: Bins, probes: ProbeSeries) -> Chart:
    """Return the chief figures of probes, CPU and the generator's lateness together."""
    generator, engines = run.figures.generator, engine_series(run.log, bins)
    late = {} if run.figures.stress else lateness_series(run.log, bins)
    panels = [
        *panels_of_probes(probes, chief=True),
        Panel("CPU", "% busy", _busy(run, bins, engines), digits=0),
        Panel(
            "Generator: lag of the event loop, 99th percentile",
            "ms",
            (Line("the worst engine", figures(_most([lag_ms for lag_ms, _ in engines]))),) if engines else (),
            "symlog",
            limits=_limit("limit of the 99th percentile", generator.lag_limit_ms),
        ),
        Panel(
            "Late starts of tasks, 95th percentile",
            "ms",
            tuple(Line(LATE_BECAUSE[cause], figures(late_ms)) for cause, late_ms in late.items()),
            "symlog",
            limits=_limit("limit of the generator", generator.lateness_limit_ms),
        ),
    ]
    return _over(run, bins, "Server and generator over the same time", panels)


def further_probes(run: RecordedRun, bins: Bins, probes: ProbeSeries) -> Chart:
    caption = "Further figures of the probes over the same time"
    return _over(run, bins, caption, panels_of_probes(probes, chief=False), across=2)


def _busy(run: RecordedRun, bins: Bins, engines: Sequence[tuple[Floats, Floats]]) -> tuple[Line, ...]:
    """Return the busy share of each machine, or of the busiest one of many, and of the busiest engine."""
    shares = {f"all cores of {name}": share for name, share in machine_cpu_series(run.log, bins).items()}
    if len(shares) > MOST_LINES:
        shares = {"all cores of the busiest machine": _most([*shares.values()])}
    if engines:
        shares["the busiest engine, of one core"] = _most([cpu_share for _, cpu_share in engines])
    return tuple(Line(name, figures(share * 100)) for name, share in shares.items())


def _limit(name: str, limit_ms: float | None) -> tuple[Limit, ...]:
    """Return a limit on the percentile over the whole window: single points of the curve may exceed it."""
    return () if limit_ms is None else (Limit(f"{name} over the whole window: {duration(limit_ms)}", limit_ms),)


def _most(each: Sequence[Floats]) -> Floats:
    return np.asarray(np.fmax.reduce(np.stack(each)))


def mail(run: RecordedRun, bins: Bins, found: MailSeries) -> list[Chart]:
    """Return messages, copies, mail under way and delivery times; nothing without mail."""
    if not np.any(found.accepted_per_s > 0) and not np.any(found.due_per_s > 0):
        return []
    messages = [Line("sent", figures(found.sent_per_s))]
    if not run.figures.stress:
        messages.insert(0, Line("due", figures(found.due_per_s)))
    copies = [Line("accepted", figures(found.accepted_per_s)), Line("delivered", figures(found.arrived_per_s))]
    panels = [
        Panel("Messages", "per second", tuple(messages), digits=2),
        Panel("Copies", "per second", tuple(copies), digits=2),
        Panel("Accepted and not delivered yet", "copies", (Line("under way", figures(found.under_way)),), digits=0),
        Panel("Delivery", "ms", _percentiles(found.p50_ms, found.p95_ms), "log"),
    ]
    return [_over(run, bins, "Mail over time", panels, across=2)]
