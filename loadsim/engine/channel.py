"""How a pool speaks with its members: a line each way, and word of what became of whoever is at the other end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from loadsim.engine.control import LONGEST_LINE_BYTES, LONGEST_LINE_OF_A_MEMBER_BYTES, encode


class Channel(Protocol):
    """A line channel to one member.

    No call hangs when the member is gone: `receive` and `wait` end with it.
    """

    @property
    def ended(self) -> str | None:
        """How the member has ended ("signal 9"); None while it has not."""
        ...

    @property
    def silent_s(self) -> float:
        """For how long there has been no sign of life; 0 where there is none to be expected by itself."""
        ...

    def send(self, line: bytes) -> None:
        """Say something, without waiting until it is heard; a dead member is found out by its silence."""
        ...

    def send_start(self, start_ns: int) -> None:
        """The same of the common start, which is given by our monotonic clock and told by the member's."""
        ...

    async def receive(self) -> bytes:
        """Return the next line, b"" at the end of the channel. Raises `ValueError` for a line that is too long."""
        ...

    async def wait(self) -> str:
        """Wait until it has ended; how."""
        ...

    def kill(self) -> None:
        """End it at once, unless it has ended."""
        ...


class ProcessChannel:
    """To a process of ours, over its standard input and output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def ended(self) -> str | None:
        """By its exit status."""
        return None if self._process.returncode is None else _how(self._process.returncode)

    @property
    def silent_s(self) -> float:
        """A process of ours that ends is seen to."""
        return 0.0

    def send(self, line: bytes) -> None:
        """Into its standard input."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(line)

    def send_start(self, start_ns: int) -> None:
        """It is on the same machine, which has one clock."""
        self.send(encode(start=start_ns))

    async def receive(self) -> bytes:
        """From its standard output."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def wait(self) -> str:
        """As the system tells it."""
        return _how(await self._process.wait())

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


async def start_process(command: Sequence[str], kept: Sequence[int] = ()) -> ProcessChannel:
    """Start a member as a process of this machine; it has these open files of ours, too, as long as it lives."""
    return ProcessChannel(
        await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE_OF_A_MEMBER_BYTES,
            start_new_session=True,  # Ctrl-C is for us: we tell them
            pass_fds=kept,
        )
    )


# --- the other end, in the member's process -----------------------------------------------------------------------


def own_pipes() -> tuple[int, int]:
    """From the pool, and to it: standard input and output, kept for ourselves.

    Whatever else prints, prints to standard error.
    """
    from_pool, to_pool = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return from_pool, to_pool


class _Out(asyncio.BaseProtocol):
    """The end of our standard output."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        """Everything has been said, or nobody hears it any more."""
        self.closed.set_result(None)


@asynccontextmanager
async def pipes_to_pool(
    from_pool: int, to_pool: int
) -> AsyncIterator[tuple[asyncio.StreamReader, Callable[[bytes], None]]]:
    """What the pool says by `own_pipes`, and how to say something; at the end of the block all has been said."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_pool, "rb", 0))
    transport, out = await loop.connect_write_pipe(_Out, os.fdopen(to_pool, "wb", 0))

    def say(line: bytes) -> None:
        if not transport.is_closing():  # else nobody hears it any more; what was measured is in the log
            transport.write(line)

    yield reader, say
    transport.close()
    await out.closed
