"""GreenMail for the scripts in this folder: an IMAP server with the user anna, whose password is "secret"."""

# ruff: noqa: S603, S607  (the script's own command)

import contextlib
import imaplib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def greenmail() -> Iterator[int]:
    """Run the jar that the first argument names, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    properties = {
        "greenmail.hostname": "127.0.0.1",
        "greenmail.imap.hostname": "127.0.0.1",
        "greenmail.imap.port": port,
        "greenmail.users": "anna:secret@example.test",
        "greenmail.users.login": "local_part",
        "user.timezone": "UTC",
    }
    options = [f"-D{name}={value}" for name, value in properties.items()]
    with subprocess.Popen(["java", *options, "-jar", sys.argv[1]], stdout=subprocess.DEVNULL) as server:
        try:
            yield port
        finally:
            server.terminate()


def log_on(port: int) -> imaplib.IMAP4:
    """Return a session of anna's, as soon as the server answers."""
    for _ in range(300):
        try:
            imap = imaplib.IMAP4("127.0.0.1", port)
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            imap.login("anna", "secret")
            return imap
    raise TimeoutError
