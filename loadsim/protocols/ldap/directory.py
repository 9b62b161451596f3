"""A user's look-ups in the address book: one LDAP connection, kept from the first look-up until log-off."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.records import LOOP, Arrival
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import Guard, again, failing_as, own_failure
from loadsim.protocols.ldap import messages
from loadsim.protocols.ldap.messages import LdapMessage, LdapResult
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.tls import TlsContexts
from loadsim.protocols.transport import Transport
from loadsim.scenario.log_on import fill

TYPED = 3
"""The characters of an address that a user has typed when the program first asks. An assumption."""

SUGGESTIONS = 10
"""The most entries that the program asks for while the user types. An assumption."""

_SPECIAL = re.compile(r'[ "#+,;<=>\\]')
"""The characters of a name that RFC 4514 section 2.4 escapes, or that it allows to be."""


@dataclass(slots=True, eq=False, repr=False)
class LdapDirectory:
    """Implements `ports.UserDirectory`. A connection that has ended meanwhile is made again."""

    endpoint: Endpoint
    account: Account
    observer: Observer
    limit_s: float
    tls_context: ssl.SSLContext | None
    _connection: LdapConnection | None = field(default=None, init=False)

    async def resolve(self, addresses: Sequence[str]) -> Sequence[str]:
        connection = self._connection
        if connection is None or connection.failure is not None:
            connection = self._connection = await self._open()
        unknown = []
        for address in addresses:
            await connection.search(messages.begins(address[:TYPED]), SUGGESTIONS)
            if address.lower() not in await connection.search(messages.has(address), 2):
                unknown.append(address)
        return unknown

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.leave()
            self._connection = None

    async def _open(self) -> LdapConnection:
        connection = LdapConnection(self.account, self.observer, self.endpoint.path, self.limit_s)
        try:
            await connection.open(self.endpoint, self.tls_context)
        except BaseException:
            connection.abort()
            raise
        return connection


@dataclass(slots=True, eq=False, repr=False)
class LdapDirectories:
    """Opens users' address books. They share TLS contexts. Raises `ConfigError` if a TLS file cannot be read."""

    endpoint: Endpoint
    limit_s: float
    _contexts: TlsContexts = field(init=False)

    def __post_init__(self) -> None:
        self._contexts = TlsContexts(self.endpoint)

    def of(self, account: Account, observer: Observer) -> LdapDirectory:
        return LdapDirectory(self.endpoint, account, observer, self.limit_s, self._contexts.of(account))


