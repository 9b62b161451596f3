"""A check of a server for a scenario: a handful of users do each planned task once, and leave nothing behind.

The steps: accounts and sessions, folders of the check, tasks with each driver, mail to a list, limits, and removal of
everything that the check put on the server. The folders that it creates are in the account's manifest before they
exist, and its messages carry loadsim's evidence, so `clean` removes what a killed check leaves.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.content.compose import Contents
from loadsim.model.ports import (
    CALENDAR,
    DELETED_ITEMS,
    INBOX,
    SENT_ITEMS,
    Account,
    Probing,
    Provisioning,
    ServerOffer,
    Services,
)
from loadsim.model.workload import Workload
from loadsim.protocols.registry import IN_THE_ENGINE, open_driver
from loadsim.provisioning.check_folders import Place, make_folders, restore_folders
from loadsim.provisioning.check_limits import limits, offers, sends_to_lists
from loadsim.provisioning.check_tasks import Arrival, CheckHost, Post, TaskCheck
from loadsim.provisioning.findings import (
    Finding,
    ServerReport,
    Severity,
    TaskFinding,
    lacking,
    refused_recipient,
)
from loadsim.provisioning.sessions import (
    DRIVER,
    NullObserver,
    accounts_on_server,
    all_done,
    name_of,
    no_access,
    visit,
)

WAIT_S = 20.0
"""The longest wait for an answer, for a message, and for a delay that greylisting asks for."""

MOST_SESSIONS = 32
"""The most sessions at once that are tried. A run needs one for each user, or more."""

MOST_USERS = 6
"""The most users that do the tasks of a check."""

NEWEST = 200
"""The newest messages of a folder among which those of the check are looked for."""

LARGEST_CLOCK_GAP_S = 5.0

_POLL_S = 0.25


@dataclass(slots=True)
class _Check:
    """A check under way. `server` and `mail` grow with findings."""

    workload: Workload
    services: Services
    users: Sequence[int]
    wait_s: float
    host: CheckHost
    post: Post
    places: list[Place] = field(default_factory=list)
    server: list[Finding] = field(default_factory=list)
    mail: list[Finding] = field(default_factory=list)
    tasks: list[TaskCheck] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    smtp: ServerOffer | None = None
    overdue: set[str] = field(default_factory=set)
    """The ids of messages that were waited for, and did not arrive."""

    @property
    def accounts(self) -> list[Account]:
        return accounts_on_server(self.workload.scenario, self.users)


def checked_users(workload: Workload) -> list[int]:
    """Return the first and the last user, and the first of each group, at most `MOST_USERS`, in their order."""
    population = workload.population
    users = [user for user in range(1, len(population) + 1) if population.group(user).protocol != IN_THE_ENGINE]
    if len(users) < 2:
        raise ConfigError(
            f"{workload.scenario.name}: topology: expected at least 2 users with mailboxes on a server, found none to"
            " check (protocol fake has its mail system in the engine)"
        )
    chosen = {users[0], users[-1]}
    groups = {id(population.group(users[0])), id(population.group(users[-1]))}
    for user in users:
        if len(groups) == len(workload.scenario.topology) or len(chosen) == MOST_USERS:
            break
        if id(population.group(user)) not in groups:
            groups.add(id(population.group(user)))
            chosen.add(user)
    return sorted(chosen)


async def check_server(
    workload: Workload, services: Services, progress: Callable[[str], None], wait_s: float = WAIT_S
) -> ServerReport:
    """Check a server, and remove what the check put there, also if it fails or is cancelled.

    Raises `ConfigError` if the server does not answer, or an account cannot log on.
    """
    began = time.monotonic()
    limited = replace(services, command_limit_s=min(services.command_limit_s, max(wait_s, 1.0)))
    host = CheckHost(workload, Contents(workload.seed), f"check-{secrets.token_hex(6)}")
    check = _Check(workload, limited, checked_users(workload), wait_s, host, Post(host, wait_s))
    leftovers: list[str] = []
    try:
        progress("log on")
        await _look(check)
        await _sessions_at_once(check)
        progress("folders")
        await _make_folders(check)
        progress("tasks")
        await _do_tasks(check)
        progress("mail")
        await _mail(check)
    finally:
        progress("remove")
        leftovers = await _remove(check)
    return ServerReport(
        accounts=tuple(account.login for account in check.accounts),
        server=(*offers(limited, check.places, check.smtp), *check.server),
        tasks=_merged(check.tasks),
        mail=(*check.mail, *limits(workload, check.places, check.smtp)),
        seconds=time.monotonic() - began,
        leftovers=tuple(leftovers),
    )


def probe(services: Services, account: Account) -> Probing:
    """Return a submission service of this account that can be asked."""
    session = open_driver(DRIVER, replace(services, submission="pipelining")).session(account, NullObserver())
    return cast(Probing, session.submission)


async def _look(check: _Check) -> None:
    """Log on to submission as the first account. Raises `ConfigError`."""
    account = check.accounts[0]
    submission = probe(check.services, account)
    try:
        await submission.check()
    except TaskFailed as failure:
        raise no_access("smtp", check.services.smtp, account, "submit mail", failure) from None
    with suppress(TaskFailed):  # the tasks send to this user, too, and report it
        check.smtp = await submission.ask(account.address, check.accounts[1].address)


async def _sessions_at_once(check: _Check) -> None:
    """Log on to up to `MOST_SESSIONS` mailboxes at once. A refused session names the server's limit."""
    accounts = accounts_on_server(check.workload.scenario)[:MOST_SESSIONS]
    driver = open_driver(DRIVER, check.services)
    mailboxes = [driver.session(account, NullObserver()).mailbox for account in accounts]
    try:
        results = await asyncio.gather(*(mailbox.log_on() for mailbox in mailboxes), return_exceptions=True)
        failures = [each for each in results if isinstance(each, BaseException)]
        for failure in failures:
            if not isinstance(failure, TaskFailed):
                raise failure
        if len(failures) == len(accounts):
            first = next(each for each in failures if isinstance(each, TaskFailed))
            raise no_access("imap", check.services.imap, accounts[0], "log on", first)
        on = len(accounts) - len(failures)
        found = f"{on} of {len(accounts)} at once"
        if failures:
            await asyncio.gather(*(_log_off(each) for each in mailboxes))
            # An account that cannot log on alone is bad input; one that can has met a limit.
            at = next(index for index, each in enumerate(results) if isinstance(each, TaskFailed))
            all_done(await visit([accounts[at]], check.services, _nothing, lambda *_: None))
            users = check.workload.scenario.users
            advice = (
                f"let at least {users} sessions come from one address, now {on} do (the server's limit of connections"
                f" for each address, or of processes): {failures[0]}"
            )
            check.server.append(Finding("sessions", found, Severity.LACKS, advice))
        else:
            check.server.append(Finding("sessions", found))
    finally:
        await asyncio.gather(*(_log_off(each) for each in mailboxes))


