"""Checks of processes and ports that a test expects to be gone."""

import os
import select
import socket

from patience import PATIENCE_S


def ended(pid: int) -> bool:
    """Return if a process that is not a child of this one ends within the time limit."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], PATIENCE_S)[0])
    finally:
        os.close(process)


def refuses(port: int) -> bool:
    """Return if no process listens on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
