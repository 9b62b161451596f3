"""One measured process: it does a job as a client and prints what the job cost, as JSON.

A job is a JSON object on the command line: `what` names the function of `JOBS`, `loop` the event loop. CPU time is
that of this process, user and system, around the operations alone: log-on and preparation are outside, and the
garbage collector is frozen before, as it is in a run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from aioimaplib import aioimaplib as library

from loadsim.model.ports import INBOX, Account, Endpoint, Flag, Mailbox, MessageRef, Part, Services
from loadsim.model.provisioning_ports import NewMessage
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.responses import Condition, Response
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.mapi.mailbox import MapiMailbox
from loadsim.protocols.registry import open_driver
from loadsim.statistics.nearest_rank import percentile

PASSWORD = "bench"
DOMAIN = "null.test"
KEPT = "Kept"
"""The folder where messages are moved to; on a real server it has been created before, by MAPI at the log-on."""

T = TypeVar("T")

LIMIT_S = 120.0
AT_ONCE = 50
"""Log-ons under way together."""

TICK_MS = 10
"""The interval at which the lag of the event loop is measured."""

OPERATIONS = ("NOOP", "STORE", "FETCH", "READ", "APPEND", "MOVE")
"""READ is FETCH and STORE, one after the other."""


def account(number: int) -> Account:
    """The account of user `number` on any server that is benchmarked."""
    return Account(number, f"bench{number}", f"bench{number}@{DOMAIN}", PASSWORD)


def message(size_bytes: int) -> bytes:
    """A message whose body has that size, in lines of 72 characters."""
    line = b"The quick brown fox jumps over the lazy dog, and then does it once more.\r\n"
    body = (line * (size_bytes // len(line) + 1))[: size_bytes - 2] + b"\r\n"
    header = (
        f"Date: Sat, 01 Nov 2025 00:00:00 +0000\r\nFrom: bench1@{DOMAIN}\r\nTo: bench2@{DOMAIN}\r\nSubject: bench\r\n"
        f"Message-ID: <n1.0.initial@{DOMAIN}>\r\nX-LoadSim: run=initial; from=1; id=n1.0; kind=ups1K;"
        " sent=1761955200000000; body=0123456789abcdef\r\n"
        "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n"
    )
    return header.encode() + body


class Quiet:
    """An observer with a clock, as a run has one, and with no records."""

    now = staticmethod(time.monotonic_ns)
    lines = NO_LINES

    def __init__(self) -> None:
        self.over = False  # nothing is measured any more: what is cut off is no failure

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
        """Every command must succeed: a figure for failures means nothing."""
        if outcome != "ok" and not self.over:
            raise RuntimeError(f"{name}: {outcome}")

    def arrived(self, messages: int, *_: Any) -> None:
        """Do nothing: no user waits for mail."""

    def lost(self, failure: Exception) -> None:
        """The next operation raises."""


class Client(Protocol):
    """One session under measurement; messages are named by their place among the last that `list` found."""

    async def log_on(self) -> None: ...
    async def list(self, count: int) -> None: ...
    async def noop(self) -> None: ...
    async def append(self, message: bytes) -> None: ...
    async def fetch(self, place: int) -> None: ...
    async def store(self, place: int) -> None: ...
    async def move(self, place: int) -> None: ...
    async def log_off(self) -> None: ...


class Driver:
    """A driver of loadsim, as tasks use it."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._refs: Sequence[MessageRef] = ()
        self._part = Part("1", "text/plain", 1024)

    async def log_on(self) -> None:
        await self.mailbox.log_on()
        if isinstance(self.mailbox, MapiMailbox) and KEPT not in await self.mailbox.folders():
            await self.mailbox.create(KEPT)
        await self.mailbox.open(INBOX)

    async def list(self, count: int) -> None:
        self._refs = [header.ref for header in await self.mailbox.headers(INBOX, count)]

    async def noop(self) -> None:
        if isinstance(self.mailbox, ImapMailbox):
            with self.mailbox.session as connection:
                await connection.send("NOOP")
        elif isinstance(self.mailbox, MapiMailbox):
            with self.mailbox.session:
                await self.mailbox.session.execute("NOOP", ())

    async def append(self, message: bytes) -> None:
        await self.mailbox.append(INBOX, message, (Flag.SEEN,))

    async def fetch(self, place: int) -> None:
        await self.mailbox.part(self._refs[place], self._part)

    async def store(self, place: int) -> None:
        await self.mailbox.flag([self._refs[place]], Flag.SEEN)

    async def move(self, place: int) -> None:
        await self.mailbox.move([self._refs[place]], KEPT)

    async def log_off(self) -> None:
        await self.mailbox.log_off()