async def _nothing(account: Account, mailbox: Provisioning) -> None:
    """Log on and off only."""


async def _log_off(mailbox: object) -> None:
    session = cast(Provisioning, mailbox)
    with suppress(TaskFailed):
        await session.log_off()
    session.abandon()


# --- the check's folders ---


async def _make_folders(check: _Check) -> None:
    """Create the folders that the tasks need in each account that does tasks."""

    async def work(account: Account, mailbox: Provisioning) -> None:
        try:
            await make_folders(check.places, account, mailbox)
        except ServerRefused as failure:
            check.server.append(lacking(f"folders, {account.login}", failure, sender=account.address))

    all_done(await visit(check.accounts, check.services, work, lambda *_: None, MOST_USERS))


# --- tasks ---


async def _do_tasks(check: _Check) -> None:
    """Let each user do the planned tasks, with the driver `imap` and with that of their group; users work together."""
    names = {DRIVER} | {check.workload.population.group(user).protocol for user in check.users}
    drivers = {name: open_driver(name, check.services) for name in sorted(names)}
    folders = {place.account.number: place.folder for place in check.places}
    users = list(check.users)
    check.touched.update(users)

    async def one(user: int, partner: int) -> None:
        for name in dict.fromkeys((DRIVER, check.workload.population.group(user).protocol)):
            task = TaskCheck(check.host, check.post, drivers[name], user, partner, folders.get(user, INBOX))
            check.tasks.append(task)
            await task.run()

    async with asyncio.TaskGroup() as group:
        for user, partner in zip(users, [*users[1:], users[0]], strict=True):
            group.create_task(one(user, partner))


