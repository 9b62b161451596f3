"""The embedded MAPI server, by requests that are written out here from the documents, without the driver's codec."""

from __future__ import annotations

import base64
import http.client
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from mailservers import numbered_accounts, short_directory
from patience import PATIENCE_S

from loadsim.model.ports import Account
from loadsim.servers.embedded import start_embedded_mapi
from loadsim.servers.running import RunningServer

pytestmark = pytest.mark.slow

DN = "/o=loadsim/ou=Exchange Administrative Group (FYDIBOHF23SPDLT)/cn=Recipients/cn="
LIST = "list1@example.test"
INBOX, OUTBOX, SENT, DELETED = 4, 5, 6, 7
NO_HANDLE = 0xFFFFFFFF
INTERNET_HEADERS = uuid.UUID("00020386-0000-0000-c000-000000000046").bytes_le
SUBJECT, BODY, MESSAGE_ID = 0x0037001F, 0x1000001F, 0x1035001F
MID, FLAGS, DELIVERY_TIME = 0x674A0014, 0x0E070003, 0x0E060040


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    cookies: dict[str, str]
    body: bytes


class Peer:
    """A client of one account: HTTP by the standard library, bodies by struct."""

    def __init__(self, server: RunningServer, account: Account, password: str | None = None) -> None:
        endpoint = server.services.endpoint("mapi")
        self.path = endpoint.path
        self._connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=PATIENCE_S)
        name = f"{account.login}:{account.password if password is None else password}"
        self._basic = base64.b64encode(name.encode()).decode()
        self.cookies: dict[str, str] = {}
        self.handles: list[int] = []
        self.requests = 0

    def close(self) -> None:
        self._connection.close()

    def post(
        self, kind: str, body: bytes, changes: Mapping[str, str | None] | None = None, method: str = "POST"
    ) -> Answer:
        self.requests += 1
        headers: dict[str, str | None] = {
            "Content-Type": "application/mapi-http",
            "X-RequestType": kind,
            "X-RequestId": f"{{8D8B4B37-1B3F-4C8A-B3D2-95D2B1C6B5A1}}:{self.requests}",
            "X-ClientInfo": "{3FA85F64-5717-4562-B3FC-2C963F66AFA6}:1",
            "X-ClientApplication": "Outlook/15.0.4815.1002",
            "Authorization": f"Basic {self._basic}",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()) or None,
            **(changes or {}),
        }
        self._connection.request(method, self.path + "/", body, {name: each for name, each in headers.items() if each})
        response = self._connection.getresponse()
        cookies = dict(each.partition(";")[0].split("=", 1) for each in response.headers.get_all("Set-Cookie", []))
        self.cookies |= cookies
        return Answer(response.status, response.headers, cookies, response.read())

    def ask(self, kind: str, body: bytes) -> bytes:
        """Return the body of a response behind its meta-tags ([MS-OXCMAPIHTTP] section 2.2.7)."""
        answer = self.post(kind, body)
        assert (answer.status, answer.headers["X-ResponseCode"]) == (200, "0")
        tags, _, rest = answer.body.partition(b"DONE\r\n")
        assert tags in (b"PROCESSING\r\n", b"PROCESSING\r\nPENDING\r\n")
        headers, _, body = rest.partition(b"\r\n\r\n")
        assert b"X-ResponseCode: 0" in headers.split(b"\r\n")
        return body

    def connect(self, dn: str) -> int:
        answer = self.ask("Connect", dn.encode() + b"\0" + struct.pack("<5I", 0, 1252, 1033, 1033, 0))
        return int(struct.unpack_from("<II", answer)[1])

    def execute(self, rops: bytes, most_bytes: int = 0x8007) -> bytes:
        """Send requests with the table of handles, which the response replaces; return the responses."""
        payload = struct.pack("<H", len(rops) + 2) + rops + struct.pack(f"<{len(self.handles)}I", *self.handles)
        buffer = struct.pack("<4H", 0, 4, len(payload), len(payload)) + payload
        body = struct.pack("<II", 3, len(buffer)) + buffer + struct.pack("<II", most_bytes, 0)
        answer = self.ask("Execute", body)
        status, self.error, _, size = struct.unpack_from("<4I", answer)
        assert status == 0
        assert len(answer) == 16 + size + 4
        if self.error:
            return b""
        version, flags, length, actual, rops_size = struct.unpack_from("<5H", answer, 16)
        assert (version, flags, length, actual) == (0, 4, size - 8, size - 8)
        table = answer[24 + rops_size : 16 + size]
        self.handles = list(struct.unpack(f"<{len(table) // 4}I", table))
        return answer[26 : 24 + rops_size]

    def logged_on(self, login: str) -> list[int]:
        """Connect and log on; the handle 0 is the logon's. Return the folders of the response."""
        assert self.connect(DN + login) == 0
        self.handles = [NO_HANDLE] * 10
        answer = self.execute(logon(DN + login))
        assert answer[:7] == bytes.fromhex("fe 00 00 00 00 00 01")
        return list(struct.unpack_from("<13Q", answer, 7))


