"""The contents of a mailbox: our own messages, and foreign ones.

Headers are easily copied: people forward, redirect and quote. So a message is ours only if its tag, its From and its
Message-ID agree. A delivery report is ours only if it has the form of RFC 3464 and returns the header of a message of
ours. An automatic reply is ours if it answers one (RFC 3834 sections 3.1.5 and 5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.errors import ConfigError, ServerRefused
from loadsim.model.delivery_report import STATUS_TYPES, may_report
from loadsim.model.message_tag import AUTOMATIC_REPLY, HEADER, MessageTag, run_named, vouched
from loadsim.model.ports import Account, MessageRef, Part
from loadsim.model.provisioning_ports import FolderStatus, MessageSource, Provisioning, Stored
from loadsim.provisioning import manifest
from loadsim.provisioning.manifest import Manifest, Record, names_in, record_in
from loadsim.provisioning.sessions import name_of

_RETURNED_MESSAGES = frozenset({"message/rfc822", "message/global"})
_RETURNED_HEADERS = frozenset({"text/rfc822-headers", "message/global-headers"})
"""Content types of a report's returned message, or its header (RFC 6522 section 3, RFC 6533 section 4)."""

LARGEST_HEADER_BYTES = 1 << 16
LONGEST_FIELD = 1000

_REPORT = re.compile(r"multipart/report\s*;(?:.*;)?\s*report-type\s*=\s*\"?delivery-status\"?\s*(?:;.*)?", re.I)
_STATUS = re.compile(rb"^Status:[ \t]*([245]\.\d{1,3}\.\d{1,3})", re.M | re.I)
_FROM = re.compile(r"(?:[^<>]*<)?([^<>@\s]+@[^<>@\s]+)>?\s*")
_FOLD = re.compile(r"\r?\n(?=[ \t])")


@dataclass(frozen=True, slots=True)
class FolderState:
    """The messages in one folder: our own in order, and the number of foreign ones.

    `recorded` is None if the folder was listed. Otherwise it is the number of our messages in a record that is still
    true, and `own` is empty.
    """

    own: tuple[Stored, ...]
    foreign: int
    recorded: int | None = None

    @property
    def ours(self) -> int:
        return len(self.own) if self.recorded is None else self.recorded


@dataclass(frozen=True, slots=True)
class MailboxState:
    """All folders of one account by name, with their status, and the account's manifests.

    `shared`: another user has the same mailbox; their manifest stays.
    """

    folders: dict[str, FolderState]
    manifests: tuple[Manifest, ...] = ()
    shared: bool = False
    status: Mapping[str, FolderStatus | None] = field(default_factory=dict)

    @property
    def created(self) -> frozenset[str]:
        """The names of the folders that loadsim created."""
        return names_in(self.manifests)

    @property
    def foreign(self) -> dict[str, int]:
        """The number of foreign messages by folder; folders without any are left out."""
        return {name: folder.foreign for name, folder in self.folders.items() if folder.foreign}

    def holds(self, digest: str) -> bool:
        """Return True if nothing has changed since the mailbox was in the start state with this digest.

        Without `modseq`, flags may have changed, except in the Inbox, whose flags were listed.
        """
        record = None if self.shared else record_in(self.manifests)
        contents = {name: status for name, status in self.status.items() if name != manifest.FOLDER}
        return record is not None and record.digest == digest and record.status == contents


async def inspect_mailbox(
    account: Account, mailbox: Provisioning, trusted: Callable[[Record], bool] = lambda record: False
) -> MailboxState:
    """List everything in the account, without changing anything or marking messages as seen.

    If the manifest's record is `trusted`, folders unchanged since then are not listed. Raises `AccountTaken`.
    """
    # Read the manifest.
    status = await mailbox.status()
    accepted: list[Manifest] = []
    shared = False
    folders: dict[str, FolderState] = {}
    if manifest.FOLDER in status:
        stored = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
        state = await _folder_state(account, mailbox, stored)
        accepted, shared = await manifest.read(mailbox, account, state.own)
        manifest.refuse_taken(account, accepted)
        refs = {one.message.ref for one in accepted}
        own = tuple(message for message in state.own if message.ref in refs or not manifest.is_manifest(message))
        folders[manifest.FOLDER] = FolderState(own, state.foreign)

    # Take unchanged folders from the record, and list the rest.
    record = None if shared else record_in(accepted)
    if record is not None and trusted(record):
        for name in record.unchanged(status):
            folders[name] = FolderState((), 0, recorded=record.status[name].messages)
    for name, stored in (await mailbox.listing([name for name in status if name not in folders])).items():
        folders[name] = await _folder_state(account, mailbox, stored)
    return MailboxState({name: folders[name] for name in status}, tuple(accepted), shared, status)


async def _folder_state(account: Account, mailbox: MessageSource, stored: Sequence[Stored]) -> FolderState:
    own = tuple([message for message in stored if await _is_own(account, mailbox, message)])
    return FolderState(own, len(stored) - len(own))


