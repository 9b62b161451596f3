"""Cheap checks before the load: source addresses, local ports, accounts, connections, lists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import cast

from loadsim.errors import ConfigError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.mail_program import program_names
from loadsim.model.ports import Account, DriverOfSenders, Mailbox, Services, UserDirectory
from loadsim.model.provisioning_ports import Probing, Provisioning
from loadsim.model.terms import OVER_HTTP
from loadsim.protocols.connect import bound_socket
from loadsim.protocols.registry import needs_one_engine, open_directory, open_driver
from loadsim.provisioning.answers import remedy
from loadsim.provisioning.calendars import schedules, with_calendars
from loadsim.provisioning.check_limits import sends_to_lists
from loadsim.provisioning.public_folder import check_public_folder
from loadsim.provisioning.server_report import Observation
from loadsim.provisioning.sessions import (
    LogOnFailed,
    NullObserver,
    accounts_on_server,
    name_of,
    no_access,
    probe,
    visit,
)
from loadsim.scenario.groups import Group
from loadsim.scenario.population import Population, further_connections
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload


async def check_submission(workload: Workload, services: Services, users: Iterable[int] | None = None) -> None:
    """Connect, secure and authenticate at each submission service as the first of these users (None: all users).

    The user logs on to POP3, too, and is looked up in an address book; the first user of a calendar server asks it.
    Raises `ConfigError`.
    """
    by_service = {"smtp": "imap", **dict(zip(OVER_HTTP, OVER_HTTP, strict=True))}
    for account in accounts_on_server(workload.scenario, users)[:1]:
        for service in by_service.keys() & services.endpoints.keys():
            submission = open_driver(by_service[service], services).session(account, NullObserver()).submission
            try:
                await submission.check()
            except TaskFailed as failure:
                raise no_access(service, services, account, failure) from None
        if services.pop3 is not None:
            mailbox = open_driver("pop3", services).session(account, NullObserver()).mailbox
            try:
                await mailbox.log_on()
                await mailbox.log_off()
            except TaskFailed as failure:
                raise no_access("pop3", services, account, failure) from None
        if open_book := open_directory(services):
            await _check_directory(open_book(account, NullObserver()), account)
    for account in with_calendars(workload.scenario, accounts_on_server(workload.scenario, users))[:1]:
        await schedules(account, services)


async def _check_directory(book: UserDirectory, account: Account) -> None:
    try:
        found = "none" if await book.resolve([account.address]) else ""
    except TaskFailed as failure:
        found = str(failure)
    finally:
        await book.close()
    if found:
        raise ConfigError(
            f"server.ldap: expected an entry with mail {account.address}, found: {found};"
            " are server.ldap.url, its base and bind_dn right?"
        )


async def check_outside(workload: Workload, services: Services) -> None:
    """Name the first user as a recipient of mail from outside, without sending a message.

    Raises `ConfigError` for a refusal. A temporary one counts, as outside senders do not retry.
    """
    if not workload.senders or needs_one_engine(workload.scenario):
        return
    sender = workload.scenario.sender_account(workload.senders[0])
    recipient = workload.population.address(1)
    driver = cast(DriverOfSenders, open_driver("imap", services))
    with suppress(ServerLost, ServerSilent):  # `check_submission` and the run report these
        try:
            await cast(Probing, driver.outside(sender, NullObserver())).ask(sender.address, recipient)
        except ServerRefused as failure:
            service = "outside" if services.outside is not None else "smtp"
            advice = f"is server.{service}.port the one for mail from other servers, usually 25?"
            if failure.kind.startswith("4"):
                advice = (
                    "this is temporary, but outside senders do not retry: exempt loadsim from greylisting and limits"
                )
            raise ConfigError(
                f"server.{service}: expected to accept mail for {recipient} from outside, without a log-on, the server"
                f" answered: {failure}; {advice}"
            ) from None


async def check_server_limits(workload: Workload, services: Services, users: Iterable[int] | None = None) -> None:
    """Check limits that `init` does not reach, for these users (None: all): connections per user, lists, and rights.

    No message is sent. In each group whose users have several connections, the first such user opens them all. The
    first user names a list as recipient. Raises `ConfigError` if the scenario cannot run.
    """
    users = range(1, len(workload.population) + 1) if users is None else list(users)
    for account, tried in await user_connections(workload.population, services, users):
        if (limit := tried.finding) and limit.values["made"]:  # `init` reports an account that cannot log on at all
            raise ConfigError(
                f"{name_of(account)}: expected all connections, found {tried.seen}: {limit.values['answer']};"
                f" {limit.code.remedy}"
            )
    for account in accounts_on_server(workload.scenario, users)[:1]:
        await _check_list(workload, services, account)
    await check_public_folder(workload, services, users)


async def _check_list(workload: Workload, services: Services, account: Account) -> None:
    """Name the last list as a recipient, without sending a message. Only a permanent refusal counts.

    If the lists were exported for a different number of users, the last one is missing or different.
    """
    if not sends_to_lists(workload):
        return
    lists = workload.population.lists
    address = lists.address(len(lists) - 1)
    with suppress(TaskFailed):  # other failures are reported by `check_submission` and the run
        try:
            await probe(services, account).ask(account.address, address)
        except ServerRefused as failure:
            if not failure.is_of_recipient:
                raise
            raise ConfigError(
                f"lists: expected the server to accept mail for {address}, the server answered: {failure}"
                + remedy(failure, to_list=True)
            ) from None


PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and last port that Linux assigns to connections, for both IP versions."""


