"""Line channels between a coordinator and its members, which also report how members end."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from loadsim.engine.control import LONGEST_LINE_BYTES, LONGEST_LINE_OF_A_MEMBER_BYTES, Start, encode
from loadsim.errors import ConfigError, machine_failures


class Channel(Protocol):
    """A line channel to one member. Once the member is gone, `receive` and `wait` return."""

    @property
    def ended(self) -> str | None:
        """The way in which the member ended ("signal 9"); None while it runs."""

    @property
    def silent_s(self) -> float:
        """Seconds since the channel's last heartbeat; 0 if the channel has no heartbeats of its own."""

    def send(self, line: bytes) -> None:
        """Send a line without waiting for delivery; a dead member is detected when it falls silent."""

    def send_start(self, start_ns: int) -> None:
        """Send the common start, converted from our monotonic clock to the member's."""

    async def receive(self) -> bytes:
        """Return the next line, or b"" at the end of the channel. Raises `ValueError` if a line is too long."""

    async def wait(self) -> str:
        """Wait until the member ends, and return how it ended."""

    def kill(self) -> None:
        """End the member at once if it still runs."""


class _ProcessProtocol(SubprocessStreamProtocol):
    """The protocol of a process; `exited` is set when it ends, even if one of its children keeps its pipes open."""

    def __init__(self) -> None:
        super().__init__(LONGEST_LINE_OF_A_MEMBER_BYTES, asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ProcessChannel:
    """The channel to a child process, over its standard input and output."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _ProcessProtocol) -> None:
        self._process = Process(transport, protocol, asyncio.get_running_loop())
        self._transport, self._exited = transport, protocol.exited

    @property
    def ended(self) -> str | None:
        return None if self._process.returncode is None else _ending(self._process.returncode)

    @property
    def silent_s(self) -> float:
        """0, since the end of a child is noticed at once."""
        return 0.0

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():  # otherwise asyncio would warn; the process has ended
            with suppress(ConnectionError, RuntimeError):
                self._process.stdin.write(line)

    def send_start(self, start_ns: int) -> None:
        """Send the common start as it is: all processes on a machine share its clock."""
        self.send(encode(Start(start_ns)))

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def wait(self) -> str:
        """Wait until the process ends, then close its pipes: the loop may not notice that they are closed."""
        await self._exited.wait()
        self._transport.close()
        return _ending(await self._process.wait())

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


async def start_process(command: Sequence[str], kept: Sequence[int] = ()) -> ProcessChannel:
    """Start a member as a process on this machine, which inherits the descriptors `kept`. Raises `ConfigError`."""
    with machine_failures(ConfigError):
        made = await asyncio.get_running_loop().subprocess_exec(
            _ProcessProtocol,
            *command,
            stderr=None,
            start_new_session=True,  # Ctrl-C reaches only this process, which stops its members
            pass_fds=kept,
        )
    return ProcessChannel(*made)


# --- the other end, in the member's process -----------------------------------------------------------------------


def own_pipes() -> tuple[int, int]:
    """Return copies of stdin and stdout for the coordinator's lines, and redirect stdout to stderr."""
    from_coordinator, to_coordinator = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return from_coordinator, to_coordinator


class _StdoutProtocol(asyncio.BaseProtocol):
    """The protocol of our standard output; `closed` is done once it is closed."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)


@asynccontextmanager
async def coordinator_lines(
    from_coordinator: int, to_coordinator: int
) -> AsyncIterator[tuple[asyncio.StreamReader, Callable[[bytes], None]]]:
    """Yield a reader of the coordinator's lines, and a function that sends a line, over `own_pipes`.

    By the end of the block, all lines have been written.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_coordinator, "rb", 0))
    transport, out = await loop.connect_write_pipe(_StdoutProtocol, os.fdopen(to_coordinator, "wb", 0))

    def send(line: bytes) -> None:
        if not transport.is_closing():  # otherwise the reader is gone; the measurements are in the log
            transport.write(line)

    yield reader, send
    transport.close()
    await out.closed
