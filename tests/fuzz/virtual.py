"""An event loop in virtual time without sockets: the other end of each connection is a function."""

import asyncio
import selectors
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from loadsim.model.records import LOOP
from loadsim.protocols import connect

T = TypeVar("T")

Peer = Callable[["Transport", bytes], None]
"""Gets what was written; b"" when the connection has been made."""


MOST_TURNS = 100
"""Turns of the loop in which cancelled tasks have to end."""


class Complaint(Exception):
    """asyncio would have logged this."""


class Stuck(Exception):
    """All coroutines wait for something that can never happen."""


class _Jumping(selectors.EpollSelector):
    """A selector that never waits: it puts the clock forward to the next timer."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now_s += max(timeout, 0.0)
        return []


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own loop with that selector; every connection is to `peer`."""

    def __init__(self, peer: Peer) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._peer = peer
        self.complaints: list[str] = []
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self._jumping.now_s

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port or 0))]

    async def create_connection(self, make: Callable[[], Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Connect a driver that uses asyncio's transport."""
        transport = self._transport(None, make())
        transport.begin()
        return transport, None

    async def _socket(self, _: object, __: object, begin: Callable[[], None] = lambda: None) -> Any:
        begin()
        return NoSocket()

    def _transport(self, _: object, protocol: Any, *__: object) -> Any:
        return Transport(self, protocol, self._peer)

    @contextmanager
    def network(self) -> Iterator[None]:
        """Let the drivers connect to `peer`."""
        with patch.multiple(connect, connected_socket=self._socket, Transport=self._transport):
            yield

    def run_in_executor(self, _: Any, call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call at once: a thread would not be waited for."""
        ended = self.create_future()
        ended.set_result(call(*arguments))
        return ended

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context['message']}: {context.get('exception')!r}")


class NoSocket:
    """Takes the options of a socket."""

    def setsockopt(self, *_: int) -> None: ...

    def shutdown(self, _: int) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.2", 40_000


class Transport(asyncio.Transport):
    """A connection's end; `say` lets the peer speak, `end` closes.

    `delivered` is all that has arrived; `written` has each write, and how much had arrived before it.
    """

    def __init__(self, loop: Loop, protocol: Any, peer: Peer) -> None:
        super().__init__({"sockname": ("192.0.2.2", 40_000), "peername": ("192.0.2.1", 1)})
        self._loop, self._protocol, self._peer = loop, protocol, peer
        self._paused = self._closed = self._lost = False
        self._coming: list[bytes | None] = []
        self.arrival, self.began_ns = (0, LOOP), 0
        self.delivered = bytearray()
        self.written: list[tuple[int, bytes]] = []

    def begin(self) -> None:
        self._protocol.connection_made(self)
        self._loop.call_soon(self._peer, self, b"")

    def say(self, *pieces: bytes) -> None:
        """Let these pieces arrive, one in each turn of the loop."""
        self._coming += pieces
        self._loop.call_soon(self._deliver)

    def end(self) -> None:
        """Let the peer close behind what it said."""
        self._coming.append(None)
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        if self._paused or self._lost or not self._coming:
            return
        piece = self._coming.pop(0)
        if piece is None:
            self.abort()
        elif not self._closed:
            self.delivered += piece
            self._protocol.data_received(piece)
        if self._coming:
            self._loop.call_soon(self._deliver)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closed:
            self.written.append((len(self.delivered), bytes(data)))
            self._loop.call_soon(self._peer, self, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def abort(self) -> None:
        if not self._lost:
            self._closed = self._lost = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self._paused

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def can_write_eof(self) -> bool:
        return False


def play(peer: Peer, main: Callable[[Loop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end. Raises `Complaint` for what asyncio would log, and for tasks that are left."""
    loop = Loop(peer)
    try:
        with loop.network():
            result = loop.run_until_complete(main(loop))
        loop.run_until_complete(asyncio.sleep(0))  # connections that were aborted end
        if left := asyncio.all_tasks(loop):
            raise Complaint(f"tasks are left: {left.pop().get_coro()}")
        if loop.complaints:
            raise Complaint(loop.complaints[0])
        return result
    finally:
        loop.set_exception_handler(lambda *_: None)
        for _ in range(MOST_TURNS):
            if not (left := asyncio.all_tasks(loop)):
                break
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
