"""A shell at a terminal, at which a test types as a person does: commands that end, commands that go on, Ctrl-C."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from patience import PATIENCE_S

LONG_S = 3 * PATIENCE_S
"""The time that a command may take: one of a tutorial prepares mailboxes and runs for minutes on an idle machine."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROMPT = re.compile(r"(?:\r?\n|^)typed:(\d+)> $")
ROWS, COLUMNS = 24, 80


class Typed(NamedTuple):
    """A command that has ended: all that the terminal showed, the exit status, and the time it took."""

    output: str
    status: int
    took_s: float


class Shell:
    """A shell at a terminal whose other end is the file `ours`. The terminal is a simple one, without colours."""

    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._shown = ""
        self.busy = False
        os.write(ours, b"stty -echo\n")
        self.enter("")

    def enter(self, command: str) -> None:
        """Replace the shell by a new one in the same directory, which this command starts."""
        os.write(self._ours, f"exec {command} bash --noediting --norc\n".encode())
        os.write(self._ours, b"PS1='\\ntyped:$?> ' PS2=''; unset HISTFILE; VIRTUAL_ENV_DISABLE_PROMPT=1\n")
        self._until(PROMPT)

    def type(self, command: str) -> Typed:
        started = time.monotonic()
        os.write(self._ours, f"{command}\n".encode())
        shown, status = self._until(PROMPT)
        return Typed(shown, int(status), time.monotonic() - started)

    def start(self, command: str, until: str) -> Typed:
        """Type a command that goes on, and wait until it has shown a line that ends in this pattern."""
        started = time.monotonic()
        os.write(self._ours, f"{command}\n".encode())
        shown, line = self._until(re.compile(f"({until})\r?\n|{PROMPT.pattern}"))
        assert line, f"{command}: expected {until}, found its end: {shown}"
        self.busy = True
        return Typed(shown + line, 0, time.monotonic() - started)

    def interrupt(self) -> Typed:
        started = time.monotonic()
        os.write(self._ours, b"\x03")
        shown, status = self._until(PROMPT)
        self.busy = False
        return Typed(shown, int(status), time.monotonic() - started)

    def _until(self, pattern: re.Pattern[str]) -> tuple[str, str]:
        """Read up to this; return what was shown before it, and what its group matches."""
        deadline = time.monotonic() + LONG_S
        while (found := pattern.search(self._shown)) is None:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            read = b""
            with suppress(OSError):  # EIO: the shell has ended
                read = os.read(self._ours, 65536) if ready else b""
            assert read, f"expected {pattern.pattern}, found {self._shown}"
            self._shown += read.decode(errors="replace")
        shown, self._shown = self._shown[: found.start()], self._shown[found.end() :]
        return shown.replace("\r\n", "\n"), found[1] or ""


@contextmanager
def shell(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Shell]:
    """Start a shell by this command, in a session at a terminal of its own, which hangs up with the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "dumb", "PATH": PATH} | dict(env or {}),
        cwd=cwd,
    )
    os.close(theirs)
    try:
        yield Shell(ours)
    finally:
        os.close(ours)
        process.wait(timeout=PATIENCE_S)
