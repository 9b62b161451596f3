"""The benchmarks, and their null server: other clients work with it, and loadsim's see the mail that they send."""

from __future__ import annotations

import asyncio
import imaplib
import smtplib
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from patience import PATIENCE_S

from bench import client as measured
from bench import logs
from bench.nullserver import NullServer, Shape, started
from bench.processes import interleave, share_cpus
from loadsim.errors import ConfigError
from loadsim.model.mail_program import SUBMISSIONS
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import DELETED_ITEMS, INBOX, Account, Flag, Session
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.registry import open_driver

pytestmark = pytest.mark.system

MESSAGES = 5
BODY_BYTES = 3000
TAG = MessageTag("r1", 2, "n2.0", "ups1K", 1_700_000_000_000_000, "0123456789abcdef")
KEPT = TAG._replace(body="")  # of each body, another is shown
MESSAGE = (
    "From: Somebody <user2@null.test>\r\n"
    "To: user7@null.test,\r\n all@null.test\r\n"
    'Subject: one "and" a \\\r\n'
    "Message-ID: <n2.0.r1@null.test>\r\n"
    f"X-LoadSim: {TAG.header()}\r\n"
    "\r\n"
    "first line\r\n.\r\nlast line\r\n"
).encode()


class Ear:
    """An observer that knows how many new messages were announced."""

    def __init__(self) -> None:
        self.announced = 0
        self.told = asyncio.Event()
        self.lines = NO_LINES

    def now(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
        """Every command must succeed."""
        assert outcome == "ok", name

    def arrived(self, messages: int, *_: Any) -> None:
        """Count announced messages."""
        self.announced += messages
        self.told.set()

    def lost(self, failure: Exception) -> None:
        """No session may be lost."""
        raise AssertionError(failure)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NullServer]:
    """Two workers, so that mail crosses from one to the other; one distribution list."""
    lists = tmp_path_factory.mktemp("null") / "aliases"
    lists.write_text("all@null.test\tuser7@null.test,\n\tuser8@null.test\nfew@null.test\tuser9@null.test\n")
    with started(Shape(workers=2, messages=MESSAGES, folders=2, body_bytes=BODY_BYTES, lists=lists)) as running:
        yield running


@contextmanager
def logged_on(server: NullServer, login: str) -> Iterator[imaplib.IMAP4]:
    """An imaplib session with the Inbox open."""
    with imaplib.IMAP4(server.services.imap.host, server.services.imap.port, PATIENCE_S) as client:
        client.login(login, "any")
        client.select(INBOX)
        yield client


def address(server: NullServer) -> tuple[str, int, int]:
    """As the jobs of the benchmarks name a server."""
    return server.services.imap.host, server.services.imap.port, server.services.smtp.port


def submit(server: NullServer, recipients: list[str], message: bytes) -> None:
    """Send by smtplib, authenticated."""
    with smtplib.SMTP(server.services.smtp.host, server.services.smtp.port, timeout=PATIENCE_S) as client:
        client.login("user2", "any")
        assert client.sendmail("user2@null.test", recipients, message) == {}


def test_null_server_answers_imaplib(server: NullServer) -> None:
    """Counts, UIDs, sizes, sections and partial sections of a canned Inbox agree with each other."""
    with logged_on(server, "user101") as client:
        assert client.uid("SEARCH", "ALL")[1] == [b"1 2 3 4 5"]
        assert client.uid("SEARCH", "UID", "4:*")[1] == [b"4 5"]
        assert client.search(None, "UNSEEN")[1] == [b""]
        _, fetched = client.uid("FETCH", "3", "(RFC822.SIZE BODY.PEEK[])")
        whole = fetched[0][1]
        header, _, body = whole.partition(b"\r\n\r\n")
        assert len(body) == BODY_BYTES
        assert f"RFC822.SIZE {len(whole)} ".encode() in fetched[0][0]
        assert client.uid("FETCH", "3", "(BODY.PEEK[HEADER])")[1][0][1] == header + b"\r\n\r\n"
        assert client.uid("FETCH", "3", "(BODY.PEEK[1]<10.20>)")[1][0][1] == body[10:30]
        across = len(header) + 4
        assert client.fetch("3", f"(BODY.PEEK[]<{across - 5}.10>)")[1][0][1] == whole[across - 5 : across + 5]
        field = client.uid("FETCH", "3", "(BODY.PEEK[HEADER.FIELDS (X-LOADSIM)])")[1][0][1]
        assert MessageTag.parse(field.decode().partition(":")[2]) is not None
        assert client.status(INBOX, "(MESSAGES UIDNEXT)")[1] == [b'"INBOX" (MESSAGES 5 UIDNEXT 6)']


