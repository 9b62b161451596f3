"""The embedded MAPI server's mailboxes, in memory: folders, messages, named properties, and delivery."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.servers.embedded_mapi.wire import DISPLAY_NAME, EMAIL_ADDRESS, SMTP_ADDRESS, Error, RopError, Values

MESSAGE_FLAGS, READ, UNMODIFIED, UNSENT, HAS_ATTACHMENTS = 0x0E070003, 1, 2, 8, 16
"""PidTagMessageFlags, and its bits ([MS-OXCMSG] section 2.2.1.6)."""
MESSAGE_CLASS, SUBJECT, DISPLAY_TO, MESSAGE_SIZE, MID = 0x001A001F, 0x0037001F, 0x0E04001F, 0x0E080003, 0x674A0014
CONTAINER_CLASS, DELIVERY_TIME = 0x3613001F, 0x0E060040
SENT_MAIL_ENTRY_ID, CREATION_TIME = 0x0E0A0102, 0x30070040
COMPUTED = {DISPLAY_TO, MESSAGE_SIZE, MID}
"""Message properties that only the server sets."""

_SENDER = 0x0C1F001F, 0x0C1E001F, 0x0C1A001F, 0x5D01001F
_REPRESENTED = 0x0065001F, 0x0064001F, 0x0042001F, 0x5D02001F
"""Properties of a message's sender, and of the person represented: address, address type, name, SMTP address."""

INTERNET_HEADERS = uuid.UUID("00020386-0000-0000-c000-000000000046").bytes_le
FIRST_NAMED = 0x8000
"""A set of named properties, and their first identifier ([MS-OXPROPS] section 1.3.2)."""

NEW_MAIL, CREATED = 2, 4
"""Events ([MS-OXCNOTIF] section 2.2.1.2.1.1)."""

DOMAIN_DN = "/o=loadsim/ou=Exchange Administrative Group (FYDIBOHF23SPDLT)/cn=Recipients/cn="
_TOP, _INBOX = 3, 4
_SPECIAL = (
    *("", "Deferred Action", "Spooler Queue", "Top of Information Store", "Inbox", "Outbox", "Sent Items"),
    *("Deleted Items", "Common Views", "Schedule", "Finder", "Views", "Shortcuts"),
)
"""A logon's folders ([MS-OXCSTOR] section 2.2.1.1.3); Inbox to Deleted Items are below the top."""


def now() -> int:
    """Return the time in units of 100 ns since 1601 (PtypTime)."""
    return time.time_ns() // 100 + 116_444_736_000_000_000


@dataclass(slots=True, eq=False)
class Message:
    """A message: its properties, recipients by row, and attachments by number."""

    number: int
    values: Values
    recipients: dict[int, Values] = field(default_factory=dict)
    attachments: dict[int, Values] = field(default_factory=dict)

    @property
    def flags(self) -> int:
        return int(self.values.get(MESSAGE_FLAGS, 0))

    def copy(self, number: int) -> Message:
        parts = [{key: dict(part) for key, part in parts.items()} for parts in (self.recipients, self.attachments)]
        return Message(number, dict(self.values), *parts)


