"""The accounts' mailboxes, visited so many at a time; what a server says against it becomes one clear line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from loadsim.client.modules import open_module
from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.population import Population
from loadsim.model.ports import Account, ClientModule, Endpoint, Provisioning, Services
from loadsim.model.scenario import Scenario, Server

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Hears what is being done, with how many accounts it is done, and with how many it will be."""

MODULE = "imap"
"""The client module that provisions, whatever module the users will be measured through."""

WITHOUT_SERVER = "fake"
"""The client module that needs no provisioning: its mailboxes live in the run itself."""

AT_ONCE = 32


class Deaf:
    """An observer that hears nothing: provisioning is not measured."""

    def now(self) -> int:
        """No clock is needed."""
        return 0

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int) -> None:
        """Nobody counts commands here."""

    def arrived(self, messages: int) -> None:
        """Mail that arrives meanwhile is found by listing."""

    def lost(self, failure: Exception) -> None:
        """The next call tells."""


def services_of(scenario: Scenario) -> Services:
    """The server that a scenario names. Raises `ConfigError` when it lives only as long as a run does."""
    if not isinstance(scenario.server, Server):
        raise ConfigError(
            f"{scenario.name}: server: expected a server that is running, found embedded, which lives only during a"
            " run: loadsim run initialises it by itself"
        )
    return Services(scenario.server.imap, scenario.server.smtp, scenario.limits.command_s)


def accounts_on_server(scenario: Scenario) -> list[Account]:
    """The accounts of all users whose mailboxes are on the server, in their order."""
    population = Population(scenario)
    users = range(1, len(population) + 1)
    return [scenario.account(user) for user in users if population.group(user).protocol != WITHOUT_SERVER]


def name_of(account: Account) -> str:
    """How an account is called in a message to people."""
    shown = account.login if account.login == account.address else f"{account.login} ({account.address})"
    return f"account {shown}"


async def visit(
    accounts: Sequence[Account],
    services: Services,
    work: Callable[[Account, Provisioning], Awaitable[T]],
    tell: Callable[[int, int], None],
) -> list[T]:
    """Log on to every account, do the work, log off; the results in the order of the accounts.

    `tell` hears how many are done, of how many. Raises `ConfigError` for the first account where anything fails, and
    ends the other visits.
    """
    if not accounts:
        return []
    module = open_module(MODULE, services)
    results: dict[int, T] = {}
    waiting = iter(accounts)

    async def visitor() -> None:
        for account in waiting:
            results[account.number] = await _visit(account, module, services.imap, work)
            tell(len(results), len(accounts))

    tell(0, len(accounts))
    try:
        async with asyncio.TaskGroup() as visitors:
            for _ in range(min(AT_ONCE, len(accounts))):
                visitors.create_task(visitor())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [results[account.number] for account in accounts]


async def _visit(
    account: Account,
    module: ClientModule,
    endpoint: Endpoint,
    work: Callable[[Account, Provisioning], Awaitable[T]],
) -> T:
    mailbox = cast(Provisioning, module.session(account, Deaf()).mailbox)
    try:
        await _log_on(account, mailbox, endpoint)
        try:
            result = await work(account, mailbox)
            await mailbox.log_off()
        except TaskFailed as failure:
            raise ConfigError(f"{name_of(account)}: {failure}") from None
    finally:
        mailbox.abandon()
    return result


async def _log_on(account: Account, mailbox: Provisioning, endpoint: Endpoint) -> None:
    try:
        await mailbox.log_on()
    except ServerRefused as refusal:
        said = refusal.line or refusal.kind
        raise ConfigError(f"{name_of(account)}: expected to log on, the server said: {said}") from None
    except TaskFailed as failure:
        where = f"{endpoint.host}:{endpoint.port}"
        raise ConfigError(f"server: imap: expected a mail server at {where}, found: {failure}") from None
