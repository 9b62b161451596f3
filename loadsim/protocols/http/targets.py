"""Request targets from the URLs that a server sends: only the scenario says where load goes."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from loadsim.errors import ProtocolError, ServerRefused
from loadsim.model.host_port import bracketed, is_loopback
from loadsim.model.ports import Endpoint

_TARGET = re.compile(r"/[!-~]*")
_LONGEST_TARGET = 2000

MOST_REDIRECTS = 5

REDIRECTS = (301, 302, 303, 307, 308)


def target(url: str, endpoint: Endpoint, at: str, service: str) -> str:
    """Return the request target of a URL, relative to the target `at` (RFC 3986 section 5).

    Raises `ServerRefused` for another server than the scenario's `server.SERVICE`.
    """
    scheme = "http" if endpoint.tls == "none" else "https"
    base = f"{scheme}://{bracketed(endpoint.host)}:{endpoint.port}"
    kind = f"{service.upper()} response"
    try:
        parts = urlsplit(urljoin(base + at, url))
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        raise ProtocolError(kind, "expected a URL") from None
    same_host = host == endpoint.host.lower() or (is_loopback(host) and is_loopback(endpoint.host))
    if parts.scheme != scheme or port != endpoint.port or not same_host:
        where = f"{parts.scheme}://{bracketed(host)}:{port}"[:100]
        raise ServerRefused("URL of another server", f"expected {base}, as in server.{service}, found {where}")
    found = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _TARGET.fullmatch(found) or len(found) > _LONGEST_TARGET:
        raise ProtocolError(kind, f"expected a URL of at most {_LONGEST_TARGET} visible ASCII characters")
    return found
