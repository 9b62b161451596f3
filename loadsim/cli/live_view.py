"""The live state of a run: a screen on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import floor, log10

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadsim.analysis.generator_limits import lag_limit_ms
from loadsim.analysis.per_client import by_number
from loadsim.engine.latency_histogram import BOUNDS_MS
from loadsim.engine.snapshot import LiveSnapshot, Recent, Stretch, total
from loadsim.model.records import FAILURES
from loadsim.model.run_times import Run
from loadsim.model.scenario import Scenario
from loadsim.model.terms import WITHOUT_WINDOW
from loadsim.report.digits import count, duration
from loadsim.users.tasks import TASKS

LATELY_S = 60.0
"""Rates and service times on the screen cover the last minute."""

WIDEST = 110
"""The largest width of the screen, in columns."""

NARROW = 64
"""A screen with fewer columns has fewer words."""

HEADINGS = ("Task", "done", "failed", "lately/s", "95th, about")
FITTING = (HEADINGS, ("Task", "done", "failed", "95th, about"), ("Task", "done", "95th, about"), ("Task", "done"))
"""Columns of the table of tasks, for ever narrower terminals."""

CLIENT_FITTING = (
    ("Client", "on", "done", "failed", "late 99th", "core", "phase"),
    ("Client", "on", "done", "failed", "phase"),
    ("Client", "on", "phase"),
    ("Client",),
)
"""Columns of the table of client machines, for ever narrower terminals."""

LEAST_LINES = 3
"""The fewest lines of the table of clients: a heading, the worst client, the sum of the others."""

GAP = 2
"""Blanks between columns."""

SECONDS_FROM_MS = 10_000
"""Times from here on are in seconds, as in the answer of a run."""

KINDS = 6
"""The most kinds of failure on the screen."""

WAITING = {
    "finish": "waiting for tasks that run",
    "drain": "waiting for mail in transit",
    "log-off": "logging off",
    "over": "writing the logs",
}
"""The activity in each phase after the work."""


class Screen:
    """Draws in a thread, so that a terminal that accepts nothing (Ctrl-S) delays no measurement."""

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console = console
        self._size = console.size
        self._scenario = scenario
        self._recent = Recent(LATELY_S)
        self._pen = ThreadPoolExecutor(1, "screen")
        self._newest: deque[Screenful] = deque(maxlen=1)
        self._drawing: Future[None] | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()

    def show(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        """Draw a snapshot when the current drawing is finished, unless a newer one has arrived."""
        self._recent.add(snapshot)
        self._newest.append(Screenful(snapshot, self._recent.stretch, self._scenario, dict(clients)))
        if self._drawing is not None and self._drawing.done():
            self._drawing.result()
        self._drawing = self._pen.submit(self._draw)

    def close(self) -> None:
        self._pen.shutdown()
        with suppress(OSError):  # the terminal is gone
            self._live.update(Text())  # Live.stop() draws the last screen again, which scrolls a low terminal
            self._live.stop()

    def _draw(self) -> None:
        if not self._newest:
            return
        screenful = self._newest.pop()
        with suppress(OSError):  # the terminal is gone: the run goes on
            if self._console.size != self._size:  # the terminal has wrapped the old lines
                self._size = self._console.size
                self._console.clear()
            self._live.update(screenful, refresh=True)


@dataclass(frozen=True, slots=True)
class Screenful:
    """The content of the screen; rates, lateness and service times are those of `lately`.

    The most important facts are on top: with too few lines, the last tasks are hidden, and of many clients only the
    worst have a row. A narrow terminal gets fewer words and columns, but never a truncated figure.
    """

    snapshot: LiveSnapshot
    lately: Stretch | None
    scenario: Scenario
    clients: Mapping[str, LiveSnapshot] = field(default_factory=dict)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        snapshot, lately, columns = self.snapshot, self.lately, min(options.max_width, WIDEST)
        narrow = columns < NARROW
        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="bold", no_wrap=True, overflow="crop")
        figures.add_column(overflow="fold")
        for name, figure in shown_figures(snapshot, lately, self.scenario, narrow):
            figures.add_row(name, figure)
        figures.add_row("Failures", _failures(snapshot))
        head = _head(snapshot, self.scenario.run, narrow)
        top = Constrain(Group(head, figures), WIDEST)
        tasks, clients = len(snapshot.tasks), len(self.clients)
        if clients:
            lines = options.max_height - len(console.render_lines(top, options))
            tasks, clients = _fitting_rows(lines, tasks, clients)
        tables = [*_by_task(snapshot, lately, columns, tasks), *_by_client(self.clients, columns, clients)]
        yield Group(top, *(Constrain(table, WIDEST) for table in tables))


def shown_figures(
    snapshot: LiveSnapshot, lately: Stretch | None, scenario: Scenario, narrow: bool = False
) -> tuple[tuple[str, Text], ...]:
    """Return a line on users, tasks, lateness and generator each, with its name. Red parts need a look."""
    lag_limit, cpu_limit = lag_limit_of(lately, scenario), scenario.limits.generator.cpu
    return (
        ("Users", _users(snapshot, narrow)),
        ("Tasks", _tasks(snapshot, lately, narrow)),
        ("Late", _late(snapshot, lately, narrow)),
        ("Generator", _generator(snapshot, lag_limit, cpu_limit, narrow)),
    )


def lag_limit_of(stretch: Stretch | None, scenario: Scenario) -> float | None:
    """Return the limit of the event loop's lag in ms, for the scored task that is the fastest in this stretch."""
    limits = scenario.limits.generator
    scored = [task for task, weight in scenario.weights.items() if weight > 0]
    found_ms = [] if stretch is None else [stretch.about_ms(task, 95) for task in scored]
    fastest_ms = min((each for each in found_ms if each is not None), default=None)
    of_log = {"generator_lag_p99_ms": limits.lag_p99_ms, "generator_lag_share": limits.lag_share}
    return lag_limit_ms(of_log, fastest_ms)


