"""A proxy hides extensions of Dovecot: drivers and commands have the same results without them.

One user of each driver does all that a mailbox offers, and whole runs are made, with each extension hidden.
"""

from __future__ import annotations

import asyncio
import imaplib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from agreement import differences, mailboxes_by_log
from any_server import Site, started
from hiding_proxy import EXTENSIONS, HidingProxy
from mailservers import StartDovecotPostfix, logged_on, numbered_accounts
from patience import PATIENCE_S
from provisioning import LABS, USERS, Lab, MakeLab, lab_maker, own_message, put, quiet
from splitting_proxy import SplittingProxy
from whole_mailboxes import Mailbox as ReadMailbox
from whole_mailboxes import contents, ids_of

from loadsim.model.ports import DELETED_ITEMS, INBOX, SENT_ITEMS, Flag, Mailbox, Services
from loadsim.model.workload import Workload
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.sessions import NullObserver
from loadsim.timinglog.merge import read_logs

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
def test_the_same_mailboxes_from_pieces(make_lab: MakeLab, expected: list[Held]) -> None:
    """As above, from a server that sends each item of a message in a response of its own."""
    lab = make_lab()
    proxy = SplittingProxy(lab.services)
    with proxy.running() as services:
        assert asyncio.run(held_after_each_step(lab, services)) == expected
    assert proxy.split > 0


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


@pytest.mark.nightly(part="drivers")
def test_the_proxy_hides(make_lab: MakeLab) -> None:
    """No hidden capability is offered, and each hidden command and literal is refused."""
    lab = make_lab()
    proxy = HidingProxy(lab.services, EXTENSIONS)
    commands = ("IDLE", "NAMESPACE", "UNSELECT", "UID MOVE 1 INBOX", "UID EXPUNGE 1", "STATUS INBOX (HIGHESTMODSEQ)")
    lists = ('LIST "" * RETURN (SPECIAL-USE)', 'LIST "" * RETURN (STATUS (MESSAGES))')
    account = lab.accounts[0]
    with logged_on(lab.server, account) as client:
        not_hidden = {*client.capability()[1][0].decode().split()}
    with (
        proxy.running() as services,
        imaplib.IMAP4(services.imap.host, services.imap.port, timeout=PATIENCE_S) as client,
    ):
        client.login(account.login, account.password)
        assert "IMAP4REV1" in client.capabilities
        assert not_hidden >= EXTENSIONS.keys() - {"SPECIAL-USE"}  # this Dovecot has none; James has
        offered = {name for each in EXTENSIONS.values() for name in each.capabilities}
        assert not {each.encode() for each in client.capabilities} & offered
        put(client, INBOX, own_message(1))
        client.select(INBOX)
        for command in (*commands, *lists, "APPEND INBOX {3+}\r\nabc", "APPEND INBOX {1}\r\na {1}\r\nb"):
            client.send(b"T1 " + command.encode() + b"\r\n")
            while (line := client.readline()).startswith((b"+", b"* ")):
                pass
            assert line == b"T1 BAD unknown command\r\n"
        client.send(b"T2 UID COPY 1 INBOX\r\n")
        while not (line := client.readline()).startswith(b"T2 "):
            pass
        assert line.startswith(b"T2 OK Copy completed")
    assert len(proxy.refused) == len(commands) + len(lists) + 2


class States(NamedTuple):
    """The messages after each command but the run, in their order."""

    initialised: list[Mapping[str, object]]
    restored: list[Mapping[str, object]]
    cleaned: list[ReadMailbox]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Dovecot with new accounts, which each case leaves as it found them."""
    with started("dovecot-maildir", tmp_path_factory.mktemp("site"), users=2, day_s=6) as site:
        yield site


@pytest.fixture(scope="module")
def wanted(site: Site, tmp_path_factory: pytest.TempPathFactory) -> States:
    """The states on Dovecot itself."""
    return states(site, site, tmp_path_factory.mktemp("wanted"))


def states(site: Site, there: Site, directory: Path) -> States:
    """Run the four commands `there`, and read the mailboxes directly after each.

    No task may fail, and the mailboxes must hold what the log says. Runs differ: users react to what has arrived.
    """
    there.command("init")
    initialised = site.mailboxes()
    assert "nothing to do" in there.command("init")
    there.command("run", "--no-report", "--out", directory / "out")
    score = json.loads((directory / "out" / "score.json").read_text())
    assert {each["task"]: each["failed"] for each in score["tasks"] if each["failed"]} == {}
    ran = {user: ids_of(mailbox) for user, mailbox in enumerate(site.mailboxes(), start=1)}
    assert differences(mailboxes_by_log(Workload(there.scenario), read_logs([directory / "out"])), ran) == []
    there.command("init")
    restored = site.mailboxes()
    there.command("clean")
    return States([*map(contents, initialised)], [*map(contents, restored)], site.mailboxes())


@pytest.mark.nightly(part="drivers")
@pytest.mark.parametrize("hidden", CASES, ids=NAMES)
def test_the_same_commands(hidden: list[str], site: Site, wanted: States, tmp_path: Path) -> None:
    """After init and clean, all messages are the same, with their dates; after a run, they are as its log says.

    No task fails, and no hidden command is sent.
    """
    proxy = HidingProxy(site.services, hidden)
    with proxy.running() as services:
        found = states(site, site.through(services, tmp_path / "scenario.yaml"), tmp_path)
    assert proxy.refused == []
    assert found == wanted
    assert found.initialised == found.restored


@pytest.mark.nightly(part="drivers")
def test_the_same_commands_from_pieces(site: Site, wanted: States, tmp_path: Path) -> None:
    """Check, init, a run and clean through a server that sends each item of a message in a response of its own."""
    proxy = SplittingProxy(site.services)
    with proxy.running() as services:
        there = site.through(services, tmp_path / "scenario.yaml")
        there.command("check")
        assert states(site, there, tmp_path) == wanted
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    assert (score["delivery"]["undelivered_at_end"], score["delivery"]["duplicates"]) == (0, 0)
    assert score["delivery"]["delivered"] > 0
    assert proxy.split > 0


@pytest.mark.nightly(part="servers")
def test_the_same_commands_without_special_uses(tmp_path: Path) -> None:
    """James has folders for sent and deleted mail. Without SPECIAL-USE, loadsim's own have the same messages."""
    with started("james", tmp_path, users=2, day_s=6) as site:
        shown = states(site, site, tmp_path / "shown")
        proxy = HidingProxy(site.services, ["SPECIAL-USE"])
        plain = site._replace(kind=site.kind._replace(names={}))
        with proxy.running() as services:
            hidden = states(plain, plain.through(services, tmp_path / "scenario.yaml"), tmp_path / "hidden")
    assert proxy.refused == []
    for with_uses, without in zip(
        shown.initialised + shown.restored, hidden.initialised + hidden.restored, strict=True
    ):
        assert without_empty(with_uses) == without_empty(without)
        assert {"Sent", "Trash"} & with_uses.keys() == set()
        assert {"Sent", "Trash", SENT_ITEMS, DELETED_ITEMS} <= without.keys()
    assert all(not without_empty(each) and {"Sent", "Trash"} <= each.keys() for each in hidden.cleaned)
    assert not any(SENT_ITEMS in each or DELETED_ITEMS in each for each in hidden.cleaned)


def without_empty(mailbox: Mapping[str, object]) -> dict[str, object]:
    """Return the folders that hold messages."""
    return {folder: messages for folder, messages in mailbox.items() if messages}
