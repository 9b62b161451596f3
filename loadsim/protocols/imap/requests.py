"""A mail program's FETCH requests, and the reader of the headers that it lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from sys import intern

from loadsim.model.mail_program import OUTLOOK_LIKE, MailProgram
from loadsim.model.message_tag import HEADER, MessageTag, vouched
from loadsim.model.ports import Flag, Header, flags_among
from loadsim.protocols.imap.reading import LONGEST_TEXT_BYTES, MOST_ADDRESSES, TAG_ITEM, header_of, text_of
from loadsim.protocols.imap.responses import Fetched

LONGEST_FIELDS_BYTES = 1 << 16
"""The most bytes of a header that are read."""

_SEPARATORS = re.compile(r"[\s<>,;:()]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"')
_FOLD = re.compile(rb"\r?\n(?=[ \t])")

HeaderReader = Callable[[Fetched, Hashable, str], Header | None]


@dataclass(frozen=True, slots=True)
class Requests:
    """The items of a mail program's FETCH commands, in parentheses; None for a command that it does not send.

    `with_modseq` are a list's items on servers with CONDSTORE. With `quota`, a list comes with a GETQUOTAROOT. `read`
    returns a listed message's header.
    """

    list_items: bytes
    with_modseq: bytes
    flags: bytes | None
    message: bytes | None
    prefetch: bool
    quota: bool
    read: HeaderReader

    def listing(self, offered: frozenset[str]) -> bytes:
        """Return the items of a list, given a server's capabilities."""
        return self.with_modseq if "CONDSTORE" in offered else self.list_items


def requests_of(program: MailProgram) -> Requests:
    """Return a program's requests. Its lists also ask for loadsim's own header field."""
    items = [_with_tag(item) for item in program.list_items]
    if items == list(program.list_items):
        items.append(TAG_ITEM.decode())
    return Requests(
        list_items=in_parentheses(item for item in items if item != "MODSEQ"),
        with_modseq=in_parentheses(items),
        flags=in_parentheses(program.flags) if program.flags else None,
        message=in_parentheses(program.message_items) if program.message_items else None,
        prefetch=program.prefetch,
        quota=program.quota,
        read=header_of if "ENVELOPE" in program.list_items else header_of_fields,
    )


def _with_tag(item: str) -> str:
    return f"{item.removesuffix(')]')} {HEADER})]" if item.endswith(")]") else item


def in_parentheses(items: Iterable[str]) -> bytes:
    return f"({' '.join(items)})".encode()


DEFAULT_REQUESTS = requests_of(OUTLOOK_LIKE)


def header_of_fields(fetched: Fetched, ref: Hashable, domain: str) -> Header | None:
    """Return a message's header from its header fields; None for a response with other data, such as a changed flag."""
    section = next((data for name, data in fetched.sections.items() if name.startswith("HEADER.FIELDS")), None)
    if section is None:
        return None
    return header_in(section, ref, domain, fetched.size_bytes or 0, flags_among(fetched.flags))


def header_in(
    section: bytes, ref: Hashable, domain: str, size_bytes: int, flags: frozenset[Flag] = frozenset()
) -> Header:
    """Return the header in these fields, without a tag copied from another message, or of another domain."""
    fields = fields_of(section)
    tag = tag_among(fields)
    sender = next(iter(addresses_of(fields.get("from", b""))), "")
    message_id = text_of(fields.get("message-id"))
    return Header(
        ref=ref,
        flags=flags,
        size_bytes=size_bytes,
        sender=sender,
        to=addresses_of(fields.get("to", b"")),
        subject=text_of(fields.get("subject")),
        message_id=message_id,
        tag=tag if tag and vouched(tag, sender, message_id, domain) else None,
    )


def tag_among(fields: Mapping[str, bytes]) -> MessageTag | None:
    """Return the tag in the X-LoadSim field, which may be a copy; None if it is missing or malformed."""
    value = fields.get(HEADER.lower(), b"")
    return MessageTag.parse(value.decode("utf-8", "replace")) if value and len(value) <= LONGEST_TEXT_BYTES else None


def fields_of(header: bytes) -> dict[str, bytes]:
    """Return the unfolded values of header fields by lower-case name; if a name repeats, the first."""
    fields: dict[str, bytes] = {}
    for line in _FOLD.sub(b"", header[:LONGEST_FIELDS_BYTES]).splitlines():
        name, colon, value = line.partition(b":")
        if colon:
            fields.setdefault(name.strip().decode("ascii", "replace").lower(), value.strip())
    return fields


def addresses_of(field: bytes) -> tuple[str, ...]:
    """Return the addresses in a field (RFC 5322 section 3.4), except those with a quoted local part.

    All users share one string per address.
    """
    words = _SEPARATORS.split(_QUOTED.sub(" ", field.decode("utf-8", "replace")))
    addresses = (word for word in words if word.count("@") == 1 and not word.startswith("@") and not word.endswith("@"))
    return tuple(intern(word) for word in islice(addresses, MOST_ADDRESSES))