def logon(dn: str, options: int = 0x01000000) -> bytes:
    name = dn.encode() + b"\0"
    return bytes.fromhex("fe 00 00 01") + struct.pack("<IIH", options, 0, len(name)) + name


def wide(text: str) -> bytes:
    return text.encode("utf-16-le") + b"\0\0"


@pytest.fixture(scope="module")
def accounts() -> list[Account]:
    return numbered_accounts(5)


@pytest.fixture(scope="module")
def server(accounts: list[Account]) -> Iterator[RunningServer]:
    lists = {LIST: [accounts[1].address, accounts[2].address]}
    with short_directory() as directory, start_embedded_mapi(accounts, lists, directory) as running:
        yield running


@pytest.fixture
def peers(server: RunningServer, accounts: list[Account]) -> Iterator[Callable[..., Peer]]:
    """`peers(user)` returns a client of this user, whose connection is closed after the test."""
    with ExitStack() as stack:

        def peer(user: int, password: str | None = None) -> Peer:
            made = Peer(server, accounts[user - 1], password)
            stack.callback(made.close)
            return made

        yield peer


def open_folder(number: int, out: int) -> bytes:
    return bytes((0x02, 0, 0, out)) + struct.pack("<QB", number, 0)


def set_properties(index: int, *tagged: bytes) -> bytes:
    values = struct.pack("<H", len(tagged)) + b"".join(tagged)
    return bytes((0x0A, 0, index)) + struct.pack("<H", len(values)) + values


def text(tag: int, value: str) -> bytes:
    return struct.pack("<I", tag) + wide(value)


def internet_header(name: str, create: bool = True) -> bytes:
    """RopGetPropertyIdsFromNames for a header ([MS-OXCPRPT] section 2.2.12)."""
    return bytes((0x56, 0, 0, 2 * create)) + b"\1\0\1" + INTERNET_HEADERS + bytes((len(wide(name)),)) + wide(name)


def recipients(index: int, *addresses: str) -> bytes:
    """RopModifyRecipients with SMTP recipients to whom it is addressed ([MS-OXCDATA] section 2.8.3)."""
    rows = b""
    for row, address in enumerate(addresses):
        # SMTP (3), with address (8) and display name (16) in Unicode (0x200); no further columns.
        content = struct.pack("<H", 0x021B) + 2 * wide(address) + b"\0\0\0"
        rows += struct.pack("<IBH", row, 1, len(content)) + content
    return bytes((0x0E, 0, index)) + struct.pack("<HH", 0, len(addresses)) + rows


def created(folder: int, out: int) -> bytes:
    return bytes((0x06, 0, 0, out)) + struct.pack("<HQB", 0x0FFF, folder, 0)


def saved(index: int) -> bytes:
    return bytes((0x0C, 0, 0, index, 0x0A))


def columns(table: int, *tags: int) -> bytes:
    return bytes((0x12, 0, table, 0)) + struct.pack(f"<H{len(tags)}I", len(tags), *tags)


def contents(folder: int, table: int, *tags: int) -> bytes:
    """RopGetContentsTable on the folder of a handle, and RopSetColumns."""
    return bytes((0x05, 0, folder, table, 0)) + columns(table, *tags)


def query(table: int, count: int = 50) -> bytes:
    return bytes((0x15, 0, table, 0, 1)) + struct.pack("<H", count)


def ok(number: int, index: int) -> bytes:
    """The beginning of a response without an error."""
    return bytes((number, index, 0, 0, 0, 0))


