"""The accounts' mailboxes, visited so many at a time; what a server says against it becomes one clear line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar, cast

from loadsim.client.modules import IN_THE_ENGINE, open_module
from loadsim.errors import ConfigError, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.population import Population
from loadsim.model.ports import Account, ClientModule, Endpoint, Provisioning, Services
from loadsim.model.scenario import Scenario, Server
from loadsim.protocols.tls import with_authorities

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Hears what is being done, with how many accounts it is done, and with how many it will be."""

MODULE = "imap"
"""The client module that provisions, whatever module the users will be measured through."""

AT_ONCE = 32
"""How many mailboxes a machine visits at a time."""


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
    """The server that a scenario names, with the authorities that it names for it: they go wherever the services go.

    Raises `ConfigError` when it lives only as long as a run does, or when a `ca_file` cannot be read.
    """
    if not isinstance(scenario.server, Server):
        raise ConfigError(
            f"{scenario.name}: server: expected a server that is running, found embedded, which lives only during a"
            " run: loadsim run initialises it by itself"
        )
    imap, smtp = with_authorities(scenario.server.imap), with_authorities(scenario.server.smtp)
    services = Services(imap, smtp, scenario.limits.command_s)
    return scenario.client.using(services)


def accounts_on_server(scenario: Scenario, users: Iterable[int] | None = None) -> list[Account]:
    """The accounts of these users (None: of all) whose mailboxes are on the server, in their order."""
    population = Population(scenario)
    users = range(1, len(population) + 1) if users is None else users
    return [scenario.account(user) for user in users if population.group(user).protocol != IN_THE_ENGINE]


def name_of(account: Account) -> str:
    """How an account is called in a message to people."""
    shown = account.login if account.login == account.address else f"{account.login} ({account.address})"
    return f"account {shown}"


async def visit(
    accounts: Sequence[Account],
    services: Services,
    work: Callable[[Account, Provisioning], Awaitable[T]],
    tell: Callable[[int, int], None],
    at_once: int = AT_ONCE,
) -> list[T]:
    """Log on to every account, `at_once` at a time, do the work, log off; the results in the order of the accounts.

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
            for _ in range(min(at_once, len(accounts))):
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
    except TaskFailed as failure:
        raise not_let_in("imap", endpoint, account, "log on", failure) from None


_ABOUT_TLS = ("TLS handshake", "STARTTLS not offered", "no STARTTLS", "PREAUTH before STARTTLS")
"""Kinds of failure that say: this port does not do TLS as the scenario has it."""


def not_let_in(service: str, endpoint: Endpoint, account: Account, wish: str, failure: TaskFailed) -> ConfigError:
    """The line for an account that could not do what it wished at a service (imap or smtp), with what may help."""
    advice = ""
    if failure.kind == "TLS certificate":
        advice = f"; set server.{service}.ca_file to who signed it, and host to a name that it is for"
    elif failure.kind in _ABOUT_TLS or (endpoint.tls == "none" and isinstance(failure, ServerSilent)):
        advice = f"; is tls: {endpoint.tls} right for this port?"
    elif failure.kind == "LOGINDISABLED":
        advice = f"; it may want TLS first: server.{service}.tls"
    if isinstance(failure, ServerRefused) and failure.kind not in _ABOUT_TLS:
        said = failure.line or failure.kind
        return ConfigError(f"{name_of(account)}: expected to {wish}, the server said: {said}{advice}")
    where = f"{endpoint.host}:{endpoint.port}"
    return ConfigError(f"server: {service}: expected a mail server at {where}, found: {failure}{advice}")
