"""Visits to the accounts' mailboxes, several at a time. A failure ends only its own visit, and is one line long."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from loadsim.errors import ConfigError, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.host_port import is_loopback
from loadsim.model.ports import VISIT_COMMANDS, Account, Driver, Services
from loadsim.model.provisioning_ports import Probing, Provisioning
from loadsim.model.terms import CALDAV, LDAP, NNTP, OVER_HTTP
from loadsim.protocols.error_mapping import SMTP_GREETING, internal
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.registry import IN_THE_ENGINE, needed_services, open_driver
from loadsim.protocols.tls import with_authorities
from loadsim.provisioning.answers import remedy
from loadsim.scenario.population import Population
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Takes the name of a step, the number of accounts that have passed it, and the number of all accounts."""


def preparing_driver(services: Services) -> str:
    """Return the driver for `init`, `clean` and `check`, even for users of other drivers: `imap` if possible."""
    return (
        "imap" if services.imap is not None else next((own for own in OVER_HTTP if own in services.endpoints), "imap")
    )


REFUSED = "connection refused"
"""The kind of failure if no program listens on the port."""

HOPELESS = 32
"""After this many failures in a row, no more accounts are tried: on a silent server, each would use up its limit."""


_LIMIT_CODES = ("[LIMIT]", "[INUSE]", "[UNAVAILABLE]", "[IN-USE]", "[LOGIN-DELAY]")
_LIMIT_TEXT = re.compile(r"too many|maximum|\blimit|concurren|try again|busy", re.IGNORECASE)


class LogOnFailed(ConfigError):
    """An account could not log on: it may not exist on the server, or exceed a limit on connections."""


class NullObserver:
    """An observer that ignores everything, as preparation is not measured."""

    lines = NO_LINES

    def now(self) -> int:
        """Return 0: no clock is needed."""
        return 0

    def ignore(self, *_: object, **__: object) -> None:
        """Ignore an event: new mail is found by listing, and after a lost session the next call raises."""

    command = arrived = lost = ignore


def probe(services: Services, account: Account) -> Probing:
    """Return this account's submission service, which can be asked what it offers."""
    session = open_driver(preparing_driver(services), services).session(account, NullObserver())
    return cast(Probing, session.submission)


def services_of(scenario: Scenario) -> Services:
    """Return the services that the users and senders of a scenario need; all if no user needs any.

    They include the contents of `ca_file`, which is not on other machines. Raises `ConfigError` for the embedded
    server, which runs only during a run, or if a `ca_file` cannot be read.
    """
    if not isinstance(scenario.server, Server):
        raise ConfigError(
            f"{scenario.name}: server: expected a running server, found embedded, which runs only during loadsim run,"
            " and is initialised there"
        )
    stated = scenario.server.endpoints
    further = [*([CALDAV] if scenario.calendars else []), *(["outside"] if scenario.outside else [])]
    used = (needed_services(scenario) or stated.keys()) | {LDAP, NNTP, *further}
    endpoints: dict[str, Any] = {name: with_authorities(stated[name]) for name in stated if name in used}
    return scenario.using(Services(**endpoints, command_limit_s=scenario.limits.command_s))


def accounts_on_server(scenario: Scenario, users: Iterable[int] | None = None) -> list[Account]:
    """Return the accounts of these users (None: all) that have mailboxes on the server, in the users' order."""
    population = Population(scenario)
    users = range(1, len(population) + 1) if users is None else users
    return [scenario.account(user) for user in users if population.group(user).protocol != IN_THE_ENGINE]


def name_of(account: Account) -> str:
    """Return the account's name for messages: its login, and its address if that differs."""
    shown = account.login if account.login == account.address else f"{account.login} ({account.address})"
    return f"account {shown}"


async def visit(
    accounts: Sequence[Account],
    services: Services,
    work: Callable[[Account, Provisioning], Awaitable[T]],
    progress: Callable[[int, int], None],
) -> list[T | ConfigError]:
    """Log on to every account, do the work, log off. Return the results in the accounts' order.

    The scenario limits how many accounts are visited at a time. The result of a failed visit is a `ConfigError`; the
    other visits continue. After `HOPELESS` failures in a row, the remaining accounts are not tried, and get the last
    failure as their result. `progress` is called with the numbers of finished and of all accounts.
    """
    if not accounts:
        return []
    service = preparing_driver(services)
    driver = open_driver(service, services)
    most = min(services.endpoint(service).preparation_connections, len(accounts))
    results = await each_account(accounts, most, lambda account: _visit(account, driver, services, work), progress)
    if all(isinstance(result, ConfigError) for result in results):
        return results
    good = next(
        account for account, result in zip(accounts, results, strict=True) if not isinstance(result, ConfigError)
    )
    return [named(account, result, good) for account, result in zip(accounts, results, strict=True)]


