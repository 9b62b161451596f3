"""A POP3 server with a script: what it answers to each command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from skipping import turns

from loadsim.model.ports import Endpoint

MAIL = (
    b"From: user2@sim.test\r\nTo: user1@sim.test\r\nSubject: dots\r\nMessage-ID: <1@sim.test>\r\n\r\n"
    b".\r\n..\r\nlast\r\n"
)
"""A message whose lines begin with dots."""

STUFFED = MAIL.replace(b"\r\n.", b"\r\n..")
HEADER = MAIL[: MAIL.index(b"\r\n\r\n") + 4]

USUAL = {
    "CONNECT": b"+OK ready\r\n",
    "CAPA": b"+OK\r\nTOP\r\nUSER\r\nUIDL\r\n.\r\n",
    "USER": b"+OK\r\n",
    "PASS": b"+OK logged on\r\n",
    "UIDL": b"+OK\r\n1 one\r\n2 two\r\n.\r\n",
    "LIST": b"+OK 2 messages\r\n1 %d\r\n2 %d\r\n.\r\n" % (len(MAIL), len(MAIL)),
    "TOP": b"+OK\r\n" + HEADER + b".\r\n",
    "RETR": b"+OK %d octets\r\n" % len(MAIL) + STUFFED + b".\r\n",
    "DELE": b"+OK\r\n",
    "QUIT": b"+OK bye\r\n",
}
"""Answers of a server with two equal messages."""

Answer = bytes | list[bytes] | None


@dataclass
class Pop3Peer:
    """Answers by command: bytes, b"" for silence, None for the end; or a list, from which each use takes the first."""

    answers: dict[str, Answer]
    asked: list[str] = field(default_factory=list)
    endpoint: Endpoint = field(init=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Pop3Peer]:
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with contextlib.suppress(OSError):
                command = "CONNECT"
                while (answer := self._answer(command)) is not None:
                    writer.write(answer)
                    line = await reader.readline()
                    if not line:
                        break
                    command = line.decode().strip()
                    self.asked.append(command)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            server.close()
            for writer in writers:
                writer.transport.abort()
            await server.wait_closed()
            await turns()

    def _answer(self, command: str) -> bytes | None:
        answer = (USUAL | self.answers).get(command.split(" ")[0], b"-ERR unknown command\r\n")
        return answer.pop(0) if isinstance(answer, list) else answer


def peer(**answers: Answer) -> Pop3Peer:
    return Pop3Peer(answers)
