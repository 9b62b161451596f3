"""Facts for the machine's log about the server and this machine, collected once before the load, without a log-on."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from dataclasses import replace
from io import BufferedRWPair
from typing import Any

from loadsim.errors import ConfigError, printable
from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.host import this_machine
from loadsim.monitor.server_discovery import ServerPlace
from loadsim.protocols.tls import tls_context

LONGEST_LINE_BYTES = 4096
MOST_LINES = 100
LONGEST_WAIT_S = 5.0

FACTS = ("imap_greeting", "imap_capabilities", "imap_identity", "smtp_greeting", "smtp_extensions")
"""The facts of a server: texts; capabilities and extensions are lists of words."""

LONGEST_SHOWN = 500


def environment_facts(place: ServerPlace, services: Services) -> dict[str, Any]:
    """Return facts about the server and this machine, as long as nothing keeps server and load on separate cores."""
    return {
        "server_here": place.here,
        **this_machine(),
        **greetings(services),
        "shares_cpus": place.shares(os.sched_getaffinity(0)),
        "pinned": False,
    }


def greetings(services: Services) -> dict[str, Any]:
    """Return `FACTS` as the IMAP and SMTP servers state them in time, before STARTTLS; None for others."""
    limit_s = min(LONGEST_WAIT_S, services.command_limit_s)
    found: dict[str, Any] = dict.fromkeys(FACTS)
    for service, ask in (("imap", _ask_imap), ("smtp", _ask_smtp)):
        with (
            suppress(OSError, ConfigError),
            _connected(services.endpoint(service), limit_s) as connection,
            connection.makefile("rwb") as stream,
        ):
            ask(stream, found)
    return found


def _connected(endpoint: Endpoint, limit_s: float) -> socket.socket:
    """Connect. Raises `OSError` (`ssl.SSLError` is a subclass), or `ConfigError` for a bad file of authorities."""
    # Greetings need no client certificate, and a pattern of one has no file.
    anonymous = replace(endpoint, client_certificate=None, client_key=None)
    context = tls_context(anonymous) if endpoint.tls == "implicit" else None
    source = endpoint.source(0)
    connection = socket.create_connection(
        (endpoint.host, endpoint.port), limit_s, source_address=(source, 0) if source else None
    )
    if context is None:
        return connection
    try:
        return context.wrap_socket(connection, server_hostname=endpoint.tls_name)
    except BaseException:
        connection.close()
        raise


def _ask_imap(stream: BufferedRWPair, found: dict[str, Any]) -> None:
    """Read the greeting; send CAPABILITY (RFC 9051 section 6.1.1), ID if it is offered (RFC 2971), and LOGOUT."""
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
    """Send a command; return the lines before the tagged one."""
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
    """Return the texts of a reply's lines (RFC 5321 section 4.2.1); none if the reply is not positive."""
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
    """Return a printable line of at most `LONGEST_SHOWN` characters; empty at the end of the stream."""
    return printable(stream.readline(LONGEST_LINE_BYTES).decode("utf-8", "replace").rstrip("\r\n"))[:LONGEST_SHOWN]
