"""Removes from the accounts of a scenario what loadsim put there, and nothing else.

What goes: messages that carry loadsim's evidence, delivery reports that quote it, and folders that the manifest names
and that are empty by then. Somebody else's message keeps its folder, and is not so much as marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from loadsim.model.ports import Account, Provisioning, Services
from loadsim.model.scenario import Scenario
from loadsim.topology import manifest
from loadsim.topology.initialise import delete_empty
from loadsim.topology.inspect import MailboxState, look
from loadsim.topology.mailboxes import Progress, accounts_on_server, visit


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed from one account (or would be): messages by folder, folders; and whose mail stayed, by folder.

    The manifest counts as a message, its folder as a folder.
    """

    account: Account
    messages: dict[str, int]
    folders: tuple[str, ...]
    foreign: dict[str, int]

    def __bool__(self) -> bool:
        return bool(self.messages or self.folders)


async def clean(scenario: Scenario, services: Services, dry_run: bool, progress: Progress) -> list[Cleaned]:
    """Clean every account of the scenario, or with `dry_run` only say what would go; what, account by account.

    Raises `ConfigError` when an account cannot be logged on to, or the server refuses something; run it again then.
    """

    async def work(account: Account, mailbox: Provisioning) -> Cleaned:
        return await clean_mailbox(account, mailbox, dry_run)

    return await visit(
        accounts_on_server(scenario), services, work, partial(progress, "inspect" if dry_run else "clean")
    )


async def clean_mailbox(account: Account, mailbox: Provisioning, dry_run: bool) -> Cleaned:
    """Clean one mailbox, which is logged on. The manifest goes last, for whoever has to do it a second time."""
    state = await look(mailbox)
    messages = {name: len(folder.own) for name, folder in state.folders.items() if folder.own}
    if dry_run:
        return Cleaned(account, messages, _deletable(state), state.foreign)
    for name, folder in state.folders.items():
        doomed = [message.ref for message in folder.own if name != manifest.FOLDER]
        if doomed:
            await mailbox.expunge(doomed)
    deleted = [name for name in _deletable(state) if name != manifest.FOLDER and await delete_empty(mailbox, name)]
    if await _remove_manifest(mailbox, state):
        deleted.append(manifest.FOLDER)
    return Cleaned(account, messages, tuple(deleted), state.foreign)


def _deletable(state: MailboxState) -> tuple[str, ...]:
    """The folders that loadsim created and that hold nothing of anybody else's; the manifest's last."""
    empty = [name for name in sorted(state.created) if name in state.folders and not state.folders[name].foreign]
    kept = state.folders.get(manifest.FOLDER)
    if kept and not kept.foreign and any(map(manifest.is_manifest, kept.own)):
        empty.append(manifest.FOLDER)
    return tuple(empty)


async def _remove_manifest(mailbox: Provisioning, state: MailboxState) -> bool:
    """Remove the manifest with its folder, or alone when the folder is not ours; whether the folder is gone.

    Folder and manifest go in one step if they can: an empty folder could no longer be told from somebody else's.
    """
    kept = state.folders.get(manifest.FOLDER)
    if kept is None or not kept.own:
        return False
    if manifest.FOLDER in _deletable(state) and (await mailbox.status(manifest.FOLDER)).messages == len(kept.own):
        await mailbox.delete(manifest.FOLDER)
        return True
    await mailbox.expunge([message.ref for message in kept.own])
    return False


def describe(cleaned: Sequence[Cleaned], dry_run: bool) -> str:
    """The total in one line for people."""
    messages = sum(sum(one.messages.values()) for one in cleaned)
    folders = sum(len(one.folders) for one in cleaned)
    foreign = sum(sum(one.foreign.values()) for one in cleaned)
    touched = sum(map(bool, cleaned))
    if not touched:
        done = f"Nothing of loadsim's on {len(cleaned)} accounts"
    else:
        verb = "Would remove" if dry_run else "Removed"
        done = f"{verb} {messages} messages and {folders} folders from {touched} of {len(cleaned)} accounts"
    return f"{done}; {foreign} messages of others' {'would stay' if dry_run else 'stayed'} as they are."
