"""A user's knowledge of their Inbox: its messages, the unread ones, and announced messages not listed yet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loadsim.model.delivery_report import may_report
from loadsim.model.message_tag import INITIAL_RUN, MessageTag
from loadsim.model.ports import Flag, Header, MessageRef, flags_among

MOST_ANNOUNCEMENTS = 4096
"""The most announcements that are kept; a user lists new mail soon after the first."""


class Unread(NamedTuple):
    """A message to read, and when it became visible to the user."""

    header: Header
    since_ns: int


class Inbox:
    """A user's Inbox, holding at most `limit` messages (from the profile; None: unlimited).

    The run's users and outside senders, and those of the start state, have numbers up to `last_sender`.

    With `old_mail`, the Inbox starts with messages that have been read already, which do not count. If the user
    `tracks` receipts, `reports` has new messages that may be delivery reports. `refused_reports` are those that the
    server refused to show; they return to `reports` when messages are next listed.
    """

    def __init__(
        self, run_id: str, last_sender: int, limit: int | None, old_mail: bool = False, tracks: bool = False
    ) -> None:
        self.unread: list[Unread] = []
        self.foreign: set[MessageRef] = set()  # listed, but not known
        self.reports: list[Unread] = []
        self.refused_reports: list[Unread] = []
        self.processing = False  # an activity is processing it
        self._run_id = run_id
        self._last_sender = last_sender
        self._limit = limit
        self._old_mail = old_mail
        self._tracks = tracks
        self._receipts: set[MessageRef] = set()
        self._messages: dict[MessageRef, Header] = {}  # oldest first
        self._staying: dict[MessageRef, Header] = {}  # removed from `_messages`, but possibly still in the Inbox
        self._taken: set[str] = set()  # ids of all messages listed so far
        self._renumbered: Counter[str] = Counter()  # copies by id, known before their references became void
        self._announced: deque[tuple[int, int]] = deque()  # how many unlisted messages, and when: oldest first

    @property
    def announced(self) -> int:
        """The number of announced messages that have not been listed since."""
        return sum([messages for messages, _ in self._announced])

    def announce(self, messages: int, at_ns: int) -> None:
        """Note that the server has announced this many new messages.

        Beyond `MOST_ANNOUNCEMENTS`, the last two announcements are merged at the later instant, which bounds memory
        without making any delivery look earlier than it was.
        """
        if len(self._announced) == MOST_ANNOUNCEMENTS:
            messages += self._announced.pop()[0]
        self._announced.append((messages, at_ns))

    def forget_announced(self) -> None:
        """Forget the announcements of a session that has ended; the next log-on lists the messages."""
        self._announced.clear()

    def knows(self, header: Header) -> bool:
        """Return True for messages from users and outside senders of this run; others are left alone."""
        tag = header.tag
        return tag is not None and 1 <= tag.sender <= self._last_sender

    def take_in(self, headers: Sequence[Header], stamps: Sequence[int]) -> list[tuple[MessageTag, int]]:
        """Take in listed messages, visible since `stamps`. Return this run's new messages, each with its stamp.

        A second copy of a message is also new, but is never read.
        """
        self.reports += self.refused_reports
        self.refused_reports.clear()
        new = []
        for header, at_ns in zip(headers, stamps, strict=True):
            tag = header.tag
            if tag is None or not self.knows(header):
                if header.ref not in self.foreign and header.ref not in self._receipts:
                    self.foreign.add(header.ref)
                    if self._tracks and tag is None and may_report(header.sender):
                        self.reports.append(Unread(header, at_ns))
                continue
            if header.ref in self._messages or header.ref in self._staying:
                continue
            if tag.run == self._run_id:
                if self._renumbered[tag.id]:
                    self._renumbered[tag.id] -= 1
                else:
                    new.append((tag, at_ns))
            elif tag.run != INITIAL_RUN:
                continue  # from an earlier run: ids repeat, so the ids of answers would, too
            elif header.seen and self._old_mail:
                continue
            self._messages[header.ref] = header
            is_copy = tag.id in self._taken
            self._taken.add(tag.id)
            if not (header.seen or is_copy):  # answering a copy would repeat the first answer's Message-ID
                self.unread.append(Unread(header, at_ns))
        return new

    def is_receipt(self, header: Header) -> None:
        """Note that a report is a receipt that the user has requested, so it is not foreign."""
        self.foreign.discard(header.ref)
        self._receipts.add(header.ref)

    def stamps(self, listed: int, announced: int | None, now_ns: int) -> list[int]:
        """Return when each listed message was announced, in the same order; `now_ns` for any that was not.

        `announced` is the number of announced messages when the list was requested. It is None after a log-on, when
        arrival times are unknown.

        The list should hold all messages announced before the request. If it is shorter, the earliest announcements
        are dropped, so that no delivery looks earlier than it was. Later announcements are kept for the next list.
        """
        if announced is None:
            return [now_ns] * listed
        if announced > listed:
            self._take(announced - listed)
        known = [at_ns for messages, at_ns in self._take(listed) for _ in range(messages)]
        return known + [now_ns] * (listed - len(known))

    def _take(self, messages: int) -> list[tuple[int, int]]:
        """Remove and return the announcements of the earliest `messages` messages."""
        taken = []
        while messages and self._announced:
            held, at_ns = self._announced.popleft()
            if held > messages:
                self._announced.appendleft((held - messages, at_ns))
                held = messages
            taken.append((held, at_ns))
            messages -= held
        return taken

    def flagged(self, header: Header, flag: Flag) -> None:
        known = self._messages.get(header.ref)
        if known is not None:
            self._messages[header.ref] = known._replace(flags=flags_among(known.flags | {flag}))

    def holds(self, header: Header) -> bool:
        """Return whether a message is in the Inbox for sure."""
        return header.ref in self._messages

    @property
    def held(self) -> list[Header]:
        """The users' messages that are in the Inbox for sure, oldest first."""
        return list(self._messages.values())

    def known(self, header: Header) -> Header:
        """Return a message with the flags that it should have."""
        return self._messages.get(header.ref, header)

    def gone(self, headers: Iterable[Header]) -> None:
        for header in headers:
            self._messages.pop(header.ref, None)

    def may_stay(self, headers: Iterable[Header]) -> None:
        """Note messages that may still be in the Inbox, so that listing them again does not make them new."""
        self._staying.update((header.ref, header) for header in headers)

    def renumber(self) -> None:
        """Forget the references of all messages before they are listed again; known messages will not count as new."""
        known = (*self._messages.values(), *self._staying.values())
        self._renumbered += Counter(header.tag.id for header in known if header.tag)
        for messages in (self.unread, self.foreign, self._messages, self._staying, self._taken):
            messages.clear()
        self.reports.clear()
        self.refused_reports.clear()
        self._receipts.clear()

    def excess(self) -> list[Header]:
        """Return the oldest messages above the limit, leaving out unread ones."""
        above = 0 if self._limit is None else len(self._messages) - self._limit
        if above <= 0:
            return []
        unread = {message.header.ref for message in self.unread}
        return [header for header in self._messages.values() if header.ref not in unread][:above]
