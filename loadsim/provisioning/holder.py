"""The process that uses accounts, or was the last to do so: its identity, its run, and if it still exists."""

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
"""A holder that has not renewed its hold for this long has crashed."""


def _line(text: str) -> str:
    """Check a text that errors show: one line of at most the length of an address (RFC 5321 section 4.5.3.1)."""
    if not text.isprintable() or len(text) > 320:
        raise Wrong("a line", text)
    return text


Line = Annotated[str, _line]
_Instant = Annotated[int, Within(0, 1 << 37)]


@closed
@dataclass(frozen=True, slots=True)
class Holder:
    """A process of loadsim at work on accounts, for this `run` or none. Instants are in seconds since 1970.

    One that has released them stays in the manifest, with `until_s` 0.
    """

    work: Line
    host: Line
    process: Line
    since_s: _Instant
    until_s: _Instant
    run: Line = ""

    @classmethod
    def this(cls, work: str, run: str = "") -> Self:
        """Return this process, which does this work from now on."""
        now_s = int(time.time())
        return cls(work, socket.gethostname(), identity(os.getpid()), now_s, now_s + LEASE_S, run)

    @property
    def ours(self) -> bool:
        return self.process == identity(os.getpid())

    @property
    def gone(self) -> bool:
        """True if the process was on this machine and has ended, or has not renewed its hold."""
        place, _, number = self.process.rpartition(" pid ")
        number, _, _ = number.partition(" ")
        here = number.isdecimal() and place == identity(os.getpid()).rpartition(" pid ")[0]
        return time.time() > self.until_s or (here and identity(int(number)) != self.process)

    def __str__(self) -> str:
        since, until = (f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}Z" for at_s in (self.since_s, self.until_s))
        crashed = f" (if it has crashed, wait until {until})" if self.until_s else ""
        return f"loadsim {self.work} on {self.host}, which began at {since}{crashed}"


def identity(process: int) -> str:
    """Return what no other process has: boot, PID namespace, number and start; number and host if these are unknown."""
    with suppress(OSError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").readlink()
        started = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot} {namespace} pid {process} started {started[19]}"  # proc_pid_stat(5), field 22
    return f"{process} of {socket.gethostname()}"