def _merged(checks: Iterable[TaskCheck]) -> tuple[TaskFinding, ...]:
    """Return one finding for each driver and task that all its users did, with the longest time; all failures apart."""
    done: dict[tuple[str, str], TaskFinding] = {}
    failed: list[TaskFinding] = []
    for finding in [finding for check in checks for finding in check.findings]:
        key = finding.driver, finding.task
        if finding.failure is not None:
            failed.append(finding)
        elif key not in done:
            done[key] = finding
        else:
            used = tuple(dict.fromkeys((*done[key].commands, *finding.commands)))
            done[key] = TaskFinding(*key, used, max(done[key].seconds, finding.seconds))
    return (*done.values(), *failed)


# --- mail ---


async def _mail(check: _Check) -> None:
    """Report arrivals, then send one message to the smallest list, and look at unknown addresses and the clock."""
    arrivals = [arrival for task in check.tasks for arrival in task.arrivals]
    if arrivals:
        check.mail.append(Finding("to a user", _arrived(arrivals)))
    lost = [task for task in check.tasks if "SYNC" in task.planned and not task.arrivals]
    for task in lost:
        if not any(each.failure for each in task.findings):
            advice = f"find out why mail to {task.user.account.address} does not arrive within {check.wait_s:g} s"
            check.mail.append(Finding("to a user", "accepted, and not arrived", Severity.LACKS, advice))
    if check.post.retried_s:
        found = f"a message was refused, and accepted {max(check.post.retried_s):g} s later"
        check.mail.append(Finding("greylisting", found, Severity.LACKS, "exempt this machine from greylisting"))
    await _unknown(check)
    await _list(check)
    await _clock(check)


def _arrived(arrivals: Sequence[Arrival]) -> str:
    announced = sum(arrival.announced for arrival in arrivals)
    slowest = max(arrival.seconds for arrival in arrivals)
    return f"{len(arrivals)} arrived within {slowest:.2f} s, {announced} of them announced"


async def _unknown(check: _Check) -> None:
    """Name an address that cannot exist, without sending to it."""
    account = check.accounts[0]
    nobody = f"loadsim-nobody-{secrets.token_hex(4)}@{check.workload.scenario.domain}"
    try:
        await probe(check.services, account).ask(account.address, nobody)
    except ServerRefused:
        check.mail.append(Finding("unknown address", "refused"))
    except TaskFailed as failure:
        check.mail.append(lacking("unknown address", failure, sender=account.address, recipient=nobody))
    else:
        note = "accepted (catch-all, or mailboxes made on demand): a missing list shows only by missing mail"
        check.mail.append(Finding("unknown address", note, Severity.NOTE))


