"""The JMAP peer as a child process."""

import csv
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .store import User

ROOT = Path(__file__).parents[3]


@contextmanager
def peer_process(directory: Path, users: Sequence[User], *settings: str) -> Iterator[int]:
    """Write `users.csv`, and yield the port; a setting such as `query_limit=10` is a switch or a limit."""
    with (directory / "users.csv").open("w", newline="") as table:
        csv.writer(table).writerows(
            [("user", "address", "password"), *((u.name, u.address, u.password) for u in users)]
        )
    command = [sys.executable, "-m", "tests.support.jmap_peer", "--accounts", str(directory / "users.csv")]
    command += [f"--switch={setting}" for setting in settings]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()
    assert process.returncode == 0
