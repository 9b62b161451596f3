"""A trial of all connections that the mail programs of one user may make at once; servers limit them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from loadsim.errors import TaskFailed
from loadsim.model.groups import Group
from loadsim.model.mail_program import program_names
from loadsim.model.population import Population
from loadsim.model.ports import Account, Mailbox, Services
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import NullObserver


@dataclass(frozen=True, slots=True)
class UserConnections:
    """The `count` connections that a user tried to have at once, and the failures among them."""

    account: Account
    programs: str
    count: int
    failures: Sequence[TaskFailed]

    @property
    def made(self) -> int:
        return self.count - len(self.failures)

    @property
    def found(self) -> str:
        return f"{self.made} of {self.count} of a user at once ({self.programs})"

    @property
    def advice(self) -> str:
        """The remedy and the server's answer; empty if all connections could be made."""
        if not self.failures:
            return ""
        return (
            f"let a user have {self.count} connections at once, now {self.made} can be open (the server's limit of"
            f" connections for each user): {self.failures[0]}"
        )


async def user_connections(population: Population, services: Services, users: Iterable[int]) -> list[UserConnections]:
    """Make all connections of a user at once, for the first of these users in each group that allows several."""
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


async def _connections(population: Population, services: Services, user: int, group: Group) -> UserConnections:
    scenario = population.scenario
    account = scenario.account(user)
    programs = [group.program] * group.program.connections + [*group.companions]
    drivers = [open_driver(group.protocol, scenario.with_program(services, each)) for each in programs]
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
    return UserConnections(account, program_names(group.programs), len(programs), failures)


async def log_off(mailbox: Mailbox) -> None:
    """Log off, and close the connection in any case."""
    with suppress(TaskFailed):
        await mailbox.log_off()
    mailbox.abandon()
