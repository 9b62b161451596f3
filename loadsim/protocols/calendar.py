"""The calendar over a mailbox: the schedule is one message in the folder Calendar, replaced at each change.

That is what LoadSim's clients did with their schedule file. It works with any client module that has a mailbox;
a CalDAV driver would stand in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.model.ports import CALENDAR, INBOX, Flag, Mailbox, MessageRef


class MailboxCalendar:
    """Keeps the schedule of one user as a message; implements `ports.Calendar`.

    Only what carries loadsim's evidence is ever expunged, so somebody else's calendar mail survives.
    """

    __slots__ = ("_lying", "_mailbox")

    def __init__(self, mailbox: Mailbox) -> None:
        """Shares the mailbox, and so the session, with the user's other tasks."""
        self._mailbox = mailbox
        self._lying: Sequence[MessageRef] | None = None  # what lies in the folder; None: look

    async def replace(self, schedule: bytes) -> None:
        """Append the new schedule, expunge the old, and go back to the Inbox.

        In this order a schedule is there at any time. What went wrong half-way is found by looking next time;
        so is the new message where the server does not tell its reference.
        """
        old = await self._look() if self._lying is None else self._lying
        self._lying = None
        new = await self._mailbox.append(CALENDAR, schedule, (Flag.SEEN,))
        if old:
            await self._mailbox.expunge(old)
        if new is not None:
            self._lying = (new,)
        await self._mailbox.open(INBOX)

    async def _look(self) -> Sequence[MessageRef]:
        """The schedules that loadsim put there, this run or an earlier one."""
        headers = await self._mailbox.headers(CALENDAR, newest=None)
        return [header.ref for header in headers if header.evidence is not None]
