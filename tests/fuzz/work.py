"""Processes that run cases until time is up, and their findings."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .file_targets import place
from .oracle import Finding, forget_peak, judge
from .target import Target, case

BATCH_S = 0.05
"""A target's turn."""

MOST_ADDRESS_SPACE = 4 << 30
"""Of a process: beyond it comes a MemoryError, which no target documents."""

MOST_KEPT_BLOCKS = 1_000_000
"""The most blocks of Python's allocator that a process may keep of all the cases that it has run."""

TELL_S = 5.0
"""The interval at which a process writes down its findings: it may die."""

SHRINK_S = 5.0

_AT = struct.Struct("<iQ")


@dataclass(slots=True)
class Tally:
    """Cases of a target, their CPU time, and the smallest case of each kind of finding."""

    cases: int = 0
    cpu_s: float = 0.0
    found: dict[str, tuple[int, Finding, bytes]] = field(default_factory=dict)

    def add(self, number: int, finding: Finding, data: bytes) -> None:
        known = self.found.get(finding.kind)
        if known is None or len(data) < len(known[2]):
            self.found[finding.kind] = number, finding, data


def run(
    targets: Sequence[Target], seed: int, seconds: float, processes: int, most: int = sys.maxsize
) -> dict[str, Tally]:
    """Run cases of all targets until time is up, at most `most` of each. Return the tally of each."""
    tallies = {target.name: Tally() for target in targets}
    workers = [_Worker(targets, seed, number, processes, seconds, most) for number in range(processes)]
    for worker in workers:
        for name, tally in worker.result().items():
            tallies[name].cases += tally.cases
            tallies[name].cpu_s += tally.cpu_s
            for number, finding, data in tally.found.values():
                tallies[name].add(number, finding, data)
    return tallies


class _Worker:
    """A process that runs every `step`th case of each target; its present case stands in shared memory."""

    def __init__(self, targets: Sequence[Target], seed: int, first: int, step: int, seconds: float, most: int) -> None:
        self._targets = targets
        self._at = mmap.mmap(-1, _AT.size)
        self._place = tempfile.TemporaryDirectory(prefix="fuzz")
        self._told = Path(self._place.name, "told")
        self._told.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads do not matter to the copy
            self._process = os.fork()
        if not self._process:
            _end_with_parent()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            place.cache_clear()
            tempfile.tempdir = self._place.name
            status = 1
            try:
                work(targets, seed, range(first, most, step), seconds, self._at, self._tell)
                status = 0
            except BaseException:  # noqa: BLE001  the parent is told by the exit status
                traceback.print_exc()
            finally:
                os._exit(status)

    def _tell(self, tallies: Mapping[str, Tally]) -> None:
        with suppress(FileNotFoundError), self._told.open("ab") as file:  # gone with the parent
            file.write(_encoded(tallies) + b"\n")

    def result(self) -> dict[str, Tally]:
        """Wait for its end. A process that dies is a finding in the case that it ran."""
        _, status = os.waitpid(self._process, 0)
        lines = self._told.read_bytes().splitlines(keepends=True)
        lines = [line for line in lines if line.endswith(b"\n")]
        self._place.cleanup()
        tallies = _decoded(lines[-1]) if lines else {target.name: Tally() for target in self._targets}
        if status:
            which, number = _AT.unpack(self._at[: _AT.size])
            code = os.waitstatus_to_exitcode(status)
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            finding = Finding("process died", f"its process ended by {how}")
            tallies[self._targets[which].name].add(number, finding, b"")
        return tallies


def _end_with_parent() -> None:
    """Ask the kernel to end this process with its parent (PR_SET_PDEATHSIG of prctl(2))."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def work(
    targets: Sequence[Target],
    seed: int,
    numbers: range,
    seconds: float,
    at: Any,
    tell: Callable[[Mapping[str, Tally]], None],
) -> None:
    """Run the cases of these numbers in this process, which serves nothing else.

    It is the turn of the target that has had least CPU time. `at` has the present case, `tell` gets what there is.
    """
    tallies = {target.name: Tally() for target in targets}
    left = {target.name: iter(numbers) for target in targets}
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, resource.RLIM_INFINITY))
    warnings.simplefilter("error")
    ends = time.monotonic() + seconds
    for target in targets:  # modules are loaded and expressions compiled before any case is judged
        _case(target, seed, numbers.start)
    gc.collect()
    forget_peak()
    before_blocks, tells = sys.getallocatedblocks(), 0.0
    waiting = list(range(len(targets)))
    while waiting and time.monotonic() < ends:
        which = min(waiting, key=lambda each: tallies[targets[each].name].cpu_s / targets[each].share)
        target, tally = targets[which], tallies[targets[which].name]
        began_s, turn_ends = time.process_time(), time.monotonic() + BATCH_S
        for number in left[target.name]:
            _AT.pack_into(at, 0, which, number)
            data, finding = _case(target, seed, number)
            tally.cases += 1
            if finding is not None:
                tally.add(number, finding, data)
            if time.monotonic() >= turn_ends:
                break
        else:
            waiting.remove(which)
        tally.cpu_s += time.process_time() - began_s
        _forget_peak_if_high()
        if time.monotonic() > tells:
            tell(tallies)
            tells = time.monotonic() + TELL_S
    gc.collect()
    if (kept_blocks := sys.getallocatedblocks() - before_blocks) > MOST_KEPT_BLOCKS:
        finding = Finding("memory kept", f"{kept_blocks:,} blocks more than before all cases")
        tallies[targets[0].name].add(0, finding, b"")
    tell(tallies)


def _case(target: Target, seed: int, number: int) -> tuple[bytes, Finding | None]:
    try:
        data = case(target, seed, number)
    except Exception as error:  # noqa: BLE001
        return b"", Finding("no case", f"the fuzzer cannot make it: {error!r}")
    return data, judge(target, data)


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


_turns = 0


def _forget_peak_if_high() -> None:
    """A peak far above what there is now would hide the next one."""
    global _turns
    _turns += 1
    if _turns % 20 == 0 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - _rss_mib() > 8:
        forget_peak()


def _encoded(tallies: Mapping[str, Tally]) -> bytes:
    return json.dumps(
        {
            name: [
                tally.cases,
                tally.cpu_s,
                [[number, each.kind, each.detail, data.hex()] for number, each, data in tally.found.values()],
            ]
            for name, tally in tallies.items()
        }
    ).encode()


def _decoded(said: bytes) -> dict[str, Tally]:
    return {
        name: Tally(
            cases,
            cpu_s,
            {kind: (number, Finding(kind, detail), bytes.fromhex(data)) for number, kind, detail, data in found},
        )
        for name, (cases, cpu_s, found) in json.loads(said).items()
    }


def shrunk(target: Target, data: bytes, kind: str) -> bytes:
    """Return a smaller case that shows the same kind of fault: without the pieces that it can do without."""
    ends = time.monotonic() + SHRINK_S
    size = max(1, len(data) // 2)
    while size and time.monotonic() < ends:
        at = 0
        while at < len(data) and time.monotonic() < ends:
            less = data[:at] + data[at + size :]
            finding = judge(target, less)
            if finding is not None and finding.kind == kind:
                data = less
            else:
                at += size
        size //= 2
    return data
