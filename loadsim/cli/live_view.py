"""The live figures of a run as a screen on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadsim.analysis.per_client import by_number
from loadsim.cli.live_figures import LiveFigures
from loadsim.cli.live_words import HEADINGS, Words, lines, status, task_row
from loadsim.engine.snapshot import LiveSnapshot, total
from loadsim.report.digits import duration

WIDEST = 110
"""The largest width of the screen, in columns."""

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


class Screen:
    """Draws in a thread, so that a terminal that accepts nothing (Ctrl-S) delays no measurement."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size = console.size
        self._pen = ThreadPoolExecutor(1, "screen")
        self._newest: deque[LiveFigures] = deque(maxlen=1)
        self._drawing: Future[None] | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()

    def show(self, figures: LiveFigures) -> None:
        """Draw the figures when the current drawing is finished, unless newer ones have arrived."""
        if figures.load is None:
            return
        self._newest.append(figures)
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
        screenful = Screenful(self._newest.pop())
        with suppress(OSError):  # the terminal is gone: the run goes on
            if self._console.size != self._size:  # the terminal has wrapped the old lines
                self._size = self._console.size
                self._console.clear()
            self._live.update(screenful, refresh=True)


@dataclass(frozen=True, slots=True)
class Screenful:
    """The content of the screen.

    The most important facts are on top: with too few lines, the last tasks are hidden, and of many clients only the
    worst have a row. A narrow terminal gets fewer columns, but never a truncated figure.
    """

    figures: LiveFigures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = min(options.max_width, WIDEST)
        table = Table.grid(padding=(0, GAP))
        table.add_column(style="bold", no_wrap=True, overflow="crop")
        table.add_column(overflow="fold")
        for name, words in lines(self.figures):
            table.add_row(name, _coloured(words))
        top = Constrain(Group(_head(self.figures), table), WIDEST)
        tasks, clients = len(self.figures.tasks), len(self.figures.clients)
        if clients:
            left = options.max_height - len(console.render_lines(top, options))
            tasks, clients = _fitting_rows(left, tasks, clients)
        rows = [task_row(task) for task in self.figures.tasks[:tasks]]
        tables = [_fitting_table([HEADINGS, *rows], FITTING, columns)] if rows else []
        tables += _by_client(self.figures, columns, clients)
        yield Group(top, *(Constrain(table, WIDEST) for table in tables))


def _head(figures: LiveFigures) -> Table:
    head = Table.grid(padding=(0, GAP), expand=True)
    head.add_column(style="bold", no_wrap=True, overflow="crop")
    head.add_column(ratio=1)
    head.add_column(overflow="fold")
    head.add_row(figures.phase, ProgressBar(total=1.0, completed=figures.share or 0.0), status(figures))
    return head


def _coloured(words: Words) -> Text:
    """Return a line with its marked parts in red. Server texts are shown without markup."""
    return Text.assemble(*((part, "red" if look else "") for part, look in words))


def _fitting_rows(lines: int, tasks: int, clients: int) -> tuple[int, int]:
    """Divide lines between the tables of tasks and of clients, and return the rows of each, without headings.

    Clients get half of the lines, and those that the tasks do not need.
    """
    of_clients = min(clients + 1, max(lines // 2, lines - tasks - 1, LEAST_LINES))
    return max(0, min(tasks, lines - of_clients - 1)), of_clients - 1


def _by_client(figures: LiveFigures, columns: int, rows: int) -> list[Table]:
    """Return the table of clients with the columns that fit. The last row sums up those without a row."""
    clients = figures.clients
    if not clients:
        return []
    shown, others = sorted(clients, key=by_number), []
    if len(shown) > rows:
        by_need = sorted(shown, key=lambda name: _need(clients[name]), reverse=True)
        shown, others = sorted(by_need[: rows - 1], key=by_number), by_need[rows - 1 :]
    cells = [_client_row(name, clients[name]) for name in shown]
    if others:
        cells.append(_client_row(f"{len(others)} more", total([clients[name] for name in others])))
    return [_fitting_table([CLIENT_FITTING[0], *cells], CLIENT_FITTING, columns)]


def _client_row(name: str, client: LiveSnapshot) -> tuple[str, ...]:
    late = "" if client.lag_p99_ms is None else duration(client.lag_p99_ms)
    core = "" if client.cpu_share is None else f"{client.cpu_share:.0%}"
    on = f"{client.users_on:,} of {client.users:,}"
    return name, on, f"{client.done:,}", f"{client.failed:,}", late, core, client.phase


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
