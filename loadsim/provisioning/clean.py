"""Remove loadsim's messages and folders from a scenario's accounts, and nothing else.

Messages with loadsim's tag are removed, also from the public folder, and delivery reports that return such messages.
Then the folders that the account's manifest names are deleted if they are empty. Other people's messages are not
touched, and neither is a folder that holds any. Events are removed in the same way, by their UIDs, with invitations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.calendar_event import EVENTS
from loadsim.model.ports import PUBLIC, Account, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.provisioning import manifest
from loadsim.provisioning.calendars import clean_calendars, with_calendars
from loadsim.provisioning.hold import held
from loadsim.provisioning.initialise import INSPECT, delete_empty
from loadsim.provisioning.inspect import FolderState, MailboxState, inspect_mailbox, list_own
from loadsim.provisioning.public_folder import clean_public, count_articles, keeper_among
from loadsim.provisioning.sessions import Progress, accounts_on_server, all_done, visit
from loadsim.scenario.mailboxes import deepest_first
from loadsim.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Messages and folders removed from one account (or to be removed), and the foreign mail that stays, by folder.

    The manifest also counts as a message, and its folder as a folder. `articles` are loadsim's in the newsgroup, which
    stay. `failure` is the error that ended the visit early, or "".
    """

    account: Account
    messages: dict[str, int]
    folders: tuple[str, ...]
    foreign: dict[str, int]
    failure: str = ""
    articles: int = 0

    def __bool__(self) -> bool:
        return bool(self.messages or self.folders)


async def clean(scenario: Scenario, services: Services, dry_run: bool, progress: Progress) -> list[Cleaned]:
    """Clean every account of the scenario; with `dry_run`, change nothing. Return one result per account.

    A visit that fails is recorded as its account's `failure`; the others continue. Raises `ConfigError` if all fail,
    and as `with_calendars` does.
    """

    async def work(account: Account, mailbox: Provisioning) -> Cleaned:
        cleaned = await clean_mailbox(account, mailbox, dry_run)
        if account != keeper:
            return cleaned
        if services.nntp is not None:
            return replace(cleaned, articles=await count_articles(account, mailbox, services))
        posts = await clean_public(account, mailbox, dry_run)
        return replace(cleaned, messages=cleaned.messages | ({PUBLIC: posts} if posts else {}))

    accounts = accounts_on_server(scenario)
    keeper = keeper_among(scenario, accounts)
    with_events = with_calendars(scenario, accounts)
    async with held([] if dry_run else accounts, services, "clean", create=False) as hold:
        step = INSPECT if dry_run else "clean"
        results = await visit(accounts, services, work, partial(hold.noting(progress), step))
        events = await clean_calendars(with_events, services, dry_run)
    of_user = {account.number: removed for account, removed in zip(with_events, events, strict=True)}
    results = [
        _with_events(result, of_user.get(account.number, 0)) for account, result in zip(accounts, results, strict=True)
    ]
    if all(isinstance(result, ConfigError) for result in results):
        all_done(results)
    return [
        Cleaned(account, {}, (), {}, failure=str(result)) if isinstance(result, ConfigError) else result
        for account, result in zip(accounts, results, strict=True)
    ]


def _with_events(cleaned: Cleaned | ConfigError, events: int | ConfigError) -> Cleaned | ConfigError:
    """Add the events that were removed, or the failure to remove them."""
    if isinstance(cleaned, ConfigError) or not events:
        return cleaned
    if isinstance(events, ConfigError):
        return replace(cleaned, failure=str(events))
    return replace(cleaned, messages=cleaned.messages | {EVENTS: events})


