"""Shapes of unknown lines: their signs, without the names and numbers in them."""

from __future__ import annotations

import re
from collections import Counter

LONGEST_SHAPE = 100
MOST_SHAPES = 1000

_WORD = re.compile(r"[^\W_]+")

_KEPT = frozenset(
    (
        *("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
        *(
            "postfix",
            "smtpd",
            "cleanup",
            "qmgr",
            "lmtp",
            "smtp",
            "local",
            "virtual",
            "pipe",
            "bounce",
            "error",
            "pickup",
        ),
        *("client", "message", "id", "from", "to", "size", "nrcpt", "relay", "delay", "dsn", "status", "sent", "queue"),
        *(
            "active",
            "removed",
            "warning",
            "fatal",
            "reject",
            "dovecot",
            "imap",
            "pop3",
            "login",
            "lda",
            "Info",
            "Error",
        ),
        *("Login", "Logged", "in", "user", "method", "rip", "lip", "mpid", "session", "TLS", "msgid", "saved", "mail"),
        *("RECEIVE", "DELIVER", "SUBMIT", "SEND", "FAIL", "STOREDRIVER", "SMTP", "repeated", "times", "last"),
    )
)
"""The words of the logs' own, which are shown. Any other word may be part of a name."""


def shape(line: str) -> str:
    """Mask a line: digits become 9, and words that are not the log's own become `a`."""
    masked = _WORD.sub(lambda word: _masked(word[0]), line[: 3 * LONGEST_SHAPE])
    printed = "".join(sign if " " <= sign <= "~" else "?" for sign in masked)
    return printed if len(printed) <= LONGEST_SHAPE else f"{printed[: LONGEST_SHAPE - 3]}..."


def _masked(word: str) -> str:
    if word in _KEPT:
        return word
    return "9" if word.isdigit() else "a"


class UnknownLines:
    """Counts unknown lines by shape, in bounded memory."""

    def __init__(self) -> None:
        self.lines = 0
        self._shapes: Counter[str] = Counter()

    def add(self, line: str) -> None:
        self.lines += 1
        if self.lines <= 100_000:  # shaping takes longer than reading
            found = shape(line)
            if found in self._shapes or len(self._shapes) < MOST_SHAPES:
                self._shapes[found] += 1

    def most_common(self, count: int) -> list[tuple[str, int]]:
        return self._shapes.most_common(count)