def _head(snapshot: LiveSnapshot, run: Run, narrow: bool) -> Table:
    phase, share, status = load_progress(snapshot, run, narrow)
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(style="bold", no_wrap=True, overflow="crop")
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, overflow="crop")
    head.add_row(phase, ProgressBar(total=1.0, completed=share), status)
    return head


def load_progress(snapshot: LiveSnapshot, run: Run, narrow: bool = False) -> tuple[str, float, str]:
    """Return the phase (of the work, its part: warm-up or window), the share of it that is over, and a line on it."""
    phase, share, duration_s = snapshot.phase_of(run), 1.0, run.duration_s
    if snapshot.phase == "log-on":
        share = snapshot.users_on / snapshot.users
        status = f"{snapshot.users_on:,} of {snapshot.users:,} users on"
    elif snapshot.phase == "work":
        at_s = min(max(snapshot.at_s or 0.0, 0.0), duration_s)
        share = at_s / duration_s
        left = f"{_clock(duration_s - at_s)} left"
        status = f"run: {left}" if narrow else f"{_clock(at_s)} of the run's {_clock(duration_s)}, {left}"
    else:
        status = WAITING[snapshot.phase]
    return phase, share, status


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _users(snapshot: LiveSnapshot, narrow: bool) -> Text:
    on, lost, in_transit = (
        f"{snapshot.users_on:,} of {snapshot.users:,} on",
        snapshot.sessions_lost,
        snapshot.accepted_undelivered,
    )
    if narrow:
        line = f"{on}, {lost:,} lost, {in_transit:,} in transit"
    else:
        line = f"{on}, {count(lost, 'session')} lost, {count(in_transit, 'message')} in transit"
    return Text(line, style="red" if lost else "")


