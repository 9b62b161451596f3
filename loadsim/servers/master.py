"""A server's master process in the foreground, with all processes that it starts: start, readiness, end."""

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
"""Shell command that runs a master with the highest limit of open files, and kills it at the end of our pipe.

The pipe ends when loadsim exits, also when it is killed. PR_SET_PDEATHSIG of prctl(2) would be simpler, but is lost
when Postfix's master changes its effective user. The kernel reuses the master's number only after its session's end."""


class PortTaken(ConfigError):
    """A server did not start because another process listens on its port."""


class Master:
    """A master process and all processes that it starts: one session of the operating system."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, started: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the command. It writes `log`, and there `started` as soon as it listens on its ports.

        `environment` is added to this process's own.
        """
        self.name = name
        self._log = log
        self._started = started
        self._output = output = log.with_suffix(".out")
        log.unlink(missing_ok=True)
        # Into a file, not a pipe: the reader of a pipe would wait for every daemon that inherits it.
        with output.open("wb") as written:
            self._process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", START, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=written,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def pids(self) -> frozenset[int]:
        """Return the running processes of its session (proc(5): the sixth field of stat, after the name)."""
        found: set[int] = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(FileNotFoundError, ProcessLookupError):
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self._process.pid and state != "Z":
                        found.add(int(entry.name))
        return frozenset(found)

    def await_greeting(self, address: str, port: int, greeting: bytes) -> None:
        """Wait until it listens on a port and sends this greeting; an empty one means any connection.

        Its log is read first: the port alone may belong to another server. Raises `PortTaken` if it does, and another
        `ConfigError` if the master exits or sends nothing within the limit.
        """
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                error = self.first_error()
                kind = PortTaken if "Address already in use" in error else ConfigError
                raise kind(f"server: {self.name}: expected to start, it exited with: {error}")
            if self._log.exists() and self._started in self._log.read_text(errors="replace"):
                with suppress(OSError), socket.create_connection((address, port), START_LIMIT_S) as connection:
                    if not greeting or connection.recv(512).startswith(greeting):
                        return
            time.sleep(POLL_S)
        raise ConfigError(
            f"server: {self.name}: expected to answer on port {port} within {START_LIMIT_S:.0f} s,"
            f" its log has: {self.first_error()}"
        )

    def first_error(self) -> str:
        """Return the first error on its standard error or in its log; later ones follow from it."""
        lines = [
            line
            for file in (self._output, self._log)
            if file.exists()
            for line in file.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        errors = [line for line in lines if re.search(r"\b(fatal|error)\b", line, re.IGNORECASE)]
        return (errors or lines[-1:] or ["nothing"])[0].strip()

    def stop(self) -> None:
        """Terminate the master, then terminate and kill the processes that it leaves. A second call does nothing.

        Dovecot's imap processes outlive their master by ten seconds while clients are connected.
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
