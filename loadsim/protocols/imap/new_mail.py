"""Counts of new mail in a user's Inbox, while it is open and when it is reopened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class NewMailAnnouncements:
    """The first UID not listed yet, and the mail announced, across folders and sessions."""

    next_uid: int = 1  # all messages below it that the server showed were listed
    first_uid: int = 1  # all messages below it were there when the Inbox was first opened
    announced: int = 0  # messages reported to the observer since the last listing began
    _expected: int | None = None  # all UIDs below it were announced or listed; None: never opened
    _count: int = 0  # messages when the Inbox was last left

    def opened(self, count: int, uid_next: int | None) -> int:
        """Take the Inbox's message count on opening. Return the number of messages that arrived since it was left.

        UIDNEXT grows by more than the arrivals if UIDs have gaps, the count by less if messages were removed, so the
        smaller growth is returned. If only UIDNEXT grew, it is 1, so that the user lists the Inbox.
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
        """Take the number of messages announced in the open Inbox; each uses up one UID."""
        self.announced += new
        if self._expected is not None:
            self._expected += new

    def take_announced(self) -> bool:
        """Return whether mail was announced since the last listing began, and begin another."""
        announced, self.announced = self.announced, 0
        return announced > 0

    def left(self, count: int) -> None:
        """Take the Inbox's message count on leaving."""
        self._count = count

    def listed(self, uid: int) -> None:
        self.next_uid = max(self.next_uid, uid + 1)
        self._expected = max(self._expected or 1, self.next_uid)

    def renumbered(self, uid_next: int | None) -> None:
        """Start over: all messages have new UIDs (RFC 9051 section 2.3.1.1)."""
        self.next_uid = self.first_uid = 1
        self._expected = uid_next or 1
