"""A server check under way: what it has seen so far, and its mail to users and lists."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from loadsim.errors import ConfigError, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.model.delivery_report import may_report
from loadsim.model.message_tag import AUTOMATIC_REPLY, run_named
from loadsim.model.ports import INBOX, RESET_FLAGS, Account, Services
from loadsim.model.provisioning_ports import Provisioning, ServerOffer
from loadsim.model.state_checks import StateChecks
from loadsim.provisioning.check_folders import NEWEST, CheckPlace
from loadsim.provisioning.check_limits import sends_to_lists
from loadsim.provisioning.check_post import Post
from loadsim.provisioning.check_tasks import FIRST_POLL_S, Arrival, TaskCheck
from loadsim.provisioning.inspect import bounce_status, returned_tag
from loadsim.provisioning.server_report import Observation, ServerFacts, lacking
from loadsim.provisioning.sessions import accounts_on_server, all_done, name_of, probe, visit
from loadsim.scenario.workload import Workload

POLL_S = 0.25
"""The interval between listings of an Inbox until an accepted message is there."""

CHANGED = frozenset(map(str.lower, RESET_FLAGS))

LEFT_OUT_S = 3.0
"""The wait for the sender's own copy of a message to a list, once all other members have theirs."""


@dataclass(slots=True)
class Check:
    """A check under way; `server` and `mail` grow as it proceeds."""

    workload: Workload
    services: Services
    users: Sequence[int]
    wait_s: float
    post: Post
    places: list[CheckPlace] = field(default_factory=list)
    server: list[Observation] = field(default_factory=list)
    mail: list[Observation] = field(default_factory=list)
    tasks: list[TaskCheck] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    smtp: ServerOffer | None = None
    facts: ServerFacts = field(default_factory=ServerFacts)
    replies: int = 0
    """Automatic replies to messages of the check, which were removed."""
    overdue: set[str] = field(default_factory=set)
    """The ids of messages that were awaited, but did not arrive."""
    others: set[int] = field(default_factory=set)
    """The users whose Inbox is not theirs alone, or whose mail arrives with altered headers."""

    state_completed: bool = False
    """Two sessions have tried each rule about the state of a session."""
    removed: Sequence[str | ConfigError] = ("all that this check put into the accounts",)
    """For each account: what may remain there, or the failure to remove it."""
    began_s: float = field(default_factory=time.monotonic)

    @property
    def state(self) -> StateChecks:
        assert self.services.state_checks is not None
        return self.services.state_checks

    @property
    def own(self) -> list[CheckPlace]:
        """The places whose mailboxes have no other users, as far as their Inboxes show."""
        return [place for place in self.places if not place.foreign]

    @property
    def accounts(self) -> list[Account]:
        return accounts_on_server(self.workload.scenario, self.users)


async def expunge(
    check: Check, mailbox: Provisioning, folder: str, only: str | None = None, changed: bool = False
) -> set[str]:
    """Expunge this check's messages in a folder, or `only` one, even with a `changed` From. Return their ids."""
    listed = (await mailbox.listing([folder]))[folder] if changed else await mailbox.headers(folder, NEWEST)
    own = {header.ref: header.tag.id for header in listed if header.tag and header.tag.run == check.post.run_id}
    chosen = {ref: message for ref, message in own.items() if only in (None, message)}
    await mailbox.expunge([*chosen])
    return set(chosen.values())


async def expunge_replies(check: Check, account: Account, mailbox: Provisioning) -> None:
    """Expunge the automatic replies in the Inbox to messages of this check, and count them; and reports on those."""
    listed, run = (await mailbox.listing([INBOX]))[INBOX], check.post.run_id
    replies = [
        message.ref
        for message in listed
        if run_named(message.in_reply_to, account.domain) == run
        and await bounce_status(account, mailbox, message) == AUTOMATIC_REPLY
    ]
    check.replies += len(replies)
    reports = [
        message.ref
        for message in listed
        if message.tag is None
        and may_report(message.sender)
        and (tag := await returned_tag(mailbox, message.ref, account.domain)) is not None
        and tag.run == run
    ]
    await mailbox.expunge([*replies, *reports])


