"""What of the Inbox is new to this user: counted while it is open, found out when it is opened again."""

from __future__ import annotations


class NewMailAnnouncements:
    """Keeps, over folders and sessions, from where to look for new mail, and what was announced already."""

    __slots__ = ("_count", "_expected", "next_uid")

    def __init__(self) -> None:
        self.next_uid = 1  # below it every message has been listed
        self._expected: int | None = None  # below it every UID has been announced or listed; None: never looked
        self._count = 0  # messages when the Inbox was last left

    def opened(self, count: int, uid_next: int | None) -> int:
        """The Inbox was opened and holds `count` messages; how many of them came since it was left.

        Both numbers know half of it: UIDNEXT grows by more than what came if UIDs have gaps, the count by less if
        others removed messages. The smaller is right but for the rare both at once; then it is one, so that
        somebody looks.
        """
        new, grown = 0, count - self._count
        if self._expected is not None:
            if uid_next is None:
                new = max(0, grown)
            elif uid_next > self._expected:
                new = min(uid_next - self._expected, grown) if grown > 0 else 1
        self._expected = max(self._expected or 1, uid_next or 1)
        return new

    def grew(self, new: int) -> None:
        """So many messages were announced while the Inbox was open; each took a UID at least."""
        if self._expected is not None:
            self._expected += new

    def left(self, count: int) -> None:
        """The Inbox is no longer open; it held `count` messages."""
        self._count = count

    def listed(self, uid: int) -> None:
        """All messages up to this one have been listed."""
        self.next_uid = max(self.next_uid, uid + 1)
        self._expected = max(self._expected or 1, self.next_uid)

    def renumbered(self, uid_next: int | None) -> None:
        """The server gave all messages new UIDs (RFC 9051 section 2.3.1.1): begin again, behind what lies there."""
        self.next_uid = uid_next or 1
        self._expected = self.next_uid