async def _list(check: _Check) -> None:
    """Send one message to the smallest list, wait until all members have it, and remove it there."""
    lists = check.workload.population.lists
    if not sends_to_lists(check.workload):
        check.mail.append(Finding("to a list", "not planned"))
        return
    index = min(range(len(lists)), key=lambda each: len(lists.members(each)))
    address, members = lists.address(index), lists.members(index)
    sender = check.accounts[0]
    outgoing = check.post.compose(sender, dict.fromkeys(members, address))
    submission = open_driver(DRIVER, check.services).session(sender, NullObserver()).submission
    missing = (
        f"create the list {address} (loadsim topology export writes all lists), or set lists.count: 0 to send to none"
    )
    try:
        await check.post.patiently(lambda: submission.send(sender.address, [address], outgoing.message))
    except TaskFailed as failure:
        finding = lacking("to a list", failure, sender=sender.address, recipient=address)
        check.mail.append(replace(finding, advice=missing) if refused_recipient(failure) else finding)
        return
    finally:
        await submission.close()
    check.post.sent(outgoing)
    check.touched.update(members)
    since = time.monotonic()
    deadline = since + check.wait_s

    async def receive(account: Account, mailbox: Provisioning) -> float | None:
        while not await _expunge(check, mailbox, INBOX, outgoing.id):
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(_POLL_S)
        check.post.arrived.setdefault(account.number, set()).add(outgoing.id)
        return time.monotonic() - since

    accounts = accounts_on_server(check.workload.scenario, members)
    waits = all_done(await visit(accounts, check.services, receive, lambda *_: None))
    times = [wait for wait in waits if wait is not None]
    found = f"{len(times)} of {len(accounts)} members got it"
    if len(times) == len(accounts):
        check.mail.append(Finding("to a list", f"{found} within {max(times):.2f} s"))
    else:
        check.overdue.add(outgoing.id)
        advice = f"make {address} deliver to its members (or {missing})" if times else missing
        check.mail.append(Finding("to a list", f"accepted; {found}", Severity.LACKS, advice))


async def _clock(check: _Check) -> None:
    """Compare the internal date of a message, appended now, with this machine's clock."""
    if not check.places:  # a finding says why
        return
    place = check.places[0]

    async def read(account: Account, mailbox: Provisioning) -> float | None:
        outgoing = check.post.compose(account, {account.number: account.address})
        now_s = time.time()
        ref = await mailbox.append(place.folder, outgoing.message)
        if ref is None:
            refs = [header.ref for header in await mailbox.headers(place.folder, 1)]
            ref = refs[0] if refs else None
        received_us = None if ref is None else await mailbox.received_us(ref)
        return None if received_us is None else received_us / 1e6 - now_s

    (gap,) = await visit([place.account], check.services, read, lambda *_: None)
    if isinstance(gap, ConfigError) or gap is None:
        check.mail.append(Finding("clock", "no internal date to compare", Severity.NOTE))
    elif -1 - LARGEST_CLOCK_GAP_S <= gap <= LARGEST_CLOCK_GAP_S:  # to the second, rounded down
        check.mail.append(Finding("clock", f"within {LARGEST_CLOCK_GAP_S:g} s of this machine's"))
    else:
        found = f"{abs(gap):.0f} s {'ahead of' if gap > 0 else 'behind'} this machine's"
        check.mail.append(Finding("clock", found, Severity.NOTE, "synchronise the clocks (NTP)"))


# --- the end ---


async def _expunge(check: _Check, mailbox: Provisioning, folder: str, only: str | None = None) -> set[str]:
    """Expunge the messages of this check in a folder, or one of them. Return their ids."""
    found = {}
    for header in await mailbox.headers(folder, NEWEST):
        evidence = header.evidence
        if evidence is not None and evidence.run == check.host.run_id and only in (None, evidence.id):
            found[header.ref] = evidence.id
    if found:
        await mailbox.expunge([*found])
    return set(found.values())


async def _remove(check: _Check) -> list[str]:
    """Remove everything that the check put on the server. Return what may remain, one line for each account."""
    users = sorted(check.touched | {place.account.number for place in check.places})
    if not users:
        return []
    accounts = accounts_on_server(check.workload.scenario, users)
    deadline = time.monotonic() + check.wait_s
    places = {place.account.number: place for place in check.places}

    async def work(account: Account, mailbox: Provisioning) -> str:
        accepted = check.post.accepted.get(account.number, set())
        late = accepted - check.post.arrived.get(account.number, set())
        place = places.get(account.number)
        existing = await mailbox.folders()
        folders = [INBOX]
        if place is not None:
            folders += [name for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, place.folder) if name in existing]
        for folder in folders:
            late -= await _expunge(check, mailbox, folder)
        while late - check.overdue and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            late -= await _expunge(check, mailbox, INBOX)
        if place is not None:
            await restore_folders(place, account, mailbox, existing)
        return f"{name_of(account)}: {len(late)} messages accepted for it have not arrived" if late else ""

    results = await visit(accounts, check.services, work, lambda *_: None)
    return [str(each) for each in results if each]
