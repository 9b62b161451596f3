"""Templates for message contents: texts and attachments, made and encoded once, and shared by all messages."""

from __future__ import annotations

from base64 import encodebytes
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b

from loadsim.model.content import headers, prose
from loadsim.model.content.prose import DATA
from loadsim.model.draws import pick
from loadsim.model.message_tag import body_digest

BOUNDARY = "=_loadsim_"
"""The beginning of a multipart's boundary."""

TEXTS = {1024: 256, 2048: 128, 4096: 128}
"""The number of different texts by size in bytes."""

_FOREIGN_EVERY = 8  # every eighth text has non-ASCII names and symbols, as quoted-printable UTF-8
_SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_DOCUMENT = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@dataclass(frozen=True, slots=True)
class Attached:
    """The file attached to one kind of message, in `variants`, and its MIME fields.

    `filename` has a placeholder for the variant's number (from 1). Files have `made_bytes` of generated prose; if this
    is 0, they are shipped in `data/`. `within` is the Content-Type of the multipart that encloses text and file.
    """

    filename: str
    content_type: str
    variants: int
    disposition: str = "attachment"
    within: str = "multipart/mixed"
    made_bytes: int = 0


@cache
def file_bytes(kind: Attached) -> int:
    """Return the size of a kind's smallest file in base64: lines of 76 characters, with CRLF between them."""
    names = [kind.filename.format(variant + 1) for variant in range(kind.variants)]
    encoded = -(-(kind.made_bytes or min((DATA / name).stat().st_size for name in names)) // 3) * 4
    return encoded + (encoded - 1) // 76 * len("\r\n")


@dataclass(frozen=True, slots=True)
class ContentKind:
    """A kind of message: the size of its text in bytes, and its file."""

    text_bytes: int
    attached: Attached | None = None


KINDS = {
    "ups1K": ContentKind(1024),
    "ups2K": ContentKind(2048),
    "ups4K": ContentKind(4096),
    "ups10Kat": ContentKind(1024, Attached("notes-{}.txt", "text/plain; charset=us-ascii", 32, made_bytes=10 * 1024)),
    # RFC 2387: the text is the root, and the picture belongs to it
    "upsBMobj": ContentKind(
        1024, Attached("chart-{}.bmp", "image/bmp", 4, "inline", 'multipart/related; type="text/plain"')
    ),
    "upsWDatt": ContentKind(1024, Attached("paper-{}.docx", _DOCUMENT, 4)),
    "upsXLatt": ContentKind(1024, Attached("sheet-{}.xlsx", _SHEET, 4)),
    # no mail client displays a sheet within the text: inline marks its place, mixed keeps it accessible
    "upsXLobj": ContentKind(1024, Attached("object-{}.xlsx", _SHEET, 4, "inline")),
}
"""LoadSim's message files by name."""


ENCODED = ("base64", "quoted-printable")
"""The transfer encodings that change bytes, unlike 7bit, 8bit and binary (RFC 2045 section 6.2)."""


def encoded(encoding: str) -> str:
    """Return a transfer encoding from `ENCODED` in lower case; "" for others."""
    return encoding.lower() if encoding.lower() in ENCODED else ""


@dataclass(frozen=True, slots=True)
class Entity:
    """A MIME entity: its header lines, which end in CRLF, and its encoded body."""

    header: bytes
    body: bytes | bytearray

    @property
    def encoded(self) -> str:
        return next((name for name in ENCODED if f"Encoding: {name}".encode() in self.header), "")


@dataclass(frozen=True, slots=True)
class Content:
    """A message from its Content-Type on: header lines, the pieces of the body, and the body's digest."""

    header: bytes
    pieces: tuple[bytes | bytearray, ...]
    digest: str


class Pool:
    """The texts and attachments for one seed, made on first use and then kept."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._digests: dict[tuple[str, int], str] = {}
        self.plain = cache(self._plain)
        self.text = cache(self._text)
        self.file = cache(self._file)

    def prepare(self, answers: dict[str, int], answer_bytes: int) -> None:
        """Make all texts and files; `answers` has the number of texts for each style other than new."""
        for size_bytes, texts in TEXTS.items():
            for variant in range(texts):
                self.plain("new", size_bytes, variant)
        for style, texts in answers.items():
            for variant in range(texts):
                self.plain(style, answer_bytes, variant)
        for name, kind in KINDS.items():
            for variant in range(kind.attached.variants if kind.attached else 0):
                self.file(name, variant)

    def new(self, kind: str, u: float) -> Content:
        """Return the content of a new message; `u` in [0, 1) determines the text and the attachment."""
        spec = KINDS[kind]
        texts = TEXTS[spec.text_bytes]
        if spec.attached is None:
            return self.plain("new", spec.text_bytes, pick(u, texts))
        choice = pick(u, texts * spec.attached.variants)
        known = self._digests.get((kind, choice))
        content = enclose(spec.attached.within, f"{kind}_{choice:04}", *self.parts(kind, u), known)
        if known is None:
            self._digests[kind, choice] = content.digest
        return content

    def parts(self, kind: str, u: float) -> tuple[Entity, Entity]:
        """Return the text and the file of a new message; its kind must have both."""
        spec = KINDS[kind]
        assert spec.attached is not None
        texts = TEXTS[spec.text_bytes]
        at_file, at_text = divmod(pick(u, texts * spec.attached.variants), texts)
        return self.text("new", spec.text_bytes, at_text), self.file(kind, at_file)

    def _plain(self, style: str, size_bytes: int, variant: int) -> Content:
        text = self.text(style, size_bytes, variant)
        return Content(text.header, (text.body,), body_digest(text.body))

    def _text(self, style: str, size_bytes: int, variant: int) -> Entity:
        """Return a text of exactly this decoded size, including CRLF, in one of the styles of `prose.text`."""
        foreign = variant % _FOREIGN_EVERY == _FOREIGN_EVERY - 1
        body = self.prose(style, variant, size_bytes, foreign)
        return Entity(text_header(foreign), quoted_printable(body) if foreign else body)

    def prose(self, style: str, variant: int, size_bytes: int, foreign: bool = False) -> bytes:
        """Return the text from `prose.text`; planning overrides this."""
        return prose.text(self._seed, style, variant, size_bytes, foreign)

    def _file(self, kind: str, variant: int) -> Entity:
        spec = KINDS[kind].attached
        assert spec is not None
        name = spec.filename.format(variant + 1)
        made = spec.made_bytes
        content = self.prose("notes", variant, made) if made else (DATA / name).read_bytes()
        return file_entity(spec, name, content)


def text_header(foreign: bool) -> bytes:
    """Return the header of a text: ASCII, or `foreign` in quoted-printable UTF-8."""
    charset, encoding = ("utf-8", "quoted-printable") if foreign else ("us-ascii", "7bit")
    return f"Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n".encode()


def file_entity(spec: Attached, name: str, content: bytes) -> Entity:
    """Return the MIME entity of a file, in base64."""
    lines = f"Content-Type: {spec.content_type}\r\nContent-Transfer-Encoding: base64\r\n"
    lines += headers.disposition(spec.disposition, name)
    if spec.disposition == "inline":
        lines += f"Content-ID: <{blake2b(content, digest_size=10).hexdigest()}@loadsim.invalid>\r\n"
    return Entity(lines.encode(), base64_lines(content))


def base64_lines(content: bytes) -> bytes:
    """Encode as in RFC 2045 section 6.8: lines of 76 characters, with CRLF between them and none after the last."""
    return encodebytes(content)[:-1].replace(b"\n", b"\r\n")


def encoded_bytes(size_bytes: int) -> int:
    """Return the base64 size of a file of this size."""
    encoded = -(-size_bytes // 3) * 4
    return encoded + max(0, encoded - 1) // 76 * len("\r\n")


def enclose(within: str, mark: str, text: Entity, file: Entity, digest: str | None = None) -> Content:
    """Return a multipart of a text and a file (RFC 2046 section 5.1), with `mark` in the boundary.

    The boundary contains "=_", which neither base64 nor quoted-printable can contain. `digest` is the body's, if known.
    """
    boundary = BOUNDARY + mark
    delimiter = f"\r\n--{boundary}".encode()
    pieces = (
        delimiter[2:] + b"\r\n" + text.header + b"\r\n",
        text.body,
        delimiter + b"\r\n" + file.header + b"\r\n",
        file.body,
        delimiter + b"--\r\n",
    )
    header = f'Content-Type: {within};\r\n boundary="{boundary}"\r\n'.encode()
    return Content(header, pieces, digest or body_digest(b"".join(pieces)))


@lru_cache(maxsize=256)  # quoted-printable takes 1 ms per KB, and many messages share a text
def encoded_text(text: str) -> bytes:
    """Return text as loadsim encodes it: ASCII unchanged, everything else in quoted-printable UTF-8."""
    return text.encode() if text.isascii() else quoted_printable(text.encode())


def quoted_printable(text: bytes) -> bytes:
    """Encode as in RFC 2045 section 6.7: lines of at most 76 characters. No line of `text` may end in blank space."""
    lines = []
    for line in text.split(b"\r\n"):
        pieces, used = [], 0
        for byte in line:
            piece = f"={byte:02X}" if byte == 0x3D or not 0x20 <= byte < 0x7F else chr(byte)
            if used + len(piece) > 75:
                pieces.append("=\r\n")
                used = 0
            pieces.append(piece)
            used += len(piece)
        lines.append("".join(pieces))
    return "\r\n".join(lines).encode()
