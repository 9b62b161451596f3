"""Answers to FETCH as values of mail: headers, structures, evidence."""

from __future__ import annotations

import re
from binascii import a2b_base64, a2b_qp
from collections.abc import Hashable, Iterator, Mapping
from encodings import normalize_encoding
from encodings.aliases import aliases
from itertools import groupby, islice
from operator import itemgetter
from sys import intern
from urllib.parse import unquote_to_bytes

from loadsim.model.content.headers import one_line
from loadsim.model.message_tag import HEADER, MessageTag, vouched
from loadsim.model.ports import Header, Part, Structure, flags_among
from loadsim.protocols.imap.responses import Address, Fetched, Leaf, Multipart

EVIDENCE_ITEM = f"BODY.PEEK[HEADER.FIELDS ({HEADER.upper()})]".encode()
LISTING_ITEMS = b"(UID FLAGS ENVELOPE " + EVIDENCE_ITEM + b")"

LONGEST_TEXT_BYTES = 1000
"""The longest subject, file name or section with evidence; a line of mail has at most 998 (RFC 5322 section 2.1.1)."""

MOST_ADDRESSES = 1000
"""The most recipients of a message that are kept; loadsim's own messages have a few dozen."""

_CODECS = frozenset({*aliases.values(), "koi8_u", "cp874", "cp720", "utf_8_sig"})
_ENCODED_WORD = re.compile(rb"=\?([!->@-~]{1,40}+)\?([bBqQ])\?([^?]*+)\?=")


def header_of(fetched: Fetched, ref: Hashable, domain: str) -> Header | None:
    """Return the header of one message; None for other data of it, such as a changed flag.

    Evidence that was copied into another message, or is of another domain, is left out.
    """
    envelope = fetched.envelope
    if envelope is None:
        return None
    evidence = evidence_of(fetched)
    sender, message_id = next(_addresses(envelope.sent_by), ""), text_of(envelope.message_id)
    return Header(
        ref=ref,
        flags=flags_among(fetched.flags),
        size_bytes=fetched.size_bytes or 0,
        sender=sender,
        to=tuple(islice(_addresses(envelope.to), MOST_ADDRESSES)),
        subject=text_of(envelope.subject),
        message_id=message_id,
        evidence=evidence if evidence and vouched(evidence, sender, message_id, domain) else None,
    )


def origin_of(fetched: Fetched) -> tuple[str, str]:
    """Return the sender's address and the Message-ID; "" if the envelope lacks one."""
    envelope = fetched.envelope
    if envelope is None:
        return "", ""
    return next(_addresses(envelope.sent_by), ""), text_of(envelope.message_id)


def evidence_of(fetched: Fetched) -> MessageTag | None:
    """Return the tag in the message's X-LoadSim header; None if it is missing or malformed."""
    for name, section in fetched.sections.items():
        if section and name.startswith("HEADER.FIELDS"):
            if len(section) > LONGEST_TEXT_BYTES:
                return None
            field, _, value = section.decode("utf-8", "replace").strip().partition(":")
            return MessageTag.parse(value) if field.strip().upper() == HEADER.upper() else None
    return None


def has_evidence_section(fetched: Fetched) -> bool:
    """Return True if this answers a FETCH of the X-LoadSim header, even if the message has none."""
    return any(name.startswith("HEADER.FIELDS") for name in fetched.sections)


def structure_of(body: Leaf | Multipart) -> Structure:
    """Return the text to show, and the attachments.

    The text is the first text/plain part that is no attachment, else the first text/html. Everything else is
    attached or embedded, except the other forms of the text in a multipart/alternative.
    """
    leaves = list(leaves_of(body))
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
    """Return a header's text, its encoded words (RFC 2047) decoded where their character set is known.

    It is unfolded, as some servers send it folded. A text above `LONGEST_TEXT_BYTES` is cut, and not decoded.
    """
    if raw is None:
        return ""
    if b"=?" not in raw or len(raw) > LONGEST_TEXT_BYTES:
        return one_line(raw[:LONGEST_TEXT_BYTES].decode("utf-8", "replace"))
    pieces: list[tuple[bytes, bytes]] = []  # a character set, and bytes in it
    end, after_word = 0, False
    for word in _ENCODED_WORD.finditer(raw):
        charset, how, encoded = word.groups()
        try:
            data = a2b_base64(encoded + b"===") if how in b"bB" else a2b_qp(encoded, header=True)
        except ValueError:
            continue
        if _codec(charset) is None:
            continue
        between = raw[end : word.start()]
        if not after_word or between.strip():  # white space between two encoded words is not shown
            pieces.append((b"", between))
        pieces.append((charset.lower(), data))
        end, after_word = word.end(), True
    pieces.append((b"", raw[end:]))
    # Some programs split a character: words in a row with one character set are decoded together.
    together = groupby(pieces, itemgetter(0))
    return one_line("".join([_decoded(b"".join([data for _, data in run]), charset) for charset, run in together]))


