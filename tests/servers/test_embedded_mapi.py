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
from loadsim.servers.embedded import LOG_NAME, start_embedded_mapi
from loadsim.servers.running import RunningServer

pytestmark = pytest.mark.slow

DN = "/o=loadsim/ou=Exchange Administrative Group (FYDIBOHF23SPDLT)/cn=Recipients/cn="
LIST = "list1@example.test"
INBOX, OUTBOX, SENT, DELETED = 4, 5, 6, 7
NO_HANDLE = 0xFFFFFFFF
INTERNET_HEADERS = uuid.UUID("00020386-0000-0000-c000-000000000046").bytes_le
SUBJECT, BODY = 0x0037001F, 0x1000001F
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

    def begin(
        self, kind: str, body: bytes, changes: Mapping[str, str | None] | None = None, method: str = "POST"
    ) -> None:
        """Send a request."""
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

    def post(
        self, kind: str, body: bytes, changes: Mapping[str, str | None] | None = None, method: str = "POST"
    ) -> Answer:
        self.begin(kind, body, changes, method)
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
    with short_directory() as directory:
        with start_embedded_mapi(accounts, lists, directory) as running:
            yield running
        assert (directory / LOG_NAME).read_text() == ""


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


def internet_header(name: str) -> bytes:
    """RopGetPropertyIdsFromNames for a header ([MS-OXCPRPT] section 2.2.12)."""
    return bytes((0x56, 0, 0, 2)) + b"\1\0\1" + INTERNET_HEADERS + bytes((len(wide(name)),)) + wide(name)


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
    stream = bytes((0x2B, 0, 3, 4)) + struct.pack("<IB", BODY, 0) + bytes((0x2C, 0, 4)) + struct.pack("<H", 100)
    answer = reader.execute(opened + stream)
    start = ok(0x03, 3) + b"\1" + b"\1" + b"\4" + wide("Plan") + struct.pack("<HH", 2, 0)
    assert answer.startswith(start)
    assert wide(LIST) in answer
    assert answer.endswith(ok(0x2B, 4) + struct.pack("<I", 10) + ok(0x2C, 4) + b"\x0a\0" + wide("Hello")[:-2])
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
    waiting.begin("NotificationWait", bytes(8))  # the server's end ends it, too


def test_keeps_what_is_saved(peers: Callable[..., Peer]) -> None:
    """Attachments and streams are in the message after a save; a message that was opened to be read is not changed."""
    peer = peers(5)
    inbox = peer.logged_on("user5")[INBOX]
    content = bytes(range(256)) * 10
    stream = bytes((0x2B, 0, 2, 3)) + struct.pack("<IB", 0x37010102, 2)
    written = bytes((0x2D, 0, 3)) + struct.pack("<H", len(content)) + content + bytes((0x5D, 0, 3))
    attachment = bytes((0x23, 0, 1, 2)) + stream + written + set_properties(2, text(0x3707001F, "a.bin"))
    answer = peer.execute(created(inbox, 1) + attachment + bytes((0x25, 0, 1, 2, 0x0A)) + saved(1))
    head = (
        ok(0x06, 1) + b"\0" + ok(0x23, 2) + bytes(4) + ok(0x2B, 3) + bytes(4) + ok(0x2D, 3) + b"\x00\x0a" + ok(0x5D, 3)
    )
    head += ok(0x0A, 2) + b"\0\0" + ok(0x25, 1) + ok(0x0C, 0) + b"\1"
    assert answer.startswith(head)
    number = answer[len(head) :]
    opened = bytes((0x03, 0, 0, 1)) + struct.pack("<HQ", 0x0FFF, inbox) + b"\0" + number
    table = bytes((0x21, 0, 1, 2, 0)) + columns(2, 0x0E210003, 0x3707001F) + query(2)
    reading = bytes((0x22, 0, 1, 3, 0)) + bytes(4) + bytes((0x2B, 0, 3, 4)) + struct.pack("<IB", 0x37010102, 0)
    reading += 2 * (bytes((0x2C, 0, 4)) + struct.pack("<H", 2000))
    answer = peer.execute(opened + table + reading)
    assert ok(0x15, 2) + b"\2\1\0\0" + bytes(4) + wide("a.bin") in answer
    ends = struct.pack("<H", 2000) + content[:2000] + ok(0x2C, 4) + struct.pack("<H", 560) + content[2000:]
    assert answer.endswith(ok(0x2B, 4) + struct.pack("<I", len(content)) + ok(0x2C, 4) + ends)
    # The response of an attachment's save is of its message ([MS-OXCMSG] section 2.2.3.15).
    misplaced = created(inbox, 5) + bytes((0x23, 0, 5, 6)) + bytes((0x25, 0, 0, 6, 0x0A))
    assert peer.execute(misplaced).endswith(b"\x25\0\2\1\4\x80")
    denied = b"\0\x05\x00\x07\x80"
    assert peer.execute(set_properties(1, text(SUBJECT, "other"))) == b"\x0a\1" + denied[1:]
    assert peer.execute(saved(1)) == b"\x0c" + denied


