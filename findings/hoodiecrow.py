"""hoodiecrow for the scripts in this folder: an IMAP server whose INBOX has two messages."""

# ruff: noqa: S603, S607  (the script's own command)

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator

MESSAGE = "From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
OPTIONS = {"plugins": ["IDLE"], "storage": {"INBOX": {"messages": [{"raw": MESSAGE}] * 2}, "": {}}}
START = f"""
const server = require("hoodiecrow-imap")({json.dumps(OPTIONS)});
server.listen(0, "127.0.0.1", () => console.log(server.server.address().port));
"""


@contextlib.contextmanager
def hoodiecrow() -> Iterator[int]:
    """Run the package of the working directory, and yield its port."""
    with subprocess.Popen(["node", "--no-deprecation", "-e", START], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.terminate()


class Session:
    """A session with the INBOX open."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), 10)
        self.lines = self.connection.makefile()
        self.until("* OK")
        self.ask("LOGIN testuser testpass")
        self.ask("SELECT INBOX")

    def ask(self, command: str, end: str = "a ") -> list[str]:
        """Send a command, and return the lines of its answer."""
        self.connection.sendall(f"a {command}\r\n".encode())
        return self.until(end)

    def until(self, end: str) -> list[str]:
        """Return the lines to the first that starts so."""
        received: list[str] = []
        while not received or not received[-1].startswith(end):
            line = self.lines.readline()
            if not line:
                raise EOFError
            received.append(line.rstrip())
        return received
