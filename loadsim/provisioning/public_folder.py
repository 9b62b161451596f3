"""The public folder: its rights before a run, its start state, and its cleaning, each by the first account alone.

All users share the folder, so it is no part of any mailbox. The first account on the server is its keeper, which
restores, audits and cleans it once for all. Only messages with loadsim's tag are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadsim.errors import ConfigError, ServerRefused
from loadsim.model.ports import OF_ALL_USERS, PUBLIC, Account, Services
from loadsim.model.provisioning_ports import Provisioning, batches
from loadsim.model.terms import POST, PUBLIC_TASKS
from loadsim.protocols.registry import IN_THE_ENGINE
from loadsim.provisioning.inspect import list_own
from loadsim.provisioning.sessions import accounts_on_server, all_done, name_of, visit
from loadsim.provisioning.start_state import BATCH_BYTES, BATCH_MESSAGES, StoredState, change_folder
from loadsim.scenario.population import Population
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload

_OBSOLETE = {"c": "kx", "d": "tex"}
"""The rights of RFC 2086, each with those of RFC 4314 that it may stand for (RFC 4314 section 2.1.1)."""


def keeper_among(scenario: Scenario, accounts: Sequence[Account]) -> Account | None:
    """Return the public folder's keeper; None if it is not among these accounts, or if there is no such folder."""
    if scenario.folders.public is None:
        return None
    group = Population(scenario).group
    keeper = next((user for user in range(1, scenario.users + 1) if group(user).protocol != IN_THE_ENGINE), None)
    return next((account for account in accounts if account.number == keeper), None)


async def check_public_folder(workload: Workload, services: Services, users: Iterable[int] | None = None) -> None:
    """Open the public folder as its keeper, and as the first of these users (None: all) in each group that uses it.

    If the server tells rights, they must suffice. Raises `ConfigError` with one line otherwise.
    """
    scenario = workload.scenario
    if scenario.folders.public is None:
        return
    # Find whom to ask, and the rights that they need.
    accounts = accounts_on_server(scenario, users)
    needed: dict[int, str] = {}
    if keeper := keeper_among(scenario, accounts):
        adds = "i" if scenario.mailbox.public else ""
        needed[keeper.number] = "r" if scenario.initialise == "never" else f"r{adds}te"
    groups = set[int]()
    for account in accounts:
        group = workload.population.group(account.number)
        planned = group.planned_tasks & {*PUBLIC_TASKS} if id(group) not in groups else ()
        groups.add(id(group))
        if planned:
            own = needed.get(account.number, "r")
            needed[account.number] = own + ("i" if POST in planned and "i" not in own else "")

    async def work(account: Account, mailbox: Provisioning) -> None:
        where = f"{name_of(account)}: folders.public"
        try:
            await mailbox.open(PUBLIC)
            rights = await mailbox.rights(PUBLIC)
        except ServerRefused as failure:
            expected = "expected a folder below the server's shared namespace that users can open"
            raise ConfigError(f"{where}: {expected}, found: {failure}") from None
        if rights is None:
            return
        granted = {*rights, *(new for old, news in _OBSOLETE.items() if old in rights for new in news)}
        if lacks := "".join(right for right in needed[account.number] if right not in granted):
            expected = f"expected the rights {needed[account.number]} (RFC 4314) in {mailbox.name_on_server(PUBLIC)}"
            raise ConfigError(f"{where}: {expected}, found {rights or 'none'}, without {lacks}")

    asked = [account for account in accounts if account.number in needed]
    all_done(await visit(asked, services, work, lambda *_: None))


async def restore_public(
    account: Account, mailbox: Provisioning, start: StoredState, from_scratch: bool
) -> tuple[int, int]:
    """Bring the public folder to its start state as its keeper. Return the numbers of messages added and removed.

    Others' mail stays, and so do flags, which may be each user's own. Raises `ConfigError` if the messages are not
    there afterwards.
    """
    count = start.folders(OF_ALL_USERS)[PUBLIC]
    own = await list_own(account, mailbox, PUBLIC)
    change = await change_folder(own, start.messages(OF_ALL_USERS, PUBLIC), count, from_scratch)
    await mailbox.expunge(change.remove)
    for batch in batches(start.messages(OF_ALL_USERS, PUBLIC, change.kept), BATCH_MESSAGES, BATCH_BYTES):
        await mailbox.append_many(PUBLIC, batch)
    if change and (found := len(await list_own(account, mailbox, PUBLIC))) != count:
        expected = f"expected {count} messages of loadsim after initialising, found {found}"
        raise ConfigError(f"{name_of(account)}: folders.public: {expected}")
    return change.missing, len(change.remove)


async def clean_public(account: Account, mailbox: Provisioning, dry_run: bool) -> int:
    """Remove loadsim's messages from the public folder as its keeper, or only count them. Return their number."""
    own = await list_own(account, mailbox, PUBLIC)
    if not dry_run:
        await mailbox.expunge([message.ref for message in own])
    return len(own)
