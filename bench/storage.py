"""`loadsim storage` and fio on one disk, and PostMark on a RAM disk; as root, with both installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.control_groups import ROOT, Limits, limited
from bench.loop_device import LoopDevice, loop_device
from bench.part import Part
from bench.processes import LONGEST_S, Cpus
from bench.table import figure, table
from loadsim.errors import ConfigError

RAM_DISK, RAM_DISK_BYTES = "/dev/shm", 8 << 30
PAGE_KIB = 32
MAILBOXES, MAILBOX_MIB = 20, 2  # all are read at the end, also on the slow disk
THREADS = 3


@dataclass(frozen=True, slots=True)
class Size:
    """The length of each measurement, reads per second of the slow disk, databases and mailboxes on the RAM disk."""

    seconds: int
    slow_per_s: int
    databases: int
    transactions: int


def measure(_: Cpus, size: Size) -> dict[str, list[dict[str, Any]]]:
    """Return rows of both tables. Raises `ConfigError` without a program."""
    for program in ("fio", "postmark"):
        if shutil.which(program) is None:
            raise ConfigError(f"storage: expected {program} (a package of Debian), found none")
    with loop_device() as device:
        limits_per_s = (None, size.slow_per_s) if (ROOT / "blkio").is_dir() else (None,)
        disks = [row for per_s in limits_per_s for row in _on_disk(device, size.seconds, per_s)]
    return {"disks": disks, "generator": [*_on_ram_disk(size), _postmark(size.transactions)]}


def _storage(out: Path, directory: Path, seconds: int, **keys: object) -> dict[str, Any]:
    """Make a test, and return its figures."""
    settings = {"directories": f"[{directory}]", "duration": f"{seconds}s", "threads": THREADS, **keys}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "loadsim", "storage", "run", "storage-quickstart", *words, "--out", str(out)]
    made = subprocess.run([*command, "--quiet"], check=False, capture_output=True, text=True, timeout=LONGEST_S)
    if not (out / "storage.json").exists():
        raise ConfigError(f"storage: expected a test, found: {made.stderr.strip()}")
    figures: dict[str, Any] = json.loads((out / "storage.json").read_text(encoding="utf-8"))
    return figures


def _on_disk(device: LoopDevice, seconds: int, per_s: int | None) -> list[dict[str, Any]]:
    """Return a row of loadsim and one of fio, which make at most so many reads per second."""
    keys = {"databases": 1, "mailboxes": MAILBOXES, "mailbox_size": f"{MAILBOX_MIB}M", "maintenance": "no"}
    with TemporaryDirectory() as place, ExitStack() as stack:
        _storage(Path(place) / "filled", device.place, 1, **keys)  # before the disk is slow
        if per_s:
            group = stack.enter_context(limited("loadsim-bench", Limits(reads_per_s=per_s), device.place))
            stack.enter_context(group.joined())
        before = device.counts()
        found = _storage(Path(place) / "out", device.place, seconds, **keys)
        row = _row("loadsim", per_s, before, device.counts())
        (database,) = found["databases"]
        codes = [each["code"] for each in found["verdict"]["findings"]]
        results = {"few-reads": "too few reads", "disk-reads-slow": "too slow"}
        row |= {name: database[name] for name in ("reads_per_s", "read_ms", "writes_per_s")}
        before = device.counts()
        job = _fio(device.place, seconds, database["reads_per_s"], database["writes_per_s"])
        of_fio = _row("fio", per_s, before, device.counts())
        of_fio |= {"reads_per_s": job["read"]["iops"], "read_ms": job["read"]["clat_ns"]["mean"] / 1e6}
        of_fio |= {"writes_per_s": job["write"]["iops"]}
    shutil.rmtree(device.place / "loadsim-storage")
    verdict = next((words for code, words in results.items() if code in codes), "fast enough")
    return [row | {"verdict": verdict}, of_fio]


def _row(program: str, per_s: int | None, before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    reads, ms = (after[name] - before[name] for name in ("reads", "read_ms"))
    return {"program": program, "limit_per_s": per_s, "kernel_ms": ms / reads if reads else None}


def _fio(place: Path, seconds: int, reads: float, writes: float) -> dict[str, Any]:
    """Read and write pages of a file at random, past the page cache, in as many threads and in the same proportion."""
    share = round(100 * reads / max(1.0, reads + writes))
    job = {
        **{"name": "pages", "filename": place / "fio", "size": f"{MAILBOXES * MAILBOX_MIB}M", "bs": f"{PAGE_KIB}k"},
        **{"rw": "randrw", "rwmixread": share, "direct": 1, "ioengine": "psync", "thread": 1, "numjobs": THREADS},
        **{"runtime": seconds, "time_based": 1, "group_reporting": 1, "output-format": "json"},
    }
    command = ["fio", *(f"--{name}={value}" for name, value in job.items())]
    made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONGEST_S)
    (found,) = json.loads(made.stdout)["jobs"]
    (place / "fio").unlink()
    jobs: dict[str, Any] = found
    return jobs


def _on_ram_disk(size: Size) -> list[dict[str, Any]]:
    """Return the operations of each store, per second, and per second of a core."""
    rows = []
    for store in ("database", "maildir"):
        with loop_device(RAM_DISK_BYTES, on=RAM_DISK) as disk, TemporaryDirectory() as place:
            keys = {"store": store, "databases": size.databases, "mailboxes": size.databases, "cache": "1M"}
            keys |= {"lazy": 1, "maintenance": "no", "reserve": 0}
            found = _storage(Path(place) / "out", disk.place, size.seconds, **keys)
        per_s = sum(sum(each["operations"].values()) for each in found["databases"]) / found["window_s"]
        cores = sum(each["cpu_share"] for each in found["databases"])
        rows.append({"program": f"loadsim, {store}", "per_s": per_s, "per_core_s": per_s / cores})
    return rows


def _postmark(transactions: int) -> dict[str, Any]:
    """Return the transactions of PostMark: each reads or appends, and creates or deletes, without syncs."""
    with loop_device(RAM_DISK_BYTES, on=RAM_DISK) as disk:
        settings = ("set number 1000", f"set transactions {transactions}", "set size 2000 148000", "run", "quit")
        began_s = time.monotonic()
        process = subprocess.Popen(
            ["postmark"], cwd=disk.place, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert process.stdin is not None
        process.stdin.write("\n".join(settings) + "\n")
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took_s, cpu_s = time.monotonic() - began_s, usage.ru_utime + usage.ru_stime
    return {"program": "PostMark", "per_s": transactions / took_s, "per_core_s": transactions / cpu_s}


def disks(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return reads and writes, and the times of a read by the program and by the kernel."""
    head = ("reads per second, at most", "program", "reads/s", "read", "by the kernel", "writes/s", "disk")
    return table(
        head,
        [
            (
                figure(row["limit_per_s"], ",.0f"),
                row["program"],
                figure(row["reads_per_s"], ",.0f"),
                figure(row["read_ms"], ".2f", " ms"),
                figure(row["kernel_ms"], ".2f", " ms"),
                figure(row["writes_per_s"], ",.0f"),
                row.get("verdict", ""),
            )
            for row in rows["disks"]
        ],
    )


def generator(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return operations per second, and per second of a core."""
    body = [
        (row["program"], figure(row["per_s"], ",.0f"), figure(row["per_core_s"], ",.0f")) for row in rows["generator"]
    ]
    return table(("program", "operations/s", "per core and s"), body)


STORAGE = Part(
    "storage",
    measure,
    {"Storage tests: loadsim and fio on one disk": disks, "Storage tests: the generator on a RAM disk": generator},
    smallest=Size(2, 50, 2, 2_000),
    short=Size(30, 50, 16, 50_000),
    full=Size(300, 50, 16, 500_000),
    needs_root=True,
)
