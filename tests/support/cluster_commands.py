"""Commands of a cluster in processes of their own, whose lines are waited for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE_S


class Command:
    """A command that is running; `lines` are those of its standard output, or of its standard error. What stands
    `before` it says where it runs."""

    def __init__(self, place: Path, *arguments: str | Path, error: bool = False, before: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "loadsim", *map(str, arguments)],
            stdout=subprocess.DEVNULL if error else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=place,
            start_new_session=True,
        )
        self._lines = self.process.stderr if error else self.process.stdout
        self.heard: list[str] = []
        self._ended = False
        self._watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        self._watchdog.start()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a line in which this is found."""
        assert self._lines is not None
        for line in self._lines:
            self.heard.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line with {pattern} in {self.heard}; {self.process.communicate()}")

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to go, unless it has gone; its exit status. It has not failed by a fault of ours."""
        if not self._ended:
            self._ended = True
            if self.process.poll() is None:
                self.process.send_signal(number)
            _, said = self.process.communicate(timeout=PATIENCE_S)
            self._watchdog.cancel()
            assert "Traceback" not in said, said
        return self.process.returncode


@contextmanager
def running(place: Path, *arguments: str | Path, error: bool = False, before: Sequence[str] = ()) -> Iterator[Command]:
    """A command, killed at the end of the block if it has not ended by then."""
    command = Command(place, *arguments, error=error, before=before)
    try:
        yield command
    finally:
        command.end(signal.SIGKILL)


@contextmanager
def station(place: Path, listen: str = "tcp://127.0.0.1:0", *options: str | Path) -> Iterator[tuple[str, Command]]:
    """`loadsim cluster up`, and the address that it says."""
    with running(place, "cluster", "up", "--listen", listen, *options) as up:
        address = up.until(r"Controller at (\S+)\. ")[1]
        yield address, up


@contextmanager
def client(place: Path, address: str, name: str, *options: str | Path, before: Sequence[str] = ()) -> Iterator[Command]:
    """`loadsim client`, joined; its runs are in a directory of its name."""
    joining = ("client", "--cluster", address, "--name", name, "--runs", place / name)
    with running(place, *joining, *options, before=before) as command:
        command.until(f"joined {address} as {name}$")
        yield command
