"""Storing messages: upload and Email/import (RFC 8621 section 4.8), which keep their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.provisioning_ports import NewMessage, batches
from loadsim.protocols.imap.requests import fields_of
from loadsim.protocols.jmap.calls import Call, check_set
from loadsim.protocols.jmap.mail import keywords_of
from loadsim.protocols.jmap.session import JmapSession

BATCH_MESSAGES, BATCH_BYTES = 16, 1 << 20
"""The most messages and bytes of one Email/import, as of one MULTIAPPEND."""

_REFUSED_UNREAD = ("invalidArguments", "invalidProperties")


@dataclass(slots=True, eq=False)
class Importer:
    """Stores messages over a user's session.

    James 3.8 imports no message without a keyword: once it has refused one, unread messages are imported as read, and
    then marked as unread.
    """

    session: JmapSession
    imports_unread: bool = True

    async def store(self, mailbox_id: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages in a mailbox, in this order. Return their Emails' ids."""
        stored: list[str] = []
        most = min(BATCH_MESSAGES, self.session.current.objects_in_set)
        for batch in batches(messages, most, BATCH_BYTES):
            blobs = [await self.session.upload(new.message) for new in batch]
            unread = any(not keywords_of(new.flags) for new in batch)
            try:
                stored += await self._import(mailbox_id, batch, blobs)
            except ServerRefused as failure:
                if not unread or not self.imports_unread or not failure.kind.startswith(_REFUSED_UNREAD):
                    raise
                self.imports_unread = False
                stored += await self._import(mailbox_id, batch, blobs)
        return stored

    async def _import(self, mailbox_id: str, batch: Sequence[NewMessage], blobs: Sequence[str]) -> list[str]:
        keys = [str(place) for place in range(len(batch))]
        wanted = [keywords_of(new.flags) for new in batch]
        emails = {
            key: {
                "blobId": blob,
                "mailboxIds": {mailbox_id: True},
                "keywords": keywords if keywords or self.imports_unread else {"$seen": True},
                "receivedAt": _utc_date(new.received_us),
            }
            for key, new, blob, keywords in zip(keys, batch, blobs, wanted, strict=True)
        }
        answer = (await self.session.ask([Call("Email/import", {"emails": emails})]))[0]
        check_set(answer, "Email/import", created=keys)
        made = answer.by_name("created")
        ids = [made[key].id("id") for key in keys]
        marked = [email_id for email_id, keywords in zip(ids, wanted, strict=True) if not keywords]
        if marked and not self.imports_unread:
            await self.update(marked, {"keywords/$seen": None})
        return ids

    async def update(self, ids: Sequence[str], patch: Mapping[str, Any]) -> None:
        """Apply a patch (RFC 8620 section 5.3) to Emails, as many at once as the server takes."""
        for portion in portions(ids, self.session.current.objects_in_set):
            answers = await self.session.ask([Call("Email/set", {"update": dict.fromkeys(portion, patch)})])
            check_set(answers[0], "Email/set", updated=portion)


def portions(ids: Sequence[str], most: int) -> Iterable[Sequence[str]]:
    return (ids[at : at + most] for at in range(0, len(ids), most))


def message_id_of(message: bytes) -> str:
    """Return a message's Message-ID; "" if it has none."""
    return fields_of(message.partition(b"\r\n\r\n")[0]).get("message-id", b"").decode("ascii", "replace").strip()


def sent_us_of(message: bytes) -> int | None:
    """Return when a message was sent, by its tag; None if it has none."""
    tag = MessageTag.parse(
        fields_of(message.partition(b"\r\n\r\n")[0]).get(HEADER.lower(), b"").decode("ascii", "replace")
    )
    return tag.sent_us if tag else None


def _utc_date(received_us: int | None) -> str:
    """Return a UTCDate (RFC 8620 section 1.4), which James requires; None stands for now."""
    at = datetime.now(UTC) if received_us is None else datetime.fromtimestamp(received_us // 1_000_000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
