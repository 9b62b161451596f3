"""The file system of a path, compared with df."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE_S

from loadsim.monitor.system import filesystems
from loadsim.monitor.system.filesystems import FileSystem, mounts, run_storage

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 0:99999 / / rw,noatime - ext4 /dev/root rw,data=ordered
31 27 0:99998 / /var/mail\040store rw,relatime shared:1 master:2 - nfs4 filer:/mail\134box rw,vers=4.2
"""


def df(path: Path) -> tuple[str, str, str]:
    """Type, source and place of the file system that a path lies on, as coreutils tell it."""
    told = subprocess.run(
        ["df", "--output=fstype,source,target", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    kind, source, *place = told.stdout.splitlines()[1].split()
    return kind, source, " ".join(place)


def test_mounts_are_read_as_the_kernel_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without tags before the dash, and with blanks and backslashes in names (proc_pid_mountinfo(5))."""
    monkeypatch.setattr(filesystems, "DEVICE", "/nowhere/{number}")  # this machine may have a disk of that number
    found = mounts(MOUNTINFO)
    assert found[27] == FileSystem("ext4", "/dev/root", "/", "rw,noatime", None)
    assert found[31] == FileSystem("nfs4", "filer:/mail\\box", "/var/mail store", "rw,relatime", None)
    assert list(found) == [22, 27, 31]


@pytest.mark.parametrize("path", [Path("/"), Path("/proc"), Path(__file__).parent])
def test_the_file_system_of_a_path_is_that_of_df(path: Path) -> None:
    """Of the root, of a file system of the kernel's, and of these tests.

    The kernel does not list the mount of a chroot's root: df then guesses another one.
    """
    found, expected = run_storage(path), df(path)
    stated = found and (found["type"], found["source"], found["mounted_at"])
    assert stated == (expected if path.is_relative_to(expected[2]) else None)
