"""Submission over JMAP (RFC 8621 section 7): the message is stored as a draft, then submitted and filed as sent.

Email/set would have the server compose the message, and its bytes would differ from those that loadsim's tag states.
Email/import keeps them; it has a request of its own, since James 3.8 resolves no id of an import in the same request.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from loadsim.errors import GeneratorFailed, ServerRefused, TaskFailed
from loadsim.model.ports import DRAFTS, SENT_ITEMS, Flag
from loadsim.model.provisioning_ports import NewMessage
from loadsim.protocols.http.submission import HttpSubmission
from loadsim.protocols.jmap.calls import Call, check_set
from loadsim.protocols.jmap.imports import message_id_of
from loadsim.protocols.jmap.mailbox import JmapMailbox

METHOD = "EmailSubmission/set"


class JmapSubmission(HttpSubmission[JmapMailbox]):
    """Uploads, imports by Email/import, and submits by EmailSubmission/set with onSuccessUpdateEmail."""

    __slots__ = ()

    async def _submit(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        mailbox, session = self.mailbox, self.mailbox.session
        with session:
            identity = self._identity(sender)
            sent = await mailbox.id_of(SENT_ITEMS)
            drafts = mailbox.known_id_of(DRAFTS) or sent  # Cyrus makes none by itself
            new = NewMessage(message, (Flag.SEEN, Flag.DRAFT))
            (draft,) = await mailbox.imports.store(drafts, [new])
            patch: dict[str, Any] = {"keywords/$draft": None}
            if drafts != sent:
                patch |= {f"mailboxIds/{drafts}": None, f"mailboxIds/{sent}": True}
            envelope = {"mailFrom": {"email": sender}, "rcptTo": [{"email": address} for address in recipients]}
            create = {"s": {"emailId": draft, "identityId": identity, "envelope": envelope}}
            try:
                answers = await session.ask([Call(METHOD, {"create": create, "onSuccessUpdateEmail": {"#s": patch}})])
                check_set(answers[0], METHOD, created=["s"])
            except (ServerRefused, GeneratorFailed):
                with suppress(TaskFailed):
                    await session.ask([Call("Email/set", {"destroy": [draft]})])
                raise
            check_set(answers.of(0, "Email/set"), "Email/set", updated=[draft])
            mailbox.sent[message_id_of(message)] = draft

    def _identity(self, sender: str) -> str:
        """Return the identity with this address, or with its domain (RFC 8621 section 6), or without an address.

        Cyrus 3.6 has one without for a log-on name without a domain.
        """
        domain = "*@" + sender.rpartition("@")[2].lower()
        for wanted in (sender.lower(), domain, ""):
            if wanted in self.mailbox.identities:
                return self.mailbox.identities[wanted]
        raise ServerRefused("no identity", f"expected one with the address {sender}")

    async def _probe(self, sender: str, recipient: str) -> None:
        """Find the sender's identity; no method of JMAP asks about a recipient."""
        self._identity(sender)