async def clean_mailbox(account: Account, mailbox: Provisioning, dry_run: bool) -> Cleaned:
    """Clean one mailbox, which must be logged on. The manifest goes last: after an interruption, a second run needs it.

    Folders that loadsim created are not listed if unchanged since their state was recorded. Those that hold only our
    messages are deleted with them.
    """
    state = await inspect_mailbox(account, mailbox, trusted=lambda record: True)
    messages = {name: folder.ours for name, folder in state.folders.items() if folder.ours}
    deletable = _deletable(state)
    if dry_run:
        return Cleaned(account, messages, deletable, state.foreign)
    deleted = []
    for name, folder in state.folders.items():
        if name not in deletable and name != manifest.FOLDER:
            await _expunge_own(account, mailbox, name, folder)
    for name in deletable:  # folders within others come first
        if name == manifest.FOLDER:
            continue
        if await _delete_unchanged(mailbox, name, state):
            deleted.append(name)
            continue
        await _expunge_own(account, mailbox, name, state.folders[name])
        if await delete_empty(mailbox, name):
            deleted.append(name)
    if await _remove_manifest(mailbox, state):
        deleted.append(manifest.FOLDER)
    gone = tuple(name for name in deletable if name in deleted)
    return Cleaned(account, messages, gone, state.foreign)


async def _expunge_own(account: Account, mailbox: Provisioning, name: str, folder: FolderState) -> None:
    own = folder.own if folder.recorded is None else await list_own(account, mailbox, name)
    if own:
        await mailbox.expunge([message.ref for message in own])


async def _delete_unchanged(mailbox: Provisioning, folder: str, state: MailboxState) -> bool:
    """Delete a folder of ours if STATUS, sent just before, still answers as it did before the inspection."""
    before = state.status[folder]
    if before is None or before.messages != state.folders[folder].ours or await mailbox.folder_status(folder) != before:
        return False
    await mailbox.delete(folder)
    return True


def _deletable(state: MailboxState) -> tuple[str, ...]:
    """Return the folders that loadsim created and that hold no foreign messages; the manifest's folder comes last.

    If that folder has no manifest, an interrupted `clean` left it.
    """
    ours = [name for name in deepest_first(state.created) if name in state.folders and not state.folders[name].foreign]
    of_manifest = state.folders.get(manifest.FOLDER)
    if of_manifest is not None and not state.shared and not of_manifest.foreign:
        ours.append(manifest.FOLDER)
    return tuple(ours)


async def _remove_manifest(mailbox: Provisioning, state: MailboxState) -> bool:
    """Remove the manifest with its folder, or alone if the folder is not ours. Return True if the folder was removed.

    If possible, both are removed in one step: without its manifest, the folder would look foreign. So the folder is
    first listed and counted again, to prove that it holds only our messages.
    """
    folder = state.folders.get(manifest.FOLDER)
    if folder is None:
        return False
    own = {message.ref for message in folder.own}
    if manifest.FOLDER in _deletable(state):
        listed = {message.ref for message in (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]}
        if listed <= own and await mailbox.message_count(manifest.FOLDER) == len(listed):
            await mailbox.delete(manifest.FOLDER)
            return True
    if own:
        await mailbox.expunge([message.ref for message in folder.own])
    return False


def describe(cleaned: Sequence[Cleaned], dry_run: bool) -> str:
    """Return the totals as one line. Accounts that failed may hold more than what was removed from them."""
    failed = sum(bool(result.failure) for result in cleaned)
    read = len(cleaned) - failed
    messages = sum(sum(result.messages.values()) for result in cleaned)
    folders = sum(len(result.folders) for result in cleaned)
    foreign = sum(sum(result.foreign.values()) for result in cleaned)
    touched = sum(map(bool, cleaned))
    if not touched:
        done = f"Nothing of loadsim's on {read} accounts"
    else:
        verb = "Would remove" if dry_run else "Removed"
        done = f"{verb} {messages} messages and {folders} folders from {touched} of {len(cleaned)} accounts"
    stayed = f"{foreign} messages not created by loadsim {'would be' if dry_run else 'were'} left untouched"
    left = f"; {failed} accounts failed, and may hold more" if failed else ""
    articles = sum(result.articles for result in cleaned)
    left += f"; {finding(Code.ARTICLES_STAY, articles=articles).text}" if articles else ""
    return f"{done}; {stayed}{left}."
