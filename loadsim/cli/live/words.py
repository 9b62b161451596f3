"""A run's figures in words: the lines and rows that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from math import floor, log10

from loadsim.cli.live.figures import LiveFigures, LiveTask
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import printable
from loadsim.findings.formats import count, duration
from loadsim.statistics.latency_histogram import BOUNDS_MS

Line = tuple[str, str, bool]
"""A name, a text, and True if the line needs attention."""

HEADINGS = ("Task", "done", "failed", "lately/s", "95th, about")
"""The columns of the table of tasks."""

SECONDS_FROM_MS = 10_000
"""Times from this one up are shown in seconds, as in a run's answer."""

KINDS = 6
"""The most kinds of failure shown."""

WAITING: Mapping[str, str] = {
    "finish": "waiting for tasks that run",
    "drain": "waiting for mail in transit",
    "log-off": "logging off",
    "over": "writing the logs",
}
"""The activity in each phase after the work."""


def status(figures: LiveFigures) -> str:
    """Return a line on the current phase of the load or step of the preparation."""
    load, duration_s = figures.load, figures.times.duration_s
    if figures.stage in ("prepare", "audit") and figures.prepared:
        step, (done, total) = list(figures.prepared.items())[-1]
        return f"{step}: {done:,} of {total:,} accounts"
    if figures.stage != "load" or load is None:
        return ""
    if load.phase == "log-on":
        return f"{load.users_on:,} of {load.users:,} users on"
    if load.phase == "work":
        at_s = min(max(load.at_s or 0.0, 0.0), duration_s)
        return f"{_clock(at_s)} of the run's {_clock(duration_s)}, {_clock(duration_s - at_s)} left"
    return WAITING[load.phase]


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def lines(figures: LiveFigures) -> list[Line]:
    """Return one line each on users, load, tasks, lateness, generator and failures, where known."""
    load = figures.load
    if load is None:
        return []
    on, lost = f"{load.users_on:,} of {load.users:,} on", count(load.sessions_lost, "session")
    users = f"{on}, {lost} lost, {count(load.accepted_undelivered, 'message')} in transit"
    rows = [("Users", users, load.sessions_lost > 0)]
    if figures.due and figures.made is not None:
        rows.append(("Load", f"{count(figures.made, 'task')} made, {figures.due:,} planned until now", False))
    rows += [_tasks(figures, load), ("Late", _late(figures, load), False), *_generator(figures, load)]
    return [*rows, _failures(figures)]


def _tasks(figures: LiveFigures, load: LiveSnapshot) -> Line:
    own, lately = load.generator_failed, figures.lately
    words = f"{load.done:,} done, {load.failed:,} failed"
    words += f", {own:,} by the generator itself" if own else ""
    if lately is not None:
        words += f"; lately {lately.per_s:,.1f} a second, {_share(lately.failed_share)} failed"
    return "Tasks", words, bool(load.failed or own)


def _late(figures: LiveFigures, load: LiveSnapshot) -> str:
    most, lately = f"generator {duration(load.generator_late_most_s * 1000)} (worst)", figures.lately
    if lately is None:
        return most
    busy, down, own = map(duration, (lately.busy_ms, lately.down_ms, lately.generator_ms))
    return f"user busy {busy}, session down {down}, generator {own} (mean, lately); {most}"


def _generator(figures: LiveFigures, load: LiveSnapshot) -> Iterator[Line]:
    """Yield a line with the worst engine's load in the last second, and all engines' memory; nothing if unknown."""
    if load.cpu_share is None:
        return
    limit_ms, limit, lag, late = figures.lag_limit_ms, figures.cpu_limit, "", False
    if load.lag_p99_ms is not None:
        late = limit_ms is not None and load.lag_p99_ms > limit_ms
        allowed = "" if limit_ms is None else f"limit {duration(limit_ms)}"
        allowed = f", now above the {allowed} of the window" if late else f", {allowed}" if allowed else ""
        lag = f"event loop {duration(load.lag_p99_ms)} late (99th percentile{allowed}), "
    allowed = "" if limit is None else f" (limit {limit:.0%})"
    words = f"{lag}{load.cpu_share:.0%} of a core{allowed}, {(load.rss_bytes or 0) / 2**20:.0f} MiB"
    yield "Generator", words, late or (limit is not None and load.cpu_share > limit)


def _failures(figures: LiveFigures) -> Line:
    failures = figures.failures
    shown = [f"{printable(kind)} ({times:,})" for kind, times in failures[:KINDS]]
    if len(failures) > KINDS:
        shown.append(f"{len(failures) - KINDS:,} more kinds")
    return "Failures", "; ".join(shown) or "none", bool(shown)


def task_row(task: LiveTask) -> tuple[str, ...]:
    """Return the cells of a task, in the columns of `HEADINGS`."""
    rate = "" if task.per_s is None else f"{task.per_s:,.1f}"
    return task.name, f"{task.done:,}", f"{task.failed:,}", rate, _about(task.p95_ms)


def sentence(load: LiveSnapshot) -> str:
    """Return the counts as a line, with the worst engine's lag and CPU share in the last second."""
    at = "" if load.at_s is None else f"{max(load.at_s, 0):.0f} s, "
    lag = "" if load.lag_p99_ms is None else f"; event loop {duration(load.lag_p99_ms)} late"
    busy = "" if load.cpu_share is None else f"; {load.cpu_share:.0%} of a core"
    own = f" {load.generator_failed:,} by the generator itself," if load.generator_failed else ""
    return (
        f"{at}{load.users_on:,} of {load.users:,} users on, {load.done:,} tasks done,"
        f" {load.failed:,} failed,{own} {count(load.accepted_undelivered, 'message')} in transit{lag}{busy}"
    )


def _share(share: float) -> str:
    """Format with one decimal; a tiny share is not shown as zero."""
    return "below 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def _about(value_ms: float | None) -> str:
    """Format with two digits, the precision of the buckets; in seconds from 10 s on."""
    if value_ms is None:
        return ""
    if value_ms >= BOUNDS_MS[-1]:
        return f"over {BOUNDS_MS[-1] / 1000:g} s"
    rounded_ms = round(value_ms, 1 - floor(log10(value_ms)))
    return f"{rounded_ms / 1000:g} s" if rounded_ms >= SECONDS_FROM_MS else f"{rounded_ms:,g} ms"
