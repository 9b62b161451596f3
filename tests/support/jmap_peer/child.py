"""The JMAP peer as a child process."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .store import User

ROOT = Path(__file__).parents[3]


@contextmanager
def peer_process(users: Sequence[User], *settings: str) -> Iterator[int]:
    """Yield the port; a setting such as `query_limit=10` is a switch or a limit."""
    known = json.dumps([(user.name, user.address, user.password) for user in users])
    command = [sys.executable, "-m", "tests.support.jmap_peer", known, *settings]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()
    assert process.returncode == 0
