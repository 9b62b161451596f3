"""A server process of our own, in the foreground, with everything that it starts: start, readiness, end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError

START_LIMIT_S = 60.0
STOP_LIMIT_S = 15.0
POLL_S = 0.02

START = 'ulimit -S -n "$(ulimit -H -n)"; exec 3<&0; (read _ <&3; kill $$) & exec "$@" </dev/null 3<&-'
"""Shell command that runs a master with all open files that are allowed, and kills it at the end of our pipe.

The pipe ends when loadsim has ended, also when it is killed. PR_SET_PDEATHSIG of prctl(2) would be simpler, but is lost
when Postfix's master changes its effective user. The kernel reuses the master's number only after its session's end."""


class PortTaken(ConfigError):
    """It did not start because somebody else listens on its port."""


class Master:
    """A master process that we started, and everything that it starts: one session of the operating system."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, started: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the command, which writes `log`, and there `started` as soon as it listens on its ports.

        `environment` is what it has beside our own.
        """
        self.name = name
        self._log = log
        self._started = started
        self._output = output = log.with_suffix(".out")
        log.unlink(missing_ok=True)
        # Into a file, not a pipe: a daemon that inherits a pipe keeps whoever reads it waiting.
        with output.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", START, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def pids(self) -> frozenset[int]:
        """The living processes of its session (proc(5): the sixth field of stat, after the name in parentheses)."""
        found: set[int] = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(FileNotFoundError, ProcessLookupError):
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self._process.pid and state != "Z":
                        found.add(int(entry.name))
        return frozenset(found)

    def await_greeting(self, address: str, port: int, greeting: bytes) -> None:
        """Wait until it listens there and greets like this (or accepts at all, when empty).

        Its log is asked first: what answers on the port alone might be somebody else's server. Raises `ConfigError`,
        `PortTaken` if that is the reason, when it ends instead, or says nothing for too long.
        """
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                complaint = self.first_complaint()
                kind = PortTaken if "Address already in use" in complaint else ConfigError
                raise kind(f"server: {self.name}: expected to start, it ended and said: {complaint}")
            if self.has_started():
                with suppress(OSError), socket.create_connection((address, port), START_LIMIT_S) as connection:
                    if not greeting or connection.recv(512).startswith(greeting):
                        return
            time.sleep(POLL_S)
        raise ConfigError(
            f"server: {self.name}: expected to answer on port {port} within {START_LIMIT_S:.0f} s,"
            f" it said: {self.first_complaint()}"
        )

    def has_started(self) -> bool:
        """Whether its log says that it listens."""
        return self._log.exists() and self._started in self._log.read_text(errors="replace")

    def first_complaint(self) -> str:
        """The first complaint on its standard error or in its log: what comes after follows from it."""
        lines = [
            line
            for file in (self._output, self._log)
            if file.exists()
            for line in file.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        complaints = [line for line in lines if re.search(r"\b(fatal|error)\b", line, re.IGNORECASE)]
        return (complaints or lines[-1:] or ["nothing"])[0].strip()

    def stop(self) -> None:
        """Ask the master to end, then what it leaves behind, then insist; does nothing the second time.

        Dovecot's imap processes outlive their master by ten seconds when clients are still there, unless asked.
        """
        if self._process.poll() is None:
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        for request in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, request)
            deadline_s = time.monotonic() + STOP_LIMIT_S
            while self.pids() and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