def test_changes_messages_of_folders(peers: Callable[..., Peer]) -> None:
    """Marking, copying, moving and deleting change counts; a message that is gone makes a completion partial."""
    peer = peers(5)
    folders = peer.logged_on("user5")
    target = peer.execute(open_folder(folders[3], 1) + bytes((0x1C, 0, 1, 2, 1, 1, 0, 0)) + wide("Ä") + wide(""))
    head = ok(0x02, 1) + b"\0\0" + ok(0x1C, 2)
    assert target.startswith(head)
    assert target.endswith(b"\0")
    folder = target[len(head) : -1]
    made = peer.execute(b"".join(created(folders[DELETED], 3) + saved(3) for _ in range(2)))
    ids = struct.pack("<H", 2) + made[14:22] + made[36:44]
    assert peer.execute(open_folder(folders[DELETED], 1)) == ok(0x02, 1) + b"\0\0"

    # The counts of messages and of unread ones are in the rows of the folders below the top.
    listed = bytes((0x04, 0, 8, 9, 4)) + columns(9, 0x67480014, 0x36020003, 0x36030003) + query(9)
    shown = b"\0" + struct.pack("<Q", folders[DELETED])
    peer.execute(open_folder(folders[3], 8))
    unread = bytes((0x66, 0, 1, 0, 5)) + ids
    answer = peer.execute(unread + listed)
    assert answer.startswith(ok(0x66, 1) + b"\0")
    assert shown + struct.pack("<II", 2, 2) in answer
    copied = bytes((0x33, 0, 1, 2)) + ids + b"\0\1"
    moved = bytes((0x33, 0, 1, 2)) + ids + b"\0\0"
    answer = peer.execute(copied + moved + listed)
    assert answer.startswith(2 * (ok(0x33, 1) + b"\0"))
    assert shown + bytes(8) in answer
    assert peer.execute(moved + unread) == ok(0x33, 1) + b"\1" + ok(0x66, 1) + b"\1"
    assert peer.execute(bytes((0x1E, 0, 1, 0, 0)) + ids) == ok(0x1E, 1) + b"\1"
    assert rows(peer, struct.unpack("<Q", folder)[0], FLAGS) == b"\4\0" + 4 * (b"\0" + struct.pack("<I", 8))

    gone = open_folder(folders[3], 1) + bytes((0x1D, 0, 1, 0)) + folder + bytes((0x1D, 0, 1, 5)) + folder
    assert peer.execute(gone + open_folder(*struct.unpack("<Q", folder), 2)) == (
        ok(0x02, 1) + b"\0\0" + ok(0x1D, 1) + b"\1" + ok(0x1D, 1) + b"\0" + b"\2\2\x0f\1\4\x80"
    )


