"""The parser of one whole server response, literals included, into a typed value (RFC 9051 sections 7 and 9).

Tokens are found by compiled expressions with possessive quantifiers, so that each byte is read once; a literal is
skipped by its length. Malformed input raises only `ProtocolError`. Its text states the position and what was expected,
but never the input, which may be mail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from loadsim.errors import ProtocolError
from loadsim.protocols.error_mapping import SMTP_GREETING
from loadsim.protocols.imap.names import decode_name
from loadsim.protocols.imap.responses import (
    Address,
    Capability,
    Condition,
    Continuation,
    Envelope,
    Exists,
    Expunged,
    Fetched,
    ListEntry,
    MailboxStatus,
    Namespace,
    Namespaces,
    QuotaLimits,
    Response,
    ResponseCode,
    Rights,
    Search,
    Tagged,
    Unknown,
)
from loadsim.protocols.imap.sets import NumberSet
from loadsim.protocols.imap.values import DEEPEST, LARGEST_NUMBER64, Value, body_of, decoded, envelope_of, malformed

LARGEST_NUMBER = 2**32 - 1
"""The largest message number, UID and UIDVALIDITY (RFC 9051 section 9, nz-number)."""

MOST_MESSAGES = 10_000_000
"""The most messages in a folder, more than any simulated user has. A higher EXISTS is a protocol error."""

MOST_RANGES = 100_000
"""The most ranges in one set; loadsim's commands name a few hundred (`commands.LONGEST_SET_BYTES`)."""

MOST_TOKENS = 100_000
"""The most tokens in one value, parsed in less than 0.1 s. A message to 10,000 people has 70,000."""

MOST_SECTIONS = 1000
"""The most sections of one message in one answer; loadsim asks for one."""

LONGEST_WORDS_BYTES = 16384
"""The longest CAPABILITY, LIST, STATUS and FLAGS. Dovecot's longest mailbox name has 4096 bytes."""

LONGEST_KNOWN_BYTES = 200
"""The longest LIST answer that is cached. Users with equal folders share a few hundred answers."""

_QUOTED = rb'"([^"\\\r\n]*+(?:\\[^\r\n][^"\\\r\n]*+)*+)"'
_LITERAL = rb"~?\{(\d{1,15})\+?\}\r\n"
_NIL = rb"([Nn][Ii][Ll])(?=[ ()]|\Z)"
_STATUS = rb"([Oo][Kk]|[Nn][Oo]|[Bb][Aa][Dd])"

_UNTAGGED = re.compile(rb"\* (?:(\d{1,10}) )?([A-Za-z][A-Za-z0-9.-]*+)(?: |\Z)")
_TEXT = rb"(?:\[([A-Za-z0-9][A-Za-z0-9./-]*+)(?: ([^\]]*+))?\] ?)?(.*)"
_RESPONSE_TEXT = re.compile(_TEXT, re.DOTALL)
_TAGGED = re.compile(rb"([^ *+()\r\n]++) " + _STATUS + rb"(?: " + _TEXT + rb"|\Z)", re.DOTALL)
_ONE_SECTION = re.compile(rb"\* (\d{1,10}) FETCH \((?:UID (\d{1,10}) )?BODY\[([^\]\r\n]*+)\] \{(\d{1,15})\}\r\n")
_AFTER_SECTION = re.compile(rb"(?: UID (\d{1,10}))?\)\Z")
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
_SET = re.compile(r"\d{1,10}(?::\d{1,10})?(?:,\d{1,10}(?::\d{1,10})?)*+")

_ON_QUOTED, _ON_LITERAL, _ON_NIL, _ON_OPEN, _ON_CLOSE = 1, 2, 3, 4, 5


def parse(raw: bytes) -> Response | None:
    """Parse a response without its last CRLF. Return None for an untagged one that loadsim does not use."""
    first = raw[:1]
    if first == b"*":
        section = _ONE_SECTION.match(raw)
        return (section and _one_section(raw, section)) or _untagged(raw)
    if first == b"+":
        return Continuation(decoded(raw[2:]))
    match = _TAGGED.match(raw)
    if match is None:
        if raw[:4] in (b"220 ", b"220-"):  # RFC 5321 section 4.2.3; never one of loadsim's tags
            raise ProtocolError("IMAP syntax", SMTP_GREETING)
        raise malformed("a response", "a tag and OK, NO or BAD", 0)
    tag, status, code, arguments, text = match.groups(b"")
    return Tagged(
        decoded(tag),
        "OK" if status == b"OK" else decoded(status).upper(),
        ResponseCode(decoded(code).upper(), decoded(arguments)) if code else None,
        decoded(text),
    )


