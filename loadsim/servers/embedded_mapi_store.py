"""The mailboxes of the embedded MAPI server, in memory: folders, messages, named properties, and delivery."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadsim.servers.embedded_mapi_wire import (
    ADDRESS_TYPE,
    BINARY,
    BOOLEAN,
    DISPLAY_NAME,
    EMAIL_ADDRESS,
    INTEGER_32,
    INTEGER_64,
    NOT_FOUND,
    RECIPIENT_TYPE,
    SMTP_ADDRESS,
    STRING,
    TIME,
    RopError,
    Values,
    encode,
    find,
    text_of,
)

READ, UNMODIFIED, SUBMITTED, UNSENT, HAS_ATTACHMENTS = 1, 2, 4, 8, 16
"""Bits of PidTagMessageFlags ([MS-OXCMSG] section 2.2.1.6)."""
MESSAGE_FLAGS = 0x0E07

INTERNET_HEADERS = uuid.UUID("00020386-0000-0000-c000-000000000046").bytes_le
PS_MAPI = uuid.UUID("00020328-0000-0000-c000-000000000046").bytes_le
FIRST_NAMED = 0x8000
"""Sets of named properties, and their first identifier ([MS-OXPROPS] section 1.3.2)."""

COMPUTED = frozenset((0x0E02, 0x0E03, 0x0E04, 0x0E08, 0x0E1B, 0x0E23, 0x0FFF, 0x0E09, 0x6748, 0x674A, 0x67A4))
"""Properties of messages that only the server sets."""

NEW_MAIL, CREATED, DELETED, MODIFIED, MOVED, COPIED = 2, 4, 8, 16, 32, 64
"""Events ([MS-OXCNOTIF] section 2.2.1.2.1.1)."""

DOMAIN_DN = "/o=loadsim/ou=Exchange Administrative Group (FYDIBOHF23SPDLT)/cn=Recipients/cn="
_ABOVE = "", "Deferred Action", "Spooler Queue", "Top of Information Store"
_SPECIAL = "Inbox", "Outbox", "Sent Items", "Deleted Items"
_HIDDEN = "Common Views", "Schedule", "Finder", "Views", "Shortcuts"
_CLASSES = {"Calendar": "IPF.Appointment", "Contacts": "IPF.Contact", "Drafts": "IPF.Note", "Tasks": "IPF.Task"}
_ENTRIES = {"Calendar": 0x36D0, "Contacts": 0x36D1, "Drafts": 0x36D7, "Tasks": 0x36D4}
"""Default folders, and the properties of root and Inbox with their entry identifiers ([MS-OXOSFLD] section 2.2.3)."""


def now() -> int:
    """Return the time in units of 100 ns since 1601 (PtypTime)."""
    return time.time_ns() // 100 + 116_444_736_000_000_000


def identifier(counter: int) -> int:
    """Return a folder or message identifier: replica 1, then the counter in big-endian order ([MS-OXCDATA] 2.2.1)."""
    return int.from_bytes(b"\x01\0" + counter.to_bytes(6, "big"), "little")


def counter_of(number: int) -> bytes:
    return number.to_bytes(8, "little")[2:]


@dataclass(slots=True, eq=False)
class Message:
    """A stored message: properties, recipients by row, attachments by number."""

    number: int
    values: Values
    recipients: dict[int, Values] = field(default_factory=dict)
    attachments: dict[int, Values] = field(default_factory=dict)
    associated: bool = False

    @property
    def flags(self) -> int:
        return int(self.values.get(MESSAGE_FLAGS, (INTEGER_32, 0))[1])

    def set_flags(self, flags: int) -> None:
        self.values[MESSAGE_FLAGS] = (INTEGER_32, flags)

    def copy(self) -> Message:
        recipients, attachments = (
            {key: dict(each) for key, each in of.items()} for of in (self.recipients, self.attachments)
        )
        return Message(self.number, dict(self.values), recipients, attachments, self.associated)


@dataclass(slots=True, eq=False)
class Folder:
    """A folder. `version` changes with each change of its rows."""

    mailbox: Mailbox
    number: int
    parent: Folder | None
    name: str
    container_class: str = "IPF.Note"
    special: bool = True
    messages: dict[int, Message] = field(default_factory=dict)
    children: dict[int, Folder] = field(default_factory=dict)
    own: Values = field(default_factory=dict)
    articles: int = 0
    deleted: int = 0
    version: int = 0
    changed: int = field(default_factory=now)

    def contents(self, associated: bool = False) -> list[Message]:
        return [message for message in self.messages.values() if message.associated == associated]

    def set(self, number: int, kind: int, value: Any) -> None:
        """Set a property; name and class have attributes of their own."""
        if kind == STRING and number == DISPLAY_NAME:
            self.name = value
        elif kind == STRING and number == 0x3613:
            self.container_class = value
        else:
            self.own[number] = (kind, value)
        self.touch()

    def below(self) -> Iterable[tuple[int, Folder]]:
        """Yield the folders below, with their depth, each before those below it."""
        for child in self.children.values():
            yield 1, child
            yield from ((depth + 1, folder) for depth, folder in child.below())

    def touch(self) -> None:
        self.version += 1
        self.changed = now()

    @property
    def values(self) -> Values:
        """The properties of this folder, and of its row in a table ([MS-OXCFOLD] section 2.2.2)."""
        contents = self.contents()
        unread = sum(not message.flags & READ for message in contents)
        parent = self.parent or self
        return self.own | {
            DISPLAY_NAME: (STRING, self.name),
            0x6748: (INTEGER_64, self.number),
            0x6749: (INTEGER_64, parent.number),
            0x0FFF: (BINARY, self.mailbox.folder_entry(self.number)),
            0x0E09: (BINARY, self.mailbox.folder_entry(parent.number)),
            0x3601: (INTEGER_32, 1 if self.parent else 0),
            0x3602: (INTEGER_32, len(contents)),
            0x3603: (INTEGER_32, unread),
            0x360A: (BOOLEAN, bool(self.children)),
            0x3613: (STRING, self.container_class),
            0x3617: (INTEGER_32, len(self.messages) - len(contents)),
            0x670A: (TIME, self.changed),
            0x670B: (INTEGER_32, self.deleted),
            0x6751: (INTEGER_32, self.articles + 1),
        }

    def put(self, message: Message) -> None:
        """Store a message, new or changed, with the properties that the server computes."""
        new = message.number not in self.messages
        if new:
            self.articles += 1
        mailbox, values = self.mailbox, message.values
        kinds = {1: 0x0E04, 2: 0x0E03, 3: 0x0E02}
        shown: dict[int, list[str]] = {number: [] for number in kinds.values()}
        for recipient in message.recipients.values():
            kind = recipient.get(RECIPIENT_TYPE, (INTEGER_32, 1))[1] & 0x0F
            shown[kinds.get(kind, 0x0E04)].append(text_of(recipient, DISPLAY_NAME) or text_of(recipient, EMAIL_ADDRESS))
        size = sum(
            len(encode(kind, value)) + 4
            if not isinstance(value, str | bytes)
            else len(value) * (1 + (kind == STRING)) + 8
            for properties in (values, *message.recipients.values(), *message.attachments.values())
            for kind, value in properties.values()
        )
        prefix, subject = text_of(values, 0x003D), text_of(values, 0x0037)
        flags = message.flags & ~HAS_ATTACHMENTS | (HAS_ATTACHMENTS if message.attachments else 0)
        stamp = now()
        values |= {number: (STRING, "; ".join(names)) for number, names in shown.items()}
        values |= {
            0x0E07: (INTEGER_32, flags),
            0x0E08: (INTEGER_32, size),
            0x0E1B: (BOOLEAN, bool(message.attachments)),
            0x0E1D: (STRING, subject.removeprefix(prefix)),
            0x0E23: values[0x0E23] if 0x0E23 in values and not new else (INTEGER_32, self.articles),
            0x0FFF: (BINARY, mailbox.message_entry(self.number, message.number)),
            0x0E09: (BINARY, mailbox.folder_entry(self.number)),
            0x3007: values.get(0x3007, (TIME, stamp)),
            0x3008: (TIME, stamp),
            0x6748: (INTEGER_64, self.number),
            0x674A: (INTEGER_64, message.number),
            0x674D: (INTEGER_64, message.number),
            0x674E: (INTEGER_32, 0),
            0x67A4: (INTEGER_64, mailbox.next_number()),
            0x001A: values.get(0x001A, (STRING, "IPM.Note")),
            0x0E06: values.get(0x0E06, (TIME, stamp)),
        }
        self.messages[message.number] = message
        self.touch()
        mailbox.notify(CREATED if new else MODIFIED, self, message)

    def drop(self, number: int) -> Message | None:
        """Remove a message, and return it; None if it is missing."""
        message = self.messages.pop(number, None)
        if message is not None:
            self.deleted += 1
            self.touch()
            self.mailbox.notify(DELETED, self, message)
        return message

    def take(self, source: Message, number: int | None = None) -> Message:
        """Store a copy of a message under a new identifier."""
        message = source.copy()
        message.number = number or self.mailbox.next_number()
        self.put(message)
        return message


class Mailbox:
    """One account's mailbox. `listeners` are told of events: kind, folder, message."""

    def __init__(self, login: str, address: str) -> None:
        self.login = login
        self.address = address
        self.dn = DOMAIN_DN + login
        self.guid = uuid.uuid4().bytes_le
        self.replica = uuid.uuid4().bytes_le
        self.listeners: set[Callable[[int, Folder, Message], None]] = set()
        self.folders: dict[int, Folder] = {}
        self._names: dict[tuple[int, bytes, int | str], int] = {}
        self._named: dict[int, tuple[int, bytes, int | str]] = {}
        self._counter = 0
        self._build()

    def _build(self) -> None:
        root = self.add(None, "", special=True)
        top = [self.add(root, name, special=True) for name in _ABOVE[1:]][-1]
        special = [self.add(top, name, special=True) for name in _SPECIAL]
        hidden = [self.add(root, name, special=True) for name in _HIDDEN]
        self.special = [root, *list(root.children.values())[:3], *special, *hidden]
        self.inbox = special[0]
        for name, container_class in _CLASSES.items():
            folder = self.add(top, name, special=True, container_class=container_class)
            for holder in (root, self.inbox):
                holder.own[_ENTRIES[name]] = (BINARY, self.folder_entry(folder.number))

    def add(
        self, parent: Folder | None, name: str, *, special: bool = False, container_class: str = "IPF.Note"
    ) -> Folder:
        folder = Folder(self, self.next_number(), parent, name, container_class, special)
        self.folders[folder.number] = folder
        if parent is not None:
            parent.children[folder.number] = folder
            parent.touch()
        return folder

    def remove(self, folder: Folder) -> None:
        for _, below in list(folder.below()):
            del self.folders[below.number]
        del self.folders[folder.number]
        if folder.parent is not None:
            del folder.parent.children[folder.number]
            folder.parent.touch()

    def next_number(self) -> int:
        self._counter += 1
        return identifier(self._counter)

    def folder(self, number: int) -> Folder:
        if number not in self.folders:
            raise RopError(NOT_FOUND)
        return self.folders[number]

    def folder_entry(self, number: int) -> bytes:
        """Return a folder's entry identifier ([MS-OXCDATA] section 2.2.4.1)."""
        return bytes(4) + self.guid + b"\x01\0" + self.replica + counter_of(number) + bytes(2)

    def message_entry(self, folder: int, number: int) -> bytes:
        """Return a message's entry identifier ([MS-OXCDATA] section 2.2.4.2)."""
        parts = (self.replica + counter_of(each) + bytes(2) for each in (folder, number))
        return bytes(4) + self.guid + b"\x07\0" + b"".join(parts)

    def named(self, name: tuple[int, bytes, int | str], create: bool) -> int:
        """Return the identifier of a named property in this mailbox; 0 if it has none."""
        kind, group, key = name
        if isinstance(key, str) and group == INTERNET_HEADERS:
            name = (kind, group, key.lower())
        if group == PS_MAPI:
            return key if isinstance(key, int) else 0
        if name not in self._names and create:
            number = FIRST_NAMED + len(self._names)
            self._names[name], self._named[number] = number, name
        return self._names.get(name, 0)

    def translated(self, values: Values, sender: Mailbox) -> Values:
        """Return properties of another mailbox's message with the identifiers that this mailbox has for their names."""
        return {
            self.named(sender._named[number], create=True) if number in sender._named else number: value
            for number, value in values.items()
        }

    def notify(self, event: int, folder: Folder, message: Message) -> None:
        for listener in tuple(self.listeners):
            listener(event, folder, message)


