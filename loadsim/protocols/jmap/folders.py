"""A user's mailboxes (RFC 8621 section 2): their ids and names, and loadsim's folders among them.

A folder is named by its path, except those with a role; settings take precedence over roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.model.ports import DELETED_ITEMS, DRAFTS, INBOX, SENT_ITEMS, FolderSettings
from loadsim.protocols.http.mailbox import level
from loadsim.protocols.imap.folder_names import PLAIN, SEPARATOR, FolderNames
from loadsim.protocols.jmap.values import Members

PROPERTIES = ("id", "name", "parentId", "role", "totalEmails")

_ROLES = {"inbox": INBOX, "sent": SENT_ITEMS, "trash": DELETED_ITEMS, "drafts": DRAFTS}
"""loadsim's folders by their roles (IANA, "IMAP Mailbox Name Attributes"); of two with a role, the first counts."""

MOST_LEVELS = 100


@dataclass(frozen=True, slots=True)
class MailboxNames:
    """The names of a user's folders, and their ids and numbers of messages by folder."""

    names: FolderNames = PLAIN
    ids: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)


def read_folders(mailboxes: Sequence[Members], settings: FolderSettings) -> MailboxNames:
    """Return the folders of a Mailbox/get, except those within missing ones."""
    known = {mailbox.id("id"): mailbox for mailbox in mailboxes}
    by_path: dict[str, str] = {}
    own = settings.paths
    roles: dict[str, str] = {}
    for mailbox_id, mailbox in known.items():
        levels: list[str] = []
        at: Members | None = mailbox
        while at is not None and len(levels) <= MOST_LEVELS:
            levels.append(level(at.text("name")))
            above = at.id("parentId") if "parentId" in at else None
            at = known.get(above) if above is not None else None
            if above is None:
                path = SEPARATOR.join(reversed(levels))
                by_path[path] = mailbox_id
                if (folder := _ROLES.get(mailbox.text("role", ""))) is not None:
                    roles.setdefault(folder, path)
    for folder, path in roles.items():
        if path not in own.values():
            own.setdefault(folder, path)
    names = FolderNames(own=tuple((folder, path) for folder, path in own.items() if folder != path))
    ids = {names.folder_at(path): mailbox_id for path, mailbox_id in by_path.items()}
    return MailboxNames(names, ids, {folder: known[its_id].number("totalEmails", 0) for folder, its_id in ids.items()})
