"""Lists of headers as mail programs fetch them, with or without a header cache per folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadsim.errors import ServerRefused
from loadsim.model.ports import INBOX, Flag, Header, flags_among
from loadsim.protocols.imap.commands import number_sets
from loadsim.protocols.imap.connection import RESPONSES_A_TURN
from loadsim.protocols.imap.connection_port import ImapConnection
from loadsim.protocols.imap.requests import Requests
from loadsim.protocols.imap.responses import Fetched, Response
from loadsim.protocols.imap.session import ImapSession


class Ref(NamedTuple):
    """A message. Its UID is meaningful only with its folder's UIDVALIDITY (RFC 9051 section 2.3.1.1)."""

    folder: str
    validity: int
    uid: int


@dataclass(slots=True)
class HeaderCache:
    """Headers by folder and UID, valid until the folder's UIDVALIDITY changes."""

    _folders: dict[str, tuple[int, dict[int, Header]]] = field(default_factory=dict)

    def of(self, folder: str, validity: int) -> dict[int, Header]:
        """Return a folder's headers by UID; none if its UIDVALIDITY has changed."""
        known, headers = self._folders.get(folder, (validity, {}))
        if known != validity or folder not in self._folders:
            headers = {}
            self._folders[folder] = (validity, headers)
        return headers

    def compared(self, folder: str, validity: int, flags: Mapping[int, frozenset[Flag]]) -> dict[int, Header]:
        """Update a folder's headers from all messages' flags; drop those without a message. Return the rest by UID."""
        headers = self.of(folder, validity)
        for uid, header in list(headers.items()):
            if uid not in flags:
                del headers[uid]
            elif flags[uid] != header.flags:
                headers[uid] = header._replace(flags=flags[uid])
        return headers


