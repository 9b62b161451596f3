"""The judge of a case: it ends in a value or a documented error, in time and memory that are linear in its length."""

from __future__ import annotations

import gc
import resource
import signal
import time
import traceback
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from loadsim.errors import TaskFailed

from .target import Target

SUSPICIOUS_KIB = 24 * 1024
"""Growth of the peak of this process in a case; then the case is measured."""

LONGEST_S = 20
"""The CPU time after which a case is broken off."""

LONGEST_ERROR = 2000
"""Characters of a documented error, which is one line."""

REPETITIONS = 3
"""A case is slow only if each of these is: the machine may be busy."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a case shows; `kind` is the same for all cases that show it."""

    kind: str
    detail: str


class BrokenOff(KeyboardInterrupt):
    """A case took longer than the limit of `watched`. Not even an event loop holds this up."""


def judge(target: Target, data: bytes) -> Finding | None:
    """Run a case. Return what is wrong, or None."""
    began_ns, peak_kib = time.process_time_ns(), _peak_kib()
    found = _outcome(target, data)
    if found is not None:
        return found
    took_ms = (time.process_time_ns() - began_ns) / 1e6
    if took_ms > _limit_ms(target, data) and (took_ms := _least_ms(target, data)) > _limit_ms(target, data):
        return Finding("slow", f"{took_ms:.0f} ms of CPU time, expected at most {_limit_ms(target, data):.0f}")
    if _peak_kib() - peak_kib > SUSPICIOUS_KIB:
        limit_mib = target.base_mib + len(data) * target.memory_per_byte / 2**20
        if (took_mib := _memory_mib(target, data)) > limit_mib:
            return Finding("memory", f"{took_mib:.0f} MiB at the peak, expected at most {limit_mib:.0f}")
    return None


def _outcome(target: Target, data: bytes) -> Finding | None:
    try:
        target.run(data)
    except target.documented as error:
        return _text(error)
    except BrokenOff:
        return Finding("slow", "broken off: it took too much CPU time")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  any of them is a finding
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "loadsim" in Path(frame.filename).parts] or frames
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "nowhere"
        kind = f"{type(error).__name__} in {where}"
        return Finding(kind, f"{kind}: {str(error)[:200]!r}")
    return None


def _text(error: Exception) -> Finding | None:
    """Documented errors are one line that a terminal can show."""
    texts = [str(error)] + ([error.kind, error.line] if isinstance(error, TaskFailed) else [])
    if all(text.isprintable() and len(text) <= LONGEST_ERROR for text in texts):
        return None
    return Finding(f"text of {type(error).__name__}", f"expected one printable line, found {str(error)[:200]!r}")


def _limit_ms(target: Target, data: bytes) -> float:
    return target.base_ms + len(data) * target.us_per_byte / 1000


def _least_ms(target: Target, data: bytes) -> float:
    took = []
    for _ in range(REPETITIONS):
        gc.collect()
        began_ns = time.process_time_ns()
        _outcome(target, data)
        took.append((time.process_time_ns() - began_ns) / 1e6)
    return min(took)


def _memory_mib(target: Target, data: bytes) -> float:
    """Return the most that Python and numpy held at once in a repetition."""
    gc.collect()
    tracemalloc.start()
    try:
        _outcome(target, data)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> None:
    """Let the kernel measure the peak from now on (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def watched(at: list[int], longest_s: float = LONGEST_S) -> Iterator[None]:
    """Break off a case for which `at` has stayed the same for `longest_s` of CPU time."""
    seen, ticks = -1, 0

    def tick(_: int, __: FrameType | None) -> None:
        nonlocal seen, ticks
        seen, ticks = at[0], ticks + 1 if at[0] == seen else 0
        if ticks >= longest_s:
            ticks = 0
            raise BrokenOff

    before = signal.signal(signal.SIGPROF, tick)
    signal.setitimer(signal.ITIMER_PROF, 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
