"""The log-on of an account: connection, greeting, TLS, authentication, capabilities."""

from __future__ import annotations

import ssl
import sys

from loadsim.errors import ServerRefused
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.imap.commands import astring
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.grammar import capabilities_of
from loadsim.protocols.imap.responses import Capability
from loadsim.protocols.sasl import plain

_IN_REV2 = frozenset({"UIDPLUS", "IDLE", "SASL-IR", "MOVE", "LITERAL-"})
"""Capabilities that IMAP4rev2 includes (RFC 9051, appendix E)."""


async def log_on(connection: Connection, endpoint: Endpoint, context: ssl.SSLContext | None) -> frozenset[str]:
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
            if "STARTTLS" not in (offered or await _capabilities(connection)):
                raise ServerRefused("STARTTLS not offered")
            await connection.start_tls(context, endpoint.host)
            offered = None  # discard what was sent in the clear (RFC 9051 section 6.2.1)
        if greeting.status != "PREAUTH":
            await _authenticate(connection, connection.account, offered or await _capabilities(connection))
        return await _capabilities(connection)
    except BaseException:
        connection.abort()
        raise


async def _capabilities(connection: Connection) -> frozenset[str]:
    """Send CAPABILITY (RFC 9051 section 6.1.1), and set the literals that the connection may send."""
    answer = await connection.send("CAPABILITY")
    names = [response.names for response in answer.data if isinstance(response, Capability)]
    offered = names[-1] if names else frozenset()
    if "IMAP4REV2" in offered and "IMAP4REV1" not in offered:
        offered |= _IN_REV2
    connection.free_literal_bytes = sys.maxsize if "LITERAL+" in offered else 4096 if "LITERAL-" in offered else -1
    return offered


async def _authenticate(connection: Connection, account: Account, offered: frozenset[str]) -> None:
    """Send AUTHENTICATE PLAIN (RFC 9051 section 6.2.2, RFC 4616; with SASL-IR of RFC 4959), or otherwise LOGIN."""
    if "AUTH=PLAIN" in offered:
        if "SASL-IR" in offered:
            await connection.send("AUTHENTICATE", b"PLAIN", plain(account))
        else:
            await connection.send("AUTHENTICATE", b"PLAIN", after=plain(account))
    elif "LOGINDISABLED" in offered:
        raise ServerRefused("LOGINDISABLED", "the server takes neither AUTHENTICATE PLAIN nor LOGIN here")
    else:
        await connection.send("LOGIN", astring(account.login), astring(account.password))
