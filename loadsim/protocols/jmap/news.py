"""New mail in a user's Inbox: listed, announced to the observer, or to be listed; and the last known state of Email.

New is what changes list as created and the user does not know: James 3.8 lists moved and copied mail there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.protocols.jmap.values import Members


@dataclass(slots=True)
class NewEmails:
    """The Inbox's Emails by id, across sessions. All changes up to `state` are known; None: none are."""

    state: str | None = None
    listed: set[str] = field(default_factory=set)
    expected: dict[str, None] = field(default_factory=dict)  # known to be there, but not listed yet, in order
    before: frozenset[str] = frozenset()  # in the first list
    floor: str | None = None  # when the oldest Email of the first list was received; None: no list yet
    _untold: int = 0  # those expected that the observer does not know of

    def take(self, emails: Sequence[Members], is_whole: bool) -> None:
        """Take a list of the newest Emails, or of all."""
        ids = [email.id("id") for email in emails]
        if self.floor is None:
            self.before = frozenset(ids)
            oldest = min([email.text("receivedAt", "") for email in emails], default="")
            self.floor = "" if is_whole else oldest
        self.took(ids)

    def took(self, ids: Sequence[str]) -> None:
        self.listed.update(ids)
        for email_id in ids:
            self.expected.pop(email_id, None)
        self._untold = min(self._untold, len(self.expected))

    def is_new(self, email: Members, reopen: bool = False) -> bool:
        """Return whether an Email arrived after the last list, or with `reopen`, after the first."""
        old = self.before if reopen else self.listed
        return email.id("id") not in old and email.text("receivedAt", "") >= (self.floor or "")

    def created(self, emails: Sequence[Members], inbox: str) -> None:
        """Take created Emails, of which those in the Inbox are new unless the user knows them."""
        for email in emails:
            if inbox in email.names_in("mailboxIds") and self.is_new(email) and email.id("id") not in self.expected:
                self.expected[email.id("id")] = None
                self._untold += 1

    def tell(self) -> int:
        """Return the number of messages to announce to the observer, who then knows of them."""
        told, self._untold = self._untold, 0
        return told
