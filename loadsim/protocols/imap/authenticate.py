"""An account's log-on: connection, greeting, TLS, authentication, capabilities."""

from __future__ import annotations

import asyncio
import ssl
import sys

from loadsim.errors import ServerRefused
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.imap.commands import astring
from loadsim.protocols.imap.connection_port import ImapConnection
from loadsim.protocols.imap.grammar import capabilities_of
from loadsim.protocols.imap.responses import Capability
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.authenticate import Dialogue
from loadsim.protocols.sasl.choice import Offer
from loadsim.protocols.sasl.exchange import Exchange

_IN_REV2 = frozenset({"UIDPLUS", "IDLE", "SASL-IR", "MOVE", "LITERAL-"})
"""Capabilities that IMAP4rev2 includes (RFC 9051, appendix E)."""

LOGINDISABLED = "LOGINDISABLED"
"""The capability (RFC 9051 section 6.2.3), and the kind of failure if it rules out every method."""

LONGEST_INITIAL_BYTES = 8000
"""The longest initial response on AUTHENTICATE's line, which RFC 7162 section 4 keeps below 8192 octets."""


async def log_on(connection: ImapConnection, endpoint: Endpoint, context: ssl.SSLContext | None) -> frozenset[str]:
    """Connect, secure, authenticate. Return the capabilities for this user.

    A refused log-on is `ServerRefused` with the kind "NO AUTHENTICATE" or "NO LOGIN". Errors never contain the
    password, even if the server repeats it.
    """
    greeting = await connection.connect(endpoint, context)
    try:
        code = greeting.code
        offered = capabilities_of(code.arguments.encode()) if code and code.name == "CAPABILITY" else None
        if endpoint.tls == "starttls":
            assert context is not None
            if greeting.status == "PREAUTH":
                raise ServerRefused("PREAUTH before STARTTLS", "this connection cannot be secured")
            if "STARTTLS" not in (offered or await _capabilities(connection, endpoint)):
                raise ServerRefused("STARTTLS not offered")
            await connection.start_tls(context, endpoint.tls_name)
            offered = None  # discard what was sent in the clear (RFC 9051 section 6.2.1)
        if greeting.status != "PREAUTH":
            offered = offered or await _capabilities(connection, endpoint)
            await _authenticate(connection, endpoint, connection.account, offered)
        return await _capabilities(connection, endpoint)
    except BaseException:
        connection.abort()
        raise


async def _capabilities(connection: ImapConnection, endpoint: Endpoint) -> frozenset[str]:
    """Send CAPABILITY (RFC 9051 section 6.1.1), and set which literals the connection may send without waiting.

    Capabilities that the scenario ignores are left out.
    """
    answer = await connection.send("CAPABILITY")
    names = [response.names for response in answer.data if isinstance(response, Capability)]
    offered = names[-1] if names else frozenset()
    if "IMAP4REV2" in offered and "IMAP4REV1" not in offered:
        offered |= _IN_REV2
    offered -= endpoint.ignored
    connection.free_literal_bytes = sys.maxsize if "LITERAL+" in offered else 4096 if "LITERAL-" in offered else -1
    return offered


async def _authenticate(
    connection: ImapConnection, endpoint: Endpoint, account: Account, offered: frozenset[str]
) -> None:
    """Log on with the chosen method: the command LOGIN, or AUTHENTICATE (RFC 9051 section 6.2.2)."""
    mechanisms = frozenset(name.removeprefix("AUTH=") for name in offered if name.startswith("AUTH="))
    disabled = LOGINDISABLED in offered
    offer = Offer(mechanisms, login_command=not disabled, encrypted=endpoint.tls != "none")
    refusal = LOGINDISABLED if disabled and not endpoint.methods else "no AUTHENTICATE"

    async def perform(exchange: Exchange | None) -> None:
        if exchange is None:
            await connection.send("LOGIN", astring(account.name), astring(account.password))
            return
        # The initial response is sent at once with SASL-IR (RFC 4959).
        await _exchange(connection, Dialogue(exchange, LONGEST_INITIAL_BYTES if "SASL-IR" in offered else -1))

    try:
        connection.method = await sasl.log_on("IMAP", endpoint, account, offer, refusal, perform)
    except ServerRefused as refused:
        if not disabled or refused.kind == refusal:
            raise
        raise ServerRefused(
            f"{refused.kind}, {LOGINDISABLED}", refused.line
        ) from None  # it may also cover AUTHENTICATE


async def _exchange(connection: ImapConnection, dialogue: Dialogue) -> None:
    challenges: asyncio.Queue[str] = asyncio.Queue()
    answer = connection.send("AUTHENTICATE", *dialogue.words, challenged=challenges.put_nowait)
    try:
        while (challenge := await sasl.next_challenge(challenges, answer)) is not None:
            connection.respond(await dialogue.response(challenge))
    finally:
        answer.cancel()
    await answer
    dialogue.check_sent()
