"""Accounts that another loadsim uses or prepared: refused by name, free after a crash, and noticed if it comes."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from lying_proxy import lying_proxy
from mailservers import logged_on
from provisioning import USERS, WANTED_FOLDERS, Lab, MakeLab, Snapshot, Wrapped, own_message, quiet, quoted, with_steps

from loadsim.cli import main
from loadsim.model.ports import INBOX, Account, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.provisioning import manifest
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.holder import Holder, identity
from loadsim.provisioning.initialise import initialise, restore_mailbox
from loadsim.provisioning.sessions import all_done, visit
from loadsim.provisioning.start_state import StoredState

OTHER = Holder("run", "elsewhere", "boot namespace pid 7 started 1", 1_760_000_000, 2_000_000_000)


@pytest.fixture
def lab(lab: Lab) -> Lab:
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    return lab


def given_to(lab: Lab, holder: Holder) -> None:
    """Write a holder into the manifest of the first account, as its process does."""

    async def work(account: Account, mailbox: Provisioning) -> None:
        own = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
        ((found,), _) = await manifest.read(mailbox, account, own)
        await manifest.replace(mailbox, account, [found], found.body.names, found.body.record, holder)

    all_done(asyncio.run(visit(lab.accounts[:1], lab.services, work, lambda *_: None)))


def contents(lab: Lab) -> Sequence[dict[str, list[bytes]]]:
    def of(mailbox: Snapshot) -> dict[str, list[bytes]]:
        return {folder: [each.message for each in messages] for folder, messages in mailbox.items()}

    return [*map(of, lab.snapshots())]


def scenario_of(lab: Lab, accounts: Sequence[Account]) -> tuple[str, ...]:
    """Return the options of a scenario with these accounts."""
    table = lab.path.parent / f"{accounts[0].login}.csv"
    table.write_text("\n".join(["user,password", *(f"{each.login},{each.password}" for each in accounts)]))
    return ("--set", f"accounts.csv={table}", "--set", f"topology.0.users={len(accounts)}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("run", "--even-invalid", "--set", "lists.count=0"), ("init",), ("clean",), ("check", "--wait", "1")]
)
def test_accounts_held_by_another_run_are_refused(
    lab: Lab, command: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the first account of the others, or their process and its start. Nothing is changed."""
    verb, *options = command
    for holder, accounts, found in (
        (
            None,
            lab.accounts[1:],
            f"belongs to the accounts that begin with {lab.accounts[0].address}: run `loadsim clean`",
        ),
        (OTHER, lab.accounts, "expected no other loadsim at work there, found loadsim run on elsewhere, started at"),
    ):
        if holder:
            given_to(lab, holder)
        before = contents(lab)
        assert main([verb, str(lab.path), *options, *scenario_of(lab, accounts)]) == 2
        assert found in capsys.readouterr().err
        assert contents(lab) == before


def test_no_account_changes_before_all_are_known_to_be_free(lab: Lab, make_lab: MakeLab) -> None:
    """No account is changed before all are known to be free; they are after `clean`. The hold leaves nothing."""
    free = make_lab()
    command = [str(lab.path), *scenario_of(lab, [free.accounts[0], *lab.accounts[:2]])]
    before = contents(lab)
    for verb in ("init", "clean"):
        assert main([verb, *command]) == 2
        assert contents(lab) == before
        assert contents(free) == [{INBOX: []}] * USERS
    assert main(["clean", str(lab.path)]) == 0
    assert main(["init", *command]) == 0
    assert main(["clean", *command]) == 0


def test_a_scenario_may_change_its_number_of_users(make_lab: MakeLab) -> None:
    lab = make_lab()
    for total, users in ((3, [3]), (3, [1, 2]), (2, None), (3, None)):
        workload = lab.with_settings(f"topology.0.users={total}").workload
        asyncio.run(initialise(workload, lab.services, "auto", quiet, users))


def test_mailboxes_without_loadsims_folders_are_held_too(make_lab: MakeLab) -> None:
    lab = make_lab()
    with logged_on(lab.server, lab.accounts[1]) as client:
        for folder in sorted(WANTED_FOLDERS - {INBOX}):
            client.create(quoted(folder))
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    assert main(["init", str(lab.path), *scenario_of(lab, lab.accounts[1:2])]) == 2


def test_the_first_stored_manifest_decides_a_concurrent_preparation(make_lab: MakeLab) -> None:
    """The manifest that is stored first decides."""
    lab = make_lab()

    class Overtaken(Wrapped):
        async def create(self, folder: str) -> None:
            await self._mailbox.create(folder)
            if folder == manifest.FOLDER:
                others = replace(lab.accounts[0], first_address="first@example.test")
                lab.put(1, folder, manifest.compose(others, [])[1])

    async def work(account: Account, mailbox: Any) -> None:
        with pytest.raises(manifest.AccountTaken, match="begin with first@"):
            await restore_mailbox(account, Overtaken(mailbox), StoredState(lab.workload), from_scratch=False)

    assert asyncio.run(with_steps(lab, lab.accounts[0], 1000, work))