def _tasks(snapshot: LiveSnapshot, lately: Stretch | None, narrow: bool) -> Text:
    text = Text(f"{snapshot.done:,} done, ")
    text.append(f"{snapshot.failed:,} failed", style="red" if snapshot.failed else "")
    if snapshot.generator_failed:
        text.append(f", {snapshot.generator_failed:,} by the generator itself", style="red")
    if lately is not None and (ended := lately.ended("ok", *FAILURES)):
        rate, share = _rate(ended, lately), _share(lately.ended(*FAILURES) / ended)
        text.append(f"; {rate}/s, {share}" if narrow else f"; lately {rate} a second, {share} failed")
    return text


def _late(snapshot: LiveSnapshot, lately: Stretch | None, narrow: bool) -> Text:
    most = f"generator {duration(snapshot.generator_late_most_s * 1000)} (worst)"
    if lately is None or not (ended := lately.ended("ok", *FAILURES)):
        return Text(most)
    before, after = lately.before, lately.after
    causes = (
        ("busy" if narrow else "user busy", after.late_busy_s - before.late_busy_s),
        ("down" if narrow else "session down", after.late_down_s - before.late_down_s),
        ("ours" if narrow else "generator", after.late_generator_s - before.late_generator_s),
    )
    means = ", ".join(f"{cause} {duration(late_s / ended * 1000)}" for cause, late_s in causes)
    return Text(means if narrow else f"{means} (mean, lately); {most}")


def _generator(snapshot: LiveSnapshot, lag_most_ms: float | None, cpu_limit: float | None, narrow: bool) -> Text:
    """Return the load of the worst engine in the last second, and the memory of all."""
    if snapshot.cpu_share is None:
        return Text("")
    text = Text()
    if snapshot.lag_p99_ms is not None:
        bad = lag_most_ms is not None and snapshot.lag_p99_ms > lag_most_ms
        limit = "" if lag_most_ms is None else f"limit {duration(lag_most_ms)}"
        most = f", now above the {limit} of the window" if bad else f", {limit}" if limit else ""
        late = f"{duration(snapshot.lag_p99_ms)} late"
        line = f"{late}, " if narrow else f"event loop {late} (99th percentile{most}), "
        text.append(line, style="red" if bad else "")
    bad = cpu_limit is not None and snapshot.cpu_share > cpu_limit
    most = "" if cpu_limit is None or narrow else f" (limit {cpu_limit:.0%})"
    text.append(f"{snapshot.cpu_share:.0%} of a core{most}", style="red" if bad else "")
    return text.append(f", {(snapshot.rss_bytes or 0) / 2**20:.0f} MiB")


def _failures(snapshot: LiveSnapshot) -> Text:
    """Return the most frequent kinds of failure. Server texts are shown without markup."""
    most = kinds_of_failure(snapshot)
    shown = [f"{kind} ({count:,})" for kind, count in most[:KINDS]]
    if len(most) > KINDS:
        shown.append(f"{len(most) - KINDS} more kinds")
    return Text("; ".join(shown) or "none", style="red" if shown else "")


def kinds_of_failure(snapshot: LiveSnapshot) -> list[tuple[str, int]]:
    """Return each task and kind of failure with its count, most frequent first. Kinds have texts of the server."""
    times = {f"{task}: {kind}": count for task, kinds in snapshot.failures.items() for kind, count in kinds.items()}
    return sorted(times.items(), key=lambda each: -each[1])