def numbers_of(numbers: str) -> NumberSet:
    """Return the set written as in "4,7:9" (RFC 9051 section 9, sequence-set, without "*")."""
    if not _SET.fullmatch(numbers) or numbers.count(",") >= MOST_RANGES:
        raise malformed("a set of numbers", f"at most {MOST_RANGES} numbers and ranges", 0)
    ranges = []
    for piece in numbers.split(","):
        first, _, last = piece.partition(":")
        ranges.append((number_of(first), number_of(last or first)))
    return NumberSet.of(ranges)


def number_of(digits: str) -> int:
    """Return a number from 1 to 4294967295 (RFC 9051 section 9, nz-number)."""
    if len(digits) <= 10 and digits.isascii() and digits.isdigit():
        return _within(int(digits), 1, LARGEST_NUMBER, "a number")
    raise malformed("a number", "digits", 0)


def _within(number: int, least: int, most: int, where: str) -> int:
    if least <= number <= most:
        return number
    raise malformed(where, f"a number from {least} to {most}", 2)


def _untagged(raw: bytes) -> Response | None:
    match = _UNTAGGED.match(raw)
    if match is None:
        raise malformed("an untagged response", "a name", 2)
    digits, name = match.groups()
    name, at = name.upper(), match.end()
    if digits is not None:
        number = int(digits)
        if name == b"FETCH":
            return _fetch(raw, at, number)
        if name == b"EXISTS":
            if number > MOST_MESSAGES:
                raise ProtocolError("IMAP EXISTS", f"more than {MOST_MESSAGES} messages")
            return Exists(number)
        if name == b"EXPUNGE":
            return Expunged(_within(number, 1, LARGEST_NUMBER, "EXPUNGE"))
        return None if name == b"RECENT" else Unknown(f"{number} {decoded(name)}")
    if name in _CONDITIONS:
        text = _RESPONSE_TEXT.match(raw, at)
        assert text is not None, "it matches any text"
        code, arguments, shown = text.groups(b"")
        named = ResponseCode(decoded(code).upper(), decoded(arguments)) if code else None
        return Condition(decoded(name), named, decoded(shown))
    reader = _DATA.get(name)
    if reader is not None:
        return reader(raw, at)
    return None if name in _UNUSED else Unknown(decoded(name))


def capabilities_of(raw: bytes) -> frozenset[str]:
    """Return the capabilities in a response or in its code, in upper case."""
    _check_words(raw, "CAPABILITY")
    return _names(raw)


def _check_words(raw: bytes, where: str) -> None:
    if len(raw) > LONGEST_WORDS_BYTES:
        raise malformed(where, f"at most {LONGEST_WORDS_BYTES} bytes", LONGEST_WORDS_BYTES)


@lru_cache(maxsize=8)
def _names(raw: bytes) -> frozenset[str]:
    """Return a set of capabilities, shared by all sessions with a server."""
    return frozenset(decoded(raw).upper().split())


def _list(raw: bytes, at: int) -> ListEntry:
    """Parse a LIST answer, cached unless it is unusually long: thousands of users have the same folder names."""
    return _known_entry(raw, at) if len(raw) <= LONGEST_KNOWN_BYTES else _entry(raw, at)


def _entry(raw: bytes, at: int) -> ListEntry:
    _check_words(raw, "LIST")
    attributes, at = _value(raw, at)
    delimiter, at = _value(raw, at)
    name, at = _value(raw, at)
    if not isinstance(attributes, list) or isinstance(delimiter, list) or not isinstance(name, bytes):
        raise malformed("LIST", "attributes, delimiter and name", at)
    return ListEntry(
        frozenset(decoded(attribute).lower() for attribute in attributes if isinstance(attribute, bytes)),
        None if delimiter is None else decoded(delimiter),
        decode_name(decoded(name)),
    )


_known_entry = lru_cache(maxsize=512)(_entry)


def _namespace(raw: bytes, at: int) -> Namespaces:
    """Parse `* NAMESPACE personal other shared`, each NIL or a list of (prefix separator ...) (RFC 9051 7.3.5)."""
    _check_words(raw, "NAMESPACE")
    kinds: list[tuple[Namespace, ...]] = []
    for _ in range(3):
        value, at = _value(raw, at)
        if isinstance(value, bytes):
            raise malformed("NAMESPACE", "lists or NIL", at)
        kinds.append(tuple(_one_namespace(namespace, at) for namespace in value or ()))
    return Namespaces(*kinds)


