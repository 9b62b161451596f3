"""The body of a message of loadsim as it was composed, from its text and files: MAPI keeps no MIME.

So the digest in its tag can be checked. All that no property holds follows from the tag and the mark in the boundary,
which stands behind the tag in its property.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from loadsim.model.content.compose import Attachment, forwarded
from loadsim.model.content.sized import FILE_HEADER, MARK
from loadsim.model.content.templates import (
    KINDS,
    Entity,
    base64_lines,
    enclose,
    file_entity,
    quoted_printable,
    text_header,
)
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import Part
from loadsim.protocols.mapi.composition import encoded_text

_MARK = re.compile(r"; mark=([\w.+-]{1,40})\Z")


def whole_body(evidence: str, tag: MessageTag, text: str, files: Sequence[tuple[Part, bytes]]) -> bytes | None:
    """Return the body; None for one that loadsim does not compose. Some servers drop the text's last line end.

    Of two transfer encodings of an ASCII text, that with the digest of the tag is taken.
    """
    file = _file(evidence, tag, files)
    if files and file is None:
        return None
    lines = text if text.endswith("\r\n") else text + "\r\n"
    plain = _body(evidence, Entity(text_header(foreign=not lines.isascii()), encoded_text(lines)), file)
    if body_digest(plain) == tag.body:
        return plain
    other = _body(evidence, Entity(text_header(foreign=True), quoted_printable(lines.encode())), file)
    return other if body_digest(other) == tag.body else plain


def _body(evidence: str, text: Entity, file: Entity | None) -> bytes:
    if file is None:
        return bytes(text.body)
    found = _MARK.search(evidence)
    assert found is not None
    return b"".join(enclose("", found[1], text, file, "-").pieces)


def _file(evidence: str, tag: MessageTag, files: Sequence[tuple[Part, bytes]]) -> Entity | None:
    """Return the file of a message with the MIME fields that it had."""
    found = _MARK.search(evidence)
    if found is None or len(files) != 1:
        return None
    mark, (part, content) = found[1], files[0]
    kind = KINDS.get(mark.rpartition("_")[0])
    if mark == MARK:
        return Entity(FILE_HEADER, base64_lines(content))
    if kind is not None and kind.attached is not None:
        return file_entity(kind.attached, part.filename or "", content)
    return forwarded(Attachment.of(part, base64_lines(content))) if mark == tag.id else None
