"""The body of a message of loadsim as it was composed, from its text and files: MAPI keeps no MIME.

So the digest in its tag can be checked. All that no property holds follows from the tag and the mark in the boundary,
which stands behind the tag in its property.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from loadsim.model.content.compose import Attachment, forwarded
from loadsim.model.content.sized import FILE_HEADER, MARK
from loadsim.model.content.templates import KINDS, Entity, base64_lines, enclose, file_entity, text_header
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import Part
from loadsim.protocols.mapi.composition import encoded_text

_MARK = re.compile(r"; mark=([\w.+-]{1,40})\Z")


def whole_body(evidence: str, tag: MessageTag, text: str, files: Sequence[tuple[Part, bytes]]) -> bytes | None:
    """Return the body; None for one that loadsim does not compose. Some servers drop the text's last line end."""
    if not files:
        return encoded_text(text)
    found = _MARK.search(evidence)
    if found is None or len(files) > 1:
        return None
    mark, (part, content) = found[1], files[0]
    kind = KINDS.get(mark.rpartition("_")[0])
    if mark == MARK:
        file = Entity(FILE_HEADER, base64_lines(content))
    elif kind is not None and kind.attached is not None:
        file = file_entity(kind.attached, part.filename or "", content)
    elif mark == tag.id:
        file = forwarded(Attachment.of(part, base64_lines(content)))
    else:
        return None
    lines = text if text.endswith("\r\n") else text + "\r\n"
    shown = Entity(text_header(foreign=not lines.isascii()), encoded_text(lines))
    return b"".join(enclose("", mark, shown, file, "-").pieces)
