"""Submission over MAPI: names are resolved, and the message is submitted from the Outbox (MS-OXOMSG section 3.2.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.errors import TaskFailed
from loadsim.model.provisioning_ports import ServerOffer
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.composition import composed
from loadsim.protocols.mapi.mailbox import MapiMailbox
from loadsim.protocols.mapi.objects import write_message
from loadsim.protocols.mapi.wire import Value


@dataclass(slots=True, eq=False)
class MapiSubmission:
    """Implements `Probing`, which includes `ports.Submission`, in the mailbox's session.

    If the mailbox is not logged on, a session lasts from the first message until `close`. The server files the sent
    message in Sent Items, as with Outlook. Message-ID and tag travel twice: gromox gives sent mail its own Message-ID
    unless one is among the named headers, and turns User-Agent, but not X-LoadSim, into a property for the recipient.
    """

    mailbox: MapiMailbox
    _logged_on: bool = field(default=False, init=False)  # by a message

    async def send(
        self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None = None
    ) -> bool:
        """ResolveNames, then SubmitMessage. If a recipient is unknown, raises `ServerRefused` and sends nothing.

        Return False: it requests no delivery receipts. The observer gets the session's loss, since the mailbox also
        loses it.
        """
        session = self.mailbox.session
        was_on = session.is_on
        try:
            await self._send(recipients, message)
        except TaskFailed:
            if was_on and session.failure is not None:
                session.observer.lost(session.failure)
            raise
        return False

    async def _send(self, recipients: Sequence[str], message: bytes) -> None:
        session, book = self.mailbox.session, self.mailbox.book
        await self._log_on()
        with session as logon:
            await book.resolve(session, recipients)
            mail = composed(message, self.mailbox.named)
            properties: list[tuple[int, Value]] = [
                (tags.MESSAGE_FLAGS, tags.READ | tags.UNSENT),
                (tags.SENT_MAIL_ENTRY_ID, _entry_id(logon, logon.folder_ids[rops.SENT_ITEMS])),
            ]
            named, known = self.mailbox.named, dict(mail.properties)
            for key, tag in (("sent_id", tags.INTERNET_MESSAGE_ID), ("sent_tag", named["tag"])):
                if tag in known:
                    properties.append((named[key], known[tag]))
            outbox = logon.folder_ids[rops.OUTBOX]
            await write_message(session, "SubmitMessage", outbox, mail, properties, recipients, submits=True)
            self.mailbox.sent_ids.add(mail.message_id)

    async def check(self) -> None:
        """Resolve the user's own address."""
        address = self.mailbox.session.account.address
        await self.ask(address, address)

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """ResolveNames of a recipient; see `Probing`."""
        try:
            await self._log_on()
            with self.mailbox.session:
                await self.mailbox.book.resolve(self.mailbox.session, [recipient])
            return self.mailbox.offer
        finally:
            await self.close()

    async def _log_on(self) -> None:
        """Begin a session if the mailbox has none, and has lost none."""
        session = self.mailbox.session
        if session.logon is None and session.failure is None:
            await self.mailbox.log_on()
            self._logged_on = True

    async def close(self) -> None:
        """End a session begun here."""
        if self._logged_on and self.mailbox.session.is_on:
            await self.mailbox.log_off()
        self._logged_on = False


def _entry_id(logon: rops.LoggedOn, folder_id: int) -> bytes:
    """Return a folder's EntryID (MS-OXCDATA section 2.2.4.1)."""
    return bytes(4) + logon.mailbox + b"\1\0" + logon.replica + folder_id.to_bytes(8, "little")[2:] + bytes(2)