class LdapConnection(asyncio.Protocol):
    """A connection with one operation at a time; `failure` is why it ended, None until then."""

    def __init__(self, account: Account, observer: Observer, base: str, limit_s: float) -> None:
        self.failure: TaskFailed | None = None
        self._account, self._observer = account, observer
        self._base, self._limit_s = base, limit_s
        self._transport: Transport | None = None
        self._held = bytearray()
        self._id = 0
        self._expected = 0  # the tag of the awaited response; 0: none is
        self._most = self._received_bytes = 0
        self._addresses: list[str] = []
        self._answer: asyncio.Future[LdapResult] | None = None
        self._guard = Guard(self._fail)

    async def open(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        """Connect, with implicit TLS if the endpoint has it, and bind as the user if the endpoint says how."""
        since_ns, outcome = self._observer.now(), "lost"
        try:
            with failing_as("CONNECT", "lost at CONNECT"):
                async with asyncio.timeout(self._limit_s):
                    await connect(self, endpoint, self._account.number, context, self._observer.now)
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            raise
        finally:
            since_ns = since_ns if self._transport is None else self._transport.began_ns
            self._observer.command("LDAP CONNECT", since_ns, outcome, 0, 0, (self._observer.now(), LOOP))
        if endpoint.bind_dn is not None:
            login = _SPECIAL.sub(r"\\\g<0>", self._account.login)
            name = fill(endpoint.bind_dn, self._account.number, login)
            bind = messages.bind(self._next_id(), name, self._account.password)
            self._check("BIND", await self._ask("BIND", bind, messages.BIND_RESPONSE), messages.SUCCESS)

    async def search(self, matching: bytes, most: int) -> Sequence[str]:
        """Return the addresses of at most so many entries. More than these in the directory are no failure."""
        self._addresses, self._most = [], most
        request = messages.search(self._next_id(), self._base, matching, most)
        result = await self._ask("SEARCH", request, messages.DONE)
        self._check("SEARCH", result, messages.SUCCESS, messages.SIZE_LIMIT_EXCEEDED)
        return self._addresses

    def leave(self) -> None:
        """Unbind (RFC 4511 section 4.3), which has no response, and close."""
        if self.failure is None and self._transport is not None:
            self.failure = ServerLost("closed")
            self._transport.write(messages.unbind(self._next_id()))
            self._transport.close()

    def abort(self) -> None:
        self._fail(ServerLost("closed"))

    # --- out ----------------------------------------------------------------------------------------------------------

    def _next_id(self) -> int:
        self._id += 1
        return self._id

    async def _ask(self, name: str, request: bytes, expected: int) -> LdapResult:
        """Send a request and wait for its result. Raises `TaskFailed`."""
        if self.failure is not None:
            raise again(self.failure)
        assert self._transport is not None
        self._expected, self._received_bytes = expected, 0
        self._answer = asyncio.get_running_loop().create_future()
        since_ns, outcome = self._observer.now(), "lost"
        arrival: Arrival = (0, LOOP)
        try:
            self._transport.write(request)
            with failing_as(name):
                async with asyncio.timeout(self._limit_s):
                    result = await self._answer
            arrival, outcome = self._transport.arrival, "ok"
            if result.code not in (messages.SUCCESS, messages.SIZE_LIMIT_EXCEEDED):
                outcome = "refused"
        except TaskFailed as failure:
            outcome = failure.outcome
            self._fail(failure)
            raise
        except BaseException:
            self.abort()
            raise
        finally:
            arrival = arrival if outcome in ("ok", "refused") else (self._observer.now(), LOOP)
            sent, received = len(request), self._received_bytes
            self._observer.command(f"LDAP {name}", since_ns, outcome, sent, received, arrival)
        return result

    def _check(self, name: str, result: LdapResult, *good: int) -> None:
        """Raise `ServerRefused` for any other result; its kind has the code (RFC 4511 appendix A)."""
        if result.code not in good:
            raise ServerRefused(f"{result.code} {name}", without_password(result.text, self._account))

    # --- in -----------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        if self.failure is not None:  # aborted while connecting
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        with self._guard:
            self._held += data
            for message in messages.split(self._held):
                self._take(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(own_failure(error) or ServerLost("lost at rest" if not self._expected else "connection lost"))

    def _take(self, message: LdapMessage) -> None:
        """Take a message of the server, which belongs to the operation under way, or announces the end."""
        self._received_bytes += message.size_bytes
        if (message.id, message.operation) == (messages.NOTICE, messages.EXTENDED_RESPONSE):
            text = messages.result_of(message.content).text
            raise ServerLost("notice of disconnection", without_password(text, self._account))
        if not self._expected or message.id != self._id:
            raise ProtocolError("LDAP message", "unasked")
        if message.operation == messages.ENTRY and self._expected == messages.DONE:
            self._most -= 1
            if self._most < 0:
                raise ProtocolError("LDAP message", "more entries than were asked for")
            self._addresses += messages.addresses_of(message.content)
        elif message.operation == self._expected:
            result, self._expected = messages.result_of(message.content), 0
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(result)
        elif message.operation != messages.REFERENCE:
            raise ProtocolError("LDAP message", "another response than asked for")

    def _fail(self, failure: TaskFailed) -> None:
        if self.failure is not None:
            return
        self.failure, self._expected = failure, 0
        if self._transport is not None:
            self._transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(again(failure))
