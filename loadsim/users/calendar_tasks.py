"""SCHEDULE on a calendar server: users add an event or change their last one, and look at what is new.

In turn, a user adds an event and changes it. If there are too many, the oldest is removed. None of the numbers here has
a source: LoadSim kept a schedule file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from loadsim.errors import MailMissing
from loadsim.model.calendar_event import EVENTS, CalendarEvent, event_uid
from loadsim.model.content import prose
from loadsim.users import tasks
from loadsim.users.mail import UserMail
from loadsim.users.tasks import Task

MOST_EVENTS = 3
"""The most events of a user that stay in the calendar."""

TEXTS, DAYS, QUARTERS, LONGEST_QUARTERS = 256, 60, 40, 8
"""The different texts; the days ahead, and the quarters of an hour from 8:00 on, when events begin; their length."""

RULES = ("", "", "", "FREQ=WEEKLY;COUNT=8", "FREQ=DAILY;COUNT=3")


@dataclass(frozen=True, slots=True)
class CalendarChange:
    """An event to store, which may change an earlier one, and the one to remove after it, each with its id."""

    id: str
    event: CalendarEvent
    changes: bool
    removed: tuple[str, CalendarEvent] | None = None


def compose_change(user: UserMail, index: int) -> CalendarChange:
    """Return the user's `index`th change of the calendar."""

    def choose(what: str, count: int) -> int:
        return user.workload.choose(user.number, f"event.{what}", index, count)

    summary, location, description = prose.event(user.workload.seed, choose("text", TEXTS))
    today = datetime.fromtimestamp(user.host.wall_clock_us() // 1_000_000, UTC).replace(hour=8, minute=0, second=0)
    begin = today + timedelta(days=1 + choose("day", DAYS), minutes=15 * choose("time", QUARTERS))
    end = begin + timedelta(minutes=15 * (1 + choose("length", LONGEST_QUARTERS)))
    if index % 2 and user.events:
        event_id, old = user.events[-1]
        return CalendarChange(event_id, replace(old, summary=summary, begin=begin, end=end), changes=True)
    event_id = f"s{user.number}.{index}"
    account = user.workload.scenario.account
    event = CalendarEvent(
        uid=event_uid(event_id, user.run_id, user.domain),
        summary=summary,
        begin=begin,
        end=end,
        rule=RULES[choose("rule", len(RULES))],
        location=location,
        description=description,
        organizer=user.account.address,
        attendees=tuple(account(other).address for other in user.workload.attendees(user.number, user.profile, index)),
    )
    oldest = user.events[0] if len(user.events) >= MOST_EVENTS else None
    return CalendarChange(event_id, event, changes=False, removed=oldest)


async def change_calendar(user: UserMail, change: CalendarChange) -> None:
    calendar = user.calendar_server
    assert calendar is not None
    try:
        with user.unless_stored(change.id, EVENTS), _must_be_there(user, change.id):
            intact = await calendar.store(change.event, change.changes)
        if change.changes:
            user.events[-1] = change.id, change.event
        else:
            user.events.append((change.id, change.event))
            user.record_event("saved", change.id)
        if not intact:
            user.record_event("altered", change.id)
        if change.removed is not None:
            await _remove(user, *change.removed)
        await calendar.follow()
    finally:
        await calendar.close()


async def _remove(user: UserMail, event_id: str, event: CalendarEvent) -> None:
    assert user.calendar_server is not None
    user.events.remove((event_id, event))
    try:
        with _must_be_there(user, event_id):
            await user.calendar_server.remove(event)
    except BaseException:
        user.record_event("left", event_id)
        user.record_event("unsure", event_id)
        raise
    user.record_event("expunged", event_id)


@contextmanager
def _must_be_there(user: UserMail, event_id: str) -> Iterator[None]:
    """If `MailMissing` is raised, record the event as missing, and change it no more."""
    try:
        yield
    except MailMissing:
        user.record_event("missing", event_id)
        user.events[:] = [kept for kept in user.events if kept[0] != event_id]
        raise


ON_SERVER = Task("SCHEDULE", change_calendar, compose_change, submits=True)


def schedule_of(user: UserMail) -> Task:
    """Return the task SCHEDULE for the user's calendar."""
    return tasks.SCHEDULE if user.calendar_server is None else ON_SERVER
