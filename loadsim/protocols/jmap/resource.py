"""The session resource (RFC 8620 section 2): the mail account, the URLs, and the server's limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from loadsim.errors import ServerRefused
from loadsim.model.host_port import bracketed, is_loopback
from loadsim.model.ports import Endpoint
from loadsim.protocols.jmap.values import malformed, parse

CORE = "urn:ietf:params:jmap:core"
MAIL = "urn:ietf:params:jmap:mail"
SUBMISSION = "urn:ietf:params:jmap:submission"

WELL_KNOWN = "/.well-known/jmap"

_TARGET = re.compile(r"/[!-~]*")
_LONGEST_TARGET = 2000


@dataclass(frozen=True, slots=True)
class JmapLimits:
    """The limits that a driver must keep (RFC 8620 section 2)."""

    upload_bytes: int
    objects_in_get: int
    objects_in_set: int


@dataclass(frozen=True, slots=True)
class SessionResource:
    """A user's session resource. The URLs are request targets; those for blobs and events are templates."""

    account_id: str
    api: str
    upload: str
    download: str
    events: str  # "" if the server has no EventSource
    limits: JmapLimits
    submits: bool


def read_resource(body: bytes, endpoint: Endpoint, at: str) -> SessionResource:
    """Read a session resource that was found at this target.

    Raises `ProtocolError`, or `ServerRefused` if there is no mail account.
    """
    session = parse(body, "session")
    capabilities = session.object("capabilities")
    core = capabilities.object(CORE)
    if MAIL not in capabilities or MAIL not in session.object("primaryAccounts"):
        raise ServerRefused("no mail account", f"expected one in primaryAccounts for {MAIL}")
    events = session.text("eventSourceUrl", "")
    return SessionResource(
        account_id=session.object("primaryAccounts").id(MAIL),
        api=target(session.text("apiUrl"), endpoint, at),
        upload=target(session.text("uploadUrl"), endpoint, at),
        download=target(session.text("downloadUrl"), endpoint, at),
        events=target(events, endpoint, at) if events else "",
        limits=JmapLimits(
            core.number("maxSizeUpload"), max(1, core.number("maxObjectsInGet")), max(1, core.number("maxObjectsInSet"))
        ),
        submits=SUBMISSION in capabilities,
    )


def target(url: str, endpoint: Endpoint, at: str) -> str:
    """Return the request target of a URL, relative to the target `at` (RFC 3986 section 5).

    Raises `ServerRefused` for another server: only the scenario says where load goes.
    """
    scheme = "http" if endpoint.tls == "none" else "https"
    base = f"{scheme}://{bracketed(endpoint.host)}:{endpoint.port}"
    try:
        parts = urlsplit(urljoin(base + at, url))
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        raise malformed("a URL in the session resource") from None
    same_host = host == endpoint.host.lower() or (is_loopback(host) and is_loopback(endpoint.host))
    if parts.scheme != scheme or port != endpoint.port or not same_host:
        where = f"{parts.scheme}://{bracketed(host)}:{port}"[:100]
        raise ServerRefused("URL of another server", f"expected {base}, as in server.jmap, found {where}")
    found = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _TARGET.fullmatch(found) or len(found) > _LONGEST_TARGET:
        raise malformed(f"a URL of at most {_LONGEST_TARGET} visible ASCII characters in the session resource")
    return found


def expanded(template: str, **values: str) -> str:
    """Fill in a template (RFC 6570, level 1)."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    if "{" in template:
        raise malformed(f"a URL with the variables {', '.join(values)} in the session resource")
    return template
