"""Timing logs of up to 100 million tasks: seconds and memory of `loadsim log answer`.

The logs are as eight engines would have written them in a working day: in order of completion, a block each second.
The summary is computed in a process of its own, started as `python -m bench.logs DIRECTORY`; the percentiles are held
against numpy's on the concatenated durations, and must be the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import tables
from bench.part import Part
from bench.processes import LONGEST_S, Cpus
from loadsim.analysis.summary import summarise
from loadsim.errors import ConfigError
from loadsim.model.terms import Window
from loadsim.scenario.criteria import DEFAULT
from loadsim.timinglog import container
from loadsim.timinglog.records import INSTANTS, NEVER, OUTCOME, TASK, Records

FILES = 8
DAY_S = 28_800
WINDOW_S = Window(3600.0, 25_200.0)
USERS_EACH = 2000
CHUNKS = 96
"""In so many pieces a log is made, so that making it takes little memory itself."""

BYTES_EACH = 70
"""Of disk for a record, and its duration."""

TASKS = ("READ", "READ", "READ", "READ", "SYNC", "SYNC", "SEND", "DELETE", "MOVE", "BROWSE", "REPLY", "SCHEDULE")
"""A record's task is one of these, all as likely."""

NAMES = ("other", *dict.fromkeys(TASKS), "medium", "imap", "refused: NO", "c1", *map(str, range(FILES)), "run-1")
"""The string table of a log, after the empty name."""

PERCENTS = (50, 95)

START_US = 60_000_000
"""The common start, on the engines' clocks: everybody was logged on by then."""


