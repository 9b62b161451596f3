"""The ports with which mailboxes are prepared, cleaned and read: `Provisioning`, and `Probing` of a submission."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import Flag, Mailbox, MessageRef, Part, Structure, Submission


class Stored(NamedTuple):
    """A message in a folder, with the server's flags in lower case, From's address, Message-ID and In-Reply-To.

    `tag` is the content of its X-LoadSim header, which may be a copy; None if there is no such header. A message is
    `misdated` if lists go by dates, and it has another one than it would be stored with.
    """

    ref: MessageRef
    flags: frozenset[str]
    tag: MessageTag | None
    sender: str = ""
    message_id: str = ""
    in_reply_to: str = ""
    misdated: bool = False


class FolderStatus(NamedTuple):
    """The numbers by which a changed folder is recognised (RFC 9051 section 6.3.11).

    `modseq` also changes when a flag does (RFC 7162); None on servers without it.
    """

    validity: int
    uid_next: int
    messages: int
    unseen: int
    modseq: int | None = None


class NewMessage(NamedTuple):
    """A message to store (RFC 5322, CRLF), with its flags, and its internal date in microseconds since 1970.

    If the date is None, the server sets it.
    """

    message: bytes
    flags: Sequence[Flag] = ()
    received_us: int | None = None


def batches(messages: Iterable[NewMessage], most: int, most_bytes: int) -> Iterator[list[NewMessage]]:
    """Yield messages in batches of at most this number and size; a larger message gets a batch to itself."""
    batch: list[NewMessage] = []
    size_bytes = 0
    for message in messages:
        if batch and (len(batch) == most or size_bytes + len(message[0]) > most_bytes):
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += len(message[0])
    if batch:
        yield batch


class ServerOffer(NamedTuple):
    """The server's offer to a user after log-on.

    `features` are IMAP capabilities or SMTP extensions with their parameters, in capitals. `method` is the log-on
    method that was used; "" if none was. `permanent_flags` are the open folder's, as stated by the server.
    """

    features: frozenset[str]
    method: str
    permanent_flags: str = ""

    def limit(self, *names: str) -> int | None:
        """Return the number in a feature such as "SIZE 1000" or "APPENDLIMIT=1000"; None if there is none."""
        for feature in self.features:
            name, _, value = feature.replace("=", " ").partition(" ")
            if name in names and value.isascii() and value.isdigit() and int(value):
                return int(value)
        return None


class Quota(NamedTuple):
    """The usage and limit of one of a mailbox's resources: STORAGE in KiB, or MESSAGE (RFC 9208 section 5)."""

    resource: str
    used: int
    limit: int


class Probing(Submission, Protocol):
    """A submission service that can be asked whether it would accept a message."""

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """Connect, log on, name sender and recipient, and disconnect without a message. Raises as `send` does."""


@runtime_checkable
class ConditionalSets(Protocol):
    """A mailbox whose protocol has changes that depend on a state."""

    async def try_if_in_state(self, ref: MessageRef) -> None:
        """Try to mark a message as seen in an outdated state, which the server must refuse."""


class MessageSource(Protocol):
    """A mailbox or a newsgroup, of which all messages can be read. Reading has no side effects."""

    async def log_on(self) -> None:
        """Connect, start TLS, and authenticate; start a new session if the previous one was lost."""

    async def folders(self) -> Sequence[str]:
        """Return the names of all folders that can hold messages."""

    def keeps(self, flag: str) -> bool:
        """Return whether, according to the server, the folder listed last keeps a flag permanently."""

    async def structure(self, ref: MessageRef) -> Structure:
        """Return a message's parts."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """Return one part as encoded in the message."""

    async def listing(self, folders: Iterable[str]) -> Mapping[str, Sequence[Stored]]:
        """Return all messages in these folders, by folder and in order of arrival.

        A message that the server cannot read has no tag and no sender.
        """

    async def texts(self, refs: Sequence[MessageRef]) -> Mapping[MessageRef, bytes | None]:
        """Return the bodies of a few messages in one folder, leaving out those that are gone.

        None stands for a body that the mailbox does not keep as it was composed.
        """


class Provisioning(Mailbox, MessageSource, Protocol):
    """A mailbox that supports operations on many messages and on folders, for `init`, `clean` and `check`.

    Reading has no side effects: listing a folder marks no message as seen.
    """

    def path(self, folder: str) -> str:
        """Return a folder's name, independent of how the server and the scenario name special folders."""

    def folder_at(self, path: str) -> str:
        """Return the folder with this path: the inverse of `path`."""

    def name_on_server(self, folder: str) -> str:
        """Return the server's name for a folder. Raises `ServerRefused` for a level that the server cannot have."""

    @property
    def offer(self) -> ServerOffer:
        """The server's offer at the last log-on."""

    async def quotas(self) -> Sequence[Quota]:
        """Return the limits of the Inbox's quota, as far as the server states them."""

    async def rights(self, folder: str) -> str | None:
        """Return the user's rights in a folder (RFC 4314 section 2.1); None if the server does not tell."""

    async def status(self) -> Mapping[str, FolderStatus | None]:
        """Close the open folder, and return each folder's status; None where the server reports none."""

    async def create(self, folder: str) -> None:
        """Create a folder."""

    async def delete(self, folder: str) -> None:
        """Delete a folder and its messages."""

    async def message_count(self, folder: str) -> int:
        """Close the folder, since the view of an open one may be stale, and return its number of messages.

        Raises `ServerRefused` if the number is missing from the answer.
        """

    async def folder_status(self, folder: str) -> FolderStatus | None:
        """Close the folder, and return its status; None if the server leaves out a number."""

    async def append_many(self, folder: str, messages: Sequence[NewMessage]) -> Sequence[MessageRef | None]:
        """Store messages in a folder, in this order. Return their references, as `append` does."""

    async def set_flags(self, refs: Sequence[MessageRef], flags: Sequence[Flag]) -> None:
        """Give messages in one folder these flags, and clear all other `RESET_FLAGS`."""
