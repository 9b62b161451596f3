"""A check of a server under way: what it has found so far, and its messages in a mailbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from loadsim.model.ports import Account, Probing, Provisioning, ServerOffer, Services
from loadsim.model.workload import Workload
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_folders import Place
from loadsim.provisioning.check_tasks import CheckHost, Post, TaskCheck
from loadsim.provisioning.findings import Finding
from loadsim.provisioning.sessions import DRIVER, NullObserver, accounts_on_server

NEWEST = 200
"""The newest messages of a folder among which those of the check are looked for."""

POLL_S = 0.25
"""The interval in which the Inbox is listed for a message that has been accepted."""


@dataclass(slots=True)
class Check:
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


def probe(services: Services, account: Account) -> Probing:
    """Return a submission service of this account that can be asked."""
    session = open_driver(DRIVER, replace(services, submission="pipelining")).session(account, NullObserver())
    return cast(Probing, session.submission)


async def expunge(check: Check, mailbox: Provisioning, folder: str, only: str | None = None) -> set[str]:
    """Expunge the messages of this check in a folder, or one of them. Return their ids."""
    found = {}
    for header in await mailbox.headers(folder, NEWEST):
        evidence = header.evidence
        if evidence is not None and evidence.run == check.host.run_id and only in (None, evidence.id):
            found[header.ref] = evidence.id
    if found:
        await mailbox.expunge([*found])
    return set(found.values())