def _fitting_rows(lines: int, tasks: int, clients: int) -> tuple[int, int]:
    """Divide lines between the tables of tasks and of clients, and return the rows of each, without headings.

    Clients get half of the lines, and those that the tasks do not need.
    """
    of_clients = min(clients + 1, max(lines // 2, lines - tasks - 1, LEAST_LINES))
    return max(0, min(tasks, lines - of_clients - 1)), of_clients - 1


def _by_task(snapshot: LiveSnapshot, lately: Stretch | None, columns: int, rows: int) -> list[Table]:
    """Return the table of ended tasks with the columns that fit."""
    lines = task_rows(snapshot, lately)[:rows]
    return [_fitting_table([HEADINGS, *lines], FITTING, columns)] if lines else []


def task_rows(snapshot: LiveSnapshot, lately: Stretch | None) -> list[tuple[str, ...]]:
    """Return the row of each task that ended, in the columns of `HEADINGS`; log-ons and log-offs are last."""
    of_plugins = sorted(snapshot.tasks.keys() - TASKS.keys())
    known = [task for task in (*TASKS, *of_plugins) if task in snapshot.tasks]
    names = sorted(known, key=WITHOUT_WINDOW.__contains__)
    lines: list[tuple[str, ...]] = []
    for name in names:
        outcomes, rate, about = snapshot.tasks[name], "", ""
        if lately is not None and (done := lately.done(name)):
            rate, about = _rate(done, lately), _about(lately.about_ms(name, 95))
        failed = sum(outcomes.get(outcome, 0) for outcome in FAILURES)
        lines.append((name, f"{outcomes.get('ok', 0):,}", f"{failed:,}", rate, about))
    return lines


def _by_client(clients: Mapping[str, LiveSnapshot], columns: int, rows: int) -> list[Table]:
    """Return the table of clients with the columns that fit. The last row sums up those without a row."""
    if not clients:
        return []
    shown, others = sorted(clients, key=by_number), []
    if len(shown) > rows:
        by_need = sorted(shown, key=lambda name: _need(clients[name]), reverse=True)
        shown, others = sorted(by_need[: rows - 1], key=by_number), by_need[rows - 1 :]
    rows_of = [(name, clients[name]) for name in shown]
    if others:
        rows_of.append((f"{len(others)} more", total([clients[name] for name in others])))
    lines = [CLIENT_FITTING[0]]
    for name, snapshot in rows_of:
        lag, cpu = snapshot.lag_p99_ms, snapshot.cpu_share
        on = f"{snapshot.users_on:,} of {snapshot.users:,}"
        late, core = "" if lag is None else duration(lag), "" if cpu is None else f"{cpu:.0%}"
        lines.append((name, on, f"{snapshot.done:,}", f"{snapshot.failed:,}", late, core, snapshot.phase))
    return [_fitting_table(lines, CLIENT_FITTING, columns)]


def _need(client: LiveSnapshot) -> tuple[float, ...]:
    """Return the sort key of a client: users without a session, failures, lag."""
    return client.users - client.users_on, client.failed, client.lag_p99_ms or 0.0


def _fitting_table(lines: Sequence[Sequence[str]], fitting: Sequence[Sequence[str]], columns: int) -> Table:
    """Return a table of the first choice of headings that fits. The first of the lines has all headings."""
    cells = dict(zip(lines[0], zip(*lines, strict=True), strict=True))
    widths = {heading: max(map(len, of_heading)) for heading, of_heading in cells.items()}
    kept = next(
        (each for each in fitting if sum(widths[heading] + GAP for heading in each) - GAP <= columns), fitting[-1]
    )
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for heading in kept:
        justify: JustifyMethod = "left" if heading == kept[0] else "right"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="crop", min_width=widths[heading])
    for row in range(1, len(lines)):
        table.add_row(*(Text(cells[heading][row]) for heading in kept))
    return table


def _rate(count: int, lately: Stretch) -> str:
    return f"{count / lately.seconds:,.1f}" if lately.seconds > 0 else ""


def _share(share: float) -> str:
    """Format with a decimal; a small share is not shown as none."""
    return "below 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def _about(value_ms: float | None) -> str:
    """Format with two digits, as buckets are no more precise; in seconds from 10 s on."""
    if value_ms is None:
        return ""
    if value_ms >= BOUNDS_MS[-1]:
        return f"over {BOUNDS_MS[-1] / 1000:g} s"
    rounded_ms = round(value_ms, 1 - floor(log10(value_ms)))
    return f"{rounded_ms / 1000:g} s" if rounded_ms >= SECONDS_FROM_MS else f"{rounded_ms:,g} ms"
