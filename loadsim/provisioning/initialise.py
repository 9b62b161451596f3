"""Preparation: bring each mailbox of a scenario to its exact start state, removing only loadsim's own mail.

All accounts are inspected first, so an error in one is raised before anything changes in another. Then the mailboxes
that differ are changed, in steps that a second run can finish after an interruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

from loadsim.errors import ConfigError
from loadsim.model.ports import INBOX, Account, Services
from loadsim.model.provisioning_ports import FolderStatus, Provisioning, Stored, batches
from loadsim.provisioning import manifest
from loadsim.provisioning.calendars import prepare_calendars, with_calendars
from loadsim.provisioning.inspect import MailboxState, inspect_mailbox, refuse_foreign
from loadsim.provisioning.public_folder import keeper_among, restore_public
from loadsim.provisioning.sessions import Progress, accounts_on_server, all_done, name_of, visit
from loadsim.provisioning.start_state import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    NAMED_BY_SERVER,
    FolderChange,
    StoredState,
    change_folder,
)
from loadsim.scenario.mailboxes import deepest_first
from loadsim.scenario.workload import Workload

INSPECT = "inspect"
INITIALISE = "initialise"
"""The steps that progress reports, in order."""


@dataclass(frozen=True, slots=True)
class Initialised:
    """Counts of the changes in all mailboxes. `start_state` is the digest of their new state; None if unknown."""

    accounts: int
    changed: int = 0
    folders_created: int = 0
    folders_deleted: int = 0
    put: int = 0
    removed: int = 0
    reflagged: int = 0
    start_state: str | None = None

    def describe(self) -> str:
        """Return one line for users."""
        if self.start_state is None:
            return f"Inspected {self.accounts} mailboxes; left them as they were."
        if not self.changed and not self.put + self.removed:
            return f"All {self.accounts} mailboxes were already in their start state: nothing to do."
        return (
            f"Initialised {self.changed} of {self.accounts} mailboxes: {self.folders_created} folders created,"
            f" {self.folders_deleted} deleted; {self.put} messages added, {self.removed} removed, the flags of"
            f" {self.reflagged} reset."
        )


@dataclass(frozen=True, slots=True)
class MailboxChange:
    """The changes that bring a mailbox to its start state: folders to create, to delete once empty, and to change.

    `forget`: folders to remove from the manifest because they are gone; a new folder of that name would be foreign.
    """

    create: tuple[str, ...]
    delete: tuple[str, ...]
    forget: frozenset[str]
    folders: dict[str, FolderChange]

    def __bool__(self) -> bool:
        return bool(self.create or self.delete or self.forget or self.folders)


async def change_mailbox(state: MailboxState, start: StoredState, user: int, from_scratch: bool) -> MailboxChange:
    """Return the changes for a mailbox in this state; with `from_scratch`, none of our messages are kept."""
    wanted = start.folders(user)
    changes: dict[str, FolderChange] = {}
    for name in dict.fromkeys((*wanted, *state.folders)):
        if name in state.folders and state.folders[name].recorded is not None:
            continue  # it is in its start state
        own: Sequence[Stored] = state.folders[name].own if name in state.folders else ()
        if name == manifest.FOLDER:
            own = tuple(message for message in own if not manifest.is_manifest(message))
        change = await change_folder(own, start.messages(user, name), wanted.get(name, 0), from_scratch)
        if change:
            changes[name] = change
    return MailboxChange(
        create=tuple(name for name in wanted if name not in state.folders),
        delete=tuple(deepest_first(name for name in state.created if name in state.folders and name not in wanted)),
        forget=state.created - state.folders.keys() - wanted.keys(),
        folders=changes,
    )


@dataclass(frozen=True, slots=True)
class Inspection:
    """The number of mailboxes, the accounts whose mailboxes must change, and the public folder's keeper, if any.

    `calendars` are the accounts with calendars on a calendar server.
    """

    accounts: int
    to_change: Sequence[Account]
    keeper: Account | None = None
    calendars: Sequence[Account] = ()


async def inspect(
    workload: Workload, services: Services, mode: str, progress: Progress, users: Iterable[int] | None = None
) -> Inspection:
    """Inspect the mailboxes of these users (None: all), and change nothing.

    `mode` selects the mailboxes to change, as for `initialise`; `auto` includes those without a record of their start
    state. Raises `ConfigError` if a visit fails, an account holds foreign mail, or folders that users need are missing
    from a mailbox that will not be changed, and as `with_calendars` does.
    """
    accounts = accounts_on_server(workload.scenario, users)
    calendars = with_calendars(workload.scenario, accounts)
    start = StoredState(workload)

    async def examine(account: Account, mailbox: Provisioning) -> tuple[MailboxState, bool]:
        digest = start.digest(account.number, mailbox.path)
        state = await inspect_mailbox(account, mailbox, lambda record: record.digest == digest)
        if state.foreign or mode != "auto":
            return state, mode == "always"
        change = not state.holds(digest) or await change_mailbox(state, start, account.number, from_scratch=False)
        return state, bool(change)

    examined = all_done(await visit(accounts, services, examine, partial(progress, INSPECT)))
    states = [(account, state) for account, (state, _) in zip(accounts, examined, strict=True)]
    refuse_foreign(states)
    if mode == "never":
        _refuse_missing_folders(start, states)
    to_change = [account for account, (_, change) in zip(accounts, examined, strict=True) if change]
    return Inspection(len(accounts), to_change, keeper_among(workload.scenario, accounts), calendars)


def _refuse_missing_folders(start: StoredState, mailboxes: Sequence[tuple[Account, MailboxState]]) -> None:
    """Raise `ConfigError` if mailboxes are missing folders that tasks need: the server's, and one of the user's own."""
    lacking = []
    for account, state in mailboxes:
        wanted = start.folders(account.number)
        missing = [name for name in NAMED_BY_SERVER if name in wanted and name not in state.folders]
        own = [name for name in wanted if name not in (INBOX, *NAMED_BY_SERVER)]
        missing += own[:1] if not any(name in state.folders for name in own) else []
        if missing:
            lacking.append((account, missing))
    if lacking:
        account, missing = lacking[0]
        raise ConfigError(
            f"initialise: never: {len(lacking)} of {len(mailboxes)} mailboxes lack folders that users need:"
            f" {name_of(account)} has no {', no '.join(missing)}; run loadsim init SCENARIO --set initialise=auto"
            " first"
        )


async def restore(
    workload: Workload, services: Services, mode: str, inspected: Inspection, progress: Progress
) -> Initialised:
    """Bring the inspected mailboxes, their users' calendars and, as its keeper, the public folder to their start state.

    Raises `ConfigError` for the first account that failed, once all others are finished.
    """
    start = StoredState(workload)

    async def change(account: Account, mailbox: Provisioning) -> Initialised:
        return await restore_mailbox(account, mailbox, start, mode == "always")

    async def change_public(account: Account, mailbox: Provisioning) -> Initialised:
        put, removed = await restore_public(account, mailbox, services, start, mode == "always")
        return Initialised(accounts=0, put=put, removed=removed)

    done = all_done(await visit(inspected.to_change, services, change, partial(progress, INITIALISE)))
    if inspected.keeper is not None and mode != "never":
        done += all_done(await visit([inspected.keeper], services, change_public, lambda *_: None))
    if mode != "never":
        events = await prepare_calendars(inspected.calendars, services, partial(progress, INITIALISE))
        done.append(Initialised(accounts=0, removed=events))
    return replace(total(done), accounts=inspected.accounts, start_state=start_state_after(workload, mode))


async def initialise(
    workload: Workload, services: Services, mode: str, progress: Progress, users: Iterable[int] | None = None
) -> Initialised:
    """Inspect the mailboxes of these users (None: all), then bring them to their start state as `mode` says.

    `auto` changes only what differs, `always` removes all our mail and writes it again, `never` changes nothing. The
    start state's digest covers all mailboxes, including those that other clients prepare.

    Raises `ConfigError`, before any change, if a log-on fails, an account holds foreign mail or, with `never`, is
    missing folders that users need. A later `ConfigError` names an account that could not be finished.
    """
    inspected = await inspect(workload, services, mode, progress, users)
    return await restore(workload, services, mode, inspected, progress)


def start_state_after(workload: Workload, mode: str) -> str | None:
    """Return the digest of all mailboxes' start state after preparation; None if `mode` leaves them unchanged."""
    return None if mode == "never" else workload.start_state_digest()