def test_a_hold_is_written_and_removed(make_lab: MakeLab) -> None:
    """A mailbox is as it was before: without a manifest, or with one, in which the last holder stays named."""
    lab = make_lab()

    async def hold(create: bool) -> bool:
        async with held(lab.accounts, lab.services, "run", create=create) as holding:
            await initialise(lab.workload, lab.services, "never" if create else "auto", quiet)
            holding.used = create
            taken = await asyncio.to_thread(lambda: b'"work": "run"' in contents(lab)[0]["LoadSim"][0])
        assert holding.lost is None
        return taken

    before = contents(lab)
    assert not asyncio.run(hold(create=False))
    (started,) = contents(lab)[0]["LoadSim"]
    assert asyncio.run(hold(create=True))
    (released,) = contents(lab)[0]["LoadSim"]
    assert b"holder" not in started
    assert b'"until_s": 0' in released
    assert main(["clean", str(lab.path)]) == 0
    assert contents(lab) == before == [{INBOX: []}] * USERS


@pytest.mark.parametrize("later", ["run", "init", "clean"])
def test_an_audit_comes_before_any_other_use(lab: Lab, later: str) -> None:
    """An audit of the run that used the accounts last may hold them, also once more, and also if that run crashed."""

    async def use(work: str, run: str = "", *, after: bool = False) -> None:
        async with held(lab.accounts, lab.services, work, run, after=after) as hold:
            hold.used = True

    asyncio.run(use("run", "run-1"))
    for _ in range(2):
        asyncio.run(use("audit", "run-1", after=True))
    given_to(lab, replace(OTHER, until_s=1, run="run-1"))
    asyncio.run(use("audit", "run-1", after=True))
    if later == "run":
        asyncio.run(use("run", "run-2"))
    else:
        assert main([later, str(lab.path), "--set", "initialise=always"]) == 0
    with pytest.raises(manifest.AccountTaken, match="expected run run-1 to be its last user"):
        asyncio.run(use("audit", "run-1", after=True))


def test_a_refused_run_keeps_the_audit_of_the_previous_run(lab: Lab) -> None:
    """So does an `init` that finds nothing to change: the manifest is as it was."""
    given_to(lab, replace(OTHER, until_s=1, run="run-1"))
    before = contents(lab)
    assert main(["init", str(lab.path)]) == 0
    assert contents(lab) == before
    lab.put(2, INBOX, own_message(1).replace(b"X-LoadSim", b"X-Other"))
    assert main(["run", "--even-invalid", str(lab.path), "--set", "lists.count=0"]) == 2
    assert contents(lab)[0] == before[0]


def test_a_run_on_mailboxes_without_loadsims_folders_stays_recorded(make_lab: MakeLab) -> None:
    """With `initialise: never`, there is no manifest but that of the hold. What changes nothing leaves none."""
    lab = make_lab()

    async def use(work: str, run: str = "", *, after: bool = False) -> None:
        async with held(lab.accounts, lab.services, work, run, after=after) as hold:
            hold.used |= run.startswith("run")

    before = contents(lab)
    asyncio.run(use("init"))
    asyncio.run(use("run", "refused"))
    assert contents(lab) == before
    asyncio.run(use("run", "run-1"))
    asyncio.run(use("audit", "run-1", after=True))
    asyncio.run(use("run", "run-2"))
    with pytest.raises(manifest.AccountTaken):
        asyncio.run(use("audit", "run-1", after=True))
    assert main(["clean", str(lab.path)]) == 0
    assert contents(lab) == before


def test_an_overwritten_hold_is_noticed(lab: Lab) -> None:
    async def hold() -> str | None:
        async with held(lab.accounts, lab.services, "run") as holding:
            await asyncio.to_thread(given_to, lab, OTHER)
        return holding.lost

    assert "found loadsim run on elsewhere" in str(asyncio.run(hold()))
    assert b'"host": "elsewhere"' in contents(lab)[0]["LoadSim"][0]


def test_a_removed_hold_is_noticed(lab: Lab) -> None:
    """Another loadsim, or anybody, has removed the manifest with its folder."""

    async def wipe(account: Account, mailbox: Provisioning) -> None:
        await mailbox.delete(manifest.FOLDER)

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


def test_a_hold_belongs_to_one_process() -> None:
    assert Holder.this("run").ours
    assert not replace(OTHER, process=identity(os.getppid())).ours
    assert not OTHER.ours
    assert not OTHER.gone


@pytest.mark.parametrize("used", [False, True])
def test_a_refused_release_keeps_the_accounts_last_work(lab: Lab, used: bool) -> None:
    """So an audit that has read everything stands."""
    refuses: list[bytes] = []

    def answer(command: bytes) -> bytes | None:
        tag, _, rest = command.partition(b" ")
        return tag + b" NO Not now.\r\n" if rest.startswith(tuple(refuses)) else None

    async def work(services: Services) -> Hold:
        async with held(lab.accounts, services, "audit", "r1") as hold:
            hold.used = used
            refuses.extend((b"UID STORE", b"APPEND"))
        return hold

    with lying_proxy(lab.services.imap.port, answer) as port:
        hold = asyncio.run(work(replace(lab.services, imap=replace(lab.services.imap, port=port))))
    assert (hold.lost, hold.failure) == (None, None)
