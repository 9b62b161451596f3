"""KeptLines of protocols as text, without passwords and contents of messages."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError, TaskFailed, printable
from loadsim.model.ports import Account, KeptLines
from loadsim.protocols.sasl.masking import MASK, without_password

KEPT_BYTES = 80
"""The most bytes of a line that are kept: no scan and no copy of a longer one, and 4 KB for the lines of a user."""

KEPT_LINES = 64
"""The lines of a user that are kept, with the instants of those that were sent."""

KEEPING_USERS = 100
"""The users of an engine that keep lines. Each takes up to 9 KB, and a twentieth of the CPU time of their commands."""

MOST_TRACED_LINES = 20_000
"""The most lines of a conversation that are written: about 3 MB, and a day of a Heavy user."""

_LITERAL = re.compile(rb"\{(\d+)\+?\}\r\n")
_LOG_ON = re.compile(rb"\A(\S+ LOGIN|\S+ AUTHENTICATE \S+|AUTH \S+) .*", re.DOTALL)
_WITHOUT_TEXT = re.compile(rb"\* \d+ (?:FETCH\b|(?:EXISTS|EXPUNGE|RECENT)\Z)", re.IGNORECASE)
_CHALLENGE = re.compile(rb"\A(\+|334) [A-Za-z0-9+/]{12,}={0,2}")
_FETCHED = re.compile(rb"\* *\d+ *FETCH\b", re.IGNORECASE)
_QUOTED = re.compile(rb'".*', re.DOTALL)  # all that follows: some servers do not escape quotes within
_MASK = MASK.encode()


BARE_LF = "a line ended by a bare LF: RFC 3501 2.2 wants CRLF"

NO_LINES: KeptLines = deque(maxlen=0)
"""Keeps nothing."""


Asked = tuple[Collection[str], bool] | None
"""The tags of the commands under way (IMAP), and if one of them is FETCH; None before the greeting."""


def keeping(lines: KeptLines, asked: Callable[[], Asked]) -> Callable[[bytes], None] | None:
    """Return the function that keeps a response (IMAP); None if nothing is kept, which costs least."""
    return None if lines is NO_LINES else lambda line: lines.append(_answering(line, asked()))


def _answering(line: bytes, asked: Asked) -> bytes:
    """Return a response without what may be a text.

    A server that states a wrong length sends the rest of a text, perhaps a list, where a response is due: of what
    answers no command, and in a FETCH of any words, nothing is kept.
    """
    if asked is None:
        return line
    first = line.partition(b" ")[0]
    tags, is_fetch = asked
    if first not in (b"*", b"+"):
        return line if first.decode("ascii", "replace") in tags else _MASK
    return first + b" " + _MASK if is_fetch and not _WITHOUT_TEXT.match(line) else line


def unfinished(line: bytes, asked: Asked, account: Account) -> str:
    """Return the beginning of a response (IMAP) that did not end in time, and how it differs; "" for none."""
    if not line:
        return ""
    is_bare = line.endswith(b"\n") and not line.endswith(b"\r\n")
    shown = received(line, asked, account, is_cut=not is_bare)
    return f"{shown} ({BARE_LF if is_bare else 'incomplete'})"


def quoting(failure: TaskFailed, line: bytes, asked: Asked, account: Account) -> TaskFailed:
    """Return a failure with the response (IMAP) that was malformed; b"" if none was."""
    if not line or not isinstance(failure, ProtocolError):
        return failure
    return ProtocolError(failure.kind, f"{failure.line}: {received(line, asked, account)}")


def received(line: bytes, asked: Asked, account: Account, *, is_cut: bool = False) -> str:
    """Return a response (IMAP) as it may stand in an error: as kept lines are shown."""
    return text_of(_answering(line[:KEPT_BYTES], asked), account, sent=False, is_cut=is_cut).removeprefix("S: ")


def unseen(size_bytes: int) -> bytes:
    """Return the line for bytes that are not shown: a message, or the response to a challenge."""
    return b"{%d bytes}" % size_bytes


def text_of(line: bytes, account: Account, *, sent: bool, is_cut: bool = False) -> str:
    """Return a line as text: the client's after "C: ", the server's after "S: ", as in RFCs.

    Literals, the texts of a FETCH, credentials and challenges are not shown. `is_cut`: its end is missing.
    """
    shown, at = b"", 0
    while mark := _LITERAL.search(line, at):
        shown += line[at : mark.start()] + unseen(int(mark[1]))
        at = mark.end() + int(mark[1])
    fetched = not sent and _FETCHED.match(line) is not None
    if not (fetched and at):  # behind a literal is the rest of a text, if a server states a wrong length
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
    """Keeps the last lines of a user, as a `deque` does, and passes each of the first ones to `write` at once."""

    write: Callable[[bytes, bool], None]
    _kept: deque[bytes | int] = field(default_factory=lambda: deque(maxlen=KEPT_LINES), init=False)
    _left: int = field(default=MOST_TRACED_LINES, init=False)
    _sent: bool = field(default=False, init=False)  # the next line

    def append(self, line: bytes | int) -> None:
        self._kept.append(line)
        if isinstance(line, bytes) and self._left:
            self._left -= 1
            self.write(line, self._sent)
        self._sent = isinstance(line, int)

    def __iter__(self) -> Iterator[bytes | int]:
        return iter(self._kept)


def excerpt(lines: Iterable[bytes | int], account: Account, clock: Callable[[int], str]) -> list[str]:
    """Return lines as text, those that were sent after their time by `clock`."""
    texts = []
    sent_ns: int | None = None
    for line in lines:
        if isinstance(line, bytes):
            text = text_of(line, account, sent=sent_ns is not None)
            texts.append(text if sent_ns is None else f"{clock(sent_ns)} {text}")
        sent_ns = line if isinstance(line, int) else None
    return texts
