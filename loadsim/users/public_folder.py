"""The public folder in a user's mailbox (RFC 2342 section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.model.ports import INBOX, PUBLIC, Header, Mailbox, MessageRef, Part, Structure


@dataclass(frozen=True, slots=True)
class FolderInMailbox:
    """Implements `ports.PublicFolder`."""

    mailbox: Mailbox
    is_apart: bool = False

    async def newest(self, count: int) -> Sequence[Header]:
        return await self.mailbox.headers(PUBLIC, count)

    async def with_tag(self, header: Header) -> Header:
        return header

    async def structure(self, ref: MessageRef) -> Structure:
        return await self.mailbox.structure(ref)

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return await self.mailbox.part(ref, part)

    async def post(self, message: bytes) -> None:
        await self.mailbox.append(PUBLIC, message)

    async def leave(self) -> None:
        await self.mailbox.open(INBOX)

    async def close(self) -> None:
        pass
