"""Test hosts that look like machines to their users: a name, a home directory, SSH to the others, and `loadsim`.

What is typed at one runs as root, in namespaces of its own in which root has another home directory: nothing of the
real one is seen or touched. Keys and SSH servers are made for the purpose, and go with the hosts.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from paths import ROOT, SUPPORT
from patience import PATIENCE_S

from bench.hosts import Host, hosts
from loadsim.servers.command import find

PROGRAMS = {"loadsim": "-m loadsim", "dask": "-m dask", "python": ""}
"""Programs of `loadsim/.venv/bin` with their arguments to Python: the tests' own installation."""

ENTER = """
mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/hosts && hostname "$3" && export HOME="$4" && cd || exit
shift 4
exec "$@"
"""
"""The way into a machine: who has which home there, the table of names, the machine's own, its home directory."""

SSHD = """
HostKey {keys}/host
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
PidFile none
Subsystem sftp internal-sftp
"""


SERVE = 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$1" -D -e -f "$2"'
"""sshd wants a directory there, which Debian makes when the machine starts."""


class Machine:
    def __init__(self, name: str, host: Host, home: Path, names: Path) -> None:
        self.name = name
        self.address = host.address
        self.home = home
        self._host = host
        users = home / ".passwd"
        self._way = ["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", users, names, name, home]

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        return self._host.run([*self._way, "bash", "-c", f"{ACTIVATE}; {line}"], PATIENCE_S, env=environment())

    def start(self, arguments: Sequence[str | Path]) -> subprocess.Popen[str]:
        """Start a program there; all that it says is on its standard output."""
        return self._host.start(
            [*self._way, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
        )

    @contextmanager
    def typing(self, line: str, until: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on, once it has said all of this, each in a line; ended by Ctrl-C with the block."""
        command = self.start(["bash", "-c", f"{ACTIVATE}; exec {line}"])
        watchdog = threading.Timer(PATIENCE_S, command.kill)
        watchdog.start()
        try:
            assert command.stdout is not None
            received: list[str] = []
            missing = list(until)
            while missing:
                said = command.stdout.readline()
                assert said, f"{self.name}$ {line}: expected {missing}, found {received}"
                received.append(said)
                missing = [each for each in missing if each not in said]
            watchdog.cancel()
            yield command
        finally:
            command.send_signal(signal.SIGINT)
            try:
                command.communicate(timeout=PATIENCE_S)
            finally:
                watchdog.cancel()
                command.kill()


ACTIVATE = ". loadsim/.venv/bin/activate"


def environment() -> dict[str, str]:
    """The environment of a new shell; its output is unbuffered, as on a terminal."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


@contextmanager
def machines(place: Path, *names: str) -> Iterator[dict[str, Machine]]:
    """Machines of these names, the first of which may log on to all by SSH; `place` holds their home directories."""
    keys = place / "keys"
    keys.mkdir()
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / key], check=True)
    (keys / "sshd_config").write_text(SSHD.format(keys=keys))
    host_key = " ".join((keys / "host.pub").read_text().split()[:2])
    with hosts(len(names)) as made:
        addresses = dict(zip(names, (host.address for host in made), strict=True))
        table = place / "names"
        table.write_text("127.0.0.1 localhost\n" + "".join(f"{addresses[name]} {name}\n" for name in names))
        found = {}
        for name, host in zip(names, made, strict=True):
            home = place / name
            _furnish(home, keys)
            found[name] = Machine(name, host, home, table)
        first = place / names[0] / ".ssh"
        shutil.copy(keys / "user", first / "id_ed25519")
        (first / "known_hosts").write_text("".join(f"{name},{addresses[name]} {host_key}\n" for name in names))
        with ExitStack() as serving:
            for machine in found.values():
                serving.enter_context(_serving_ssh(machine, keys))
            yield found


def _furnish(home: Path, keys: Path) -> None:
    """Make a home directory with loadsim installed, and the public key that may log on."""
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    shutil.copy(keys / "user.pub", home / ".ssh" / "authorized_keys")
    programs = home / "loadsim" / ".venv" / "bin"
    programs.mkdir(parents=True)
    path = os.pathsep.join((str(ROOT), str(SUPPORT)))
    for program, module in PROGRAMS.items():
        (programs / program).write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} {module} "$@"\n')
        (programs / program).chmod(0o755)
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    others = (":".join(map(str, user)) for user in pwd.getpwall() if user.pw_uid != 0)
    (home / ".passwd").write_text("\n".join([f"root:x:0:0:root:{home}:/bin/bash", *others, ""]))


@contextmanager
def _serving_ssh(machine: Machine, keys: Path) -> Iterator[None]:
    """Have it serve SSH as long as the block lasts."""
    serving = machine.start(["sh", "-c", SERVE, "sh", str(find("sshd")), keys / "sshd_config"])
    assert serving.stdout is not None
    received = serving.stdout.readline()
    try:
        assert "Server listening" in received, received
        yield
    finally:
        serving.terminate()
        serving.communicate(timeout=PATIENCE_S)
