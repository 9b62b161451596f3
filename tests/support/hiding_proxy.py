"""A proxy in front of an IMAP server that hides extensions: their capabilities, commands, codes and attributes."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from loadsim.model.ports import Endpoint, Services


class Extension(NamedTuple):
    """The parts of an extension; `commands` match the begin of a command behind its tag, `inside` any part of it."""

    capabilities: tuple[bytes, ...]
    commands: bytes | None = None
    inside: bytes | None = None
    codes: tuple[bytes, ...] = ()
    attributes: tuple[bytes, ...] = ()


EXTENSIONS: Mapping[str, Extension] = {
    "MOVE": Extension((b"MOVE",), rb"(?:UID )?MOVE\b"),
    "UIDPLUS": Extension((b"UIDPLUS",), rb"UID EXPUNGE\b", codes=(b"APPENDUID", b"COPYUID", b"UIDNOTSTICKY")),
    "LITERAL+": Extension((b"LITERAL+", b"LITERAL-"), None, rb"\{\d+\+\}\r\n"),
    "IDLE": Extension((b"IDLE",), rb"IDLE\b"),
    "SPECIAL-USE": Extension(
        (b"SPECIAL-USE",),
        None,
        rb"\(SPECIAL-USE\)",
        attributes=tuple(rb"\%b" % use for use in (b"All", b"Archive", b"Drafts", b"Junk", b"Sent", b"Trash")),
    ),
    "NAMESPACE": Extension((b"NAMESPACE",), rb"NAMESPACE\b"),
    "UNSELECT": Extension((b"UNSELECT",), rb"UNSELECT\b"),
    "LIST-STATUS": Extension((b"LIST-STATUS",), None, rb"RETURN \([^\r]*STATUS "),
    "CONDSTORE": Extension(
        (b"CONDSTORE", b"QRESYNC"),
        rb"ENABLE\b",
        rb"(?i)HIGHESTMODSEQ|\(CONDSTORE\)|CHANGEDSINCE|UNCHANGEDSINCE|MODSEQ",
        codes=(b"HIGHESTMODSEQ", b"NOMODSEQ", b"MODIFIED"),
    ),
    "MULTIAPPEND": Extension((b"MULTIAPPEND",), None, rb"^\S+ APPEND .*\{\d+\+?\}\r\n.*\{\d+\+?\}\r\n"),
}
"""The extensions that the proxy can hide, by name."""

_LITERAL = re.compile(rb"\{(\d+)(\+?)\}\r\n\Z")


class HidingProxy:
    """Hides these extensions; `refused` has the begins of the commands that a client sent in spite of that.

    `passed` has the begins of all other commands, without their tags, in the order in which they arrived.
    """

    def __init__(self, services: Services, hidden: Iterable[str]) -> None:
        self._services = services
        self._hidden = [EXTENSIONS[name] for name in hidden]
        self._capabilities = {each for extension in self._hidden for each in extension.capabilities}
        self._codes = _alternatives(each for extension in self._hidden for each in extension.codes)
        self._attributes = _alternatives(each for extension in self._hidden for each in extension.attributes)
        self._connections: set[asyncio.Task[None]] = set()
        self.refused: list[bytes] = []
        self.passed: list[bytes] = []

    @contextmanager
    def running(self) -> Iterator[Services]:
        """Run in a thread; yield the services, with IMAP through the proxy."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        def in_loop(work: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        server = in_loop(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20))
        port = server.sockets[0].getsockname()[1]
        try:
            yield replace(self._services, imap=Endpoint("127.0.0.1", port))
        finally:
            in_loop(self._stop(server))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await server.wait_closed()
        for _ in range(3):  # aborted transports take a turn to close
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        onward = None
        try:
            imap = self._services.imap
            server, onward = await asyncio.open_connection(imap.host, imap.port, limit=1 << 20)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._commands(reader, writer, onward))
                both.create_task(self._responses(server, writer))
        finally:
            self._connections.discard(task)
            for each in (writer, onward):
                if each is not None:
                    each.transport.abort()

    async def _commands(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, onward: asyncio.StreamWriter
    ) -> None:
        """Pass commands on, each once it is whole; those of hidden extensions are answered with BAD."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                lines, literals = await _whole_command(reader, client)
                if self._is_hidden(b"".join(lines)):
                    self.refused.append(lines[0][:80])
                    client.write(lines[0].split(b" ")[0] + b" BAD unknown command\r\n")
                    continue
                self.passed.append(lines[0].partition(b" ")[2][:80].strip())
                for line, literal in zip(lines, [*literals, b""], strict=True):
                    # The server, unlike the client, gets each literal without a wait (RFC 7888).
                    onward.write(_LITERAL.sub(rb"{\1+}\r\n", line) + literal)
                await onward.drain()
        onward.transport.close()

    def _is_hidden(self, command: bytes) -> bool:
        _, _, rest = command.partition(b" ")
        return any(
            (each.commands is not None and re.match(each.commands, rest, re.IGNORECASE))
            or (each.inside is not None and re.search(each.inside, command, re.IGNORECASE | re.DOTALL))
            for each in self._hidden
        )

    async def _responses(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass responses on, without what hidden extensions add to them."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            begins = True
            while line := await server.readuntil(b"\r\n"):
                client.write(self._visible(line) if begins else line)
                literal = _LITERAL.search(line)
                if literal is not None:
                    client.write(await server.readexactly(int(literal[1])))
                begins = literal is None
                await client.drain()
        client.transport.close()

    def _visible(self, line: bytes) -> bytes:
        if self._codes is not None:
            line = re.sub(rb"\[(?:%b)(?: [^\]]*)?\] ?" % self._codes, b"", line)
        if self._attributes is not None and line.startswith((b"* LIST (", b"* LSUB (")):
            flags, bracket, rest = line.partition(b")")
            line = re.sub(rb" ?(?:%b)\b" % self._attributes, b"", flags).replace(b"( ", b"(") + bracket + rest
        return re.sub(rb"(?:^\* |\[)CAPABILITY [^\]\r]*", self._without_capabilities, line)

    def _without_capabilities(self, found: re.Match[bytes]) -> bytes:
        return b" ".join(word for word in found[0].split(b" ") if word not in self._capabilities)


def _alternatives(words: Iterable[bytes]) -> bytes | None:
    return b"|".join(map(re.escape, words)) or None


async def _whole_command(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> tuple[list[bytes], list[bytes]]:
    """Read a command's lines, and the literals between them; the client is asked for those that it would wait with."""
    lines, literals = [await reader.readuntil(b"\r\n")], []
    while (literal := _LITERAL.search(lines[-1])) is not None:
        if not literal[2]:
            client.write(b"+ go ahead\r\n")
        literals.append(await reader.readexactly(int(literal[1])))
        lines.append(await reader.readuntil(b"\r\n"))
    return lines, literals
