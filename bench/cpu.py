"""What one operation costs the client: IMAP on the null server and on Dovecot, SMTP by size, beside other clients."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import others
from bench.client import account
from bench.nullserver import Shape, pinned, started
from bench.processes import Cpus, interleave, run_client, summary
from loadsim.model.ports import SUBMISSIONS, Services
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

IMAP_CLIENTS = ("imap", "aioimaplib", "aioimaplib library")
"""Two client modules of loadsim, and the library without loadsim around it."""

IMAP_SESSIONS = 100
SMTP_SESSIONS = 20
BODY_BYTES = 1024
LOOPS = ("asyncio", "uvloop")

Rows = list[dict[str, Any]]


class Effort(NamedTuple):
    """How long to measure."""

    rounds: int
    null_count: int  # operations of a kind, for each session
    dovecot_count: int
    smtp_sizes: tuple[tuple[int, int], ...]  # bytes of a body, messages
    imaptest_s: int


SHORT = Effort(3, 20, 6, ((1024, 2000), (10_240, 1000), (102_400, 200)), 4)
FULL = Effort(9, 60, 20, ((1024, 10_000), (10_240, 5000), (102_400, 1000)), 8)


def imap_on_null(cpus: Cpus, effort: Effort) -> Rows:
    """Every client and loop on the null server."""
    with started(Shape(body_bytes=BODY_BYTES), cpus.server) as server:
        variants = _imap_variants(cpus, server.services, effort.null_count, LOOPS)
        return _rows("null", interleave(effort.rounds, variants))


def imap_on_dovecot(cpus: Cpus, effort: Effort) -> Rows:
    """Every client with uvloop on a private Dovecot; imaptest too, where it is."""
    with dovecot(cpus) as services:
        job = {"what": "create", "loop": "asyncio", "append_bytes": BODY_BYTES, "fill": 2 * effort.dovecot_count}
        run_client(cpus, {**job, "server": _address(services), "sessions": IMAP_SESSIONS})
        variants = _imap_variants(cpus, services, effort.dovecot_count, ("uvloop",))
        program = others.imaptest_path()
        if program is not None:
            for kind, plain in (("imaptest", True), ("imaptest, pipelining", False)):
                variants[(kind, "C")] = partial(_imaptest, program, cpus, services, effort.imaptest_s, plain)
        return _rows("Dovecot", interleave(effort.rounds, variants))


def smtp_on_null(cpus: Cpus, effort: Effort) -> Rows:
    """Every SMTP driver and loop on the null server, and smtp-source."""
    with started(Shape(), cpus.server) as server:
        services = server.services
        job = {"what": "smtp", "server": _address(services), "sessions": SMTP_SESSIONS, "sizes": effort.smtp_sizes}
        variants: dict[tuple[str, ...], Callable[[], Mapping[str, float]]] = {
            (submission, loop): partial(run_client, cpus, {**job, "loop": loop, "submission": submission})
            for submission in SUBMISSIONS
            for loop in LOOPS
        }
        variants[("smtp-source", "C")] = lambda: {
            str(size): others.smtp_source(cpus, services, SMTP_SESSIONS, size, count)
            for size, count in effort.smtp_sizes
        }
        return _rows("null", interleave(effort.rounds, variants))


@contextmanager
def dovecot(cpus: Cpus) -> Iterator[Services]:
    """A private Dovecot and Postfix with as many accounts as there are sessions, on the server's CPUs."""
    with tempfile.TemporaryDirectory(prefix="lsb", dir="/tmp") as place:
        Path(place).chmod(0o711)
        accounts = [account(number) for number in range(1, IMAP_SESSIONS + 1)]
        with pinned(cpus.server):
            server = start_dovecot_postfix(accounts, {}, Path(place) / "server")
        with server:
            yield server.services


def _imap_variants(
    cpus: Cpus, services: Services, count: int, loops: tuple[str, ...]
) -> dict[tuple[str, ...], Callable[[], Mapping[str, float]]]:
    job = {
        "what": "imap",
        "server": _address(services),
        "sessions": IMAP_SESSIONS,
        "count": count,
        "append_bytes": BODY_BYTES,
    }
    return {
        (client, loop): partial(run_client, cpus, {**job, "client": client, "loop": loop})
        for client in IMAP_CLIENTS
        for loop in loops
    }


def _imaptest(program: str, cpus: Cpus, services: Services, seconds: int, plain: bool) -> dict[str, float]:
    return {
        operation: others.imaptest(program, cpus, services, IMAP_SESSIONS, operation, seconds, plain)
        for operation in others.IMAPTEST_STATES
    }


def _address(services: Services) -> tuple[str, int, int]:
    return services.imap.host, services.imap.port, services.smtp.port


def _rows(server: str, found: Mapping[tuple[str, ...], Mapping[str, list[float]]]) -> Rows:
    return [
        {"server": server, "client": client, "loop": loop, "operation": operation, "us": summary(figures)}
        for (client, loop), operations in found.items()
        for operation, figures in operations.items()
    ]
