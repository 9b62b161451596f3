"""Preparation, removal and reading of users' calendars on a calendar server, a few users at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from loadsim.errors import ConfigError, TaskFailed
from loadsim.model.ports import VISIT_COMMANDS, Account, Services
from loadsim.model.terms import CALDAV
from loadsim.protocols.caldav.calendar import CalDavCalendar
from loadsim.protocols.caldav.texts import check_library
from loadsim.protocols.registry import open_calendars
from loadsim.provisioning.sessions import NullObserver, all_done, each_account, name_of
from loadsim.scenario.population import Population
from loadsim.scenario.scenario import Scenario

T = TypeVar("T")

AT_ONCE = 4
"""The calendars that a client works on at the same time. Radicale 3.9 serves eight connections."""


def with_calendars(scenario: Scenario, accounts: Iterable[Account]) -> list[Account]:
    """Return the accounts of users whose calendars are on the calendar server.

    Raises `ConfigError` if there are any, but no library for events.
    """
    if scenario.calendars is None:
        return []
    check_library()
    population = Population(scenario)
    return [account for account in accounts if population.group(account.number).calendar == CALDAV]


async def visit_calendars(
    accounts: Sequence[Account],
    services: Services,
    work: Callable[[CalDavCalendar], Awaitable[T]],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[T | ConfigError]:
    """Do the work on each account's calendar. Return the results in the accounts' order, failures as `ConfigError`."""
    if not accounts:
        return []
    calendars = open_calendars(services)

    async def visit(account: Account) -> T | ConfigError:
        assert calendars is not None
        calendar = calendars.of(account, NullObserver())
        try:
            async with asyncio.timeout(services.visit_limit_s):
                return await work(calendar)
        except TaskFailed as failure:
            found = str(failure)
        except TimeoutError:
            found = f"a visit of more than {services.visit_limit_s:g} s ({VISIT_COMMANDS} x limits.command)"
        finally:
            await calendar.close()
        return ConfigError(f"{name_of(account)}: server.caldav: expected the user's calendars, found: {found}")

    return await each_account(accounts, min(AT_ONCE, len(accounts)), visit, progress)


async def prepare_calendars(
    accounts: Sequence[Account], services: Services, progress: Callable[[int, int], None]
) -> int:
    """Bring these users' calendars to their start state, in which loadsim's is there and empty.

    Return the number of removed events. Raises `ConfigError` for the first account that failed.
    """
    removed = all_done(await clean_calendars(accounts, services, progress=progress))
    all_done(await visit_calendars(accounts, services, CalDavCalendar.prepare))
    return sum(removed)


async def clean_calendars(
    accounts: Sequence[Account],
    services: Services,
    dry_run: bool = False,
    run: str = "",
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[int | ConfigError]:
    """Remove loadsim's events, or a run's, from these accounts. Return the number of each account's, and failures.

    A server may tell the invited users of what is removed, so scheduling Inboxes come last.
    """
    removed = await visit_calendars(accounts, services, lambda calendar: calendar.clean(dry_run, run), progress)
    further = await visit_calendars(accounts, services, lambda calendar: calendar.clean_inbox(dry_run, run))
    return [
        first if isinstance(first, ConfigError) else then if isinstance(then, ConfigError) else first + then
        for first, then in zip(removed, further, strict=True)
    ]


async def schedules(account: Account, services: Services) -> bool:
    """Return whether the calendar server sends invitations to users. Raises `ConfigError` if it has no calendars."""
    (answer,) = all_done(await visit_calendars([account], services, CalDavCalendar.schedules))
    return answer
