"""The samples of a server's probes, and the rates of its users, in the blocks of a window."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.probes import FIGURES, PROBE
from loadsim.analysis.resources import HOST, kind_of
from loadsim.analysis.utilisation import Blocks, NotKnown, Samples, block_means, block_rates
from loadsim.errors import ConfigError
from loadsim.model.records import SPANS
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT, OUTCOME

NO_COMMANDS = ("IMAP CONNECT", "IMAP DONE")
"""Records of IMAP that no server counts as commands."""

Series = Mapping[str, Samples]
"""The samples of a probe by figure."""


def series_of(log: TimingLog) -> Mapping[str, Series]:
    """Return the samples of all probes in order, also those before the window: a value stands for the time since."""
    found: defaultdict[str, defaultdict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for sample in log.health:
        if PROBE in sample and sample.get("at_s") is not None:
            for figure, value in sample[FIGURES].items():
                found[sample[PROBE]][figure].append((sample["at_s"], float(value)))
    return {probe: {figure: sorted(samples) for figure, samples in figures.items()} for probe, figures in found.items()}


def hosts_of(series: Mapping[str, Series]) -> list[str]:
    """Return the names of the probes `host`, also with a label, and those of monitors."""
    return [name for name in series if kind_of(name) == HOST]


def host_of(place: str, series: Mapping[str, Series]) -> str:
    """Return the only probe `host` that saw the server's processes. Raises `ConfigError` without one, or for several.

    A server on several machines is full where the first of them is, and their work cannot be told from that of one
    machine with two probes.
    """
    hosts = hosts_of(series)
    seen = [name for name in hosts if "server_cpu_cores" in series[name]]
    if len(seen) == 1:
        return seen[0]
    if seen:
        raise ConfigError(
            f"size: {place}: expected one probe host that saw the server's processes, found {', '.join(sorted(seen))}:"
            " a server on several machines is not sized; on one machine, sample it by one probe"
        )
    if hosts:
        raise ConfigError(
            f"size: {place}: expected the probe host to see the server's processes, found none: run loadsim as root on"
            " the server's machine, or its first slice; if docker-proxy or another program forwards to the server, let"
            " it listen itself, as in Docker's host network (docs/reference/probes.md)"
        )
    raise ConfigError(
        f"size: {place}: expected samples of the probe host, found none: measure with --set 'probes.host={{}}' on the"
        " server's machine"
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of users per second, in each block of the window."""

    tasks: Blocks
    messages: Blocks
    deliveries: Blocks
    imap_commands: Blocks


def rates_of(log: TimingLog, window_s: Window) -> Rates:
    """Return the rates of tasks that ended, of messages and copies accepted, and of IMAP commands begun."""
    names = np.array(log.strings)
    data = names == "SMTP DATA"
    imap = np.char.startswith(names, "IMAP ") & ~np.isin(names, NO_COMMANDS)
    messages: list[NDArray[np.int64]] = []
    commands: list[NDArray[np.int64]] = []
    for piece in log.pieces("commands"):
        messages.append(piece["started_us"][data[piece["command"]] & (piece["outcome"] == OUTCOME["ok"])])
        commands.append(piece["started_us"][imap[piece["command"]]])
    deliveries = [piece["at_us"][piece["event"] == EVENT["accepted"]] for piece in log.pieces("mails")]
    each = (task_ends_us(log), _joined(messages), _joined(deliveries), _joined(commands))
    return Rates(*(block_rates(instants_us, window_s) for instants_us in each))


def task_ends_us(log: TimingLog) -> NDArray[np.int64]:
    """Return the ends of all hits, in microseconds from the common start."""
    spans = np.isin(np.array(log.strings), SPANS)
    pieces = log.pieces("tasks")
    return _joined([each["ended_us"][(each["outcome"] == OUTCOME["ok"]) & ~spans[each["task"]]] for each in pieces])


def put_off(samples: Samples, ends_us: NDArray[np.int64], window_s: Window) -> float:
    """Return by which share the work for a task grows if what the samples have after the window counts, too.

    `ends_us` are those of tasks, also after the window. It is 0 without work or tasks in the window.
    """
    work = [(at_s, value * (at_s - before)) for (before, _), (at_s, value) in pairwise(samples)]
    ends_s = ends_us / 1_000_000

    def for_each_task(until_s: float) -> float:
        tasks = np.count_nonzero((ends_s >= window_s.begin_s) & (ends_s < until_s))
        return sum(each for at_s, each in work if window_s.begin_s <= at_s < until_s) / tasks if tasks else 0.0

    measured = for_each_task(window_s.end_s)
    return for_each_task(math.inf) / measured - 1 if measured else 0.0


def _joined(pieces: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def means(host: Series, figure: str, window_s: Window) -> Blocks:
    """Return the means of a figure in the blocks. Raises `NotKnown` for a figure that the probe does not have."""
    if figure not in host:
        raise NotKnown(f"the probe has no figure {figure}")
    return block_means(host[figure], window_s)
