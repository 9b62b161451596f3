"""Facts about the server and this machine for the machine's log, collected once before the load, without a log-on."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import replace
from io import BufferedReader
from typing import Any

from loadsim.errors import ConfigError, printable
from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.host import this_machine
from loadsim.monitor.server_discovery import ServerPlace
from loadsim.protocols.tls import tls_context

LONGEST_LINE_BYTES = 4096
MOST_LINES = 100
LONGEST_WAIT_S = 5.0

LONGEST_SHOWN = 500


def environment_facts(place: ServerPlace, services: Services) -> dict[str, Any]:
    """Return facts about the server and this machine, assuming that nothing keeps server and load on separate cores."""
    return {
        "server_here": place.here,
        **this_machine(),
        **greetings(services),
        "shares_cpus": place.shares(os.sched_getaffinity(0)),
        "pinned": False,
    }


def greetings(services: Services) -> dict[str, str | None]:
    """Return the IMAP and SMTP servers' greetings; None for one that does not arrive in time."""
    limit_s = min(LONGEST_WAIT_S, services.command_limit_s)
    texts: dict[str, str | None] = {}
    for service, text_of in (("imap", _imap_greeting), ("smtp", _smtp_greeting)):
        texts[f"{service}_greeting"] = None
        with (
            suppress(OSError, ConfigError),
            _connected(services.endpoint(service), limit_s) as connection,
            connection.makefile("rb") as stream,
        ):
            texts[f"{service}_greeting"] = text_of(stream)
    return texts


def _connected(endpoint: Endpoint, limit_s: float) -> socket.socket:
    """Connect. Raises `OSError` (`ssl.SSLError` is a subclass), or `ConfigError` for a bad authorities file."""
    # Greetings need no client certificate, and a pattern does not name a file.
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


def _imap_greeting(stream: BufferedReader) -> str | None:
    greeting = _line(stream)
    return greeting[2:] if greeting.startswith("* ") else None


def _smtp_greeting(stream: BufferedReader) -> str | None:
    """Return the text of each line in a reply (RFC 5321 section 4.2.1); None if the reply is not positive."""
    texts: list[str] = []
    while len(texts) < MOST_LINES:
        line = _line(stream)
        if not line.startswith("2"):
            return None
        texts.append(line[4:])
        if line[3:4] != "-":
            break
    return " ".join(texts)


def _line(stream: BufferedReader) -> str:
    """Return a printable line of at most `LONGEST_SHOWN` characters; empty at the end of the stream."""
    return printable(stream.readline(LONGEST_LINE_BYTES).decode("utf-8", "replace").rstrip("\r\n"))[:LONGEST_SHOWN]