def total(done: Sequence[Initialised]) -> Initialised:
    """Return the sum of the counts, which must all have the same start state."""
    counts = [field.name for field in fields(Initialised) if field.type == "int"]
    summed = {name: sum(getattr(counted, name) for counted in done) for name in counts}
    return Initialised(**summed, start_state=done[0].start_state if done else None)


async def restore_mailbox(
    account: Account, mailbox: Provisioning, start: StoredState, from_scratch: bool
) -> Initialised:
    """Bring one mailbox, which must be logged on, to its start state. Return the counts of changes.

    After an interruption at any step, another call finds the remaining changes: messages are removed before any are
    added, and added in order.
    """
    # Find the changes.
    digest = start.digest(account.number, mailbox.path)
    state = await inspect_mailbox(account, mailbox, lambda record: record.digest == digest and not from_scratch)
    refuse_foreign([(account, state)])
    change = await change_mailbox(state, start, account.number, from_scratch)

    # Write the manifest before the folders that it names are created.
    created = state.created - change.forget | frozenset(change.create) - {INBOX}
    if created != state.created or not state.manifests:
        if manifest.FOLDER not in state.folders:
            await mailbox.create(manifest.FOLDER)
        await manifest.write(mailbox, account, created)
    for name in change.create:
        await mailbox.create(name)

    # Change folders: remove messages from all of them, then add the missing ones.
    for folder in change.folders.values():
        if folder.remove:
            await mailbox.expunge(folder.remove)
    for name, folder in change.folders.items():
        for flags, refs in folder.reflag.items():
            await mailbox.set_flags(refs, flags)
        for batch in batches(start.messages(account.number, name, folder.kept), BATCH_MESSAGES, BATCH_BYTES):
            await mailbox.append_many(name, batch)

    # Delete folders. Record the state in the manifest, without the deleted folders.
    deleted = [name for name in change.delete if await delete_empty(mailbox, name)]
    if change or not state.holds(digest):
        status = await mailbox.status()
        record = await _record(account, mailbox, start, status, digest)
        if manifest.FOLDER in status:
            await manifest.write(mailbox, account, created - frozenset(deleted), record)
    return Initialised(
        accounts=1,
        changed=int(bool(change)),
        folders_created=len(change.create),
        folders_deleted=len(deleted),
        put=sum(folder.missing for folder in change.folders.values()),
        removed=sum(len(folder.remove) for folder in change.folders.values()),
        reflagged=sum(len(refs) for folder in change.folders.values() for refs in folder.reflag.values()),
    )


