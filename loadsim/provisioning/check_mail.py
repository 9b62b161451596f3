"""The mail of a check: to users, to an unknown address, to a list; and the server's clock."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence

from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Account, Provisioning
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_limits import sends_to_lists
from loadsim.provisioning.check_state import POLL_S, Check, expunge, probe
from loadsim.provisioning.check_tasks import FIRST_POLL_S, Arrival
from loadsim.provisioning.findings import NO_LIST, Finding, Severity, lacking, refused_recipient
from loadsim.provisioning.sessions import DRIVER, NullObserver, accounts_on_server, all_done, visit

MOST_LISTS = 50
"""The most other lists that are named as recipients, from the first to the last."""

LARGEST_CLOCK_GAP_S = 5.0

LEFT_OUT_S = 3.0
"""The wait for the sender's own copy of a message to a list, once all other members have theirs."""

LATE_NEWS = (
    f"within {FIRST_POLL_S:g} s the server did not announce all of them to waiting users, who answer mail later then; a"
    " run of some minutes may make too little load"
)


async def check_mail(check: Check) -> None:
    """Report arrivals, then send one message to the smallest list, and look at unknown addresses and the clock."""
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


async def _unknown(check: Check) -> None:
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
        await check.post.patiently(lambda: submission.send(sender.address, [address], outgoing.message))
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
        await _other_lists(check, sender, index)
    elif times and only_sender_lacks(0.0):
        check.post.accepted[sender.number].discard(outgoing.id)
        found = f"{found} within {max(times.values()):.2f} s, all but the sender"
        check.mail.append(Finding("to a list", found, Severity.NOTE, "a run does not expect the sender's copies"))
        await _other_lists(check, sender, index)
    else:
        check.overdue.add(outgoing.id)
        missing = NO_LIST.format(recipient=address)
        advice = f"make {address} deliver to its members (or {missing})" if times else missing
        check.mail.append(Finding("to a list", f"accepted; {found}", Severity.LACKS, advice))


async def _other_lists(check: Check, sender: Account, known: int) -> None:
    """Name other lists as recipients, without a message, until one is refused for good."""
    lists = check.workload.population.lists
    others = [index for index in range(len(lists)) if index != known]
    step = max(1, (len(others) - 1) / (MOST_LISTS - 1))
    named = [others[round(at * step)] for at in range(min(len(others), MOST_LISTS))]
    for index in named:
        address = lists.address(index)
        try:
            await probe(check.services, sender).ask(sender.address, address)
        except TaskFailed as failure:
            if refused_recipient(failure):
                finding = lacking("other lists", failure, sender=sender.address, recipient=address, to_list=True)
                check.mail.append(finding)
                return
    if named:
        of = "" if len(named) == len(others) else f" of {len(others)}"
        check.mail.append(Finding("other lists", f"{len(named)}{of} named as recipients, none refused"))


async def _clock(check: Check) -> None:
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
