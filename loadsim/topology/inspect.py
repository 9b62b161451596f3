"""What lies in a mailbox, and whose it is: ours by its evidence, or somebody else's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.errors import ConfigError
from loadsim.model.evidence import HEADER, Evidence
from loadsim.model.ports import Account, MessageRef, Part, Provisioning, Stored
from loadsim.topology import manifest
from loadsim.topology.mailboxes import name_of

_QUOTED = re.compile(rb"^[> ]*" + HEADER.encode() + rb":[ \t]*(\S[^\r\n]*)", re.IGNORECASE | re.MULTILINE)

_REPORTERS = ("mailer-daemon", "postmaster", "microsoftexchange")
"""How the local part of an address begins that sends delivery reports."""

_QUOTING_TYPES = frozenset(
    {"text/plain", "message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers"}
)
"""Where a report quotes the message that it is about (RFC 6522 section 3, RFC 6533 section 4); older ones in text."""


@dataclass(frozen=True, slots=True)
class FolderState:
    """The messages of one folder: our own in their order, and how many others there are."""

    own: tuple[Stored, ...]
    foreign: int


@dataclass(frozen=True, slots=True)
class MailboxState:
    """All folders of one account by name, and the names of those that loadsim created, as its manifest has them."""

    folders: dict[str, FolderState]
    created: frozenset[str]

    @property
    def foreign(self) -> dict[str, int]:
        """How many messages of somebody else's lie in the folders that have any."""
        return {name: folder.foreign for name, folder in self.folders.items() if folder.foreign}


async def look(mailbox: Provisioning) -> MailboxState:
    """List everything on the account; nothing is changed, no message is marked as seen."""
    listing = await mailbox.listing(await mailbox.folders())
    folders = {name: await _sort(mailbox, name, stored) for name, stored in listing.items()}
    kept = folders.get(manifest.FOLDER)
    created = await manifest.read(mailbox, kept.own) if kept else frozenset[str]()
    return MailboxState(folders, created)


async def _sort(mailbox: Provisioning, folder: str, stored: Sequence[Stored]) -> FolderState:
    """Tell ours from others'. Only a report is looked into, and only where there is anything without evidence."""
    own = {message.ref for message in stored if message.evidence is not None}
    if len(own) < len(stored):
        for header in await mailbox.headers(folder, newest=None):
            if header.ref not in own and _is_reporter(header.sender) and await quotes_evidence(mailbox, header.ref):
                own.add(header.ref)
    ours = tuple(message for message in stored if message.ref in own)
    return FolderState(ours, len(stored) - len(ours))


def _is_reporter(sender: str) -> bool:
    return sender.partition("@")[0].lower().startswith(_REPORTERS)


async def quotes_evidence(mailbox: Provisioning, ref: MessageRef) -> bool:
    """Whether a delivery report is about a message of ours: it quotes that message's evidence."""
    structure = await mailbox.structure(ref)
    parts: Sequence[Part] = (*((structure.text,) if structure.text else ()), *structure.attachments)
    for part in parts:
        if part.content_type in _QUOTING_TYPES:
            text = await mailbox.part(ref, part)
            if any(Evidence.parse(value.decode("ascii", "replace")) for value in _QUOTED.findall(text)):
                return True
    return False


def refuse_foreign(foreign: Sequence[tuple[Account, dict[str, int]]]) -> None:
    """`ConfigError` when any of these accounts holds mail of somebody else's (by folder, how many messages)."""
    strangers = [(account, folders) for account, folders in foreign if folders]
    if not strangers:
        return
    account, folders = strangers[0]
    folder, count = next(iter(folders.items()))
    messages = f"{count} message{'s' * (count > 1)} that loadsim did not put there"
    more = len(folders) - 1
    elsewhere = f", and {more} more folder{'s' * (more > 1)}" if more else ""
    more = len(strangers) - 1
    elsewhere += f" (as do {more} more accounts)" if more > 1 else " (as does 1 more account)" if more else ""
    raise ConfigError(f"{name_of(account)}: folder {folder} holds {messages}{elsewhere}; use empty test accounts")
