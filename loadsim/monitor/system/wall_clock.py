"""This machine's time of day, its error according to the kernel, and the boot that its monotonic clock counts from.

Source: adjtimex(2). A time service such as chrony or ntpd sets `maxerror`, which then grows by 500 us per second.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.timinglog.monitors import WALL_CLOCK, WALL_CLOCK_ERROR

STA_UNSYNC = 0x40
"""The flag of a clock that no service synchronises."""


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
    """Return the kernel's bound on the time of day's error; None if no service synchronises the clock."""
    asked = _Timex()  # with modes 0, nothing changes, and no rights are needed
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).adjtimex(ctypes.byref(asked)) >= 0 and not asked.status & STA_UNSYNC:
            return int(asked.maxerror) * 1000
    return None


def wall_clock_sample() -> dict[str, Any]:
    """Return a sample of both of this machine's clocks, taken within a few microseconds."""
    before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    error_ns = wall_clock_error_ns()
    stated = {} if error_ns is None else {WALL_CLOCK_ERROR: error_ns}
    return {"at_ns": (before_ns + after_ns) // 2, WALL_CLOCK: wall_ns, **stated}


def clock_facts() -> dict[str, Any]:
    """Return the facts that place another process's samples on this machine's time axis."""
    boot_id = None
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"boot_id": boot_id, WALL_CLOCK_ERROR: wall_clock_error_ns()}
