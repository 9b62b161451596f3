"""Put several clients' instants on their controller's clock, for delivery times between machines.

Records count from the common start by the client's own clock, which also decides when tasks are due. A message that
one machine sent and another saw involves two clocks. During a run, each client compares its clock with the controller's
(`cluster.channel`), and logs the readings. They give each instant on the controller's clock, and its error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.clocks.model import OtherClock, Reading
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import Records

CONTROLLER_CLOCK = "controller_clock"
"""The key of a health sample with a reading of the controller's clock."""


def controller_clock_sample(reading: Reading, ahead_ns: int) -> dict[str, Any]:
    """Return a client's reading of the controller's clock, for the next health sample of its machine.

    `ahead_ns` is the lead of its clock that the client assumed when it computed the common start.
    """
    values = {
        "at_ns": reading.at_ns,
        "controller_ns": reading.there_ns,
        "error_ns": reading.error_ns,
        "ahead_ns": ahead_ns,
    }
    return {CONTROLLER_CLOCK: values}


@dataclass(frozen=True, slots=True)
class ControllerClock:
    """The controller's clock as seen from the clients that read it (`machines`), whose instants are corrected.

    `compared` is False if one of several machines did not read it: clocks may then differ by any amount.
    """

    machines: Mapping[str, OtherClock]
    compared: bool

    def corrected_us(self, log: TimingLog, mails: Records) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the instant of each mail record by the controller's clock, and its error, rounded up.

        Instants are microseconds from the common start. The error of uncorrected instants is 0.
        """
        at_us = mails["at_us"].astype(np.int64)
        errors_us = np.zeros(len(mails), np.int64)
        numbers = {name: number for number, name in enumerate(log.strings)}
        for client, clock in self.machines.items():
            of_client = mails["client"] == numbers.get(client, -1)
            first = clock.readings[0]
            ahead_ns, wrong_ns = clock.ahead(at_us[of_client] * 1000.0 - first.at_ns)
            at_us[of_client] += np.rint((first.ahead_ns + ahead_ns) / 1000).astype(np.int64)
            errors_us[of_client] = np.ceil(wrong_ns / 1000).astype(np.int64)
        return at_us, errors_us


def controller_clock(log: TimingLog) -> ControllerClock:
    clients = {source.client for source in log.sources if source.simulates}
    if len(clients) < 2:
        return ControllerClock({}, compared=True)
    read: dict[str, list[Sample]] = {}
    for sample in log.health:
        if CONTROLLER_CLOCK in sample and "at_s" in sample and sample.client in clients:
            read.setdefault(sample.client, []).append(sample)
    machines = {client: OtherClock.of(_readings(samples)) for client, samples in read.items()}
    return ControllerClock(machines, compared=clients <= machines.keys())


def _readings(samples: Sequence[Sample]) -> Iterator[Reading]:
    """Yield readings in which both clocks count from the common start, as the log's records do.

    The client settles on a lead only after the first samples, so it is taken from the last one.
    """
    ahead_ns = samples[-1].controller_clock["ahead_ns"]
    for sample in samples:
        read = sample.controller_clock
        since_ns = round(sample.at_s * 1e9) - (sample.at_ns - read["at_ns"])
        yield Reading(since_ns, since_ns + read["controller_ns"] - read["at_ns"] + ahead_ns, read["error_ns"])
