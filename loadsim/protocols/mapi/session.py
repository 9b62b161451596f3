"""One user's session of MAPI over HTTP: its contexts, their cookies, one Execute at a time, and the wait for events.

The mailbox's context and the address book's share a connection; NotificationWait has its own, since its response may
take minutes (MS-OXCMAPIHTTP section 3.1.5). Any failed request ends the session, and the user logs on again; a refused
remote operation does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from loadsim.errors import MailMissing, ProtocolError, ServerRefused, TaskFailed
from loadsim.protocols.error_mapping import again
from loadsim.protocols.http.responses import Response
from loadsim.protocols.http.session import HttpSession, settle
from loadsim.protocols.mapi import bodies
from loadsim.protocols.mapi.codes import NOT_FOUND, PARTIAL, ErrorCode
from loadsim.protocols.mapi.http import DIALECT, MAPI_CONTENT
from loadsim.protocols.mapi.rop_buffer import Notified, executed, rop_buffer
from loadsim.protocols.mapi.rops import NO_HANDLE, Handle, LoggedOn, Request, logon, release

ADDRESS_BOOK_PATH = "/mapi/nspi"
"""The address book's path, unless the mailbox's ends in emsmdb."""

LONGEST_WAIT_S = 1800.0
"""The longest NotificationWait; servers end one after five minutes (MS-OXCMAPIHTTP section 3.2.5.5)."""

MOST_FRUITLESS, PAUSE_S = 3, 1.0
"""The number of waits in a row without an event that causes a pause, and the pause: a server may end each wait at once.

A single one means little: another response may have carried the event.
"""

MOST_COOKIES = 64
"""The most cookies in a context: each request repeats them."""

_CLIENT = "Outlook/16.0.0.0"
"""X-ClientApplication, on which servers' answers depend (MS-OXCMAPIHTTP section 2.2.3.3.3)."""

_OPEN_PARTS = frozenset({"OpenMessage", "OpenAttachment", "OpenStream"})
"""Operations that look up a message or part of it."""

R = TypeVar("R")


