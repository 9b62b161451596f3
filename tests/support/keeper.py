"""A process that outlives a test run by some seconds, and ends all processes that the run has left behind.

Tests start mail servers, controllers and clients that outlive their parent by design. A run that is killed cannot end
them. The keeper reads a pipe from the run's first process: at its end that process is gone. Every process that
the run started carries `TOKEN` in its environment. Mail servers clear theirs: the run's directory stands in the command
lines of their masters, and the others share a session with one.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TOKEN, PLACE, LAB = "LOADSIM_TESTS", "LOADSIM_TESTS_PLACE", "LOADSIM_LAB"
"""Environment variables: the run's name, its directory, and the prefix of the names of its network namespaces."""

GRACE_S = 5.0
"""The time that processes have to exit after SIGTERM."""

POLL_S = 0.05


def start() -> Callable[[], None]:
    """Name this run in the environment and start its keeper. Return a function that waits until all is cleared away."""
    token = secrets.token_hex(4)
    place = place_of(token)
    place.mkdir(mode=0o711)  # the servers' users enter it; sockets need a short name
    keeper = subprocess.Popen(
        [sys.executable, __file__, token],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.environ["PATH"]},
    )
    os.environ |= {TOKEN: token, PLACE: str(place), LAB: f"lst-{token}"}

    def finish() -> None:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait()

    return finish


def place_of(token: str) -> Path:
    return Path(f"/tmp/lst{token}")


def processes(token: str) -> set[int]:
    """Return the running processes of this run: those that carry its name, and all of the sessions that they lead."""
    name, place = f"{TOKEN}={token}".encode(), str(place_of(token)).encode()
    named, sessions = set(), {}
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            pid = int(entry.name)
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]  # proc_pid_stat(5)
            if state != "Z":
                sessions[pid] = int(session)
                if name in (entry / "environ").read_bytes().split(b"\0") or place in (entry / "cmdline").read_bytes():
                    named.add(pid)
    led = {sessions[pid] for pid in named} & named
    return named | {pid for pid, session in sessions.items() if session in led}


def end_all(token: str) -> None:
    """End these processes: with SIGTERM first, since a mail server's master then ends its children."""
    deadline_s = time.monotonic() + GRACE_S
    asked: set[int] = set()
    while left := processes(token):
        late = time.monotonic() > deadline_s
        for pid in left if late else left - asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked |= left
        time.sleep(POLL_S)


def remove_namespaces(token: str) -> None:
    """Remove the run's network namespaces; without a command `ip` that this user may run, there are none."""
    with suppress(OSError):
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
        for name in re.findall(rf"^lst-{token}\S*", listed, re.MULTILINE):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def main() -> None:
    """Wait for the end of the run that is named on the command line, and clear away after it."""
    [token] = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_all(token)
    remove_namespaces(token)
    shutil.rmtree(place_of(token), ignore_errors=True)


if __name__ == "__main__":
    main()
