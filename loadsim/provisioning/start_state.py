"""The start state of mailboxes and of the public folder: their messages, and the changes that restore them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from loadsim.files import sources_digest
from loadsim.model import content
from loadsim.model.content.compose import Contents
from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.ports import (
    CALENDAR,
    DELETED_ITEMS,
    DRAFTS,
    INBOX,
    OF_ALL_USERS,
    RESET_FLAGS,
    SENT_ITEMS,
    Flag,
    MessageRef,
)
from loadsim.model.provisioning_ports import NewMessage, Stored
from loadsim.scenario.workload import Workload

BATCH_MESSAGES = 100
BATCH_BYTES = 4 * 1024 * 1024
"""The most bytes appended to a folder at a time: this limits the memory of a process with many sessions."""

NAMED_BY_SERVER = (SENT_ITEMS, DELETED_ITEMS, CALENDAR, DRAFTS)
"""The folders whose names on the server depend on special-use attributes or on the scenario's `folders`."""

_COMPARED_FLAGS = frozenset(flag.lower() for flag in RESET_FLAGS)

_EVIDENCE = f"\r\n{HEADER}: ".encode()


@cache
def _content_sources() -> str:
    """Return the digest of the code and data that messages are made from."""
    return sources_digest(Path(content.__file__).parent)


class StoredState:
    """The contents of a workload's mailboxes before a run."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._contents = Contents(workload.seed)

    @cached_property
    def _common(self) -> str:
        """The digest of everything that determines all users' messages: code, seed, `mailbox`, and all addresses."""
        scenario = self._workload.scenario
        mailbox = json.dumps(scenario.mailbox.document(), sort_keys=True)
        digest = sha256(f"{_content_sources()} {scenario.domain} {self._workload.seed} {mailbox}\n".encode())
        for user in range(1, self._workload.start_population + 1):
            digest.update(scenario.account(user).address.encode() + b"\n")
        return digest.hexdigest()

    def digest(self, user: int, path: Callable[[str], str] = str) -> str:
        """Return the SHA-256 of everything that determines one mailbox's start state, in hexadecimal.

        `path` returns a folder's path on the server: messages in "Sent" are in the right place only if that is the
        folder for sent mail.
        """
        parts = [self._common, str(user), self._workload.user_start_state(user)]
        named = [folder for folder in NAMED_BY_SERVER if folder in self.folders(user)]
        parts += [f"{folder}={path(folder)}" for folder in named if path(folder) != folder]
        return sha256(" ".join(parts).encode()).hexdigest()

    def folders(self, user: int) -> dict[str, int]:
        """Return the folders that a mailbox must have, each with its number of messages; for all, the public folder."""
        if user == OF_ALL_USERS:
            return self._workload.start_state(user)
        return {INBOX: 0, SENT_ITEMS: 0, DELETED_ITEMS: 0, CALENDAR: 0} | self._workload.start_state(user)

    def messages(self, user: int, folder: str, begin: int = 0) -> Iterator[NewMessage]:
        """Yield a folder's messages in order, from index `begin` on."""
        scenario = self._workload.scenario
        for index in range(begin, self.folders(user).get(folder, 0)):
            initial = self._workload.initial(user, folder, index)
            message = self._contents.initial(
                user=user,
                address=scenario.account(initial.sender if user == OF_ALL_USERS else user).address,
                sender=initial.sender,
                sender_address=scenario.account(initial.sender).address,
                folder=folder,
                index=index,
                kind=initial.kind,
                domain=scenario.domain,
                size_bytes=initial.size_bytes,
                sent_us=initial.sent_us,
            )
            yield NewMessage(message, (Flag.SEEN,) if initial.seen else (), initial.sent_us)


def tag_of(message: bytes) -> MessageTag | None:
    return MessageTag.parse(message.partition(_EVIDENCE)[2].partition(b"\r\n")[0].decode("ascii"))


@dataclass(frozen=True, slots=True)
class FolderChange:
    """The changes that bring a folder to its start state: messages to remove, to reflag, and to add after `kept`."""

    remove: tuple[MessageRef, ...]
    reflag: dict[tuple[Flag, ...], list[MessageRef]]
    kept: int
    missing: int

    def __bool__(self) -> bool:
        return bool(self.remove or self.reflag or self.missing)


async def change_folder(
    own: Sequence[Stored], wanted: Iterable[NewMessage], count: int, from_scratch: bool = False
) -> FolderChange:
    """Return the changes for a folder that holds `own`, our messages in order, and needs the `count` wanted ones.

    The order matters: it decides which message is processed or browsed first. IMAP can only add at the end, so what is
    kept is the longest run of wanted messages, from the first on, that is there in order, none of them misdated. Yields
    to the event loop in between. With `from_scratch`, none is kept.
    """
    if from_scratch:
        return FolderChange(tuple(message.ref for message in own), {}, 0, count)
    remove: list[MessageRef] = []
    reflag: dict[tuple[Flag, ...], list[MessageRef]] = {}
    kept = 0
    rest = iter(wanted)
    following = next(rest, None)
    for at, message in enumerate(own):
        if at % BATCH_MESSAGES == 0:
            await asyncio.sleep(0)
        if following is None or message.misdated or message.tag != tag_of(following.message):
            remove.append(message.ref)
            continue
        if message.flags & _COMPARED_FLAGS != {flag.lower() for flag in following.flags}:
            reflag.setdefault(tuple(following.flags), []).append(message.ref)
        kept += 1
        following = next(rest, None)
    return FolderChange(tuple(remove), reflag, kept, count - kept)
