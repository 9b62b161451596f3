"""A proxy in front of an IMAP server that sends the data of each message in several FETCH responses, as some do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress

from hiding_proxy import HidingProxy

from loadsim.model.ports import Services

_FETCH = re.compile(rb"(\* \d+ FETCH )\((.*)\)\r\n", re.DOTALL)
_LITERAL = re.compile(rb"\{(\d+)\}\r\n")
_UID = re.compile(rb"UID \d+")


class SplittingProxy(HidingProxy):
    """Sends each item of a FETCH response in a response of its own, with the UID; `split` counts the responses."""

    def __init__(self, services: Services) -> None:
        super().__init__(services, [])
        self.split = 0

    async def _responses(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while response := await server.readuntil(b"\r\n"):
                while (literal := re.search(_LITERAL.pattern + rb"\Z", response)) is not None:
                    response += await server.readexactly(int(literal[1]))
                    response += await server.readuntil(b"\r\n")
                fetch = _FETCH.fullmatch(response)
                client.write(response if fetch is None else b"".join(self._pieces(fetch[1], fetch[2])))
                await client.drain()
        client.transport.close()

    def _pieces(self, begin: bytes, items: bytes) -> Iterator[bytes]:
        words = list(_words(items))
        named = [b" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)]
        uids = [item for item in named if _UID.fullmatch(item)]
        self.split += len(named) > 1 + len(uids)
        for item in [each for each in named if each not in uids] or [b""]:
            yield begin + b"(" + b" ".join(filter(None, (*uids, item))) + b")\r\n"


def _words(items: bytes) -> Iterator[bytes]:
    """Yield the names and values of items: words, strings, literals, and lists in parentheses or brackets."""
    begin = at = depth = 0
    while at < len(items):
        letter = items[at : at + 1]
        if letter == b'"':
            at = next(re.compile(rb'(?:[^"\\]|\\.)*+"', re.DOTALL).finditer(items, at + 1)).end()
            continue
        if (literal := _LITERAL.match(items, at)) is not None:
            at = literal.end() + int(literal[1])
            continue
        depth += (letter in b"([") - (letter in b")]")
        if letter == b" " and not depth:
            yield items[begin:at]
            begin = at + 1
        at += 1
    yield items[begin:]
