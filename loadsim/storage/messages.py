"""A store's messages: generated text, and files that neither compress nor repeat.

A message proves itself: its first line, an `X-LoadSim` tag, has its key, its version, and the digest of the rest.
"""

from __future__ import annotations

import math
from binascii import b2a_base64
from contextlib import suppress

import numpy as np

from loadsim.model.content.prose import text
from loadsim.model.content.sized import TEXT_HEADER, multipart
from loadsim.model.content.templates import Content
from loadsim.model.message_tag import HEADER, MessageTag, body_digest

RUN = "storage"  # the run in the tags of these messages
LEAST_BYTES, MOST_TIMES_MEAN = 1024, 20  # the smallest message, and the largest as a multiple of the mean
SPREAD = 1.0  # standard deviation of the natural logarithm of the size: half of the messages are below 0.6 of the mean
MOST_TEXT_BYTES = 8192  # the longest text; the rest of a message is an attached file
MAILBOX_BITS = 40  # a key is the mailbox's number, shifted by this, and the message's number
_TEXTS, _TEXT_BYTES = 64, 4096
_LINE_CHARS = 76


class StoredMessages:
    """Makes a store's messages from the seed, the key and the version alone."""

    def __init__(self, seed: int, mean_bytes: int) -> None:
        self.seed = seed
        self._mean_bytes = mean_bytes
        self._log_median = math.log(mean_bytes) - SPREAD**2 / 2
        texts = (text(seed, "new", variant, _TEXT_BYTES) for variant in range(_TEXTS))
        self._lines = [line + b"\r\n" for body in texts for line in body.split(b"\r\n") if line]
        self._line_bytes = sum(map(len, self._lines)) // len(self._lines)

    def make(self, key: int, version: int) -> bytes:
        """Return a message (RFC 5322, CRLF) of a log-normal size."""
        random = np.random.Generator(np.random.SFC64([self.seed, key, version]))
        size = math.exp(self._log_median + SPREAD * random.standard_normal())
        size = int(min(max(size, LEAST_BYTES), MOST_TIMES_MEAN * self._mean_bytes))
        text_body = self._text(random, min(size, MOST_TEXT_BYTES) - 512)
        if size > MOST_TEXT_BYTES + LEAST_BYTES:
            content = multipart(text_body, _file(random, size - MOST_TEXT_BYTES))
        else:
            content = Content(TEXT_HEADER, (text_body,), "")
        mailbox, name = key >> MAILBOX_BITS, f"{key:x}.{version}"
        head = (
            f"From: user{mailbox + 1}@storage.example\r\nTo: user{mailbox + 1}@storage.example\r\n"
            f"Subject: Stored message {name}\r\nMessage-ID: <{name}.{RUN}@storage.example>\r\n"
            "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\nMIME-Version: 1.0\r\n"
        )
        message = b"".join((head.encode(), content.header, b"\r\n", *content.pieces))
        return _tag_line(key, version, message) + message

    def _text(self, random: np.random.Generator, size_bytes: int) -> bytes:
        """Return lines of text in random order, of about this total size."""
        chosen = random.integers(len(self._lines), size=max(1, size_bytes // self._line_bytes)).tolist()
        return b"".join([self._lines[at] for at in chosen])


def _file(random: np.random.Generator, size_bytes: int) -> bytes:
    """Return random bytes as lines of base64 (RFC 2045 section 6.8), of about this total size."""
    lines = max(1, size_bytes // (_LINE_CHARS + 2))
    encoded = b2a_base64(random.bytes(lines * _LINE_CHARS // 4 * 3), newline=False)
    return b"\r\n".join([*np.frombuffer(encoded, f"S{_LINE_CHARS}").tolist(), b""])


def _tag_line(key: int, version: int, rest: bytes) -> bytes:
    """Return the first line of a message, with the digest of the rest."""
    tag = MessageTag(RUN, (key >> MAILBOX_BITS) + 1, f"{key:x}.{version}", "stored", 0, body_digest(rest))
    return f"{HEADER}: {tag.header()}\r\n".encode()


def version_of(key: int, message: bytes | None) -> int | None:
    """Return the version of a message with this key; None if any byte differs from the message as it was made."""
    line, end, rest = (message or b"").partition(b"\r\n")
    tag = MessageTag.parse(line.decode("ascii", "replace").removeprefix(f"{HEADER}: "))
    with suppress(ValueError):
        version = int(tag.id.partition(".")[2] if tag else "")
        if line + end == _tag_line(key, version, rest):
            return version
    return None
