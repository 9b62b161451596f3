"""A JMAP server in the caller's event loop: session, API, uploads, downloads and event source (RFC 8620)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from . import reading, writing  # noqa: F401, they register their methods
from .calls import CORE, MAIL, SUBMIT, Answers, answer, resolved
from .http import Request, Response, answer_json, problem, read_head, unique_names
from .store import TYPES, Account, Refused, User
from .switches import Limits, Switches

Replace = Callable[[Request, Response], Awaitable[Response | bytes]]
"""May return another response, or octets that end the connection; it may wait, too."""

SESSION_STATE = "session-1"
STREAM = Response(200, headers={"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"})
UNAUTHORIZED = Response(401, headers={"WWW-Authenticate": 'Basic realm="JMAP", Bearer'})


async def unchanged(_: Request, response: Response) -> Response:
    return response


class Peer:
    """The server; `switches` must be set before its users come, except for the faults."""

    def __init__(self, users: Sequence[User], switches: Switches, limits: Limits, replace: Replace) -> None:
        self.switches, self.limits, self.replace = switches, limits, replace
        self.own = {user.name: Account(user, self) for user in users}
        self.accounts = {account.id: account for account in self.own.values()}
        self.base = ""
        self._credentials = {f"{user.name}:{user.password}": user for user in users}
        self._tokens = {user.token: user for user in users}
        self._running: Counter[str] = Counter()  # requests to the API, by user
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def account_of(self, address: str) -> Account | None:
        found = (each for each in self.accounts.values() if each.user.address.casefold() == address.casefold())
        return next(found, None)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection's requests, one after another, until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        ends = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
        with suppress(*ends, asyncio.CancelledError):  # asyncio would log the cancellation when the server stops
            while await self._one(reader, writer):
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        del self._connections[task]

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return if the connection goes on."""
        request = await read_head(reader)
        user = self._user(request)
        streams = user is not None and request.path == "/events/" and self.switches.push and self._has_version(request)
        name = user.name if user is not None and request.path == "/api/" else ""
        self._running[name] += 1
        try:
            body = await self._body(request, reader)
            response = STREAM if streams else self._respond(request, user, body)
            replaced = await self.replace(request, response)
        finally:
            self._running[name] -= 1
        if replaced is STREAM and user is not None:
            await self._push(self.own[user.name], reader, writer)
            return False
        writer.write(replaced if isinstance(replaced, bytes) else replaced.encode())
        return isinstance(replaced, Response) and request.headers.get("connection", "").lower() != "close"

    async def _body(self, request: Request, reader: asyncio.StreamReader) -> bytes | None:
        """Return the body, None if it is above the limit."""
        most = self.limits.maxSizeUpload if request.path.startswith("/upload/") else self.limits.maxSizeRequest
        body = await reader.readexactly(request.body_bytes)
        return body if len(body) <= most else None

    def _has_version(self, request: Request) -> bool:
        return not self.switches.needs_version or "jmapVersion=rfc-8621" in request.headers.get("accept", "")

    def _user(self, request: Request) -> User | None:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tokens.get(secret)
        with suppress(binascii.Error, UnicodeDecodeError):
            return self._credentials.get(base64.b64decode(secret).decode()) if scheme.lower() == "basic" else None
        return None

    def _respond(self, request: Request, user: User | None, body: bytes | None) -> Response:
        if user is None or not self._has_version(request):
            return UNAUTHORIZED if user is None else Response(401)
        account = self.own[user.name]
        match request.verb, request.path.split("/")[1:]:
            case "GET", [".well-known", "jmap"]:
                return Response(301, headers={"Location": self._url("/session")})
            case "GET", ["session"]:
                return answer_json(self._session(account))
            case "POST", ["api", ""]:
                if body is None or self._running[user.name] > self.limits.maxConcurrentRequests:
                    return problem("limit", limit="maxSizeRequest" if body is None else "maxConcurrentRequests")
                return self._api(request, account, body)
            case "POST", ["upload", account.id, ""]:
                if body is None:
                    return problem("limit", limit="maxSizeUpload")
                kind = request.headers.get("content-type", "application/octet-stream")
                kept = {"accountId": account.id, "blobId": account.keep_blob(body), "type": kind, "size": len(body)}
                return answer_json(kept, 201)
            case "GET", ["download", account.id, blob_id, _]:
                content = account.blob(blob_id)
                headers = {"Content-Type": request.query.get("accept", "application/octet-stream")}
                return Response(404) if content is None else Response(200, content, headers)
            case "GET", ["events", ""]:
                return Response(204)
        return Response(404)

    def _url(self, path: str) -> str:
        return path if self.switches.relative_urls else self.base + path

    def _session(self, account: Account) -> dict[str, Any]:
        own = {MAIL: {"emailQuerySortOptions": ["receivedAt"]}, SUBMIT: {"maxDelayedSend": 0}}
        shown = {"name": account.user.address, "isPersonal": True, "isReadOnly": False, "accountCapabilities": own}
        return {
            "capabilities": {CORE: {**asdict(self.limits), "collationAlgorithms": []}, MAIL: {}, SUBMIT: {}},
            "accounts": {account.id: shown},
            "primaryAccounts": dict.fromkeys(own, account.id),
            "username": account.user.name,
            "apiUrl": self._url("/api/"),
            "downloadUrl": self._url("/download/{accountId}/{blobId}/{name}?accept={type}"),
            "uploadUrl": self._url("/upload/{accountId}/"),
            "eventSourceUrl": self._url("/events/?types={types}&closeafter={closeafter}&ping={ping}"),
            "state": SESSION_STATE,
        }

    def _api(self, request: Request, account: Account, body: bytes) -> Response:
        """Answer a Request object (RFC 8620 section 3.3)."""
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                raise ValueError
            asked = json.loads(body, object_pairs_hook=unique_names)
        except ValueError:
            return problem("notJSON")
        try:
            using, calls = asked["using"], asked["methodCalls"]
            well = all(isinstance(each, str) for each in using) and isinstance(using, list) and isinstance(calls, list)
            if not (well and all([type(part) for part in each] == [str, dict, str] for each in calls)):
                raise TypeError
        except (KeyError, TypeError):
            return problem("notRequest")
        unknown = set(using) - {CORE, MAIL, SUBMIT}
        if unknown:
            return problem("unknownCapability", detail=f"unknown: {', '.join(sorted(unknown))}")
        if len(calls) > self.limits.maxCallsInRequest:
            return problem("limit", limit="maxCallsInRequest")
        answers: list[tuple[str, dict[str, Any], str]] = []
        for name, args, call_id in calls:
            try:
                given: Answers = answer(self, account, using, name, resolved(args, answers))
            except Refused as refused:
                given = [("error", refused.answer)]
            except (LookupError, TypeError, ValueError, AttributeError) as error:  # of the wrong type, inside
                given = [("error", {"type": "serverFail", "description": repr(error)})]
            answers += [(kind, values, call_id) for kind, values in given]
        return answer_json({"methodResponses": answers, "sessionState": SESSION_STATE})

    async def _push(self, account: Account, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send state changes until the client is gone (RFC 8620 section 7.3)."""
        writer.write(STREAM.head())
        news, seen = asyncio.Event(), account.states
        account.watchers.add(news)
        gone = asyncio.ensure_future(reader.read(1))
        gone.add_done_callback(lambda _: news.set())
        try:
            while await news.wait() and not gone.done():
                news.clear()
                kinds, now = self.switches.push_types or TYPES, account.states
                changed = {kind: state for kind, state in now.items() if kind in kinds and state != seen[kind]}
                if changed:
                    event = json.dumps({"@type": "StateChange", "changed": {account.id: changed}}).encode()
                    chunk = b"event: state\ndata: %s\n\n" % event
                    writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    await writer.drain()
                seen = now
        finally:
            gone.cancel()
            account.watchers.discard(news)

    async def close(self) -> None:
        for task, writer in self._connections.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


@asynccontextmanager
async def jmap_peer(
    users: Sequence[User],
    switches: Switches = Switches(),  # noqa: B008, frozen
    limits: Limits = Limits(),  # noqa: B008, frozen
    replace: Replace = unchanged,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Peer]:
    """Serve on loopback; `base` has the address."""
    peer = Peer(users, switches, limits, replace)
    async with await asyncio.start_server(peer.connection, "127.0.0.1", 0, ssl=tls) as server:
        peer.base = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield peer
        server.close()
        await peer.close()
