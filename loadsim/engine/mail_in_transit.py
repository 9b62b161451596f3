"""Messages that the server has accepted for users, and that these have not seen yet."""

from __future__ import annotations


class MailInTransit:
    """Messages and users, each pair once. A user may see a message before its sender learns of the acceptance.

    Copies for their own sender, who is on a list, count once a user has seen one: some servers leave senders out.
    """

    __slots__ = ("_accepted", "_for_senders", "_seen_first", "_senders_get_theirs")

    def __init__(self) -> None:
        self._accepted: set[tuple[str, int]] = set()  # not seen yet
        self._for_senders: set[tuple[str, int]] = set()  # as above
        self._senders_get_theirs = False
        self._seen_first: set[tuple[str, int]] = set()  # not accepted yet, or never

    def __len__(self) -> int:
        return len(self._accepted) + self._senders_get_theirs * len(self._for_senders)

    @property
    def recipients(self) -> set[int]:
        """The users that have not seen all of their mail."""
        return {user for _, user in self._accepted | self._for_senders}

    def accepted(self, message: str, user: int, sender: int | None = None) -> None:
        key = (message, user)
        if key in self._seen_first:
            self._seen_first.remove(key)
        else:
            (self._for_senders if user == sender else self._accepted).add(key)

    def seen(self, message: str, user: int, sender: int | None = None) -> None:
        """Remove a message that a user has seen. One that was never accepted compensates for no other."""
        key = (message, user)
        self._senders_get_theirs |= user == sender
        waiting = next((each for each in (self._accepted, self._for_senders) if key in each), None)
        if waiting is None:
            self._seen_first.add(key)
        else:
            waiting.remove(key)