class Store:
    """All mailboxes, and the distribution lists by address."""

    def __init__(self, accounts: Iterable[Sequence[str]], lists: Mapping[str, Sequence[str]]) -> None:
        """`accounts` are (login, address, password), `lists` map an address to the members' addresses."""
        self.mailboxes = {login: Mailbox(login, address) for login, address, _ in accounts}
        self._by_name: dict[str, tuple[Mailbox, ...]] = {}
        self._book: dict[str, Values] = {}
        for mailbox in self.mailboxes.values():
            self._add(mailbox.login, mailbox.dn, mailbox.address, (mailbox,), display_type=0)
        for address, members in lists.items():
            name = address.partition("@")[0]
            several = tuple(self._by_name[member.lower()][0] for member in members)
            self._add(name, DOMAIN_DN + name, address, several, display_type=1)

    def _add(self, name: str, dn: str, address: str, mailboxes: tuple[Mailbox, ...], display_type: int) -> None:
        self._by_name |= {each.lower(): mailboxes for each in (address, dn)}
        entry: Values = {DISPLAY_NAME: (STRING, name), ADDRESS_TYPE: (STRING, "EX"), EMAIL_ADDRESS: (STRING, dn)}
        entry |= {SMTP_ADDRESS: (STRING, address), 0x3900: (INTEGER_32, display_type)}
        self._book |= {each.lower(): entry for each in (name, dn, address, f"SMTP:{address}")}

    def resolve(self, name: str) -> list[Values]:
        """Return the entries of the address book with this name or address, else those that begin with it."""
        name = name.lower().removeprefix("=")
        if name in self._book:
            return [self._book[name]]
        return list({id(entry): entry for each, entry in self._book.items() if name and each.startswith(name)}.values())

    def mailbox_at(self, dn: str) -> Mailbox | None:
        found = self._by_name.get(dn.lower(), ())
        return found[0] if len(found) == 1 and found[0].dn.lower() == dn.lower() else None

    def submit(self, sender: Mailbox, message: Message) -> None:
        """Deliver a message once to each member of its recipients; the sender gets a report on those that are unknown.

        The properties are those of [MS-OXOMSG] section 3.2.4.2 and 3.2.5.1.
        """
        stamp = (TIME, now())
        identity = {
            EMAIL_ADDRESS: sender.dn,
            ADDRESS_TYPE: "EX",
            DISPLAY_NAME: sender.login,
            SMTP_ADDRESS: sender.address,
        }
        roles = [(0x0C1F, 0x0C1E, 0x0C1A, 0x5D01)]
        if 0x0065 not in message.values:
            roles.append((0x0065, 0x0064, 0x0042, 0x5D02))
        for role in roles:
            message.values |= {number: (STRING, text) for number, text in zip(role, identity.values(), strict=True)}
        message.values |= {0x0039: stamp}
        message.values.setdefault(0x1035, (STRING, f"<{uuid.uuid4()}@{sender.address.rpartition('@')[2]}>"))

        targets: dict[Mailbox, None] = {}
        unknown = []
        for recipient in message.recipients.values():
            names = [text_of(recipient, number) for number in (SMTP_ADDRESS, EMAIL_ADDRESS)]
            found = next((self._by_name[name.lower()] for name in names if name.lower() in self._by_name), None)
            if found is None:
                unknown.append(next(filter(None, names), text_of(recipient, DISPLAY_NAME)))
            targets |= dict.fromkeys(found or ())
        for mailbox in targets:
            self._deliver(mailbox, sender, message)
        if unknown:
            report = Message(0, {0x001A: (STRING, "REPORT.IPM.Note.NDR")})
            report.values[0x0037] = (STRING, f"Undeliverable: {text_of(message.values, 0x0037)}")
            report.values[0x1000] = (STRING, "\r\n".join(("There are no such recipients here:", *unknown)))
            self._deliver(sender, sender, report)

    @staticmethod
    def _deliver(mailbox: Mailbox, sender: Mailbox, message: Message) -> None:
        copy = message.copy()
        copy.number = mailbox.next_number()
        copy.values = mailbox.translated(copy.values, sender)
        for left_out in (0x0E01, 0x0E0A, 0x0E23, 0x3007, 0x6740):
            copy.values.pop(left_out, None)
        for number, text in ((0x0040, mailbox.login), (0x0075, "EX"), (0x0076, mailbox.dn), (0x5D07, mailbox.address)):
            copy.values[number] = (STRING, text)
        copy.values[0x0E06] = (TIME, now())
        copy.set_flags(UNMODIFIED)
        copy.recipients = {
            row: values for row, values in copy.recipients.items() if find(values, RECIPIENT_TYPE << 16) != 3
        }
        mailbox.inbox.put(copy)
        mailbox.notify(NEW_MAIL, mailbox.inbox, copy)
