"""Measured processes: each pinned to the client's CPU, with what it cost; rounds of them, interleaved, and medians."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.nullserver import pinned
from loadsim.errors import ConfigError

LONGEST_S = 600.0
MOST_FILES = 300_000


class Cpus(NamedTuple):
    """Which CPUs the measured client runs on, and which ones the server; the same where there is but one."""

    client: tuple[int, ...]
    server: tuple[int, ...]


def share_cpus() -> Cpus:
    """The first CPU for the client, all others for the server."""
    first, *others = sorted(os.sched_getaffinity(0))
    return Cpus((first,), tuple(others) or (first,))


def short_directory() -> tempfile.TemporaryDirectory[str]:
    """Make a directory for servers, whose sockets need a short path, and whose users may enter it.

    In a test run it is in the run's own, by which servers are found if the run is killed (`tests/support/keeper.py`).
    """
    made = tempfile.TemporaryDirectory(prefix="lsb", dir=os.environ.get("LOADSIM_TESTS_PLACE", "/tmp"))
    Path(made.name).chmod(0o711)
    return made


def raise_open_files() -> None:
    """As many as may be, also for what is started from here; only root may raise the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, MOST_FILES),) * 2)


class Cost(NamedTuple):
    """Measured times of a program in seconds: CPU time of user and system, and wall-clock time."""

    user_s: float
    system_s: float
    wall_s: float


def run_client(cpus: Cpus, job: Mapping[str, Any]) -> dict[str, Any]:
    """Do a job of `bench.client` in a process of its own; what it found."""
    command = [sys.executable, "-m", "bench.client", json.dumps(job)]
    with pinned(cpus.client):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    try:
        said, _ = process.communicate(timeout=LONGEST_S)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise ConfigError(f"bench: {job.get('what')}: expected status 0, the client ended with {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


def run_program(cpus: Cpus, command: Sequence[str]) -> Cost:
    """Run somebody else's program to its end; what it cost, its start included."""
    with pinned(cpus.client):
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ConfigError(f"bench: {command[0]}: expected status 0, it ended with {process.returncode}")
    return Cost(usage.ru_utime, usage.ru_stime, time.monotonic() - began_s)


def interleave(
    rounds: int, variants: Mapping[tuple[str, ...], Callable[[], Mapping[str, float]]]
) -> dict[tuple[str, ...], dict[str, list[float]]]:
    """Measure each variant once a round, in turn, so that a noisy minute falls on all of them; figures by name."""
    found: dict[tuple[str, ...], dict[str, list[float]]] = {key: {} for key in variants}
    for _ in range(rounds):
        for key, measure in variants.items():
            for name, figure in measure().items():
                found[key].setdefault(name, []).append(figure)
    return found


def summary(figures: Sequence[float]) -> dict[str, Any]:
    """Return the median and the extremes. Raises `ConfigError` if there are no figures."""
    if not figures:
        raise ConfigError("bench: expected figures to summarise, found none")
    return {"median": round(median(figures), 2), "least": round(min(figures), 2), "most": round(max(figures), 2)}


def machine() -> str:
    """Return the CPU, the number of CPUs, and the versions of Linux and Python."""
    names = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cpu = names[0] if names else platform.machine()
    return f"{cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
