"""Contents of an exact size: a text, plus an attachment above a few kilobytes, cut from the templates."""

from __future__ import annotations

from base64 import encodebytes
from functools import cached_property

from loadsim.model.content.prose import DATA
from loadsim.model.content.templates import KINDS, TEXTS, Content, Entity, Pool, enclose, text_header
from loadsim.model.draws import pick
from loadsim.model.message_tag import body_digest

TEXT_ONLY_BYTES = 8192
"""The largest content that is text alone."""

_LEAST_TEXT_BYTES = 1024
"""The smallest text that comes with an attachment."""

MARK = "sized"
"""The mark in the boundary of a multipart of an exact size."""

_CHUNK_BYTES, _LINE_BYTES = 57, 78
"""RFC 2045 section 6.8: 57 bytes make a line of 76 characters, and CRLF."""

_SAMPLES = 16
"""The number of 4 KB texts from which others are cut."""

TEXT_HEADER = text_header(foreign=False)
FILE_HEADER = (
    b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n"
    b'Content-Disposition: attachment; filename="archive.bin"\r\n'
)
MEDIA_TYPE = "application/octet-stream"


def multipart(text: bytes, file: bytes, digest: str | None = None) -> Content:
    """Return a text with an attached file in base64; `digest` is the body's, if known."""
    return enclose("multipart/mixed", MARK, Entity(TEXT_HEADER, text), Entity(FILE_HEADER, file), digest)


def _size_bytes(content: Content) -> int:
    return len(content.header) + 2 + sum(map(len, content.pieces))


_FRAME_BYTES = _size_bytes(multipart(b"", b"", "-"))


def layout(room_bytes: int) -> tuple[int, int]:
    """Return the sizes of the text and the encoded attachment (0: none) in a content of this size.

    The size includes all lines from Content-Type on. The text has at least one line, even if that does not fit.
    """
    lines = (room_bytes - _FRAME_BYTES - _LEAST_TEXT_BYTES + 2) // _LINE_BYTES
    if room_bytes <= TEXT_ONLY_BYTES or lines < 1:
        return max(3, room_bytes - len(TEXT_HEADER) - 2), 0
    file_bytes = lines * _LINE_BYTES - 2  # the last CRLF belongs to the delimiter
    return room_bytes - _FRAME_BYTES - file_bytes, file_bytes


class SizedContents:
    """Makes contents of exact sizes from a pool's templates."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def make(self, room_bytes: int, u: float) -> Content:
        """Return a content with this `layout`; `u` in [0, 1) determines where text and attachment are cut from."""
        text_bytes, file_bytes = layout(room_bytes)
        text = self._text(text_bytes, u)
        if not file_bytes:
            return Content(TEXT_HEADER, (text,), body_digest(text))
        return multipart(text, self._file(file_bytes, u))

    def _text(self, size_bytes: int, u: float) -> bytes:
        source = self._texts
        begin = source.find(b"\n", pick(u, len(source) // 2)) + 1  # the filler used for planning has no line breaks
        cut = _from(source, begin, size_bytes - 2)
        return cut.rstrip(b"\r\n ").ljust(len(cut), b".") + b"\r\n"

    def _file(self, size_bytes: int, u: float) -> bytes:
        """Return whole lines of base64; the last one has no CRLF."""
        begin = pick(u, len(self._lines) // _LINE_BYTES) * _LINE_BYTES
        return _from(self._lines, begin, size_bytes)

    @cached_property
    def _texts(self) -> bytes:
        """ASCII texts, joined end to end."""
        ascii_only = [variant for variant in range(TEXTS[4096]) if variant % 8 != 7][:_SAMPLES]
        return b"".join([bytes(self._pool.text("new", 4096, variant).body) for variant in ascii_only])

    @cached_property
    def _lines(self) -> bytes:
        """All shipped files as lines of base64."""
        shipped = [kind.attached for kind in KINDS.values() if kind.attached and not kind.attached.made_bytes]
        files = [
            (DATA / attached.filename.format(n + 1)).read_bytes()
            for attached in shipped
            for n in range(attached.variants)
        ]
        content = b"".join(files)
        content = content[: len(content) // _CHUNK_BYTES * _CHUNK_BYTES]
        return encodebytes(content).replace(b"\n", b"\r\n")


def _from(source: bytes, begin: int, size_bytes: int) -> bytes:
    """Return this many bytes, starting at `begin` and wrapping around at the end of the source."""
    cut = source[begin : begin + size_bytes]
    left = size_bytes - len(cut)
    if left:
        cut += source * (left // len(source)) + source[: left % len(source)]
    return cut
