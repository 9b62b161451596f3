"""The `command` probe: figures printed by a command of the user's own."""

from __future__ import annotations

import shlex

from loadsim.errors import ConfigError
from loadsim.model.ports import Probe, Services
from loadsim.model.terms import FIGURE_NAME
from loadsim.monitor.bounded_command import found_command, output_of
from loadsim.monitor.probe_values import finite_number, number_of, text_of

MOST_BYTES = 1 << 16
LONGEST_S = 60.0


def open_probe(services: Services, run: object = None, name: object = "value", timeout_s: object = 5) -> Probe:
    """Return a function that runs the command `run`, without a shell, and returns its figures.

    `name` is the figure's name if the command prints a single number. Raises `ConfigError`.
    """
    words = _words(text_of("run", run, "a command such as wc -l /var/log/mail.log"))
    single = text_of("name", name, "the name of a figure")
    if not FIGURE_NAME.fullmatch(single):
        raise ConfigError(f"name: expected a-z, 0-9 and _, found {single!r:.60}")
    limit_s = number_of("timeout_s", timeout_s, 0.1, LONGEST_S)
    try:
        words[0] = found_command(words[0])
    except ConfigError as error:
        raise ConfigError(f"run: {error}") from None
    return lambda: figures_of(output_of(words, limit_s, MOST_BYTES), single)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        raise ConfigError("run: expected a command, found quotation marks that are not closed") from None
    if not words:
        raise ConfigError("run: expected a command, found none")
    return words


def figures_of(output: bytes, single: str) -> dict[str, float]:
    """Return the figures in a command's output: one number, or lines with a name and a number each.

    Raises `ValueError` for anything else, quoting no more of the output than a figure's name.
    """
    lines = [words for line in output.decode("utf-8", "replace").splitlines() if (words := line.split())]
    if len(lines) == 1 and len(lines[0]) == 1:
        lines = [[single, *lines[0]]]
    figures: dict[str, float] = {}
    for words in lines:
        if len(words) != 2 or not FIGURE_NAME.fullmatch(words[0]):
            raise ValueError("expected a number, or lines with a name and a number, found another line")
        name, value = words
        if name in figures:
            raise ValueError(f"expected {name} once, found it twice")
        figures[name] = finite_number(value, name)
    if not figures:
        raise ValueError("expected a number, found no output")
    return figures
