"""What one user knows of his Inbox: what lies in it, what is unread, and when word came of what he has not seen yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loadsim.model.message_tag import INITIAL_RUN, MessageTag
from loadsim.model.ports import Header, MessageRef

MOST_ANNOUNCEMENTS = 4096
"""The most instants of announcements that are kept; a user lists new mail after the first."""


class Unread(NamedTuple):
    """A message to be read, and the instant since when it was in the user's sight."""

    header: Header
    since_ns: int


class Inbox:
    """The Inbox of a user of this run, with the profile's `limit` of messages (None: none), among `users` users."""

    __slots__ = ("_announced", "_limit", "_lying", "_run_id", "_users", "processing", "unread")

    def __init__(self, run_id: str, users: int, limit: int | None) -> None:
        self.unread: list[Unread] = []
        self.processing = False  # by an activity that has begun and not ended
        self._run_id = run_id
        self._users = users
        self._limit = limit
        self._lying: dict[MessageRef, Header] = {}  # oldest first
        self._announced: deque[tuple[int, int]] = deque()  # messages not listed since, and when: earliest first

    @property
    def announced(self) -> int:
        """How many messages the server has announced that were not listed since."""
        return sum([messages for messages, _ in self._announced])

    def announce(self, messages: int, at_ns: int) -> None:
        """Note that the server has announced this number of new messages.

        Any number of them takes the memory of one. Beyond `MOST_ANNOUNCEMENTS` the last two announcements are joined,
        at the later instant: no delivery looks earlier than it was.
        """
        if len(self._announced) == MOST_ANNOUNCEMENTS:
            messages += self._announced.pop()[0]
        self._announced.append((messages, at_ns))

    def forget_announced(self) -> None:
        """The session is over: what was announced in it is found after the next log-on."""
        self._announced.clear()

    def knows(self, header: Header) -> bool:
        """Whether loadsim made the message, and its sender is one of the run's users: others are left alone."""
        evidence = header.evidence
        return evidence is not None and 1 <= evidence.sender <= self._users

    def take_in(self, headers: Sequence[Header], stamps: Sequence[int]) -> list[tuple[MessageTag, int]]:
        """New messages were listed, visible since these `stamps`; those of this run, each with its stamp."""
        new = []
        for header, at_ns in zip(headers, stamps, strict=True):
            evidence = header.evidence
            if evidence is None or header.ref in self._lying or not self.knows(header):
                continue
            if evidence.run == self._run_id:
                new.append((evidence, at_ns))
            elif evidence.run != INITIAL_RUN:
                continue  # still under way when an earlier run ended; ids repeat, and so would those of answers to it
            self._lying[header.ref] = header
            if not header.seen:
                self.unread.append(Unread(header, at_ns))
        return new

    def stamps(self, listed: int, announced: int | None, now_ns: int) -> list[int]:
        """When each of the listed messages was announced, in their order; now, for those that never were.

        `announced` of them had been when the list was asked for; None after a log-on, when nobody knows since when
        they were there.

        What was announced before they were asked for must be among them. Where they are fewer, something was
        announced that is not there, and the earliest words are dropped: no delivery looks earlier than it was.
        Word that came while they were listed may be about one that is not among them: it is kept for the next time.
        """
        if announced is None:
            return [now_ns] * listed
        if announced > listed:
            self._take(announced - listed)
        known = [at_ns for messages, at_ns in self._take(listed) for _ in range(messages)]
        return known + [now_ns] * (listed - len(known))

    def _take(self, messages: int) -> list[tuple[int, int]]:
        """Remove the announcements of the earliest `messages` messages, and return them."""
        taken = []
        while messages and self._announced:
            held, at_ns = self._announced.popleft()
            if held > messages:
                self._announced.appendleft((held - messages, at_ns))
                held = messages
            taken.append((held, at_ns))
            messages -= held
        return taken

    def gone(self, headers: Iterable[Header]) -> None:
        """These messages are no longer in the Inbox (or never were)."""
        for header in headers:
            self._lying.pop(header.ref, None)

    def excess(self) -> list[Header]:
        """The oldest messages above the limit; unread ones stay."""
        above = 0 if self._limit is None else len(self._lying) - self._limit
        if above <= 0:
            return []
        unread = {each.header.ref for each in self.unread}
        return [header for header in self._lying.values() if header.ref not in unread][:above]
