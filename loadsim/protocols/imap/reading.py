"""What FETCH brought, in the words of mail: headers, structures, evidence."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from sys import intern
from urllib.parse import unquote_to_bytes

from loadsim.model.evidence import HEADER, Evidence
from loadsim.model.ports import Header, Part, Structure
from loadsim.protocols.imap.responses import Address, Fetched, Leaf, Multipart

EVIDENCE_ITEM = f"BODY.PEEK[HEADER.FIELDS ({HEADER.upper()})]".encode()
HEADER_ITEMS = b"(UID FLAGS RFC822.SIZE ENVELOPE " + EVIDENCE_ITEM + b")"
LISTING_ITEMS = b"(UID FLAGS ENVELOPE " + EVIDENCE_ITEM + b")"


def header_of(fetched: Fetched, ref: Hashable) -> Header | None:
    """The header of one message; None when this is some other news of it, such as a changed flag."""
    envelope = fetched.envelope
    if envelope is None:
        return None
    return Header(
        ref=ref,
        seen=any(flag.lower() == "\\seen" for flag in fetched.flags or ()),
        size_bytes=fetched.size_bytes or 0,
        sender=next(_addresses(envelope.sent_by), ""),
        to=tuple(_addresses(envelope.to)),
        subject=text_of(envelope.subject),
        message_id=text_of(envelope.message_id),
        evidence=evidence_of(fetched),
    )


def origin_of(fetched: Fetched) -> tuple[str, str]:
    """The sender's address and the Message-ID, "" for what the envelope lacks."""
    envelope = fetched.envelope
    if envelope is None:
        return "", ""
    return next(_addresses(envelope.sent_by), ""), (envelope.message_id or b"").decode("utf-8", "replace")


def evidence_of(fetched: Fetched) -> Evidence | None:
    """What the message's X-LoadSim header says; None when it has none, or somebody else's."""
    for name, section in fetched.sections.items():
        if section and name.startswith("HEADER.FIELDS"):
            field, _, value = section.decode("utf-8", "replace").strip().partition(":")
            return Evidence.parse(value) if field.strip().upper() == HEADER.upper() else None
    return None


def has_evidence_section(fetched: Fetched) -> bool:
    """Whether this answers a question for the X-LoadSim header, also if the message has none."""
    return any(name.startswith("HEADER.FIELDS") for name in fetched.sections)


def structure_of(body: Leaf | Multipart) -> Structure:
    """What to show and what is attached.

    The text is the first text/plain part that is no attachment, else the first text/html. Everything else is
    attached or embedded, but for the other forms of the text in a multipart/alternative.
    """
    leaves = list(_leaves(body, ""))
    shown = next(
        (
            leaf
            for wanted in ("text/plain", "text/html")
            for leaf in leaves
            if leaf[1].content_type == wanted and leaf[1].disposition != "attachment"
        ),
        None,
    )
    return Structure(
        _part(*shown[:2]) if shown else None,
        tuple(
            _part(name, leaf)
            for name, leaf, alternative in leaves
            if (shown is None or name != shown[0]) and not (alternative and leaf.content_type.startswith("text/"))
        ),
    )


def text_of(raw: bytes | None) -> str:
    """A header's text, its encoded words (RFC 2047) decoded where their character set is known."""
    if raw is None:
        return ""
    text = raw.decode("utf-8", "replace")
    if "=?" not in text:
        return text
    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, ValueError):
        return text


def _addresses(addresses: tuple[Address, ...]) -> Iterator[str]:
    """The addresses; each is held once, however many users remember a message with it."""
    for address in addresses:
        if address.host is not None and address.mailbox is not None:  # else it opens or closes a group
            yield intern(f"{address.mailbox.decode('utf-8', 'replace')}@{address.host.decode('utf-8', 'replace')}")


def _leaves(body: Leaf | Multipart, name: str, alternative: bool = False) -> Iterator[tuple[str, Leaf, bool]]:
    """The leaves with their part numbers (RFC 9051 section 6.4.5.1): a body without parts is its own part 1."""
    if isinstance(body, Leaf):
        yield name or "1", body, alternative
        return
    for number, part in enumerate(body.parts, 1):
        yield from _leaves(part, f"{name}.{number}" if name else str(number), body.subtype == "alternative")


def _part(name: str, leaf: Leaf) -> Part:
    filename = _parameter(leaf.disposition_parameters, "filename")
    if filename is None:
        filename = _parameter(leaf.parameters, "name")
    return Part(name, leaf.content_type, leaf.size_bytes, filename, leaf.encoding)


def _parameter(parameters: Mapping[str, bytes], name: str) -> str | None:
    """A parameter's value: plain, with encoded words, or extended and in pieces (RFC 2231 sections 3 and 4)."""
    if name in parameters:
        return text_of(parameters[name])
    if f"{name}*" in parameters:
        return _extended(parameters[f"{name}*"])
    pieces: list[bytes] = []
    encoded = False
    while True:
        key = f"{name}*{len(pieces)}"
        if f"{key}*" in parameters:
            piece = parameters[f"{key}*"]
            encoded = encoded or not pieces
            pieces.append(piece if not pieces else unquote_to_bytes(piece))
        elif key in parameters:
            pieces.append(parameters[key])
        else:
            break
    if not pieces:
        return None
    if encoded:
        charset, _, first = pieces[0].rpartition(b"'")
        return _decoded(unquote_to_bytes(first) + b"".join(pieces[1:]), charset)
    return _decoded(b"".join(pieces), b"utf-8")


def _extended(value: bytes) -> str:
    charset, _, encoded = value.rpartition(b"'")
    return _decoded(unquote_to_bytes(encoded), charset)


def _decoded(raw: bytes, charset: bytes) -> str:
    try:
        return raw.decode(charset.partition(b"'")[0].decode("ascii", "replace") or "utf-8", "replace")
    except LookupError:
        return raw.decode("utf-8", "replace")
