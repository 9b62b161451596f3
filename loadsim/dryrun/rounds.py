"""A plan's rounds: mail accepted in one round of virtual time arrives at the end of the next."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

from loadsim.dryrun.planned_user import Instant, PlannedUser
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
    """Runs users from the common start to the end of the run. `post` receives mail, and `arrive` puts it into Inboxes.

    Activities are due at whole microseconds, and no round ends at one. The run's last round ends half a microsecond
    before the run does, when nothing more is planned. A final one ends half a microsecond after it, when no more mail
    is sent. After each of these, no mail is left in transit.
    """

    arrive: Callable[[Any, Sequence[int]], None]

    def __init__(self, workload: Workload, now: Instant) -> None:
        self._now = now
        self._end_ns = workload.duration_us * 1000
        rounds = ceil(workload.duration_us * workload.compression / (ROUND_S * 1e6))
        ends_us = [workload.duration_us * number // rounds for number in range(1, rounds + 1)]
        self._ends_ns = [end_us * 1000 - HALF_A_MICROSECOND_NS for end_us in ends_us]
        self._ends_ns.append(self._end_ns + HALF_A_MICROSECOND_NS)
        self._posted: list[InTransit] = []  # in this round

    def post(self, mail: Any, users: Sequence[int]) -> None:
        """Receive a message that was just accepted for these users."""
        self._posted.append(InTransit(self._now.ns, mail.tag.id, users, mail))

    def run(self, users: Sequence[PlannedUser], progress: Progress | None) -> None:
        """Run the users, who are in the order of their numbers, in each round in which they have something to do."""
        waiting: defaultdict[int, list[PlannedUser]] = defaultdict(list, {0: [*users]})  # by the round of the next step
        in_transit: list[InTransit] = []  # in the previous round
        for number, end_ns in enumerate(self._ends_ns):
            for user in waiting.pop(number, ()):
                next_ns = user.work(min(end_ns, self._end_ns))
                if next_ns is not None:
                    waiting[bisect_right(self._ends_ns, next_ns)].append(user)
            # Deliver the previous round's mail; at the last two ends, this round's as well.
            self._now.ns = end_ns
            arriving, in_transit, self._posted = _in_order(in_transit), self._posted, []
            if number >= len(self._ends_ns) - 2:
                arriving += _in_order(in_transit)
                in_transit = []
            for mail in arriving:
                self.arrive(mail.mail, mail.users)
            for recipient in dict.fromkeys(recipient for mail in arriving for recipient in mail.users):
                users[recipient - 1].list_new()
            if progress is not None:
                progress((number + 1) / len(self._ends_ns))


def _in_order(mails: Sequence[InTransit]) -> list[InTransit]:
    return sorted(mails, key=attrgetter("accepted_ns", "id"))
