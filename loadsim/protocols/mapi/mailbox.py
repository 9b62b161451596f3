"""One user's mailbox over MAPI: the port's calls as remote operations, and their answers as the port's values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model.content.templates import base64_lines, encoded_text
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import (
    CALENDAR,
    INBOX,
    OF_SERVER,
    SENT_ITEMS,
    Flag,
    FolderSettings,
    Header,
    Part,
    SearchKey,
    Structure,
)
from loadsim.model.provisioning_ports import FolderStatus, NewMessage, ServerOffer, Stored
from loadsim.protocols.http.mailbox import HttpMailbox, name_of, own_refs
from loadsim.protocols.http.news import News
from loadsim.protocols.imap.folder_names import SEPARATOR, FolderNames, canonical
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.address_book import AddressBook
from loadsim.protocols.mapi.composition import (
    Composed,
    NamedTags,
    composed,
    message_id_of,
    sender_properties,
    whole_body,
)
from loadsim.protocols.mapi.folders import CALENDAR_CLASS, COLUMNS, Folders, read_folders
from loadsim.protocols.mapi.objects import TABLE, Row, identifier, number, rows_of, stream_of, text, write_message
from loadsim.protocols.mapi.rop_buffer import CREATED, NEW_MAIL, Notified
from loadsim.protocols.mapi.rops import NO_HANDLE, Handle, Request
from loadsim.protocols.mapi.rows import (
    ATTACHMENTS,
    MapiRef,
    counter,
    header_columns,
    header_of,
    part_of,
    stored_columns,
    stored_of,
)
from loadsim.protocols.mapi.session import MapiSession
from loadsim.protocols.mapi.wire import Value, tag, time_of

MARGIN = 8
"""The extra rows listed beyond those announced: some mail is not announced, or not in order of arrival."""

MOST_IDS = 1000
"""The most messages that one operation moves, copies, deletes or marks."""

_MARKS = {Flag.ANSWERED: (102, 0x105), Flag.FORWARDED: (104, 0x106), None: (0, 0x100)}
"""PidTagLastVerbExecuted and PidTagIconIndex (MS-OXOMSG section 2.2.1.10) by flag; None: neither flag."""

_TEXT_PART = "1"

SEARCHED = {
    SearchKey.SENDER: (tags.SENT_REPRESENTING_SMTP_ADDRESS,),
    SearchKey.SUBJECT: (tags.SUBJECT,),
    SearchKey.TEXT: (tags.SUBJECT, tags.BODY),
}
"""The properties that a search looks at."""


@dataclass(slots=True, eq=False, repr=False)
class MapiMailbox(HttpMailbox):
    """Implements `Provisioning`, which includes `ports.Mailbox`, over a session that submission shares.

    The open folder has a contents table, sorted by delivery time, which the server keeps up to date (MS-OXCTABL). The
    last message read stays open.
    """

    session: MapiSession
    book: AddressBook
    settings: FolderSettings = OF_SERVER
    messages: int = field(default=0, init=False)
    sent_ids: set[str] = field(default_factory=set, init=False)  # Message-IDs, until they are saved
    named: NamedTags = field(default_factory=dict, init=False)
    _folders: Folders = field(default_factory=Folders, init=False)
    _news: News[int | None, int] = field(default_factory=lambda: News(0), init=False)
    _open: str | None = field(default=None, init=False)
    _folder: Handle = field(default_factory=Handle, init=False)  # the open folder, and its table
    _table: Handle = field(default_factory=Handle, init=False)
    _registered: bool = field(default=False, init=False)  # for events of the Inbox
    _shown: Hashable = field(default=None, init=False)  # the open message, and the stream of its text, if open
    _message: Handle = field(default_factory=Handle, init=False)
    _stream: Request[int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.session.on_events = self._on_events

    # --- the session ---

    async def log_on(self) -> None:
        """Connect and Logon, and get the numbers of named properties (MS-OXCPRPT section 2.2.12)."""
        self._leave()
        names = [name for name, _ in tags.NAMED.values()]
        try:
            ids = await self.session.log_on(
                lambda: self.book.mailbox_dn(self.session), lambda at: rops.get_property_ids_from_names(at, names)
            )
        except ServerRefused:
            self.book.dns.pop(self.session.account.address, None)  # it may be out of date
            raise
        if len(ids) != len(tags.NAMED) or not all(ids):
            self.session.abandon()
            raise ServerRefused("named properties without numbers", f"expected {len(tags.NAMED)}")
        self.named = {key: tag(number, kind) for (key, (_, kind)), number in zip(tags.NAMED.items(), ids, strict=True)}

    def _leave(self) -> None:
        """Forget the objects and events of a session that is over."""
        self._close()
        self._shown, self._message, self._stream = None, Handle(), None
        self._registered = False
        self._news.forget_events()

    def _close(self) -> None:
        self._open, self._folder, self._table = None, Handle(), Handle()

    # --- folders ---

    async def folders(self) -> Sequence[str]:
        """Return all levels of the hierarchy table (MS-OXCFOLD section 2.2.1.13)."""
        with self.session as logon:
            return list((await self._hierarchy(logon)).numbers)

    async def _hierarchy(self, logon: rops.LoggedOn) -> Folders:
        top = rops.open_folder(self.session.mailbox, logon.folder_ids[rops.IPM_SUBTREE])
        listed = rops.get_hierarchy_table(top.opened, 0x04 | TABLE)
        batch = [top, listed, rops.set_columns(listed.opened, COLUMNS)]
        rows = await rows_of(self.session, "GetHierarchyTable", batch, listed.opened, COLUMNS)
        self.session.unused += [top.opened, listed.opened]
        self._folders = read_folders(rows, logon, self.settings)
        return self._folders

    async def _number(self, folder: str) -> int:
        """Return a folder's number. Raises `ServerRefused` if there is no such folder."""
        if folder not in self._folders.numbers and self.session.logon is not None:
            await self._hierarchy(self.session.logon)
        if folder not in self._folders.numbers:
            raise ServerRefused("no such folder", folder)
        return self._folders.numbers[folder]

    def _folder_in(self, batch: list[Request[Any]], folder_id: int) -> Handle:
        """Return a folder, opened by the batch unless it is already open."""
        if self._open is not None and self._folders.numbers.get(self._open) == folder_id:
            return self._folder
        batch.append(opening := rops.open_folder(self.session.mailbox, folder_id))
        return opening.opened

    async def _done(self, name: str, batch: Sequence[Request[Any]], *opened: Handle) -> None:
        """Execute a batch. Release these objects with the next one, except the open folder."""
        await self.session.execute(name, batch)
        self.session.unused += [handle for handle in opened if handle is not self._folder]

    # --- looking ---

    async def open(self, folder: str) -> None:
        """Open a folder and its contents table, unless it is open."""
        with self.session:
            await self._opened(canonical(folder))
            self._announce()

    async def _opened(self, folder: str) -> None:
        if self._open != folder:
            await self._view(folder, 0)

    async def _view(self, folder: str, most: int | None) -> list[Row]:
        """Open a folder with a new table, and return at most `most` rows from its end (None: all).

        A session subscribes to the Inbox's events when it first opens it.
        """
        folder_id = await self._number(folder)
        self.session.unused += [self._table, self._folder]
        self._close()
        columns = header_columns(self.named)
        opening = rops.open_folder(self.session.mailbox, folder_id)
        listed = rops.get_contents_table(opening.opened, TABLE)
        by_time = rops.sort_table(listed.opened, [(tags.MESSAGE_DELIVERY_TIME, rops.ASCENDING)])
        batch: list[Request[Any]] = [opening, listed, rops.set_columns(listed.opened, columns), by_time]
        if folder == INBOX and not self._registered:
            batch.insert(0, rops.register_notification(self.session.mailbox, NEW_MAIL | CREATED, folder_id))
        name = "GetContentsTable" if most == 0 else "QueryRows"
        rows = await rows_of(self.session, name, batch, listed.opened, columns, most)
        self._open, self._folder, self._table = folder, opening.opened, listed.opened
        self._registered = self._registered or folder == INBOX
        self.messages = listed.answer
        return rows

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """QueryRows of a new table, all rows or the last ones (MS-OXCTABL section 2.2.2.5)."""
        folder = canonical(folder)
        with self.session:
            rows = await self._view(folder, newest)
            if not rows and self.messages and newest != 0:
                raise ServerRefused("QueryRows without rows", f"none of {self.messages} messages of {folder}")
            if folder == INBOX:
                self._news.take(map(_entry, rows), is_whole=newest is None or len(rows) < newest)
                self._announce()
            return self._headers(folder, rows)

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        """QueryRows of another table of the folder, restricted to the words (MS-OXCTABL section 2.2.2.4)."""
        folder = canonical(folder)
        with self.session:
            await self._opened(folder)
            columns = header_columns(self.named)
            listed = rops.get_contents_table(self._folder, TABLE)
            by_time = rops.sort_table(listed.opened, [(tags.MESSAGE_DELIVERY_TIME, rops.ASCENDING)])
            found = rops.restrict(listed.opened, SEARCHED[key], words)
            batch: list[Request[Any]] = [listed, rops.set_columns(listed.opened, columns), by_time, found]
            rows = await rows_of(self.session, "Restrict", batch, listed.opened, columns, newest)
            self.session.unused.append(listed.opened)
            self._announce()
            return self._headers(folder, rows)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """QueryRows at the end of the Inbox's table, of more and more rows until an old one appears."""
        news = self._news
        with self.session:
            if reopen:
                self._open = None
            most = len(news.expected) + MARGIN
            while True:
                await self._opened(INBOX)
                rows = await rows_of(self.session, "QueryRows", [], self._table, header_columns(self.named), most)
                new = [row for row in rows if news.is_new(*_entry(row), reopen)]
                if len(new) < len(rows) or len(rows) < most:
                    break
                most *= 4
            news.take(map(_entry, new))
            news.expected.clear()
            self._announce()
            return self._headers(INBOX, new)

    def _headers(self, folder: str, rows: Sequence[Row]) -> list[Header]:
        domain, addresses = self.session.account.domain, self.book.addresses
        in_order = sorted(rows, key=lambda row: (number(row[1]) or 0, counter(row[0])))
        return [header_of(folder, row, domain, addresses) for row in in_order]

    async def watch(self) -> None:
        """Open the Inbox, and wait by NotificationWait, which continues during later calls."""
        with self.session:
            await self._opened(INBOX)
            self._announce()
            await self.session.wait()

    def _on_events(self, events: Sequence[Notified]) -> None:
        logon = self.session.logon
        inbox = None if logon is None else logon.folder_ids[rops.INBOX]
        for event in events:
            if event.event & (NEW_MAIL | CREATED) and event.folder_id == inbox and event.message_id is not None:
                self._news.event(event.message_id)
        self._announce()

    def _announce(self) -> None:
        """Announce the messages that events have reported, if the Inbox is open."""
        if self._open == INBOX and (new := self._news.tell()):
            self.session.observer.arrived(new)

    # --- reading ---

    async def structure(self, ref: Hashable) -> Structure:
        """OpenMessage, the table of attachments, and the size of the text's stream (MS-OXCMSG section 2.2.3)."""
        with self.session:
            return await self._structure(ref)

    async def _structure(self, ref: Hashable) -> Structure:
        batch, message = await self._message_in(ref, again=True)
        listed = rops.get_attachment_table(message, 0x40)
        text = rops.open_stream(message, tags.BODY)
        text.may_fail = True  # a message may have no text
        batch += [listed, rops.set_columns(listed.opened, ATTACHMENTS), text]
        rows = await rows_of(self.session, "OpenMessage", batch, listed.opened, ATTACHMENTS)
        self.session.unused.append(listed.opened)
        self._stream = None if text.failed else text
        shown = None if text.failed else Part(_TEXT_PART, "text/plain", text.answer // 2, None, "")
        return Structure(shown, tuple(map(part_of, rows)))

    async def part(self, ref: Hashable, part: Part) -> bytes:
        """ReadStream of the text or a file (MS-OXCPRPT section 2.2.15), encoded as `composition` explains."""
        with self.session:
            if part.name == _TEXT_PART:
                return encoded_text(await self._text(ref))
            if part.name == "HEADER":
                return (await self._text(ref, tags.TRANSPORT_MESSAGE_HEADERS)).encode()
            if not part.name.isdecimal():
                raise MailMissing("no such part", part.name)
            return base64_lines(await self._file(ref, part))

    async def _body(self, ref: Hashable) -> bytes | None:
        """Return the body as it was composed; None if the message has files that loadsim would not compose."""
        structure = await self._structure(ref)
        text = await self._text(ref)
        files = [(part, await self._file(ref, part)) for part in structure.attachments]
        asked = rops.get_properties_specific(self._message, (self.named["tag"], self.named["sent_tag"]))
        await self.session.execute("GetPropertiesSpecific", [asked])
        tag_text = next((value for value in asked.answer if isinstance(value, str)), "")
        tag = MessageTag.parse(tag_text)
        return None if tag is None else whole_body(tag_text, tag, text, files)

    async def _file(self, ref: Hashable, part: Part) -> bytes:
        batch, message = await self._message_in(ref)
        attachment = rops.open_attachment(message, int(part.name) - 2)
        stream = rops.open_stream(attachment.opened, tags.ATTACH_DATA)
        data = await stream_of(self.session, [*batch, attachment, stream], stream)
        self.session.unused += [stream.opened, attachment.opened]
        return data

    async def _text(self, ref: Hashable, property_tag: int = tags.BODY) -> str:
        batch, message = await self._message_in(ref)
        stream = self._stream if property_tag == tags.BODY else None
        if stream is not None:
            self._stream = None
        else:
            stream = rops.open_stream(message, property_tag)
            batch.append(stream)
        data = await stream_of(self.session, batch, stream)
        self.session.unused.append(stream.opened)
        return data.decode("utf-16-le", "replace").removesuffix("\0")

    async def _message_in(self, ref: Hashable, again: bool = False) -> tuple[list[Request[Any]], Handle]:
        """Return a batch and a message, which the batch opens in place of the last one unless it is already open."""
        if self._shown == ref and self._message.number != NO_HANDLE and not again:
            return [], self._message
        assert isinstance(ref, MapiRef), "a reference of another driver"
        opening = rops.open_message(self.session.mailbox, await self._number(ref.folder), ref.message)
        self.session.unused += [self._message, *([self._stream.opened] if self._stream else [])]
        self._shown, self._message, self._stream = ref, opening.opened, None
        return [opening], opening.opened

    # --- changing ---

    async def flag(self, refs: Sequence[Hashable], flag: Flag, on: bool = True) -> None:
        """SetReadFlags, or each message's last verb and icon. Raises `MailMissing` if one is gone."""
        with self.session:
            if flag == Flag.SEEN:
                await self._mark_read(refs, on)
            else:
                await self._mark(refs, flag if on else None)

    async def _mark_read(self, refs: Sequence[Hashable], on: bool) -> None:
        await self._on_each(refs, lambda folder, ids: rops.set_read_flags(folder, 0x01 if on else 0x05, ids))

    async def _mark(self, refs: Sequence[Hashable], flag: Flag | None) -> None:
        verb, icon = _MARKS[flag]
        for folder_id, ids in await self._portions(refs, most=20):
            batch: list[Request[Any]] = []
            for message_id in ids:
                opening = rops.open_message(self.session.mailbox, folder_id, message_id, mode=1)
                at = opening.opened
                marked = rops.set_properties(at, [(tags.LAST_VERB_EXECUTED, verb), (tags.ICON_INDEX, icon)])
                batch += [opening, marked, rops.save_changes_message(at), rops.release(at)]
            await self.session.execute("SetProperties", batch)

    async def move(self, refs: Sequence[Hashable], folder: str) -> None:
        await self._move_or_copy(refs, folder, copies=False)

    async def copy(self, refs: Sequence[Hashable], folder: str) -> None:
        await self._move_or_copy(refs, folder, copies=True)

    async def _move_or_copy(self, refs: Sequence[Hashable], folder: str, copies: bool) -> None:
        """MoveCopyMessages (MS-OXCFOLD section 2.2.1.6)."""
        with self.session:
            target_id = await self._number(canonical(folder))
            await self._on_each(refs, partial(rops.move_copy_messages, copy=copies), target_id)

    async def expunge(self, refs: Sequence[Hashable]) -> None:
        """DeleteMessages (MS-OXCFOLD section 2.2.1.11)."""
        with self.session:
            await self._on_each(refs, rops.delete_messages)

    async def _on_each(self, refs: Sequence[Hashable], make: Callable[..., Request[None]], *other_folders: int) -> None:
        """Execute an operation on messages, given their folder, any other folders, and the ids."""
        for folder_id, ids in await self._portions(refs):
            batch: list[Request[Any]] = []
            folders = [self._folder_in(batch, number) for number in (folder_id, *other_folders)]
            batch.append(made := make(*folders, ids))
            await self._done(made.name, batch, *folders)

    async def _portions(self, refs: Sequence[Hashable], most: int = MOST_IDS) -> Sequence[tuple[int, tuple[int, ...]]]:
        """Return the messages' ids in portions of at most `most`, each with their folder's number."""
        if not refs:
            return ()
        known = own_refs(refs, MapiRef)
        folder_id = await self._number(known[0].folder)
        ids = tuple([ref.message for ref in known])
        return [(folder_id, ids[at : at + most]) for at in range(0, len(ids), most)]

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MapiRef | None:
        """CreateMessage and SaveChangesMessage, except for a sent message's copy, which the server stores itself."""
        folder = canonical(folder)
        with self.session:
            if folder == SENT_ITEMS and (sent := message_id_of(message)) in self.sent_ids:
                self.sent_ids.discard(sent)
                return None
            return await self._append(folder, composed(message, self.named), flags, None)

    async def _append(self, folder: str, message: Composed, flags: Sequence[Flag], received_us: int | None) -> MapiRef:
        folder_id = await self._number(folder)
        verb = _verb_among(flags)
        properties: list[tuple[int, Value]] = [
            *sender_properties(message.sender),
            (tags.MESSAGE_FLAGS, tags.READ if Flag.SEEN in flags else 0),
        ]
        if verb is not None:
            properties += zip((tags.LAST_VERB_EXECUTED, tags.ICON_INDEX), _MARKS[verb], strict=True)
        if at_us := received_us or message.date_us:
            properties.append((tags.MESSAGE_DELIVERY_TIME, time_of(at_us)))
        name = "SaveChangesMessage"
        made = await write_message(self.session, name, folder_id, message, properties, message.to)
        return MapiRef(folder, made)

    # --- for initialise and clean ---

    async def create(self, folder: str) -> None:
        """CreateFolder (MS-OXCFOLD section 2.2.1.2); a calendar gets its class."""
        with self.session as logon:
            above, name = await self._parent(logon, folder)
            batch: list[Request[Any]] = []
            parent = self._folder_in(batch, above)
            batch.append(made := rops.create_folder(parent, name_of(name)))
            if folder == CALENDAR:
                batch.append(rops.set_properties(made.opened, [(tags.CONTAINER_CLASS, CALENDAR_CLASS)]))
            await self._done("CreateFolder", batch, parent, made.opened)
            self._forget_numbers()

    async def delete(self, folder: str) -> None:
        """DeleteFolder with its messages (MS-OXCFOLD section 2.2.1.3)."""
        with self.session as logon:
            folder_id = await self._number(folder)
            above, _ = await self._parent(logon, folder)
            if self._open == folder:
                self._open = None
            batch: list[Request[Any]] = []
            parent = self._folder_in(batch, above)
            await self._done("DeleteFolder", [*batch, rops.delete_folder(parent, 0x01 | 0x10, folder_id)], parent)
            self._forget_numbers()

    async def _parent(self, logon: rops.LoggedOn, folder: str) -> tuple[int, str]:
        """Return the number of a folder's parent, and the folder's name in it."""
        parent, _, name = self.path(folder).rpartition(SEPARATOR)
        return await self._number(self.folder_at(parent)) if parent else logon.folder_ids[rops.IPM_SUBTREE], name

    def _forget_numbers(self) -> None:
        """Forget the folders' numbers; the next call that needs one asks for all."""
        self._folders = replace(self._folders, numbers={})

    @property
    def names(self) -> FolderNames:
        return self._folders.names

    @property
    def offer(self) -> ServerOffer:
        """The log-on method; MAPI states no capabilities."""
        return ServerOffer(frozenset(), self._method)

    async def status(self) -> Mapping[str, FolderStatus | None]:
        """Return the status of all folders in the hierarchy table."""
        with self.session as logon:
            return (await self._hierarchy(logon)).status

    async def message_count(self, folder: str) -> int:
        status = await self.folder_status(folder)
        if status is None:
            raise ServerRefused("no number of messages", folder)
        return status.messages

    async def folder_status(self, folder: str) -> FolderStatus | None:
        status = await self.status()
        if canonical(folder) not in status:
            raise ServerRefused("no such folder", folder)
        return status[canonical(folder)]

    async def listing(self, folders: Iterable[str]) -> Mapping[str, Sequence[Stored]]:
        """Return all rows of each folder, in the order in which the server numbered the messages."""
        messages: dict[str, Sequence[Stored]] = {}
        with self.session:
            for folder in folders:
                opening = rops.open_folder(self.session.mailbox, await self._number(folder))
                listed = rops.get_contents_table(opening.opened, TABLE)
                columns = (*stored_columns(self.named), tags.IN_REPLY_TO_ID, tags.CREATION_TIME)
                batch = [opening, listed, rops.set_columns(listed.opened, columns)]
                rows = await rows_of(self.session, "QueryRows", batch, listed.opened, columns)
                self.session.unused += [opening.opened, listed.opened]
                rows.sort(key=lambda row: (number(row[-1]) or 0, counter(row[0])))
                messages[folder] = [stored_of(folder, row)._replace(in_reply_to=text(row[-2])) for row in rows]
        return messages

    async def texts(self, refs: Sequence[Hashable]) -> dict[Hashable, bytes | None]:
        """Return the bodies as they were composed, rebuilt from each message's text and file."""
        bodies: dict[Hashable, bytes | None] = {}
        with self.session:
            for ref in refs:
                with suppress(MailMissing):
                    bodies[ref] = await self._body(ref)
        return bodies

    async def append_many(self, folder: str, messages: Sequence[NewMessage]) -> Sequence[MapiRef | None]:
        """Store each message as `append` does."""
        with self.session:
            return [
                await self._append(canonical(folder), composed(new.message, self.named), new.flags, new.received_us)
                for new in messages
            ]

    async def set_flags(self, refs: Sequence[Hashable], flags: Sequence[Flag]) -> None:
        with self.session:
            await self._mark_read(refs, Flag.SEEN in flags)
            await self._mark(refs, _verb_among(flags))


def _entry(row: Row) -> tuple[int | None, int]:
    """Return a message's number and delivery time."""
    return identifier(row[0]), number(row[1]) or 0


def _verb_among(flags: Sequence[Flag]) -> Flag | None:
    return next((flag for flag in (Flag.FORWARDED, Flag.ANSWERED) if flag in flags), None)
