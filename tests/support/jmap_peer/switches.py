"""Deviations of servers from RFC 8620 and RFC 8621, faults, and limits."""

# ruff: noqa: N815, names are those of the protocol
from __future__ import annotations

from dataclasses import dataclass

ROLES = (("Inbox", "inbox"), ("Drafts", "drafts"), ("Sent", "sent"), ("Trash", "trash"))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the session (RFC 8620 section 2), which the peer enforces."""

    maxSizeUpload: int = 50_000_000
    maxConcurrentUpload: int = 4
    maxSizeRequest: int = 10_000_000
    maxConcurrentRequests: int = 4
    maxCallsInRequest: int = 16
    maxObjectsInGet: int = 500
    maxObjectsInSet: int = 500


@dataclass(frozen=True, slots=True)
class Switches:
    """Deviations that servers have, then faults that a client's checks must find."""

    mailboxes: tuple[tuple[str, str], ...] = ROLES
    """Names and roles of each user's mailboxes; Cyrus only has the Inbox."""
    relative_urls: bool = False
    needs_version: bool = False
    """401 without a body, unless Accept has jmapVersion=rfc-8621 (James)."""
    other_order: bool = False
    """Email/get lists by id, not in the order asked for (James)."""
    query_limit: int | None = None
    """Email/query returns at most so many ids, and says so (James)."""
    push: bool = True
    """Without it, the event source answers 204 (Cyrus 3.6)."""
    push_types: tuple[str, ...] | None = None
    """The types that events have, such as `Email` only (Cyrus 3.12); None for all."""
    no_unread_import: bool = False
    """Email/import refuses messages without keywords (James)."""
    moved_is_created: bool = False
    """Email/changes lists what an update put into a mailbox as created, too (James)."""
    content_ids: bool = False
    """An Email's id is the hash of its message: equal messages are one Email (Cyrus)."""
    ignores_if_in_state: bool = False
    """ifInState is not looked at (James)."""
    identity_without_address: bool = False
    """Identities have an empty `email` (Cyrus, for log-on names without a domain)."""
    import_without_states: bool = False
    """Email/import answers without oldState and newState (Cyrus 3.6)."""
    keeps_state: bool = False
    """Fault: updates of Emails change no state."""
    changes_omit: bool = False
    """Fault: Email/changes leaves out its last id."""
    changes_invent: bool = False
    """Fault: Email/changes lists an id that never was."""
    listed_not_found: bool = False
    """Fault: Email/get does not find the first id that it is asked for."""
