"""Other programs' clients: Postfix's smtp-source, and imaptest if `IMAPTEST` is its path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench.client import PASSWORD, account, message
from bench.nullserver import pinned
from bench.processes import Cpus, run_program
from loadsim.errors import ConfigError
from loadsim.model.ports import Services

IMAPTEST_STATES = {"NOOP": "noop", "STORE": "store", "FETCH": "fetch2", "APPEND": "append"}
"""The names of operations in imaptest. Its FETCH2 asks for the whole message, its header or its text, at random; its
STORE sets or clears random flags of a message in a mailbox of ten, every other time without .SILENT."""

LIBRARIES = "/usr/lib/dovecot"
"""Where Debian has the libraries that imaptest is linked with."""

_COUNTS = re.compile(r"^((?: *\d+ )+) *(\d+)/(\d+)")


def smtp_source(cpus: Cpus, services: Services, sessions: int, size_bytes: int, count: int) -> float:
    """CPU microseconds of smtp-source for each message, over kept connections; its start is included."""
    program = shutil.which("smtp-source", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise ConfigError("bench: expected smtp-source of Postfix, found none: apt-get install postfix")
    cost = run_program(
        cpus,
        [
            *(program, "-d", "-l", str(size_bytes), "-m", str(count), "-s", str(sessions)),
            *(
                "-f",
                account(1).address,
                "-t",
                account(2).address,
                f"inet:{services.endpoint('smtp').host}:{services.endpoint('smtp').port}",
            ),
        ],
    )
    return (cost.user_s + cost.system_s) * 1e6 / count


def imaptest_path() -> str | None:
    """The program that `IMAPTEST` names; None when it names none. Raises `ConfigError` when there is no such file."""
    path = os.environ.get("IMAPTEST")
    if path and not Path(path).is_file():
        raise ConfigError(f"IMAPTEST: expected the path of imaptest, found {path}")
    return path or None


def imaptest(
    program: str, cpus: Cpus, services: Services, users: range, operation: str, seconds: int, plain: bool
) -> float:
    """CPU microseconds of imaptest for each command of this kind, from its first full second to its last.

    Each of the `users` has one session. `plain` is without pipelining and without tracking the mailbox's state.
    """
    state, sessions = IMAPTEST_STATES[operation], len(users)
    with tempfile.TemporaryDirectory() as place:
        mbox = Path(place) / "mbox"
        mbox.write_bytes(b"From a@b Sat Nov  1 00:00:00 2025\n" + message(1024).replace(b"\r\n", b"\n") + b"\n")
        command = [
            *(
                "stdbuf",
                "-oL",
                program,
                f"host={services.endpoint('imap').host}",
                f"port={services.endpoint('imap').port}",
            ),
            *("user=" + account(0).login.replace("0", "%d"), f"users={users[0]}-{users[-1]}", f"pass={PASSWORD}"),
            *(f"clients={sessions}", f"secs={seconds}", f"mbox={mbox}", "msgs=1000000"),
            *(("no_pipelining", "no_tracking") if plain else ()),
            *("-", "logout=0", "select=100", f"{state}=100,0"),
        ]
        environment = {**os.environ, "LD_LIBRARY_PATH": LIBRARIES}
        with pinned(cpus.client):
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            )
        points: list[tuple[float, int]] = []  # CPU seconds, commands so far
        done = 0
        assert process.stdout is not None
        try:
            with process.stdout as lines:
                for line in lines:
                    counts = _COUNTS.match(line)
                    if counts is None:
                        continue
                    done += int(counts[1].split()[-1])
                    if counts[2] == counts[3] == str(sessions):
                        points.append((_spent_s(process.pid), done))
            process.wait(seconds)
        finally:
            process.kill()
            process.wait()
    if len(points) < 2 or points[0][1] == points[-1][1]:
        raise ConfigError(f"bench: imaptest: expected it to do {operation} for {seconds} s, it did {done}")
    (first_s, first), (last_s, last) = points[0], points[-1]
    return (last_s - first_s) * 1e6 / (last - first)


def _spent_s(pid: int) -> float:
    """CPU time of another process so far (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)
