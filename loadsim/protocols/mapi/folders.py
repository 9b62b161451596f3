"""A mailbox's folders: their names on the server, their paths, and loadsim's folders.

A folder is named by its path, except special ones: these are known from the Logon, and the calendar by its class
(MS-OXOSFLD section 2.2.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, SENT_ITEMS, FolderSettings
from loadsim.model.provisioning_ports import FolderStatus
from loadsim.protocols.http.mailbox import level
from loadsim.protocols.imap.folder_names import PLAIN, SEPARATOR, FolderNames
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.objects import Row, identifier, number, text
from loadsim.protocols.mapi.rops import LoggedOn
from loadsim.protocols.mapi.rows import counter

CALENDAR_CLASS = "IPF.Appointment"
COLUMNS = (
    *(tags.FOLDER_ID, tags.PARENT_FOLDER_ID, tags.DISPLAY_NAME, tags.CONTAINER_CLASS),
    *(tags.CONTENT_COUNT, tags.CONTENT_UNREAD_COUNT, tags.LOCAL_COMMIT_TIME_MAX),
)

_SPECIAL = {INBOX: rops.INBOX, SENT_ITEMS: rops.SENT_ITEMS, DELETED_ITEMS: rops.DELETED_ITEMS}


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders below the top of personal messages: the names of special ones, and the numbers and status of all."""

    names: FolderNames = PLAIN
    numbers: Mapping[str, int] = field(default_factory=dict)
    status: Mapping[str, FolderStatus | None] = field(default_factory=dict)


def read_folders(rows: Iterable[Row], logon: LoggedOn, settings: FolderSettings) -> Folders:
    """Return the folders of a hierarchy table with `COLUMNS`, except those not below the top."""
    top = logon.folder_ids[rops.IPM_SUBTREE]
    known = {identifier(row[0]): row for row in rows}
    by_path: dict[str, int] = {}
    calendars: list[str] = []
    for folder_id, row in known.items():
        levels: list[str] = []
        above, at = folder_id, row
        while above != top and len(levels) <= len(known):
            levels.append(level(text(at[2])))
            above = identifier(at[1])
            if above == top or above not in known:
                break
            at = known[above]
        if above == top and folder_id is not None and all(levels):
            path = SEPARATOR.join(reversed(levels))
            by_path[path] = folder_id
            if len(levels) == 1 and text(row[3]) == CALENDAR_CLASS:
                calendars.append(path)
    # Name the special ones; settings take precedence over the server.
    special = {logon.folder_ids[place]: folder for folder, place in _SPECIAL.items()}
    special |= {by_path[path]: CALENDAR for path in calendars[:1]}
    own = settings.paths
    for path, folder_id in by_path.items():
        if folder_id in special:
            own.setdefault(special[folder_id], path)
    names = FolderNames(own=tuple((folder, path) for folder, path in own.items() if folder != path))
    numbers = {names.folder_at(path): folder_id for path, folder_id in by_path.items()}
    status = {folder: _status(folder_id, known[folder_id]) for folder, folder_id in numbers.items()}
    return Folders(names, numbers, status)


def _status(folder_id: int, row: Row) -> FolderStatus | None:
    """Return a folder's status, in which the time of the last change replaces IMAP's counters.

    Only the counter part of a folder's number fits into a manifest's signed numbers.
    """
    messages, unseen, changed = map(number, row[4:7])
    if messages is None or unseen is None or changed is None:
        return None
    return FolderStatus(counter(folder_id), changed, messages, unseen, changed)
