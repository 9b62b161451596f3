"""A file system on a loop device, and what the kernel counts for it; as root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

LONGEST_S = 120.0
SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class LoopDevice:
    """A device by its path, and the directory in which it is mounted."""

    path: str
    place: Path

    def counts(self) -> dict[str, int]:
        """Return the counters since the start (Linux, `Documentation/admin-guide/iostats.rst`)."""
        lines = (line.split() for line in Path("/proc/diskstats").read_text(encoding="ascii").splitlines())
        of = next([int(each) for each in line[3:]] for line in lines if line[2] == Path(self.path).name)
        return {
            "reads": of[0],
            "read_bytes": SECTOR_BYTES * of[2],
            "read_ms": of[3],
            "writes": of[4],
            "written_bytes": SECTOR_BYTES * of[6],
            "write_ms": of[7],
            "flushes": of[15],
        }


EXT4 = ("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard")
"""Without a journal, whose writes the kernel would count, too."""


@contextmanager
def loop_device(
    size_bytes: int = 2 << 30, on: str = "/var/tmp", sector_bytes: int = SECTOR_BYTES, make: Sequence[str] = EXT4
) -> Iterator[LoopDevice]:
    """Make a device on the disk of a directory."""
    with TemporaryDirectory(dir=on) as directory:
        image, place = Path(directory) / "image", Path(directory) / "mounted"
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(size_bytes)
        options = ("--direct-io=on",) if sector_bytes == SECTOR_BYTES else ("--sector-size", str(sector_bytes))
        path = _command("losetup", "--find", "--show", *options, str(image))
        try:
            _command(*make, path)
            _command("mount", path, str(place))
            try:
                yield LoopDevice(path, place)
            finally:
                _command("umount", str(place))
        finally:
            _command("losetup", "--detach", path)


def _command(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=LONGEST_S).stdout.strip()
