"""The samples of a server's probes, and the rates of its users, in the blocks of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loadsim.analysis.probes.resources import HOST, kind_of
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.model.records import SPANS
from loadsim.model.terms import Window
from loadsim.size.utilisation import Blocks, NotKnown, Samples, block_means, block_rates
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT, OUTCOME

Series = Mapping[str, Samples]
"""The samples of a probe by figure, also those before the window: a value stands for the time since."""


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
    found = "none" if hosts else "no samples"
    raise ConfigError(
        f"size: {place}: expected the probe host to see the server's processes, found {found}: run loadsim as root on"
        " the server's machine with --set 'probes.host={}'; if docker-proxy or another program forwards to the server,"
        " let it listen itself, as in Docker's host network (docs/reference/probes.md)"
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of users per second, in each block of the window."""

    tasks: Blocks
    messages: Blocks
    deliveries: Blocks


def rates_of(log: TimingLog, window_s: Window) -> Rates:
    """Return the rates of tasks that ended, and of messages and copies accepted."""
    names = np.array(log.strings)
    spans = np.isin(names, SPANS)
    data = names == "SMTP DATA"
    none = np.zeros(0, np.int64)
    tasks, messages, deliveries = [none], [none], [none]
    for piece in log.pieces("tasks"):
        tasks.append(piece["ended_us"][(piece["outcome"] == OUTCOME["ok"]) & ~spans[piece["task"]]])
    for piece in log.pieces("commands"):
        messages.append(piece["started_us"][data[piece["command"]] & (piece["outcome"] == OUTCOME["ok"])])
    for piece in log.pieces("mails"):
        deliveries.append(piece["at_us"][piece["event"] == EVENT["accepted"]])
    return Rates(*(block_rates(np.concatenate(each), window_s) for each in (tasks, messages, deliveries)))


def means(host: Series, figure: str, window_s: Window) -> Blocks:
    """Return the means of a figure in the blocks. Raises `NotKnown` for a figure that the probe does not have."""
    if figure not in host:
        raise NotKnown(Code.NO_FIGURE, figure=figure)
    return block_means(host[figure], window_s)
