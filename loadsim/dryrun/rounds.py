"""A plan's rounds: mail accepted in one round of virtual time arrives at the end of the next."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from loadsim.dryrun.planned_user import Instant, PlannedSender, PlannedUser
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


class Peers(Protocol):
    """The other processes of a plan."""

    def send(self, mails: Sequence[InTransit]) -> None:
        """Send a round's mail to each."""

    def receive(self) -> Sequence[InTransit]:
        """Return the mail that all have sent in the round that was sent last."""


class NoPeers:
    """The peers of a process that plans for all users (`Peers`)."""

    def send(self, mails: Sequence[InTransit]) -> None:
        pass

    def receive(self) -> Sequence[InTransit]:
        return ()


def rounds_of(workload: Workload) -> list[int]:
    """Return the ends of the rounds, in nanoseconds since the common start.

    Activities are due at whole microseconds, and no round ends at one. The run's last round ends half a microsecond
    before the run does, when nothing more is planned. A final one ends half a microsecond after it, when no more mail
    is sent.
    """
    rounds = ceil(workload.duration_us * workload.compression / (ROUND_S * 1e6))
    ends_us = [workload.duration_us * number // rounds for number in range(1, rounds + 1)]
    final_ns = workload.duration_us * 1000 + HALF_A_MICROSECOND_NS
    return [*(end_us * 1000 - HALF_A_MICROSECOND_NS for end_us in ends_us), final_ns]


class Rounds:
    """Runs users from the common start to the end of the run. `post` receives mail, and `arrive` puts it into Inboxes.

    No mail is left in transit after the last two rounds.
    """

    arrive: Callable[[Any, Sequence[int]], None]

    def __init__(self, workload: Workload, now: Instant, peers: Peers) -> None:
        self._now = now
        self._end_ns = workload.duration_us * 1000
        self._ends_ns = rounds_of(workload)
        self._peers = peers
        self._posted: list[InTransit] = []  # in this round

    def post(self, mail: Any, users: Sequence[int]) -> None:
        """Receive a message that was just accepted for these users."""
        self._posted.append(InTransit(self._now.ns, mail.tag.id, users, mail))

    def run(
        self, users: Mapping[int, PlannedUser], senders: Sequence[PlannedSender], progress: Progress | None
    ) -> None:
        """Run these users, by their numbers, and senders in each round in which they have something to do."""
        waiting: defaultdict[int, list[PlannedUser | PlannedSender]]
        waiting = defaultdict(list, {0: [*users.values(), *senders]})  # by the round of their next step
        in_transit: list[InTransit] = []  # in the previous round
        peers, last = self._peers, len(self._ends_ns) - 1
        for number, end_ns in enumerate(self._ends_ns):
            for user in waiting.pop(number, ()):
                next_ns = user.work(min(end_ns, self._end_ns))
                if next_ns is not None:
                    waiting[bisect_right(self._ends_ns, next_ns)].append(user)
            # Deliver the previous round's mail; at the last two ends, this round's as well.
            self._now.ns = end_ns
            if 0 < number < last:
                in_transit += peers.receive()
            peers.send(self._posted)
            arriving, in_transit, self._posted = in_order(in_transit), self._posted, []
            if number >= last - 1:
                arriving += in_order([*in_transit, *peers.receive()])
                in_transit = []
            reached: dict[int, None] = {}
            for mail in arriving:
                here = [user for user in mail.users if user in users]
                self.arrive(mail.mail, here)
                reached |= dict.fromkeys(here)
            for number_reached in reached:
                users[number_reached].list_new()
            if progress is not None:
                progress((number + 1) / (last + 1))


def in_order(mails: Sequence[InTransit]) -> list[InTransit]:
    """Return the mail of a round in the order in which it arrives."""
    return sorted(mails, key=attrgetter("accepted_ns", "id"))