async def find_others(check: Check) -> None:
    """Note the users whose Inbox is not theirs alone: a message in it changes, or another user's message is there.

    A check does this before it accuses the server: a filter or mail program may work on an Inbox that was empty.
    """
    accounts = accounts_on_server(check.workload.scenario, sorted(check.touched))
    probes = {account.number: check.post.compose(account, {account.number: account.address}) for account in accounts}

    async def work(account: Account, mailbox: Provisioning) -> str:
        await mailbox.append(INBOX, probes[account.number].message)
        deadline = time.monotonic() + FIRST_POLL_S
        while time.monotonic() < deadline:
            stored = (await mailbox.listing([INBOX]))[INBOX]
            run = check.post.run_id
            own = [(message.tag.id, message) for message in stored if message.tag and message.tag.run == run]
            flags = {message_id: message.flags & CHANGED for message_id, message in own}
            for user, outgoing in probes.items():
                if user != account.number and outgoing.id in flags:
                    return f"that of user {user} there"
            changed = flags.get(probes[account.number].id)
            if changed is None or changed:
                return "it removed" if changed is None else f"it flagged {' '.join(sorted(changed))}"
            await asyncio.sleep(POLL_S)
        return ""

    for account, found in zip(accounts, await visit(accounts, check.services, work, lambda *_: None), strict=True):
        if found and isinstance(found, str):
            check.others.add(account.number)
            shared = finding(Code.INBOX_SHARED, name_of(account), found=found)
            check.server.append(Observation(f"Inbox, {account.login}", f"a message of this check: {found}", shared))


def fair(check: Check, ended: bool, seen: Observation) -> Observation:
    """Return what was seen, without the finding if others may use the mailboxes, or if the check ended early."""
    if seen.finding is None or not seen.users or not (ended or check.others.intersection(seen.users)):
        return seen
    return replace(seen, seen=f"not judged: {seen.seen}", finding=None)


async def check_mail(check: Check) -> None:
    """Report arrivals, altered mail and delivery receipts, then send a message to the smallest list."""
    arrivals = [arrival for task in check.tasks for arrival in task.arrivals]
    if arrivals:
        check.mail.append(_arrived(arrivals))
    for task in check.tasks:
        if not task.arrivals and not any(tried.failure for tried in task.tried):
            missing = finding(Code.MAIL_NOT_DELIVERED, address=task.user.account.address, wait_s=check.wait_s)
            check.mail.append(Observation("to a user", "accepted, and not arrived", missing, (task.user.number,)))
    if altered := check.post.altered:
        first, user, folder = altered[0]
        severity = Severity.WARNING if Code.MAIL_ALTERED.id in check.workload.scenario.audit_allow else None
        values: dict[str, str | int] = {"message_id": first, "folder": folder, "user": user}
        wrong = finding(Code.MAIL_SHOWN_ALTERED, "", severity, messages=len(altered), **values)
        check.mail.append(Observation("content", f"{len(altered)} texts and files are not as they were sent", wrong))
    if receipts := [task.receipt for task in check.tasks if task.receipt is not None]:
        check.mail.append(_receipts(receipts))
    await _list(check)


def _receipts(outcomes: Sequence[str]) -> Observation:
    arrived, skipped = outcomes.count("ok"), outcomes.count("skipped")
    if skipped:
        not_offered = finding(Code.RECEIPTS_NOT_OFFERED, messages=skipped)
        return Observation("delivery receipts", "not offered", not_offered)
    requested = len(outcomes)
    missing = finding(Code.RECEIPTS_MISSING, missing=requested - arrived, requested=requested)
    seen = f"{arrived} of {requested} arrived"
    return Observation("delivery receipts", seen, missing if arrived < requested else None)


def _arrived(arrivals: Sequence[Arrival]) -> Observation:
    count, announced = len(arrivals), sum(arrival.announced for arrival in arrivals)
    slowest = max(arrival.seconds for arrival in arrivals)
    late = finding(Code.MAIL_ANNOUNCED_LATE, announced=announced, messages=count, wait_s=FIRST_POLL_S)
    seen = f"{count} arrived within {slowest:.2f} s, {announced} of them announced"
    return Observation("to a user", seen, late if announced < count else None)


async def _list(check: Check) -> None:
    """Send a message to the smallest list, as a member; wait until all members have it, and remove it there.

    A list may leave out the sender; a run then expects no such copies.
    """
    lists = check.workload.population.lists
    if not sends_to_lists(check.workload):
        check.mail.append(Observation("to a list", "not planned"))
        return
    index = min(range(len(lists)), key=lambda each: len(lists.members(each)))
    address, members = lists.address(index), lists.members(index)
    accounts = accounts_on_server(check.workload.scenario, members)
    others = [each for each in check.accounts if each.number not in members]
    sender = accounts[0] if len(accounts) > 1 or not others else others[0]
    outgoing = check.post.compose(sender, dict.fromkeys(members, address))
    submission = probe(check.services, sender)
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
        """Return True if, this long after the others, only the sender has no copy."""
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
    reached, missing = len(times), None
    seen = f"{reached} of {len(accounts)} members got it within {max(times.values(), default=check.wait_s):.2f} s"
    if times and only_sender_lacks(0.0):
        check.post.accepted[sender.number].discard(outgoing.id)
        missing = finding(Code.SENDER_LEFT_OUT)
    elif reached < len(accounts):
        check.overdue.add(outgoing.id)
        values = {"reached": reached, "members": len(accounts), "wait_s": check.wait_s}
        missing = finding(Code.LIST_NOT_DELIVERED, address=address, **values)
    check.mail.append(Observation("to a list", seen, missing, tuple(members)))