def send(peer: Peer, folder: int, header: int, subject: str, *addresses: str) -> None:
    """Create a message in a folder, with text and header, and submit it, in one buffer."""
    values = (text(SUBJECT, subject), text(BODY, "Hello"), text(header << 16 | 0x1F, f"tag of {subject}"))
    rops = created(folder, 1) + set_properties(1, *values) + recipients(1, *addresses) + saved(1)
    answer = peer.execute(rops + bytes.fromhex("32 00 01 02  01 00 01"))
    expected = ok(0x06, 1) + b"\0" + ok(0x0A, 1) + b"\0\0" + ok(0x0E, 1) + ok(0x0C, 0) + b"\1"
    assert answer.startswith(expected)
    assert answer[len(expected) + 8 :] == ok(0x32, 1)


def rows(peer: Peer, folder: int, *tags: int) -> bytes:
    """Return the rows of a folder's messages, behind their number."""
    answer = peer.execute(open_folder(folder, 1) + contents(1, 2, *tags) + query(2))
    head = ok(0x02, 1) + b"\0\0" + ok(0x05, 2)
    tail = answer[len(head) + 4 :]
    assert answer.startswith(head)
    expected = ok(0x12, 2) + b"\0" + ok(0x15, 2) + b"\2"
    assert tail.startswith(expected)
    return tail[len(expected) :]


def test_delivers_a_message_to_a_list(peers: Callable[..., Peer]) -> None:
    """The members get a message once, with text and header; each mailbox has its own identifier for the header."""
    sender, reader = peers(1), peers(2)
    folders, inbox = sender.logged_on("user1"), reader.logged_on("user2")[INBOX]
    assert sender.execute(internet_header("x-other") + internet_header("X-LoadSim"))[-2:] == b"\x01\x80"
    send(sender, folders[OUTBOX], 0x8001, "Plan", LIST, "user2@example.test")
    assert reader.execute(internet_header("x-loadsim")) == ok(0x56, 0) + b"\x01\0\0\x80"
    found = rows(reader, inbox, SUBJECT, 0x8000001F, FLAGS, 0x0C1F001F, 0x5D01001F, MID)
    head = b"\1\0" + b"\0" + wide("Plan") + wide("tag of Plan") + struct.pack("<I", 2)
    head += wide(DN + "user1") + wide("user1@example.test")
    assert found.startswith(head)
    (message,) = struct.unpack("<Q", found[len(head) :])

    opened = bytes((0x03, 0, 0, 3)) + struct.pack("<HQBQ", 0x0FFF, inbox, 0, message)
    answer = reader.execute(opened + bytes.fromhex("07 00 03 0000 0100 0100") + struct.pack("<I", BODY))
    start = ok(0x03, 3) + b"\1" + b"\1" + b"\4" + wide("Plan") + struct.pack("<HH", 2, 3)
    assert answer.startswith(start)
    assert wide(LIST) in answer
    assert answer.endswith(ok(0x07, 3) + b"\0" + wide("Hello"))
    assert rows(sender, folders[INBOX], SUBJECT) == b"\0\0"


def test_announces_new_mail(peers: Callable[..., Peer]) -> None:
    """NotificationWait ends when mail arrives; the next Execute has the notification behind its response."""
    sender, reader, waiting = peers(1), peers(4), peers(4)
    outbox, inbox = sender.logged_on("user1")[OUTBOX], reader.logged_on("user4")[INBOX]
    registered = bytes((0x29, 0, 0, 5, 0x02, 0, 0)) + struct.pack("<QQ", inbox, 0)
    assert reader.execute(registered) == ok(0x29, 5)
    waiting.cookies = dict(reader.cookies)
    with ThreadPoolExecutor() as pool:
        waited = pool.submit(waiting.ask, "NotificationWait", bytes(8))
        send(sender, outbox, 0x8001, "News", "user4@example.test")
        assert waited.result() == struct.pack("<4I", 0, 0, 1, 0)
    found = rows(reader, inbox, MID)
    listed, notified = found[:11], found[11:]
    flags = struct.pack("<H", 0x8002) + struct.pack("<Q", inbox) + listed[3:] + struct.pack("<IB", 2, 1)
    assert notified == b"\x2a" + struct.pack("<I", reader.handles[5]) + b"\0" + flags + wide("IPM.Note")
    assert rows(reader, inbox, MID) == listed
