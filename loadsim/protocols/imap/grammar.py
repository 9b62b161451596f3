"""One whole server response, literals included, into a typed value (RFC 9051 sections 7 and 9).

Tokens are found by compiled expressions whose repetitions never give back what they took, so that each byte is
looked at once; a literal is skipped by its length. What does not parse is a `ProtocolError` and nothing else. Its
text says where and what was expected, never what stood there: that may be somebody's mail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.names import decode_name
from loadsim.protocols.imap.responses import (
    Address,
    Capability,
    Code,
    Condition,
    Continuation,
    Envelope,
    Exists,
    Expunged,
    Fetched,
    Leaf,
    ListEntry,
    MailboxStatus,
    Multipart,
    Response,
    Search,
    Tagged,
)

DEEPEST = 64
"""Parentheses within parentheses; a message whose structure is deeper than this was made to hurt."""

MOST_NUMBERS = 1_000_000
"""Numbers in one set: "1:4294967295" is short to write and long to hold."""

Value: TypeAlias = "bytes | list[Value] | None"

_QUOTED = rb'"([^"\\\r\n]*+(?:\\[^\r\n][^"\\\r\n]*+)*+)"'
_LITERAL = rb"~?\{(\d{1,15})\+?\}\r\n"
_NIL = rb"([Nn][Ii][Ll])(?=[ ()]|\Z)"
_STATUS = rb"([Oo][Kk]|[Nn][Oo]|[Bb][Aa][Dd])"

_TAGGED = re.compile(rb"([^ *+()\r\n]++) " + _STATUS + rb"(?: (.*)|\Z)", re.DOTALL)
_UNTAGGED = re.compile(rb"\* (?:(\d{1,10}) )?([A-Za-z][A-Za-z0-9.-]*+)(?: |\Z)")
_CODE = re.compile(rb"\[([A-Za-z0-9][A-Za-z0-9./-]*+)(?: ([^\]]*+))?\] ?")
_ITEM = re.compile(rb" *([A-Za-z0-9.]++)(?:\[([^\]\r\n]*+)\])?(?:<\d+>)? ")
_NUMBER = re.compile(rb"(\d{1,19})(?=[ )]|\Z)")
_FLAGS = re.compile(rb"\(([^()\r\n]*+)\)")
_STRING = re.compile(_QUOTED + rb"|" + _LITERAL + rb"|" + _NIL)
_TOKEN = re.compile(rb" *(?:" + _QUOTED + rb"|" + _LITERAL + rb"|" + _NIL + rb'|(\()|(\))|([^ ()"{\r\n]++))')
_PLAIN = rb'(?:"([^"\\\r\n]*+)"|NIL)'
_ADDRESS = re.compile(rb"\(" + b" ".join([_PLAIN] * 4) + rb"\)")
_ADDRESSES = rb"(NIL|\((?:" + _ADDRESS.pattern.replace(b'"([', b'"(?:[') + rb")++\))"
_PLAIN_ENVELOPE = re.compile(rb"\(" + b" ".join([_PLAIN] * 2 + [_ADDRESSES] * 6 + [_PLAIN] * 2) + rb"\)")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_FIELD_PARAMETER = re.compile(rb';[ \t]*+([^=;\s"]++)=(?:"([^"]*+)"|([^;\s"]++))')
_SET = re.compile(r"\d{1,10}(?::\d{1,10})?(?:,\d{1,10}(?::\d{1,10})?)*+")

_ON_QUOTED, _ON_LITERAL, _ON_NIL, _ON_OPEN, _ON_CLOSE = 1, 2, 3, 4, 5


def parse(raw: bytes) -> Response | None:
    """The response that `raw` holds (without its last CRLF); None for an untagged one that we have no use for."""
    first = raw[:1]
    if first == b"*":
        return _untagged(raw)
    if first == b"+":
        return Continuation(_text(raw[2:]))
    match = _TAGGED.match(raw)
    if match is None:
        raise _malformed("a response", "a tag and OK, NO or BAD", 0)
    code, text = _response_text(match[3] or b"")
    return Tagged(_text(match[1]), _text(match[2]).upper(), code, text)


def numbers_of(numbers: str) -> list[int]:
    """The numbers of a set such as "4,7:9" in the order it gives them (RFC 9051 section 9, sequence-set)."""
    if not _SET.fullmatch(numbers):
        raise _malformed("a set of numbers", "numbers and ranges", 0)
    found: list[int] = []
    for piece in numbers.split(","):
        first, _, last = piece.partition(":")
        low, high = sorted((int(first), int(last or first)))
        if len(found) + high - low >= MOST_NUMBERS:
            raise _malformed("a set of numbers", f"at most {MOST_NUMBERS} numbers", 0)
        found.extend(range(low, high + 1))
    return found


def _untagged(raw: bytes) -> Response | None:
    match = _UNTAGGED.match(raw)
    if match is None:
        raise _malformed("an untagged response", "a name", 2)
    name, at = match[2].upper(), match.end()
    if match[1] is not None:
        number = int(match[1])
        if name == b"FETCH":
            return _fetch(raw, at, number)
        if name == b"EXISTS":
            return Exists(number)
        return Expunged(number) if name == b"EXPUNGE" else None
    if name in _CONDITIONS:
        code, text = _response_text(raw[at:])
        return Condition(_text(name), code, text)
    reader = _DATA.get(name)
    return reader(raw, at) if reader else None


def _response_text(raw: bytes) -> tuple[Code | None, str]:
    """Split a resp-text into its code, if there is one, and what people read (RFC 9051 section 9, resp-text)."""
    match = _CODE.match(raw)
    if match is None:
        return None, _text(raw)
    return Code(_text(match[1]).upper(), _text(match[2] or b"")), _text(raw[match.end() :])


def _capability(raw: bytes, at: int) -> Capability:
    return Capability(frozenset(_text(raw[at:]).upper().split()))


def _list(raw: bytes, at: int) -> ListEntry:
    attributes, at = _value(raw, at)
    delimiter, at = _value(raw, at)
    name, at = _value(raw, at)
    if not isinstance(attributes, list) or isinstance(delimiter, list) or not isinstance(name, bytes):
        raise _malformed("LIST", "attributes, delimiter and name", at)
    return ListEntry(
        frozenset(_text(each).lower() for each in attributes if isinstance(each, bytes)),
        None if delimiter is None else _text(delimiter),
        decode_name(_text(name)),
    )


def _status(raw: bytes, at: int) -> MailboxStatus:
    name, at = _value(raw, at)
    pairs, at = _value(raw, at)
    if not isinstance(name, bytes) or not isinstance(pairs, list) or len(pairs) % 2:
        raise _malformed("STATUS", "a name and pairs", at)
    items = {
        _text(key).upper(): int(value)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        if isinstance(key, bytes) and isinstance(value, bytes) and _NUMBER.fullmatch(value)
    }
    return MailboxStatus(decode_name(_text(name)), items)


def _search(raw: bytes, at: int) -> Search:
    # RFC 7162 lets "(MODSEQ n)" follow; it is no result.
    words = raw[at:].partition(b"(")[0].split()
    if not all(word.isdigit() and len(word) <= 19 for word in words):
        raise _malformed("SEARCH", "numbers", at)
    return Search(tuple(map(int, words)))


def _esearch(raw: bytes, at: int) -> Search:
    end, numbers = len(raw), ""
    while at < end:
        value, at = _value(raw, at)
        if isinstance(value, bytes) and value.upper() == b"ALL":
            value, at = _value(raw, at)
            numbers = _text(value) if isinstance(value, bytes) else "?"
    return Search(tuple(numbers_of(numbers)) if numbers else ())


def _fetch(raw: bytes, at: int, number: int) -> Fetched:
    """`* n FETCH (name value name value ...)` (RFC 9051 section 7.5.2)."""
    uid = size_bytes = flags = envelope = structure = None
    sections: dict[str, bytes | None] = {}
    if raw[at : at + 1] != b"(":
        raise _malformed("FETCH", "(", at)
    at += 1
    while (match := _ITEM.match(raw, at)) is not None:
        at = match.end()
        name = match[1].upper()
        if match[2] is not None:
            sections[_text(match[2]).upper()], at = _string(raw, at)
        elif name == b"UID":
            uid, at = _number(raw, at)
        elif name == b"FLAGS":
            found = _FLAGS.match(raw, at)
            if found is None:
                raise _malformed("FETCH", "flags", at)
            flags, at = frozenset(_text(found[1]).split()), found.end()
        elif name == b"RFC822.SIZE":
            size_bytes, at = _number(raw, at)
        elif name == b"ENVELOPE":
            plain = _PLAIN_ENVELOPE.match(raw, at)
            if plain is not None:
                envelope, at = _plain_envelope(plain), plain.end()
            else:
                value, at = _value(raw, at)
                envelope = _envelope(value, at)
        elif name == b"BODYSTRUCTURE":
            value, at = _value(raw, at)
            structure = _body(value, at)
        else:
            _, at = _value(raw, at)
    if raw[at:].lstrip(b" ") != b")":
        raise _malformed("FETCH", "an item or )", at)
    return Fetched(number, uid, flags, size_bytes, envelope, structure, sections)


def _number(raw: bytes, at: int) -> tuple[int, int]:
    match = _NUMBER.match(raw, at)
    if match is None:
        raise _malformed("FETCH", "a number", at)
    return int(match[1]), match.end()


def _string(raw: bytes, at: int) -> tuple[bytes | None, int]:
    """A quoted string, a literal, or NIL (RFC 9051 section 9, nstring and literal8)."""
    match = _STRING.match(raw, at)
    if match is None:
        raise _malformed("FETCH", "a string or NIL", at)
    kind = match.lastindex
    if kind == _ON_QUOTED:
        return _unescaped(match[1]), match.end()
    if kind == _ON_LITERAL:
        return _literal(raw, match)
    return None, match.end()


def _literal(raw: bytes, match: re.Match[bytes]) -> tuple[bytes, int]:
    begin = match.end()
    end = begin + int(match[_ON_LITERAL])
    if end > len(raw):
        raise _malformed("a literal", "all of its bytes", begin)
    return raw[begin:end], end


def _unescaped(quoted: bytes) -> bytes:
    return _ESCAPED.sub(rb"\1", quoted) if b"\\" in quoted else quoted


def _value(raw: bytes, at: int) -> tuple[Value, int]:
    """One value, with all that is inside its parentheses. Atoms are bytes; NIL is None.

    Without recursion, as the depth is the server's choice.
    """
    inner: list[Value] | None = None
    outer: list[list[Value]] = []
    value: Value
    token = _TOKEN.match
    while (match := token(raw, at)) is not None:
        kind, at = match.lastindex, match.end()
        if kind == _ON_QUOTED:
            value = match[1]
            if b"\\" in value:
                value = _ESCAPED.sub(rb"\1", value)
        elif kind == _ON_NIL:
            value = None
        elif kind == _ON_OPEN:
            if inner is not None:
                outer.append(inner)
                if len(outer) > DEEPEST:
                    break
            inner = []
            continue
        elif kind == _ON_CLOSE:
            if inner is None:
                break
            if not outer:
                return inner, at
            value, inner = inner, outer.pop()
        elif kind == _ON_LITERAL:
            value, at = _literal(raw, match)
        else:
            value = match[6]
        if inner is None:
            return value, at
        inner.append(value)
    raise _malformed("a value", "a string, an atom, NIL or a list", at)


def _plain_envelope(match: re.Match[bytes]) -> Envelope:
    """An envelope without escapes and literals, as nearly all are: five times as fast as `_envelope`.

    From, Sender and Reply-To are mostly the same, and are then read once.
    """
    read: dict[bytes, tuple[Address, ...]] = {b"NIL": ()}
    lists: list[tuple[Address, ...]] = []
    for raw in match.group(3, 4, 5, 6, 7, 8):
        if raw not in read:
            read[raw] = tuple([Address(*[field or None for field in each]) for each in _ADDRESS.findall(raw)])
        lists.append(read[raw])
    return Envelope._make((match[1], match[2], *lists, match[9], match[10]))


def _envelope(value: Value, at: int) -> Envelope:
    if not isinstance(value, list) or len(value) != 10:
        raise _malformed("ENVELOPE", "ten fields", at)
    date, subject, sent_by, sender, reply_to, to, cc, bcc, in_reply_to, message_id = value
    return Envelope(
        _nstring(date, at),
        _nstring(subject, at),
        _addresses(sent_by, at),
        _addresses(sender, at),
        _addresses(reply_to, at),
        _addresses(to, at),
        _addresses(cc, at),
        _addresses(bcc, at),
        _nstring(in_reply_to, at),
        _nstring(message_id, at),
    )


def _nstring(value: Value, at: int) -> bytes | None:
    if isinstance(value, list):
        raise _malformed("a value", "a string or NIL", at)
    return value


def _addresses(value: Value, at: int) -> tuple[Address, ...]:
    if not value:
        return ()
    if not isinstance(value, list):
        raise _malformed("ENVELOPE", "a list of addresses", at)
    found = []
    for each in value:
        if not isinstance(each, list) or len(each) != 4:
            raise _malformed("ENVELOPE", "an address of four fields", at)
        # An empty string says as little as NIL, and is not told apart from it.
        found.append(Address(*[_nstring(field, at) or None for field in each]))
    return tuple(found)


def _body(value: Value, at: int) -> Leaf | Multipart:
    """A BODYSTRUCTURE; its depth was limited when it was read (RFC 9051 section 9, body)."""
    if not isinstance(value, list) or not value:
        raise _malformed("BODYSTRUCTURE", "a list", at)
    if isinstance(value[0], list):
        parts: list[Leaf | Multipart] = []
        for each in value:
            if not isinstance(each, list):
                break
            parts.append(_body(each, at))
        subtype = value[len(parts)] if len(parts) < len(value) else b"mixed"
        return Multipart(_word(subtype, at), tuple(parts))
    if len(value) < 7:
        raise _malformed("BODYSTRUCTURE", "seven fields of a part", at)
    size = value[6]
    if not isinstance(size, bytes) or not _NUMBER.fullmatch(size):
        raise _malformed("BODYSTRUCTURE", "a size", at)
    content_type = f"{_word(value[0], at)}/{_word(value[1], at)}"
    # The extensions: MD5, disposition, ... They come after the lines of a text part, and after the envelope, body
    # and lines of an attached message (RFC 9051 section 9, body-type-1part).
    extensions = 7
    if content_type.startswith("text/"):
        extensions = 8
    elif content_type in _MESSAGES and len(value) > 7 and isinstance(value[7], list):
        extensions = 10
    shown, shown_parameters = _disposition(value[extensions + 1] if len(value) > extensions + 1 else None, at)
    return Leaf(
        content_type,
        _parameters(value[2]),
        _word(value[5], at) if value[5] is not None else "7bit",
        int(size),
        shown,
        shown_parameters,
    )


def _disposition(value: Value, at: int) -> tuple[str | None, Mapping[str, bytes]]:
    """body-fld-dsp: the type and the parameters; pymap sends the header field itself, as one string."""
    if not value:
        return None, {}
    if isinstance(value, list):
        return _word(value[0], at), _parameters(value[1]) if len(value) > 1 else {}
    parameters = {_text(match[1]).lower(): match[2] or match[3] or b"" for match in _FIELD_PARAMETER.finditer(value)}
    return _text(value.partition(b";")[0]).strip().lower(), parameters


def _word(value: Value, at: int) -> str:
    if not isinstance(value, bytes):
        raise _malformed("BODYSTRUCTURE", "a string", at)
    return _text(value).lower()


def _parameters(value: Value) -> Mapping[str, bytes]:
    if not isinstance(value, list):
        return {}
    return {
        _text(key).lower(): setting
        for key, setting in zip(value[::2], value[1::2], strict=False)
        if isinstance(key, bytes) and isinstance(setting, bytes)
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _malformed(where: str, expected: str, at: int) -> ProtocolError:
    return ProtocolError("IMAP syntax", f"{where}: expected {expected} at byte {at}")


_MESSAGES = frozenset({"message/rfc822", "message/global"})
_CONDITIONS = frozenset({b"OK", b"NO", b"BAD", b"BYE", b"PREAUTH"})
_DATA: Mapping[bytes, Callable[[bytes, int], Response]] = {
    b"CAPABILITY": _capability,
    b"LIST": _list,
    b"STATUS": _status,
    b"SEARCH": _search,
    b"ESEARCH": _esearch,
}
