"""A check of a server under way: what it has found so far, and its mail to users and lists."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from loadsim.errors import TaskFailed
from loadsim.model.ports import INBOX, Account, Probing, Provisioning, ServerOffer, Services
from loadsim.model.workload import Workload
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_folders import Place
from loadsim.provisioning.check_limits import sends_to_lists
from loadsim.provisioning.check_tasks import FIRST_POLL_S, Arrival, CheckHost, Post, TaskCheck
from loadsim.provisioning.findings import NO_LIST, Finding, Severity, lacking
from loadsim.provisioning.sessions import DRIVER, NullObserver, accounts_on_server, all_done, visit

NEWEST = 200
"""The newest messages of a folder among which those of the check are looked for."""

POLL_S = 0.25
"""The interval in which the Inbox is listed for a message that has been accepted."""

LEFT_OUT_S = 3.0
"""The wait for the sender's own copy of a message to a list, once all other members have theirs."""

LATE_NEWS = (
    f"within {FIRST_POLL_S:g} s the server did not announce all of them to waiting users, who answer mail later then; a"
    " run of some minutes may make too little load"
)


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
        tag = header.tag
        if tag is not None and tag.run == check.host.run_id and only in (None, tag.id):
            found[header.ref] = tag.id
    if found:
        await mailbox.expunge([*found])
    return set(found.values())


async def check_mail(check: Check) -> None:
    """Report arrivals, then send one message to the smallest list."""
    arrivals = [arrival for task in check.tasks for arrival in task.arrivals]
    if arrivals:
        late = any(not arrival.announced for arrival in arrivals)
        advice = LATE_NEWS if late else ""
        check.mail.append(Finding("to a user", _arrived(arrivals), Severity.NOTE if late else Severity.OK, advice))
    lost = [task for task in check.tasks if "SYNC" in task.planned and not task.arrivals]
    for task in lost:
        if not any(each.failure for each in task.findings):
            advice = f"find out why mail to {task.user.account.address} does not arrive within {check.wait_s:g} s"
            check.mail.append(Finding("to a user", "accepted, and not arrived", Severity.LACKS, advice))
    await _list(check)


def _arrived(arrivals: Sequence[Arrival]) -> str:
    announced = sum(arrival.announced for arrival in arrivals)
    slowest = max(arrival.seconds for arrival in arrivals)
    return f"{len(arrivals)} arrived within {slowest:.2f} s, {announced} of them announced"


async def _list(check: Check) -> None:
    """Send one message to the smallest list, as a member, wait until all members have it, and remove it there.

    A list may leave out the sender. Then a run does not expect these copies.
    """
    lists = check.workload.population.lists
    if not sends_to_lists(check.workload):
        check.mail.append(Finding("to a list", "not planned"))
        return
    index = min(range(len(lists)), key=lambda each: len(lists.members(each)))
    address, members = lists.address(index), lists.members(index)
    accounts = accounts_on_server(check.workload.scenario, members)
    others = [each for each in check.accounts if each.number not in members]
    sender = accounts[0] if len(accounts) > 1 or not others else others[0]
    outgoing = check.post.compose(sender, dict.fromkeys(members, address))
    submission = open_driver(DRIVER, check.services).session(sender, NullObserver()).submission
    try:
        await submission.send(sender.address, [address], outgoing.message)
    except TaskFailed as failure:
        check.mail.append(lacking("to a list", failure, sender=sender.address, recipient=address, to_list=True))
        return
    finally:
        await submission.close()
    check.post.sent(outgoing)
    check.touched.update(members)
    since = time.monotonic()
    deadline = since + check.wait_s
    times: dict[int, float] = {}

    def only_sender_lacks(passed_s: float) -> bool:
        """Return whether the sender alone, one of several members, has no copy so long after the others."""
        lacking = {account.number for account in accounts} - times.keys()
        return lacking == {sender.number} and time.monotonic() - since > max(times.values(), default=0.0) + passed_s

    async def receive(account: Account, mailbox: Provisioning) -> None:
        while not await expunge(check, mailbox, INBOX, outgoing.id):
            if time.monotonic() > deadline or (times and only_sender_lacks(LEFT_OUT_S)):
                return
            await asyncio.sleep(POLL_S)
        check.post.arrived.setdefault(account.number, set()).add(outgoing.id)
        times[account.number] = time.monotonic() - since

    all_done(await visit(accounts, check.services, receive, lambda *_: None))
    found = f"{len(times)} of {len(accounts)} members got it"
    if len(times) == len(accounts):
        check.mail.append(Finding("to a list", f"{found} within {max(times.values()):.2f} s"))
    elif times and only_sender_lacks(0.0):
        check.post.accepted[sender.number].discard(outgoing.id)
        found = f"{found} within {max(times.values()):.2f} s, all but the sender"
        check.mail.append(Finding("to a list", found, Severity.NOTE, "a run does not expect the sender's copies"))
    else:
        check.overdue.add(outgoing.id)
        missing = NO_LIST.format(recipient=address)
        advice = f"make {address} deliver to its members (or {missing})" if times else missing
        check.mail.append(Finding("to a list", f"accepted; {found}", Severity.LACKS, advice))
