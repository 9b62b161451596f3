"""A plan's mail in transit: accepted in one round of virtual time, it arrives at the end of the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

from loadsim.model.ports import Clock
from loadsim.scenario.workload import Workload

ROUND_S = 5.0
"""The length of a round in the profiles' day; users process their mail less often than that."""

HALF_A_MICROSECOND_NS = 500

Progress = Callable[[float], None]
"""Receives the share of a plan done so far, from 0 to 1."""


class InTransit(NamedTuple):
    """A message in transit: when it was accepted, its id, its recipients, and the driver's own object."""

    accepted_ns: int
    id: str
    users: Sequence[int]
    mail: Any


class Rounds:
    """Controls a plan's engine (`control.Control`). `post` receives mail, and `arrive` puts it into Inboxes.

    Activities are due at whole microseconds, and no round ends at one. The run's last round ends half a microsecond
    before the run does, when nothing more is planned. A final one ends half a microsecond after it, when no more mail
    is sent. After each of these, no mail is left in transit.
    """

    arrive: Callable[[Any, Sequence[int]], None]

    def __init__(self, workload: Workload, clock: Clock, progress: Progress | None = None) -> None:
        self._clock = clock
        self._progress = progress
        self._duration_us = workload.duration_us
        self._start_ns = (ceil(workload.scenario.run.ramp_up_s) + 1) * 10**9  # after the last log-on
        self._rounds = ceil(workload.duration_us * workload.compression / (ROUND_S * 1e6))
        self._finished_rounds = 0
        self._ended = asyncio.Event()
        self._posted: list[InTransit] = []  # in this round
        self._in_transit: list[InTransit] = []  # in the previous round

    def post(self, mail: Any, users: Sequence[int]) -> None:
        """Receive a message that was just accepted for these users."""
        self._posted.append(InTransit(self._clock.now_ns(), mail.tag.id, users, mail))

    async def all_ready(self) -> None:
        """Do nothing: there is only one engine."""

    async def common_start(self) -> int:
        """Begin the rounds. Return the common start."""
        self._schedule_end_of_round()
        return self._start_ns

    def stop_waiting(self) -> None:
        """Stop waiting for further mail."""
        self._ended.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Do nothing: all users are in this engine."""

    async def all_finished(self) -> None:
        """Wait for the end of the last round: until then, more mail may arrive."""
        await self._ended.wait()

    def all_delivered(self, outstanding: int) -> bool:
        """Return whether no mail is outstanding; by now, none is in transit."""
        return not outstanding

    def _schedule_end_of_round(self) -> None:
        number = self._finished_rounds + 1
        if number <= self._rounds:
            end_ns = self._duration_us * number // self._rounds * 1000 - HALF_A_MICROSECOND_NS
        else:
            end_ns = self._duration_us * 1000 + HALF_A_MICROSECOND_NS
        left_ns = self._start_ns + end_ns - self._clock.now_ns()
        asyncio.get_running_loop().call_later(left_ns * 1e-9, self._end_round)

    def _end_round(self) -> None:
        """Deliver the previous round's mail; at the last two ends, deliver this round's as well."""
        self._finished_rounds += 1
        if self._progress is not None:
            self._progress(self._finished_rounds / (self._rounds + 1))
        self._deliver(self._in_transit)
        self._in_transit, self._posted = self._posted, []
        if self._finished_rounds >= self._rounds:
            self._deliver(self._in_transit)
            self._in_transit = []
        if self._finished_rounds <= self._rounds:
            self._schedule_end_of_round()
        else:
            self._ended.set()

    def _deliver(self, mails: Sequence[InTransit]) -> None:
        for mail in sorted(mails, key=attrgetter("accepted_ns", "id")):
            self.arrive(mail.mail, mail.users)
