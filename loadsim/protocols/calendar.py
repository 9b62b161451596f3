"""The calendar over a mailbox: the schedule is one message in the folder Calendar, replaced at each change.

LoadSim's clients did the same with their schedule file. It works with any driver that has a mailbox; a CalDAV driver
would replace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.errors import MailMissing
from loadsim.model.ports import CALENDAR, INBOX, Flag, Mailbox, MessageRef


@dataclass(slots=True, eq=False)
class MailboxCalendar:
    """Keeps the schedule of one user as a message; implements `ports.Calendar`.

    It shares the mailbox, and so the session, with the user's other tasks. It expunges only messages with loadsim's
    tag, so other calendar mail survives.
    """

    mailbox: Mailbox
    _stored: Sequence[MessageRef] | None = field(default=None, init=False)  # schedules in the folder; None: unknown
    _is_there: bool = field(default=False, init=False)  # the server has stored one, by its own account

    async def replace(self, schedule: bytes) -> None:
        """Append the new schedule, expunge the old, and go back to the Inbox.

        In this order the folder always holds a schedule. The next call lists the folder again if this one fails
        half-way, or if the server does not return the new message's reference.
        """
        old = await self._list() if self._stored is None else self._stored
        self._stored = None
        new = await self.mailbox.append(CALENDAR, schedule, (Flag.SEEN,))
        self._is_there = True
        if old:
            await self.mailbox.expunge(old)
        if new is not None:
            self._stored = (new,)
        await self.mailbox.open(INBOX)

    async def _list(self) -> Sequence[MessageRef]:
        """Return the schedules that loadsim put there, in this run or an earlier one. Raises `MailMissing` once."""
        headers = await self.mailbox.headers(CALENDAR, newest=None)
        schedules = [header.ref for header in headers if header.tag is not None]
        was_there, self._is_there = self._is_there, False
        if was_there and not schedules:
            raise MailMissing("no schedule in the calendar")
        return schedules