def check_sources(scenario: Scenario) -> None:
    """Raise `ConfigError` if connections cannot be made from the scenario's source addresses."""
    for source in scenario.client.source_addresses:
        problem = _problem(source, scenario)
        if problem:
            raise ConfigError(f"{scenario.name}: client.source_addresses: {problem}")


def check_ports(scenario: Scenario, users: Iterable[int] | None = None) -> None:
    """Raise `ConfigError` if the source addresses have too few ports for these users (None: all) at once.

    All mailbox connections that mail programs may open count: they go to the same address and port of the server.
    Submission goes to another port, so its connections have a range of local ports of their own.
    """
    users = None if users is None else list(users)
    on_server, further = len(accounts_on_server(scenario, users)), further_connections(scenario, users)
    try:
        first, last = map(int, PORT_RANGE.read_text().split())
    except OSError:  # not Linux
        return
    problem = too_few_ports(on_server, len(scenario.client.source_addresses), last - first + 1, further)
    if problem:
        raise ConfigError(f"{scenario.name}: client.source_addresses: {problem}")


def too_few_ports(users: int, sources: int, ports: int, further: int = 0) -> str | None:
    """Return the error if these source addresses (0: the system's choice) have too few ports; None otherwise."""
    needed = ceil((users + further) / ports)
    if needed <= max(1, sources):
        return None
    return (
        f"expected at least {needed} addresses for {users} users"
        f"{f' and {further} further connections' if further else ''}, found {sources or 'none'}: {PORT_RANGE.name} has"
        f" {ports} ports for each; add addresses of this machine (127.0.0.2 and so on, if the server runs here)"
    )


def _problem(source: str, scenario: Scenario) -> str | None:
    endpoints = scenario.server.endpoints.values() if isinstance(scenario.server, Server) else ()
    for host in [endpoint.host for endpoint in endpoints] or ["127.0.0.1"]:
        with suppress(ValueError):  # a host name, which may have addresses of either version
            if ip_address(host).version != ip_address(source).version:
                return f"expected addresses of the same IP version as the server's {host}, found {source}"
    try:
        bound_socket(source).close()
    except OSError as failure:
        return f"expected addresses of this machine, found {source}: {failure.strerror}"
    return None


async def check_accounts(scenario: Scenario, services: Services) -> None:
    """Log on as the first and the last of all users: a server may have too few accounts.

    Raises `ConfigError` if only the last log-on is refused. Other failures show when each account is visited.
    """
    accounts = accounts_on_server(scenario)
    if len(accounts) < 2:
        return
    first, last = await visit([accounts[0], accounts[-1]], services, nothing, lambda *_: None)
    if first is None and isinstance(last, LogOnFailed):
        raise last


async def nothing(account: Account, mailbox: Provisioning) -> None:
    """Do nothing: the visit only logs on and off."""


async def user_connections(
    population: Population, services: Services, users: Iterable[int]
) -> list[tuple[Account, Observation]]:
    """Open all connections of a user at once, for the first of these users in each group whose users have several."""
    if all(group.connections == 1 for group in population.scenario.topology):
        return []
    first: dict[int, tuple[int, Group]] = {}
    for user in users:
        group = population.group(user)
        first.setdefault(id(group), (user, group))
        if len(first) == len(population.scenario.topology):
            break
    return [
        await _connections(population, services, user, group) for user, group in first.values() if group.connections > 1
    ]


async def _connections(
    population: Population, services: Services, user: int, group: Group
) -> tuple[Account, Observation]:
    scenario = population.scenario
    account = scenario.account(user)
    programs = [group.program] * group.program.connections + [*group.companions]
    each = (scenario.with_program(services, group.protocol, program) for program in programs)
    drivers = [open_driver(group.protocol, services_of) for services_of in each]
    mailboxes = [driver.session(account, NullObserver()).mailbox for driver in drivers]
    failures: list[TaskFailed] = []
    try:
        for mailbox in mailboxes:
            try:
                await mailbox.log_on()
            except TaskFailed as failure:
                failures.append(failure)
    finally:
        await asyncio.gather(*map(log_off, mailboxes))
    wanted, made = len(programs), len(programs) - len(failures)
    seen = f"{made} of {wanted} of a user at once ({program_names(group.programs)})"
    few = finding(Code.FEW_CONNECTIONS, made=made, wanted=wanted, answer=str(failures[0])) if failures else None
    return account, Observation("connections", seen, few)


async def log_off(mailbox: Mailbox) -> None:
    """Log off, and close the connection even if that fails."""
    with suppress(TaskFailed):
        await mailbox.log_off()
    mailbox.abandon()
