"""A client's costs of one operation: IMAP on the null server and on Dovecot, SMTP by size, also of other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import others, tables
from bench.client import account
from bench.nullserver import Shape, pinned, started
from bench.part import Part
from bench.processes import Cpus, interleave, run_client, short_directory, summary
from loadsim.model.mail_program import SUBMISSIONS
from loadsim.model.ports import Services
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

IMAP_CLIENTS = ("imap", "aioimaplib", "aioimaplib library")
"""Two drivers of loadsim, and the library without loadsim around it."""

INBOX_MESSAGES = 10
BODY_BYTES = 1024
LOOPS = ("asyncio", "uvloop")

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Imap:
    """The extent of a measurement of IMAP: `each` operations of a kind for each session, in each round."""

    rounds: int
    sessions: int
    each: int
    imaptest_s: int
    loops: tuple[str, ...] = ("uvloop",)

    def users(self, group: int) -> range:
        """Return the users of a group: 0 our clients', 1 imaptest's, 2 those of its APPEND, whose mail stays."""
        return range(1 + group * self.sessions, 1 + (group + 1) * self.sessions)


@dataclass(frozen=True, slots=True)
class Smtp:
    """The extent of a measurement of SMTP; a size is the bytes of a body, and the number of messages."""

    rounds: int
    sessions: int
    sizes: tuple[tuple[int, int], ...]
    loops: tuple[str, ...] = LOOPS


def imap_on_null(cpus: Cpus, size: Imap) -> Rows:
    """Every client and loop on the null server; imaptest too, where it is."""
    with started(Shape(messages=INBOX_MESSAGES, body_bytes=BODY_BYTES), cpus.server) as server:
        variants = _imap_variants(cpus, server.services, size)
        variants |= _imaptest_variants(cpus, server.services, size, {"imaptest": True})
        return rows_of("null", interleave(size.rounds, variants))


def imap_on_dovecot(cpus: Cpus, size: Imap) -> Rows:
    """Every client and loop on a private Dovecot; imaptest too, where it is."""
    with dovecot(cpus, size) as services:
        job = {"what": "create", "loop": "asyncio", "append_bytes": BODY_BYTES, "fill": INBOX_MESSAGES}
        run_client(cpus, {**job, "server": address_of(services), "sessions": 2 * size.sessions})
        variants = _imap_variants(cpus, services, size)
        kinds = {"imaptest": True, "imaptest, pipelining": False}
        variants |= _imaptest_variants(cpus, services, size, kinds)
        return rows_of("Dovecot", interleave(size.rounds, variants))


def smtp_on_null(cpus: Cpus, size: Smtp) -> Rows:
    """Every way to submit and loop on the null server, and smtp-source."""
    with started(Shape(), cpus.server) as server:
        services = server.services
        job = {"what": "smtp", "server": address_of(services), "sessions": size.sessions, "sizes": size.sizes}
        variants: dict[tuple[str, ...], Callable[[], Mapping[str, float]]] = {
            (submission, loop): partial(run_client, cpus, {**job, "loop": loop, "submission": submission})
            for submission in SUBMISSIONS
            for loop in size.loops
        }
        variants[("smtp-source", "C")] = lambda: {
            str(body_bytes): others.smtp_source(cpus, services, size.sessions, body_bytes, count)
            for body_bytes, count in size.sizes
        }
        return rows_of("null", interleave(size.rounds, variants))


@contextmanager
def dovecot(cpus: Cpus, size: Imap) -> Iterator[Services]:
    """A private Dovecot and Postfix with accounts for all clients, on the server's CPUs."""
    with short_directory() as place:
        accounts = [account(number) for group in range(3) for number in size.users(group)]
        with pinned(cpus.server):
            server = start_dovecot_postfix(accounts, {}, Path(place) / "server")
        with server:
            yield server.services


def _imap_variants(
    cpus: Cpus, services: Services, size: Imap
) -> dict[tuple[str, ...], Callable[[], Mapping[str, float]]]:
    job = {
        "what": "imap",
        "server": address_of(services),
        "sessions": size.sessions,
        "count": size.each,
        "append_bytes": BODY_BYTES,
    }
    return {
        (client, loop): partial(run_client, cpus, {**job, "client": client, "loop": loop})
        for client in IMAP_CLIENTS
        for loop in size.loops
    }


def _imaptest_variants(
    cpus: Cpus, services: Services, size: Imap, kinds: Mapping[str, bool]
) -> dict[tuple[str, ...], Callable[[], Mapping[str, float]]]:
    """imaptest, where it is; `kinds` says of which it is as we are: without pipelining and tracking of states."""
    program = others.imaptest_path()
    if program is None:
        return {}

    def measure(plain: bool) -> dict[str, float]:
        return {
            operation: others.imaptest(
                program, cpus, services, size.users(1 + (operation == "APPEND")), operation, size.imaptest_s, plain
            )
            for operation in others.IMAPTEST_STATES
        }

    return {(kind, "C"): partial(measure, plain) for kind, plain in kinds.items()}


def address_of(services: Services) -> tuple[str, int, int]:
    return services.endpoint("imap").host, services.endpoint("imap").port, services.endpoint("smtp").port


def rows_of(server: str, found: Mapping[tuple[str, ...], Mapping[str, list[float]]]) -> Rows:
    return [
        {"server": server, "client": client, "loop": loop, "operation": operation, "us": summary(figures)}
        for (client, loop), operations in found.items()
        for operation, figures in operations.items()
    ]


IMAP_NULL = Part(
    "imap_null",
    imap_on_null,
    {"CPU per IMAP operation, null server (microseconds of the client)": tables.imap},
    smallest=Imap(1, 3, 2, 1),
    short=Imap(3, 100, 20, 3, LOOPS),
    full=Imap(3, 100, 40, 4, LOOPS),
)
IMAP_DOVECOT = Part(
    "imap_dovecot",
    imap_on_dovecot,
    {"CPU per IMAP operation, Dovecot (microseconds of the client)": tables.imap},
    smallest=Imap(1, 3, 2, 1),
    full=Imap(3, 100, 50, 4),
)
SMTP_NULL = Part(
    "smtp_null",
    smtp_on_null,
    {"CPU per submitted message, null server (microseconds of the client)": tables.smtp},
    smallest=Smtp(1, 2, ((1024, 4),), ("uvloop",)),
    short=Smtp(3, 20, ((1024, 2000), (10_240, 1000), (102_400, 200))),
    full=Smtp(3, 20, ((1024, 4000), (10_240, 2000), (102_400, 500))),
)
