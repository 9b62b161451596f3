"""The timing log of a monitor: how it begins."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from loadsim.timinglog.reader import MONITOR
from loadsim.timinglog.writer import TimingLogWriter
from loadsim.version import __version__


def open_monitor_log(name: str, out: Path | FileIO) -> TimingLogWriter:
    """Open the log of the monitor `name`. Raises `OSError`."""
    header = {
        "software": f"loadsim {__version__}",
        MONITOR: name,
        "run": "",
        "client": name,
        "engine": MONITOR,
        "users": 0,
        "engine_users": 0,
        "wall_clock_start": datetime.now(UTC).isoformat(),
    }
    return TimingLogWriter(out, header, time.monotonic_ns())