class BareLibrary:
    """aioimaplib without anything of ours around it: the same commands, nothing checked but that they succeed."""

    def __init__(self, services: Services, account: Account) -> None:
        self._services = services
        self._account = account
        self._uids: list[str] = []

    async def log_on(self) -> None:
        self._client = library.IMAP4(
            self._services.endpoint("imap").host, self._services.endpoint("imap").port, timeout=LIMIT_S
        )
        await self._client.wait_hello_from_server()
        _check(await self._client.login(self._account.login, self._account.password))
        _check(await self._client.select(INBOX))

    async def list(self, count: int) -> None:
        found = _check(await self._client.uid_search("ALL", charset=None))
        self._uids = found.lines[0].decode().split()[-count:]

    async def noop(self) -> None:
        _check(await self._client.noop())

    async def append(self, message: bytes) -> None:
        _check(await self._client.append(message, INBOX, "\\Seen"))

    async def fetch(self, place: int) -> None:
        _check(await self._client.uid("fetch", self._uids[place], "(BODY.PEEK[1])"))

    async def store(self, place: int) -> None:
        _check(await self._client.uid("store", self._uids[place], "+FLAGS.SILENT", "(\\Seen)"))

    async def move(self, place: int) -> None:
        _check(await self._client.uid("move", self._uids[place], KEPT))

    async def log_off(self) -> None:
        _check(await self._client.logout())
        protocol: Any = self._client.protocol
        protocol.transport.abort()


def _check(response: library.Response) -> library.Response:
    if response.result != "OK":
        raise RuntimeError(str(response.result))
    return response


