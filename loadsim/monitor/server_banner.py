"""What a mail server says of itself to anybody who connects: greetings, capabilities, name. Nobody logs on for it.

Asked once, before there is load, for the record. It is no check: a server that does not answer in time, or not as
expected, has said nothing; whether it can be used is found out by those who use it.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from io import BufferedRWPair
from typing import Any

from loadsim.errors import ConfigError, printable
from loadsim.model.ports import Endpoint, Services
from loadsim.protocols.tls import tls_context

LONGEST_LINE_BYTES = 4096
MOST_LINES = 100
PATIENCE_S = 5.0

FACTS = ("imap_greeting", "imap_capabilities", "imap_identity", "smtp_greeting", "smtp_extensions")
"""What is asked: texts, and of capabilities and extensions lists of words."""

LONGEST_SHOWN = 500


def greetings(services: Services) -> dict[str, Any]:
    """`FACTS` as IMAP and SMTP say them, for the machine's log; None is what they do not say.

    Where TLS begins after the greeting (STARTTLS), they are what is said before it.
    """
    limit_s = min(PATIENCE_S, services.command_limit_s)
    found: dict[str, Any] = dict.fromkeys(FACTS)
    for endpoint, ask in ((services.imap, _ask_imap), (services.smtp, _ask_smtp)):
        with (
            suppress(OSError, ConfigError),
            _connected(endpoint, limit_s) as connection,
            connection.makefile("rwb") as stream,
        ):
            ask(stream, found)
    return found


def _connected(endpoint: Endpoint, limit_s: float) -> socket.socket:
    """Raises `OSError`, of which `ssl.SSLError` is one, or `ConfigError` for a bad file of authorities."""
    context = tls_context(endpoint) if endpoint.tls == "implicit" else None
    source = endpoint.source(0)
    connection = socket.create_connection(
        (endpoint.host, endpoint.port), limit_s, source_address=(source, 0) if source else None
    )
    if context is None:
        return connection
    try:
        return context.wrap_socket(connection, server_hostname=endpoint.host)
    except BaseException:
        connection.close()
        raise


def _ask_imap(stream: BufferedRWPair, found: dict[str, Any]) -> None:
    """Greeting, CAPABILITY (RFC 9051 section 6.1.1), ID where it is offered (RFC 2971), LOGOUT."""
    greeting = _line(stream)
    if not greeting.startswith("* "):
        return
    found["imap_greeting"] = greeting[2:]
    for line in _answer(stream, b"a CAPABILITY"):
        if line.upper().startswith("* CAPABILITY "):
            found["imap_capabilities"] = line.split()[2:]
    if "ID" in map(str.upper, found["imap_capabilities"] or ()):
        for line in _answer(stream, b"b ID NIL"):
            if line.upper().startswith("* ID ("):
                found["imap_identity"] = " ".join(re.findall(r'"([^"]*)"', line))
    _answer(stream, b"c LOGOUT")


def _answer(stream: BufferedRWPair, command: bytes) -> list[str]:
    """The lines up to the tagged one."""
    stream.write(command + b"\r\n")
    stream.flush()
    tag = command.decode().split()[0] + " "
    lines: list[str] = []
    while len(lines) < MOST_LINES:
        line = _line(stream)
        if not line or line.startswith(tag):
            break
        lines.append(line)
    return lines


def _ask_smtp(stream: BufferedRWPair, found: dict[str, Any]) -> None:
    """Greeting, EHLO (RFC 5321 section 4.1.1.1), QUIT."""
    greeting = _replies(stream)
    if not greeting:
        return
    found["smtp_greeting"] = " ".join(greeting)
    stream.write(b"EHLO [127.0.0.1]\r\n")
    stream.flush()
    found["smtp_extensions"] = _replies(stream)[1:]
    stream.write(b"QUIT\r\n")
    stream.flush()
    _line(stream)


def _replies(stream: BufferedRWPair) -> list[str]:
    """The texts of a positive reply's lines (RFC 5321 section 4.2.1); none of another reply."""
    texts: list[str] = []
    while len(texts) < MOST_LINES:
        line = _line(stream)
        if not line.startswith("2"):
            return []
        texts.append(line[4:])
        if line[3:4] != "-":
            break
    return texts


def _line(stream: BufferedRWPair) -> str:
    """A line, harmless and not too long; empty at the end."""
    return printable(stream.readline(LONGEST_LINE_BYTES).decode("utf-8", "replace").rstrip("\r\n"))[:LONGEST_SHOWN]