def test_sorts_and_seeks(peers: Callable[..., Peer]) -> None:
    peer = peers(5)
    drafts = peer.logged_on("user5")[OUTBOX]
    subjects = ["b", "C", "a", "b2"]
    peer.execute(b"".join(created(drafts, 1) + set_properties(1, text(SUBJECT, each)) + saved(1) for each in subjects))
    table = open_folder(drafts, 1) + contents(1, 2, SUBJECT)

    def shown(rops: bytes, listed: str, end: bytes = b"\2") -> None:
        found = struct.pack("<H", len(listed.split())) + b"".join(b"\0" + wide(each) for each in listed.split())
        assert peer.execute(rops + query(2)).endswith(ok(0x15, 2) + end + found)

    by_subject = bytes((0x13, 0, 2, 0)) + struct.pack("<HHHIB", 1, 0, 0, SUBJECT, 1)
    shown(table + by_subject, "C b2 b a")
    shown(b"", "")
    shown(bytes((0x18, 0, 2, 2)) + struct.pack("<iB", -2, 1), "b a")
    shown(bytes((0x18, 0, 2, 0)) + struct.pack("<iB", 1, 1) + query(2, 1), "b a")
    assert peer.execute(bytes((0x18, 0, 2, 0)) + struct.pack("<iB", 9, 1)) == ok(0x18, 2) + b"\1" + struct.pack("<i", 4)


def test_resolves_names(peers: Callable[..., Peer]) -> None:
    """An address of a user or of a list has an entry, and others have none."""
    peer = peers(1)
    peer.path = "/mapi/nspi"
    state = struct.pack("<9I", 0, 0, 0, 0, 0, 0, 1252, 1033, 1033)
    assert peer.ask("Bind", bytes(4) + b"\xff" + state + bytes(4))[:8] == bytes(8)
    names = ["=SMTP:user2@example.test", "=smtp:USER3@example.test", "nobody", f"=SMTP:{LIST}"]
    tags = struct.pack("<BIII", 255, 2, 0x3003001F, 0x39FE001F)
    request = (
        bytes(4) + b"\xff" + state + tags + struct.pack("<BI", 255, len(names)) + b"".join(map(wide, names)) + bytes(4)
    )
    answer = peer.ask("ResolveNames", request)
    assert answer[:17] == struct.pack("<IIIBI", 0, 0, 1252, 1, 4)
    assert struct.unpack_from("<4I", answer, 17) == (2, 2, 0, 2)
    assert answer[33:50] == struct.pack("<BIIII", 1, 2, 0x3003001F, 0x39FE001F, 3)
    found = ((DN + "user2", "user2@example.test"), (DN + "user3", "user3@example.test"), (DN + "list1", LIST))
    assert answer[50:] == b"".join(b"\0" + b"".join(b"\xff" + wide(each) for each in row) for row in found) + bytes(4)
    assert peer.ask("Unbind", bytes(8)) == struct.pack("<III", 0, 1, 0)


@pytest.mark.parametrize(
    ("kind", "changes", "method", "expected"),
    [
        ("Execute", {"X-RequestId": None}, "POST", "7"),
        ("Execute", {"X-ClientApplication": None}, "POST", "7"),
        ("Execute", {"X-RequestId": "1"}, "POST", "4"),
        ("Execute", {"Content-Type": "text/plain"}, "POST", "4"),
        ("Execute", {}, "PUT", "2"),
        ("PING", {}, "POST", "5"),
        ("Execute", {"Cookie": None}, "POST", "13"),
        ("Execute", {"Cookie": "MapiContext=none; MapiSequence=none"}, "POST", "10"),
        ("Execute", {"Cookie": "MapiContext={MapiContext}; MapiSequence=none"}, "POST", "15"),
    ],
)
def test_refuses_requests(
    peers: Callable[..., Peer], kind: str, changes: dict[str, str | None], method: str, expected: str
) -> None:
    """Refusals have the X-ResponseCode of [MS-OXCMAPIHTTP] section 2.2.3.3.3, and the session goes on."""
    peer = peers(5)
    peer.logged_on("user5")
    filled = {name: each and each.format(**peer.cookies) for name, each in changes.items()}
    answer = peer.post(kind, struct.pack("<5I", 3, 0, 0x8007, 0, 0)[:16], filled, method)
    assert (answer.status, answer.headers["X-ResponseCode"], answer.cookies) == (200, expected, {})
    assert peer.execute(b"") == b""
    assert peer.ask("Disconnect", bytes(4)) == bytes(12)
    assert peer.post("Execute", struct.pack("<4I", 3, 0, 0x8007, 0)).headers["X-ResponseCode"] == "10"


