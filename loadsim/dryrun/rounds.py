"""The exchange of mail between the engines of a plan, at the ends of rounds of virtual time.

Users of different engines affect each other by mail only. A message that is accepted in one round arrives at the end
of the next, also within one engine. So a plan depends neither on the number of engines nor on their speed. An engine
need not wait for others that are less than a round behind.
"""

from __future__ import annotations

import asyncio
import io
import pickle
from collections import deque
from collections.abc import Callable, Collection, Sequence
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from loadsim.engine.engine import Engine
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import Clock
from loadsim.model.workload import Workload

ROUND_S = 5.0
"""The duration of a round in the time of the profiles' day; users process their mail less often."""

HALF_A_MICROSECOND_NS = 500


Progress = Callable[[float], None]
"""Receives the finished share of a plan, from 0 to 1."""


class Peers(Protocol):
    """The other engines of a plan."""

    def send(self, message: bytes) -> None:
        """Send a message to each of them, without waiting until they receive it."""

    def receive(self) -> Sequence[bytes]:
        """Wait for the next message of each of them, and return all."""


class PlannedMail(Protocol):
    """A mail in transit, as far as rounds need it."""

    @property
    def tag(self) -> MessageTag | None:
        """Its tag; all mail of a plan has one."""


class InTransit(NamedTuple):
    """A mail in transit: the time of its acceptance, its id, its recipients, and itself."""

    accepted_ns: int
    id: str
    users: tuple[int, ...]
    mail: PlannedMail


class Rounds:
    """Keeps an engine of a plan, with these users, in step with its peers (`control.Control`). It takes mail by `post`.

    Users' activities are due at whole microseconds, and no round ends there. The last round before the end of the run
    ends half a microsecond before it, when nothing more is planned. The last of all ends half a microsecond after it,
    when no more mail is sent. No mail stays in transit at the ends of these two.
    """

    def __init__(
        self,
        workload: Workload,
        users: Collection[int],
        clock: Clock,
        peers: Peers | None,
        progress: Progress | None = None,
    ) -> None:
        self._users = frozenset(users)
        self._clock = clock
        self._peers = peers
        self._progress = progress
        self._duration_us = workload.duration_us
        self._start_ns = (ceil(workload.scenario.run.ramp_up_s) + 1) * 10**9  # after the last log-on
        self._rounds = ceil(workload.duration_us * workload.compression / (ROUND_S * 1e6))
        self._finished_rounds = 0
        self._ended = asyncio.Event()
        self._posted: list[InTransit] = []
        self._in_transit: deque[list[InTransit]] = deque()  # by finished round; the peers have them, too

    def serve(self, engine: Engine, arrive: Callable[[PlannedMail, Sequence[int]], None]) -> None:
        """Set the engine, and the function that puts a mail into users' Inboxes."""
        self._engine = engine
        self._arrive = arrive

    def post(self, mail: PlannedMail, users: Sequence[int]) -> None:
        """Take a mail that was accepted now for these users."""
        assert mail.tag is not None
        self._posted.append(InTransit(self._clock.now_ns(), mail.tag.id, tuple(users), mail))

    async def all_ready(self) -> None:
        """Do nothing: in virtual time all engines are ready at its beginning."""

    async def common_start(self) -> int:
        """Begin the rounds. Return the common start, which is equal in all engines."""
        self._schedule_end_of_round()
        return self._start_ns

    def stop_waiting(self) -> None:
        """End the wait for further mail."""
        self._ended.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Do nothing: the user's engine learns of the mail at the end of the round."""

    async def all_finished(self) -> None:
        """Wait for the end of the last round: until then, more mail may arrive."""
        await self._ended.wait()

    def all_delivered(self, outstanding: int) -> bool:
        """Return whether no mail is outstanding in this engine: the peers have none in transit by now."""
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
        """Send this round's mail to the peers, and deliver that of the round before."""
        self._in_transit.append(self._posted)
        if self._peers is not None:
            self._peers.send(_packed(self._posted))
        self._posted = []
        self._finished_rounds += 1
        if self._progress is not None:
            self._progress(min(1.0, self._finished_rounds / self._rounds))
        kept = 1 if self._finished_rounds < self._rounds else 0
        while len(self._in_transit) > kept:
            self._deliver(self._in_transit.popleft())
        if self._finished_rounds <= self._rounds:
            self._schedule_end_of_round()
        else:
            self._ended.set()

    def _deliver(self, mails: list[InTransit]) -> None:
        """Deliver a round's mail of this engine and its peers, in an order that is equal in all engines."""
        if self._peers is not None:
            for message in self._peers.receive():
                mails += self._accepted_by_peer(pickle.loads(message))  # noqa: S301
        mails.sort(key=attrgetter("accepted_ns", "id"))
        for mail in mails:
            self._arrive(mail.mail, [user for user in mail.users if user in self._users])

    def _accepted_by_peer(self, mails: Sequence[InTransit]) -> Sequence[InTransit]:
        """Report a peer's mail to this engine as accepted for its users. Return the mail."""
        for mail in mails:
            for user in mail.users:
                if user in self._users:
                    self._engine.mail_accepted(mail.id, user)
        return mails


class _Pickler(pickle.Pickler):
    """A pickler that stores a named tuple as its class and values, without calling it: that takes half the time."""

    def reducer_override(self, each: Any) -> Any:
        """Return the class and values of a tuple. Pickle calls this for types that it does not know."""
        return (type(each), tuple(each)) if isinstance(each, tuple) else NotImplemented


def _packed(mails: Sequence[InTransit]) -> bytes:
    packed = io.BytesIO()
    _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(mails)
    return packed.getvalue()
