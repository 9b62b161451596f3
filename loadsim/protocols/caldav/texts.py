"""Events as iCalendar text (RFC 5545), written and read by the library icalendar."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from loadsim.errors import ConfigError, ProtocolError
from loadsim.model.calendar_event import CalendarEvent

PRODUCT = "-//loadsim//events//EN"
TAG = "X-LOADSIM"

LARGEST_BYTES = 1 << 16
"""The largest calendar object that is read: the library takes seconds for some of 1 MiB, while all users wait."""


def check_library() -> None:
    """Raise `ConfigError` if the library is missing: it is an extra."""
    try:
        import icalendar  # noqa: F401
    except ImportError:
        raise ConfigError(
            "server.caldav: expected the package icalendar, found none; pip install 'loadsim[caldav]'"
        ) from None


def write_event(event: CalendarEvent, written: datetime) -> bytes:
    """Return a calendar object with this event (RFC 4791 section 4.1), which has no METHOD."""
    from icalendar import Calendar, vCalAddress, vRecur
    from icalendar import Event as Component

    component = Component()
    for name, value in {
        "uid": event.uid,
        "dtstamp": written,
        "dtstart": event.begin,
        "dtend": event.end,
        "summary": event.summary,
        "location": event.location,
        "description": event.description,
        TAG: event.tag,
    }.items():
        component.add(name, value)
    if event.rule:
        component.add("rrule", vRecur.from_ical(event.rule))
    if event.attendees:
        component.add("organizer", vCalAddress(f"mailto:{event.organizer}"))
    for address in event.attendees:
        attendee = vCalAddress(f"mailto:{address}")
        attendee.params["PARTSTAT"], attendee.params["RSVP"] = "NEEDS-ACTION", "TRUE"
        component.add("attendee", attendee)
    calendar = Calendar()
    calendar.add("prodid", PRODUCT)
    calendar.add("version", "2.0")
    calendar.add_component(component)
    return bytes(calendar.to_ical())


def uid_of(text: bytes) -> str:
    """Return the UID of a calendar object; "" if it has no event, or none that can be read."""
    try:
        return str(_component(text).get("uid", ""))
    except ProtocolError:
        return ""


def read_event(text: bytes) -> tuple[CalendarEvent, str]:
    """Return the event in a calendar object, and its tag. Raises `ProtocolError`."""
    component = _component(text)
    try:
        rule = component.get("rrule")
        event = CalendarEvent(
            uid=str(component["uid"]),
            summary=str(component.get("summary", "")),
            begin=_utc(component.start),
            end=_utc(component.end),  # a server may state the duration instead
            rule="" if rule is None else rule.to_ical().decode(),
        )
        return event, str(component.get(TAG, ""))
    except Exception as error:  # noqa: BLE001 - values of any type may be there, once or repeatedly
        raise _unreadable(error) from None


def _component(text: bytes) -> Any:
    """Return the first event of a calendar object. Recurrences that differ, and time zones, follow it."""
    from icalendar import Calendar

    if len(text) > LARGEST_BYTES:
        raise ProtocolError("CALDAV event", f"expected at most {LARGEST_BYTES} bytes, found {len(text)}")
    try:
        calendar = Calendar.from_ical(text)
        return next(iter(calendar.walk("VEVENT")))
    except Exception as error:  # noqa: BLE001 - the library also raises its values' errors
        raise _unreadable(error) from None


def _utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError("a time of any zone")
    return instant.astimezone(UTC)


def _unreadable(error: Exception) -> ProtocolError:
    return ProtocolError("CALDAV event", f"expected an event in iCalendar, found {type(error).__name__}")