def test_refuses_wrong_credentials_and_other_users_sessions(peers: Callable[..., Peer]) -> None:
    assert peers(1, "wrong").post("Connect", b"").status == 401
    peer, other = peers(1), peers(2)
    assert peer.connect(DN + "nobody") == 0x3EB
    assert peer.connect(DN + "user2") == 0x80070005
    peer.logged_on("user1")
    other.cookies = dict(peer.cookies)
    assert other.post("Execute", struct.pack("<4I", 3, 0, 0x8007, 0)).headers["X-ResponseCode"] == "11"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (logon(DN + "user5", options=0), 0x80070057),
        (logon(DN + "user1"), 0x80070005),
        (logon(DN + "nobody"), 0x3EB),
        (open_folder(1, 1), 0x8004010F),
        (bytes((0x05, 0, 9, 1, 0)), 0x4B9),
        (bytes((0x05, 0, 0, 1, 0)), 0x80040102),
        (bytes((0x15, 0, 2, 0, 1, 50, 0)), 0x4B9),
        (bytes((0x12, 0, 2, 0, 0, 0)), 0x80070057),
        (bytes((0x32, 0, 3, 0)), 0x80040607),
        (bytes((0x02, 1, 0, 1)) + bytes(9), 0x4B9),
        (bytes((0x1C, 0, 1, 4, 1, 1, 0, 0)) + wide("Inbox") + wide(""), 0x80040604),
        (bytes((0x1D, 0, 1, 5)) + b"\1\0" + bytes(5) + b"\5", 0x80070005),
        (bytes((0x66, 0, 1, 0, 4, 0, 0)), 0x80070057),
        (bytes((0x29, 0, 0, 4, 0x01, 0, 0)) + bytes(16), 0x80040102),
    ],
)
def test_refuses_operations(peers: Callable[..., Peer], request_: bytes, code: int) -> None:
    """A refused operation has its error, and creates no object. Handles: 1 the top folder, 2 a table, 3 a message."""
    peer = peers(5)
    folders = peer.logged_on("user5")
    made = open_folder(folders[3], 1) + bytes((0x05, 0, 1, 2, 0)) + created(folders[INBOX], 3)
    assert len(peer.execute(made)) == 8 + 10 + 7
    before = list(peer.handles)
    answer = peer.execute(request_)
    assert struct.unpack_from("<I", answer, 2) == (code,)
    assert [new for new, old in zip(peer.handles, before, strict=True) if new != old and new != NO_HANDLE] == []


@pytest.mark.parametrize("rops", [b"\x02", b"\x00\0\0", open_folder(1, 1)[:-1], b"\x0a\0\0\xff\xff", bytes(0x8000)])
def test_refuses_malformed_requests(peers: Callable[..., Peer], rops: bytes) -> None:
    """Such buffers are refused as a whole ([MS-OXCROPS] section 3.2.5.1)."""
    peer = peers(5)
    peer.logged_on("user5")
    peer.execute(rops)
    assert peer.error == 0x4B6


def test_small_buffers_return_the_remaining_requests(peers: Callable[..., Peer]) -> None:
    """RopBufferTooSmall has the operations that were not performed ([MS-OXCROPS] section 2.2.15.1)."""
    peer = peers(5)
    inbox = peer.logged_on("user5")[INBOX]
    first, rest = open_folder(inbox, 1), open_folder(inbox, 2) + open_folder(inbox, 3)
    answer = peer.execute(first + rest, most_bytes=8 + 2 + 40 + 64 + 4)
    assert answer == ok(0x02, 1) + b"\0\0" + b"\xff\0\x80" + rest
