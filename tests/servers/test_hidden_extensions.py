"""A proxy hides extensions of Dovecot: drivers and commands have the same results without them.

One user of each driver does all that a mailbox offers, with each extension hidden.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hiding_proxy import EXTENSIONS, HidingProxy
from mailservers import StartDovecotPostfix, numbered_accounts
from provisioning import LABS, USERS, Lab, MakeLab, lab_maker, own_message, quiet

from loadsim.model.ports import DELETED_ITEMS, INBOX, SENT_ITEMS, Flag, Mailbox, Services
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.sessions import NullObserver

CASES = [*([name] for name in EXTENSIONS), list(EXTENSIONS)]
NAMES = [*EXTENSIONS, "all"]
DRIVERS = {1: "imap", 2: "aioimaplib"}

Held = list[dict[str, list[tuple[str | None, frozenset[str]]]]]
"""By account and folder: ids and flags of the messages, in their order."""


@pytest.fixture(scope="module")
def make_lab(tmp_path_factory: pytest.TempPathFactory, dovecot_postfix: StartDovecotPostfix) -> MakeLab:
    """Makes scenarios with accounts that nobody used before."""
    accounts = numbered_accounts(USERS * LABS)
    return lab_maker(dovecot_postfix(accounts), accounts, tmp_path_factory.mktemp("labs"))


def held(lab: Lab) -> Held:
    """Read the accounts by imaplib."""
    return [
        {folder: [(each.id, each.flags) for each in messages] for folder, messages in mailbox.items()}
        for mailbox in lab.snapshots()
    ]


async def use_mailbox(mailbox: Mailbox) -> None:
    """Read, mark, move, copy, store, wait for mail and expunge."""
    await mailbox.log_on()
    try:
        assert {INBOX, SENT_ITEMS, DELETED_ITEMS} <= {*await mailbox.folders()}
        refs = [header.ref for header in await mailbox.headers(INBOX, None)]
        assert len(refs) == 4
        structure = await mailbox.structure(refs[0])
        assert structure.text is not None
        assert await mailbox.part(refs[0], structure.text)
        await mailbox.flag(refs[:3], Flag.SEEN)
        await mailbox.flag(refs[1:2], Flag.SEEN, on=False)
        await mailbox.copy(refs[1:3], "Folder 01")
        await mailbox.move(refs[:1], "Folder 02")
        await mailbox.move(refs[2:], DELETED_ITEMS)
        await mailbox.append(SENT_ITEMS, own_message(1), (Flag.SEEN,))
        await mailbox.append(SENT_ITEMS, own_message(2))
        await mailbox.watch()
        await mailbox.append(INBOX, own_message(3))
        await mailbox.open(INBOX)
        assert len(await mailbox.headers(INBOX, None)) == 2
        await mailbox.watch()
        deleted = [header.ref for header in await mailbox.headers(DELETED_ITEMS, None)]
        assert len(deleted) == 3
        await mailbox.expunge(deleted[:2])
        await mailbox.watch()
        assert len(await mailbox.headers(INBOX, 1)) == 1
        await mailbox.log_off()
    finally:
        mailbox.abandon()


async def held_after_each_step(lab: Lab, services: Services) -> list[Held]:
    """Initialise, use one mailbox by each driver, initialise again, and clean."""
    found = []
    await initialise(lab.workload, services, "auto", quiet)
    found.append(held(lab))
    for user, driver in DRIVERS.items():
        await use_mailbox(open_driver(driver, services).session(lab.scenario.account(user), NullObserver()).mailbox)
    found.append(held(lab))
    await initialise(lab.workload, services, "auto", quiet)
    found.append(held(lab))
    assert (await initialise(lab.workload, services, "auto", quiet)).changed == 0
    await clean(lab.scenario, services, False, quiet)
    return [*found, held(lab)]


@pytest.fixture(scope="module")
def expected(make_lab: MakeLab) -> list[Held]:
    """The states on Dovecot itself."""
    lab = make_lab()
    return asyncio.run(held_after_each_step(lab, lab.services))


@pytest.mark.nightly(part="drivers")
@pytest.mark.parametrize("hidden", CASES, ids=NAMES)
def test_the_same_mailboxes(hidden: list[str], make_lab: MakeLab, expected: list[Held]) -> None:
    """The folders hold the same messages in the same order, with the same flags; no hidden command is sent."""
    lab = make_lab()
    proxy = HidingProxy(lab.services, hidden)
    with proxy.running() as services:
        assert asyncio.run(held_after_each_step(lab, services)) == expected
    assert proxy.refused == []
    initialised, used, restored, cleaned = expected
    by_imap, by_aioimaplib = ({name: [flags for _, flags in each] for name, each in used[at].items()} for at in (0, 1))
    assert by_imap == by_aioimaplib
    assert all(used[at] != initialised[at] for at in (0, 1))
    assert restored == initialised
    assert cleaned == [{INBOX: []}] * USERS


@pytest.mark.nightly(part="drivers")
@pytest.mark.parametrize("hidden", [[], ["LIST-STATUS"], ["CONDSTORE"], list(EXTENSIONS)], ids="-".join)
def test_unchanged_mailboxes_cost_one_status_a_folder(hidden: list[str], make_lab: MakeLab) -> None:
    """Nothing is listed but the manifest, and the Inbox of a server without modification sequences."""
    lab = make_lab()
    proxy = HidingProxy(lab.services, hidden)
    with proxy.running() as services:
        asyncio.run(initialise(lab.workload, services, "auto", quiet))
        proxy.passed.clear()
        assert asyncio.run(initialise(lab.workload, services, "auto", quiet)).changed == 0
    sent = Counter(command.removeprefix(b"UID ").partition(b" ")[0].decode() for command in proxy.passed)
    folders = {(user, folder) for user, each in enumerate(lab.snapshots()) for folder in each}
    manifests, inboxes = USERS, USERS if "CONDSTORE" in hidden else 0
    assert sent["STATUS"] <= (len(folders) if "LIST-STATUS" in hidden else 0)
    assert sent["SELECT"] + sent["EXAMINE"] == manifests + inboxes
    assert sent["FETCH"] <= 2 * manifests + inboxes
    assert not sent.keys() & {"APPEND", "STORE", "EXPUNGE", "CREATE", "DELETE", "COPY", "MOVE"}
