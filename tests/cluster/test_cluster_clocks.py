"""Clocks of the machines of a cluster: read over Dask while a run lasts, told to the machines, and in their logs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from control_lines import line_of, read_line
from dask_clusters import conduct, quiet_dask, shared

from loadsim.analysis.clocks.correction import controller_clock
from loadsim.analysis.clocks.model import Reading
from loadsim.cluster.channel import WorkerChannel
from loadsim.timinglog.merge import read_logs

__all__ = ["quiet_dask"]

VAGUE_NS = 20e9
"""No clock is known less well: an agent may take ten seconds to answer. Some are 200,000 s apart here."""

pytestmark = pytest.mark.usefixtures("quiet_dask")


def test_the_start_allows_for_clock_drift_during_log_on() -> None:
    """A clock that gains 50 millionths is 30 ms further after ten minutes in which users logged on."""

    def shows_ns(at_s: float) -> int:
        return 7 * 10**15 + round(at_s * 1_000_050_000)

    readings = [Reading(at_s * 10**9, shows_ns(at_s), 50_000) for at_s in range(0, 600, 10)]
    channel = WorkerChannel(readings[0])
    lines: list[bytes] = []
    channel.link.attach(lines.append)
    channel.link.feed(b"heard 0\n")
    channel.send(line_of(begin={}))
    for received, reading in enumerate(readings[1:], 2):
        channel.send_clock(reading)
        channel.link.feed(b"heard %d\n" % received)
    channel.send_start(600 * 10**9)
    told = [read_line(line.partition(b" ")[2]) for line in lines if not line.startswith(b"heard")]
    assert [kind for kind, _ in told] == ["begin"] + ["clock"] * 60 + ["start", "clock"]
    start_ns, (*last, ahead_ns) = (about for _, about in told[-2:])
    assert abs(start_ns - shows_ns(600)) < 100_000
    assert ahead_ns == start_ns - 600 * 10**9
    assert last == told[-3][1][:-1]
    assert told[1][1] == [readings[0].there_ns, 0, 50_050, readings[0].ahead_ns]  # as the client would say it


def test_late_progress_of_the_preparation_is_ignored() -> None:
    """A machine reports its preparation each second, until it is told to begin: a report may cross that message."""
    reading = Reading(0, 0, 0)
    channel = WorkerChannel(reading)
    progress = line_of(progress=["initialise", 2, 2])
    for number, line in enumerate([progress, progress, progress, line_of(ready=1), line_of(over=True)], 1):
        if number == 3:
            assert asyncio.run(channel.receive()) == progress
            channel.set_clock(reading)
        channel.link.feed(b"%d %s" % (number, line))
    assert [asyncio.run(channel.receive()) for _ in range(3)] == [line_of(ready=1), line_of(over=True), b""]


class Elsewhen:
    """A host that is this one, but for its monotonic clock (time_namespaces(7)): as `test_cluster.Agents` takes it."""

    address = "127.0.0.1"

    def __init__(self, ahead_s: int) -> None:
        self._ahead_s = ahead_s

    def command(self, words: Sequence[str]) -> list[str]:
        return ["unshare", "--time", f"--monotonic={self._ahead_s}", "--", *words]


@pytest.mark.nightly(part="hosts")
def test_machines_whose_clocks_are_days_apart_start_together(tmp_path: Path) -> None:
    """And their logs say so: by the controller's clock, both began when they were to, as far as is known."""
    ahead_s = {"one": 0, "two": 200_000}
    lab: Any = {name: Elsewhen(seconds) for name, seconds in ahead_s.items()}
    conduct(tmp_path, shared(tmp_path, *ahead_s), lab=lab)
    log = read_logs(sorted(tmp_path.rglob("*.tlog")))
    clock = controller_clock(log)
    assert clock.compared
    starts_ns = {source.client: source.facts.start_ns - ahead_s[source.client] * 10**9 for source in log.sources}
    told = [other.there(0) for other in clock.machines.values()]
    assert all(abs(one.ahead_ns) <= 2 * one.error_ns < VAGUE_NS for one in told)
    assert abs(starts_ns["one"] - starts_ns["two"]) <= sum(one.error_ns for one in told)
