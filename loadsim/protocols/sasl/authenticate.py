"""One log-on, from the choice of a method to success, for all drivers."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.sasl import choice, tokens
from loadsim.protocols.sasl import exchange as messages
from loadsim.protocols.sasl.choice import Offer
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.protocols.sasl.scram import Scram
from loadsim.scenario.log_on import LOGIN_COMMAND, TOKEN_METHODS

_CALCULATOR = ThreadPoolExecutor(1, "calculator")
"""A single thread: an engine has one core, and more threads would starve its event loop."""

_USUAL = frozenset(("plain", "login", LOGIN_COMMAND))
"""The usual methods, which errors do not name."""


_DENIED = re.compile(r"(NO|BAD) (\[(AUTHENTICATIONFAILED|other)\] )?AUTHENTICATE|5(04|34|35) AUTH|ERR (\[AUTH\] )?AUTH")
"""Kinds of refusals that concern the method or its secret (RFC 5530, RFC 4954 section 4) rather than a limit."""


class _ProofRefused(ServerRefused):
    """The server has compared a SCRAM proof with a secret: another method would only use up an attempt."""


Perform = Callable[[Exchange | None], Awaitable[None]]
"""Sends an exchange's messages, or the command LOGIN if it is None. Raises `ServerRefused` for a refusal."""


async def log_on(
    service: str, endpoint: Endpoint, account: Account, offer: Offer, refusal: str, perform: Perform
) -> str:
    """Log on as `log_on_by` does, with loadsim's own messages."""
    attempt = partial(_log_on_by, endpoint, account, perform)
    return await log_on_by(service, endpoint, account, offer, refusal, attempt)


async def log_on_by(
    service: str,
    endpoint: Endpoint,
    account: Account,
    offer: Offer,
    refusal: str,
    attempt: Callable[[str], Awaitable[None]],
) -> str:
    """Log on to a service (IMAP, SMTP or POP3) with the method that `choice` picks, and return that method.

    `attempt` logs on with a method. Raises `ServerRefused`, of the kind `refusal` if there is no method. If two were
    tried, the error names both.
    """
    method = choice.chosen(endpoint, account, offer)
    if method is None:
        raise ServerRefused(refusal, choice.missing(endpoint, account, offer))
    try:
        await attempt(method)
    except ServerRefused as first:
        denied = _DENIED.fullmatch(first.kind) and type(first) is ServerRefused
        other = choice.second(endpoint, account, offer, method) if denied else None
        if other is None:
            raise
        try:
            await attempt(other)
        except TaskFailed as again:
            choice.tried_second(endpoint, account, succeeded=False)
            if isinstance(again, ServerRefused):
                raise ServerRefused(again.kind, f"({method}, then {other}) {again.line}") from None
            if type(again) is ServerLost:  # some servers end a connection after a refusal
                raise first from None
            raise
        choice.tried_second(endpoint, account, succeeded=True)
        method = other
    choice.accepted(service, endpoint, method)
    return method


async def _log_on_by(endpoint: Endpoint, account: Account, perform: Perform, method: str) -> None:
    """Log on with a method. A refusal names it, with the reasons that the exchange and the token give."""
    if method == LOGIN_COMMAND:
        await perform(None)
        return
    token = ""
    if method in TOKEN_METHODS:
        assert account.token_file is not None
        token = tokens.current(account.token_file)
    exchange = exchange_of(method, endpoint, account, token)
    try:
        await perform(exchange)
    except ServerRefused as refusal:
        reasons = [method, exchange.reason(), tokens.expiry_note(token)]
        if method in _USUAL and not exchange.reason():
            raise
        # GNU imap4d, which offers SCRAM without secrets, refuses proofs without a code.
        compared = refusal.kind.startswith(("NO [AUTHENTICATIONFAILED]", "535", "ERR [AUTH]"))
        kind = _ProofRefused if isinstance(exchange, Scram) and exchange.stage and compared else ServerRefused
        raise kind(refusal.kind, f"({': '.join(filter(None, reasons))}) {refusal.line}") from None
    exchange.succeed()


def exchange_of(method: str, endpoint: Endpoint, account: Account, token: str = "") -> Exchange:
    match method:
        case "plain":
            return messages.Messages("PLAIN", messages.plain(account))
        case "login":
            return messages.login(account)
        case "cram-md5":
            return messages.cram_md5(account)
        case "external":
            return messages.Messages("EXTERNAL", (account.authzid or "").encode())
        case "xoauth2":
            return messages.Bearer("XOAUTH2", messages.xoauth2(account, token), b"")
        case "oauthbearer":
            return messages.Bearer("OAUTHBEARER", messages.oauthbearer(account, token, endpoint), b"\1")
        case _:
            return Scram(method.upper(), account)


@dataclass(slots=True, repr=False)
class Dialogue:
    """One exchange as lines, in Base64. No I/O, except that slow calculations run in a thread.

    `words` are the command's arguments: the mechanism, and the initial response if it has at most `room_bytes`. A
    longer one answers the server's first challenge, which is empty (RFC 4954 section 4, RFC 9051 section 6.2.2).
    """

    exchange: Exchange
    room_bytes: int
    words: list[bytes] = field(init=False)
    _held: bytes | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.words = [self.exchange.mechanism.encode()]
        message = self.exchange.initial()
        if message is None:
            return
        initial = b64encode(message)
        if len(initial) <= self.room_bytes:
            self.words.append(initial or b"=")
        else:
            self._held = initial

    async def response(self, challenge: str) -> bytes:
        """Return the response to a challenge. Raises `TaskFailed`."""
        if self._held is not None:
            held, self._held = self._held, None
            return held
        decoded = messages.decoded(challenge, self.exchange.mechanism)
        work = self.exchange.work(decoded)
        if work is not None:
            await asyncio.get_running_loop().run_in_executor(_CALCULATOR, work)
        return b64encode(self.exchange.respond(decoded))

    def check_sent(self) -> None:
        """Raise `ProtocolError` if the server accepted the log-on before the initial response."""
        if self._held is not None:
            raise ProtocolError(f"{self.exchange.mechanism} success", "OK before the initial response")


async def next_challenge(challenges: asyncio.Queue[str], end: asyncio.Future[Any]) -> str | None:
    """Return the next challenge; None if the command ends first."""
    if end.done():
        return None
    waiting = asyncio.ensure_future(challenges.get())
    try:
        await asyncio.wait({waiting, end}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
