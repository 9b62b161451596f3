"""A connection's last lines as text, without passwords or message contents."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError, TaskFailed, printable
from loadsim.model.ports import Account, KeptLines
from loadsim.protocols.sasl.masking import MASK, without_password

KEPT_BYTES = 80
"""The bytes kept of each line: the rest is neither scanned nor copied, and a user's lines take 4 KB."""

KEPT_LINES = 64
"""The number of entries kept per user: lines, and the time of each sent line."""

KEEPING_USERS = 100
"""The number of users per engine whose lines are kept. Each costs up to 9 KB, and 5% of their commands' CPU time."""

MOST_TRACED_LINES = 20_000
"""The most lines written of one conversation: about 3 MB, a Heavy user's day."""

_LITERAL = re.compile(rb"\{(\d+)\+?\}\r\n")
_LOG_ON = re.compile(rb"\A(\S+ LOGIN|\S+ AUTHENTICATE \S+|AUTH \S+|PASS) .*", re.DOTALL)
_WITHOUT_TEXT = re.compile(rb"\* \d+ (?:FETCH\b|(?:EXISTS|EXPUNGE|RECENT)\Z)", re.IGNORECASE)
_CHALLENGE = re.compile(rb"\A(\+|334) [A-Za-z0-9+/]{12,}={0,2}")
_FETCHED = re.compile(rb"\* *\d+ *FETCH\b", re.IGNORECASE)
_QUOTED = re.compile(rb'".*', re.DOTALL)  # to the end, as some servers do not escape inner quotes
_MASK = MASK.encode()


BARE_LF = "a line ended by a bare LF: RFC 3501 2.2 wants CRLF"

NO_LINES: KeptLines = deque(maxlen=0)
"""Keeps nothing."""


Asked = tuple[Collection[str], bool] | None
"""The tags of the IMAP commands under way, and whether one of them is FETCH; None before the greeting."""


def keeping(lines: KeptLines, asked: Callable[[], Asked]) -> Callable[[bytes], None] | None:
    """Return the function that keeps an IMAP response; None if nothing is kept, which is cheapest."""
    return None if lines is NO_LINES else lambda line: lines.append(_answering(line, asked()))


def _answering(line: bytes, asked: Asked) -> bytes:
    """Return a response without anything that may be message text.

    If a server states a wrong length, the rest of a text arrives where a response is due. So a line with an unknown tag
    is masked; during a FETCH, so is any untagged line with words.
    """
    if asked is None:
        return line
    first = line.partition(b" ")[0]
    tags, is_fetch = asked
    if first not in (b"*", b"+"):
        return line if first.decode("ascii", "replace") in tags else _MASK
    return first + b" " + _MASK if is_fetch and not _WITHOUT_TEXT.match(line) else line


def unfinished(line: bytes, asked: Asked, account: Account) -> str:
    """Return the start of an IMAP response that did not end in time, and what is wrong with it; "" if there is none."""
    if not line:
        return ""
    is_bare = line.endswith(b"\n") and not line.endswith(b"\r\n")
    shown = received(line, asked, account, is_cut=not is_bare)
    return f"{shown} ({BARE_LF if is_bare else 'incomplete'})"


def quoting(failure: TaskFailed, line: bytes, asked: Asked, account: Account) -> TaskFailed:
    """Return the failure, quoting the malformed IMAP response `line`, unless that is b""."""
    if not line or not isinstance(failure, ProtocolError):
        return failure
    return ProtocolError(failure.kind, f"{failure.line}: {received(line, asked, account)}")


def received(line: bytes, asked: Asked, account: Account, *, is_cut: bool = False) -> str:
    """Return an IMAP response in the form in which errors may quote it."""
    return text_of(_answering(line[:KEPT_BYTES], asked), account, sent=False, is_cut=is_cut).removeprefix("S: ")


def unseen(size_bytes: int) -> bytes:
    """Return the placeholder for bytes that are not shown, such as a message or the response to a challenge."""
    return b"{%d bytes}" % size_bytes


def text_of(line: bytes, account: Account, *, sent: bool, is_cut: bool = False) -> str:
    """Return a line as text, with "C: " before the client's and "S: " before the server's, as in RFCs.

    Literals, FETCH texts, credentials and challenges are masked. `is_cut` means that the line's end is missing.
    """
    shown, at = b"", 0
    while mark := _LITERAL.search(line, at):
        shown += line[at : mark.start()] + unseen(int(mark[1]))
        at = mark.end() + int(mark[1])
    fetched = not sent and _FETCHED.match(line) is not None
    if not (fetched and at):  # after a wrong length, more text follows the literal
        shown += line[at:]
    if sent:
        shown = _LOG_ON.sub(rb"\1 " + _MASK, shown)
    elif fetched:
        shown = _QUOTED.sub(b'"' + _MASK + b'"', shown)
    else:
        shown = _CHALLENGE.sub(rb"\1 " + _MASK, shown)
    is_cut = is_cut or len(line) >= KEPT_BYTES
    text = without_password(shown.decode("utf-8", "replace").rstrip(), account, is_cut=is_cut)
    return f"{'C' if sent else 'S'}: {printable(text)}{'...' if is_cut else ''}"


@dataclass(slots=True)
class Trace:
    """Keeps a user's last lines, like a `deque`, and passes the first `MOST_TRACED_LINES` straight to `write`."""

    write: Callable[[bytes, bool], None]
    _kept: deque[bytes | int] = field(default_factory=lambda: deque(maxlen=KEPT_LINES), init=False)
    _left: int = field(default=MOST_TRACED_LINES, init=False)
    _sent: bool = field(default=False, init=False)  # the next line is the client's

    def append(self, line: bytes | int) -> None:
        self._kept.append(line)
        if isinstance(line, bytes) and self._left:
            self._left -= 1
            self.write(line, self._sent)
        self._sent = isinstance(line, int)

    def __iter__(self) -> Iterator[bytes | int]:
        return iter(self._kept)


def excerpt(lines: Iterable[bytes | int], account: Account, clock: Callable[[int], str]) -> list[str]:
    """Return lines as text; those sent begin with their time, formatted by `clock`."""
    texts = []
    sent_ns: int | None = None
    for line in lines:
        if isinstance(line, bytes):
            text = text_of(line, account, sent=sent_ns is not None)
            texts.append(text if sent_ns is None else f"{clock(sent_ns)} {text}")
        sent_ns = line if isinstance(line, int) else None
    return texts