async def list_own(account: Account, mailbox: MessageSource, folder: str) -> tuple[Stored, ...]:
    return (await _folder_state(account, mailbox, (await mailbox.listing([folder]))[folder])).own


async def _is_own(account: Account, mailbox: MessageSource, message: Stored) -> bool:
    """Return True if a message is ours. Only probable delivery reports and automatic replies are fetched."""
    if message.tag is not None:
        return vouched(message.tag, message.sender, message.message_id, account.domain)
    return await bounce_status(account, mailbox, message) is not None


async def bounce_status(account: Account, mailbox: MessageSource, message: Stored) -> str | None:
    """Return the status of a delivery report that returns a message of ours, such as 5.2.2; None for other messages.

    It is "" if the report has no status (RFC 3464 section 2.3.4), and `AUTOMATIC_REPLY` for an automatic reply to ours.
    """
    if message.tag is None and run_named(message.in_reply_to, account.domain) is not None:
        submitted = (await _fields(mailbox, message.ref, _WHOLE)).get("auto-submitted", "")
        return AUTOMATIC_REPLY if submitted.lower().startswith("auto-") else None
    if (
        message.tag is not None
        or not may_report(message.sender)
        or await returned_tag(mailbox, message.ref, account.domain) is None
    ):
        return None
    structure = await mailbox.structure(message.ref)
    for part in structure.attachments:
        if part.content_type in STATUS_TYPES and part.size_bytes <= LARGEST_HEADER_BYTES:
            status = _STATUS.search(bytes(await mailbox.part(message.ref, part))[: LARGEST_HEADER_BYTES + 1])
            return status[1].decode("ascii") if status else ""
    return ""


async def returned_tag(mailbox: MessageSource, ref: MessageRef, domain: str) -> MessageTag | None:
    """Return the tag of our message that a delivery report (RFC 6522, RFC 3464) returns; None for other messages.

    Its header is enough. Text that quotes a header does not count: people quote headers, too.
    """
    structure = await mailbox.structure(ref)
    parts: Sequence[Part] = (*((structure.text,) if structure.text else ()), *structure.attachments)
    if not any(part.content_type in STATUS_TYPES for part in parts):
        return None
    # Fetch only the header of a returned message, which may be large (RFC 9051 section 6.4.5.1).
    messages = [part for part in parts if part.content_type in _RETURNED_MESSAGES]
    returned = [Part(f"{part.name}.HEADER", "text/rfc822-headers", 0) for part in messages]
    returned += [part for part in parts if part.content_type in _RETURNED_HEADERS]
    if not returned or not _REPORT.fullmatch((await _fields(mailbox, ref, _WHOLE)).get("content-type", "")):
        return None
    for part in returned:
        fields = await _fields(mailbox, ref, part)
        tag = MessageTag.parse(fields.get(HEADER.lower(), ""))
        sender = _FROM.fullmatch(fields.get("from", ""))
        if tag and sender and vouched(tag, sender[1], fields.get("message-id", ""), domain):
            return tag
    return None


_WHOLE = Part("HEADER", "text/rfc822-headers", 0)
"""The header of the message itself."""


async def _fields(mailbox: MessageSource, ref: MessageRef, part: Part) -> Mapping[str, str]:
    """Fetch a header. Return its fields by lower-case name, except repeated and overlong ones."""
    if part.size_bytes > LARGEST_HEADER_BYTES:
        return {}
    try:
        raw = bytes((await mailbox.part(ref, part))[: LARGEST_HEADER_BYTES + 1])
    except ServerRefused:
        return {}
    if len(raw) > LARGEST_HEADER_BYTES:
        return {}
    fields: dict[str, str] = {}
    repeated: set[str] = set()
    for line in _FOLD.sub("", raw.decode("utf-8", "replace")).split("\n"):
        if not line.strip("\r"):
            break
        name, _, value = line.partition(":")
        name = name.strip().lower()
        if name in fields:
            repeated.add(name)
        fields[name] = value.strip()
    return {name: value for name, value in fields.items() if name not in repeated and len(value) <= LONGEST_FIELD}


def refuse_foreign(states: Sequence[tuple[Account, MailboxState]]) -> None:
    """Raise `ConfigError` if any of these mailboxes holds foreign mail, or also belongs to another user."""
    for account, state in states:
        if state.shared:
            raise manifest.shared_by_users(account)
    rejected = [(account, state.foreign) for account, state in states if state.foreign]
    if not rejected:
        return
    account, folders = rejected[0]
    folder, count = next(iter(folders.items()))
    messages = f"{count} message{'s' * (count > 1)} that loadsim did not put there"
    more = len(folders) - 1
    elsewhere = f", and {more} more folder{'s' * (more > 1)}" if more else ""
    more = len(rejected) - 1
    elsewhere += f" (as do {more} more accounts)" if more > 1 else " (as does 1 more account)" if more else ""
    raise ConfigError(f"{name_of(account)}: folder {folder} holds {messages}{elsewhere}; use empty test accounts")
