"""Samples from a server's probes, and its users' rates, in the blocks of a window."""

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
"""A probe's samples by figure, including those before the window: each value covers the time since the previous one."""


def hosts_of(series: Mapping[str, Series]) -> list[str]:
    """Return the names of `host` probes, including those with labels and those of monitors."""
    return [name for name in series if kind_of(name) == HOST]


def host_of(place: str, series: Mapping[str, Series]) -> str:
    """Return the only `host` probe that saw the server's processes. Raises `ConfigError` if there are none or several.

    A server on several machines is full as soon as one of them is, and looks just like one machine with two probes.
    """
    hosts = hosts_of(series)
    seen = [name for name in hosts if "server_cpu_cores" in series[name]]
    if len(seen) == 1:
        return seen[0]
    if seen:
        raise ConfigError(
            f"size: {place}: expected one probe host that saw the server's processes, found {', '.join(sorted(seen))}:"
            " a server on several machines cannot be sized; on one machine, use a single probe"
        )
    found = "none" if hosts else "no samples"
    raise ConfigError(
        f"size: {place}: expected the probe host to see the server's processes, found {found}: run loadsim as root on"
        " the server's machine with --set 'probes.host={}'; if docker-proxy or another program forwards to the server,"
        " make the server listen itself, as in Docker's host network (docs/reference/probes.md)"
    )


SUBMISSIONS = ("SMTP DATA", "LMTP DATA", "MAPI SubmitMessage", "JMAP EmailSubmission/set")
"""The commands with which a message is submitted, one for each message."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The users' rates per second in each block of the window."""

    tasks: Blocks
    messages: Blocks
    deliveries: Blocks


def rates_of(log: TimingLog, window_s: Window) -> Rates:
    """Return the rates of successful tasks, accepted messages, and accepted copies."""
    names = np.array(log.strings)
    spans = np.isin(names, SPANS)
    submissions = np.isin(names, SUBMISSIONS)
    none = np.zeros(0, np.int64)
    tasks, messages, deliveries = [none], [none], [none]
    for piece in log.pieces("tasks"):
        tasks.append(piece["ended_us"][(piece["outcome"] == OUTCOME["ok"]) & ~spans[piece["task"]]])
    for piece in log.pieces("commands"):
        messages.append(piece["started_us"][submissions[piece["command"]] & (piece["outcome"] == OUTCOME["ok"])])
    for piece in log.pieces("mails"):
        deliveries.append(piece["at_us"][piece["event"] == EVENT["accepted"]])
    return Rates(*(block_rates(np.concatenate(instants), window_s) for instants in (tasks, messages, deliveries)))


def means(host: Series, figure: str, window_s: Window) -> Blocks:
    """Return a figure's mean in each block. Raises `NotKnown` if the probe does not have it."""
    if figure not in host:
        raise NotKnown(Code.NO_FIGURE, figure=figure)
    return block_means(host[figure], window_s)
