"""A check of a server for a scenario: a handful of users do each planned task once, and leave nothing behind.

The steps: accounts and sessions, folders of the check, tasks with each driver, two sessions of one account, mail to
lists, limits, and removal of everything that the check put there. The folders that it creates are in the account's
manifest before they exist, and its messages carry loadsim's tag. So `clean` removes what a killed check leaves.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.content.compose import Contents
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, PUBLIC, SENT_ITEMS, Account, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.model.state_checks import StateChecks
from loadsim.protocols.registry import IN_THE_ENGINE, open_apart, open_driver
from loadsim.provisioning.calendars import clean_calendars, schedules, with_calendars
from loadsim.provisioning.check_folders import count_messages, make_folders, restore_folders
from loadsim.provisioning.check_limits import limits, offers
from loadsim.provisioning.check_mail import POLL_S, Check, check_mail, expunge, expunge_replies, fair, find_others
from loadsim.provisioning.check_post import Post
from loadsim.provisioning.check_state import state_of, try_state
from loadsim.provisioning.check_tasks import TaskCheck
from loadsim.provisioning.hold import held
from loadsim.provisioning.manifest import AccountTaken
from loadsim.provisioning.preflight import (
    check_accounts,
    check_outside,
    check_submission,
    log_off,
    nothing,
    user_connections,
)
from loadsim.provisioning.public_folder import check_public_folder, count_articles, keeper_among
from loadsim.provisioning.server_report import Observation, ServerFacts, ServerReport, TriedTask, lacking
from loadsim.provisioning.sessions import (
    NullObserver,
    accounts_on_server,
    all_done,
    name_of,
    named,
    no_access,
    preparing_driver,
    probe,
    visit,
)
from loadsim.scenario.workload import Workload
from loadsim.users.plugin_tasks import load_tasks

WAIT_S = 20.0
"""The longest wait for an answer, and for a message."""

MOST_SESSIONS = 32
"""The most sessions to try at once. A run needs at least one per user."""

MOST_USERS = 6
"""The most users that do a check's tasks."""


def checked_users(workload: Workload) -> list[int]:
    """Return the first and the last user, and each group's first: at most `MOST_USERS`, in order."""
    population = workload.population
    users = [user for user in range(1, len(population) + 1) if population.group(user).protocol != IN_THE_ENGINE]
    if len(users) < 2:
        raise ConfigError(
            f"{workload.scenario.name}: topology: expected at least 2 users with mailboxes on a server, found none to"
            " check (protocol fake has its mail system in the engine)"
        )
    firsts = {id(population.group(user)): user for user in reversed(users)}
    del firsts[id(population.group(users[-1]))]  # the last user does its tasks
    chosen = sorted({users[0], *firsts.values()})
    return [*chosen[: MOST_USERS - 1], users[-1]]


async def check_server(
    workload: Workload,
    services: Services,
    progress: Callable[[str], None],
    wait_s: float = WAIT_S,
    ended: Callable[[ServerReport], object] = lambda _: None,
) -> ServerReport:
    """Check a server, and remove what the check put there, even if it fails or is cancelled.

    Then `ended` receives what was seen and what may remain. Raises `ConfigError` if the server does not answer, an
    account cannot log on, or another loadsim or user is using it.
    """
    limited = replace(
        services, command_limit_s=min(services.command_limit_s, max(wait_s, 1.0)), state_checks=StateChecks(1.0)
    )
    post = Post(workload, Contents(workload.seed), f"check-{secrets.token_hex(6)}")
    check = Check(workload, limited, checked_users(workload), wait_s, post)
    progress("log on")
    await _log_on(check)
    try:
        async with held(accounts_on_server(workload.scenario), replace(limited, state_checks=None), "check"):
            try:
                await _try_all(check, progress)
                await asyncio.sleep(0)  # a pending cancellation ends the check here, not the removal
            finally:
                progress("remove")
                check.removed = await _remove(check)
        for result in check.removed:
            if isinstance(result, AccountTaken):
                raise result
    except BaseException as failure:
        ended(_report(check, str(failure) or "interrupted"))
        raise
    return _report(check)


async def _log_on(check: Check) -> None:
    """Log on in all ways that the tasks need; this puts nothing on the server."""
    await check_submission(check.workload, check.services, check.users)
    await check_outside(check.workload, check.services)
    first, second, *_ = check.accounts
    if check.services.smtp is not None:
        with suppress(TaskFailed):  # the tasks also send to this user, and report failures
            check.smtp = await probe(check.services, first).ask(first.address, second.address)
    await check_accounts(check.workload.scenario, check.services)
    await check_public_folder(check.workload, check.services, check.users)
    for account in with_calendars(check.workload.scenario, check.accounts)[:1]:
        how = "sends invitations to users" if await schedules(account, check.services) else "sends no invitations"
        check.server.append(Observation("calendar server", how))
    await _sessions_at_once(check)
    connections = await user_connections(check.workload.population, check.services, check.users)
    check.server += [seen for _, seen in connections]