async def imap(job: Mapping[str, Any]) -> dict[str, float]:
    """CPU microseconds for each of the operations; all sessions at work at once, each waits for its answer.

    The job names `client`, `server`, `sessions`, `count` (of each operation, for each session) and `append_bytes`.
    """
    services = _services(job)
    numbers = range(1, int(job["sessions"]) + 1)
    clients: list[Client]
    if job["client"] == "aioimaplib library":
        clients = [BareLibrary(services, account(number)) for number in numbers]
    else:
        opened = open_driver(job["client"], services)
        clients = [Driver(opened.session(account(number), Quiet()).mailbox) for number in numbers]
    await _all(clients, lambda client: client.log_on())
    count = int(job["count"])
    text = message(int(job["append_bytes"]))

    async def read(client: Client, place: int) -> None:
        await client.fetch(place)
        await client.store(place)

    await _cost(clients, max(1, count // 2), lambda client, _: client.noop())  # nothing is measured cold
    found = {"APPEND": await _cost(clients, count, lambda client, _: client.append(text))}
    await _all(clients, lambda client: client.list(count))
    found["NOOP"] = await _cost(clients, count, lambda client, _: client.noop())
    found["STORE"] = await _cost(clients, count, lambda client, place: client.store(place))
    found["FETCH"] = await _cost(clients, count, lambda client, place: client.fetch(place))
    found["READ"] = await _cost(clients, count, read)
    found["MOVE"] = await _cost(clients, count, lambda client, place: client.move(place))
    await _all(clients, lambda client: client.log_off())
    await asyncio.sleep(0)  # an aborted connection is closed in the loop's next turn
    return found


async def create(job: Mapping[str, Any]) -> dict[str, float]:
    """Prepare the mailboxes of a real server: the folder to move to, and `fill` messages in the Inbox."""
    opened = open_driver("imap", _services(job))
    text = message(int(job["append_bytes"]))

    async def prepare(number: int) -> None:
        mailbox = opened.session(account(number), Quiet()).mailbox
        assert isinstance(mailbox, ImapMailbox)
        await mailbox.log_on()
        await mailbox.create(KEPT)
        await mailbox.append_many(INBOX, [NewMessage(text, (Flag.SEEN,))] * int(job["fill"]))
        await mailbox.log_off()

    await _all(list(range(1, int(job["sessions"]) + 1)), prepare)
    return {}


async def smtp(job: Mapping[str, Any]) -> dict[str, float]:
    """CPU microseconds for each submitted message, by its size in bytes; connections are kept.

    The job names `submission`, `server`, `sessions` and `sizes`: pairs of bytes and messages.
    """
    opened = open_driver("imap", replace(_services(job), submission=job["submission"]))
    drivers = [opened.session(account(number), Quiet()).submission for number in range(1, int(job["sessions"]) + 1)]
    sender, recipients = account(1).address, [account(2).address]
    found = {}
    for size_bytes, count in job["sizes"]:
        text = message(size_bytes)
        await _all(drivers, lambda driver: driver.send(sender, recipients, text))  # noqa: B023
        found[str(size_bytes)] = await _cost(
            drivers,
            count // len(drivers),
            lambda driver, _: driver.send(sender, recipients, text),  # noqa: B023
        )
    await _all(drivers, lambda driver: driver.close())
    return found


async def log_ons(job: Mapping[str, Any]) -> dict[str, float]:
    """CPU microseconds of a log-on up to IDLE, for users who were on before, and KiB of memory for each who is idle.

    The job names `server`, `sessions`, `tls`, `ca_file` and `resumes`.
    """
    services = _services(job)
    imap = replace(services.endpoint("imap"), tls=job["tls"], ca_file=job["ca_file"], resumes=job["resumes"])
    opened = open_driver("imap", replace(services, imap=imap))
    sessions = int(job["sessions"])
    mailboxes = [opened.session(account(number), Quiet()).mailbox for number in range(1, 2 * sessions + 1)]
    here, known = mailboxes[:sessions], mailboxes[sessions:]

    async def come(mailbox: Mailbox) -> None:
        await mailbox.log_on()
        await mailbox.watch()

    async def leave(mailbox: Mailbox) -> None:
        await mailbox.log_off()

    await _all(known[:AT_ONCE], come)
    await _all(known[:AT_ONCE], leave)
    before_kib = _resident_kib()  # with what a first log-on of anybody leaves behind
    await _all(here, come)
    grown_kib = _resident_kib() - before_kib
    await _all(known, come)
    await _all(known, leave)
    gc.collect()
    gc.freeze()
    before_s = spent_s()
    await _all(known, come)
    log_on_us = (spent_s() - before_s) * 1e6 / sessions
    resumed = [_is_resumed(mailbox) for mailbox in known]
    if set(resumed) != {job["tls"] != "none" and bool(job["resumes"])}:
        raise RuntimeError(f"{sum(resumed)} of {sessions} TLS sessions were resumed")
    await _all(mailboxes, leave)
    await asyncio.sleep(0)
    return {"log_on_us": log_on_us, "idle_kib": grown_kib / sessions}


def _is_resumed(mailbox: Mailbox) -> bool:
    assert isinstance(mailbox, ImapMailbox)
    connection = mailbox.session.connection
    assert isinstance(connection, Connection)
    assert connection._transport is not None
    secured = connection._transport.get_extra_info("ssl_object")
    return secured is not None and bool(secured.session_reused)


def _resident_kib() -> float:
    """Memory of this process (proc_pid_statm(5))."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


class _Stamped(ImapSession):
    """A session that reads the null server's time of sending from each push, and wakes the coroutine that waits."""

    def __init__(self, services: Services, number: int) -> None:
        self.quiet = Quiet()
        super().__init__(services.endpoint("imap"), None, account(number), self.quiet, LIMIT_S)
        self.waiting: asyncio.Future[int] | None = None

    def _on_response(self, response: Response) -> None:
        super()._on_response(response)
        if (
            isinstance(response, Condition)
            and response.code is not None
            and response.code.name == "SENT"
            and self.waiting is not None
            and not self.waiting.done()
        ):
            self.waiting.set_result(int(response.code.arguments))


async def lateness(job: Mapping[str, Any]) -> dict[str, Any]:
    """Milliseconds from the server's write to the coroutine that waits for it, in `seconds`, by percentile; CPU share.

    Each of the `sessions` idles, is woken by a push, looks at what is new and idles again, as users do.
    """
    lags_ns: list[int] = []
    sessions = [_Stamped(_services(job), number) for number in range(1, int(job["sessions"]) + 1)]

    async def live(session: _Stamped) -> None:
        mailbox = ImapMailbox(session)
        await mailbox.headers(INBOX, 1)
        while True:
            session.waiting = asyncio.get_running_loop().create_future()
            await mailbox.watch()
            sent_ns = await session.waiting
            lags_ns.append(time.monotonic_ns() - sent_ns)
            session.waiting = None
            await mailbox.arrived()

    await _all(sessions, lambda session: session.log_on())
    gc.collect()
    gc.freeze()
    lives = [asyncio.ensure_future(live(session)) for session in sessions]
    await asyncio.sleep(1)  # everybody has come to wait
    lags_ns.clear()
    before_s, began_s = spent_s(), time.monotonic()
    await asyncio.sleep(float(job["seconds"]))
    share = (spent_s() - before_s) / (time.monotonic() - began_s)
    for session, life in zip(sessions, lives, strict=True):
        session.quiet.over = True
        life.cancel()
    await asyncio.gather(*lives, return_exceptions=True)
    for session in sessions:
        session.abandon()
    return {"cpu_share": round(share, 3), "pushes": len(lags_ns), "lag_ms": _lag_ms(lags_ns)}


class _Looking(Quiet):
    """An observer whose user, once at work, looks at new mail and waits on."""

    def __init__(self) -> None:
        super().__init__()
        self.mailbox: Mailbox
        self.is_at_work = False
        self.looks = 0
        self.looking: asyncio.Task[None] | None = None

    def arrived(self, messages: int, *_: Any) -> None:
        if self.is_at_work and (self.looking is None or self.looking.done()):
            self.looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        await self.mailbox.arrived()
        self.looks += 1
        await self.mailbox.watch()


async def idle(job: Mapping[str, Any]) -> dict[str, Any]:
    """KiB of memory for each user who waits for mail, and what `seconds` of new mail add; CPU share; lag of the loop.

    The job names `client`, `server`, `sessions`, `seconds` and, with TLS, `ca_file`.
    """
    opened, observers = open_driver(job["client"], _services(job)), [_Looking() for _ in range(int(job["sessions"]))]
    for number, observer in enumerate(observers, 1):
        observer.mailbox = opened.session(account(number), observer).mailbox
    mailboxes = [observer.mailbox for observer in observers]

    async def come(mailbox: Mailbox) -> None:
        await mailbox.log_on()
        await mailbox.headers(INBOX, 10)
        await mailbox.watch()

    await _all(mailboxes[:AT_ONCE], come)
    await _all(mailboxes[:AT_ONCE], lambda mailbox: mailbox.log_off())
    before_kib, began_s = _resident_kib(), time.monotonic()  # with what a first log-on of anybody leaves behind
    await _all(mailboxes, come)
    log_on_s, idle_kib = time.monotonic() - began_s, _resident_kib() - before_kib
    gc.freeze()
    for observer in observers:
        observer.is_at_work = True
    before_s, began_s, lags_ns = spent_s(), time.monotonic(), list[int]()
    while time.monotonic() - began_s < float(job["seconds"]):
        due_ns = time.monotonic_ns() + TICK_MS * 10**6
        await asyncio.sleep(TICK_MS / 1000)
        lags_ns.append(time.monotonic_ns() - due_ns)
    share = (spent_s() - before_s) / (time.monotonic() - began_s)
    for observer in observers:
        observer.is_at_work = False
    await asyncio.gather(*(observer.looking for observer in observers if observer.looking is not None))
    grown_kib = _resident_kib() - before_kib - idle_kib
    for observer in observers:
        observer.over = True
        observer.mailbox.abandon()
    await asyncio.sleep(0)
    memory = {"idle_kib": idle_kib / len(mailboxes), "grown_kib": grown_kib / len(mailboxes)}
    return {
        **memory,
        "log_on_s": log_on_s,
        "looks": sum(each.looks for each in observers),
        "cpu_share": round(share, 3),
        "lag_ms": _lag_ms(lags_ns),
    }


def _lag_ms(lags_ns: list[int]) -> dict[str, float]:
    ordered, ranks = np.sort(np.array(lags_ns, np.int64)), {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    return {name: round(percentile(ordered, rank) * 1e-6, 3) for name, rank in ranks.items()}


async def _all(clients: Sequence[T], do: Callable[[T], Awaitable[object]]) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: T) -> None:
        async with gate:
            await do(client)

    await asyncio.gather(*(one(client) for client in clients))


async def _cost(clients: Sequence[T], count: int, do: Callable[[T, int], Awaitable[object]]) -> float:
    """CPU microseconds, user and system, of one operation."""

    async def one(client: T) -> None:
        for place in range(count):
            await do(client, place)

    gc.collect()
    gc.freeze()
    before_s = spent_s()
    await asyncio.gather(*(one(client) for client in clients))
    return (spent_s() - before_s) * 1e6 / (count * len(clients))


def spent_s() -> float:
    """CPU time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _services(job: Mapping[str, Any]) -> Services:
    if path := job.get("path"):
        host, port = job["server"]
        return Services(mapi=Endpoint(host, port, path=path), command_limit_s=LIMIT_S)
    ca_file = job.get("ca_file")
    secured: dict[str, Any] = {"tls": "implicit" if ca_file else "none", "ca_file": ca_file}
    if job.get("client") == "jmap":
        host, port = job["server"]
        return Services(jmap=Endpoint(host, port, **secured), command_limit_s=LIMIT_S)
    host, imap_port, smtp_port = job["server"]
    smtp = Endpoint(host, smtp_port, connection="kept", auth=False)
    return Services(Endpoint(host, imap_port, **secured), smtp, LIMIT_S)


JOBS: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
    "imap": imap,
    "create": create,
    "smtp": smtp,
    "lateness": lateness,
    "idle": idle,
    "log_ons": log_ons,
}


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The event loop of this name: asyncio or uvloop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module(name).new_event_loop
    return factory


def main(text: str) -> None:
    """Do the job, print what was found."""
    job: dict[str, Any] = json.loads(text)

    async def work() -> dict[str, Any]:
        return await JOBS[job["what"]](job)

    with asyncio.Runner(loop_factory=loop_factory(job["loop"])) as runner:
        print(json.dumps(runner.run(work())))


if __name__ == "__main__":
    main(sys.argv[1])
