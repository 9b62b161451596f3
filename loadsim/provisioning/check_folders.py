"""A check's folders in an account, and the manifest that names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from loadsim.errors import ServerRefused
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, SENT_ITEMS, Account
from loadsim.model.provisioning_ports import Provisioning, Quota, ServerOffer
from loadsim.provisioning import manifest
from loadsim.provisioning.initialise import delete_empty
from loadsim.provisioning.inspect import inspect_mailbox

NEWEST = 200
"""A check looks for its messages among this many of the newest ones in a folder."""


@dataclass(slots=True)
class CheckPlace:
    """An account's mailbox in a check: the check's folders, and the manifests as they were before.

    `foreign` counts the messages in each folder that are not loadsim's: others may use the account. `held` counts the
    messages in each folder to which the check is about to add some.
    """

    account: Account
    folder: str
    foreign: Mapping[str, int]
    before: Sequence[manifest.Manifest]
    made_manifest_folder: bool
    offer: ServerOffer
    quotas: Sequence[Quota]
    names: Mapping[str, str]
    missing_folder: str
    held: Mapping[str, int]
    created: tuple[str, ...] = ()


async def make_folders(places: list[CheckPlace], account: Account, mailbox: Provisioning) -> None:
    """Create the folders that tasks need and that are missing; before that, add the account to `places`.

    Raises `ConfigError` if another process uses the account, or another user of the scenario has the same mailbox.
    """
    state = await inspect_mailbox(account, mailbox, lambda record: True)
    if state.shared:
        raise manifest.shared_by_users(account)
    existing = state.folders.keys()
    own = (f"Folder {number}" for number in range(99, 9, -1))
    folder = next(name for name in own if name not in existing)
    missing = tuple(name for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, folder) if name not in existing)
    new_folder = manifest.FOLDER not in existing
    quotas: Sequence[Quota] = ()
    with suppress(ServerRefused):
        quotas = await mailbox.quotas()
    names = {name: mailbox.name_on_server(name) for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, folder)}
    with suppress(ServerRefused):
        names["A/B"] = mailbox.name_on_server("A/B")
    missing_folder = ""
    try:
        await mailbox.open(f"{folder} missing")
    except ServerRefused as failure:
        missing_folder = failure.line if failure.line.startswith(("NO", "BAD")) else failure.kind
    held = dict.fromkeys(missing, 0) | await count_messages(mailbox, {INBOX, *names} & existing)
    offer, before = mailbox.offer, state.manifests
    place = CheckPlace(account, folder, state.foreign, before, new_folder, offer, quotas, names, missing_folder, held)
    places.append(place)
    # The manifest names the folders before they exist.
    if new_folder:
        await mailbox.create(manifest.FOLDER)
    await manifest.write(mailbox, account, {*missing, *manifest.names_in(before)})
    place.created = missing
    for name in missing:
        await mailbox.create(name)


async def count_messages(mailbox: Provisioning, folders: Iterable[str]) -> dict[str, int]:
    """Return the number of messages in each folder that the server states."""
    counts = {}
    for folder in folders:
        with suppress(ServerRefused):
            counts[folder] = await mailbox.message_count(folder)
    return counts


async def restore_folders(place: CheckPlace, account: Account, mailbox: Provisioning, existing: Sequence[str]) -> None:
    """Delete the folders that the check created, if empty, and put the manifest back as it was.

    Raises `AccountTaken` if another process has used the account meanwhile.
    """
    manifests: Sequence[manifest.Manifest] = ()
    if manifest.FOLDER in existing:
        stored = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
        manifests, _ = await manifest.read(mailbox, account, stored)
        # Before deleting a folder that the other process may need.
        manifest.refuse_other(account, manifests, manifest.holder_in(place.before))
    kept = [name for name in place.created if name in existing and not await delete_empty(mailbox, name)]
    if manifest.FOLDER not in existing:
        return
    if place.before or kept:
        names = {*manifest.names_in(place.before), *kept}
        await manifest.write(mailbox, account, names, None if kept else manifest.record_in(place.before))
    else:
        ours = [written.message.ref for written in manifests]
        if place.made_manifest_folder and await mailbox.message_count(manifest.FOLDER) == len(ours):
            await mailbox.delete(manifest.FOLDER)
            return
        await mailbox.expunge(ours)
        if place.made_manifest_folder:
            await delete_empty(mailbox, manifest.FOLDER)