async def _try_all(check: Check, progress: Callable[[str], None]) -> None:
    progress("folders")
    await _make_folders(check)
    progress("tasks")
    await _do_tasks(check)
    if check.state.users and check.own:
        progress("state")
        check.state_completed = await try_state(check)
    progress("mail")
    await check_mail(check)
    failures = [tried.failure for task in check.tasks for tried in task.tried if tried.failure is not None]
    if check.state.violations or any(seen.lacks for seen in (*check.server, *check.mail, *failures)):
        progress("other programs")
        await find_others(check)


def _report(check: Check, why_ended: str = "") -> ServerReport:
    others = [place.account.number for place in check.places if place.foreign]
    size_limits = limits(check.workload, check.places, check.smtp)
    mail = (*check.mail, *size_limits, *state_of(check.state, others, check.state_completed))
    judge = partial(fair, check, bool(why_ended))
    return ServerReport(
        accounts=tuple(account.login for account in check.accounts),
        server=(*offers(check.workload, check.services, check.places, check.smtp), *map(judge, check.server)),
        tasks=tuple(replace(task, failure=task.failure and judge(task.failure)) for task in _merged(check.tasks)),
        facts=_facts(check),
        mail=tuple(map(judge, mail)),
        seconds=time.monotonic() - check.began_s,
        leftovers=tuple(str(remains) for remains in check.removed if remains),
        ended=why_ended,
    )


def _facts(check: Check) -> ServerFacts:
    """Return a check's facts with what the server offers, and its limits."""
    place = next(iter(check.places), None)
    offer = place.offer if place is not None else None
    return replace(
        check.facts,
        imap_capabilities=tuple(sorted(offer.features)) if offer else (),
        smtp_extensions=tuple(sorted(check.smtp.features)) if check.smtp else (),
        permanent_flags=check.facts.permanent_flags or (offer.permanent_flags if offer else ""),
        missing_folder=place.missing_folder if place is not None else "",
        append_limit_bytes=offer.limit("APPENDLIMIT") if offer else None,
        message_limit_bytes=check.smtp.limit("SIZE") if check.smtp else None,
    )


async def _sessions_at_once(check: Check) -> None:
    """Log on to up to `MOST_SESSIONS` mailboxes at once. A refused session shows the server's limit."""
    accounts = accounts_on_server(check.workload.scenario)[:MOST_SESSIONS]
    driver = open_driver(preparing_driver(check.services), check.services)
    mailboxes = [driver.session(account, NullObserver()).mailbox for account in accounts]
    try:
        results = await asyncio.gather(*(mailbox.log_on() for mailbox in mailboxes), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, TaskFailed):
                raise failure
        if len(failures) == len(accounts):
            first = next(failure for failure in failures if isinstance(failure, TaskFailed))
            raise no_access(preparing_driver(check.services), check.services, accounts[0], first)
        on = len(accounts) - len(failures)
        seen, limit = f"{on} of {len(accounts)} at once", None
        if failures:
            await asyncio.gather(*(log_off(mailbox) for mailbox in mailboxes))
            # An account that cannot log on alone is bad input; one that can has met a limit.
            tried = [*zip(accounts, results, strict=True)]
            refused = next(account for account, result in tried if isinstance(result, TaskFailed))
            good = next(account for account, result in tried if not isinstance(result, TaskFailed))
            (alone,) = await visit([refused], check.services, nothing, lambda *_: None)
            all_done([named(refused, alone, good)])
            limit = finding(Code.FEW_SESSIONS, on=on, tried=len(accounts), answer=str(failures[0]))
        check.server.append(Observation("sessions", seen, limit))
    finally:
        await asyncio.gather(*(log_off(mailbox) for mailbox in mailboxes))


async def _make_folders(check: Check) -> None:
    async def work(account: Account, mailbox: Provisioning) -> None:
        try:
            await make_folders(check.places, account, mailbox)
            if foreign := sum(check.places[-1].foreign.values()):
                not_empty = finding(Code.MAILBOX_NOT_EMPTY, name_of(account), messages=foreign)
                check.server.append(Observation(f"mail, {account.login}", "others' mail", not_empty))
        except ServerRefused as failure:
            check.server.append(lacking(f"folders, {account.login}", failure, sender=account.address))

    for account in check.accounts:  # a mailbox's second user finds the first one's manifest, and writes none
        all_done(await visit([account], check.services, work, lambda *_: None))


