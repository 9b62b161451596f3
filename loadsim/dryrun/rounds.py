"""How the engines of a plan exchange mail: at the ends of rounds of virtual time.

An engine's users meet those of another one in mail alone. What is accepted in a round arrives at the end of the next,
wherever its recipients are, so that nothing depends on how many engines there are, or on which is the fastest; and an
engine need not wait for another one that is less than a round behind it.
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
"""How long a round is, in the time of the profiles' day: nobody looks for mail as often."""

HALF_A_MICROSECOND_NS = 500


class Others(Protocol):
    """The other engines of a plan."""

    def tell(self, said: bytes) -> None:
        """Say something to each of them; when they hear it is their affair."""
        ...

    def hear(self) -> Sequence[bytes]:
        """The next thing that each of them has said to this engine, when all have."""
        ...


class Mail(Protocol):
    """What must be known of a message on its way; the mail system knows more."""

    @property
    def evidence(self) -> MessageTag | None:
        """All mail of a plan has it."""
        ...


class Letter(NamedTuple):
    """A message on its way: when it was accepted, its id, for whom, and itself."""

    accepted_ns: int
    id: str
    users: tuple[int, ...]
    mail: Mail


class Rounds:
    """Keeps an engine of a plan, with these users, in step with the others (`control.Control`). Mail goes by `post`.

    No round ends when something may be due that users have planned: that is at whole microseconds. The last one before
    the end of the run ends half a microsecond before, when nothing is planned any more; and the last of all half a
    microsecond after, when nobody sends any more. At the ends of these two nothing stays on its way.
    """

    def __init__(self, workload: Workload, users: Collection[int], clock: Clock, others: Others | None) -> None:
        self._users = frozenset(users)
        self._clock = clock
        self._others = others
        self._duration_us = workload.duration_us
        self._start_ns = (ceil(workload.scenario.run.ramp_up_s) + 1) * 10**9  # when everybody has long been on
        self._rounds = ceil(workload.duration_us * workload.compression / (ROUND_S * 1e6))
        self._over = 0  # how many rounds are
        self._ended = asyncio.Event()
        self._posted: list[Letter] = []
        self._on_their_way: deque[list[Letter]] = deque()  # of each round that is over; the others know of them

    def serve(self, engine: Engine, arrive: Callable[[Mail, Sequence[int]], None]) -> None:
        """Learn whose mail it is, and how it comes into Inboxes."""
        self._engine = engine
        self._arrive = arrive

    def post(self, mail: Mail, users: Sequence[int]) -> None:
        """A message is on its way to these users from now on."""
        assert mail.evidence is not None
        self._posted.append(Letter(self._clock.now_ns(), mail.evidence.id, tuple(users), mail))

    async def all_ready(self) -> None:
        """In virtual time there is nothing to wait for: all are, at its beginning."""

    async def common_start(self) -> int:
        """The same instant for every engine. From then on there are rounds."""
        self._wait_for_the_end()
        return self._start_ns

    def stop_waiting(self) -> None:
        """There will be no more mail that matters."""
        self._ended.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """The user's engine hears of it when the message arrives."""

    async def all_finished(self) -> None:
        """Until the last round has ended there may be more mail."""
        await self._ended.wait()

    def all_delivered(self, outstanding: int) -> bool:
        """No more can come from anywhere."""
        return not outstanding

    def _wait_for_the_end(self) -> None:
        number = self._over + 1
        if number <= self._rounds:
            end_ns = self._duration_us * number // self._rounds * 1000 - HALF_A_MICROSECOND_NS
        else:
            end_ns = self._duration_us * 1000 + HALF_A_MICROSECOND_NS
        left_ns = self._start_ns + end_ns - self._clock.now_ns()
        asyncio.get_running_loop().call_later(left_ns * 1e-9, self._end)

    def _end(self) -> None:
        """Tell the others what was posted in this round, and let arrive what was in the one before."""
        self._on_their_way.append(self._posted)
        if self._others is not None:
            self._others.tell(_packed(self._posted))
        self._posted = []
        self._over += 1
        stay = 1 if self._over < self._rounds else 0
        while len(self._on_their_way) > stay:
            self._let_arrive(self._on_their_way.popleft())
        if self._over <= self._rounds:
            self._wait_for_the_end()
        else:
            self._ended.set()

    def _let_arrive(self, letters: list[Letter]) -> None:
        """Our letters of a round, and those that the others sent in it, in an order that is the same everywhere."""
        if self._others is not None:
            for said in self._others.hear():
                letters += self._heard_of(pickle.loads(said))  # noqa: S301
        letters.sort(key=attrgetter("accepted_ns", "id"))
        for letter in letters:
            self._arrive(letter.mail, [user for user in letter.users if user in self._users])

    def _heard_of(self, letters: Sequence[Letter]) -> Sequence[Letter]:
        """Mail from other engines: this one learns now that it was accepted for users of ours."""
        for letter in letters:
            for user in letter.users:
                if user in self._users:
                    self._engine.mail_accepted(letter.id, user)
        return letters


class _Pickler(pickle.Pickler):
    """A pickler that takes a named tuple for its class and its values, without asking it: that takes half the time."""

    def reducer_override(self, each: Any) -> Any:
        """Called for whatever pickle does not know by itself."""
        return (type(each), tuple(each)) if isinstance(each, tuple) else NotImplemented


def _packed(letters: Sequence[Letter]) -> bytes:
    packed = io.BytesIO()
    _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(letters)
    return packed.getvalue()
