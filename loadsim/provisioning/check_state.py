"""Two sessions of one account: one changes mail, the other one watches; the driver holds the server against itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

from loadsim.errors import ServerRefused, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.ports import INBOX, Flag, MessageRef, Provisioning
from loadsim.model.state_checks import StateChecks
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_folders import NEWEST
from loadsim.provisioning.check_mail import Check
from loadsim.provisioning.check_tasks import FIRST_POLL_S, CheckObserver
from loadsim.provisioning.server_report import Observation, lacking
from loadsim.provisioning.sessions import preparing_driver

ROUNDS = 3

KINDS = ("ups1K", "ups2K", "ups4K")
"""Of the messages: their sizes tell a text from that of another one."""


async def try_state(check: Check) -> None:
    """Change messages of the check in the Inbox and in its folder, and list them in both sessions."""
    place, observer = check.places[0], CheckObserver()
    driver = open_driver(preparing_driver(check.services), check.services)
    acts, watches = (cast(Provisioning, driver.session(place.account, observer).mailbox) for _ in range(2))
    try:
        await acts.log_on()
        try:
            await watches.log_on()
        except TaskFailed as failure:  # users of the scenario may need one session only
            check.server.append(Observation("state", f"without a second session of one account: {failure}"))
            return
        for mailbox in (acts, watches):
            await mailbox.headers(INBOX, NEWEST)
        for _ in range(ROUNDS):
            await watches.watch()
            await _try_once(check, acts, watches, place.folder, observer)
        for mailbox in (acts, watches):
            await mailbox.log_off()
    except TaskFailed as failure:
        check.server.append(lacking("state", failure, sender=place.account.address))
    finally:
        acts.abandon()
        watches.abandon()


async def _try_once(
    check: Check, acts: Provisioning, watches: Provisioning, folder: str, observer: CheckObserver
) -> None:
    account = check.places[0].account
    outgoing = [check.post.compose(account, {account.number: account.address}, kind) for kind in KINDS]
    ids = {each.id for each in outgoing}

    async def own(mailbox: Provisioning, name: str) -> list[MessageRef]:
        headers, run = await mailbox.headers(name, NEWEST), check.host.run_id
        return [each.ref for each in headers if each.tag and each.tag.run == run and each.tag.id in ids]

    async def watch(name: str) -> None:
        with suppress(ServerRefused):  # a server may refuse what the other session has just removed (RFC 2180)
            await own(watches, name)

    # New mail.
    observer.news.clear()
    for each in outgoing:
        await acts.append(INBOX, each.message)
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_POLL_S):
            await observer.news.wait()
    await watches.arrived()
    # Read and mark it.
    refs = await own(acts, INBOX)
    for ref in refs:
        structure = await acts.structure(ref)
        if structure.text is not None:
            await acts.part(ref, structure.text)
    await acts.texts(refs)
    await acts.flag(refs, Flag.SEEN)
    await watch(INBOX)
    # Copy and move it.
    await acts.copy(refs, folder)
    await acts.move(refs[:-1], folder)
    for name in (INBOX, folder):
        await watch(name)
        await own(acts, name)
    # Unmark and remove it.
    moved = await own(acts, folder)
    await acts.flag(moved, Flag.SEEN, False)
    await watch(folder)
    await acts.expunge(moved[::2])
    for name in (folder, INBOX):
        await watch(name)
        await own(acts, name)


def state_of(checks: StateChecks, others: bool) -> Iterator[Observation]:
    """Yield what the server's responses are held to be: a finding for each broken rule.

    With `others`, people may use a mailbox of the check, and change what its sessions know: no server is accused.
    """
    if others:
        yield Observation("state", "not judged: an Inbox has others' mail")
        return
    for broken in checks.violations.values():
        yield Observation("state", broken.rule, finding(Code.SERVER_STATE_WRONG, **broken._asdict()))
    if checks.users and not checks.violations:
        yield Observation("state", "no response contradicts an earlier one")
