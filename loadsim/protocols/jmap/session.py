"""One user's session of JMAP: the session resource, one request at a time, and the wait for pushed states.

JMAP itself has no session; a log-on reads the session resource, and a loss, silence or 401 ends the session. Any other
refusal leaves it. Pushed states come over a second connection (RFC 8620 section 7.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError, ServerRefused, TaskFailed
from loadsim.protocols.http.channel import HttpDialect
from loadsim.protocols.http.responses import Response
from loadsim.protocols.http.session import HttpSession, settle
from loadsim.protocols.http.targets import MOST_REDIRECTS, REDIRECTS
from loadsim.protocols.jmap.calls import Answers, Call, problem_of, read_answers, request_body
from loadsim.protocols.jmap.events import EventParser, email_state
from loadsim.protocols.jmap.resource import WELL_KNOWN, SessionResource, expanded, read_resource, target
from loadsim.protocols.jmap.state_rules import JmapUserCheck
from loadsim.protocols.jmap.values import malformed, parse

LARGEST_JSON_BYTES = 1 << 23
LARGEST_BLOB_BYTES = 1 << 26
"""The largest responses. 256 headers have 200 KB of JSON; blobs are whole messages and their files."""

PING_S = 60
"""The interval of pings asked of the server: a stream that is silent for longer is lost."""

MOST_FRUITLESS, PAUSE_S = 3, 1.0
"""The number of event streams in a row that end without an event, and the pause that follows."""

JSON = "application/json"
EVENTS = "text/event-stream"
VERSION = "; jmapVersion=rfc-8621"
"""A parameter of Accept: James 3.8 otherwise answers by the draft that preceded the RFCs, unless configured."""


@dataclass(slots=True, eq=False, repr=False)
class JmapSession(HttpSession[SessionResource]):
    """One user's session.

    `on_state` gets each pushed state of Email and its arrival, and None if changes are to be looked for.
    """

    dialect = HttpDialect("JMAP", period_s=lambda _: float(PING_S))
    poll_s: float  # between looks for changes, if the server does not push
    on_state: Callable[[str | None, int | None], Awaitable[None]] = field(init=False)
    check: JmapUserCheck | None = None  # of all the user's sessions
    pushes: bool = field(default=False, init=False)  # the server has accepted an event stream
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _state: tuple[str | None, int | None] | None = field(default=None, init=False)  # pushed, and not taken yet
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    # --- the session ---

    async def log_on(self, calls: Callable[[SessionResource], Sequence[Call]]) -> Answers:
        """Fetch the session resource, following redirects, and send a first request. Return its answers."""
        self.abandon()
        self.failure, self._in_call = None, True
        try:
            self.logon = await self._fetch_resource()
            return await self.ask(calls(self.logon))
        except BaseException:
            self.abandon()
            raise
        finally:
            self._in_call = False

    async def _fetch_resource(self) -> SessionResource:
        at = WELL_KNOWN
        for _ in range(MOST_REDIRECTS):
            response = await self._send("session", "GET", at)
            if response.status not in REDIRECTS:
                return read_resource(response.body, self.endpoint, at)
            at = target(response.fields.get("location", ""), self.endpoint, at)
        raise ServerRefused("too many redirects session", f"expected at most {MOST_REDIRECTS}")

    # --- requests ---

    async def ask(self, calls: Sequence[Call], name: str = "") -> Answers:
        """Send a request of these calls, recorded by its first method unless a name is given."""
        resource = self.current
        body = request_body(calls, resource.account_id)
        async with self._asking:
            began = self.check.begin(calls) if self.check is not None else 0
            response = await self._send(name or calls[0].method, "POST", resource.api, body)
            try:
                answers = read_answers(response.body, calls)
                if self.check is not None:
                    self.check.answered(answers, began)
            except ProtocolError as failure:
                self._end(failure)
                raise
        return answers

    async def upload(self, message: bytes) -> str:
        """Upload a message (RFC 8620 section 6.1). Return its blob's id."""
        resource = self.current
        at = expanded(resource.upload, accountId=resource.account_id)
        async with self._asking:
            response = await self._send("upload", "POST", at, message, "message/rfc822")
        return parse(response.body, "upload").text("blobId")

    async def download(self, blob_id: str) -> bytes:
        """Download a blob (RFC 8620 section 6.2)."""
        resource = self.current
        values = {"accountId": resource.account_id, "blobId": blob_id, "name": "blob"}
        at = expanded(resource.download, **values, type="application/octet-stream")
        async with self._asking:
            return (await self._send("download", "GET", at)).body

    async def _send(self, name: str, method: str, at: str, body: bytes = b"", kind: str = JSON) -> Response:
        """Send an HTTP request. Return its response, which is a success or, for the session resource, a redirect."""
        is_json, is_session = name != "download", name == "session"

        def read(response: Response) -> Response:
            if response.status in (200, 201) or (is_session and response.status in REDIRECTS):
                if is_json and response.status == 200 and not response.fields.get("content-type", "").startswith(JSON):
                    raise ProtocolError("JMAP response", f"expected {JSON}, found another type")
                return response
            raise self._failed(name, response)

        lines = f"Accept: {JSON if is_json else '*/*'}{VERSION}\r\n"
        lines += f"Content-Type: {kind}\r\n" if method == "POST" else ""
        request = self._request(method, at, lines, body)
        most_bytes = LARGEST_JSON_BYTES if is_json else LARGEST_BLOB_BYTES
        try:
            return await self._channel.ask(f"JMAP {name}", request, read, most_bytes=most_bytes)
        except ServerRefused:
            raise
        except TaskFailed as failure:
            self._end(failure)
            raise

    def _failed(self, name: str, response: Response) -> TaskFailed:
        """Return the failure for a status; 401 ends a session that had been logged on."""
        return self._refused(*problem_of(response, name), response.status == 401 and self.logon is not None)

    # --- the wait for changes ---

    async def wait(self) -> None:
        """Wait for changes until the session ends; return once the server has accepted or refused an event stream."""
        await self._wait(self._listen, self._follow)

    async def _listen(self, accepted: asyncio.Future[None]) -> None:
        """Keep an event stream open, and reopen it when it ends. Return if the server refuses it."""
        resource, parser, fruitless, pushed = self.current, EventParser(), 0, False
        at = expanded(resource.events, types="*", closeafter="no", ping=str(PING_S)) if resource.events else ""
        request = self._request("GET", at, f"Accept: {EVENTS}{VERSION}\r\n")
        self.pushes = False

        def begun() -> None:
            if self.pushes:
                self._push(None, None)  # a change may have come before this stream
            self.pushes = True
            settle(accepted)

        def check(response: Response) -> Response:
            if response.status != 200:
                raise self._failed("EventSource", response)
            if not response.fields.get("content-type", "").startswith(EVENTS):
                raise malformed(f"{EVENTS} as the type of events")
            return response

        def take(data: bytes) -> None:
            nonlocal pushed
            for event in parser.feed(data):
                if (state := email_state(event, resource.account_id)) is not None:
                    pushed = True
                    if self.check is not None:
                        self.check.pushed(state)
                    self._push(state, self._waiting.arrival_ns)

        try:
            while at:
                parser, pushed = EventParser(), False
                await self._waiting.ask("JMAP EventSource", request, check, begun, take=take)
                fruitless = 0 if pushed else fruitless + 1
                if fruitless > MOST_FRUITLESS:
                    await asyncio.sleep(PAUSE_S)
        except ServerRefused:
            self.pushes = False
            self._push(None, None)  # `_follow` may wait for a push

    async def _follow(self, accepted: asyncio.Future[None]) -> None:
        """Report pushed states, of several only the last; without pushes, report None at intervals."""
        await asyncio.shield(accepted)
        while True:
            try:
                async with asyncio.timeout(None if self.pushes else self.poll_s):
                    await self._news.wait()
            except TimeoutError:
                self._push(None, None)
            self._news.clear()
            state, self._state = self._state, None
            if state is not None:
                await self.on_state(*state)

    def _push(self, state: str | None, at_ns: int | None) -> None:
        if state is not None or self._state is None:  # else a push is to be looked at
            self._state = state, at_ns
        self._news.set()
