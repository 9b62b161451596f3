"""A session's beginning: TLS, capabilities, log-on, and the list of the maildrop's messages."""

from __future__ import annotations

import re
import ssl
from functools import partial
from typing import NamedTuple

from loadsim.errors import ProtocolError
from loadsim.model.ports import Endpoint
from loadsim.protocols.line_based.connection import LARGEST_LIST_BYTES, Capabilities, LineConnection
from loadsim.protocols.line_based.wire import CHALLENGE, ERROR, OK, LineDialect
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.authenticate import Dialogue
from loadsim.protocols.sasl.choice import Offer
from loadsim.protocols.sasl.exchange import Exchange

LONGEST_COMMAND_BYTES = 255
"""The longest command line, including its CRLF (RFC 2449 section 4)."""

_LINE = re.compile(rb"([1-9][0-9]{0,9}) ([!-~]{1,70})(?: .*)?")
"""A number with a unique-id of at most 70 characters (RFC 1939 section 7), or with a size."""

_CODES = frozenset(("[IN-USE]", "[LOGIN-DELAY]", "[SYS/TEMP]", "[SYS/PERM]", "[AUTH]", "[UTF8]"))
"""Registered response codes (RFC 2449 section 8, RFC 3206, RFC 6856)."""


def _status(line: bytes) -> tuple[bytes, bytes] | None:
    status, _, text = line.partition(b" ")
    return (status.upper(), text) if status.upper() in (OK, ERROR, CHALLENGE) else None


def _kind(text: str, command: str) -> str:
    code = text.partition(" ")[0].upper()
    return f"ERR {code} {command}" if code in _CODES else f"ERR {command}"


DIALECT = LineDialect("POP3", _status, _kind)


class Listed(NamedTuple):
    """A message's number in this session, and its size as the server states it."""

    number: int
    size_bytes: int


async def begin(
    connection: LineConnection, endpoint: Endpoint, context: ssl.SSLContext | None, known: Capabilities | None
) -> Capabilities:
    """Connect, secure, log on. Return the capabilities, asked for unless they are `known` from an earlier session."""
    await connection.connect(endpoint, context)
    if endpoint.tls == "starttls":
        assert context is not None
        await connection.start_tls("STLS", context, endpoint.tls_name)
    offered = await _capabilities(connection) if known is None else known
    connection.remember_tls()
    mechanisms = frozenset(offered.get("SASL", "").split())
    offer = Offer(mechanisms, login_command="USER" in offered, encrypted=endpoint.tls != "none")
    perform = partial(_log_on_by, connection)
    await sasl.log_on("POP3", endpoint, connection.account, offer, "no AUTH", perform)
    if known is None and "TOP" not in offered:  # some servers announce it after the log-on only (RFC 2449 section 5)
        offered = {**offered, **await _capabilities(connection)}
    return offered


async def _capabilities(connection: LineConnection) -> Capabilities:
    """Return the answer to CAPA (RFC 2449 section 5); a server without it has only what RFC 1939 requires."""
    return await connection.capabilities("CAPA", {"USER": ""})


async def _log_on_by(connection: LineConnection, exchange: Exchange | None) -> None:
    """Send AUTH (RFC 5034 section 4), or USER and PASS (RFC 1939 section 7)."""
    account = connection.account
    if exchange is None:
        await connection.ask("USER", account.name.encode())
        await connection.ask("PASS", account.password.encode())
        return
    dialogue = Dialogue(exchange, LONGEST_COMMAND_BYTES - len(f"AUTH {exchange.mechanism} \r\n"))
    await connection.converse("AUTH", b" ".join(dialogue.words), dialogue.response)
    dialogue.check_sent()


async def maildrop(connection: LineConnection) -> dict[str, Listed]:
    """Return the messages by unique-id, in the order of their numbers.

    Equal messages may have one unique-id (RFC 1939 section 7): the second one's has " 2" behind it here.
    """
    unique_ids = numbered_lines(await connection.ask("UIDL", most_bytes=LARGEST_LIST_BYTES), "UIDL")
    sizes = numbered_lines(await connection.ask("LIST", most_bytes=LARGEST_LIST_BYTES), "LIST")
    if unique_ids.keys() != sizes.keys():
        raise ProtocolError("LIST", f"{len(sizes)} messages, where UIDL has {len(unique_ids)}")
    found: dict[str, Listed] = {}
    copies: dict[str, int] = {}
    for number, unique_id in unique_ids.items():
        name, size = unique_id.decode(), sizes[number]
        if not size.isdigit():
            raise ProtocolError("LIST", "expected sizes")
        copies[name] = copies.get(name, 0) + 1
        found[name if copies[name] == 1 else f"{name} {copies[name]}"] = Listed(number, int(size))
    return found


def numbered_lines(lines: bytes, command: str) -> dict[int, bytes]:
    """Return the second word of each line by its first, a number; numbers ascend (RFC 1939 section 5)."""
    found: dict[int, bytes] = {}
    last = 0
    for line in lines.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) <= last:
            raise ProtocolError(command, "expected an ascending number and a word on each line")
        last = int(match[1])
        found[last] = match[2]
    return found
