"""The time of day of this machine, its error as the kernel states it, and the boot whose monotonic clock counts.

Source: adjtimex(2). A time service such as chrony or ntpd sets `maxerror`, which grows by 500 us per second until the
next time.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.timinglog.monitors import WALL_CLOCK, WALL_CLOCK_ERROR

STA_UNSYNC = 0x40
"""The flag of a clock that no service disciplines."""


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`; the kernel fills 208 bytes."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def wall_clock_error_ns() -> int | None:
    """Return the largest error of the time of day that the kernel states; None if no service disciplines it."""
    asked = _Timex()  # modes of 0 change nothing, and need no rights
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).adjtimex(ctypes.byref(asked)) >= 0 and not asked.status & STA_UNSYNC:
            return int(asked.maxerror) * 1000
    return None


def wall_clock_sample() -> dict[str, Any]:
    """Return a sample with both clocks of this machine, at the same moment to some microseconds."""
    before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    error_ns = wall_clock_error_ns()
    stated = {} if error_ns is None else {WALL_CLOCK_ERROR: error_ns}
    return {"at_ns": (before_ns + after_ns) // 2, WALL_CLOCK: wall_ns, **stated}


def clock_facts() -> dict[str, Any]:
    """Return the facts by which samples of another process are placed on this machine's time axis."""
    boot_id = None
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"boot_id": boot_id, WALL_CLOCK_ERROR: wall_clock_error_ns()}