async def _do_tasks(check: Check) -> None:
    """Have each user do the planned tasks with their group's driver and mail program, all at the same time.

    Users whose driver differs from the one that `init` and `clean` use also do the tasks with that one.
    """
    scenario, preparing = check.workload.scenario, preparing_driver(check.services)
    groups = {user: check.workload.population.group(user) for user in check.users}
    drivers = {preparing: open_driver(preparing, check.services)} | {
        group.driver_name: open_driver(
            group.protocol, scenario.with_program(check.services, group.protocol, group.program)
        )
        for group in groups.values()
    }
    folders = {place.account.number: place.folder for place in check.places}
    users, plugin_tasks, apart = list(check.users), load_tasks(scenario), open_apart(check.services)
    check.touched.update(users)

    async def do_tasks(user: int, partner: int) -> None:
        group = groups[user]
        names = (group.driver_name,) if group.protocol == preparing else (preparing, group.driver_name)
        for index, name in enumerate(names):
            if name != preparing:
                check.state.forget(user)
            folder = folders.get(user, INBOX)
            of_user = (user, partner, folder, check.wait_s, apart, index)
            task = TaskCheck(check.post, plugin_tasks, name, drivers[name], *of_user)
            check.tasks.append(task)
            await task.run()

    async with asyncio.TaskGroup() as group:
        for user, partner in zip(users, [*users[1:], users[0]], strict=True):
            group.create_task(do_tasks(user, partner))


def _merged(checks: Iterable[TaskCheck]) -> tuple[TriedTask, ...]:
    """Return an entry for each driver and task, with the longest time of all users, then all failures."""
    done: dict[tuple[str, str], TriedTask] = {}
    failed: list[TriedTask] = []
    for tried in [tried for check in checks for tried in check.tried]:
        key = tried.driver, tried.task
        if tried.failure is not None:
            failed.append(tried)
        elif key not in done:
            done[key] = tried
        else:
            used = tuple(dict.fromkeys((*done[key].commands, *tried.commands)))
            done[key] = TriedTask(*key, used, max(done[key].seconds, tried.seconds))
    return (*done.values(), *failed)


async def _remove(check: Check) -> list[str | ConfigError]:
    """Remove everything that the check put on the server. Return, for each account, what may remain, or the failure."""
    users = sorted(check.touched | {place.account.number for place in check.places})
    if not users:
        return []
    accounts = accounts_on_server(check.workload.scenario, users)
    deadline = time.monotonic() + check.wait_s
    places = {place.account.number: place for place in check.places}
    keeper = keeper_among(check.workload.scenario, accounts)

    async def work(account: Account, mailbox: Provisioning) -> str:
        accepted = check.post.accepted.get(account.number, set())
        late = accepted - check.post.arrived.get(account.number, set())
        place = places.get(account.number)
        existing = await mailbox.folders()
        folders = [INBOX]
        if place is not None:
            folders += [name for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, place.folder) if name in existing]
        if account == keeper and (articles := await count_articles(account, mailbox, check.services)):
            stay = finding(Code.ARTICLES_STAY, articles=articles)
            check.server.append(Observation("newsgroup", f"{check.services.folders.public}", stay))
        for folder in (*folders, *([PUBLIC] if account == keeper and check.services.nntp is None else [])):
            late -= await expunge(check, mailbox, folder)
        while late - check.overdue and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
            late -= await expunge(check, mailbox, INBOX)
        changed = set[str]().union(*[await expunge(check, mailbox, name, changed=True) for name in folders if late])
        if changed:
            late -= changed
            check.others.add(account.number)
            other = finding(Code.HEADER_CHANGED, name_of(account), messages=len(changed))
            check.server.append(Observation(f"Inbox, {account.login}", "mail with another From or Message-ID", other))
        remains = [f"{len(late)} messages accepted for it have not arrived"] if late else []
        if place is not None:
            counts = await count_messages(mailbox, folders)
            if counts.get(INBOX, 0) > place.held.get(INBOX, 0):
                await expunge_replies(check, account, mailbox)
                counts |= await count_messages(mailbox, [INBOX])
            more = {name: count - place.held.get(name, count) for name, count in counts.items()}
            remains += [f"more messages than before in {name}: {count}" for name, count in more.items() if count > 0]
            await restore_folders(place, account, mailbox, existing)
        return f"{name_of(account)}: {'; '.join(remains)}" if remains else ""

    removed = await visit(accounts, check.services, work, lambda *_: None)
    with_events = with_calendars(check.workload.scenario, accounts)
    events = await clean_calendars(with_events, check.services, run=check.post.run_id)
    removed += [failure for failure in events if isinstance(failure, ConfigError)]
    if check.replies:
        of_replies = finding(Code.AUTOMATIC_REPLIES, replies=check.replies)
        check.mail.append(Observation("automatic replies", f"{check.replies} came, and were removed", of_replies))
    return removed