async def delete_empty(mailbox: Provisioning, folder: str) -> bool:
    """Delete a folder if STATUS, sent just before, reports no messages. Return True if it was deleted."""
    if await mailbox.message_count(folder):
        return False
    await mailbox.delete(folder)
    return True


async def _record(
    account: Account, mailbox: Provisioning, start: StoredState, status: Mapping[str, FolderStatus | None], digest: str
) -> manifest.Record | None:
    """Return the record of a mailbox in its start state; None if the server does not report enough for one.

    Raises `ConfigError` unless STATUS reports the expected numbers: an OK to each command is no proof.
    """
    wanted = start.folders(account.number)
    contents = {folder: its_status for folder, its_status in status.items() if folder != manifest.FOLDER}
    for folder in dict.fromkeys((*wanted, *contents)):
        its_status, expected = contents.get(folder), wanted.get(folder, 0)
        found = 0
        if its_status is not None:
            found = its_status.messages
        elif folder in contents:
            found = await mailbox.message_count(folder)
        if found != expected:
            raise ConfigError(
                f"{name_of(account)}: folder {folder}: expected {expected} messages after initialising, found {found}"
            )
    known = {folder: its_status for folder, its_status in contents.items() if its_status is not None}
    return manifest.Record(digest, known) if len(known) == len(contents) else None
