"""A terminal of a given size on the standard error of a process, whose screen a test reads."""

import os
import subprocess
from collections.abc import Mapping

import stderr_terminal


class Terminal(stderr_terminal.Terminal):
    """A process whose standard error is a terminal; its standard input and output are pipes."""

    def __init__(
        self, command: list[str], columns: int = 80, env: Mapping[str, str] | None = None, lines: int = 30
    ) -> None:
        super().__init__(columns, lines)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.theirs,
            text=True,
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
            | {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
            | dict(env or {}),
        )
        os.close(self.theirs)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self.ours)
