"""The public folder: its rights before a run, its start state, and its cleaning, each by the first account alone.

All users share the folder, so it is no part of any mailbox. The first account on the server is its keeper, which
restores, audits and cleans it once for all. Only messages with loadsim's tag are touched. If it is a newsgroup, no
articles are removed: readers cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.message_tag import INITIAL_RUN, MessageTag
from loadsim.model.ports import OF_ALL_USERS, PUBLIC, Account, Services
from loadsim.model.provisioning_ports import MessageSource, NewMessage, Provisioning, batches
from loadsim.model.terms import NNTP, POST, PUBLIC_TASKS
from loadsim.protocols.registry import IN_THE_ENGINE, open_newsgroups
from loadsim.provisioning.inspect import list_own
from loadsim.provisioning.sessions import NullObserver, accounts_on_server, all_done, name_of, no_access, visit
from loadsim.provisioning.start_state import BATCH_BYTES, BATCH_MESSAGES, StoredState, change_folder, tag_of
from loadsim.scenario.population import Population
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload

if TYPE_CHECKING:
    from loadsim.protocols.nntp.newsgroup import Newsgroup

_OBSOLETE = {"c": "kx", "d": "tex"}
"""The rights of RFC 2086, each with those of RFC 4314 that it may stand for (RFC 4314 section 2.1.1)."""


def keeper_among(scenario: Scenario, accounts: Sequence[Account]) -> Account | None:
    """Return the public folder's keeper; None if it is not among these accounts, or if there is no such folder."""
    if scenario.folders.public is None:
        return None
    group = Population(scenario).group
    keeper = next((user for user in range(1, scenario.users + 1) if group(user).protocol != IN_THE_ENGINE), None)
    return next((account for account in accounts if account.number == keeper), None)


@asynccontextmanager
async def public_folder(account: Account, mailbox: Provisioning, services: Services) -> AsyncIterator[MessageSource]:
    """Yield the public folder as an account reads it: in the mailbox, which is logged on, or in a newsgroup."""
    open_newsgroup = open_newsgroups(services)
    if open_newsgroup is None:
        yield mailbox
        return
    newsgroup = open_newsgroup(account, NullObserver())
    try:
        yield newsgroup
    finally:
        await newsgroup.close()


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

    open_newsgroup = open_newsgroups(services)

    async def work(account: Account, mailbox: Provisioning) -> None:
        where = f"{name_of(account)}: folders.public"
        if open_newsgroup is not None:
            await _check_newsgroup(open_newsgroup(account, NullObserver()), services, "i" in needed[account.number])
            return
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


async def _check_newsgroup(newsgroup: Newsgroup, services: Services, posts: bool) -> None:
    """Log on and open the newsgroup, in which the user must be allowed to post if they will."""
    where = f"{name_of(newsgroup.account)}: folders.public: expected"
    try:
        await newsgroup.log_on()
    except TaskFailed as failure:
        raise no_access(NNTP, services, newsgroup.account, failure) from None
    try:
        await newsgroup.poll()
    except TaskFailed as failure:
        raise ConfigError(f"{where} a newsgroup {newsgroup.name} that users can read, found: {failure}") from None
    finally:
        await newsgroup.close()
    if posts and not newsgroup.takes_posts:
        raise ConfigError(f"{where} a news server that lets users post, found CAPABILITIES without POST")


async def restore_public(
    account: Account, mailbox: Provisioning, services: Services, start: StoredState, from_scratch: bool
) -> tuple[int, int]:
    """Bring the public folder to its start state as its keeper. Return the numbers of messages added and removed.

    Others' mail stays, and so do flags, which may be each user's own. Raises `ConfigError` if the messages are not
    there afterwards.
    """
    if open_newsgroup := open_newsgroups(services):
        newsgroup = open_newsgroup(account, NullObserver())
        try:
            return await _complete_newsgroup(account, newsgroup, start), 0
        finally:
            await newsgroup.close()
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


async def _complete_newsgroup(account: Account, newsgroup: Newsgroup, start: StoredState) -> int:
    """Post what the newsgroup lacks of its start state. Return the number of articles.

    Articles of earlier runs stay, but not those of another start state, which users would take for theirs.
    """

    async def held() -> Counter[MessageTag]:
        own = (message.tag for message in await list_own(account, newsgroup, PUBLIC))
        return Counter(tag for tag in own if tag is not None and tag.run == INITIAL_RUN)

    before = await held()

    def lacking() -> Iterator[NewMessage]:
        return (each for each in start.messages(OF_ALL_USERS, PUBLIC) if tag_of(each.message) not in before)

    missing = sum(1 for _ in lacking())
    count = start.folders(OF_ALL_USERS)[PUBLIC]
    expected = f"{name_of(account)}: folders.public: expected {count} articles of loadsim's start state"
    advice = "articles cannot be replaced, so empty the server's spool and history, or name another domain"
    if before.total() + missing != count:
        raise ConfigError(f"{expected}, found {before.total()}, of which {count - missing} are its own; {advice}")
    try:
        await newsgroup.post_all(lacking())
    except ServerRefused as failure:
        raise ConfigError(f"{expected}, the server answered: {failure}; {advice}") from None
    if missing and (found := (await held()).total()) != count:
        raise ConfigError(f"{expected} after initialising, found {found}")
    return missing


async def count_articles(account: Account, mailbox: Provisioning, services: Services) -> int:
    """Return the number of loadsim's articles if the public folder is a newsgroup, and 0 otherwise."""
    if services.nntp is None:
        return 0
    async with public_folder(account, mailbox, services) as newsgroup:
        return len(await list_own(account, newsgroup, PUBLIC))


async def clean_public(account: Account, mailbox: Provisioning, dry_run: bool) -> int:
    """Remove loadsim's messages from the public folder as its keeper, or only count them. Return their number."""
    own = await list_own(account, mailbox, PUBLIC)
    if not dry_run:
        await mailbox.expunge([message.ref for message in own])
    return len(own)