def _one_namespace(value: Value, at: int) -> Namespace:
    match value:
        case [bytes() as prefix, (bytes() | None) as separator, *_]:
            name = decode_name(decoded(prefix))
            if separator is None or len(decoded(separator)) == 1:
                return Namespace(name, None if separator is None else decoded(separator))
    raise malformed("NAMESPACE", "a prefix and a separator", at)


def _status(raw: bytes, at: int) -> MailboxStatus:
    _check_words(raw, "STATUS")
    name, at = _value(raw, at)
    pairs, at = _value(raw, at)
    if not isinstance(name, bytes) or not isinstance(pairs, list) or len(pairs) % 2:
        raise malformed("STATUS", "a name and pairs", at)
    items = {
        decoded(key).upper(): _within(int(value), 0, LARGEST_NUMBER64, "STATUS")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        if isinstance(key, bytes) and isinstance(value, bytes) and _NUMBER.fullmatch(value)
    }
    return MailboxStatus(decode_name(decoded(name)), items)


def _quota(raw: bytes, at: int) -> QuotaLimits:
    """Parse `* QUOTA root (resource used limit ...)` (RFC 9208 section 5.1)."""
    _check_words(raw, "QUOTA")
    _, at = _value(raw, at)
    listed: Value = None
    if raw[at:].strip():  # Courier 5.0 omits the list if there is no limit
        listed, at = _value(raw, at)
    if listed is not None and (not isinstance(listed, list) or len(listed) % 3):
        raise malformed("QUOTA", "triples of resource, usage and limit", at)
    limits = []
    for name, *numbers in zip(*[iter(listed or [])] * 3, strict=True):
        used, most = (
            _within(int(number), 0, LARGEST_NUMBER64, "QUOTA")
            if isinstance(number, bytes) and _NUMBER.fullmatch(number)
            else -1
            for number in numbers
        )
        if not isinstance(name, bytes) or used < 0 or most < 0:
            raise malformed("QUOTA", "a name and two numbers", at)
        limits.append((decoded(name).upper(), used, most))
    return QuotaLimits(tuple(limits))


def _rights(raw: bytes, at: int) -> Rights:
    """Parse `* MYRIGHTS mailbox rights` (RFC 4314 section 3.8)."""
    _check_words(raw, "MYRIGHTS")
    _, at = _value(raw, at)
    rights, at = _value(raw, at)
    if not isinstance(rights, bytes):
        raise malformed("MYRIGHTS", "a name and rights", at)
    return Rights(decoded(rights))


def _search(raw: bytes, at: int) -> Search:
    # RFC 7162 lets "(MODSEQ n)" follow, which is not a result.
    words = raw[at:].partition(b"(")[0].split()
    if not all(word.isdigit() and len(word) <= 10 for word in words):
        raise malformed("SEARCH", "numbers", at)
    numbers = [_within(int(word), 1, LARGEST_NUMBER, "SEARCH") for word in words]
    return Search(NumberSet.of([(number, number) for number in numbers]))


def _esearch(raw: bytes, at: int) -> Search:
    end, numbers = len(raw), ""
    while at < end:
        value, at = _value(raw, at)
        if isinstance(value, bytes) and value.upper() == b"ALL":
            value, at = _value(raw, at)
            numbers = decoded(value) if isinstance(value, bytes) else "?"
    return Search(numbers_of(numbers) if numbers else NumberSet(()))


def _fetch(raw: bytes, at: int, number: int) -> Fetched:
    """Parse `* n FETCH (name value name value ...)` (RFC 9051 section 7.5.2)."""
    _within(number, 1, LARGEST_NUMBER, "FETCH")
    uid = size_bytes = flags = envelope = structure = None
    sections: dict[str, bytes | None] = {}
    if raw[at : at + 1] != b"(":
        raise malformed("FETCH", "(", at)
    at += 1
    while (match := _ITEM.match(raw, at)) is not None:
        at = match.end()
        name, section = match.groups()
        name = name.upper()
        if section is not None:
            sections[decoded(section).upper()], at = _string(raw, at)
            if len(sections) > MOST_SECTIONS:
                raise malformed("FETCH", f"at most {MOST_SECTIONS} sections", at)
        elif name == b"UID":
            uid, at = _number(raw, at, 1, LARGEST_NUMBER)
        elif name == b"FLAGS":
            listed = _FLAGS.match(raw, at)
            if listed is None or listed.end() - at > LONGEST_WORDS_BYTES:
                raise malformed("FETCH", f"flags of at most {LONGEST_WORDS_BYTES} bytes", at)
            flags, at = frozenset(decoded(listed[1]).split()), listed.end()
        elif name == b"RFC822.SIZE":
            size_bytes, at = _number(raw, at, 0, LARGEST_NUMBER64)
        elif name == b"ENVELOPE":
            plain = _PLAIN_ENVELOPE.match(raw, at)
            if plain is not None:
                envelope, at = _plain_envelope(plain), plain.end()
            else:
                value, at = _value(raw, at)
                envelope = envelope_of(value, at)
        elif name == b"BODYSTRUCTURE":
            value, at = _value(raw, at)
            structure = body_of(value, at)
        else:
            _, at = _value(raw, at)
    if raw[at:] != b")" and raw[at:].lstrip(b" ") != b")":
        raise malformed("FETCH", "an item or )", at)
    return Fetched(number, uid, flags, size_bytes, envelope, structure, sections)


