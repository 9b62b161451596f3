"""An IMAP server's responses as immutable values (RFC 9051 section 7, RFC 3501 section 7).

They are named tuples because a busy engine makes thousands of them each second. Text that people wrote stays bytes
here; `reading` decodes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from loadsim.protocols.imap.sets import NumberSet

# fmt: off
REGISTERED = frozenset((
    "ALERT", "ALREADYEXISTS", "ANNOTATE", "ANNOTATIONS", "APPENDLIMIT", "APPENDUID", "AUTHENTICATIONFAILED",
    "AUTHORIZATIONFAILED", "BADCHARSET", "BADCOMPARATOR", "BADEVENT", "BADPARAM", "BADURL", "CANNOT", "CAPABILITY",
    "CLIENTBUG", "CLOSED", "COMPRESSIONACTIVE", "CONTACTADMIN", "COPYUID", "CORRUPTION", "EXPIRED", "EXPUNGEISSUED",
    "HASCHILDREN", "HIGHESTMODSEQ", "INPROGRESS", "INUSE", "LIMIT", "MAILBOXID", "MAXCONVERTMESSAGES",
    "MAXCONVERTPARTS", "MESSAGELIMIT", "METADATA", "MODIFIED", "NEWNAME", "NOMODSEQ", "NONEXISTENT", "NOPERM",
    "NOPRIVATE", "NOTIFICATIONOVERFLOW", "NOTSAVED", "NOUPDATE", "OVERQUOTA", "PARSE", "PERMANENTFLAGS",
    "PRIVACYREQUIRED", "READ-ONLY", "READ-WRITE", "REFERRAL", "SERVERBUG", "TEMPFAIL", "TOOBIG", "TOOMANY", "TRYCREATE",
    "UIDNEXT", "UIDNOTSTICKY", "UIDREQUIRED", "UIDVALIDITY", "UNAVAILABLE", "UNDEFINED-FILTER", "UNKNOWN-CTE", "UNSEEN",
    "URLMECH", "USEATTR",
))
# fmt: on
"""The response codes that IANA has registered (https://www.iana.org/assignments/imap-response-codes/)."""


class ResponseCode(NamedTuple):
    """A response code in brackets (RFC 9051 section 7.1): its name in capitals, and the unparsed rest."""

    name: str
    arguments: str

    @property
    def kind(self) -> str:
        """The name under which failures are counted: "other" for an unregistered code."""
        return self.name if self.name in REGISTERED else "other"


class Tagged(NamedTuple):
    """The end of a command: `status` is OK, NO or BAD (RFC 9051 section 7.1)."""

    tag: str
    status: str
    code: ResponseCode | None
    text: str


class Condition(NamedTuple):
    """An untagged OK, NO, BAD, PREAUTH or BYE, such as the greeting (RFC 9051 sections 7.1 and 7.1.4)."""

    status: str
    code: ResponseCode | None
    text: str


class Continuation(NamedTuple):
    """The server is ready for the rest of a command (RFC 9051 section 7.6)."""

    text: str


class Capability(NamedTuple):
    """The server's capabilities, in capitals (RFC 9051 section 7.2.2)."""

    names: frozenset[str]


class ListEntry(NamedTuple):
    """One mailbox, its name decoded; attributes in lower case (RFC 9051 section 7.3.1)."""

    attributes: frozenset[str]
    delimiter: str | None
    name: str


class Namespace(NamedTuple):
    """The prefix of some folders' names, and their separator; None without a hierarchy (RFC 2342 section 6)."""

    prefix: str
    separator: str | None


class Namespaces(NamedTuple):
    """The namespaces of the user's own folders, of other users', and of shared ones (RFC 9051 section 7.3.5)."""

    personal: tuple[Namespace, ...]
    other: tuple[Namespace, ...]
    shared: tuple[Namespace, ...] = ()


class MailboxStatus(NamedTuple):
    """The numbers in a STATUS response, by name in capitals (RFC 9051 section 7.3.4)."""

    name: str
    items: Mapping[str, int]


class QuotaLimits(NamedTuple):
    """A quota's limits: resources in capitals, each with usage and limit (RFC 9208 section 5.1)."""

    limits: tuple[tuple[str, int, int], ...]


class Rights(NamedTuple):
    """The user's rights in a folder, a letter each (RFC 4314 section 3.8)."""

    rights: str


class Search(NamedTuple):
    """The result of SEARCH, from a SEARCH or an ESEARCH response (RFC 3501 7.2.5, RFC 9051 section 7.3.3)."""

    numbers: NumberSet


class Exists(NamedTuple):
    """The current number of messages in the open mailbox (RFC 9051 section 7.4.1)."""

    messages: int


class Expunged(NamedTuple):
    """The message with this number is gone; those after it move up by one (RFC 9051 section 7.5.1)."""

    number: int


class Unknown(NamedTuple):
    """The name of a response unknown to loadsim, perhaps misspelt, with the number before it."""

    name: str


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

    Type, encoding, disposition and the names of parameters are in lower case; `size_bytes` is the encoded size.
    """

    content_type: str
    parameters: Mapping[str, bytes]
    encoding: str
    size_bytes: int
    disposition: str | None
    disposition_parameters: Mapping[str, bytes]


class Multipart(NamedTuple):
    """A body of several parts; `subtype` is in lower case."""

    subtype: str
    parts: tuple[Leaf | Multipart, ...]


class Fetched(NamedTuple):
    """Data of one message; values that were not sent are None (RFC 9051 section 7.5.2).

    `flags` keep the server's spelling. `sections` has the data of BODY[...] by the section's name in capitals; None
    stands for NIL.
    """

    number: int
    uid: int | None
    flags: frozenset[str] | None
    size_bytes: int | None
    envelope: Envelope | None
    structure: Leaf | Multipart | None
    sections: Mapping[str, bytes | None]

    def joined(self, later: Fetched) -> Fetched:
        """Return the data of two responses about one message; values of `later` replace this one's."""
        sections = {**self.sections, **later.sections}
        values = [old if new is None else new for old, new in zip(self, later, strict=True)]
        return Fetched._make(values)._replace(sections=sections)


Response = (
    Tagged
    | Condition
    | Continuation
    | Capability
    | ListEntry
    | MailboxStatus
    | Namespaces
    | QuotaLimits
    | Rights
    | Search
    | Exists
    | Expunged
    | Fetched
    | Unknown
)
