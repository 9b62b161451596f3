"""When commands end, and whose time is left out of them, on loopback: IMAP and SMTP."""

import asyncio
import socket
import time
from contextlib import closing
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from loopback import connected, there

from loadsim.model.ports import Account
from loadsim.model.records import BOUND, KERNEL, Arrival
from loadsim.protocols.imap.commands import Literal
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.states import READY
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.smtp.commands import DATA, SmtpCommand
from loadsim.protocols.smtp.connection import SmtpConnection
from loadsim.protocols.transport import Transport
from loadsim.users.task_recorder import time_between

ACCOUNT = Account(1, "user1", "user1@loadsim.test", "secret")


class Ended(NamedTuple):
    name: str
    since_ns: int
    arrival: Arrival
    own_ns: int


class Ear:
    """An observer that keeps the ends of commands."""

    lines = NO_LINES
    now = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self.ended: list[Ended] = []

    def command(self, name: str, since: int, *rest: Any) -> None:
        *_, arrival, own_ns = rest
        self.ended.append(Ended(name, since, arrival, own_ns))

    def arrived(self, *_: Any) -> None: ...
    def lost(self, failure: Exception) -> None: ...


def imap(ear: Ear) -> Connection:
    connection = Connection(ACCOUNT, ear, 60.0, lambda _: None, lambda _: None)
    connection._state = READY
    return connection


def smtp(ear: Ear) -> SmtpConnection:
    return SmtpConnection(ACCOUNT, ear, 60.0, [])


async def asked(sock: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(sock, 65536)


@pytest.mark.parametrize("drive", ["imap", "smtp"])
async def test_the_first_of_two_answers_in_one_read_is_a_bound(drive: str) -> None:
    """Both are there before they are read. The second arrived when the kernel says, the first no later."""
    client, server = connected()
    ear = Ear()
    made: Any = {"imap": imap, "smtp": smtp}[drive](ear)
    with closing(server):
        server.setblocking(False)
        Transport(client, made, ear.now).begin()
        if drive == "imap":
            waits = [made.send("NOOP"), made.send("CHECK")]
            answers = [b"t1 OK\r\n", b"t2 OK\r\n"]
        else:
            waits = [asyncio.create_task(made.send(SmtpCommand("MAIL", b"MAIL\r\n"), SmtpCommand("RCPT", b"RCPT\r\n")))]
            answers = [b"250 fine\r\n", b"250 fine\r\n"]
        await asked(server)
        for answer in answers:
            server.send(answer)
        read_ns = there(client, sum(map(len, answers)))
        await asyncio.gather(*waits)
        assert [one.arrival[1] for one in ear.ended] == [BOUND, KERNEL]
        assert all(one.arrival[0] <= read_ns + 50_000 for one in ear.ended)
        made.abort()


@pytest.mark.parametrize("drive", ["imap", "smtp"])
async def test_the_time_in_which_the_server_waits_for_the_rest_is_ours(drive: str) -> None:
    """The server asks for a literal, or a message, which is sent later: what lies between is stated as our own."""
    client, server = connected()
    ear = Ear()
    made: Any = {"imap": imap, "smtp": smtp}[drive](ear)
    with closing(server):
        server.setblocking(False)
        Transport(client, made, ear.now).begin()
        if drive == "imap":
            wait: Any = made.send("APPEND", Literal(b"mail"))
            ask, end = b"+ go on\r\n", b"t1 OK\r\n"
        else:

            async def submit() -> None:
                await made.send(DATA)
                await made.go_on(b"mail\r\n.\r\n")

            wait = asyncio.create_task(submit())
            ask, end = b"354 go on\r\n", b"250 fine\r\n"
        await asked(server)
        asked_ns = time.monotonic_ns()
        server.send(ask)
        there(client, len(ask))
        rest = await asked(server)
        rest_ns = time.monotonic_ns()
        assert rest.startswith(b"mail")
        server.send(end)
        await wait
        (ended,) = ear.ended
        assert 0 < ended.own_ns <= rest_ns - asked_ns
        made.abort()


@pytest.mark.parametrize("drive", ["imap", "smtp"])
async def test_the_time_that_is_ours_lies_within_the_command(drive: str) -> None:
    """The wall clock is put forward by 10 s before the server's question is read: it seems to have come long before."""
    client, server = connected()
    ear = Ear()
    made: Any = {"imap": imap, "smtp": smtp}[drive](ear)
    with closing(server):
        server.setblocking(False)
        Transport(client, made, ear.now).begin()
        if drive == "imap":
            waits: list[Any] = [made.send("APPEND", Literal(b"mail"))]
            ask, end = b"+ go on\r\n", b"t1 OK\r\n"
        else:
            waits = [asyncio.create_task(made.send(DATA))]
            ask, end = b"354 go on\r\n", b"250 fine\r\n"
        await asked(server)
        server.send(ask)
        there(client, len(ask))
        ahead_ns = time.time_ns() + 10 * 10**9
        with patch.object(time, "time_ns", lambda: ahead_ns):
            if drive == "smtp":
                await waits[0]
                waits.append(asyncio.create_task(made.go_on(b"mail\r\n.\r\n")))
            await asked(server)
        server.send(end)
        await asyncio.gather(*waits)
        (ended,) = ear.ended
        assert ended.since_ns + ended.own_ns <= ended.arrival[0]
        made.abort()


@pytest.mark.parametrize(
    ("waits", "between_ns"),
    [
        ([(100, 150)], 0),
        ([(110, 150)], 10),
        ([(110, 120), (125, 150)], 15),
        ([(110, 120), (125, 140)], 25),
        ([(110, 150), (115, 120)], 10),  # pipelined
        ([(115, 120), (110, 150)], 10),  # reported in another order
        ([(90, 150)], 0),  # begun before
        ([(110, 120), (160, 170)], 40),  # begun after: read earlier, on another connection
    ],
)
def test_time_between_commands_is_what_none_of_them_covers(waits: list[tuple[int, int]], between_ns: int) -> None:
    """A task from 100 to 150. By hand."""
    assert time_between(waits, 100, 150) == between_ns
