"""The collection of monitors' streams, which the scenario's commands print, in a run's logs.

A thread per monitor writes its standard output to a file as it arrives. Nothing that the command does ends the run:
crashes, garbage, silence and floods are recorded in the file. Only a monitor without a first sample is rejected.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from loadsim.errors import ConfigError, LogError, together
from loadsim.monitor.bounded_command import available, exit_words, found_command, started
from loadsim.monitor.cpu_affinity import leave_real_time_priority
from loadsim.monitor.monitor_log import remove, settle, wrong_maker
from loadsim.timinglog.container import MAGIC
from loadsim.timinglog.file import open_log


@dataclass(frozen=True, slots=True)
class Allowances:
    """The limits on a monitor's command.

    The first sample must arrive within `start_s`, in at most `start_bytes`. After that, the command may print
    `first_bytes` plus `bytes_per_s`; a monitor prints 2 KB per second. At the end of the run, its standard input is
    closed. SIGTERM follows after `end_s`, and SIGKILL after another `terminated_s`.
    """

    start_s: float = 30.0
    start_bytes: int = 1 << 20
    first_bytes: int = 16 << 20
    bytes_per_s: int = 32 << 10
    end_s: float = 5.0
    terminated_s: float = 2.0


LIMITS = Allowances()


@asynccontextmanager
async def collected(
    monitors: Mapping[str, Sequence[str]], logs: Path, limits: Allowances = LIMITS
) -> AsyncIterator[None]:
    """Collect monitors' streams into new files in the directory `logs` during the block.

    `monitors` has the words of their commands. The block begins once each has taken a sample. If it does not begin, or
    raises a `ConfigError`, there was no load, and the files are removed unless the directory has another log. Otherwise
    they stay, as a cluster's logs arrive later. Raises `ConfigError` for monitors without a sample.
    """
    if monitors:
        _make(logs)
    collectors = [Collector(name, words, logs / f"{name}.tlog", limits) for name, words in monitors.items()]
    loaded = False
    try:
        for collector in collectors:
            collector.start()
        results = await asyncio.gather(*(asyncio.wrap_future(collector.sampled) for collector in collectors))
        reasons = {collector.name: why for collector, why in zip(collectors, results, strict=True) if why is not None}
        if reasons:
            expected = "expected a first sample, found none"
            raise together([ConfigError(f"monitors.{name}: {expected}: {why}") for name, why in reasons.items()])
        loaded = True
        yield
    except ConfigError:
        loaded = False
        raise
    finally:
        for collector in collectors:
            collector.end()
        await asyncio.gather(*(asyncio.wrap_future(collector.ended) for collector in collectors))
        if not loaded:
            _remove_alone(logs, {collector.path for collector in collectors})


def _make(logs: Path) -> None:
    try:
        logs.mkdir(exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"{logs}: expected a directory to write to, found: {failure.strerror}") from None


def _remove_alone(logs: Path, own: set[Path]) -> None:
    """Remove the monitors' files and the directory, unless it has another log."""
    if not set(logs.glob("*.tlog")) - own:
        for path in own:
            remove(path)
        with suppress(OSError):
            logs.rmdir()