def _addresses(addresses: tuple[Address, ...]) -> Iterator[str]:
    """Yield the addresses. All users share one string for each address."""
    for address in addresses:
        if address.host is not None and address.mailbox is not None:  # else it opens or closes a group
            yield intern(f"{address.mailbox.decode('utf-8', 'replace')}@{address.host.decode('utf-8', 'replace')}")


def leaves_of(body: Leaf | Multipart) -> Iterator[tuple[str, Leaf, bool]]:
    """Yield the leaves with their part numbers (RFC 9051 section 6.4.5.1): a body without parts is its own part 1.

    It does not recurse, since the sender chooses the depth.
    """
    waiting: list[tuple[str, Leaf | Multipart, bool]] = [("", body, False)]
    while waiting:
        name, part, alternative = waiting.pop()
        if isinstance(part, Leaf):
            yield name or "1", part, alternative
            continue
        within, alternative = f"{name}." if name else "", part.subtype == "alternative"
        numbered = [(f"{within}{number}", each, alternative) for number, each in enumerate(part.parts, 1)]
        waiting += reversed(numbered)


def _part(name: str, leaf: Leaf) -> Part:
    filename = _parameter(leaf.disposition_parameters, "filename")
    if filename is None:
        filename = _parameter(leaf.parameters, "name")
    return Part(name, leaf.content_type, leaf.size_bytes, filename, leaf.encoding)


def _parameter(parameters: Mapping[str, bytes], name: str) -> str | None:
    """Return a parameter's value: plain, with encoded words, or extended and in pieces (RFC 2231 sections 3 and 4)."""
    if name in parameters:
        return text_of(parameters[name])
    if f"{name}*" in parameters:
        charset, _, value = parameters[f"{name}*"][:LONGEST_TEXT_BYTES].rpartition(b"'")
        return _decoded(unquote_to_bytes(value), charset)
    pieces: list[bytes] = []
    encoded = False
    length = 0
    while length <= LONGEST_TEXT_BYTES:
        key = f"{name}*{len(pieces)}"
        if f"{key}*" in parameters:
            piece = parameters[f"{key}*"]
            encoded = encoded or not pieces
            pieces.append(piece if not pieces else unquote_to_bytes(piece[:LONGEST_TEXT_BYTES]))
        elif key in parameters:
            pieces.append(parameters[key])
        else:
            break
        length += len(pieces[-1]) or 1
    if not pieces:
        return None
    if encoded:
        charset, _, first = pieces[0][:LONGEST_TEXT_BYTES].rpartition(b"'")
        return _decoded(unquote_to_bytes(first) + b"".join(pieces[1:]), charset)
    return _decoded(b"".join(pieces), b"utf-8")


def _decoded(raw: bytes, charset: bytes) -> str:
    """Return the text in a character set, or else in UTF-8; it is cut, and can be written as UTF-8."""
    raw = raw[:LONGEST_TEXT_BYTES]
    try:
        text = raw.decode(_codec(charset) or "utf-8", "replace")
    except (LookupError, ValueError):  # the codec is not a text codec, or has no error handler "replace"
        text = raw.decode("utf-8", "replace")
    return text.encode("utf-8", "replace").decode()  # UTF-7 makes lone surrogates


def _codec(charset: bytes) -> str | None:
    """Return the codec of a character set, None if unknown. A language may follow the name ("utf-8*en", "utf-8'en").

    `codecs.lookup` would keep each unknown name in memory, and has codecs that no mail may use.
    """
    name = re.split(rb"[*']", charset, maxsplit=1)[0].decode("ascii", "replace")
    normal = normalize_encoding(name).lower()
    codec = aliases.get(normal, normal)
    return codec if codec in _CODECS else None
