"""Accounts of the peer, with their mailboxes, Emails and changes, in memory."""

# ruff: noqa: N815, names are those of the protocol
from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .messages import Message

EMAIL, MAILBOX, DELIVERY, IDENTITY, SUBMISSION = "Email", "Mailbox", "EmailDelivery", "Identity", "EmailSubmission"
TYPES = (EMAIL, MAILBOX, DELIVERY, IDENTITY, SUBMISSION)
CREATED, UPDATED, DESTROYED, ARRIVED = "created", "updated", "destroyed", "arrived"
"""Kinds of changes; under the switch `moved_is_created`, an Email that enters a mailbox has arrived."""

COUNTS = ["totalEmails", "unreadEmails"]


class Refused(Exception):
    """A SetError (RFC 8620 section 5.3), or a method's error (section 3.6.2)."""

    def __init__(self, kind: str, **details: Any) -> None:
        super().__init__(kind)
        self.answer = {"type": kind, **details}


@dataclass(frozen=True, slots=True)
class User:
    """A user, with one account."""

    name: str
    address: str
    password: str

    @property
    def token(self) -> str:
        return f"token-of-{self.password}"


@dataclass(slots=True)
class Mailbox:
    id: str
    name: str
    role: str | None = None
    parentId: str | None = None
    sortOrder: int = 0
    isSubscribed: bool = True


@dataclass(slots=True)
class Email:
    id: str
    message: Message
    mailbox_ids: frozenset[str]
    keywords: frozenset[str]
    received_at: str


@dataclass(slots=True)
class Log:
    """The changes of one type: state N is that after N changes."""

    changes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def state(self) -> str:
        return f"s{len(self.changes)}"

    def since(self, state: str, most: int | None) -> dict[str, Any]:
        """Return the net changes of the longest run that has at most `most` ids (RFC 8620 section 5.2)."""
        if not re.fullmatch(r"s\d+", state) or int(state[1:]) > len(self.changes):
            raise Refused("cannotCalculateChanges")
        net: dict[str, str] = {}
        at, arrived = int(state[1:]), []
        for item, change in self.changes[at:]:
            if most is not None and item not in net and len(net) == most:
                break
            if change == ARRIVED:
                arrived.append(item)
            if change == DESTROYED and net.get(item) == CREATED:
                del net[item]
            elif change in (CREATED, DESTROYED):
                net[item] = UPDATED if net.get(item) == DESTROYED else change
            else:
                net.setdefault(item, UPDATED)
            at += 1
        kinds = {
            kind: [item for item, change in net.items() if change == kind] for kind in (CREATED, UPDATED, DESTROYED)
        }
        kinds[CREATED] += [item for item in dict.fromkeys(arrived) if item in kinds[UPDATED]]
        return {"oldState": state, "newState": f"s{at}", "hasMoreChanges": at < len(self.changes), **kinds}


class Account:
    """A user's data; each change wakes the event sources of `watchers`."""

    def __init__(self, user: User, site: Any) -> None:
        self.user, self.site = user, site  # the `Peer`
        self.id = f"A{secrets.token_hex(8)}"
        self.logs = {kind: Log() for kind in TYPES}
        self.mailboxes: dict[str, Mailbox] = {}
        self.emails: dict[str, Email] = {}
        self.blobs: dict[str, bytes] = {}
        self.watchers: set[asyncio.Event] = set()
        self._made = 0
        for name, role in site.switches.mailboxes:
            self.add_mailbox(Mailbox(self.new_id("m"), name, role))

    def new_id(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def changed(self, kind: str, ids: Collection[str], change: str) -> None:
        self.logs[kind].changes += [(each, change) for each in ids]
        for watcher in self.watchers:
            watcher.set()

    @property
    def states(self) -> dict[str, str]:
        return {kind: log.state for kind, log in self.logs.items()}

    def add_mailbox(self, mailbox: Mailbox) -> None:
        self.mailboxes[mailbox.id] = mailbox
        self.changed(MAILBOX, [mailbox.id], CREATED)

    def with_role(self, role: str) -> Mailbox | None:
        return next((each for each in self.mailboxes.values() if each.role == role), None)

    def keep_blob(self, content: bytes) -> str:
        blob_id = Message(content).blob_id
        self.blobs[blob_id] = content
        return blob_id

    def blob(self, blob_id: str) -> bytes | None:
        """Return an upload, a message, or a part of one."""
        whole, _, part = blob_id.partition("-")
        content = self.blobs.get(whole)
        if content is None or not part:
            return content
        return Message(content).part_content(part)

    def add(self, message: Message, mailbox_ids: Collection[str], keywords: Collection[str], received_at: str) -> Email:
        """Raise `Refused` if equal messages are one Email, and this account has one."""
        email_id = f"e{message.digest}" if self.site.switches.content_ids else self.new_id("e")
        if email_id in self.emails:
            raise Refused("alreadyExists", existingId=email_id)
        email = Email(email_id, message, frozenset(mailbox_ids), frozenset(keywords), received_at)
        self.blobs[message.blob_id] = message.raw
        self.emails[email_id] = email
        self.changed(EMAIL, [email_id], CREATED)
        self.changed(MAILBOX, mailbox_ids, UPDATED)
        return email

    def update(self, email: Email, mailbox_ids: frozenset[str], keywords: frozenset[str]) -> None:
        touched = mailbox_ids ^ email.mailbox_ids
        if not touched and keywords == email.keywords:
            return
        if (keywords ^ email.keywords) & {"$seen", "$draft"}:
            touched |= mailbox_ids | email.mailbox_ids
        moved = bool(mailbox_ids - email.mailbox_ids)
        email.mailbox_ids, email.keywords = mailbox_ids, keywords
        if not self.site.switches.keeps_state:
            self.changed(EMAIL, [email.id], ARRIVED if moved and self.site.switches.moved_is_created else UPDATED)
            self.changed(MAILBOX, sorted(touched), UPDATED)

    def destroy(self, email: Email) -> None:
        del self.emails[email.id]
        self.changed(EMAIL, [email.id], DESTROYED)
        self.changed(MAILBOX, sorted(email.mailbox_ids), UPDATED)

    def deliver(self, message: Message) -> None:
        """Put a message into the Inbox, as a message transfer agent does."""
        inbox = self.with_role("inbox")
        assert inbox is not None
        self.add(message, [inbox.id], (), now())
        self.changed(DELIVERY, [message.digest], CREATED)

    def counts(self, mailbox: Mailbox) -> dict[str, int]:
        """Return a Mailbox's counts (RFC 8621 section 2)."""
        inside = [email for email in self.emails.values() if mailbox.id in email.mailbox_ids]
        unread = [email for email in inside if not email.keywords & {"$seen", "$draft"}]
        return dict(zip(COUNTS, (len(inside), len(unread)), strict=True))


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
