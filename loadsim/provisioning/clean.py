"""Removes loadsim's messages and folders from the accounts of a scenario, and nothing else.

It removes messages with loadsim's tag, and delivery reports that return such messages. Then it removes the folders
that a manifest of this account names, if they are empty. Others' messages are not changed, and keep their folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Provisioning, Services
from loadsim.provisioning import manifest
from loadsim.provisioning.hold import held
from loadsim.provisioning.initialise import INSPECT, delete_empty
from loadsim.provisioning.inspect import FolderState, MailboxState, inspect_mailbox, list_own
from loadsim.provisioning.sessions import Progress, accounts_on_server, all_done, visit
from loadsim.scenario.mailboxes import deepest_first
from loadsim.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Messages and folders that were removed from one account (or would be), and others' mail that stays, by folder.

    The manifest counts as a message, its folder as a folder. `failure` is the error that ended the visit early, or "".
    """

    account: Account
    messages: dict[str, int]
    folders: tuple[str, ...]
    foreign: dict[str, int]
    failure: str = ""

    def __bool__(self) -> bool:
        return bool(self.messages or self.folders)


async def clean(scenario: Scenario, services: Services, dry_run: bool, progress: Progress) -> list[Cleaned]:
    """Clean every account of the scenario; with `dry_run`, change nothing. Return the results, account by account.

    A visit that fails ends with that account's `failure`, and the others go on. Raises `ConfigError` if all fail.
    """

    async def work(account: Account, mailbox: Provisioning) -> Cleaned:
        return await clean_mailbox(account, mailbox, dry_run)

    accounts = accounts_on_server(scenario)
    async with held([] if dry_run else accounts, services, "clean", create=False) as hold:
        step = INSPECT if dry_run else "clean"
        results = await visit(accounts, services, work, partial(hold.noting(progress), step))
    if all(isinstance(result, ConfigError) for result in results):
        all_done(results)
    return [
        Cleaned(account, {}, (), {}, failure=str(result)) if isinstance(result, ConfigError) else result
        for account, result in zip(accounts, results, strict=True)
    ]


async def clean_mailbox(account: Account, mailbox: Provisioning, dry_run: bool) -> Cleaned:
    """Clean one mailbox, which is logged on. The manifest goes last: a second run needs it.

    Folders that loadsim created are not listed if they are unchanged since it recorded their state. Those that hold
    only our messages are deleted with them.
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
    """Delete a folder with our messages if STATUS, sent right before, is that before it was inspected."""
    before = state.status[folder]
    if before is None or before.messages != state.folders[folder].ours or await mailbox.folder_status(folder) != before:
        return False
    await mailbox.delete(folder)
    return True


def _deletable(state: MailboxState) -> tuple[str, ...]:
    """Return the folders that loadsim created and that hold no others' messages; the manifest's comes last.

    The manifest's folder without a manifest is that of an interrupted `clean`.
    """
    ours = [name for name in deepest_first(state.created) if name in state.folders and not state.folders[name].foreign]
    at_end = state.folders.get(manifest.FOLDER)
    if at_end is not None and not state.shared and not at_end.foreign:
        ours.append(manifest.FOLDER)
    return tuple(ours)


async def _remove_manifest(mailbox: Provisioning, state: MailboxState) -> bool:
    """Remove the manifest with its folder, or alone if the folder is not ours. Return whether the folder is removed.

    If possible, folder and manifest are removed in one step: without the manifest, the folder would look like others'.
    So the folder is listed and counted again first, to prove that it holds only our messages.
    """
    folder = state.folders.get(manifest.FOLDER)
    if folder is None:
        return False
    own = {message.ref for message in folder.own}
    if manifest.FOLDER in _deletable(state):
        found = {message.ref for message in (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]}
        if found <= own and await mailbox.message_count(manifest.FOLDER) == len(found):
            await mailbox.delete(manifest.FOLDER)
            return True
    if own:
        await mailbox.expunge([message.ref for message in folder.own])
    return False


def describe(cleaned: Sequence[Cleaned], dry_run: bool) -> str:
    """Return the totals in one line for people. Accounts that failed are counted apart: their contents are unknown."""
    failed = sum(bool(one.failure) for one in cleaned)
    read = len(cleaned) - failed
    messages = sum(sum(one.messages.values()) for one in cleaned)
    folders = sum(len(one.folders) for one in cleaned)
    foreign = sum(sum(one.foreign.values()) for one in cleaned)
    touched = sum(map(bool, cleaned))
    if not touched:
        done = f"Nothing of loadsim's on {read} accounts"
    else:
        verb = "Would remove" if dry_run else "Removed"
        done = f"{verb} {messages} messages and {folders} folders from {touched} of {read} accounts"
    stayed = f"{foreign} messages not created by loadsim {'would be' if dry_run else 'were'} left untouched"
    left = f"; {failed} accounts failed, and may hold more" if failed else ""
    return f"{done}; {stayed}{left}."
