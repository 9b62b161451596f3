"""A session of JMAP with a scripted HTTP server: redirects, statuses, hostile bodies, and streams of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from jmap_peer import Peer, User, jmap_peer
from jmap_peer.http import Request as PeerRequest
from jmap_peer.http import Response as PeerResponse
from mailservers import numbered_accounts, start_jmap_peer
from patience import PATIENCE_S
from skipping import watched, within

from loadsim.errors import ProtocolError, ServerLost, ServerRefused
from loadsim.model.mail_program import OUTLOOK_LIKE
from loadsim.model.ports import INBOX, Account, Endpoint, Services, Session
from loadsim.model.provisioning_ports import Probing
from loadsim.protocols.jmap.session import LARGEST_JSON_BYTES, MOST_FRUITLESS, MOST_REDIRECTS
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import no_access

(OWN,) = numbered_accounts(1)

RESOURCE = {
    "capabilities": {
        "urn:ietf:params:jmap:core": {"maxSizeUpload": 9999, "maxObjectsInGet": 100, "maxObjectsInSet": 100},
        "urn:ietf:params:jmap:mail": {},
    },
    "primaryAccounts": {"urn:ietf:params:jmap:mail": "a"},
    "apiUrl": "/api",
    "uploadUrl": "/up/{accountId}",
    "downloadUrl": "/down/{accountId}/{blobId}/{name}?{type}",
    "eventSourceUrl": "/events?{types}{closeafter}{ping}",
}


class Ear:
    """An observer that keeps commands, announcements and losses, and lets a test wait for them."""

    lines = NO_LINES

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []
        self.announced = 0
        self.losses: list[Exception] = []
        self._news = asyncio.Event()

    def now(self) -> int:
        return 0

    def command(self, name: str, since: int, outcome: str, *_: Any) -> None:
        self.commands.append((name, outcome))
        self._news.set()

    def arrived(self, messages: int, *_: Any) -> None:
        self.announced += messages
        self._news.set()

    def lost(self, failure: Exception) -> None:
        self.losses.append(failure)
        self._news.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not reached():
                self._news.clear()
                await self._news.wait()


def response(content: Any, status: str = "200 OK", kind: str = "application/json", fields: str = "") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
    return head.encode() + body


def answer(request: bytes) -> bytes:
    """The answers of an empty account to all methods in a request."""
    calls = json.loads(request.partition(b"\r\n\r\n")[2])["methodCalls"]
    answers = {
        "Mailbox/get": {"list": [{"id": "i", "name": "Inbox", "role": "inbox", "totalEmails": 0}]},
        "Email/query": {"ids": []},
        "Email/get": {"state": "1", "list": [], "notFound": []},
        "Email/changes": {"newState": "1", "created": []},
    }
    return response({"methodResponses": [[name, answers[name], key] for name, _, key in calls]})


Reply = Callable[[str, bytes], bytes]
"""Takes a request's target and the whole request. Returns the response; an empty one ends the connection."""


