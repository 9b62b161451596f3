"""A monitor's timing log: how it begins, and what its collector adds."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from loadsim.errors import LogError
from loadsim.timinglog import container
from loadsim.timinglog.file import LogFile, open_log
from loadsim.timinglog.header import MONITOR
from loadsim.timinglog.monitors import COLLECTION
from loadsim.timinglog.writer import TimingLogWriter
from loadsim.version import __version__

REJECTED = ".rejected"
"""The suffix of a file that turned out not to be the monitor's log."""


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


def read_monitor_log(path: Path, name: str) -> LogFile:
    """Read and check the log of the monitor `name`. Raises `LogError` for any other file."""
    log = open_log(path)
    if wrong := wrong_maker(log, name):
        raise LogError(f"{path}: {wrong}")
    return log


def wrong_maker(log: LogFile, name: str) -> str | None:
    """Return what was expected and found if a log is not the monitor `name`'s, else None."""
    if (monitor := log.header.monitor) == name:
        return None
    made_by = f"that of the monitor {monitor}" if monitor else "that of a run"
    return f"expected the log of the monitor {name} (--name {name}), found {made_by}"


def settle(path: Path, name: str, why: str | None) -> str | None:
    """Turn a collected stream into a valid log, recording the reason `why` something is missing from it.

    An incomplete block is cut off. A file that is not the monitor's log is renamed (`REJECTED`), and replaced by a log
    without samples. Return everything that is missing, or None. Raises `OSError`.
    """
    reasons = [why] if why else []
    try:
        log = read_monitor_log(path, name)
    except LogError:
        if path.exists() and path.stat().st_size:
            reasons.append(f"its output is in {path.name}{REJECTED}")
            path.rename(path.with_name(f"{path.name}{REJECTED}"))
        else:
            path.unlink(missing_ok=True)
            reasons.append("its command printed nothing")
        text = "; ".join(reasons)
        writer = open_monitor_log(name, path)
        writer.facts({COLLECTION: text})
        writer.close()
        return text
    if left := log.size - log.end:
        reasons.append(f"the last {left:,} of {log.size:,} bytes were cut off or damaged, and were not kept")
        os.truncate(path, log.end)
    text = "; ".join(reasons)
    if text:
        with path.open("ab", buffering=0) as file:
            file.write(container.encode_json(container.FACTS, [{COLLECTION: text}]))
    return text or None


def remove(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}{REJECTED}")):
        with suppress(OSError):
            file.unlink(missing_ok=True)
