"""A JMAP server in the caller's event loop: session, API, uploads, downloads and event source (RFC 8620)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
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
        self.users, self.limits, self.replace = users, limits, replace
        by_name = {user.name: Account(user, switches) for user in users}
        self.accounts = {account.id: account for account in by_name.values()}
        self.usable = {user.name: [by_name[name] for name in (user.name, *user.shares)] for user in users}
        self.switches = switches
        self.base = ""
        self._credentials = {f"{user.name}:{user.password}": user for user in users}
        self._tokens = {user.token: user for user in users}
        self._running: Counter[tuple[str, str]] = Counter()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def switches(self) -> Switches:
        return self._switches

    @switches.setter
    def switches(self, switches: Switches) -> None:
        self._switches = switches
        for account in self.accounts.values():
            account.switches = switches

    def account(self, user: User, account_id: str) -> Account:
        if account_id not in [account.id for account in self.usable[user.name]]:
            raise Refused("accountNotFound")
        return self.accounts[account_id]

    def account_of(self, address: str) -> Account | None:
        found = (each for each in self.accounts.values() if each.user.address.casefold() == address.casefold())
        return next(found, None)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection's requests, one after another, until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        ends = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, ssl.SSLError)
        with suppress(*ends, asyncio.CancelledError):  # asyncio would log the cancellation when the server stops
            while await self._one(reader, writer):
                await writer.drain()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        del self._connections[task]

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return if the connection goes on."""
        request = await read_head(reader)
        user = self._user(request)
        streams = user is not None and request.path == "/events/" and self.switches.push and self._has_version(request)
        with self._running_for(user, request.path) as at_once:
            body = await self._body(request, reader)
            response = STREAM if streams else self._respond(request, user, body, at_once)
            replaced = await self.replace(request, response)
        if replaced is STREAM and user is not None:
            await self._push(request, user, reader, writer)
            return False
        writer.write(replaced if isinstance(replaced, bytes) else replaced.encode())
        return isinstance(replaced, Response) and request.headers.get("connection", "").lower() != "close"

    @contextmanager
    def _running_for(self, user: User | None, path: str) -> Iterator[int]:
        key = (user.name if user else "", path.split("/")[1])
        self._running[key] += 1
        try:
            yield self._running[key]
        finally:
            self._running[key] -= 1

    async def _body(self, request: Request, reader: asyncio.StreamReader) -> bytes | None:
        """Return the body, None if it is above the limit."""
        is_upload = request.path.startswith("/upload/")
        if request.body_bytes <= (self.limits.maxSizeUpload if is_upload else self.limits.maxSizeRequest):
            return await reader.readexactly(request.body_bytes)
        left = request.body_bytes
        while left:
            left -= len(await reader.readexactly(min(left, 65536)))
        return None

    def _has_version(self, request: Request) -> bool:
        return not self.switches.needs_version or "jmapVersion=rfc-8621" in request.headers.get("accept", "")

    def _user(self, request: Request) -> User | None:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tokens.get(secret)
        with suppress(binascii.Error, UnicodeDecodeError):
            return self._credentials.get(base64.b64decode(secret).decode()) if scheme.lower() == "basic" else None
        return None

    def _respond(self, request: Request, user: User | None, body: bytes | None, at_once: int) -> Response:
        if user is None or not self._has_version(request):
            return UNAUTHORIZED if user is None else Response(401)
        match request.verb, request.path.split("/")[1:]:
            case "GET", [".well-known", "jmap"]:
                return Response(301, headers={"Location": self._url("/session")})
            case "GET", ["session"]:
                return answer_json(self._session(user))
            case "POST", ["api", ""]:
                if body is None or at_once > self.limits.maxConcurrentRequests:
                    return problem("limit", limit="maxSizeRequest" if body is None else "maxConcurrentRequests")
                return self._api(request, user, body)
            case "POST", ["upload", account_id, ""] if account_id in self._ids(user):
                if body is None or at_once > self.limits.maxConcurrentUpload:
                    return problem("limit", limit="maxSizeUpload" if body is None else "maxConcurrentUpload")
                kind = request.headers.get("content-type", "application/octet-stream")
                blob_id = self.accounts[account_id].keep_blob(body)
                kept = {"accountId": account_id, "blobId": blob_id, "type": kind, "size": len(body)}
                return answer_json(kept, 201)
            case "GET", ["download", account_id, blob_id, _] if account_id in self._ids(user):
                content = self.accounts[account_id].blob(blob_id)
                headers = {"Content-Type": request.query.get("accept", "application/octet-stream")}
                return Response(404) if content is None else Response(200, content, headers)
            case "GET", ["events", ""]:
                return Response(204)
        return Response(404)

    def _ids(self, user: User) -> list[str]:
        return [account.id for account in self.usable[user.name]]

    def _url(self, path: str) -> str:
        return path if self.switches.relative_urls else self.base + path

    def _session(self, user: User) -> dict[str, Any]:
        mail = {"maxMailboxesPerEmail": None, "maxMailboxDepth": None, "maxSizeMailboxName": 200}
        mail |= {"maxSizeAttachmentsPerEmail": self.limits.maxSizeUpload, "mayCreateTopLevelMailbox": True}
        mail |= {"emailQuerySortOptions": ["receivedAt", "size", "subject", "sentAt"]}
        own = {MAIL: mail, SUBMIT: {"maxDelayedSend": 0, "submissionExtensions": {}}}
        accounts = {
            account.id: {
                "name": account.user.address,
                "isPersonal": account.user is user,
                "isReadOnly": False,
                "accountCapabilities": own,
            }
            for account in self.usable[user.name]
        }
        return {
            "capabilities": {CORE: {**asdict(self.limits), "collationAlgorithms": []}, MAIL: {}, SUBMIT: {}},
            "accounts": accounts,
            "primaryAccounts": dict.fromkeys(own, self._ids(user)[0]),
            "username": user.name,
            "apiUrl": self._url("/api/"),
            "downloadUrl": self._url("/download/{accountId}/{blobId}/{name}?accept={type}"),
            "uploadUrl": self._url("/upload/{accountId}/"),
            "eventSourceUrl": self._url("/events/?types={types}&closeafter={closeafter}&ping={ping}"),
            "state": SESSION_STATE,
        }

    def _api(self, request: Request, user: User, body: bytes) -> Response:
        """Answer a Request object (RFC 8620 section 3.3)."""
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                raise ValueError
            asked = json.loads(body, object_pairs_hook=unique_names)
        except ValueError:
            return problem("notJSON")
        try:
            using, calls, created = asked["using"], asked["methodCalls"], dict(asked.get("createdIds") or {})
            well = all(isinstance(each, str) for each in using) and isinstance(using, list) and isinstance(calls, list)
            if not (well and all([type(part) for part in each] == [str, dict, str] for each in calls)):
                raise TypeError
        except (KeyError, TypeError, ValueError):
            return problem("notRequest")
        unknown = set(using) - {CORE, MAIL, SUBMIT}
        if unknown:
            return problem("unknownCapability", detail=f"unknown: {', '.join(sorted(unknown))}")
        if len(calls) > self.limits.maxCallsInRequest:
            return problem("limit", limit="maxCallsInRequest")
        answers: list[tuple[str, dict[str, Any], str]] = []
        for name, args, call_id in calls:
            try:
                given: Answers = answer(self, user, using, name, resolved(args, answers), created)
            except Refused as refused:
                given = [("error", refused.answer)]
            except (
                LookupError,
                TypeError,
                ValueError,
                AttributeError,
            ) as error:  # of the wrong type, below an argument
                given = [("error", {"type": "serverFail", "description": repr(error)})]
            answers += [(kind, values, call_id) for kind, values in given]
        if self.switches.omits_nulls:
            answers = [(kind, without_nulls(values), call_id) for kind, values, call_id in answers]
        response = {"methodResponses": answers, "sessionState": SESSION_STATE}
        return answer_json(response | ({"createdIds": created} if "createdIds" in asked else {}))

    async def _push(
        self, request: Request, user: User, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send state changes until the client is gone (RFC 8620 section 7.3)."""
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        wanted, ping = request.query.get("types", "*").split(","), int(request.query.get("ping") or 0)
        types = [kind for kind in self.switches.push_types or TYPES if kind in wanted or "*" in wanted]
        accounts, news, loop = self.usable[user.name], asyncio.Event(), asyncio.get_running_loop()
        sent = [int(each) for each in request.headers.get("last-event-id", "").split(".") if each.isdigit()]
        seen = dict(zip(self._states(accounts), sent, strict=False)) or self._states(accounts)
        for account in accounts:
            account.watchers.add(news)
        news.set()
        gone = asyncio.ensure_future(reader.read(1))
        due_s = loop.time() + ping
        try:
            while not gone.done():
                waiting = asyncio.ensure_future(news.wait())
                left_s = max(0.0, due_s - loop.time()) if ping else None
                await asyncio.wait({gone, waiting}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                news.clear()
                now = self._states(accounts)
                changed = {key: state for key, state in now.items() if key[1] in types and state != seen.get(key)}
                if changed:
                    await send_chunk(writer, self._state_change(changed, seen, now))
                    if request.query.get("closeafter") == "state":
                        await send_chunk(writer, "")
                        return
                elif ping and loop.time() >= due_s:
                    await send_chunk(writer, f'event: ping\ndata: {{"interval": {ping}}}\n\n')
                else:
                    continue
                seen, due_s = now, loop.time() + ping
        finally:
            gone.cancel()
            for account in accounts:
                account.watchers.discard(news)

    def _states(self, accounts: Sequence[Account]) -> dict[tuple[str, str], int]:
        return {(account.id, kind): len(account.logs[kind].changes) for account in accounts for kind in TYPES}

    def _state_change(self, changed: dict[tuple[str, str], int], seen: dict[tuple[str, str], int], now: Any) -> str:
        told: dict[str, dict[str, str]] = {}
        for (account_id, kind), state in changed.items():
            old = seen.get((account_id, kind), 0)
            told.setdefault(account_id, {})[kind] = f"s{old if self.switches.pushes_old_state else state}"
        data = json.dumps({"@type": "StateChange", "changed": told})
        return f"event: state\nid: {'.'.join(map(str, now.values()))}\ndata: {data}\n\n"

    async def close(self) -> None:
        for task, writer in self._connections.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


def without_nulls(value: Any, name: str = "") -> Any:
    """Return JSON without null members; in `updated`, null means success."""
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {key: without_nulls(each, key) for key, each in value.items() if each is not None or name == "updated"}
    return value


async def send_chunk(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))
    await writer.drain()


@asynccontextmanager
async def jmap_peer(
    users: Sequence[User],
    switches: Switches = Switches(),  # noqa: B008, frozen
    limits: Limits = Limits(),  # noqa: B008, frozen
    replace: Replace = unchanged,
    tls: ssl.SSLContext | None = None,
    port: int = 0,
) -> AsyncIterator[Peer]:
    """Serve on loopback; `base` has the address."""
    peer = Peer(users, switches, limits, replace)
    async with await asyncio.start_server(peer.connection, "127.0.0.1", port, ssl=tls) as server:
        peer.base = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield peer
        server.close()
        await peer.close()
