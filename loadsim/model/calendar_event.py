"""Events in users' calendars on a calendar server, and the marks by which loadsim knows its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

EVENTS = "Events"
"""The folder that records name for events on a calendar server; no folder of a mailbox has this name."""

_OWN_UID = re.compile(r"loadsim-(s\d{1,8}\.\d{1,8})\.([A-Za-z0-9-]{1,60})@([^@\s]+)")


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """An event; instants are UTC. `rule` is its RRULE, "" for none. Organizer and attendees are mail addresses."""

    uid: str
    summary: str
    begin: datetime
    end: datetime
    rule: str
    location: str = ""
    description: str = ""
    organizer: str = ""
    attendees: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """The digest of what a server must not change; a property of the event, X-LOADSIM, has it.

        It has no comma or semicolon: Radicale 3.9 escapes them there.
        """
        rule = ";".join(sorted(self.rule.upper().split(";")))  # Cyrus 3.12 reorders its parts
        instants = f"{self.begin:%Y%m%dT%H%M%S} {self.end:%Y%m%dT%H%M%S}"
        return sha256(f"{self.uid} {instants} {rule} {self.summary}".encode()).hexdigest()[:16]


def event_uid(event_id: str, run: str, domain: str) -> str:
    return f"loadsim-{event_id}.{run}@{domain}"


def own_event(uid: str, domain: str) -> tuple[str, str] | None:
    """Return the id and the run of an event with this UID; None if it is not loadsim's, or of another domain."""
    match = _OWN_UID.fullmatch(uid)
    return (match[1], match[2]) if match and match[3].lower() == domain else None
