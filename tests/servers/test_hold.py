"""Accounts that another loadsim uses: refused by name, free after its crash, and noticed if it comes all the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from mailservers import SITES, StartEmbedded, numbered_accounts
from provisioning import USERS, Lab, MakeLab, Snapshot, lab_maker, quiet

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.model.ports import INBOX, Account, Provisioning
from loadsim.provisioning import manifest
from loadsim.provisioning.hold import held
from loadsim.provisioning.holder import Holder, identity
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.sessions import all_done, visit

OTHER = Holder("run", "elsewhere", "boot namespace pid 7 started 1", 1_760_000_000, 2_000_000_000)


@pytest.fixture(scope="module", params=SITES)
def make_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, embedded_server: StartEmbedded
) -> MakeLab:
    accounts = numbered_accounts(USERS * 12)
    if request.param == "embedded":
        server = embedded_server(accounts)
    else:
        server = request.getfixturevalue("dovecot_postfix")(accounts)
    return lab_maker(server, accounts, tmp_path_factory.mktemp("labs"))


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    """A scenario of three users with new accounts, which are initialised."""
    lab = make_lab()
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    return lab


def given_to(lab: Lab, holder: Holder) -> None:
    """Write a holder into the manifest of the first account, as its process does."""

    async def work(account: Account, mailbox: Provisioning) -> None:
        own = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
        ((found,), _) = await manifest.read(mailbox, account, own)
        await manifest.replace(mailbox, account, [found], found.names, found.record, holder)

    all_done(asyncio.run(visit(lab.accounts[:1], lab.services, work, lambda *_: None)))


def contents(lab: Lab) -> Sequence[dict[str, list[bytes]]]:
    def of(mailbox: Snapshot) -> dict[str, list[bytes]]:
        return {folder: [each.message for each in messages] for folder, messages in mailbox.items()}

    return [*map(of, lab.snapshots())]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("run", "--even-invalid", "--set", "lists.count=0"), ("init",), ("clean",), ("check", "--wait", "1")]
)
def test_accounts_in_use_are_refused(lab: Lab, command: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the other process, and when it began. Nothing is changed."""
    given_to(lab, OTHER)
    before = contents(lab)
    verb, *options = command
    assert main([verb, str(lab.path), *options]) == 2
    assert "expected that no other loadsim uses it, found loadsim run on elsewhere, which began at 2025-10-09" in (
        capsys.readouterr().err
    )
    assert contents(lab) == before


def test_a_hold_is_written_and_removed(make_lab: MakeLab) -> None:
    """A mailbox is as it was before: with its manifest, or without one."""
    lab = make_lab()

    async def hold(create: bool) -> bool:
        async with held(lab.accounts, lab.services, "run", create) as holding:
            await initialise(lab.workload, lab.services, "never" if create else "auto", quiet)
            taken = await asyncio.to_thread(lambda: b'"work": "run"' in contents(lab)[0]["LoadSim"][0])
        assert holding.lost is None
        return taken

    before = contents(lab)
    assert not asyncio.run(hold(create=False))
    started = contents(lab)
    assert started != before
    assert asyncio.run(hold(create=True))
    assert contents(lab) == started
    assert main(["clean", str(lab.path)]) == 0
    assert contents(lab) == before == [{INBOX: []}] * USERS


def test_a_hold_of_new_accounts_leaves_nothing(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def hold() -> None:
        async with held(lab.accounts, lab.services, "run"):
            assert "LoadSim" in await asyncio.to_thread(lambda: contents(lab)[0])

    asyncio.run(hold())
    assert contents(lab) == [{INBOX: []}] * USERS


def test_who_comes_all_the_same_is_noticed(lab: Lab) -> None:
    """And is left alone."""

    async def hold() -> str | None:
        async with held(lab.accounts, lab.services, "run") as holding:
            await asyncio.to_thread(given_to, lab, OTHER)
        return holding.lost

    assert "found loadsim run on elsewhere" in str(asyncio.run(hold()))
    assert b'"host": "elsewhere"' in contents(lab)[0]["LoadSim"][0]


def test_a_hold_that_is_wiped_is_noticed(lab: Lab) -> None:
    """Another loadsim, or anybody, has removed the manifest."""

    async def wipe(account: Account, mailbox: Provisioning) -> None:
        own = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
        await mailbox.expunge([each.ref for each in own])

    async def hold() -> str | None:
        async with held(lab.accounts, lab.services, "run") as holding:
            all_done(await visit(lab.accounts[:1], lab.services, wipe, lambda *_: None))
        return holding.lost

    assert asyncio.run(hold()) is not None


@pytest.mark.parametrize("crash", ["on this machine", "on another"])
def test_a_crash_does_not_block_accounts(lab: Lab, crash: str) -> None:
    """A process of this machine is known to have ended; another must renew its hold."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        alive = Holder("run", "here", identity(process.pid), 0, int(time.time()) + 1000)
        assert not (alive.ours or alive.gone)
    given_to(lab, alive if crash == "on this machine" else replace(OTHER, until_s=int(time.time()) - 1))

    async def hold() -> str | None:
        async with held(lab.accounts, lab.services, "run") as holding:
            return holding.lost

    assert asyncio.run(hold()) is None
    assert not asyncio.run(initialise(lab.workload, lab.services, "auto", quiet)).changed


def test_a_process_and_its_parent_share_a_hold() -> None:
    assert Holder.this("run").ours
    assert replace(OTHER, process=identity(os.getppid())).ours
    assert not OTHER.ours
    assert not OTHER.gone


def test_inspection_alone_refuses_another_holder(lab: Lab) -> None:
    """Accounts of two processes may overlap without the same first one."""
    given_to(lab, OTHER)
    with pytest.raises(ConfigError, match="elsewhere"):
        asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
