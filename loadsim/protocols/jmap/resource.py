"""The session resource (RFC 8620 section 2): the mail account, the URLs, and the server's limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from loadsim.errors import ServerRefused
from loadsim.model.ports import Endpoint
from loadsim.protocols.http import targets
from loadsim.protocols.jmap.values import malformed, parse

CORE = "urn:ietf:params:jmap:core"
MAIL = "urn:ietf:params:jmap:mail"
SUBMISSION = "urn:ietf:params:jmap:submission"

WELL_KNOWN = "/.well-known/jmap"

target = partial(targets.target, service="jmap")
"""Takes a URL, the endpoint, and the target to which the URL is relative."""


@dataclass(frozen=True, slots=True)
class SessionResource:
    """A user's session resource. The URLs are request targets; those for blobs and events are templates."""

    account_id: str
    api: str
    upload: str
    download: str
    events: str  # "" if the server has no EventSource
    upload_bytes: int  # at most, as the numbers of objects in a request
    objects_in_get: int
    objects_in_set: int
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
        upload_bytes=core.number("maxSizeUpload"),
        objects_in_get=max(1, core.number("maxObjectsInGet")),
        objects_in_set=max(1, core.number("maxObjectsInSet")),
        submits=SUBMISSION in capabilities,
    )


def expanded(template: str, **values: str) -> str:
    """Fill in a template (RFC 6570, level 1)."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    if "{" in template:
        raise malformed(f"a URL with the variables {', '.join(values)} in the session resource")
    return template
