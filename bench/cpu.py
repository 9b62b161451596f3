"""What one operation costs the client: IMAP on the null server and on Dovecot, SMTP by size, beside other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import others
from bench.client import account
from bench.nullserver import Shape, pinned, started
from bench.processes import Cpus, interleave, run_client, short_directory, summary
from loadsim.model.ports import SUBMISSIONS, Services
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

IMAP_CLIENTS = ("imap", "aioimaplib", "aioimaplib library")
"""Two client modules of loadsim, and the library without loadsim around it."""

IMAP_SESSIONS = 100
OURS = range(1, IMAP_SESSIONS + 1)
THEIRS = range(IMAP_SESSIONS + 1, 2 * IMAP_SESSIONS + 1)
APPENDED_TO = range(2 * IMAP_SESSIONS + 1, 3 * IMAP_SESSIONS + 1)
"""Users of these clients, of imaptest, and of imaptest's APPEND: what it appends, nobody removes."""

INBOX_MESSAGES = 10
SMTP_SESSIONS = 20
BODY_BYTES = 1024
LOOPS = ("asyncio", "uvloop")

Rows = list[dict[str, Any]]


class Effort(NamedTuple):
    """How long to measure."""

    rounds: int
    null_count: int  # operations of a kind, for each session
    dovecot_rounds: int
    dovecot_count: int
    smtp_sizes: tuple[tuple[int, int], ...]  # bytes of a body, messages
    imaptest_s: int


SHORT = Effort(3, 20, 1, 20, ((1024, 2000), (10_240, 1000), (102_400, 200)), 3)
FULL = Effort(3, 40, 3, 50, ((1024, 4000), (10_240, 2000), (102_400, 500)), 4)


def imap_on_null(cpus: Cpus, effort: Effort) -> Rows:
    """Every client and loop on the null server; imaptest too, where it is."""
    with started(Shape(messages=INBOX_MESSAGES, body_bytes=BODY_BYTES), cpus.server) as server:
        variants = _imap_variants(cpus, server.services, effort.null_count, LOOPS)
        variants |= _imaptest_variants(cpus, server.services, effort.imaptest_s, {"imaptest": True})
        return _rows("null", interleave(effort.rounds, variants))


def imap_on_dovecot(cpus: Cpus, effort: Effort) -> Rows:
    """Every client with uvloop on a private Dovecot; imaptest too, where it is."""
    with dovecot(cpus) as services:
        job = {"what": "create", "loop": "asyncio", "append_bytes": BODY_BYTES, "fill": INBOX_MESSAGES}
        run_client(cpus, {**job, "server": _address(services), "sessions": len(OURS) + len(THEIRS)})
        variants = _imap_variants(cpus, services, effort.dovecot_count, ("uvloop",))
        kinds = {"imaptest": True, "imaptest, pipelining": False}
        variants |= _imaptest_variants(cpus, services, effort.imaptest_s, kinds)
        return _rows("Dovecot", interleave(effort.dovecot_rounds, variants))


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
    """A private Dovecot and Postfix with accounts for all clients, on the server's CPUs."""
    with short_directory() as place:
        accounts = [account(number) for number in (*OURS, *THEIRS, *APPENDED_TO)]
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
        "sessions": len(OURS),
        "count": count,
        "append_bytes": BODY_BYTES,
    }
    return {
        (client, loop): partial(run_client, cpus, {**job, "client": client, "loop": loop})
        for client in IMAP_CLIENTS
        for loop in loops
    }


def _imaptest_variants(
    cpus: Cpus, services: Services, seconds: int, kinds: Mapping[str, bool]
) -> dict[tuple[str, ...], Callable[[], Mapping[str, float]]]:
    """imaptest, where it is; `kinds` says of which it is as we are: without pipelining and tracking of states."""
    program = others.imaptest_path()
    if program is None:
        return {}

    def measure(plain: bool) -> dict[str, float]:
        return {
            operation: others.imaptest(
                program, cpus, services, APPENDED_TO if operation == "APPEND" else THEIRS, operation, seconds, plain
            )
            for operation in others.IMAPTEST_STATES
        }

    return {(kind, "C"): partial(measure, plain) for kind, plain in kinds.items()}


def _address(services: Services) -> tuple[str, int, int]:
    return services.imap.host, services.imap.port, services.smtp.port


def _rows(server: str, found: Mapping[tuple[str, ...], Mapping[str, list[float]]]) -> Rows:
    return [
        {"server": server, "client": client, "loop": loop, "operation": operation, "us": summary(figures)}
        for (client, loop), operations in found.items()
        for operation, figures in operations.items()
    ]
