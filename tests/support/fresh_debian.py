"""A fresh Debian in which a test types as an ordinary user: a chroot in namespaces of its own.

Its files are in memory, but for temporary ones: tests of disks refuse memory.

`tests/install-fresh-debian.sh` makes what it starts from. Nothing stays behind, also if the test is killed: the mounts
end with the last process, and the processes with the first one, which the kernel kills when the test ends.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from paths import ROOT
from shells import Shell, shell

from loadsim.errors import ConfigError

STABLE, NEXT = "trixie", "sid"
"""The release that users have, and what becomes the one after."""

BASES = Path("/var/cache/loadsim")
USER = "you"

START = """
set -e
mount -t tmpfs -o size=8g,mode=755 tmpfs "$2"
cd "$2"
mkdir upper work root
mount -t overlay -o "lowerdir=$1,upperdir=upper,workdir=work" overlay root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount --rbind /sys root/sys
mount --bind /etc/ssl/certs root/etc/ssl/certs
for each in tmp var/tmp; do mount --bind "$3" "root/$each"; done
cp /etc/resolv.conf root/etc/
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf root/etc/
hostname vm
echo vm >root/etc/hostname
echo '127.0.0.1 localhost vm' >root/etc/hosts
exec chroot root bash -c 'echo started; while :; do sleep 1d & wait -n; done'
"""
"""Lay the machine's files over the base system; then be its first process, which takes in orphans."""


LOOPBACK = "ip link set lo up && exec sh -c 'sleep 1d >/dev/null & echo $!'"
"""Set up a network without others, which lasts as long as a process that holds it."""

KEPT = 'env HOME="$HOME" USER="$USER" PATH="$PATH" TERM="$TERM" VIRTUAL_ENV="$VIRTUAL_ENV"'
"""Variables of the environment that sudo would drop."""


def base_system(release: str) -> Path:
    """Return the directory of a base system. Raises `ConfigError` if it is missing, or without permission to mount."""
    if os.geteuid() != 0:
        raise ConfigError("fresh Debian: expected root, for a chroot")
    base = BASES / f"debian-{release}"
    if not (base / "home" / USER).is_dir():
        raise ConfigError(f"fresh Debian: expected {base}, found none: sh tests/install-fresh-debian.sh {release}")
    return base


class FreshDebian:
    """A machine, whose namespaces are those of its `first` process, and whose root directory is `root`."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._network = 0
        self.root = Path(f"/proc/{first}/root")
        self.home = self.root / "home" / USER

    def terminal(self) -> AbstractContextManager[Shell]:
        network = [f"--net=/proc/{self._network}/ns/net"] if self._network else []
        enter = ["nsenter", f"--target={self.first}", "--mount", "--uts", "--ipc", "--pid", "--root", "--wd=/"]
        return shell([*enter, *network, "su", "--login", USER])

    def unplug(self, *terminals: Shell) -> None:
        """Cut the machine off the network, so that its servers' ports are its own. Open terminals are taken along."""
        started = subprocess.Popen(
            ["nsenter", f"--target={self.first}", "--pid", "unshare", "--net", "sh", "-c", LOOPBACK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        with started as outer:
            assert outer.stdout is not None
            pid = int(outer.stdout.readline())  # within the machine
        (self._network,) = [each for each in self.processes() if _pid_within(each) == pid]
        for each in terminals:
            each.enter(
                f"sudo nsenter --net=/proc/{pid}/ns/net setpriv --reuid={USER} --regid={USER} --init-groups {KEPT}"
            )

    def processes(self) -> dict[int, str]:
        """Return the command lines of the processes in the machine."""
        namespace = Path(f"/proc/{self.first}/ns/pid").readlink()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is none that we may look at
                if (process / "ns" / "pid").readlink() == namespace:
                    found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        return found

    def put(self, directory: Path, name: str) -> None:
        """Copy a directory into the user's home, as theirs."""
        home = self.home.stat()
        shutil.copytree(directory, self.home / name)
        for path in [self.home / name, *(self.home / name).rglob("*")]:
            os.chown(path, home.st_uid, home.st_gid)


def _pid_within(pid: int) -> int:
    """Return the number of a process in its own namespace."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid:")]
    return int(line.split()[-1])


@contextmanager
def fresh_debian(release: str, place: Path) -> Iterator[FreshDebian]:
    """Start a fresh machine, whose files are mounted on the empty directory `place`, for itself alone.

    Its user has a bare clone of this repository in the home directory, by the name that the tutorials print.
    """
    base, bare = base_system(release), place / "bare"
    mounted, temporary = place / "mounted", place / "temporary"
    mounted.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    subprocess.run(["git", "clone", "-q", "--bare", ROOT, bare], check=True)
    namespaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    with subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", "--", *namespaces, "sh", "-c", START, "sh", base, mounted, temporary],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == "started\n"
            (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            machine = FreshDebian(int(first))
            machine.put(bare, "REPOSITORY")
            yield machine
        finally:
            outer.kill()
