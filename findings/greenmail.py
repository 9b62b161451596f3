"""GreenMail for the scripts in this folder: an IMAP server with the user anna, whose password is "secret"."""

# ruff: noqa: S603, S607  (the script's own command)

import contextlib
import imaplib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def greenmail(*further: str) -> Iterator[Any]:
    """Run the jar that the first argument names. Yield its port or, with `further` protocols, the ports of all."""
    protocols = ("imap", *further)
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in protocols]
        ports = [each.getsockname()[1] for each in free]
    properties = {
        "greenmail.hostname": "127.0.0.1",
        **{f"greenmail.{protocol}.hostname": "127.0.0.1" for protocol in protocols},
        **{f"greenmail.{protocol}.port": port for protocol, port in zip(protocols, ports, strict=True)},
        "greenmail.users": "anna:secret@example.test",
        "greenmail.users.login": "local_part",
        "user.timezone": "UTC",
    }
    options = [f"-D{name}={value}" for name, value in properties.items()]
    with subprocess.Popen(["java", *options, "-jar", sys.argv[1]], stdout=subprocess.DEVNULL) as server:
        try:
            yield tuple(ports) if further else ports[0]
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
