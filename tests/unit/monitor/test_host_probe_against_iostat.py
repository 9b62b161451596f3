"""The probe `host` against `iostat -x`, which reads the same files of /proc.

It runs in a mount namespace whose /proc is a directory with recorded files. So both compute from the same counters, and
no load of this machine changes the result.
"""

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from patience import PATIENCE_S

from loadsim.monitor.host_probe import HostSample, Sources, figures_between, reading_of

pytestmark = pytest.mark.nightly(part="tools")


def recorded(place: Path, changed: Mapping[str, str] | None = None) -> Path:
    """A directory with this machine's files of now, some of them changed; iostat reads diskstats a disk at a time."""
    texts = {name: Path("/proc", name).read_text() for name in ("stat", "uptime", "diskstats", "cpuinfo")} | (
        changed or {}
    )
    for name, text in texts.items():
        written(place / "proc" / name, text)
    (place / "sys").mkdir()
    for line in texts["diskstats"].splitlines():
        _, _, name, fields = line.split(maxsplit=3)
        written(place / "sys" / "block" / name / "stat", f"{fields}\n")
    return place


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def reading(place: Path, *disks: str) -> HostSample:
    """Our reading of a recorded directory, at the machine's uptime."""
    uptime_s = float((place / "proc" / "uptime").read_text().split()[0])
    return reading_of(lambda name: (place / "proc" / name).read_text(), Sources(disks, (), ()), round(uptime_s * 1e9))


def disk_line(name: str, fields: Iterable[int]) -> str:
    return f" 259 0 {name} {' '.join(map(str, fields))}\n"


USED = (1000, 10, 80_000, 700, 500, 20, 64_000, 900, 0, 5000, 1600, 7, 0, 70, 8, 4, 5)
BEFORE = {
    "busy": (1000, 10, 80_000, 700, 500, 20, 64_000, 900, 3, 5000, 1600, 7, 0, 70, 8, 4, 5),
    "idle": USED,
    "reads": USED,
    # The kernel prints times as 32 bits: these begin again between the two readings.
    "wraps": (
        *(10**9, 10, 2**40, 2**32 - 50, 10**9, 20, 2**41, 2**32 - 100, 9),
        *(2**32 - 300, 2**32 - 9000, 0, 0, 0, 0, 0, 0),
    ),
}
LATER = {
    "busy": (1600, 30, 96_000, 1900, 5500, 90, 964_000, 30_900, 40, 6700, 41_600, 9, 0, 90, 9, 4, 5),
    "idle": USED,
    "reads": (1001, 10, 80_008, 707, 500, 20, 64_000, 900, 0, 5007, 1607, 7, 0, 70, 8, 4, 5),
    "wraps": (10**9 + 100, 10, 2**40 + 800, 150, 10**9 + 200, 20, 2**41 + 1600, 300, 9, 1300, 11_000, 0, 0, 0, 0, 0, 0),
}
"""Fields of diskstats by the kernel's documentation; two seconds lie between."""


def test_disks_are_those_of_iostat(tmp_path: Path) -> None:
    """Rates, latencies, queue and utilisation of iostat's second report, to its last digit.

    The report is ordered by a signal, once the files have changed.
    """
    before, later = (
        recorded(
            tmp_path / name,
            {"diskstats": "".join(disk_line(*disk) for disk in table.items()), "uptime": f"{uptime_s}.00 9000.00\n"},
        )
        for name, table, uptime_s in (("before", BEFORE, 5000), ("later", LATER, 5002))
    )
    first, second = reading(before, *BEFORE), reading(later, *BEFORE)
    mount = f'mount --bind {before}/sys /sys && mount --bind {before}/proc /proc && exec "$@"'
    iostat_words = ("stdbuf", "-o0", "iostat", "-dx", "-o", "JSON", "1000", "2")
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", *iostat_words]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ | {"LC_ALL": "C"}) as iostat:
        assert iostat.stdout is not None
        output = b""
        while output.count(b'"util"') < len(BEFORE):
            output += os.read(iostat.stdout.fileno(), 4096) or pytest.fail(f"iostat ended: {output!r}")
        shutil.copytree(later, before, dirs_exist_ok=True)
        # iostat may take the signal before it waits for it; the rest of the first report may come first.
        while output.count(b'"util"') < 2 * len(BEFORE):
            if select.select([iostat.stdout], [], [], 0.01)[0]:
                output += os.read(iostat.stdout.fileno(), 4096) or pytest.fail(f"iostat ended: {output!r}")
            else:
                iostat.send_signal(signal.SIGALRM)
        output += iostat.communicate(timeout=PATIENCE_S)[0]
    (host,) = json.loads(output)["sysstat"]["hosts"]
    reported = {each["disk_device"]: each for each in host["statistics"][1]["disk"]}
    ours = figures_between(first, second)
    for name in BEFORE:
        theirs = reported[name]
        figures = {
            "r/s": ours[f"disk_{name}_reads_per_s"],
            "w/s": ours[f"disk_{name}_writes_per_s"],
            "rkB/s": ours[f"disk_{name}_read_bytes_per_s"] / 1024,
            "wkB/s": ours[f"disk_{name}_written_bytes_per_s"] / 1024,
            "r_await": ours.get(f"disk_{name}_read_ms", 0),
            "w_await": ours.get(f"disk_{name}_write_ms", 0),
            "aqu-sz": ours[f"disk_{name}_queue_requests"],
            "util": 100 * ours[f"disk_{name}_busy_share"],
        }
        if name == "wraps":
            # iostat 12.6 computes with 64 bits where the kernel prints 32: see the expectation below.
            for figure in ("r_await", "w_await", "aqu-sz", "util"):
                del figures[figure]
        assert figures == {key: pytest.approx(theirs[key], abs=0.0051) for key in figures}, name
    assert ours["disk_busy_read_ms"] == pytest.approx(2.0)  # 1200 ms of 600 reads
    assert "disk_idle_read_ms" not in ours and "disk_reads_write_ms" not in ours
    assert ours["disk_wraps_read_ms"] == pytest.approx(2.0)  # 200 ms of 100 reads
    assert ours["disk_wraps_write_ms"] == pytest.approx(2.0)  # 400 ms of 200 writes
    assert ours["disk_wraps_queue_requests"] == pytest.approx(10.0)  # 20,000 ms in 2 s
    assert ours["disk_wraps_busy_share"] == pytest.approx(0.8)  # 1600 ms in 2 s
