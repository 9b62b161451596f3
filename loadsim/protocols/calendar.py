"""A calendar kept in a mailbox: the schedule is one message in the Calendar folder, replaced with each change.

LoadSim's clients treated their schedule file the same way. Any driver with a mailbox can use it; a CalDAV driver would
bring its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.errors import MailMissing
from loadsim.model.ports import CALENDAR, INBOX, Flag, Mailbox, MessageRef


@dataclass(slots=True, eq=False)
class MailboxCalendar:
    """Stores one user's schedule as a message; implements `ports.Calendar`.

    It shares the mailbox, and so the session, with the user's other tasks. It expunges only messages with loadsim's
    tag, so other calendar mail survives.
    """

    mailbox: Mailbox
    _stored: Sequence[MessageRef] | None = field(default=None, init=False)  # schedules in the folder; None: unknown
    _is_there: bool = field(default=False, init=False)  # the server has accepted one

    async def replace(self, schedule: bytes) -> None:
        """Append the new schedule, expunge the old one, and reopen the Inbox.

        In this order the folder is never without a schedule. The next call lists the folder again if this one fails
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
        """Return loadsim's schedules, even of earlier runs. Raises `MailMissing` once if a stored one is gone."""
        headers = await self.mailbox.headers(CALENDAR, newest=None)
        schedules = [header.ref for header in headers if header.tag is not None]
        was_there, self._is_there = self._is_there, False
        if was_there and not schedules:
            raise MailMissing("no schedule in the calendar")
        return schedules
