"""The judge of a case: it ends in a value or a documented error, with calls and memory that are linear in its length.

A step is a call of a function in Python or C, or the resumption of a generator. Steps and allocations are the same on
each machine. CPU time and the size of the process only select the cases that are repeated and counted.
"""

import gc
import resource
import signal
import sys
import time
import traceback
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from loadsim.errors import TaskFailed

from .target import Target

SUSPICIOUS_KIB = 24 * 1024
"""Growth of the peak of this process in a case; then the case is measured."""

SUSPICIOUS_S = 0.01
"""CPU time of a case; then its steps are counted. 500,000 steps take 15 ms or more."""

LONGEST_UNCOUNTED_S = 20.0
"""The CPU time after which a case is broken off, and then counted."""

ENDLESS_S = 600.0
"""The CPU time after which a case has no end, such as a loop without calls: no slow machine needs it."""

LONGEST_ERROR = 2000
"""Characters of a documented error, which is one line."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a case shows; `kind` is the same for all cases that show it."""

    kind: str
    detail: str


class BrokenOff(KeyboardInterrupt):
    """A case needed too many steps, or too much CPU time. Not even an event loop holds this up."""


def judge(target: Target, data: bytes, endless_s: float = ENDLESS_S) -> Finding | None:
    """Run a case. Return what is wrong, or None."""
    began_s, peak_kib = time.process_time(), _peak_kib()
    with suppress(BrokenOff), _stopped(min(LONGEST_UNCOUNTED_S, endless_s)):
        found = _outcome(target, data)
        if found is not None:
            return found
    if time.process_time() - began_s > SUSPICIOUS_S:
        found = _too_slow(target, data, endless_s)
        if found is not None:
            return found
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


def _too_slow(target: Target, data: bytes, endless_s: float) -> Finding | None:
    """Repeat a case, and break it off at the step beyond its limit."""
    limit = target.base_steps + len(data) * target.steps_per_byte
    steps, ended = 0, False

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")
        if steps > limit:
            raise BrokenOff

    with suppress(BrokenOff), _stopped(endless_s):
        sys.setprofile(count)
        _outcome(target, data)
        ended = True
    sys.setprofile(None)
    if steps > limit:
        return Finding("slow", f"expected at most {limit:,} steps, found more")
    return None if ended else Finding("slow", f"expected an end, found none after {endless_s:g} s of CPU time")


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
def _stopped(after_s: float) -> Iterator[None]:
    """Break off what takes so much CPU time."""

    def stop(_: int, __: FrameType | None) -> None:
        raise BrokenOff

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, after_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
