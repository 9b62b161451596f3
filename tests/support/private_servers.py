"""Checks that hold for all private servers: a taken port is bad input, and they end with the process that has them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import ended, refuses

from loadsim.errors import ConfigError
from loadsim.servers.private import free_port


def assert_refuses_a_taken_port(start: Callable[..., Any], service: str) -> None:
    """A port that was asked for (`imap_port` or `smtp_port`) and that somebody has: one line, and nothing is left."""
    with socket.create_server(("127.0.0.1", free_port())) as somebody:
        ports = {"imap_port": free_port(), "smtp_port": free_port()} | {service: somebody.getsockname()[1]}
        with pytest.raises(ConfigError, match="Address already in use") as refused:
            start(**ports)
        assert "\n" not in str(refused.value)
    assert all(refuses(port) for port in ports.values())


def assert_ends_with_its_parent(start: str, directory: Path, least: int = 1, programs: Path | None = None) -> None:
    """If the process is killed that started a server by this function, all processes of it, at least so many, end."""
    options = "" if programs is None else f", programs=Path({str(programs)!r})"
    module = start.removeprefix("start_")
    package = "loadsim.servers" if module == "dovecot_postfix" else "other_servers"
    program = f"""
import sys
from pathlib import Path
from loadsim.model.ports import Account
from {package}.{module} import {start}
server = {start}([Account(1, "a", "a@x", "p")], {{}}, Path({str(directory)!r}){options})
print(*server.pids(), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
        parent.wait()
        assert len(pids) >= least
        assert all(ended(pid) for pid in pids)