async def each_account(
    accounts: Sequence[Account],
    most: int,
    work: Callable[[Account], Awaitable[T | ConfigError]],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[T | ConfigError]:
    """Do the work for each account, `most` at a time; `visit` says how it goes on after failures."""
    results: dict[int, T | ConfigError] = {}
    waiting = deque(accounts)
    in_a_row = 0

    async def visitor() -> None:
        nonlocal in_a_row
        while waiting:
            account = waiting.popleft()
            result = results[account.number] = await work(account)
            in_a_row = in_a_row + 1 if isinstance(result, ConfigError) else 0
            if in_a_row >= HOPELESS:
                results.update(dict.fromkeys((left.number for left in waiting), result))
                waiting.clear()
            progress(len(results), len(accounts))

    progress(0, len(accounts))
    try:
        async with asyncio.TaskGroup() as visitors:
            for _ in range(most):
                visitors.create_task(visitor())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [results[account.number] for account in accounts]


def named(account: Account, result: T | ConfigError, good: Account) -> T | ConfigError:
    """Return a result; a failure gets its account's name, since `good` succeeded on the same server."""
    if not isinstance(result, ConfigError):
        return result
    text = str(result) if str(result).startswith(name_of(account)) else f"{name_of(account)}: {result}"
    return type(result)(f"{text}; {name_of(good)} logs on" if isinstance(result, LogOnFailed) else text)


def all_done(results: Sequence[T | ConfigError]) -> list[T]:
    """Return the results if all visits succeeded. Raises `ConfigError` with the first failure otherwise."""
    failures = [result for result in results if isinstance(result, ConfigError)]
    if failures:
        more = len(failures) - 1
        elsewhere = f" ({more} more account{'s' * (more > 1)} failed)" if len(set(map(str, failures))) > 1 else ""
        raise ConfigError(f"{failures[0]}{elsewhere}")
    return [result for result in results if not isinstance(result, ConfigError)]


async def _visit(
    account: Account, driver: Driver, services: Services, work: Callable[[Account, Provisioning], Awaitable[T]]
) -> T | ConfigError:
    """Make one visit within its time limit. Return a failure instead of raising it, so that the others continue."""
    limit = asyncio.timeout(services.visit_limit_s)
    try:
        mailbox = cast(Provisioning, driver.session(account, NullObserver()).mailbox)
        try:
            async with limit:
                try:
                    await mailbox.log_on()
                except TaskFailed as failure:
                    raise LogOnFailed(str(no_access(preparing_driver(services), services, account, failure))) from None
                result = await work(account, mailbox)
                await mailbox.log_off()
                return result
        finally:
            mailbox.abandon()
    except ConfigError as failure:
        return failure
    except TaskFailed as failure:
        return ConfigError(f"{name_of(account)}: {failure}{remedy(failure)}")
    except Exception as error:  # noqa: BLE001  our own error in one mailbox must not end the work on the others
        if limit.expired():
            expected = f"expected a visit of at most {services.visit_limit_s:g} s ({VISIT_COMMANDS} x limits.command)"
            return ConfigError(f"{name_of(account)}: {expected}, found a longer one")
        return ConfigError(f"{name_of(account)}: {internal(error)}")


def about_limit(failure: TaskFailed) -> bool:
    """Return True if a log-on may have failed because of a limit on connections, not a wrong password.

    Servers may accept and close, send BYE, or refuse the log-on with a code (RFC 5530, RFC 9051 section 7.1) or a text.
    """
    if isinstance(failure, ServerLost):
        return True
    text = f"{failure.kind} {failure.line}"
    return isinstance(failure, ServerRefused) and (
        any(code in text for code in _LIMIT_CODES) or _LIMIT_TEXT.search(failure.line or "") is not None
    )


_ABOUT_TLS = ("TLS handshake", "STARTTLS not offered", "no STARTTLS", "PREAUTH before STARTTLS", "ERR STLS")
"""Kinds of failure if a port does not use TLS as the scenario says."""


_ABOUT_PASSWORD = re.compile(
    r"NO (?:\[[^]]*\] )?(?:AUTHENTICATE|LOGIN)\b|53\d AUTH$|401 |ERR (?:\[AUTH\] )?(?:AUTH|PASS)$|48[12] AUTHINFO PASS$"
)
"""Kinds of failure after a wrong password."""


def _about_password(account: Account, failure: TaskFailed) -> bool:
    """Return True if a server refused a password; servers do not say if the account exists."""
    return account.token_file is None and bool(_ABOUT_PASSWORD.match(failure.kind)) and not about_limit(failure)


def _about_account(account: Account) -> str:
    """Return the two possible reasons why a server refuses a password."""
    owner = "its" if account.authcid is None else "the master's"
    return (
        f"either the server has no account {account.login} (loadsim topology export writes them), or {owner} password"
        f" is not the one in {account.password_source or 'the scenario'}"
    )


def _other_service(service: str, failure: TaskFailed) -> str | None:
    """Return the service whose greeting came instead of this service's; None for any other failure."""
    greeting, other = {"imap": (SMTP_GREETING, "an SMTP"), "smtp": (": * OK", "an IMAP")}.get(service, ("", None))
    return other if isinstance(failure, ProtocolError) and greeting in failure.line else None


def no_access(service: str, services: Services, account: Account, failure: TaskFailed) -> ConfigError:
    """Return the error, with advice, for an account that failed to use a service (one of `SERVICES`)."""
    endpoint = services.endpoint(service)
    advice = ""
    if failure.kind == "TLS certificate":
        advice = f"; set server.{service}.ca_file to the authority that signed it, and host to a name that it contains"
    elif _about_password(account, failure):
        advice = f"; {_about_account(account)}"
        if failure.kind.endswith("LOGINDISABLED") and endpoint.tls == "none":
            advice = f"; it may require TLS first: server.{service}.tls{advice.replace('; ', '; or ', 1)}"
    elif service == "mapi" and not isinstance(failure, ServerRefused):
        advice = "; is the server running, and is server.mapi.url right?"
    elif service == "mapi" and failure.kind.startswith(("404", "X-ResponseCode")):
        advice = "; is server.mapi.url right?"
    elif service == "jmap" and failure.kind.startswith("404"):
        advice = "; does the server offer JMAP at this port?"
    elif service == "mapi" and failure.kind.endswith(" ResolveNames"):
        advice = "; is domain right?"
    elif failure.kind in _ABOUT_TLS:
        advice = f"; is tls: {endpoint.tls} right for this port?"
    elif failure.kind.lower() == "no answer to connect" and endpoint.tls == "none" and not failure.line:
        advice = "; is the server overloaded, or does this port begin with TLS (tls: implicit)?"
    elif failure.kind == "LOGINDISABLED":
        advice = f"; it may require TLS first: server.{service}.tls"
    elif failure.kind == REFUSED:
        startable = (
            " (loadsim server dovecot-postfix SCENARIO starts one)"
            if is_loopback(endpoint.host) and service != NNTP
            else ""
        )
        advice = f"; is the server running{startable}, and is server.{service}.port right?"
    if failure.kind in ("no AUTHENTICATE", "no AUTH"):
        return ConfigError(f"{name_of(account)}: server.{service}.auth: {failure.line}")
    if failure.outcome == "generator":
        return ConfigError(f"{name_of(account)}: {failure}")
    if isinstance(failure, ServerRefused) and failure.kind not in _ABOUT_TLS:
        action = "submit mail" if service == "smtp" else "log on"
        if service == NNTP or (service == "smtp" and _about_password(account, failure)):
            action = f"log on over {service.upper()}"
        answer = str(failure) if service in OVER_HTTP else failure.line or failure.kind
        return ConfigError(f"{name_of(account)}: expected to {action}, the server answered: {answer}{advice}")
    where = f"{endpoint.host}:{endpoint.port}"
    if other := _other_service(service, failure):
        return ConfigError(
            f"server: {service}: expected a mail server at {where}, found {other} server ({failure}); are"
            " server.imap.port and server.smtp.port right?"
        )
    return ConfigError(f"server: {service}: expected a mail server at {where}, found: {failure}{advice}")
