"""Checks before the load: source addresses, local ports, submission, and what is cheap of `loadsim check`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import cast

from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.population import further_connections
from loadsim.model.ports import Account, Provisioning, Quota, Services
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_server import Server
from loadsim.model.workload import Workload
from loadsim.protocols.connect import bound_socket
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_limits import quota_finding, sends_to_lists
from loadsim.provisioning.check_mail import probe
from loadsim.provisioning.findings import Severity, advice_on, refused_recipient
from loadsim.provisioning.sessions import DRIVER, NullObserver, accounts_on_server, name_of, no_submission
from loadsim.provisioning.user_connections import user_connections


async def check_submission(workload: Workload, services: Services, users: Iterable[int] | None = None) -> None:
    """Connect, secure and authenticate at the submission service, as the first of these users (None: of all).

    Raises `ConfigError`.
    """
    for account in accounts_on_server(workload.scenario, users)[:1]:
        submission = open_driver(DRIVER, services).session(account, NullObserver()).submission
        try:
            await submission.check()
        except TaskFailed as failure:
            raise await no_submission(services, account, failure) from None


async def check_server_limits(workload: Workload, services: Services, users: Iterable[int] | None = None) -> None:
    """Check what is cheap of `loadsim check`, as the first of these users (None: of all): a list, folders, the quota.

    It takes one session of each service and sends no message; where users have several connections, the first such user
    of each group makes them all. Raises `ConfigError` if the scenario cannot run.
    """
    users = range(1, len(workload.population) + 1) if users is None else list(users)
    for tried in await user_connections(workload.population, services, users):
        if tried.failures and tried.made:  # `init` reports an account that cannot log on at all
            raise ConfigError(
                f"{name_of(tried.account)}: expected all connections, found {tried.found}; {tried.advice}"
            )
    for account in accounts_on_server(workload.scenario, users)[:1]:
        await _check_list(workload, services, account)
        await _check_mailbox(workload, services, account)


async def _check_list(workload: Workload, services: Services, account: Account) -> None:
    """Name the first list as a recipient, without a message. Only a final refusal counts."""
    if not sends_to_lists(workload):
        return
    address = workload.population.lists.address(0)
    with suppress(TaskFailed):  # `check_submission` and the run report other failures
        try:
            await probe(services, account).ask(account.address, address)
        except ServerRefused as failure:
            if not refused_recipient(failure):
                raise
            advice = advice_on(failure, account.address, address, to_list=True)
            raise ConfigError(
                f"lists: expected the server to accept mail for {address}, the server answered: {failure.line}"
                + (f"; {advice}" if advice else "")
            ) from None


async def _check_mailbox(workload: Workload, services: Services, account: Account) -> None:
    """Look at the names of folders that the plan needs, and at the quota."""
    mailbox = cast(Provisioning, open_driver(DRIVER, services).session(account, NullObserver()).mailbox)
    quotas: Sequence[Quota] = ()
    try:
        await mailbox.log_on()
        for folder in workload.own_folders(account.number):
            try:
                mailbox.name_on_server(folder)
            except ServerRefused as failure:
                raise ConfigError(f"{name_of(account)}: {failure}; set mailbox.folders without nested ones") from None
        with suppress(ServerRefused):
            quotas = await mailbox.quotas()
        await mailbox.log_off()
    except TaskFailed:
        return  # `init` reports it
    finally:
        mailbox.abandon()
    for quota in quotas:
        finding = quota_finding(workload, account, quota)
        if finding.severity is Severity.LACKS:
            raise ConfigError(f"{name_of(account)}: expected room for the run, found {finding.found}; {finding.advice}")


PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and the last port that Linux chooses for connections by itself, for both IP versions."""


def check_sources(scenario: Scenario) -> None:
    """Raise `ConfigError` if connections cannot start from the scenario's source addresses."""
    for source in scenario.client.source_addresses:
        problem = _problem(source, scenario)
        if problem:
            raise ConfigError(f"{scenario.name}: client.source_addresses: {problem}")


def check_ports(scenario: Scenario, users: Iterable[int] | None = None) -> None:
    """Raise `ConfigError` if the source addresses do not suffice for these users (None: all) at once.

    All connections that mail programs may make to mailboxes count, since they go to one address and port of the server.
    Connections for submission use ports of their own.
    """
    users = None if users is None else list(users)
    found, further = len(accounts_on_server(scenario, users)), further_connections(scenario, users)
    try:
        first, last = map(int, PORT_RANGE.read_text().split())
    except OSError:  # this system does not state them
        return
    problem = too_few_ports(found, len(scenario.client.source_addresses), last - first + 1, further)
    if problem:
        raise ConfigError(f"{scenario.name}: client.source_addresses: {problem}")


def too_few_ports(users: int, sources: int, ports: int, further: int = 0) -> str | None:
    """Return the error if these source addresses (0: the system's one) have too few ports each; None otherwise."""
    needed = ceil((users + further) / ports)
    if needed <= max(1, sources):
        return None
    return (
        f"expected at least {needed} addresses for {users} users"
        f"{f' and {further} further connections' if further else ''}, found {sources or 'none'}: {PORT_RANGE.name} has"
        f" {ports} ports for each; add addresses of this machine (127.0.0.2 and so on, if the server runs on it)"
    )


def _problem(source: str, scenario: Scenario) -> str | None:
    host = scenario.server.imap.host if isinstance(scenario.server, Server) else "127.0.0.1"
    try:
        if ip_address(host).version != ip_address(source).version:
            return f"expected addresses of the same IP version as the server's {host}, found {source}"
    except ValueError:
        pass  # the name of a host, which may have addresses of either version
    try:
        bound_socket(source).close()
    except OSError as failure:
        return f"expected addresses of this machine, found {source}: {failure.strerror}"
    return None
