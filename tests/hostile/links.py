"""One connection in the middle: it forwards, finds commands and their answers, and lets a fault act on them."""

import asyncio
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from .acts import Act, Fault, Over, Strike
from .loop import Client
from .server import LONGEST_LINE

_COMMAND = re.compile(rb"(\S+) (?:UID )?([A-Za-z]+)")
_LITERAL = re.compile(rb"\{(\d+)(\+?)\}\r\n\Z")
_TAGGED = re.compile(rb"(\S+) (?:OK|NO|BAD)\b")

Ended = (Over, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, ssl.SSLError)
"""Ways in which one side of a connection ends; `ValueError` is a line that is too long."""


class Leaked(Exception):
    """A client that has to use STARTTLS authenticated in the clear."""


class Link(ABC):
    """One client's connection to the server, with a fault that may strike while `active()`."""

    def __init__(
        self,
        client: Client,
        server: socket.socket,
        fault: Fault | None,
        active: Callable[[], bool],
        tls: ssl.SSLContext,
    ) -> None:
        self._client_socket = client
        self._server_socket = server
        self._fault = fault
        self._active = active
        self._tls = tls
        self.struck = 0
        self._secured = fault is None or not fault.tls

    async def run(self, near: socket.socket) -> None:
        """Forward in both directions until one side or the fault ends it; `near` is our end of the client's pair."""
        self._loop = asyncio.get_running_loop()
        self.client = asyncio.StreamReader(LONGEST_LINE)
        # The writer of a callback is a server's: only that one's `start_tls` takes the server's part.
        connected: asyncio.Future[asyncio.StreamWriter] = self._loop.create_future()
        protocol = asyncio.StreamReaderProtocol(self.client, lambda _, writer: connected.set_result(writer))
        await self._loop.connect_accepted_socket(lambda: protocol, near)
        self.to_client = await connected
        self.server, self.to_server = await asyncio.open_connection(sock=self._server_socket, limit=LONGEST_LINE)
        pumps = {self._loop.create_task(pump()) for pump in (self._commands, self._answers)}
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                with suppress(*Ended):
                    pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.to_client.close()
            self.to_server.close()

    async def send(self, data: bytes) -> None:
        """Send the client this; wait until it takes more."""
        if data:
            self.to_client.write(data)
            await self.to_client.drain()
        if self.to_client.is_closing():
            raise Over

    async def change(self, answer: bytes, changed: bytes) -> None:
        """Send the answer as it was changed; one that was not changed does not count as struck."""
        self.struck -= answer == changed
        await self.send(changed)

    def reset(self) -> None:
        """Let the client see a reset."""
        self._client_socket.broken = True
        self.to_client.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed; `_commands` reads what it sends meanwhile, and sees the end."""
        await self._loop.create_future()

    def _strike(self, name: str) -> Strike | None:
        if self._fault is None or not self._active():
            return None
        return next((strike for strike in self._fault.strikes if name in strike.at.split("|")), None)

    async def _answered(self, name: str, answer: bytes, tag: bytes = b"") -> None:
        strike = self._strike(name)
        act: Act | None = None if strike is None else strike.act
        if act is None:
            await self.send(answer)
        else:
            self.struck += 1
            await act(self, answer, tag)

    async def _secure(self) -> None:
        """Take the server's part in a TLS handshake; the server behind us stays in the clear."""
        await self.to_client.start_tls(self._tls)
        self._secured = True

    def _check_secured(self, name: str) -> None:
        if name == "AUTH" and not self._secured:
            raise Leaked

    @abstractmethod
    async def _commands(self) -> None:
        """Forward what the client sends."""

    @abstractmethod
    async def _answers(self) -> None:
        """Forward what the server sends."""


