"""An event loop in virtual time whose connections are pairs of Unix sockets: hangs and time limits cost nothing.

What is written to one end of a pair is readable at the other end before `send` returns. So when no socket is readable
nothing is under way, and the clock may jump to the next timer. TCP on loopback makes no such promise.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from loadsim.protocols import connect

T = TypeVar("T")

BEGINS_NS = 10**12
"""The first instant; to an engine, 0 means that the run has not begun."""

HOST = "127.0.0.1"


class _Jumping(selectors.EpollSelector):
    """A selector that never waits: with nothing to read or write, it puts the clock forward to the next timer."""

    now_ns = BEGINS_NS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("every coroutine waits for something that can never happen")
            self.now_ns += -int(-timeout * 1e9 // 1) if timeout > 0 else 0
        return ready


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own loop with that selector. It collects what it would log."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self.complaints: list[str] = []
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self._jumping.now_ns * 1e-9

    def now_ns(self) -> int:
        """Nanoseconds of virtual time: the loop is also the run's clock."""
        return self._jumping.now_ns

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        """No thread looks up a name here."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port or 0))]

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context['message']}: {context.get('exception')!r}")


class Client(socket.socket):
    """A client's end of a pair, which passes for a TCP socket."""

    broken = False
    """True if the peer has reset the connection."""

    def __init__(self, listening: dict[int, Callable[[socket.socket, Client], None]]) -> None:
        own, self._far = socket.socketpair()
        super().__init__(own.family, own.type, own.proto, fileno=own.detach())
        self.setblocking(False)
        self._far.setblocking(False)
        self._listening = listening
        self._connected = False

    def bind(self, address: Any) -> None:
        pass

    def setsockopt(self, *_: Any) -> None:  # type: ignore[override]
        pass

    def connect(self, address: Any) -> None:
        self._connected = True
        self._listening[address[1]](self._far, self)

    def getsockname(self) -> Any:
        return (HOST, 40_000)

    def getpeername(self) -> Any:
        return (HOST, 1)

    def recv(self, *args: Any) -> bytes:  # type: ignore[override]
        if self.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        return super().recv(*args)

    def recvmsg_into(self, *args: Any) -> Any:  # type: ignore[override]
        if self.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        return super().recvmsg_into(*args)

    def close(self) -> None:
        if not self._connected:
            self._far.close()
        super().close()


@contextmanager
def network(listening: dict[int, Callable[[socket.socket, Client], None]]) -> Iterator[None]:
    """Let the drivers' sockets be such pairs; `listening` takes their far ends, by port."""
    with patch.object(connect, "_socket", lambda _: Client(listening)):
        yield


def run(main: Callable[[Loop], Coroutine[Any, Any, T]]) -> tuple[T, list[str]]:
    """Run a coroutine to its end in virtual time; its result, and what asyncio would have logged."""
    loop = Loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main(loop))
    return result, loop.complaints
