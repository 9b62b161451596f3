"""The messages of LDAP (RFC 4511) that an address book needs, in BER (X.690) as section 5.1 restricts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from loadsim.errors import ProtocolError

LARGEST_MESSAGE_BYTES = 1 << 20

SEQUENCE, INTEGER, OCTETS, ENUMERATED, BOOLEAN = 0x30, 0x02, 0x04, 0x0A, 0x01
BIND_REQUEST, UNBIND_REQUEST, SEARCH_REQUEST = 0x60, 0x42, 0x63
BIND_RESPONSE, ENTRY, DONE, REFERENCE, EXTENDED_RESPONSE = 0x61, 0x64, 0x65, 0x73, 0x78
"""The tags of values and of operations (section 4.2 and following)."""

SUCCESS, SIZE_LIMIT_EXCEEDED = 0, 4
"""Result codes (appendix A); the second comes with as many entries as were asked for, so it is no failure."""

NOTICE = 0
"""The message id of a notice of disconnection (section 4.4.1)."""

_SIMPLE, _OR, _EQUALITY, _SUBSTRINGS, _INITIAL = 0x80, 0xA1, 0xA3, 0xA4, 0x80
_WHOLE_SUBTREE, _NEVER_DEREFERENCE = 2, 0


class LdapMessage(NamedTuple):
    """A message of the server: its id, its operation's tag and content, and its size in bytes."""

    id: int
    operation: int
    content: bytes
    size_bytes: int


class LdapResult(NamedTuple):
    """An `LDAPResult` (section 4.1.9)."""

    code: int
    text: str


def bind(message_id: int, name: str, password: str) -> bytes:
    """Return a simple bind (section 4.2)."""
    return _message(message_id, BIND_REQUEST, _integer(INTEGER, 3), _octets(name), _value(_SIMPLE, password.encode()))


def unbind(message_id: int) -> bytes:
    return _message(message_id, UNBIND_REQUEST)


def search(message_id: int, base: str, matching: bytes, most: int) -> bytes:
    """Return a search of the whole subtree for at most so many entries' `mail` (section 4.5.1)."""
    return _message(
        message_id,
        SEARCH_REQUEST,
        _octets(base),
        _integer(ENUMERATED, _WHOLE_SUBTREE),
        _integer(ENUMERATED, _NEVER_DEREFERENCE),
        _integer(INTEGER, most),
        _integer(INTEGER, 0),
        _value(BOOLEAN, b"\0"),
        matching,
        _value(SEQUENCE, _octets("mail")),
    )


def begins(typed: str) -> bytes:
    """Return a filter for entries of which `cn` or `mail` begins so."""
    initial = _value(SEQUENCE, _value(_INITIAL, typed.encode()))
    return _value(_OR, *(_value(_SUBSTRINGS, _octets(attribute), initial) for attribute in ("cn", "mail")))


def has(address: str) -> bytes:
    """Return a filter for entries with this `mail`."""
    return _value(_EQUALITY, _octets("mail"), _octets(address))


def split(held: bytearray) -> Iterator[LdapMessage]:
    """Cut complete messages off the front of what has arrived, and yield them. Any violation is a `ProtocolError`."""
    while (size_bytes := _size(held)) is not None and len(held) >= size_bytes:
        data = bytes(held[:size_bytes])
        del held[:size_bytes]
        [(tag, whole)] = values(data)
        parts = values(whole)
        if tag != SEQUENCE or len(parts) < 2 or parts[0][0] != INTEGER or not 1 <= len(parts[0][1]) <= 4:
            raise ProtocolError("LDAP message", "expected an id and an operation")
        yield LdapMessage(int.from_bytes(parts[0][1], "big"), *parts[1], size_bytes)


def values(data: bytes) -> Sequence[tuple[int, bytes]]:
    """Return the tags and contents of values that follow one another. Raises `ProtocolError`."""
    found, at = [], 0
    while at < len(data):
        begin, size_bytes = _length(data, at)
        if begin + size_bytes > len(data):
            raise ProtocolError("LDAP message", "a value ends behind the one that contains it")
        found.append((data[at], data[begin : begin + size_bytes]))
        at = begin + size_bytes
    return found


def result_of(content: bytes) -> LdapResult:
    """Return the result in a response. Raises `ProtocolError`."""
    parts = values(content)
    if len(parts) < 3 or parts[0][0] != ENUMERATED or len(parts[0][1]) != 1 or parts[2][0] != OCTETS:
        raise ProtocolError("LDAP message", "expected a result code, a name and a text")
    return LdapResult(parts[0][1][0], parts[2][1].decode("utf-8", "replace"))


def addresses_of(content: bytes) -> Sequence[str]:
    """Return the values of `mail` in an entry (section 4.5.2), in lower case. Raises `ProtocolError`."""
    parts = values(content)
    if [tag for tag, _ in parts] != [OCTETS, SEQUENCE]:
        raise ProtocolError("LDAP entry", "expected a name and attributes")
    found: list[str] = []
    for _, attribute in values(parts[1][1]):
        named = values(attribute)
        if len(named) != 2:
            raise ProtocolError("LDAP entry", "expected an attribute's name and its values")
        if named[0][1].lower() == b"mail":
            found += (value.decode("utf-8", "replace").lower() for _, value in values(named[1][1]))
    return found


def _size(held: bytearray) -> int | None:
    """Return the size of the first message; None until its header is complete."""
    if len(held) < 2 or (held[1] > 0x80 and len(held) < 2 + (held[1] & 0x7F)):
        return None
    begin, size_bytes = _length(held, 0)
    if size_bytes > LARGEST_MESSAGE_BYTES:
        raise ProtocolError("LDAP message", f"more than {LARGEST_MESSAGE_BYTES} bytes")
    return begin + size_bytes


def _length(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return where the content of the value at this place begins, and its size in bytes."""
    first = data[at + 1] if at + 1 < len(data) else 0x80
    if first < 0x80:
        return at + 2, first
    more = first & 0x7F
    if not 1 <= more <= 4 or at + 2 + more > len(data) or data[at] & 0x1F == 0x1F:
        raise ProtocolError("LDAP message", "expected a definite length and a tag of one byte")
    return at + 2 + more, int.from_bytes(data[at + 2 : at + 2 + more], "big")


def _message(message_id: int, operation: int, *content: bytes) -> bytes:
    return _value(SEQUENCE, _integer(INTEGER, message_id), _value(operation, *content))


def _octets(text: str) -> bytes:
    return _value(OCTETS, text.encode())


def _integer(tag: int, value: int) -> bytes:
    return _value(tag, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _value(tag: int, *content: bytes) -> bytes:
    data = b"".join(content)
    size_bytes = len(data)
    if size_bytes < 0x80:
        return bytes((tag, size_bytes)) + data
    length = size_bytes.to_bytes((size_bytes.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + data
