"""How a pool speaks with its members: a line each way, and word of what became of whoever is at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from loadsim.client.control import LONGEST_LINE_BYTES


class Channel(Protocol):
    """To one member; nothing that it is asked for hangs when the member is gone, except by `hear` and `wait`, which end
    with it."""

    @property
    def ahead_ns(self) -> int:
        """How far the member's monotonic clock is ahead of ours."""
        ...

    @property
    def ended(self) -> str | None:
        """How the member has ended ("signal 9"); None while it has not."""
        ...

    def tell(self, line: bytes) -> None:
        """Say something, without waiting until it is heard; a dead member is found out by its silence."""
        ...

    async def hear(self) -> bytes:
        """The next line that it says, b"" when there will be none."""
        ...

    async def wait(self) -> str:
        """Wait until it has ended; how."""
        ...

    def kill(self) -> None:
        """End it at once, unless it has ended."""
        ...


class ProcessChannel:
    """To a process of ours, over its standard input and output."""

    ahead_ns = 0

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def ended(self) -> str | None:
        """By its exit status."""
        return None if self._process.returncode is None else _how(self._process.returncode)

    def tell(self, line: bytes) -> None:
        """Into its standard input."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(line)

    async def hear(self) -> bytes:
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


async def start_process(command: Sequence[str]) -> ProcessChannel:
    """Start a member as a process of this machine."""
    return ProcessChannel(
        await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is for us: we tell them
        )
    )