@dataclass(slots=True, eq=False)
class Folder:
    """A folder. `version` rises with each change to its rows."""

    mailbox: Mailbox
    number: int
    parent: Folder | None
    own: Values
    special: bool
    messages: dict[int, Message] = field(default_factory=dict)
    children: dict[int, Folder] = field(default_factory=dict)
    version: int = 0
    changed: int = field(default_factory=now)

    def below(self) -> Iterator[Folder]:
        """Yield all folders below, each before its own children."""
        for child in self.children.values():
            yield child
            yield from child.below()

    def touch(self) -> None:
        self.version += 1
        self.changed = now()

    @property
    def values(self) -> Values:
        """This folder's properties, including those of its row in a table ([MS-OXCFOLD] section 2.2.2)."""
        return self.own | {
            0x67480014: self.number,
            0x67490014: (self.parent or self).number,
            0x36020003: len(self.messages),
            0x36030003: sum(not message.flags & READ for message in self.messages.values()),
            0x670A0040: self.changed,
        }

    def put(self, message: Message) -> None:
        """Store a message, new or changed, with the properties that the server computes."""
        values, parts = message.values, (*message.recipients.values(), *message.attachments.values())
        stamp = now()
        values |= {
            MESSAGE_FLAGS: message.flags & ~HAS_ATTACHMENTS | (HAS_ATTACHMENTS if message.attachments else 0),
            DISPLAY_TO: "; ".join(to[DISPLAY_NAME] or to[EMAIL_ADDRESS] for to in message.recipients.values()),
            MESSAGE_SIZE: sum(map(size_bytes, (values, *parts))),
            MID: message.number,
        }
        for tag, value in ((CREATION_TIME, stamp), (MESSAGE_CLASS, "IPM.Note"), (DELIVERY_TIME, stamp)):
            values.setdefault(tag, value)
        new = message.number not in self.messages
        self.messages[message.number] = message
        self.touch()
        if new:
            self.mailbox.notify(CREATED, self, message)

    def mark(self, number: int, flags: int) -> bool:
        """Set or clear a message's read flag; return whether it exists ([MS-OXCMSG] section 2.2.3.10.1)."""
        message = self.messages.get(number)
        if message is not None:
            message.values[MESSAGE_FLAGS] = message.flags & ~READ | (0 if flags & 4 else READ)
            self.touch()
        return message is not None

    def drop(self, number: int) -> Message | None:
        """Remove a message, and return it; None if it is missing."""
        self.touch()
        return self.messages.pop(number, None)

    def take(self, message: Message) -> None:
        """Store a copy of a message under a new identifier."""
        self.put(message.copy(self.mailbox.next_number()))


def size_bytes(values: Values) -> int:
    """Return the approximate size of properties, without encoding large ones."""
    return sum(len(value) + 4 if isinstance(value, bytes | str) else 12 for value in values.values())


class Mailbox:
    """One account's mailbox. `listeners` are called with each event: kind, folder, message."""

    def __init__(self, login: str, address: str) -> None:
        self.login = login
        self.address = address
        self.dn = DOMAIN_DN + login
        self.guid, self.replica = uuid.uuid4().bytes_le, uuid.uuid4().bytes_le
        self.listeners: set[Callable[[int, Folder, Message], None]] = set()
        self.folders: dict[int, Folder] = {}
        self._identifiers: dict[tuple[bytes, int | str], int] = {}
        self._names: dict[int, tuple[bytes, int | str]] = {}
        self._counter = 0

        self.special: list[Folder] = []
        for place, name in enumerate(_SPECIAL):
            above = None if place == 0 else self.special[_TOP if _INBOX <= place < _INBOX + 4 else 0]
            self.special.append(self.add(above, name, special=True))
        self.inbox = self.special[_INBOX]
        calendar = self.add(self.special[_TOP], "Calendar", special=True)
        calendar.own[CONTAINER_CLASS] = "IPF.Appointment"

    def add(self, parent: Folder | None, name: str, *, special: bool = False) -> Folder:
        own = {DISPLAY_NAME: name, CONTAINER_CLASS: "IPF.Note"}
        folder = Folder(self, self.next_number(), parent, own, special)
        self.folders[folder.number] = folder
        if parent is not None:
            parent.children[folder.number] = folder
            parent.touch()
        return folder

    def remove(self, folder: Folder) -> None:
        for gone in (folder, *folder.below()):
            del self.folders[gone.number]
        if folder.parent is not None:
            del folder.parent.children[folder.number]
            folder.parent.touch()

    def next_number(self) -> int:
        """Return a new identifier: replica 1, and a counter in big-endian order ([MS-OXCDATA] section 2.2.1)."""
        self._counter += 1
        return int.from_bytes(b"\x01\0" + self._counter.to_bytes(6, "big"), "little")

    def folder(self, number: int) -> Folder:
        if number not in self.folders:
            raise RopError(Error.NOT_FOUND)
        return self.folders[number]

    def named(self, group: bytes, name: int | str) -> int:
        """Return the identifier of a named property in this mailbox."""
        key = group, name.lower() if isinstance(name, str) and group == INTERNET_HEADERS else name
        if key not in self._identifiers:
            self._identifiers[key] = FIRST_NAMED + len(self._identifiers)
            self._names[self._identifiers[key]] = key
        return self._identifiers[key]

    def translated(self, values: Values, sender: Mailbox) -> Values:
        """Return the properties of another mailbox's message with this mailbox's identifiers for their names."""
        names = {tag: sender._names[tag >> 16] for tag in values if tag >> 16 in sender._names}
        tags = {tag: tag & 0xFFFF | self.named(*name) << 16 for tag, name in names.items()}
        return {tags.get(tag, tag): value for tag, value in values.items()}

    def notify(self, event: int, folder: Folder, message: Message) -> None:
        for listener in tuple(self.listeners):
            listener(event, folder, message)


