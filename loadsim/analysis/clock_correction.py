"""The instants of several client machines on one clock, that of their station: what delivery times are measured by.

A client's records count from the common start by the client's own clock, which is what tasks were due and measured by,
and they stay so. But a message that one machine sent and another saw lies between two clocks. While a run lasts, each
client's clock is compared with the station's (`cluster.clock_sync`), and the log of its machine says what came of it.
From that comes when, by the station's clock, anything was, and how far that may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.clock_model import OtherClock, Reading
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.reader import Source, TimingLog
from loadsim.timinglog.records import Records

Machine = tuple[str, str]
"""A run and a client."""


STATION_CLOCK = "station_clock"
"""The key of a sample of a machine's health that has a reading of the station's clock."""


def station_clock_sample(station: Reading, ahead_ns: int) -> dict[str, Any]:
    """A client's reading of the station's clock, to stand in the next sample of its machine's health.

    `ahead_ns` is how far ahead of the station's clock the client's was taken to be when the common start was told, or
    until it was.
    """
    told = {"at_ns": station.at_ns, "station_ns": station.there_ns, "error_ns": station.error_ns, "ahead_ns": ahead_ns}
    return {STATION_CLOCK: told}


@dataclass(frozen=True, slots=True)
class StationClock:
    """The station's clock by those of the machines that have read it.

    `compared`: all machines of runs with several machines have read it; otherwise the distance of their clocks is
    unknown. `machines` are those whose instants are corrected.
    """

    machines: Mapping[Machine, OtherClock]
    compared: bool

    def told(
        self, log: TimingLog, records: Records, field: str = "at_us"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """An instant of each record of the log in microseconds from the common start, by the station's clock where that
        was read, and how far it may be wrong, rounded up; 0 where nothing was corrected."""
        at_us = records[field].astype(np.int64)
        errors_us = np.zeros(len(records), np.int64)
        numbers = {name: number for number, name in enumerate(log.strings)}
        for (run, client), clock in self.machines.items():
            mine = (records["run"] == numbers.get(run, -1)) & (records["client"] == numbers.get(client, -1))
            first = clock.readings[0]
            ahead_ns, wrong_ns = clock.ahead(at_us[mine] * 1000.0 - first.at_ns)
            at_us[mine] += np.rint((first.ahead_ns + ahead_ns) / 1000).astype(np.int64)
            errors_us[mine] = np.ceil(wrong_ns / 1000).astype(np.int64)
        return at_us, errors_us


def station_clock(log: TimingLog) -> StationClock:
    """Return the readings of the station's clock in the log."""
    several = _machines_of_several(log.sources)
    read: dict[Machine, list[Sample]] = {}
    for sample in log.health if several else ():  # there may be many
        machine = str(sample.get("run", "")), str(sample.get("client", ""))
        if STATION_CLOCK in sample and "at_s" in sample and machine in several:
            read.setdefault(machine, []).append(sample)
    machines = {machine: OtherClock.of(_readings(samples)) for machine, samples in read.items()}
    return StationClock(machines, compared=several <= machines.keys())


def _readings(samples: Sequence[Mapping[str, Any]]) -> Iterator[Reading]:
    """Readings in which both clocks count from the common start, where the log's records do.

    The offset of the client's clock was decided after the first samples. The last sample, in the order of time, has it.
    """
    ahead_ns = samples[-1][STATION_CLOCK]["ahead_ns"]
    for sample in samples:
        read = sample[STATION_CLOCK]
        since_ns = round(sample["at_s"] * 1e9) - (sample["at_ns"] - read["at_ns"])
        yield Reading(since_ns, since_ns + read["station_ns"] - read["at_ns"] + ahead_ns, read["error_ns"])


def _machines_of_several(sources: Iterable[Source]) -> set[Machine]:
    """The machines of runs whose users were simulated by several."""
    machines = {_machine_of(source) for source in sources if source.simulates}
    runs = [run for run, _ in machines]
    return {machine for machine in machines if runs.count(machine[0]) > 1}


def _machine_of(source: Source) -> Machine:
    return source.run, source.client
