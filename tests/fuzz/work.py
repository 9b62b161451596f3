"""Processes that run cases until time is up, and their findings."""

import gc
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

from .file_targets import place
from .oracle import Finding, forget_peak, judge
from .target import Target, case

BATCH_S = 0.05
"""A target's turn."""

MOST_ADDRESS_SPACE = 4 << 30
"""Of a process: beyond it comes a MemoryError, which no target documents."""

MOST_KEPT_BLOCKS = 1_000_000
"""The most blocks of Python's allocator that a process may keep of all the cases that it has run."""

SHRINK_S = 5.0

_targets: Sequence[Target] = ()
"""The targets of this run: forked processes have them, since no function can be sent to them."""


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
    global _targets
    _targets = targets
    tallies = {target.name: Tally() for target in targets}
    numbers = [range(first, most, processes) for first in range(processes)]
    with warnings.catch_warnings(), ProcessPoolExecutor(processes, get_context("fork")) as pool:
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads do not matter to the copies
        for found in pool.map(work, [seed] * processes, numbers, [seconds] * processes):
            for name, tally in found.items():
                tallies[name].cases += tally.cases
                tallies[name].cpu_s += tally.cpu_s
                for finding in tally.found.values():
                    tallies[name].add(*finding)
    return tallies


def work(seed: int, numbers: range, seconds: float) -> dict[str, Tally]:
    """Run the cases of these numbers in this process, which serves nothing else.

    It is the turn of the target that has had least CPU time.
    """
    place.cache_clear()
    with tempfile.TemporaryDirectory(prefix="fuzz") as own, patch.object(tempfile, "tempdir", own):
        return _work(_targets, seed, numbers, seconds)


def _work(targets: Sequence[Target], seed: int, numbers: range, seconds: float) -> dict[str, Tally]:
    tallies = {target.name: Tally() for target in targets}
    left = {target.name: iter(numbers) for target in targets}
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, resource.RLIM_INFINITY))
    warnings.simplefilter("error")
    ends = time.monotonic() + seconds
    for target in targets:  # modules are loaded and expressions compiled before any case is judged
        _case(target, seed, numbers.start)
    gc.collect()
    forget_peak()
    before_blocks = sys.getallocatedblocks()
    waiting = list(targets)
    while waiting and time.monotonic() < ends:
        target = min(waiting, key=lambda each: tallies[each.name].cpu_s / each.share)
        tally = tallies[target.name]
        began_s, turn_ends = time.process_time(), time.monotonic() + BATCH_S
        for number in left[target.name]:
            data, finding = _case(target, seed, number)
            tally.cases += 1
            if finding is not None:
                tally.add(number, finding, data)
            if time.monotonic() >= turn_ends:
                break
        else:
            waiting.remove(target)
        tally.cpu_s += time.process_time() - began_s
        _forget_peak_if_high()
    gc.collect()
    if (kept_blocks := sys.getallocatedblocks() - before_blocks) > MOST_KEPT_BLOCKS:
        finding = Finding("memory kept", f"{kept_blocks:,} blocks more than before all cases")
        tallies[targets[0].name].add(0, finding, b"")
    return tallies


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
