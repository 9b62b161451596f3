"""The syntax of addresses on the command line: HOST:PORT, where either part may have a default."""

from __future__ import annotations

import re
from ipaddress import ip_address

MOST_PORT = 65535

_ADDRESS = re.compile(
    r"(?P<lone_port>\d+)|(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]\s/?#@]*))(?::(?P<port>\d+))?", re.ASCII
)


def host_and_port(text: str, host: str | None = None, port: int | None = None) -> tuple[str, int]:
    """Read `HOST:PORT`, `HOST`, `:PORT` or `PORT`, with brackets around an IPv6 address; return the host without them.

    `host` and `port` are the defaults; a part without a default is required. Raises `ValueError`, whose text, which may
    be empty, is a hint for the end of an error message.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not text:
        raise ValueError("; an IPv6 address needs brackets: [::1]" if text.count(":") > 1 and "[" not in text else "")
    given = match["lone_port"] or match["port"]
    host = match["v6"] or match["host"] or host
    digits = None if given is None else given.lstrip("0") or "0"
    if digits is not None:
        port = int(digits) if len(digits) <= len(str(MOST_PORT)) else MOST_PORT + 1
    if port is not None and port > MOST_PORT:
        raise ValueError(f"; a port is at most {MOST_PORT}")
    if host is None or port is None:
        raise ValueError("; the host is missing" if host is None else "; the port is missing")
    return host, port


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
