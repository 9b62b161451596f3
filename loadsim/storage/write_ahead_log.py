"""Checksums of a write-ahead log, by SQLite's documentation of its file format (section 4, the write-ahead log).

SQLite takes the first frame with a wrong checksum for the end of the log, and says nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.storage.store import Checked

_HEADER = struct.Struct(">6I")
_SUMS = struct.Struct(">2I")
_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
_WORDS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
"""The order of bytes in the words of the checksums, by the first word of the log."""


def check_log(path: Path) -> Iterator[Checked]:
    """Yield header and frames of a log. A frame that is not sound is damaged if sound ones follow, else the end."""
    damaged: int | None = None
    number = -1
    for number, (size_bytes, sound) in enumerate(_frames(path)):
        if not sound:
            damaged = number if damaged is None else damaged
        else:
            yield Checked(size_bytes, "" if damaged is None else _name(path, damaged))
            damaged = None
    if damaged == 0 and number > 0:  # without a header, no frame is sound
        yield Checked(0, _name(path, 0))


def _name(path: Path, number: int) -> str:
    return f"{path.name}: {f'frame {number}' if number else 'header'}"


def _frames(path: Path) -> Iterator[tuple[int, bool]]:
    """Yield the bytes of header and frames, and if their checksums are right; what an older log has left is not sound.

    Checksums go on from frame to frame. After one that does not fit, the next may go on from the frame's checksum or
    from its content: only one of them is damaged.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES:
            return
        magic, _, page_bytes, _, *_ = _HEADER.unpack(header[:24])
        words = _WORDS.get(magic, "<u4")
        before = {_continued((0, 0), header[:24], words), _SUMS.unpack(header[24:])}
        yield len(header), len(before) == 1
        size_bytes = FRAME_HEADER_BYTES + page_bytes
        while len(frame := file.read(size_bytes)) == size_bytes:
            stored = _SUMS.unpack(frame[16:24])
            content = frame[:8] + frame[FRAME_HEADER_BYTES:]
            after = {_continued(sums, content, words) for sums in before}
            yield size_bytes, stored in after and frame[8:16] == header[16:24]
            before = {stored} if stored in after else {stored, *after}


def _continued(sums: tuple[int, int], content: bytes, words: str) -> tuple[int, int]:
    """Continue the checksums (a, b) over pairs of words (x, y): a += x + b; b += y + a, modulo 2**32."""
    values = np.frombuffer(content, words).astype(np.uint32)
    x, y = values[::2], values[1::2]
    pairs = len(x)
    weights = _fibonacci(2 * pairs + 2)
    # The pair that k others follow adds F(2k+1) x + F(2k) y to a, and F(2k+2) x + F(2k+1) y to b.
    even, odd, next_even = weights[: 2 * pairs : 2], weights[1 : 2 * pairs : 2], weights[2 : 2 * pairs + 1 : 2]
    x, y = x[::-1], y[::-1]
    a = int(np.sum(odd * x + even * y, dtype=np.uint32))
    b = int(np.sum(next_even * x + odd * y, dtype=np.uint32))
    before, this, after = (int(weights[2 * pairs + step]) for step in (-1, 0, 1))
    return (a + before * sums[0] + this * sums[1]) % 2**32, (b + this * sums[0] + after * sums[1]) % 2**32


@cache
def _fibonacci(count: int) -> NDArray[np.uint32]:
    """Return the first Fibonacci numbers, from F(0) on, modulo 2**32."""
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append((numbers[-1] + numbers[-2]) % 2**32)
    return np.array(numbers, np.uint32)
