"""The live figures of a run as a screen on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from rich.console import Console, Group, JustifyMethod
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadsim.analysis.generator.per_client import by_number
from loadsim.cli.live.figures import LiveFigures
from loadsim.cli.live.words import HEADINGS, lines, status, task_row
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.findings.formats import duration

WIDEST = 110
"""The largest width of the screen, in columns."""

CLIENT_HEADINGS = ("Client", "on", "phase", "done", "failed", "late 99th", "core")
"""The columns of the table of client machines."""

GAP = 2
"""Blanks between columns."""


class Screen:
    """Draws in a thread of its own: a stopped terminal (Ctrl-S) must not delay measurements."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size = console.size
        self._pen = ThreadPoolExecutor(1, "screen")
        self._newest: deque[LiveFigures] = deque(maxlen=1)
        self._drawing: Future[None] | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()

    def show(self, figures: LiveFigures) -> None:
        """Draw the figures once the current drawing is finished, unless newer ones have arrived by then."""
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
        figures = self._newest.pop()
        with suppress(OSError):  # the terminal is gone: the run continues
            if self._console.size != self._size:  # the terminal has wrapped the old lines
                self._size = self._console.size
                self._console.clear()
            self._live.update(screenful(figures, self._size.width), refresh=True)


def screenful(figures: LiveFigures, columns: int) -> Group:
    """Return the content of the screen, most important lines first: a low terminal hides the last ones.

    A narrow terminal shows fewer columns, but never a truncated figure.
    """
    table = Table.grid(padding=(0, GAP))
    table.add_column(style="bold", no_wrap=True, overflow="crop")
    table.add_column(overflow="fold")
    for name, words, look in lines(figures):
        table.add_row(name, Text(words, "red" if look else ""))  # as Text: a server's words are not markup
    tasks = [task_row(task) for task in figures.tasks]
    clients = [_client_row(name, figures.clients[name]) for name in sorted(figures.clients, key=by_number)]
    tables = [
        _fitting_table(headings, rows, min(columns, WIDEST))
        for headings, rows in ((HEADINGS, tasks), (CLIENT_HEADINGS, clients))
        if rows
    ]
    return Group(*(Constrain(part, WIDEST) for part in (_head(figures), table, *tables)))


def _head(figures: LiveFigures) -> Table:
    head = Table.grid(padding=(0, GAP), expand=True)
    head.add_column(style="bold", no_wrap=True, overflow="crop")
    head.add_column(ratio=1)
    head.add_column(overflow="fold")
    head.add_row(figures.phase, ProgressBar(total=1.0, completed=figures.share or 0.0), status(figures))
    return head


def _client_row(name: str, client: LiveSnapshot) -> tuple[str, ...]:
    late = "" if client.lag_p99_ms is None else duration(client.lag_p99_ms)
    core = "" if client.cpu_share is None else f"{client.cpu_share:.0%}"
    on = f"{client.users_on:,} of {client.users:,}"
    return name, on, client.phase, f"{client.done:,}", f"{client.failed:,}", late, core


def _fitting_table(headings: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> Table:
    """Return a table; the last columns are omitted if they do not fit."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    left = columns + GAP
    for heading, *cells in zip(headings, *rows, strict=True):
        left -= (width := max(map(len, (heading, *cells)))) + GAP
        if table.columns and left < 0:
            break
        justify: JustifyMethod = "right" if table.columns else "left"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="crop", min_width=width)
    for row in rows:
        table.add_row(*map(Text, row[: len(table.columns)]))
    return table
