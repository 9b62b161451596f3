"""Counts of new mail in a user's Inbox, while it is open and when it is opened again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class NewMailAnnouncements:
    """The first UID that was not listed, and the mail that was announced, over folders and sessions."""

    next_uid: int = 1  # all messages below it were listed, of those that the server showed
    first_uid: int = 1  # all messages below it were there when the Inbox was first opened
    announced: int = 0  # messages, to the observer, since the last listing began
    _expected: int | None = None  # all UIDs below it were announced or listed; None: never opened
    _count: int = 0  # messages when the Inbox was last left

    def opened(self, count: int, uid_next: int | None) -> int:
        """Take the number of messages of the Inbox, just opened. Return the number that arrived since it was left.

        UIDNEXT grows by more than the arrivals if UIDs have gaps, the count by less if messages were removed. So the
        smaller growth is taken. If UIDNEXT grew but the count did not, it is 1, so that the user lists the Inbox.
        """
        new, grown = 0, count - self._count
        if self._expected is None:
            self.first_uid = uid_next or 1
        else:
            if uid_next is None:
                new = max(0, grown)
            elif uid_next > self._expected:
                new = min(uid_next - self._expected, grown) if grown > 0 else 1
        self._expected = max(self._expected or 1, uid_next or 1)
        return new

    def grew(self, new: int) -> None:
        """Take the number of messages that the server announced in the open Inbox; each has a UID."""
        self.announced += new
        if self._expected is not None:
            self._expected += new

    def take_announced(self) -> bool:
        """Return whether mail was announced since the last listing began. Another one begins."""
        announced, self.announced = self.announced, 0
        return announced > 0

    def left(self, count: int) -> None:
        """Take the number of messages in the Inbox when it is left."""
        self._count = count

    def listed(self, uid: int) -> None:
        self.next_uid = max(self.next_uid, uid + 1)
        self._expected = max(self._expected or 1, self.next_uid)

    def renumbered(self, uid_next: int | None) -> None:
        """Begin again: all messages have got new UIDs (RFC 9051 section 2.3.1.1)."""
        self.next_uid = self.first_uid = 1
        self._expected = uid_next or 1
