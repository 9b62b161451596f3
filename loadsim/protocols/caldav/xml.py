"""WebDAV's XML: the bodies of requests, and multistatus responses (RFC 4918 section 13), which may be hostile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from loadsim.errors import ProtocolError

DAV, CALDAV = "DAV: ", "urn:ietf:params:xml:ns:caldav "
"""Namespaces, as they begin the names of elements."""

PRINCIPAL, HOME, INBOX = f"{DAV}current-user-principal", f"{CALDAV}calendar-home-set", f"{CALDAV}schedule-inbox-URL"
ETAG, DATA, TYPE, TOKEN = f"{DAV}getetag", f"{CALDAV}calendar-data", f"{DAV}resourcetype", f"{DAV}sync-token"
CALENDAR = f"{CALDAV}calendar"

CONDITIONS = frozenset(
    (
        *("allowed-attendee-scheduling-object-change", "allowed-organizer-scheduling-object-change"),
        *("calendar-collection-location-ok", "lock-token-submitted", "max-attendees-per-instance", "max-instances"),
        *("max-resource-size", "need-privileges", "no-uid-conflict", "number-of-matches-within-limits"),
        *("quota-not-exceeded", "resource-must-be-null", "same-organizer-in-all-components", "sufficient-disk-space"),
        *("supported-calendar-component", "supported-calendar-data", "unique-scheduling-object-resource"),
        *("valid-calendar-data", "valid-calendar-object-resource", "valid-sync-token"),
    )
)
"""Conditions that requests may fail to meet (RFC 3744, 4331, 4791, 4918, 6578, 6638); others are not named."""

MOST_ELEMENTS, DEEPEST = 200_000, 40
"""The most elements of a response, and the most levels."""

_ROOT = '<?xml version="1.0" encoding="utf-8"?>\n<{0} xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav">{1}</{0}>'
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5]\d\d)(?: .*)?", re.DOTALL)


@dataclass(slots=True)
class DavResource:
    """One response of a multistatus: a resource's status (200 if it has properties) and the properties found."""

    href: str
    status: int
    properties: dict[str, Element] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return a property's text; "" if it is missing."""
        element = self.properties.get(name)
        return "" if element is None else (element.text or "").strip()

    def href_in(self, name: str) -> str:
        """Return the first href in a property; "" if it is missing."""
        element = self.properties.get(name)
        return "" if element is None else (element.findtext(f"{DAV}href") or "").strip()


@dataclass(slots=True)
class Multistatus:
    responses: list[DavResource]
    token: str  # "" if there is none


def prop(*names: str) -> str:
    """Return the element that names properties."""
    return f"<prop>{''.join(f'<{_short(name)}/>' for name in names)}</prop>"


def propfind(*names: str) -> bytes:
    return _ROOT.format("propfind", prop(*names)).encode()


def sync_collection(token: str) -> bytes:
    """Return the request for changes since a token, "" for all (RFC 6578 section 3.2)."""
    asked = f"<sync-token>{escape(token)}</sync-token><sync-level>1</sync-level>{prop(ETAG)}"
    return _ROOT.format("sync-collection", asked).encode()


def multiget(hrefs: Iterable[str]) -> bytes:
    named = "".join(f"<href>{escape(href)}</href>" for href in hrefs)
    return _ROOT.format("C:calendar-multiget", prop(ETAG, DATA) + named).encode()


def make_calendar(name: str) -> bytes:
    shown = f"<set><prop><displayname>{escape(name)}</displayname></prop></set>"
    return _ROOT.format("C:mkcalendar", shown).encode()


def _short(name: str) -> str:
    return name.replace(DAV, "").replace(CALDAV, "C:")


def read_multistatus(body: bytes) -> Multistatus:
    """Read a response's body. Raises `ProtocolError`."""
    root = parse(body)
    if root.tag != f"{DAV}multistatus":
        raise malformed("a multistatus")
    found = [_found(element) for element in root.iter(f"{DAV}response")]
    return Multistatus(found, (root.findtext(TOKEN) or "").strip())


def precondition(body: bytes) -> str:
    """Return the condition that a request did not meet (RFC 4918 section 16); "" if it is not among `CONDITIONS`."""
    try:
        root = parse(body)
    except ProtocolError:
        return ""
    name = root[0].tag.rpartition(" ")[2] if root.tag == f"{DAV}error" and len(root) else ""
    return name if name in CONDITIONS else ""


def _found(element: Element) -> DavResource:
    href = (element.findtext(f"{DAV}href") or "").strip()
    stated = element.findtext(f"{DAV}status")
    found = DavResource(href, 200 if stated is None else _status(stated))
    for part in element.findall(f"{DAV}propstat"):
        if _status(part.findtext(f"{DAV}status") or "") == 200:
            found.properties |= {each.tag: each for each in part.find(f"{DAV}prop") or ()}
    return found


def _status(line: str) -> int:
    match = _STATUS.fullmatch(line.strip())
    if match is None:
        raise malformed("a status")
    return int(match[1])


def parse(body: bytes) -> Element:
    """Return the root of a document without a DTD: no entity is ever expanded. Raises `ProtocolError`."""
    tree, depth, elements = TreeBuilder(), 0, 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1
        if depth > DEEPEST or elements > MOST_ELEMENTS:
            raise malformed(f"at most {MOST_ELEMENTS} elements in {DEEPEST} levels")
        tree.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        tree.end(name)

    def refuse(*_: object) -> None:
        raise malformed("no document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = tree.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, LookupError, ValueError):  # the latter: an unknown encoding
        raise malformed("XML") from None
    return tree.close()


def malformed(expected: str) -> ProtocolError:
    return ProtocolError("CALDAV response", f"expected {expected}")