def test_moved_and_expunged_messages_leave_the_inbox(server: NullServer) -> None:
    """MOVE and UID EXPUNGE take messages away, from the middle too; numbers close up, UIDs stay."""
    with logged_on(server, "user102") as client:
        imaplib.Commands.setdefault("MOVE", ("SELECTED",))
        client.uid("MOVE", "2,4", '"Folder 01"')
        assert client.response("EXPUNGE")[1] == [b"4", b"2"]
        assert client.uid("SEARCH", "ALL")[1] == [b"1 3 5"]
        assert client.fetch("2", "(UID)")[1] == [b"2 (UID 3)"]
        client.uid("EXPUNGE", "1:3")
        assert client.response("EXPUNGE")[1] == [b"2", b"1"]
        client.append(INBOX, "", "", b"Subject: new\r\n\r\n" + b"." * 100_000)
        assert client.uid("SEARCH", "ALL")[1] == [b"5 6"]
        assert b"new" in client.uid("FETCH", "6", "(BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1][0][1]
    with logged_on(server, "user102") as client:
        assert client.uid("SEARCH", "ALL")[1] == [b"5 6"]


def test_submitted_mail_is_announced_and_carries_its_header(server: NullServer) -> None:
    """A message to a list and one of its members is announced once to each member, with the header it came with."""
    with logged_on(server, "user7") as one, logged_on(server, "user8") as other:
        for client in (one, other):
            client.send(b"W1 IDLE\r\n")
            assert client.readline().startswith(b"+")
        submit(server, ["user7@null.test", "all@null.test"], MESSAGE)
        for client in (one, other):
            assert client.readline() == b"* 6 EXISTS\r\n"
            client.send(b"DONE\r\n")
            assert client.readline().startswith(b"W1 OK")
        field = other.uid("FETCH", "6", "(BODY.PEEK[HEADER.FIELDS (X-LOADSIM)])")[1][0][1].decode()
        assert MessageTag.parse(field.partition(":")[2].strip()) == KEPT
    with logged_on(server, "user9") as stranger:
        assert stranger.uid("SEARCH", "ALL")[1] == [b"1 2 3 4 5"]


def test_a_late_list_has_each_message(server: NullServer) -> None:
    """A hundred messages that were not listed meanwhile are there with their own headers."""
    names = [f"n2.{number}" for number in range(100)]
    with smtplib.SMTP(server.services.smtp.host, server.services.smtp.port, timeout=PATIENCE_S) as client:
        for name in names:
            own = MESSAGE.replace(TAG.id.encode(), name.encode())
            assert client.sendmail("user2@null.test", ["user104@null.test"], own) == {}
    with logged_on(server, "user104") as client:
        _, fetched = client.uid("FETCH", f"{MESSAGES + 1}:*", "(BODY.PEEK[HEADER.FIELDS (X-LOADSIM)])")
        fields = [part[1].decode().partition(":")[2].strip() for part in fetched if isinstance(part, tuple)]
        found = [MessageTag.parse(field) for field in fields]
        assert [one.id if one else None for one in found] == names


def test_a_message_may_arrive_byte_by_byte(server: NullServer) -> None:
    """The end of DATA is found however the network cuts it, and dots inside a message end nothing."""
    with socket.create_connection((server.services.smtp.host, server.services.smtp.port), PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        connection.sendall(b"EHLO me\r\n")
        while not answers.readline().startswith(b"250 "):
            pass
        connection.sendall(b"MAIL FROM:<user1@null.test>\r\nRCPT TO:<user103@null.test>\r\nDATA\r\n")
        while not answers.readline().startswith(b"354"):
            pass
        for byte in b"Subject: x\r\n\r\n..\r\na.\r\n.b\r\n\r\n.\r\nNOOP\r\n":
            connection.sendall(bytes((byte,)))
        assert answers.readline().startswith(b"250 2.0.0 Ok: as good")
        assert answers.readline().startswith(b"250")
        answers.close()
    with logged_on(server, "user103") as client:
        assert client.uid("SEARCH", "ALL")[1] == [b"1 2 3 4 5 6"]


@pytest.mark.parametrize(("protocol", "user"), [("imap", 201), ("aioimaplib", 202)])
def test_both_drivers_work_with_the_null_server(server: NullServer, protocol: str, user: int) -> None:
    """Both of loadsim's clients log on, see mail arrive with its tag, and do with it what users do."""
    asyncio.run(_a_session(open_driver(protocol, server.services).session, user))


async def _a_session(open_session: object, user: int) -> None:
    ear = Ear()
    account = Account(user, f"user{user}", f"user{user}@null.test", "any")
    session: Session = open_session(account, ear)
    mail = session.mailbox
    await mail.log_on()
    assert set(await mail.folders()) == {INBOX, "Sent Items", DELETED_ITEMS, "Calendar", "Folder 01", "Folder 02"}
    assert len(await mail.headers(INBOX, 50)) == MESSAGES
    await mail.watch()
    await session.submission.send(account.address, [account.address], MESSAGE)
    async with asyncio.timeout(PATIENCE_S):
        await ear.told.wait()
    (header,) = await mail.arrived()
    assert (header.tag, header.sender) == (KEPT, "user2@null.test")
    assert header.to == ("user7@null.test", "all@null.test")
    structure = await mail.structure(header.ref)
    assert structure.text is not None
    assert len(await mail.part(header.ref, structure.text)) == BODY_BYTES
    await mail.flag([header.ref], Flag.SEEN)
    await mail.move([header.ref], DELETED_ITEMS)
    assert await mail.append("Sent Items", MESSAGE, [Flag.SEEN]) is not None
    await session.calendar.replace(MESSAGE)
    assert len(await mail.headers(INBOX, None)) == MESSAGES
    assert ear.announced == 1
    await session.submission.close()
    await mail.log_off()


def test_pushes_carry_their_time_of_sending() -> None:
    """With a rate of pushes, Inboxes of idling sessions grow, and each push carries the server's clock."""
    with started(Shape(pushes_per_s=200, stamped=True)) as server, logged_on(server, "user1") as client:
        before = time.monotonic_ns()
        client.send(b"W1 IDLE\r\n")
        assert client.readline().startswith(b"+")
        for count in range(101, 121):
            assert client.readline() == b"* %d EXISTS\r\n" % count
            stamp = client.readline()
            assert stamp.startswith(b"* OK [SENT ")
            assert before < int(stamp[11:].partition(b"]")[0]) <= time.monotonic_ns()
        client.send(b"DONE\r\n")
        while not client.readline().startswith(b"W1 OK"):
            pass


def test_the_null_server_counts_commands() -> None:
    """When it is stopped, it tells how often it was asked for what."""
    with started(Shape()) as server, logged_on(server, "user1") as client:
        for _ in range(3):
            client.noop()
        submit(server, ["user1@null.test", "user2@null.test"], MESSAGE)
    # imaplib asks for capabilities that the greeting states, up to Python 3.13.
    counts = {name: count for name, count in server.counts.items() if count and name != "IMAP CAPABILITY"}
    assert counts == {
        "connections": 2,
        "IMAP LOGIN": 1,
        "IMAP SELECT": 1,
        "IMAP NOOP": 3,
        "SMTP EHLO": 1,
        "SMTP AUTH": 1,
        "SMTP MAIL": 1,
        "SMTP RCPT": 2,
        "SMTP DATA": 1,
        "SMTP QUIT": 1,
        "delivered": 2,
        "IMAP LOGOUT": 1,
    }


def test_the_null_server_listens_on_all_of_loopback(server: NullServer) -> None:
    """A generator may spread its connections over many addresses."""
    for host in ("127.0.0.1", "127.4.5.6"):
        with closing(socket.create_connection((host, server.services.imap.port), PATIENCE_S)) as connection:
            assert connection.recv(4) == b"* OK"


def test_the_server_counts_the_commands_that_benchmarks_divide_by() -> None:
    """The server counts as many commands as a benchmark divides its CPU time by, with each client."""
    sessions, count = 3, 4
    for name in ("imap", "aioimaplib", "aioimaplib library"):
        with started(Shape(messages=10)) as server:
            job = {"client": name, "server": address(server), "sessions": sessions, "count": count, "append_bytes": 500}
            found = asyncio.run(measured.imap(job))
        assert set(found) == set(measured.OPERATIONS)
        asked = sessions * count
        assert {operation: server.counts[f"IMAP {operation}"] for operation in ("STORE", "APPEND", "MOVE")} == {
            "STORE": 2 * asked,  # by itself, and in READ
            "APPEND": asked,
            "MOVE": asked,
        }
        assert server.counts["IMAP FETCH"] >= 2 * asked
        assert server.counts["IMAP NOOP"] >= asked


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_measured_submissions_are_delivered(submission: str) -> None:
    """Every message of every size reaches the null server, and is divided by."""
    with started(Shape()) as server:
        sizes = [(600, 6), (50_000, 3)]
        job = {"submission": submission, "server": address(server), "sessions": 3, "sizes": sizes}
        found = asyncio.run(measured.smtp(job))
    assert set(found) == {"600", "50000"}
    warm_up = 2 * 3
    assert server.counts["delivered"] == server.counts["SMTP DATA"] == 6 + 3 + warm_up


def test_variants_are_measured_in_turn() -> None:
    """A noisy minute falls on all variants alike, and every figure is kept."""
    order: list[str] = []

    def measure(name: str) -> dict[str, float]:
        order.append(name)
        return {"cost": float(len(order))}

    found = interleave(3, {("a",): lambda: measure("a"), ("b",): lambda: measure("b")})
    assert order == ["a", "b"] * 3
    assert found == {("a",): {"cost": [1.0, 3.0, 5.0]}, ("b",): {"cost": [2.0, 4.0, 6.0]}}


def test_large_logs_need_room_on_the_disk() -> None:
    """Refused before anything is written, with how much it takes."""
    with pytest.raises(ConfigError, match=r"logs: .*: expected \d+ GB of room, found \d+ GB"):
        logs.measure(share_cpus(), [10**15])
