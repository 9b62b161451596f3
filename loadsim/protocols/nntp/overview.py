"""Answers about a newsgroup: its numbers, and the overview of its articles (RFC 3977 sections 6.1.1 and 8.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from loadsim.errors import ProtocolError
from loadsim.model.ports import Header
from loadsim.protocols.imap.reading import text_of
from loadsim.protocols.imap.requests import addresses_of

_GROUP = re.compile(rb"211 ([0-9]{1,16}) ([0-9]{1,16}) ([0-9]{1,16})(?: .*)?")
_NUMBER = re.compile(rb"[0-9]{1,16}")
"""With leading zeros or without (RFC 3977 section 6)."""

_MESSAGE_ID = re.compile(r"<[!-=?-~]{1,248}>")
"""At most 250 bytes without a space (RFC 3977 section 3.6)."""

_LEAST_FIELDS = 8
"""Number, subject, author, date, Message-ID, references, bytes and lines."""


class ArticleRef(NamedTuple):
    """An article's number in the newsgroup, and its Message-ID."""

    number: int
    message_id: str


class Marks(NamedTuple):
    """A newsgroup's numbers: of the articles that it may have, of the lowest, and of the highest (water marks)."""

    articles: int
    low: int
    high: int


def marks_in(answer: bytes) -> Marks:
    match = _GROUP.fullmatch(answer)
    if match is None:
        raise ProtocolError("GROUP", "expected the numbers of a newsgroup")
    return Marks(*map(int, match.groups()))


def articles_in(lines: bytes, first: int, last: int) -> Sequence[Header]:
    """Return a header without a tag for each line; numbers ascend, in the range that was asked for."""
    found: list[Header] = []
    previous = first - 1
    for line in lines.split(b"\r\n")[:-1]:
        fields = line.split(b"\t")
        if len(fields) < _LEAST_FIELDS or not _NUMBER.fullmatch(fields[0]):
            raise ProtocolError("OVER", "expected a number and seven fields on each line")
        number, message_id = int(fields[0]), fields[4].decode("ascii", "replace")
        if not previous < number <= last or not _MESSAGE_ID.fullmatch(message_id):
            raise ProtocolError("OVER", "expected ascending numbers as asked for, each with a Message-ID")
        size_bytes = int(fields[6]) if _NUMBER.fullmatch(fields[6]) else 0
        sender, previous = next(iter(addresses_of(fields[2])), ""), number
        ref = ArticleRef(number, message_id)
        found.append(Header(ref, frozenset(), size_bytes, sender, (), text_of(fields[1]), message_id, None))
    return found
