"""Fetching messages to look at them, each compared with what must be there."""

from __future__ import annotations

from functools import partial

from loadsim.errors import BareLineFeeds, MailMissing
from loadsim.model.content.compose import least_bytes
from loadsim.model.ports import Header, Part, Structure
from loadsim.users.mail import UserMail
from loadsim.users.stored_mail import DECODED

HEAD_BYTES = 1024
"""Servers may overstate a text's size by this much: some count the message's header."""


async def show_message(user: UserMail, header: Header) -> Structure:
    """Fetch a message's structure and text. If it is incomplete, record that and raise `MailMissing`."""
    with user.must_be_whole(header):
        structure = await user.source(header).structure(header.ref)
        text_bytes, file_bytes = least_bytes(header.tag)
        if structure.text is None or (file_bytes and not structure.attachments):
            raise MailMissing("message without its parts")
        await show_part(user, header, structure.text, text_bytes, structure)
    return structure


async def show_part(
    user: UserMail, header: Header, part: Part, least: int, text_of: Structure | None = None
) -> bytes | bytearray:
    """Fetch a file, or a structure's text, of at least this size; record a smaller one, and raise `MailMissing`."""
    with user.must_be_whole(header):
        data = await user.source(header).part(header.ref, part)
        stated = 0 if least else (part.size_bytes - HEAD_BYTES) * DECODED
        wanted = max(least - len("\r\n"), stated)  # the last CRLF may be missing
        if len(data) < wanted or (part.size_bytes and not data):
            if data and len(data) + data.count(b"\n") - data.count(b"\r\n") >= wanted:
                raise BareLineFeeds("FETCH with bare line feeds", f"{len(data)} bytes")
            raise MailMissing("FETCH of a truncated part", f"{len(data)} bytes")
    if tag := header.tag:
        alone = text_of is not None and not text_of.attachments
        is_altered = partial(user.contents.is_altered, tag, part, data, text_of is not None, alone)
        user.shown.append((tag, user.stored.place(header), is_altered))
    return data