@dataclass(slots=True)
class _Context:
    """A context on the server: its path, and the cookies that name it and its next request."""

    path: str
    cookies: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class MapiSession(HttpSession[LoggedOn]):
    """One user's session. `on_events` gets the mailbox's events."""

    dialect = DIALECT
    on_events: Callable[[Sequence[Notified]], None] = lambda _: None
    mailbox: Handle = field(default_factory=Handle, init=False)  # the logon
    unused: list[Handle] = field(default_factory=list, init=False)  # released by the next Execute
    _mailbox: _Context = field(init=False)
    _address_book: _Context = field(init=False)
    _names: str = field(init=False)
    _numbers: count[int] = field(init=False)
    _executing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _events: list[Notified] = field(default_factory=list, init=False)  # not reported yet

    def __post_init__(self) -> None:
        HttpSession.__post_init__(self)
        self._forget()

    def _forget(self) -> None:
        """Start over with new contexts."""
        path, _, query = self.endpoint.path.partition("?")
        path, query = path.rstrip("/"), query or f"MailboxId={quote(self.account.address, safe='@')}"
        self._mailbox = _Context(f"{path}/?{query}")
        head, found, _ = path.rpartition("/emsmdb")
        self._address_book = _Context(f"{f'{head}/nspi' if found else ADDRESS_BOOK_PATH}/?{query}")
        self._names, self._numbers = f"{{{uuid4()}}}", count(1)
        self.logon, self.failure = None, None
        self.unused.clear()

    # --- the session ---

    async def log_on(self, user_dn: Callable[[], Awaitable[str]], request: Callable[[Handle], Request[R]]) -> R:
        """Connect, and execute a Logon and a request on it. Return the request's answer.

        `user_dn` returns the mailbox's distinguished name, which may come from the address book.
        """
        self.abandon()
        self._forget()
        self._in_call = True
        try:
            dn = await user_dn()
            await self._ask(self._mailbox, bodies.connect(dn))
            logged_on = logon(dn)
            asked = request(logged_on.opened)
            await self.execute("Logon", [logged_on, asked], lists=True)
        except BaseException:
            self.abandon()
            raise
        finally:
            self._in_call = False
        self.logon, self.mailbox = logged_on.answer, logged_on.opened
        return asked.answer

    async def log_off(self) -> None:
        """Disconnect (MS-OXCMAPIHTTP section 3.1.5.4), first unbinding from the address book if it was used."""
        with self:
            try:
                async with self._executing:  # the wait may be fetching events
                    self._stop_waiting()
                    self.logon = None
                    if self._address_book.cookies:
                        await self._ask(self._address_book, bodies.unbind())
                    await self._ask(self._mailbox, bodies.disconnect())
            finally:
                self.abandon()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._report_events()
        HttpSession.__exit__(self, kind, error, _)

    def _report_events(self) -> None:
        events, self._events = self._events, []
        if events:
            self.on_events(events)

    # --- requests ---

    async def execute(self, name: str, batch: Sequence[Request[Any]], lists: bool = False) -> None:
        """Execute requests together, filling in their answers and their objects' numbers.

        Raises `ServerRefused` if an operation is refused; `MailMissing` if it is done for only some messages, or if a
        message or part is missing.

        `name` is the batch's main operation, for the log. With `lists`, events wait until the call ends, as the list
        may include the message that they announce.
        """
        async with self._executing:
            if self.failure is not None:
                raise again(self.failure)
            requests = [*[release(handle) for handle in self.unused if handle.number != NO_HANDLE], *batch]
            self.unused.clear()
            buffer, table = rop_buffer(requests)
            answer = await self._ask(self._mailbox, bodies.execute(buffer), name)
            try:
                self._events += executed(answer, requests, table)
            except ProtocolError as failure:
                self._end(failure)
                raise
        for request in batch:
            if (failed := request.failed) is not None and not request.may_fail:
                missing = failed.code == PARTIAL or (failed.code == NOT_FOUND and request.name in _OPEN_PARTS)
                raise (MailMissing if missing else ServerRefused)(f"{failed.name} {request.name}", failed.line)
        if not lists:
            self._report_events()

    async def ask_address_book(self, request: bodies.BodyRequest[R]) -> R:
        """Ask the address book, with a Bind before a session's first request."""
        async with self._executing:
            if not self._address_book.cookies:
                await self._ask(self._address_book, bodies.bind())
            return await self._ask(self._address_book, request)

    async def _ask(self, context: _Context, request: bodies.BodyRequest[R], name: str = "") -> R:
        """Send a request in its context, and return the body of its response. Any failure ends the session."""
        kind = name or request.request_type
        head = self._http(context, request)

        def read(response: Response) -> R:
            ends = self.logon is not None and context is self._mailbox
            self._check(kind, response, ends)
            context.cookies |= response.cookies
            if len(context.cookies) > MOST_COOKIES:
                raise ProtocolError("HTTP response", f"more than {MOST_COOKIES} cookies")
            body = bodies.body_of(request, response.body)
            if isinstance(body, ErrorCode):
                raise self._refused(f"{body.name} {kind}", "", ends)
            return body

        try:
            return await self._channel.ask(f"MAPI {kind}", head, read)
        except ServerRefused:
            context.cookies.clear()  # the next request to the address book binds again
            raise
        except TaskFailed as failure:
            self._end(failure)
            raise

    def _http(self, context: _Context, request: bodies.BodyRequest[Any]) -> bytes:
        """Return an HTTP request (MS-OXCMAPIHTTP section 2.2.2.1)."""
        number = next(self._numbers)
        cookies = "; ".join([f"{name}={value}" for name, value in context.cookies.items()])
        lines = (
            f"Content-Type: {MAPI_CONTENT}\r\n"
            f"X-ClientApplication: {_CLIENT}\r\n"
            f"X-RequestType: {request.request_type}\r\n"
            f"X-RequestId: {self._names}:{number}\r\n"
            f"X-ClientInfo: {self._names}:{number}\r\n" + (f"Cookie: {cookies}\r\n" if cookies else "")
        )
        return self._request("POST", context.path, lines, request.body)

    def _check(self, kind: str, response: Response, ends: bool) -> None:
        """Raise the failure stated by the response's HTTP status or X-ResponseCode; see `_refused`."""
        code = response.fields.get("x-responsecode", "0")
        if response.status != 200:
            raise self._refused(f"{response.status} {kind}", response.line, ends)
        if code != "0":
            shown = code if code.isdecimal() and len(code) < 4 else "malformed"
            raise self._refused(f"X-ResponseCode {shown} {kind}", "", ends)
        if not response.fields.get("content-type", "").startswith(MAPI_CONTENT):
            raise ProtocolError("MAPI response", f"expected {MAPI_CONTENT}, found another type; is the URL right?")

    # --- the wait for events ---

    async def wait(self) -> None:
        """Wait for events until the session ends; return once the server has accepted the first NotificationWait."""
        await self._wait(self._wait_again)

    async def _wait_again(self, accepted: asyncio.Future[None]) -> None:
        """Send NotificationWaits, one after another (MS-OXCMAPIHTTP section 2.2.4.4), and fetch the events.

        These requests are not part of the others' sequence, so the cookies stay as they are.
        """

        def check(response: Response) -> Response:
            self._check("NotificationWait", response, ends=True)
            return response

        fruitless = 0
        while True:
            request = bodies.notification_wait()
            head = self._http(self._mailbox, request)
            begun = partial(settle, accepted)
            response = await self._waiting.ask("MAPI NotificationWait", head, check, begun, LONGEST_WAIT_S)
            settle(accepted)
            body = bodies.body_of(request, response.body)
            if isinstance(body, ErrorCode):
                raise self._refused(f"{body.name} NotificationWait", "", ends=True)
            if body:
                await self.execute("Notify", [], lists=True)
            fruitless = 0 if self._events else fruitless + 1
            self._report_events()
            if fruitless > MOST_FRUITLESS:
                await asyncio.sleep(PAUSE_S)