class Store:
    """All mailboxes, and the address book."""

    def __init__(self, accounts: Iterable[Sequence[str]], lists: Mapping[str, Sequence[str]]) -> None:
        """`accounts` are (login, address, password), `lists` maps an address to its members' addresses."""
        self.mailboxes = {login: Mailbox(login, address) for login, address, _ in accounts}
        self._members: dict[str, tuple[Mailbox, ...]] = {}
        self.entries: dict[str, Values] = {}
        """The address book's entries, by the names that users ask for."""
        for mailbox in self.mailboxes.values():
            self._add(mailbox.login, mailbox.address, (mailbox,))
        for address, members in lists.items():
            self._add(address.partition("@")[0], address, tuple(self._members[member.lower()][0] for member in members))

    def _add(self, name: str, address: str, members: tuple[Mailbox, ...]) -> None:
        dn = DOMAIN_DN + name
        self._members |= {key.lower(): members for key in (address, dn)}
        self.entries[f"=smtp:{address}".lower()] = {DISPLAY_NAME: name, EMAIL_ADDRESS: dn, SMTP_ADDRESS: address}

    def mailbox_at(self, dn: str) -> Mailbox | None:
        members = self._members.get(dn.lower(), ())
        return next((mailbox for mailbox in members if mailbox.dn.lower() == dn.lower()), None)

    def submit(self, sender: Mailbox, message: Message) -> None:
        """Deliver a message once to each recipient or list member. Raises `RopError` if a recipient is unknown.

        The properties are those of [MS-OXOMSG] sections 3.2.4.2 and 3.2.5.1.
        """
        names = [recipient[EMAIL_ADDRESS].lower() for recipient in message.recipients.values()]
        if not all(name in self._members for name in names):
            raise RopError(Error.UNKNOWN_USER)
        targets = dict.fromkeys(mailbox for name in names for mailbox in self._members[name])
        values = message.values
        identity = sender.dn, "EX", sender.login, sender.address
        values |= dict(zip((*_SENDER, *_REPRESENTED), 2 * identity, strict=True)) | {0x00390040: now()}
        values.setdefault(0x1035001F, f"<{uuid.uuid4()}@{sender.address.rpartition('@')[2]}>")
        # Put copies into the Inboxes, unread, without the sender's private properties.
        for mailbox in targets:
            copy = message.copy(mailbox.next_number())
            copy.values = mailbox.translated(copy.values, sender)
            for left_out in (SENT_MAIL_ENTRY_ID, CREATION_TIME):
                copy.values.pop(left_out, None)
            copy.values |= {DELIVERY_TIME: now(), MESSAGE_FLAGS: UNMODIFIED}
            mailbox.inbox.put(copy)
            mailbox.notify(NEW_MAIL, mailbox.inbox, copy)