class Collector:
    """Collects one monitor's stream in a thread, from `start` to `end`.

    `sampled` gets None at the first sample, or the reason why there is none. `ended` gets what is missing from the
    file, or None, once the command is gone and the file is settled.
    """

    def __init__(self, name: str, words: Sequence[str], path: Path, limits: Allowances = LIMITS) -> None:
        self.name = name
        self.path = path
        self.sampled: Future[str | None] = Future()
        self.ended: Future[str | None] = Future()
        for future in (self.sampled, self.ended):
            future.set_running_or_notify_cancel()  # so that those who await it cannot cancel it
        self._words = words
        self._limits = limits
        self._asked, self._asking = os.pipe()  # the former becomes readable when the command is to end
        self._thread = threading.Thread(target=self._collect, name=f"monitor {name}", daemon=True)

        # The running command.
        self._began_s = 0.0
        self._until_s: float | None = None  # the end of its current time limit
        self._bytes = 0  # printed so far
        self._ending = self._terminated = False
        self._unreadable = False  # the output so far is not a log

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ask the command to end, without waiting. Call it once."""
        os.close(self._asking)
        if self._thread.ident is None:
            self._close(None)

    def _collect(self) -> None:
        leave_real_time_priority()
        why: str | None
        try:
            words = [found_command(self._words[0]), *self._words[1:]]
            with (
                FileIO(self.path, "x") as file,
                started(words, stdin=subprocess.PIPE, stderr=None) as (process, exited),
            ):
                why = self._read(file, process, exited)
        except ConfigError:
            why = "its program is not installed"  # its name may be a secret
        except OSError as failure:
            why = f"its output could not be collected: {failure.strerror or failure}"
        if not self.sampled.done():
            self.sampled.set_result(why)
        with suppress(OSError):  # a full disk: the file stays as it is
            why = settle(self.path, self.name, why)
        self._close(why)

    def _close(self, why: str | None) -> None:
        os.close(self._asked)
        if not self.sampled.done():
            self.sampled.set_result(None)
        self.ended.set_result(why)

    def _read(self, file: FileIO, process: subprocess.Popen[bytes], exited: int) -> str | None:
        """Copy the output to the file until the command has ended; `exited` becomes readable then.

        Return what is missing, or None. Raises `OSError` if the file cannot be written.
        """
        assert process.stdout is not None
        output = process.stdout.fileno()
        os.set_blocking(output, False)
        self._began_s = time.monotonic()
        self._until_s = self._began_s + self._limits.start_s
        with selectors.DefaultSelector() as selector:
            for descriptor in (output, exited, self._asked):
                selector.register(descriptor, selectors.EVENT_READ)
            gone = False
            while True:
                left_s = None if self._until_s is None else max(0.0, self._until_s - time.monotonic())
                ready = {key.fd for key, _ in selector.select(0 if gone else left_s)}
                # 1. The output.
                chunk = available(output) if output in ready else None
                if chunk == b"":
                    selector.unregister(output)  # once closed, it would always be ready
                elif chunk and (why := self._take(file, chunk)):
                    return why
                # 2. The command's end; a child may keep the pipe open.
                if gone and not chunk:
                    return self._end(process)
                gone = gone or exited in ready
                # 3. The end of the run, and of the time limit.
                if self._asked in ready:
                    selector.unregister(self._asked)
                    self._ask(process)
                if self._until_s is not None and time.monotonic() >= self._until_s and (why := self._late(process)):
                    return why

    def _take(self, file: FileIO, chunk: bytes) -> str | None:
        """Take a piece of output. Return why nothing more is read, or None."""
        self._bytes += len(chunk)
        most = self._limits.first_bytes + self._limits.bytes_per_s * (time.monotonic() - self._began_s)
        if self._bytes > (most if self.sampled.done() else self._limits.start_bytes):
            return f"its command printed {self._bytes:,} bytes, more than a monitor does, and was killed"
        unwritten = memoryview(chunk)
        while unwritten:
            unwritten = unwritten[file.write(unwritten) :]
        return None if self.sampled.done() else self._first_sample()

    def _first_sample(self) -> str | None:
        """Look for the first sample. Return why there cannot be one, or None."""
        with self.path.open("rb") as file:
            head = file.read(len(MAGIC))
        if not MAGIC.startswith(head):
            return "its command printed something else than a timing log first"
        try:
            log = open_log(self.path)
        except LogError:  # perhaps incomplete; the error's text may quote the output
            self._unreadable = True
            return None
        self._unreadable = False
        if wrong := wrong_maker(log, self.name):
            return wrong
        if any("probe" in sample for sample in log.health):
            if not self._ending:
                self._until_s = None
            self.sampled.set_result(None)
        return None

    def _ask(self, process: subprocess.Popen[bytes]) -> None:
        """Close the standard input, which makes a monitor end."""
        assert process.stdin is not None
        process.stdin.close()
        self._ending, self._until_s = True, time.monotonic() + self._limits.end_s

    def _late(self, process: subprocess.Popen[bytes]) -> str | None:
        """Return why a command that exceeds its time is killed; None if it gets more time."""
        if not self._ending:
            unreadable = ": it printed no log that this version of loadsim reads; does it run the same version?"
            return f"no sample within {self._limits.start_s:g} s{unreadable if self._unreadable else ''}"
        if not self._terminated:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            self._terminated, self._until_s = True, time.monotonic() + self._limits.terminated_s
            return None
        return f"it did not end within {self._limits.end_s + self._limits.terminated_s:g} s of the run, and was killed"

    def _end(self, process: subprocess.Popen[bytes]) -> str | None:
        """Return why the command's exit means that something is missing, or None."""
        status = exit_words(process.pid)
        if not self._ending:
            after_s = time.monotonic() - self._began_s
            return f"its command exited {after_s:,.0f} s after its start, before the run ended ({status or 'status 0'})"
        return None if status is None or self._terminated else f"its command failed at its end ({status})"
