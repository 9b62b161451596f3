"""What an IMAP server can say, as immutable values (RFC 9051 section 7, RFC 3501 section 7).

Tuples with names, because a busy engine makes thousands of them in a second. Text that people wrote stays
bytes here; who shows it decodes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from loadsim.protocols.imap.sets import NumberSet


class Cut(bytes):
    """A response as it came, but for its largest literals, which are in `beside`, by the place where each would begin.

    So nobody ever copies them.
    """

    beside: Mapping[int, bytearray]


class Code(NamedTuple):
    """A response code in brackets (RFC 9051 section 7.1): its name in capitals, and what follows it as it came."""

    name: str
    arguments: str


class Tagged(NamedTuple):
    """The end of a command: `status` is OK, NO or BAD (RFC 9051 section 7.1)."""

    tag: str
    status: str
    code: Code | None
    text: str


class Condition(NamedTuple):
    """An untagged OK, NO, BAD, PREAUTH or BYE; the greeting is one too (RFC 9051 sections 7.1 and 7.1.4)."""

    status: str
    code: Code | None
    text: str


class Continuation(NamedTuple):
    """The server is ready for the rest of a command (RFC 9051 section 7.6)."""

    text: str


class Capability(NamedTuple):
    """What the server offers, in capitals (RFC 9051 section 7.2.2)."""

    names: frozenset[str]


class ListEntry(NamedTuple):
    """One mailbox, its name decoded; attributes in lower case (RFC 9051 section 7.3.1)."""

    attributes: frozenset[str]
    delimiter: str | None
    name: str


class MailboxStatus(NamedTuple):
    """The numbers that STATUS asked for, by their names in capitals (RFC 9051 section 7.3.4)."""

    name: str
    items: Mapping[str, int]


class Search(NamedTuple):
    """What SEARCH found, from a SEARCH or an ESEARCH response (RFC 3501 7.2.5, RFC 9051 section 7.3.3)."""

    numbers: NumberSet


class Exists(NamedTuple):
    """How many messages the open mailbox holds now (RFC 9051 section 7.4.1)."""

    messages: int


class Expunged(NamedTuple):
    """The message of this number is gone; those after it move up by one (RFC 9051 section 7.5.1)."""

    number: int


class Address(NamedTuple):
    """One address of an envelope. Without a host it opens or closes a group (RFC 9051 section 7.5.2)."""

    name: bytes | None
    route: bytes | None
    mailbox: bytes | None
    host: bytes | None


class Envelope(NamedTuple):
    """A message's header fields, parsed by the server (RFC 9051 section 7.5.2, ENVELOPE)."""

    date: bytes | None
    subject: bytes | None
    sent_by: tuple[Address, ...]
    sender: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    in_reply_to: bytes | None
    message_id: bytes | None


class Leaf(NamedTuple):
    """A body part without parts of its own; an attached message is one (RFC 9051 section 7.5.2, BODYSTRUCTURE).

    Type, encoding, disposition and the names of parameters are in lower case; `size_bytes` is of the encoded form.
    """

    content_type: str
    parameters: Mapping[str, bytes]
    encoding: str
    size_bytes: int
    disposition: str | None
    disposition_parameters: Mapping[str, bytes]


class Multipart(NamedTuple):
    """A body of several parts; `subtype` in lower case."""

    subtype: str
    parts: tuple[Leaf | Multipart, ...]


class Fetched(NamedTuple):
    """Data of one message; what was not sent is None (RFC 9051 section 7.5.2).

    `flags` keep the server's spelling. `sections` holds what BODY[...] brought, by the section's name in
    capitals; a value is None when the server said NIL, and a bytearray when it is very large.
    """

    number: int
    uid: int | None
    flags: frozenset[str] | None
    size_bytes: int | None
    envelope: Envelope | None
    structure: Leaf | Multipart | None
    sections: Mapping[str, bytes | bytearray | None]


Response = (
    Tagged | Condition | Continuation | Capability | ListEntry | MailboxStatus | Search | Exists | Expunged | Fetched
)
