"""Schedule files: an iCalendar object (RFC 5545) of a wanted size, full of a user's appointments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from loadsim.model.content import prose, vocabulary
from loadsim.model.draw import draw, pick

EVENTS = 256
"""How many different appointments there are to choose from."""

_FOLD_OCTETS = 75  # RFC 5545 section 3.1, without the line break
_COMMENT = "COMMENT:"
_SHORTEST_COMMENT = len(_COMMENT) + 3
_FILLER = (" ".join(vocabulary.PLURALS) + " ") * 2
_DAYS = 60  # appointments lie within this many days of the schedule's date
_OPEN = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//loadsim//schedule//EN\r\nCALSCALE:GREGORIAN\r\n"
_CLOSE = "END:VEVENT\r\nEND:VCALENDAR\r\n"
_REPEATS = ("", "", "", "RRULE:FREQ=WEEKLY;COUNT=8\r\n", "RRULE:FREQ=DAILY;COUNT=3\r\n")


class Events:
    """The appointments of one seed: what they are about. Made when first asked for, and kept."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: dict[int, str] = {}

    def __getitem__(self, variant: int) -> str:
        """SUMMARY, LOCATION and DESCRIPTION as folded content lines."""
        lines = self._made.get(variant)
        if lines is None:
            summary, place, description = (escape(value) for value in prose.event(self._seed, variant))
            lines = fold(f"SUMMARY:{summary}") + fold(f"LOCATION:{place}") + fold(f"DESCRIPTION:{description}")
            self._made[variant] = lines
        return lines


def calendar(events: Events, seed: int, user: int, mark: str, at_us: int, uid_suffix: str, size_bytes: int) -> bytes:
    """A calendar of exactly `size_bytes` with one appointment or more; ASCII, CRLF.

    Which appointments, and when: drawn from (seed, user, mark). Without a METHOD: it is a stored calendar and
    asks nobody for anything (RFC 5546 is about those that do). What is missing to the size is COMMENT lines in
    the last appointment. Raises ValueError when not even one appointment fits.
    """
    written = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    morning = written.replace(hour=8, minute=0, second=0)
    stamp = f"DTSTAMP:{written:%Y%m%dT%H%M%SZ}\r\n"
    pieces = [_OPEN]
    left = size_bytes - len(_OPEN) - len(_CLOSE)
    count = 0
    while True:
        u = draw(seed, user, "schedule", f"{mark}/{count}")
        choice, quarter = divmod(pick(u, EVENTS * _DAYS * 40), _DAYS * 40)
        day, slot = divmod(quarter, 40)
        begin = morning + timedelta(days=day, minutes=15 * slot)
        end = begin + timedelta(minutes=15 + 15 * (choice % 8))
        event = (
            f"BEGIN:VEVENT\r\n{fold(f'UID:{mark}-{count}.{uid_suffix}')}{stamp}"
            f"DTSTART:{begin:%Y%m%dT%H%M%SZ}\r\nDTEND:{end:%Y%m%dT%H%M%SZ}\r\n"
            f"{events[choice]}{_REPEATS[choice % len(_REPEATS)]}"
        )
        ending = len("END:VEVENT\r\n") if count else 0
        if ending + len(event) + _SHORTEST_COMMENT > left:
            break
        if count:
            pieces.append("END:VEVENT\r\n")
        pieces.append(event)
        left -= ending + len(event)
        count += 1
    if count == 0:
        raise ValueError(f"schedule: expected room for one appointment at least, found {size_bytes} bytes")
    pieces += [comments(left), _CLOSE]
    return "".join(pieces).encode()


def comments(size: int) -> str:
    """COMMENT lines of exactly `size` bytes (11 at least), CRLF included."""
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
    """RFC 5545 section 3.3.11."""
    return text.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")


def fold(line: str) -> str:
    """RFC 5545 section 3.1: an ASCII content line in pieces of at most 75 octets, with its line breaks."""
    if len(line) <= _FOLD_OCTETS:
        return line + "\r\n"
    pieces = [line[:_FOLD_OCTETS]]
    pieces += [line[at : at + _FOLD_OCTETS - 1] for at in range(_FOLD_OCTETS, len(line), _FOLD_OCTETS - 1)]
    return "\r\n ".join(pieces) + "\r\n"
