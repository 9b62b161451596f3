"""A server's master process, run in the foreground, and all processes that it starts."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from loadsim.errors import ConfigError

START_LIMIT_S = 180.0
"""James takes 12 s of CPU time to start: 7 s on two idle cores, 48 s if 18 other processes compete for them."""
STOP_LIMIT_S = 15.0
POLL_S = 0.02
TAKEN = "Address already in use"

START = 'ulimit -S -n "$(ulimit -H -n)"; exec 3<&0; ( (read _ <&3; kill $$) & ); exec "$@" </dev/null 3<&-'
"""Shell command that runs a master with the highest possible open-file limit, and kills it when our pipe ends.

The pipe ends when loadsim exits, even if killed. PR_SET_PDEATHSIG of prctl(2) would be simpler, but is lost when
Postfix's master changes its effective user. The reader is not a child of the master: authdaemond, when terminated,
waits for all its children. The kernel reuses the master's process ID only after its session ends.
"""


class PortTaken(ConfigError):
    """A server did not start because another process listens on its port."""


class Master:
    """A master process and all processes that it starts, in one operating-system session."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        started: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command. Its standard output and error go to `log` with the suffix .out; it may also write `log`.

        A server that listens before it is ready writes `started` to `log` once it is. `environment` is added to this
        process's own.
        """
        self.name = name
        self._log = log
        self._started = started
        self._output = output = log.with_suffix(".out")
        log.unlink(missing_ok=True)
        # To a file, not a pipe: a pipe's reader would wait for every daemon that inherits it.
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
        """Return the running processes in its session."""
        pids: set[int] = set()
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self._process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    pids.add(process.pid)
        return frozenset(pids)

    def await_greeting(self, address: str, port: int, greeting: bytes) -> None:
        """Wait until the master listens on a port and sends this greeting; for an empty one, any connection will do.

        Raises `PortTaken` if another process listens there, or another `ConfigError` if the master exits or sends
        nothing within the limit.
        """

        def answers() -> bool:
            if not self._listens(port):
                if not _accepts(address, port) or self._listens(port):
                    return False
                self._check_running()
                raise PortTaken(
                    f"server: {self.name}: port {port}: expected it to be free, found: {TAKEN}; --imap-port and"
                    " --smtp-port choose others"
                )
            if self._started and not (self._log.exists() and self._started in self._log.read_text(errors="replace")):
                return False
            with suppress(OSError), socket.create_connection((address, port), START_LIMIT_S) as connection:
                return not greeting or connection.recv(512).startswith(greeting)
            return False

        self._await(answers, f"port {port}")

    def await_socket(self, path: Path) -> None:
        """Wait until the master accepts connections on a Unix socket. Raises `ConfigError` after the time limit."""

        def accepts() -> bool:
            with socket.socket(socket.AF_UNIX) as probe:
                return probe.connect_ex(str(path)) == 0

        self._await(accepts, str(path))

    def _await(self, ready: Callable[[], bool], where: str) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            self._check_running()
            if ready():
                return
            time.sleep(POLL_S)
        raise ConfigError(
            f"server: {self.name}: expected to answer on {where} within {START_LIMIT_S:.0f} s,"
            f" its log has: {self.first_error()}"
        )

    def _check_running(self) -> None:
        if self._process.poll() is not None:
            error = self.first_error()
            kind = PortTaken if TAKEN in error else ConfigError
            raise kind(f"server: {self.name}: expected to start, it exited with: {error}")

    def _listens(self, port: int) -> bool:
        """Return whether the master listens on a TCP port; in all servers here, the master is the process that does."""
        with suppress(psutil.Error):
            sockets = psutil.Process(self._process.pid).net_connections("tcp")
            return any(listener.status == psutil.CONN_LISTEN and listener.laddr.port == port for listener in sockets)
        return False

    def first_error(self) -> str:
        """Return the first error in its output or its log, preferably one about a port that is taken."""
        lines = [
            line
            for file in (self._output, self._log)
            if file.exists()
            for line in file.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        errors = [line for line in lines if re.search(r"\b(fatal|error)\b", line, re.IGNORECASE)]
        taken = [line for line in lines if TAKEN in line]
        return (taken or errors or lines[-1:] or ["nothing"])[0].strip()

    def stop(self) -> None:
        """Terminate the master, then terminate and kill the processes left over. A second call does nothing.

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


def _accepts(address: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((address, port), START_LIMIT_S):
        return True
    return False
