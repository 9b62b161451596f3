"""Input that is nearly sound: bytes and documents, changed at random places with the words of their format."""

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

Make = Callable[[Random], bytes]
"""Returns the bytes of a case, which are a function of the random numbers alone."""

LARGEST_BYTES = 200_000

_NUMBER = re.compile(rb"\d+")
_STRING = re.compile(rb'"[^"]{0,200}"')
_NUMBERS = (
    *b"0 -1 1 00 007 2147483647 2147483648 4294967295 4294967296 9223372036854775807 9223372036854775808".split(),
    *b"18446744073709551616 99999999999999999999 1e400 -1e-400 0.1 NaN Infinity 0x10 1_0 +1".split(),
    b"9" * 400,
    b"1" * 5000,
    "\u0663".encode(),
    "\u00b2".encode(),
)
_ODD_BYTES = (
    b"\r", b"\n", b"\r\n", b"\0", b"\x1b[2J", b"\x7f", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", "\u202e".encode(),
    "\u2028".encode(), "\ufeff".encode(), "\U0010ffff".encode(), b"\\", b'"', b"'", b"%", b" ", b"\t",
)  # fmt: skip
_BRACKETS = (b"()", b"[]", b"{}", b"<>", b'""')


def mutated(seeds: Sequence[bytes], words: Sequence[bytes]) -> Make:
    """Return what makes cases of these seeds and these words."""

    def make(random: Random) -> bytes:
        data = bytearray(random.choice(seeds))
        for _ in range(min(12, 1 + int(random.expovariate(0.5)))):
            _change(random, data, seeds, words)
            if len(data) > LARGEST_BYTES:
                del data[LARGEST_BYTES:]
                break
        return bytes(data)

    return make


def changed(random: Random, data: bytes, words: Sequence[bytes] = ()) -> bytes:
    found = bytearray(data)
    _change(random, found, (data,), words or (b"",))
    return bytes(found[:LARGEST_BYTES])


def _change(random: Random, data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + 1 + int(random.expovariate(0.1)))
    kind = random.randrange(16)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << random.randrange(8)
    elif kind == 1 and data:
        data[at % len(data)] = random.randrange(256)
    elif kind == 2:
        del data[at:end]
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        data[at:at] = data[at:end] * random.choice((1, 2, 3, 10))
    elif kind in (5, 6, 7):
        data[at:at] = random.choice(words)
    elif kind == 8:
        data[at:end] = random.choice(words)
    elif kind == 9:
        data[at:at] = random.choice(_ODD_BYTES)
    elif kind in (10, 11):
        _replace(random, data, _NUMBER, random.choice(_NUMBERS))
    elif kind == 12:
        _replace(random, data, _STRING, b'"' + random.choice((*words, *_ODD_BYTES)) + b'"')
    elif kind == 13:  # the beginning of one, the end of another
        other = random.choice(seeds)
        data[at:] = other[random.randrange(len(other) + 1) :]
    elif kind == 14:
        left, right = random.choice(_BRACKETS).decode()
        depth = random.choice((1, 2, 3, 60, 70, 500))
        data[at:at] = left.encode() * depth + (right.encode() * depth if random.random() < 0.7 else b"")
    elif random.random() < 0.05:  # much of the same
        piece = bytes(data[at:end]) or random.choice(words) or b"x"
        data[at:at] = piece * (random.choice((2000, 20_000, 100_000)) // len(piece))
    else:
        data[at:at] = random.choice(words) + random.choice(_ODD_BYTES) + random.choice(words)


def _replace(random: Random, data: bytearray, pattern: re.Pattern[bytes], new: bytes) -> None:
    places = [match.span() for match in pattern.finditer(data, 0, 4000)]
    if places:
        begin, end = random.choice(places)
        data[begin:end] = new


ODD_VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e15, 1e300, float("inf"), float("-inf"), float("nan"),
    2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400,
    "", "x", "0", "1", "yes", "a\x1b[2J\u202e\x00b", "\ud800", "\u2028", "x" * 2000,
    [], [[]], {}, [None], [1, 2, 3], [50.0, 10.0], [None, "x", {}], {"x": {"y": None}}, {"": 1},
)  # fmt: skip


def odd_document(random: Random, document: Any, words: Sequence[str] = ()) -> Any:
    """Return a copy of a document of lists, mappings and scalars, with some values changed."""
    document = json.loads(json.dumps(document))
    for _ in range(min(6, 1 + int(random.expovariate(1)))):
        document = _odd(random, document, words)
    return document


def _odd(random: Random, document: Any, words: Sequence[str]) -> Any:
    """Go down from the top at random, and change what is there."""
    place = document
    while isinstance(place, dict | list) and place:
        key = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
        if isinstance(place[key], dict | list) and place[key] and random.random() < 0.85:
            place = place[key]
            continue
        _odd_at(random, place, key, words)
        return document
    return deepcopy(random.choice(ODD_VALUES))


def _odd_at(random: Random, place: Any, key: Any, words: Sequence[str]) -> None:
    kind = random.randrange(10)
    value = place[key]
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[random.choice(words) if words else "x"] = value
    elif kind == 1:
        place.insert(key, value)
    elif kind == 2 and isinstance(place, list):
        place *= random.choice((2, 10, 1000 if len(json.dumps(place)) < 100 else 2))
    elif kind == 3:
        nested: Any = value
        for _ in range(random.choice((1, 2, 20, 150))):
            nested = [nested] if random.random() < 0.5 else {"x": nested}
        place[key] = nested
    elif kind == 4 and words:
        place[key] = random.choice(words)
    elif kind == 5 and type(value) in (int, float) and abs(value) < 1e300:
        place[key] = random.choice((value + 1, value - 1, -value, value * 1000, value / 7, value * 1e9))
    elif kind == 5 and isinstance(value, str) and value:
        place[key] = changed(random, value.encode(errors="replace")).decode(errors="replace")
    else:
        place[key] = deepcopy(random.choice(ODD_VALUES))
