"""The embedded mail server, a child process on loopback. It does not need root, and its scores are not measurements."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.servers.running import RunningServer, check_population

LOG_NAME = "embedded-server.log"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0


class EmbeddedServer(RunningServer):
    """A running embedded server in one child process, without TLS."""

    def __init__(self, process: subprocess.Popen[bytes], services: Services, versions: Mapping[str, str]) -> None:
        self._process = process
        self.services = services
        self._versions = dict(versions)

    @property
    def pid(self) -> int:
        return self._process.pid

    def describe(self) -> str:
        """Return the name and versions, with a note that its scores are not measurements."""
        versions = " + ".join(f"{name} {version}" for name, version in self._versions.items())
        return f"{versions} (embedded, not a measurement)"

    def stop(self) -> None:
        """End the child and wait for it. A second call does nothing."""
        _end(self._process)


def start_embedded(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    module: str = "loadsim.servers.embedded_child",
) -> EmbeddedServer:
    """Start pymap (IMAP, in memory) and aiosmtpd (SMTP) for these accounts and lists, and wait until they are ready.

    `lists` maps an address to its members' addresses. The server writes its log into `directory`, which must exist.
    Raises `ConfigError` if accounts conflict, or the child does not start.
    """
    population, lists = check_population(accounts, lists)
    content = {
        "accounts": [(account.login, account.address, account.password) for account in population],
        "lists": lists,
    }
    log = directory / LOG_NAME
    try:
        log.unlink(missing_ok=True)
        log.touch(mode=0o600)
    except OSError as error:
        raise ConfigError(f"server: embedded: {log}: expected to write a log, found: {error.strerror}") from None
    with log.open("wb") as output:
        # A separate session shields it from Ctrl-C; the libraries' deprecation warnings do not concern users.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-W", "ignore", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has exited; `_first_line` reports its log's last line
            process.stdin.write(json.dumps(content).encode() + b"\n")
            process.stdin.flush()
        ready = json.loads(_first_line(process.stdout, log))
    except BaseException:
        _end(process)
        raise
    endpoints = {name: Endpoint("127.0.0.1", port, path=path) for name, (port, path) in ready["services"].items()}
    services = Services(imap=endpoints.get("imap"), smtp=endpoints.get("smtp"), mapi=endpoints.get("mapi"))
    return EmbeddedServer(process, services, ready["versions"])


start_embedded_mapi = partial(start_embedded, module="loadsim.servers.embedded_mapi")
"""Starts the embedded MAPI server instead."""


def _first_line(stream: IO[bytes], log: Path) -> bytes:
    """Return the child's line with its ports. If there is none, raises `ConfigError` with its log's last line."""
    ready, _, _ = select.select([stream], [], [], START_LIMIT_S)
    if not ready:
        raise ConfigError(f"server: embedded: expected to be ready within {START_LIMIT_S:.0f} s, see {log}")
    line = stream.readline()  # written in one piece
    if not line:
        lines = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        raise ConfigError(f"server: embedded: expected to start, it exited with: {lines[-1]}")
    return line


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the child's standard input, which makes it exit; after a time limit, terminate it, then kill it."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    for end in (process.terminate, process.kill):
        try:
            process.wait(STOP_LIMIT_S)
            return
        except subprocess.TimeoutExpired:
            end()
    process.wait()
