"""State checks of the driver jmap on the JMAP peer: each of the peer's faults is found, and its ways are no fault.

The start state, too, is left alone on a server with such ways.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from jmap_dialects import SWITCHES
from mailservers import numbered_accounts, start_jmap_peer

from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import DELETED_ITEMS, INBOX, Flag, Services
from loadsim.model.provisioning_ports import ConditionalSets, NewMessage, Provisioning
from loadsim.model.state_checks import StateChecks
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import NullObserver
from loadsim.provisioning.start_state import change_folder

(ACCOUNT,) = numbered_accounts(1)

FAULTS = [
    ("keeps_state", {"state-unchanged"}),
    ("changes_omit", {"changes-incomplete"}),
    ("changes_invent", {"listed-not-found"}),
    ("listed_not_found", {"listed-not-found"}),
    ("ignores_if_in_state", {"if-in-state-ignored"}),
    ("moved_is_created", {"changes-invented"}),
]


def message(number: int, late_us: int = 0) -> bytes:
    body = b"body %d\r\n" % number
    tag = MessageTag("run-1", 1, f"n1.{number}", "text-1k", 1_700_000_000_000_000 + late_us, body_digest(body))
    head = f"From: {ACCOUNT.address}\r\nMessage-ID: <n1.{number}.run-1@example.test>\r\nX-LoadSim: {tag.header()}\r\n"
    return head.encode() + b"\r\n" + body


async def work(services: Services) -> None:
    """Two sessions of a user change and list the same mail, one after the other."""
    driver = open_driver("jmap", services)
    acts, watches = (cast(Provisioning, driver.session(ACCOUNT, NullObserver()).mailbox) for _ in range(2))
    for mailbox in (acts, watches):
        await mailbox.log_on()
        if DELETED_ITEMS not in await mailbox.folders():
            await mailbox.create(DELETED_ITEMS)
        await mailbox.headers(INBOX, 50)
    for number in range(3):
        await acts.append(INBOX, message(number))
    await watches.arrived()
    refs = [header.ref for header in await acts.headers(INBOX, 50)]
    await watches.headers(INBOX, 50)
    await acts.flag(refs, Flag.SEEN)
    await watches.headers(INBOX, 50)
    await watches.arrived()
    await acts.headers(INBOX, 50)
    await acts.copy(refs[:1], DELETED_ITEMS)
    await acts.move(refs[1:], DELETED_ITEMS)
    for mailbox in (watches, acts):
        await mailbox.arrived()
        await mailbox.headers(DELETED_ITEMS, 50)
    await acts.expunge([header.ref for header in await acts.headers(DELETED_ITEMS, None)][1:])
    await watches.arrived()
    await cast(ConditionalSets, acts).try_if_in_state(refs[0])
    for mailbox in (acts, watches):
        await mailbox.log_off()


def broken_rules(*settings: str) -> set[str]:
    checks = StateChecks(1.0)
    with start_jmap_peer([ACCOUNT], *settings, state_checks=checks) as services:
        asyncio.run(work(services))
    return {*checks.violations}


@pytest.mark.slow
@pytest.mark.parametrize("ways", ["plain", "cyrus", "cyrus-3.6"])
def test_a_server_that_keeps_the_rules_is_not_blamed(ways: str) -> None:
    assert broken_rules(*SWITCHES[ways]) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "rules"), FAULTS)
def test_each_fault_of_a_server_is_found(fault: str, rules: set[str]) -> None:
    assert broken_rules(f"{fault}=true") == rules


@pytest.mark.slow
def test_a_start_state_with_several_messages_a_second_is_left_alone() -> None:
    """Cyrus lists those in any order; preparation compares orders, and would store them again each time."""
    wanted = [NewMessage(message(number, late_us=400_000 * number), ()) for number in range(12)]

    async def prepare() -> bool:
        mailbox = cast(Provisioning, open_driver("jmap", services).session(ACCOUNT, NullObserver()).mailbox)
        await mailbox.log_on()
        await mailbox.append_many(INBOX, wanted)
        change = await change_folder((await mailbox.listing([INBOX]))[INBOX], wanted, len(wanted))
        await mailbox.log_off()
        return bool(change)

    with start_jmap_peer([ACCOUNT], *SWITCHES["cyrus"]) as services:
        assert not asyncio.run(prepare())