@dataclass(frozen=True, slots=True, eq=False)
class HeaderLists:
    """Fetches lists of headers from the open folder, which is not empty."""

    session: ImapSession
    requests: Requests
    cache: HeaderCache | None

    async def newest(self, connection: ImapConnection, folder: str, newest: int | None) -> Sequence[Header]:
        """FETCH of the last sequence numbers (RFC 9051 section 6.4.5), or of flags and the headers not in the cache."""
        if self.cache is not None:
            return await self._compared(connection, folder, newest)
        first = max(1, self.session.count - newest + 1) if newest is not None else 1
        # Up to "*": the folder may have shrunk, and a number beyond its end would be an error.
        by_uid = await self._headers(connection, folder, "FETCH", b"%d:*" % first)
        if not by_uid and self.session.count:
            raise ServerRefused("FETCH without data", f"none of {self.session.count} messages of {folder}")
        if folder == INBOX and by_uid:
            self.session.arrivals.listed(next(reversed(by_uid)))
        headers = list(by_uid.values())
        return headers if newest is None else headers[-newest:]

    async def these(self, connection: ImapConnection, folder: str, uids: Sequence[int]) -> Sequence[Header]:
        """UID FETCH of these messages' headers, unless they are in the cache (RFC 9051 section 6.4.9)."""
        by_uid: dict[int, Header] = {}
        if self.cache is not None:
            by_uid = self.cache.of(folder, self.session.validity[folder])
        await self._fill(connection, folder, by_uid, uids)
        return [by_uid[uid] for uid in uids if uid in by_uid]

    async def all_flags(self, connection: ImapConnection, folder: str) -> dict[int, frozenset[Flag]]:
        """FETCH of all flags, with which a program with a cache begins. Return them by UID, in ascending order."""
        flags = await self._flags(connection, b"1:*")
        if not flags and self.session.count:
            raise ServerRefused("FETCH without data", f"none of {self.session.count} messages of {folder}")
        return flags

    async def batches(self, folder: str, uids: list[int], size: int) -> AsyncGenerator[Sequence[Header], None]:
        """UID FETCH of these messages' headers, `size` at a time from the end; the cache keeps none.

        Between batches, other calls may open other folders.
        """
        validity = self.session.validity[folder]
        while uids:
            by_uid: dict[int, Header] = {}
            with self.session as connection:
                await self.session.select(connection, folder, announce=False)
                if self.session.validity[folder] != validity:
                    raise ServerRefused("UIDVALIDITY changed", folder)
                for numbers in number_sets(uids[-size:]):
                    by_uid |= await self._headers(connection, folder, "UID FETCH", numbers)
            yield [by_uid[uid] for uid in sorted(by_uid, reverse=True)]
            del uids[-size:]

    async def arrived(self, connection: ImapConnection, reopen: bool) -> Sequence[Header]:
        """UID FETCH of Inbox messages not listed yet or, with `reopen`, not there at first (RFC 9051 6.4.9)."""
        arrivals = self.session.arrivals
        first = arrivals.first_uid if reopen else arrivals.next_uid
        if self.cache is not None:
            by_uid = await self._new(connection, first)
        else:
            by_uid = await self._headers(connection, INBOX, "UID FETCH", b"%d:*" % first)
        # "n:*" means "*:n" if n lies beyond the end, so it always includes the last message.
        for uid in [uid for uid in by_uid if uid < first]:
            del by_uid[uid]
        if by_uid:
            arrivals.listed(next(reversed(by_uid)))
        return list(by_uid.values())

    async def _headers(
        self, connection: ImapConnection, folder: str, command: str, numbers: bytes
    ) -> dict[int, Header]:
        """Fetch headers. Return them by UID, in ascending order."""
        answer = await connection.send(command, numbers, self.requests.listing(self.session.offered))
        validity, domain, read = self.session.validity[folder], self.session.account.domain, self.requests.read
        headers: dict[int, Header] = {}
        last_uid, ascending = 0, True
        async for portion in portions(answer.data):
            for fetched in portion:
                if isinstance(fetched, Fetched) and fetched.uid is not None:
                    header = read(fetched, Ref(folder, validity, fetched.uid), domain)
                    if header is not None:
                        headers[fetched.uid] = header
                        ascending = ascending and fetched.uid >= last_uid
                        last_uid = fetched.uid
        return headers if ascending else dict(sorted(headers.items()))

    async def _compared(self, connection: ImapConnection, folder: str, newest: int | None) -> Sequence[Header]:
        """Update the cache from the open folder, and fetch the missing headers of the `newest` messages."""
        assert self.cache is not None
        flags = await self.all_flags(connection, folder)
        cached = self.cache.compared(folder, self.session.validity[folder], flags)
        uids = list(flags) if newest is None else list(flags)[-newest:]
        await self._fill(connection, folder, cached, uids)
        headers = [cached[uid] for uid in uids if uid in cached]
        if folder == INBOX and headers:
            self.session.arrivals.listed(max(uid for uid in uids if uid in cached))
        return headers

    async def _new(self, connection: ImapConnection, first: int) -> dict[int, Header]:
        """Fetch the flags, and then missing headers, of the Inbox's messages from UID `first` on."""
        assert self.cache is not None
        cached = self.cache.of(INBOX, self.session.validity[INBOX])
        uids = [uid for uid in await self._flags(connection, b"%d:*" % first, by_uid=True) if uid >= first]
        await self._fill(connection, INBOX, cached, uids)
        return {uid: cached[uid] for uid in uids if uid in cached}

    async def _fill(
        self, connection: ImapConnection, folder: str, cached: dict[int, Header], uids: Sequence[int]
    ) -> None:
        for numbers in number_sets([uid for uid in uids if uid not in cached]):
            cached |= await self._headers(connection, folder, "UID FETCH", numbers)

    async def _flags(
        self, connection: ImapConnection, numbers: bytes, by_uid: bool = False
    ) -> dict[int, frozenset[Flag]]:
        items = self.requests.flags
        assert items is not None
        by_number = b"UID" in items and not by_uid
        answer = await connection.send("FETCH" if by_number else "UID FETCH", numbers, items)
        flags: dict[int, frozenset[Flag]] = {}
        async for portion in portions(answer.data):
            for fetched in portion:
                if isinstance(fetched, Fetched) and fetched.uid is not None and fetched.flags is not None:
                    flags[fetched.uid] = flags_among(fetched.flags)
        return dict(sorted(flags.items()))


async def portions(data: list[Response]) -> AsyncIterator[list[Response]]:
    """Yield an answer's responses in order, in portions, leaving the loop a turn for other work in between.

    The list is emptied on the way, as freeing a hundred thousand responses at once would also take long.
    """
    data.reverse()
    while data:
        portion = data[: -RESPONSES_A_TURN - 1 : -1]
        del data[-RESPONSES_A_TURN:]
        yield portion
        if data:
            await asyncio.sleep(0)
