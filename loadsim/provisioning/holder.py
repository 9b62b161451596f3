"""The process that uses accounts, or used them last: its identity, its run, and whether it still exists."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from loadsim.documents.typed import Within, Wrong, closed

LEASE_S = 1800
"""A holder that has not renewed its hold for this long is presumed to have crashed."""


def _line(text: str) -> str:
    """Check a text that errors will quote: one line, no longer than an address may be (RFC 5321 section 4.5.3.1)."""
    if not text.isprintable() or len(text) > 320:
        raise Wrong("a line", text)
    return text


Line = Annotated[str, _line]
_Instant = Annotated[int, Within(0, 1 << 37)]


@closed
@dataclass(frozen=True, slots=True)
class Holder:
    """A loadsim process that works on accounts, for this `run` or for none (""). Instants are in seconds since 1970.

    After it has released them, it stays in the manifest with `until_s` 0.
    """

    work: Line
    host: Line
    process: Line
    since_s: _Instant
    until_s: _Instant
    run: Line = ""

    @classmethod
    def this(cls, work: str, run: str = "") -> Self:
        """Describe this process as the holder, starting this work now."""
        now_s = int(time.time())
        return cls(work, socket.gethostname(), identity(os.getpid()), now_s, now_s + LEASE_S, run)

    @property
    def ours(self) -> bool:
        return self.process == identity(os.getpid())

    @property
    def gone(self) -> bool:
        """True if the process ran on this machine and has ended, or if its hold has expired."""
        place, _, number = self.process.rpartition(" pid ")
        number, _, _ = number.partition(" ")
        here = number.isdecimal() and place == identity(os.getpid()).rpartition(" pid ")[0]
        return time.time() > self.until_s or (here and identity(int(number)) != self.process)

    def __str__(self) -> str:
        since, until = (f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}Z" for at_s in (self.since_s, self.until_s))
        crashed = f" (if it has crashed, wait until {until})" if self.until_s else ""
        return f"loadsim {self.work} on {self.host}, started at {since}{crashed}"


def identity(process: int) -> str:
    """Return a process's unique name: boot, PID namespace, PID and start time; PID and host if these are unknown."""
    with suppress(OSError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").readlink()
        started = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot} {namespace} pid {process} started {started[19]}"  # proc_pid_stat(5), field 22
    return f"{process} of {socket.gethostname()}"