def measure(_: Cpus, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each number of records. Raises `ConfigError` for too small a disk, or a wrong figure."""
    rows = []
    for records in sizes:
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place)
            free = shutil.disk_usage(directory).free
            if free < records * BYTES_EACH:
                room_gb = records * BYTES_EACH / 1e9
                raise ConfigError(f"logs: {directory}: expected {room_gb:.0f} GB of room, found {free / 1e9:.0f} GB")
            rows.append(_measure(directory, records))
    return rows


def _measure(directory: Path, records: int) -> dict[str, Any]:
    written_bytes = _write_all(directory, records)
    found = _in_a_process(directory)
    print(
        f"logs: {records:,} tasks: {found['s']:.1f} s, {found['cpu_s']:.1f} s of CPU,"
        f" {found['peak_kib'] / 1024:.0f} MiB",
        file=sys.stderr,
        flush=True,
    )
    expected, figures_us = _expected_us(directory), found.pop("figures_us")
    if figures_us != expected:
        raise ConfigError(f"logs: expected the percentiles {expected}, found {figures_us}")
    return {
        "records": records,
        "bytes": written_bytes,
        "crc_bytes_per_s": _crc_bytes_per_s(),
        "write_bytes_per_s": _write_bytes_per_s(directory, written_bytes),
        **found,
    }


# --- what is measured, in a process of its own ---


def _answer(directory: Path) -> dict[str, list[int]]:
    """The percentiles of each task, as they were measured: in whole microseconds."""
    tasks = summarise([directory / "logs"]).score["tasks"]
    return {task["task"]: [round(1000 * task[name]) for name in ("p50_ms", "p95_ms")] for task in tasks}


def _in_a_process(directory: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.logs", str(directory)],
        stdout=subprocess.PIPE,
        check=False,
        text=True,
        timeout=LONGEST_S,
        cwd=Path(__file__).parents[1],
    )
    if done.returncode:
        raise ConfigError(f"logs: expected status 0, it ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    """Print the percentiles, the seconds (by the clock, and of all processors) and the peak of memory."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    figures_us = _answer(Path(sys.argv[1]))
    found: dict[str, Any] = {"s": time.monotonic() - began_s, "cpu_s": time.process_time() - began_cpu_s}
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found["peak_kib"] = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    print(json.dumps({**found, "figures_us": figures_us}))
    return 0


# --- the logs ---


def _write_all(directory: Path, records: int) -> int:
    """Write the logs, and the durations that count in the window; how many bytes of logs."""
    (directory / "logs").mkdir()
    (directory / "durations").mkdir()
    for engine in range(FILES):
        with (directory / "logs" / f"c1.{engine}.tlog").open("xb") as file:
            for data in _log_of(directory, engine, records // FILES):
                file.write(data)
            os.fsync(file.fileno())
    return sum(path.stat().st_size for path in (directory / "logs").iterdir())


def _log_of(directory: Path, engine: int, records: int) -> Iterator[bytes]:
    """The bytes of an engine's log."""
    header = {
        "run": "run-1",
        "client": "c1",
        "engine": str(engine),
        "users": FILES * USERS_EACH,
        "engine_users": USERS_EACH,
        "first_user": 1 + engine * USERS_EACH,
        "window_s": list(WINDOW_S),
        "day_s": DAY_S,
        "epoch_ns": 0,
        "criteria": dict.fromkeys(DEFAULT),
    }
    yield container.encode_head(header) + container.encode_json(container.STRINGS, list(NAMES))
    random = np.random.default_rng(engine)
    for chunk in range(CHUNKS):
        begin, end = (records * bound // CHUNKS for bound in (chunk, chunk + 1))
        tasks = _tasks(random, engine, begin, end, (chunk * DAY_S // CHUNKS, (chunk + 1) * DAY_S // CHUNKS))
        _keep_durations(directory, tasks)
        for name in INSTANTS:
            if name in (tasks.dtype.names or ()):
                tasks[name][tasks[name] != NEVER] += START_US
        yield b"".join(_blocks(tasks))
    yield container.encode_json(container.FACTS, [{"start_ns": 1000 * START_US, "ended": "completed"}])


def _tasks(random: np.random.Generator, engine: int, begin: int, end: int, due_s: tuple[int, int]) -> Records:
    """Tasks that are due in a part of the day, in order of completion; one in 100 fails, one in 1,000 never starts."""
    number = {name: index for index, name in enumerate(NAMES, 1)}
    tasks = np.zeros(end - begin, TASK)
    due_us = np.sort(random.integers(due_s[0] * 1_000_000, due_s[1] * 1_000_000, len(tasks)))
    started_us = due_us + random.integers(50, 500, len(tasks))
    ended_us = started_us + (10_000 * random.lognormal(0, 1, len(tasks))).astype(np.int64)
    order = np.argsort(ended_us)
    chance = random.random(len(tasks))
    tasks["scheduled_us"] = due_us[order]
    tasks["started_us"] = np.where(chance < 0.001, NEVER, started_us[order])
    tasks["ended_us"] = np.where(chance < 0.001, NEVER, ended_us[order])
    tasks["late_generator_s"] = random.random(len(tasks)) * 0.001
    tasks["user"] = random.integers(1 + engine * USERS_EACH, 1 + (engine + 1) * USERS_EACH, len(tasks))
    tasks["bytes"] = random.integers(100, 10_000, len(tasks))
    tasks["task"] = np.array([number[name] for name in TASKS])[random.integers(0, len(TASKS), len(tasks))]
    tasks["profile"], tasks["protocol"] = number["medium"], number["imap"]
    tasks["error"] = np.where((chance >= 0.001) & (chance < 0.011), number["refused: NO"], 0)
    tasks["outcome"] = np.where(tasks["error"] > 0, OUTCOME["refused"], 0)
    tasks["outcome"][chance < 0.001] = OUTCOME["skipped"]
    return tasks


def _blocks(tasks: Records) -> Iterator[bytes]:
    """A block for each second in which tasks ended; what never started stands where it was due."""
    ended_us = np.where(tasks["ended_us"] == NEVER, tasks["scheduled_us"], tasks["ended_us"])
    seconds = np.maximum.accumulate(ended_us) // 1_000_000
    _, firsts = np.unique(seconds, return_index=True)
    for block in np.split(tasks, firsts[1:]):
        yield container.encode_block(container.TASKS, block.tobytes())


def _keep_durations(directory: Path, tasks: Records) -> None:
    """Append the durations of what counts, by task, for numpy to look at afterwards."""
    begin_us, end_us = (round(bound_s * 1_000_000) for bound_s in WINDOW_S)
    due_us = tasks["scheduled_us"]
    counted = tasks[(due_us >= begin_us) & (due_us < end_us) & (tasks["outcome"] == OUTCOME["ok"])]
    took_us: NDArray[np.uint32] = (counted["ended_us"] - counted["started_us"]).astype(np.uint32)
    for number in np.unique(counted["task"]):
        with (directory / "durations" / NAMES[number - 1]).open("ab") as file:
            file.write(took_us[counted["task"] == number].tobytes())


def _expected_us(directory: Path) -> dict[str, list[int]]:
    """By task, numpy's nearest-rank percentiles of all durations in one array."""
    expected = {}
    for path in (directory / "durations").iterdir():
        percentiles = np.percentile(np.fromfile(path, np.uint32), PERCENTS, method="inverted_cdf")
        expected[path.name] = [int(found) for found in percentiles]
    return expected


def _crc_bytes_per_s() -> float:
    """Return the speed of one core's checksums: no step reads and writes faster than this."""
    data = bytes(1 << 26)
    began_s = time.perf_counter()
    zlib.crc32(data)
    return len(data) / (time.perf_counter() - began_s)


def _write_bytes_per_s(directory: Path, most_bytes: int) -> float:
    """Return the speed of writing this many bytes, at most a gigabyte, to the disk: reads may come from memory."""
    data = bytes(min(most_bytes, 1 << 30))
    began_s = time.perf_counter()
    with (directory / "zeros").open("xb") as file:
        file.write(data)
        os.fsync(file.fileno())
    (directory / "zeros").unlink()
    return len(data) / (time.perf_counter() - began_s)


TITLE = "Timing logs of 8 engines"
LOGS = Part("logs", measure, {TITLE: tables.logs}, smallest=(4_000,), full=(10**6, 10**7, 10**8))

if __name__ == "__main__":
    sys.exit(main())
