"""The folders of a check in an account, and the manifest that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from loadsim.errors import ServerRefused
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, SENT_ITEMS, Account, Provisioning, Quota, ServerOffer
from loadsim.provisioning import manifest
from loadsim.provisioning.initialise import delete_empty

Before = tuple[frozenset[str], manifest.Record | None]
"""The names and the record in the manifest of an account before a check."""


@dataclass(slots=True)
class CheckPlace:
    """An account's mailbox in a check: folders of the check, and the manifest as it was before."""

    account: Account
    folder: str
    created: tuple[str, ...]
    before: Before | None
    made_manifest_folder: bool
    offer: ServerOffer
    quotas: Sequence[Quota]
    names: Mapping[str, str]


async def make_folders(places: list[CheckPlace], account: Account, mailbox: Provisioning) -> None:
    """Create the folders that the tasks need and that an account lacks; add the account to `places` before."""
    existing = set(await mailbox.folders())
    own = (f"Folder {number}" for number in range(99, 9, -1))
    folder = next(name for name in own if name not in existing)
    missing = tuple(name for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, folder) if name not in existing)
    new_folder = manifest.FOLDER not in existing
    found = [] if new_folder else await manifest.accepted_in(mailbox, account)
    before = (manifest.names_in(found), manifest.record_in(found)) if found else None
    quotas: Sequence[Quota] = ()
    with suppress(ServerRefused):
        quotas = await mailbox.quotas()
    names = {name: mailbox.name_on_server(name) for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, folder)}
    with suppress(ServerRefused):
        names["A/B"] = mailbox.name_on_server("A/B")
    place = CheckPlace(account, folder, missing, before, new_folder, mailbox.offer, quotas, names)
    places.append(place)
    # The manifest names the folders before they exist.
    if new_folder:
        await mailbox.create(manifest.FOLDER)
    await manifest.write(mailbox, account, {*missing, *(before[0] if before else ())})
    for name in missing:
        await mailbox.create(name)


async def restore_folders(place: CheckPlace, account: Account, mailbox: Provisioning, existing: Sequence[str]) -> None:
    """Delete the folders that the check created, if they are empty, and put the manifest back as it was."""
    kept = [name for name in place.created if name in existing and not await delete_empty(mailbox, name)]
    if place.before is not None:
        names, record = place.before
        await manifest.write(mailbox, account, {*names, *kept}, None if kept else record)
    elif kept:
        await manifest.write(mailbox, account, kept)
    else:
        ours = [each.message.ref for each in await manifest.accepted_in(mailbox, account)]
        if place.made_manifest_folder and await mailbox.message_count(manifest.FOLDER) == len(ours):
            await mailbox.delete(manifest.FOLDER)
        elif ours:
            await mailbox.expunge(ours)
