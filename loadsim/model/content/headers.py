"""Formatting and folding of a message's header lines. Values with line breaks are rejected."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from email.utils import quote as quoted
from functools import lru_cache
from urllib.parse import quote

FOLD_AT = 76
"""Lines are folded before this many characters where possible (RFC 5322 section 2.1.1: at most 78)."""

LONGEST_FILE_NAME = 120

_DOTTED = re.compile(r"[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*(?:@[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*)?")
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.:\[\]-]+")
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,900}>")
_PLAIN_TEXT = re.compile(r"[!-~]+(?: [!-~]+)*")
_FORBIDDEN = re.compile(r"[\r\n\0]")
_FOLDED = re.compile(r"[\r\n\0]+[ \t]?")
_ANSWER_MARKS = re.compile(r"(?:(?:re|fwd?)\s*:\s*)+", re.IGNORECASE)
_WORD_BYTES = 42  # of text in one encoded word, which then has at most 68 of the 75 characters allowed


def dotted(what: str, value: str) -> str:
    """Return words of letters, digits, `_+-`, separated by single dots or one @. Raises `ValueError` for others."""
    if not _DOTTED.fullmatch(value):
        raise ValueError(f"{what}: expected letters, digits, _ + - and single dots, found {value!r}")
    return value


@lru_cache(maxsize=16_384)
def address(value: str) -> str:
    """Return an ASCII `local@domain` that needs no quotes. Raises `ValueError` for others."""
    if not _ADDRESS.fullmatch(value):
        raise ValueError(f"address: expected local@domain, found {value!r}")
    return value


def is_message_id(value: str) -> bool:
    """Return whether this is a single `<...>` without spaces (RFC 5322 section 3.6.4, read liberally)."""
    return _MESSAGE_ID.fullmatch(value) is not None


def one_line(value: str) -> str:
    """Unfold a value written by other software (RFC 5322 section 2.2.3), and remove line breaks and NUL."""
    return _FOLDED.sub(" ", value).strip()


def date(sent_us: int) -> str:
    """Format microseconds since 1970 as an RFC 5322 section 3.3 date, in UTC."""
    return _date(sent_us // 1_000_000)


@lru_cache(maxsize=16)
def _date(sent_s: int) -> str:
    return format_datetime(datetime.fromtimestamp(sent_s, UTC))


def addresses(boxes: Sequence[str]) -> str:
    """Return the value of a To header for one or more addresses, folded. Raises `ValueError` if there are none."""
    if not boxes:
        raise ValueError("to: expected at least one address, found none")
    for box in boxes:
        address(box)
    return _fold("To", [f"{box}," for box in boxes[:-1]] + [boxes[-1]])


def unstructured(name: str, value: str) -> str:
    """Return the value of a header such as Subject, folded, and encoded (RFC 2047) if it is not plain ASCII."""
    if _PLAIN_TEXT.fullmatch(value):
        return value if len(name) + 2 + len(value) <= FOLD_AT else _fold(name, value.split(" "))
    if _FORBIDDEN.search(value):
        raise ValueError(f"{name}: expected one line, found a line break or NUL in {value!r}")
    return _encoded_words(value) if value else ""


def answer_subject(mark: str, subject: str) -> str:
    """Return the subject with this mark ("Re: ", "Fwd: ") in place of its own marks."""
    plain = subject.strip()
    marks = _ANSWER_MARKS.match(plain)
    return mark + (plain[marks.end() :] if marks else plain)


def disposition(kind: str, filename: str | None) -> str:
    """Return a Content-Disposition line (RFC 2183), with a non-ASCII file name encoded as in RFC 2231."""
    if filename is None:
        return f"Content-Disposition: {kind}\r\n"
    if filename.isascii() and filename.isprintable():
        return f'Content-Disposition: {kind};\r\n filename="{quoted(filename)}"\r\n'
    return f"Content-Disposition: {kind};\r\n filename*=utf-8''{quote(filename, safe='')}\r\n"


def _fold(name: str, words: Sequence[str]) -> str:
    """Join words with spaces, and break lines before they exceed `FOLD_AT`."""
    value, used = words[0], len(name) + 2 + len(words[0])
    pieces = [value]
    for word in words[1:]:
        if used + 1 + len(word) > FOLD_AT:
            pieces.append("\r\n ")
            used = 1 + len(word)
        else:
            pieces.append(" ")
            used += 1 + len(word)
        pieces.append(word)
    return "".join(pieces)


def _encoded_words(text: str) -> str:
    """Encode text as in RFC 2047 section 2: base64 words of whole UTF-8 characters, one per line."""
    words, start, used = [], 0, 0
    for at, character in enumerate(text):
        size = len(character.encode())
        if used + size > _WORD_BYTES:
            words.append(text[start:at])
            start, used = at, 0
        used += size
    words.append(text[start:])
    return "\r\n ".join(f"=?utf-8?B?{b64encode(word.encode()).decode()}?=" for word in words)
