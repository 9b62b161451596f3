"""Schedule files: iCalendar objects (RFC 5545) of a given size, with a user's appointments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from loadsim.model.content import prose
from loadsim.model.draws import draw, pick

EVENTS = 256
"""The number of different appointments, which is a power of two (see `calendar`)."""

_FOLD_OCTETS = 75  # RFC 5545 section 3.1, without the line break
_COMMENT = "COMMENT:"
_SHORTEST_COMMENT = len(_COMMENT) + 3
_FILLER = (" ".join(prose.WORDS["plural"]) + " ") * 2
_DAYS = 60  # appointments are within this many days of the schedule's date
_OPEN = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//loadsim//schedule//EN\r\nCALSCALE:GREGORIAN\r\n"
_END_EVENT = "END:VEVENT\r\n"
_CLOSE = _END_EVENT + "END:VCALENDAR\r\n"
_REPEATS = ("", "", "", "RRULE:FREQ=WEEKLY;COUNT=8\r\n", "RRULE:FREQ=DAILY;COUNT=3\r\n")


@dataclass(frozen=True, slots=True)
class Meeting:
    """An appointment: its folded content lines, and its start and end in iCalendar's notation."""

    lines: str
    begin: str
    end: str


def make_event(seed: int, variant: int) -> Meeting:
    summary, place, description = (escape(value) for value in prose.event(seed, variant))
    lines = fold(f"SUMMARY:{summary}") + fold(f"LOCATION:{place}") + fold(f"DESCRIPTION:{description}")
    quarter = pick(draw(seed, 0, "event time", variant), 40)  # from 8:00 to 17:45
    return Meeting(
        lines + _REPEATS[variant % len(_REPEATS)],
        _time_of_day(8 * 60 + 15 * quarter),
        _time_of_day(8 * 60 + 15 * (quarter + 1 + variant % 8)),
    )


def calendar(
    events: Callable[[int], Meeting], seed: int, user: int, mark: str, at_us: int, uid_suffix: str, size_bytes: int
) -> bytes:
    """Return a calendar of exactly `size_bytes` with at least one appointment; ASCII, CRLF.

    `events` returns a variant's appointment. Appointments and days are drawn from (seed, user, mark). There is no
    METHOD: this is a stored calendar, not a request (RFC 5546). COMMENT lines in the last appointment pad it to size.
    Raises `ValueError` if no appointment fits.
    """
    written = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    stamp = f"DTSTAMP:{written:%Y%m%dT%H%M%SZ}\r\n"
    days = _days(written.date())
    start = pick(draw(seed, user, "schedule", mark), EVENTS * EVENTS // 2)
    # Odd steps modulo a power of two visit every appointment before repeating one.
    step, at = 2 * (start // EVENTS) + 1, start % EVENTS
    pieces = [_OPEN]
    left = size_bytes - len(_OPEN) - len(_CLOSE)
    count = 0
    while True:
        event, day = events(at), days[(at + 7 * count) % _DAYS]
        lines = (
            f"BEGIN:VEVENT\r\n{fold(f'UID:{mark}-{count}.{uid_suffix}')}{stamp}"
            f"DTSTART:{day}{event.begin}\r\nDTEND:{day}{event.end}\r\n{event.lines}"
        )
        ending = _END_EVENT if count else ""
        if len(ending) + len(lines) + _SHORTEST_COMMENT > left:
            break
        pieces += [ending, lines]
        left -= len(ending) + len(lines)
        at = (at + step) % EVENTS
        count += 1
    if count == 0:
        raise ValueError(f"schedule: expected room for at least one appointment, found {size_bytes} bytes")
    pieces += [comments(left), _CLOSE]
    return "".join(pieces).encode()


def _time_of_day(minutes: int) -> str:
    return f"T{minutes // 60:02}{minutes % 60:02}00Z"


@lru_cache(maxsize=8)
def _days(first: date) -> list[str]:
    return [f"{first + timedelta(days=day):%Y%m%d}" for day in range(_DAYS)]


def comments(size: int) -> str:
    """Return COMMENT lines of exactly `size` bytes (at least 11), including CRLF."""
    lines = []
    while size:
        line = min(size, _FOLD_OCTETS + 2)
        if 0 < size - line < _SHORTEST_COMMENT:
            line -= _SHORTEST_COMMENT
        words = _FILLER[: line - 2 - len(_COMMENT)]
        lines.append(_COMMENT + (words[:-1] + "." if words.endswith(" ") else words) + "\r\n")
        size -= line
    return "".join(lines)


def escape(text: str) -> str:
    """Escape text as in RFC 5545 section 3.3.11."""
    return text.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")


def fold(line: str) -> str:
    """Fold an ASCII content line as in RFC 5545 section 3.1, into lines of at most 75 octets and a line break."""
    if len(line) <= _FOLD_OCTETS:
        return line + "\r\n"
    pieces = [line[:_FOLD_OCTETS]]
    pieces += [line[at : at + _FOLD_OCTETS - 1] for at in range(_FOLD_OCTETS, len(line), _FOLD_OCTETS - 1)]
    return "\r\n ".join(pieces) + "\r\n"