def _one_section(raw: bytes, match: re.Match[bytes]) -> Fetched | None:
    """Parse a FETCH of one section as a literal, with or without a UID. Return None for all others."""
    number, before, name, length = match.groups()
    begin = match.end()
    end = begin + int(length)
    after = _AFTER_SECTION.match(raw, end)
    if after is None:
        return None
    stated_uid = before or after[1]
    uid = None if stated_uid is None else _within(int(stated_uid), 1, LARGEST_NUMBER, "FETCH")
    sections: dict[str, bytes | None] = {decoded(name).upper(): raw[begin:end]}
    return Fetched(_within(int(number), 1, LARGEST_NUMBER, "FETCH"), uid, None, None, None, None, sections)


def _number(raw: bytes, at: int, least: int, most: int) -> tuple[int, int]:
    match = _NUMBER.match(raw, at)
    if match is None:
        raise malformed("FETCH", "a number", at)
    return _within(int(match[1]), least, most, "FETCH"), match.end()


def _string(raw: bytes, at: int) -> tuple[bytes | None, int]:
    """Parse a quoted string, a literal, or NIL (RFC 9051 section 9, nstring and literal8)."""
    match = _STRING.match(raw, at)
    if match is None:
        raise malformed("FETCH", "a string or NIL", at)
    kind = match.lastindex
    if kind == _ON_QUOTED:
        quoted = match[1]
        return _ESCAPED.sub(rb"\1", quoted) if b"\\" in quoted else quoted, match.end()
    if kind == _ON_LITERAL:
        return _literal(raw, match)
    return None, match.end()


def _literal(raw: bytes, match: re.Match[bytes]) -> tuple[bytes, int]:
    begin = match.end()
    end = begin + int(match[_ON_LITERAL])
    if end > len(raw):
        raise malformed("a literal", "all of its bytes", begin)
    return raw[begin:end], end


def _value(raw: bytes, at: int) -> tuple[Value, int]:
    """Parse one value, including nested lists. Atoms are bytes; NIL is None.

    Not recursive, since the server chooses the depth.
    """
    inner: list[Value] | None = None
    outer: list[list[Value]] = []
    value: Value
    token = _TOKEN.match
    for _ in range(MOST_TOKENS):
        match = token(raw, at)
        if match is None:
            break
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
    raise malformed("a value", f"at most {MOST_TOKENS} strings, atoms, NILs and {DEEPEST} lists within lists", at)


def _plain_envelope(match: re.Match[bytes]) -> Envelope:
    """Parse an envelope without escapes and literals, as nearly all are, several times faster than `envelope_of`.

    From, Sender and Reply-To are usually equal, and are then parsed only once.
    """
    parsed: dict[bytes, tuple[Address, ...]] = {b"NIL": ()}
    lists: list[tuple[Address, ...]] = []
    for raw in match.group(3, 4, 5, 6, 7, 8):
        if raw not in parsed:
            parsed[raw] = tuple([Address(*[field or None for field in fields]) for fields in _ADDRESS.findall(raw)])
        lists.append(parsed[raw])
    return Envelope._make((match[1], match[2], *lists, match[9], match[10]))


_CONDITIONS = frozenset({b"OK", b"NO", b"BAD", b"BYE", b"PREAUTH"})
_UNUSED = frozenset({b"FLAGS", b"ENABLED", b"ID", b"VANISHED", b"QUOTAROOT"})
"""Responses that loadsim ignores, although it uses the commands and extensions that they belong to."""

_DATA: Mapping[bytes, Callable[[bytes, int], Response]] = {
    b"CAPABILITY": lambda raw, at: Capability(capabilities_of(raw[at:])),
    b"LIST": _list,
    b"NAMESPACE": _namespace,
    b"MYRIGHTS": _rights,
    b"QUOTA": _quota,
    b"STATUS": _status,
    b"SEARCH": _search,
    b"ESEARCH": _esearch,
}
