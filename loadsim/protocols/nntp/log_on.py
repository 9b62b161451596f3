"""A session's beginning: greeting, TLS, capabilities, reader mode and log-on."""

from __future__ import annotations

import re
import ssl

from loadsim.model.ports import Endpoint
from loadsim.protocols.line_based.connection import Capabilities, LineConnection
from loadsim.protocols.line_based.wire import CHALLENGE, ERROR, OK, LineDialect

_CODE = re.compile(rb"[1-5][0-9]{2}(?= |$)")
_SEND_ARTICLE = b"340"
_SEND_PASSWORD = b"381"
"""RFC 3977 section 6.3.1, RFC 4643 section 2.3."""


def _status(line: bytes) -> tuple[bytes, bytes] | None:
    match = _CODE.match(line)
    if match is None:
        return None
    return CHALLENGE if match[0] == _SEND_ARTICLE else OK if match[0] < b"400" else ERROR, line


def _kind(text: str, command: str) -> str:
    return f"{text[:3]} {command}"


DIALECT = LineDialect("NNTP", _status, _kind, farewell="400")


async def begin(connection: LineConnection, endpoint: Endpoint, context: ssl.SSLContext | None) -> Capabilities:
    """Connect, secure, become a reader, and log on if the server offers that. Return the capabilities."""
    await connection.connect(endpoint, context)
    if endpoint.tls == "starttls":
        assert context is not None
        await connection.start_tls("STARTTLS", context, endpoint.tls_name)
    offered = await _capabilities(connection)
    connection.remember_tls()
    if "MODE-READER" in offered or not offered:
        await connection.ask("MODE READER")
        offered = offered and await _capabilities(connection)
    if endpoint.auth and "USER" in offered.get("AUTHINFO", "").split():
        account = connection.account
        if (await connection.ask_line("AUTHINFO USER", account.name.encode())).startswith(_SEND_PASSWORD):
            await connection.ask("AUTHINFO PASS", account.password.encode())
        offered = await _capabilities(connection)
    return offered


async def _capabilities(connection: LineConnection) -> Capabilities:
    """Return none if the server does not tell them: RFC 3977 requires it, RFC 977 did not."""
    return await connection.capabilities("CAPABILITIES", {})