class ImapLink(Link):
    """IMAP: commands by their tags; AUTHENTICATE and LOGIN are both `AUTH`.

    The end of an IDLE is `DONE`, and what comes in it, `IDLING`.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._pending: deque[tuple[bytes, str]] = deque([(b"*", "GREETING")])
        self._idle = b""

    async def _commands(self) -> None:
        while line := await self.client.readline():
            found = _COMMAND.match(line)
            if line == b"DONE\r\n":
                self._pending.appendleft((self._idle, "DONE"))
            elif found is not None:
                tag, name = found[1], found[2].decode().upper()
                name = "AUTH" if name in ("AUTHENTICATE", "LOGIN") else name
                self._check_secured(name)
                if name == "STARTTLS":
                    await self._answered(name, tag + b" OK begin\r\n", tag)
                    await self._secure()
                    continue
                literal = _LITERAL.search(line)
                strike = self._strike(f"{name} LITERAL") if literal and not literal[2] else None
                if strike is not None:
                    await self._answered(f"{name} LITERAL", b"+ go on\r\n", tag)
                    continue
                self._pending.append((tag, name))
            self.to_server.write(line)
            while literal := _LITERAL.search(line):
                await self.to_server.drain()
                self.to_server.write(await self.client.readexactly(int(literal[1])))
                line = await self.client.readline()
                self.to_server.write(line)
            await self.to_server.drain()

    async def _answers(self) -> None:
        held = b""
        while response := await self._response():
            tag, name = self._pending[0] if self._pending else (b"", "")
            tagged = _TAGGED.match(response)
            if name == "GREETING" or (tagged and tagged[1] == tag):
                self._pending.popleft()
                await self._answered(name, held + response, tag)
                held = b""
            elif response.startswith(b"+") and name == "IDLE":
                self._pending.popleft()
                self._idle = tag
                await self._answered(name, held + response, tag)
                held = b""
            elif name and not response.startswith(b"+") and self._strike(name) is not None:
                held += response
            elif name:
                await self.send(held + response)
                held = b""
            else:
                await self._answered("IDLING", held + response)
                held = b""

    async def _response(self) -> bytes:
        """One whole response, without the capabilities that the fault hides."""
        response = b""
        while line := await self.server.readline():
            response += line
            literal = _LITERAL.search(line)
            if literal is None:
                break
            response += await self.server.readexactly(int(literal[1]))
        if self._fault is not None and b"CAPABILITY" in response:
            for hidden in self._fault.hides:
                response = response.replace(b" " + hidden, b"")
            if self._fault.tls:
                response = response.replace(b"IMAP4rev1", b"IMAP4rev1 STARTTLS")
        return response


class SmtpLink(Link):
    """SMTP: replies in the order of the commands; `.` is the end of a message.

    When a strike `takes` a command, the server behind us is left: later commands get the usual replies from here.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._pending: deque[str] = deque(["GREETING"])
        self._challenged = False
        self._turn = asyncio.Event()  # a reply was dealt with
        self._go_ahead = False
        self._left = False
        self._usual = {"EHLO": b"250 mail\r\n", "DATA": b"354 go on\r\n", "QUIT": b"221 bye\r\n", ".": b"451 no\r\n"}

    async def _commands(self) -> None:
        while line := await self.client.readline():
            name = "AUTH" if self._challenged else line[:4].strip().decode("latin-1").upper()
            self._challenged = False
            self._check_secured(name)
            if name == "STAR":
                name = "STARTTLS"
                await self._settle()
                await self._answered(name, b"220 go on\r\n")
                await self._secure()
                continue
            await self._command(name, line)
            if name == "DATA":
                await self._settle()
                if self._go_ahead:
                    message = await self.client.readuntil(b"\r\n.\r\n")
                    await self._command(".", message)

    async def _command(self, name: str, data: bytes) -> None:
        strike = self._strike(name)
        if self._left or (strike is not None and strike.takes):
            await self._settle()
            self._left = True
            reply = self._usual.get(name, b"250 fine\r\n")
            self._go_ahead = reply.startswith(b"354")
            await self._answered(name, reply)
            return
        self._pending.append(name)
        self.to_server.write(data)
        await self.to_server.drain()

    async def _settle(self) -> None:
        while self._pending:
            self._turn.clear()
            await self._turn.wait()

    async def _answers(self) -> None:
        while reply := await self._reply():
            name = self._pending[0] if self._pending else ""
            self._challenged = reply.startswith(b"334")
            self._go_ahead = reply.startswith(b"354")
            if self._fault is not None and self._fault.tls and name == "EHLO":
                reply = reply.replace(b"\r\n", b"\r\n250-STARTTLS\r\n", 1)
            if name == "EHLO" and self._fault is not None:
                for hidden in self._fault.hides:
                    reply = reply.replace(b"250-" + hidden + b"\r\n", b"")
            await self._answered(name, reply)
            if self._pending:
                self._pending.popleft()
            self._turn.set()
        if self._left:
            await self.gone()

    async def _reply(self) -> bytes:
        reply = b""
        while line := await self.server.readline():
            reply += line
            if line[3:4] != b"-":
                break
        return reply
