"""The mail that a mailbox must contain after a run, by its start state and the recorded events since.

Each event changes the copies of a message. A copy is a folder, and the flags that the copy must have there:

    accepted            the Inbox has a copy, unless it has arrived already
    seen, found         the first one confirms that copy; each further one is a copy that the server made
    left                names the folder from which the next event takes a copy, instead of the Inbox
    moved, deleted      a copy goes from there to `folder`, with its flags
    copied              `folder` has a further copy, with the flags that all copies have
    saved               `folder` has a copy that is seen, and a draft in Drafts; in the calendar, it replaces all others
    expunged            `folder` has one copy less
    read, answered ...  a copy in `folder` has this flag
    unsure              from now on, a copy may also be in `folder`; after `left`, one may be gone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadsim.model.ports import CALENDAR, DRAFTS, INBOX, Flag

FLAGGED = {"read": Flag.SEEN, "answered": Flag.ANSWERED, "forwarded": Flag.FORWARDED}
"""The flags that events set."""

Flags = frozenset[Flag]
NONE: Flags = frozenset()
SEEN: Flags = frozenset((Flag.SEEN,))
SAVED_DRAFT: Flags = frozenset((Flag.SEEN, Flag.DRAFT))


def common(flags: Sequence[Flags]) -> Flags:
    return flags[0].intersection(*flags[1:]) if flags else NONE


class MailEvent(NamedTuple):
    """An event of a message in one mailbox, in the words of `model.records.EVENTS`."""

    event: str
    message: str
    folder: str
    sender: int


class InitialMail(NamedTuple):
    """A message of the start state."""

    message: str
    folder: str
    seen: bool


@dataclass(slots=True)
class Expected:
    """The copies of a message that a mailbox must contain, and the folders from which one was `expunged`.

    According to the records, the server made `surplus` of them. `filed` has the folders in which users found such a
    copy: the server may have put one there that is missing elsewhere. A `strange` message was never put into the
    mailbox. After a failed command, copies may be in other folders, `places`, and have other flags, but none is lost.
    `arrived`: its user has seen it, or it was there before. `given` are all flags that a copy has ever had.
    """

    copies: list[tuple[str, Flags]] = field(default_factory=list)
    expunged: tuple[str, ...] = ()
    surplus: int = 0
    filed: tuple[str, ...] = ()
    strange: bool = False
    places: frozenset[str] = frozenset()
    arrived: bool = False
    sender: int = 0
    given: Flags = NONE

    def take(self, folder: str) -> Flags:
        """Remove a copy from a folder. Return its flags, or the common flags of several copies."""
        there = [flags for at, flags in self.copies if at == folder]
        if not there:
            if moved := next((copy for copy in self.copies if copy[0] in self.places), None):
                self.copies.remove(moved)
            elif folder not in self.places:  # the user found a copy that the server has made
                self.surplus += not self.strange
                self.filed += () if self.strange else (folder,)
            return NONE
        taken = common(there)
        others = [copy for copy in self.copies if copy[0] != folder]
        self.copies = others + [(folder, taken)] * (len(there) - 1)
        return taken

    def flag(self, folder: str, flag: Flag) -> None:
        """Require the flag on one copy in a folder unless one already has it: copies cannot be told apart."""
        self.given |= {flag}
        there = [at for at, (where, _) in enumerate(self.copies) if where == folder]
        if there and not any(flag in self.copies[at][1] for at in there):
            self.copies[there[0]] = folder, self.copies[there[0]][1] | {flag}


class ExpectedMail:
    """The expected messages of one user's mailbox, by id. `start` is None if its start state is unknown.

    With `one_copy`, a folder has at most one copy of a message.
    """

    def __init__(self, user: int, start: Iterable[InitialMail] | None, one_copy: bool = False) -> None:
        self.user = user
        self._one_copy = one_copy
        self.messages: dict[str, Expected] = {}
        self.knows_start = start is not None
        self._left: str | None = None  # the folder from which the next event takes a copy; None for the Inbox, if any
        self.schedules: set[str] = set()  # after a failed change of the calendar, which has at least one of them
        for message, folder, seen in start or ():
            flags = SEEN if seen else NONE
            self.messages[message] = Expected([(folder, flags)], arrived=True, given=flags)

    def replay(self, events: Iterable[MailEvent]) -> None:
        """Apply the events: acceptances first, then the others in the order in which they happened."""
        for event in events:
            self._apply(*event)

    def _apply(self, event: str, message: str, folder: str, sender: int) -> None:
        left, self._left = self._left, None
        if event == "unsure" and folder == CALENDAR:
            self.schedules |= {message, *self.in_calendar}
            return
        of = self.messages.get(message)
        if of is None:
            of = self.messages[message] = Expected(strange=event not in ("accepted", "saved", "unsure"), sender=sender)
        match event:
            case "accepted":
                if not of.copies:  # accepted twice only if an individual's address is also a list
                    of.copies.append((INBOX, NONE))
            case "seen" | "found":
                of.surplus += of.arrived
                if of.arrived or not of.copies:
                    of.copies.append((INBOX, NONE))
                of.arrived = True
            case "left":
                self._left = folder
            case "moved" | "deleted":
                self._put(of, folder, of.take(left or INBOX))
            case "copied":
                self._put(of, folder, common([flags for _, flags in of.copies]))
            case "saved":
                if folder == CALENDAR:
                    self.schedules.clear()
                    for other in self.in_calendar:
                        self.messages[other].take(CALENDAR)
                        self.messages[other].expunged += (CALENDAR,)
                flags = SAVED_DRAFT if folder == DRAFTS else SEEN
                of.copies.append((folder, flags))
                of.given |= flags
            case "expunged":
                of.take(folder)
                of.expunged += (folder,)
            case "unsure":
                if left is not None:
                    of.take(left)
                of.places |= {folder}
            case _:
                of.flag(folder, FLAGGED[event])

    def _put(self, of: Expected, folder: str, flags: Flags) -> None:
        if not self._one_copy or all(at != folder for at, _ in of.copies):
            of.copies.append((folder, flags))

    @property
    def in_calendar(self) -> list[str]:
        return [message for message, of in self.messages.items() if any(at == CALENDAR for at, _ in of.copies)]