@asynccontextmanager
async def scripted(reply: Reply) -> AsyncIterator[Services]:
    """A server that answers each request as a script says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int((head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) or 0)
                request = head + await reader.readexactly(length)
                data = reply(head.split(b" ")[1].decode(), request)
                writer.write(data)
                if not data:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        yield Services(jmap=endpoint, command_limit_s=PATIENCE_S)


def talk(reply: Reply, scene: Callable[[Session, Ear], Awaitable[None]], **changes: Any) -> Ear:
    """Let a new session of a user talk to a scripted server, and return what the observer got."""

    async def main() -> Ear:
        ear = Ear()
        async with scripted(reply) as services:
            session = open_driver("jmap", replace(services, **changes)).session(OWN, ear)
            try:
                await scene(session, ear)
            finally:
                session.mailbox.abandon()
        return ear

    return asyncio.run(main())


def services_of(peer: Peer, **settings: Any) -> Services:
    host, _, port = peer.base.removeprefix("http://").partition(":")
    return Services(jmap=Endpoint(host, int(port), **settings), command_limit_s=PATIENCE_S)


def usual(at: str, request: bytes) -> bytes:
    return answer(request) if at == "/api" else response(RESOURCE)


def in_turn(replies: list[Reply]) -> Reply:
    def reply(at: str, request: bytes) -> bytes:
        return replies.pop(0)(at, request)

    return reply


def test_redirects_are_followed_to_the_session_resource() -> None:
    """Cyrus redirects from /.well-known/jmap to /jmap; its URLs are relative to that."""
    asked: list[str] = []

    def reply(at: str, request: bytes) -> bytes:
        asked.append(at)
        if at == "/.well-known/jmap":
            return response(b"", "301 Moved", fields="Location: jmap/a\r\n")
        return answer(request) if at == "/.well-known/jmap/api" else response(RESOURCE | {"apiUrl": "api"})

    async def scene(session: Session, _: Ear) -> None:
        await session.mailbox.log_on()
        assert await session.mailbox.folders() == [INBOX]

    talk(reply, scene)
    assert asked == ["/.well-known/jmap", "/.well-known/jmap/a", "/.well-known/jmap/api"]


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("/.well-known/jmap", "too many redirects session"),
        ("http://192.0.2.1/jmap", "URL of another server"),
        ("", "too many redirects session"),
    ],
)
def test_an_endless_or_foreign_redirect_is_refused(location: str, kind: str) -> None:
    async def scene(session: Session, _: Ear) -> None:
        with pytest.raises(ServerRefused) as caught:
            await session.mailbox.log_on()
        assert caught.value.kind == kind

    ear = talk(lambda *_: response(b"", "302 Found", fields=f"Location: {location}\r\n"), scene)
    assert 0 < len(ear.commands) <= 1 + MOST_REDIRECTS  # with the connection


@watched
async def test_a_busy_server_gets_each_request_again_when_it_demands() -> None:
    """503 and 429 with Retry-After (RFC 9110 section 10.2.3, RFC 6585 section 4)."""
    busy = {"/session": 503, "/api/": 429, "/events/": 503}

    async def replaced(request: PeerRequest, whole: PeerResponse) -> PeerResponse:
        status = busy.pop(request.path, None)
        return PeerResponse(status, headers={"Retry-After": "7"}) if status else whole

    async def work(session: Session) -> None:
        await session.mailbox.log_on()
        await session.mailbox.watch()

    ear = Ear()
    async with jmap_peer([User(OWN.login, OWN.address, OWN.password)], replace=replaced) as peer:
        session = open_driver("jmap", services_of(peer)).session(OWN, ear)
        await within(3 * 8, asyncio.create_task(work(session)), lambda: len(ear.commands))
        session.mailbox.abandon()
    commands = [(name, outcome) for name, outcome in ear.commands if name != "JMAP connection"]
    refused = [at for at, (_, outcome) in enumerate(commands) if outcome == "refused"]
    assert [commands[at][0] for at in refused] == ["JMAP session", "JMAP Mailbox/get", "JMAP EventSource"]
    for at in refused:
        assert commands[at + 1 : at + 3] == [("JMAP Retry-After", "ok"), (commands[at][0], "ok")]
    assert not busy and not ear.losses


@pytest.mark.parametrize("later", ["86400", "Mon, 30 Nov 2026 10:00:00 GMT"])
def test_a_server_that_is_busy_for_too_long_refuses_a_call_and_the_session_goes_on(later: str) -> None:
    """The next call is sent as if nothing had happened."""
    busy = [False]

    def reply(at: str, request: bytes) -> bytes:
        if busy[0]:
            busy[0] = False
            return response(b"", "503 Busy", fields=f"Retry-After: {later}\r\n")
        return usual(at, request)

    async def scene(session: Session, ear: Ear) -> None:
        await session.mailbox.log_on()
        busy[0] = True
        with pytest.raises(ServerRefused) as caught:
            await session.mailbox.headers(INBOX, 50)
        assert (caught.value.kind, caught.value.line) == ("503 Email/query", f"Busy; Retry-After: {later}")
        assert await session.mailbox.headers(INBOX, 50) == []
        assert not ear.losses

    ear = talk(reply, scene)
    assert ear.commands[-2:] == [("JMAP Email/query", "refused"), ("JMAP Email/query", "ok")]


def test_a_session_that_is_no_longer_authorised_ends() -> None:
    """A token may have expired: the user logs on again, with the present one."""
    replies = [usual, usual, lambda *_: response(b"", "401 Unauthorized"), usual, usual]

    async def scene(session: Session, ear: Ear) -> None:
        await session.mailbox.log_on()
        with pytest.raises(ServerLost, match="401 Email/query"):
            await session.mailbox.headers(INBOX, 50)
        with pytest.raises(ServerLost):
            await session.mailbox.folders()
        await session.mailbox.log_on()

    talk(in_turn(replies), scene)
    assert replies == []


NO_MAILBOX = ["Mailbox/get", {"list": []}, "0"]
HOSTILE = {
    "too large": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{" % (LARGEST_JSON_BYTES + 1),
    "too deep": response(b'{"methodResponses":' + b"[" * 100_000),
    "no JSON": response(b"<html>"),
    "another type": response(b"{}", kind="text/html"),
    "no responses": response({"methodResponses": []}),
    "no object": response({"methodResponses": [["Email/query", 1, "0"]]}),
    "no ids": response({"methodResponses": [["Email/query", {"ids": ["../x"]}, "1"], NO_MAILBOX]}),
    "half of the responses": response({"methodResponses": [NO_MAILBOX]}),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_malformed_answer_ends_only_this_session(data: bytes) -> None:
    replies = [usual, usual, lambda *_: data, usual, usual]

    async def scene(session: Session, _: Ear) -> None:
        await session.mailbox.log_on()
        with pytest.raises((ProtocolError, ServerRefused)):
            await session.mailbox.headers(INBOX, 50)
        await session.mailbox.log_on()

    talk(in_turn(replies), scene)
    assert replies == []


def test_a_stream_that_ends_is_reopened_after_a_pause_and_changes_are_looked_for() -> None:
    """A server or proxy may end each stream at once; a change between two is not missed."""
    streams = [0]

    def reply(at: str, request: bytes) -> bytes:
        if at.startswith("/events"):
            streams[0] += 1
            return response(b": hello\n\n", kind="text/event-stream; charset=utf-8")
        return usual(at, request)

    async def scene(session: Session, ear: Ear) -> None:
        await session.mailbox.log_on()
        await session.mailbox.headers(INBOX, 50)
        await session.mailbox.watch()
        await ear.until(lambda: streams[0] > MOST_FRUITLESS and ("JMAP Email/changes", "ok") in ear.commands)
        assert not ear.losses

    talk(reply, scene)


@pytest.mark.parametrize(
    "refusal", [response(b"", "204 No Content"), response(b"", "404 Not Found"), response(b"", "500 Oops")]
)
def test_without_a_stream_users_ask_for_changes_at_the_programs_interval(refusal: bytes) -> None:
    """Cyrus 3.6 advertises an event source, and answers 204."""

    def reply(at: str, request: bytes) -> bytes:
        return refusal if at.startswith("/events") else usual(at, request)

    async def scene(session: Session, ear: Ear) -> None:
        await session.mailbox.log_on()
        await session.mailbox.headers(INBOX, 50)
        await session.mailbox.watch()
        await ear.until(lambda: ear.commands.count(("JMAP poll", "ok")) == 2)
        assert not ear.losses

    ear = talk(reply, scene, program=replace(OUTLOOK_LIKE, poll_s=0.1))
    assert ("JMAP EventSource", "refused") in ear.commands


def test_a_stream_that_is_refused_when_reopened_is_replaced_by_looks_at_intervals() -> None:
    async def main() -> None:
        ear, streams = Ear(), [0]

        async def replaced(request: PeerRequest, whole: PeerResponse) -> PeerResponse:
            if request.path != "/events/":
                return whole
            streams[0] += 1
            if streams[0] == 1:
                return PeerResponse(200, headers={"Content-Type": "text/event-stream"})
            return PeerResponse(404)

        async with jmap_peer([User(OWN.login, OWN.address, OWN.password)], replace=replaced) as peer:
            services = replace(services_of(peer), program=replace(OUTLOOK_LIKE, poll_s=0.1))
            mailbox = open_driver("jmap", services).session(OWN, ear).mailbox
            await mailbox.log_on()
            await mailbox.headers(INBOX, 50)
            await mailbox.watch()
            await ear.until(lambda: ("JMAP poll", "ok") in ear.commands)
            mailbox.abandon()
            assert not ear.losses

    asyncio.run(main())


@watched
async def test_mail_that_arrives_before_a_busy_server_reopens_a_stream_is_found() -> None:
    """The new stream does not push what came before it."""
    ear, streams = Ear(), [0]

    async def replaced(request: PeerRequest, whole: PeerResponse) -> PeerResponse:
        if request.path != "/events/":
            return whole
        streams[0] += 1
        if streams[0] == 1:
            return PeerResponse(200, headers={"Content-Type": "text/event-stream"})
        return whole if streams[0] > 2 else PeerResponse(503, headers={"Retry-After": "20"})

    async def work() -> None:
        watching, other = (open_driver("jmap", services_of(peer)).session(OWN, each).mailbox for each in (ear, Ear()))
        for mailbox in (watching, other):
            await mailbox.log_on()
            await mailbox.headers(INBOX, 50)
        await watching.watch()
        await ear.until(lambda: streams[0] == 2 and ("JMAP EventSource", "refused") in ear.commands)
        await other.append(INBOX, b"Subject: early\r\n\r\n")
        await ear.until(lambda: ear.announced == 1)
        for mailbox in (watching, other):
            mailbox.abandon()

    async with jmap_peer([User(OWN.login, OWN.address, OWN.password)], replace=replaced) as peer:
        await within(30, asyncio.create_task(work()), lambda: len(ear.commands))
    assert not ear.losses


def test_a_malformed_event_ends_the_session_and_is_reported_once() -> None:
    def reply(at: str, request: bytes) -> bytes:
        if at.startswith("/events"):
            event = b'event: state\ndata: {"changed": 1}\n\n'
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            return head + b"%x\r\n%b\r\n" % (len(event), event)
        return usual(at, request)

    async def scene(session: Session, ear: Ear) -> None:
        await session.mailbox.log_on()
        try:
            await session.mailbox.watch()
        except ServerLost:
            return  # the event came together with the head
        await ear.until(lambda: bool(ear.losses))
        assert len(ear.losses) == 1

    talk(reply, scene)


def test_a_request_above_a_limit_is_refused_by_name() -> None:
    """RFC 8620 section 3.6.1; the peer enforces its limits."""

    async def scene(services: Services) -> None:
        with pytest.raises(ServerRefused, match="400 limit maxCallsInRequest Mailbox/get"):
            await open_driver("jmap", services).session(OWN, Ear()).mailbox.log_on()

    with start_jmap_peer([OWN], "maxCallsInRequest=1") as services:
        asyncio.run(scene(services))


def test_a_user_without_drafts_does_not_look_for_it_at_each_message() -> None:
    """Cyrus makes no such mailbox by itself."""

    async def scene(services: Services) -> None:
        ear = Ear()
        session = open_driver("jmap", services).session(OWN, ear)
        await session.mailbox.log_on()
        for number in (1, 2):
            text = f"From: {OWN.address}\r\nMessage-ID: <{number}@example.test>\r\n\r\nx\r\n"
            await session.submission.send(OWN.address, [OWN.address], text.encode())
        await session.mailbox.log_off()
        asked = [name for name, _ in ear.commands]
        assert (asked.count("JMAP Mailbox/get"), asked.count("JMAP EmailSubmission/set")) == (1, 2)

    with start_jmap_peer([OWN], 'mailboxes=[["Inbox","inbox"],["Sent","sent"]]') as services:
        asyncio.run(scene(services))


def test_a_bearer_token_is_read_from_its_file(tmp_path: Path) -> None:
    """Another token is refused, and no error shows it."""
    user = User(OWN.login, OWN.address, OWN.password)
    file = tmp_path / "token"
    account = replace(OWN, password="", token_file=str(file))

    async def main() -> None:
        async with jmap_peer([user]) as peer:
            services = services_of(peer, methods=("bearer",))
            file.write_text(user.token)
            probing = cast(Probing, open_driver("jmap", services).session(account, Ear()).submission)
            assert (await probing.ask(OWN.address, OWN.address)).method == "BEARER"
            file.write_text("an0ther-t0ken")
            with pytest.raises(ServerRefused, match="401 session") as caught:
                await probing.ask(OWN.address, OWN.address)
            assert "an0ther" not in str(no_access("jmap", services, account, caught.value))

    asyncio.run(main())


def test_a_wrong_password_is_explained() -> None:
    async def scene(services: Services) -> None:
        account: Account = replace(OWN, password="wr0ng")
        with pytest.raises(ServerRefused) as caught:
            await open_driver("jmap", services).session(account, Ear()).mailbox.log_on()
        shown = str(no_access("jmap", services, account, caught.value))
        assert (
            "the server answered: 401 session" in shown and "password is not the one" in shown and "wr0ng" not in shown
        )

    with start_jmap_peer([OWN]) as services:
        asyncio.run(scene(services))
