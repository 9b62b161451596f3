"""Submission over MAPI: names are resolved, and the message is submitted from the Outbox (MS-OXOMSG section 3.2.4)."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.protocols.http.submission import HttpSubmission
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.composition import composed
from loadsim.protocols.mapi.mailbox import MapiMailbox
from loadsim.protocols.mapi.objects import write_message
from loadsim.protocols.mapi.wire import Value


class MapiSubmission(HttpSubmission[MapiMailbox]):
    """Resolves names, and submits the message; if a recipient is unknown, it sends nothing.

    The server files the sent message in Sent Items, as with Outlook. Message-ID and tag travel twice: gromox gives sent
    mail its own Message-ID unless one is among the named headers, and turns User-Agent, but not X-LoadSim, into a
    property for the recipient.
    """

    __slots__ = ()

    async def _submit(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        session, book = self.mailbox.session, self.mailbox.book
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

    async def _probe(self, sender: str, recipient: str) -> None:
        """ResolveNames of the recipient."""
        with self.mailbox.session:
            await self.mailbox.book.resolve(self.mailbox.session, [recipient])


def _entry_id(logon: rops.LoggedOn, folder_id: int) -> bytes:
    """Return a folder's EntryID (MS-OXCDATA section 2.2.4.1)."""
    return bytes(4) + logon.mailbox + b"\1\0" + logon.replica + folder_id.to_bytes(8, "little")[2:] + bytes(2)
