"""One user's mailbox over JMAP: the port's calls as method calls, and their responses as the port's values."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model.ports import (
    INBOX,
    OF_SERVER,
    RESET_FLAGS,
    SENT_ITEMS,
    Flag,
    FolderSettings,
    Header,
    Part,
    SearchKey,
    Structure,
)
from loadsim.model.provisioning_ports import FolderStatus, NewMessage, ServerOffer, Stored
from loadsim.model.terms import JMAP_POLL
from loadsim.protocols.http.mailbox import HttpMailbox, name_of, own_refs
from loadsim.protocols.imap.folder_names import SEPARATOR, FolderNames, canonical
from loadsim.protocols.jmap import mail
from loadsim.protocols.jmap.calls import UNKNOWN, Call, check_set
from loadsim.protocols.jmap.folders import PROPERTIES, MailboxNames, read_folders
from loadsim.protocols.jmap.imports import Importer, message_id_of, portions, sent_us_of
from loadsim.protocols.jmap.lists import NEWS, STATE, Lists, entry
from loadsim.protocols.jmap.mail import JmapRef, ShownPart
from loadsim.protocols.jmap.session import JmapSession
from loadsim.protocols.jmap.values import Members

MAILBOXES = Call("Mailbox/get", {"ids": None, "properties": PROPERTIES})

SEARCHED = {SearchKey.SENDER: "from", SearchKey.SUBJECT: "subject", SearchKey.TEXT: "text"}
"""The conditions of searches (RFC 8621 section 4.4.1)."""


@dataclass(slots=True, eq=False, repr=False)
class JmapMailbox(HttpMailbox):
    """Implements `Provisioning`, which includes `ports.Mailbox`, over a session that submission shares.

    No folder is open on the server; the driver knows which one the user looks at.
    """

    session: JmapSession
    settings: FolderSettings = OF_SERVER
    messages: int = field(default=0, init=False)
    sent: dict[str, str] = field(default_factory=dict, init=False)  # Emails by Message-ID, until they are saved
    identities: dict[str, str] = field(default_factory=dict, init=False)  # ids by address in lower case
    lists: Lists = field(init=False)
    imports: Importer = field(init=False)
    _folders: MailboxNames = field(default_factory=MailboxNames, init=False)
    _listed_at_log_on: bool = field(default=False, init=False)  # the folders, and not asked for since
    _open: str | None = field(default=None, init=False)
    _shown: tuple[Hashable, Mapping[str, ShownPart]] = field(default=(None, {}), init=False)

    def __post_init__(self) -> None:
        self.session.on_state = self._on_state
        self.lists, self.imports = Lists(self.session), Importer(self.session)

    # --- the session ---

    async def log_on(self) -> None:
        """Get the session resource, and then mailboxes and identities in one request."""
        self._leave()
        identities = Call("Identity/get", {"ids": None})
        answers = await self.session.log_on(lambda resource: [MAILBOXES, *([identities] if resource.submits else [])])
        self._folders, self._listed_at_log_on = read_folders(answers[0].objects("list"), self.settings), True
        found = answers[1].objects("list") if len(answers.calls) > 1 else ()
        self.identities = {each.text("email").lower(): each.id("id") for each in reversed(found)}

    def _leave(self) -> None:
        self._open, self._shown = None, (None, {})

    # --- folders ---

    async def folders(self) -> Sequence[str]:
        """Mailbox/get, unless the log-on has just got the mailboxes."""
        with self.session:
            if not self._listed_at_log_on:
                await self._list_folders()
            self._listed_at_log_on = False
            return list(self._folders.ids)

    async def _list_folders(self) -> MailboxNames:
        answers = await self.session.ask([MAILBOXES])
        self._folders = read_folders(answers[0].objects("list"), self.settings)
        return self._folders

    async def id_of(self, folder: str) -> str:
        """Return a mailbox's id. Raises `ServerRefused` if there is no such folder."""
        if folder not in self._folders.ids:
            await self._list_folders()
        if folder not in self._folders.ids:
            raise ServerRefused("no such folder", folder)
        return self._folders.ids[folder]

    def known_id_of(self, folder: str) -> str | None:
        """Return the mailbox's id in the last list of folders."""
        return self._folders.ids.get(folder)

    # --- looking ---

    async def open(self, folder: str) -> None:
        with self.session:
            await self._look_at(canonical(folder))
            self._announce()

    async def _look_at(self, folder: str) -> str:
        mailbox_id = await self.id_of(folder)
        self._open = folder
        return mailbox_id

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """Email/query and Email/get of its results, the newest first, and Mailbox/get for the number of messages."""
        folder = canonical(folder)
        with self.session:
            mailbox_id = await self._look_at(folder)
            count = Call("Mailbox/get", {"ids": [mailbox_id], "properties": ["id", "totalEmails"]})
            emails: list[Members] = []
            lead = [count, STATE] if folder == INBOX and self.lists.state is None else [count]
            async for answers, page in self.lists.pages({"inMailbox": mailbox_id}, mail.LISTED, newest, lead):
                if lead:
                    found = answers[0].objects("list")
                    if not found:
                        self._folders = replace(self._folders, ids={})
                        raise ServerRefused("no such folder", folder)
                    self.messages = found[0].number("totalEmails")
                    self.lists.take_state(answers, 1, lead)
                    lead = []
                emails += page
            if not emails and self.messages and newest != 0:
                raise ServerRefused("Email/query without data", f"none of {self.messages} messages of {folder}")
            if folder == INBOX:
                self.lists.news.take(map(entry, emails), is_whole=newest is None or len(emails) < newest)
                self._announce()
            return self._headers(folder, emails)

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        """Email/query with the words (RFC 8621 section 4.4.1), and Email/get of its results."""
        folder = canonical(folder)
        with self.session:
            sought = {"inMailbox": await self._look_at(folder), SEARCHED[key]: words}
            found = [email async for _, page in self.lists.pages(sought, mail.LISTED, newest) for email in page]
            self._announce()
            return self._headers(folder, found)

    def _headers(self, folder: str, newest_first: Sequence[Members]) -> list[Header]:
        domain = self.session.account.domain
        return [mail.header_of(folder, email, domain) for email in reversed(newest_first)]

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """Email/changes, and Email/get of what it lists as created, and of Emails announced before."""
        with self.session:
            inbox = await self._look_at(INBOX)
            emails = await self.lists.new(inbox, reopen)
            self._announce()
            return self._headers(INBOX, emails)

    async def watch(self) -> None:
        """Look at the Inbox, and wait for pushed states, or else ask for changes at intervals, during later calls."""
        with self.session:
            await self._look_at(INBOX)
            if self.lists.state is None:
                self.lists.take_state(await self.session.ask([STATE]), 0, [STATE])
            self._announce()
            await self.session.wait()

    async def _on_state(self, state: str | None, at_ns: int | None) -> None:
        """Look for new mail after a push, unless its state is known."""
        if self.lists.state is None or state == self.lists.state or INBOX not in self._folders.ids:
            return
        name = "" if self.session.pushes else JMAP_POLL.removeprefix("JMAP ")
        try:
            await self.lists.changes(self._folders.ids[INBOX], NEWS, name)
        except ServerRefused as failure:  # the next push or list shows the mail
            if failure.kind.startswith(UNKNOWN):
                self.session.observer.arrived(1, at_ns)  # the user lists the Inbox, by a query
        self._announce(at_ns)

    def _announce(self, at_ns: int | None = None) -> None:
        """Announce new mail, if the user looks at the Inbox."""
        if self._open == INBOX and (new := self.lists.news.tell()):
            self.session.observer.arrived(new, at_ns)

    # --- reading ---

    async def structure(self, ref: Hashable) -> Structure:
        """Email/get of the parts, with the value of the text."""
        with self.session:
            structure, parts = mail.structure_of(await self._got(ref, mail.SHOWN))
            self._shown = ref, parts
            return structure

    async def part(self, ref: Hashable, part: Part) -> bytes:
        """The text that the structure came with, or a download; loadsim's part "" is the whole message."""
        with self.session:
            at, of_part = part.name, part.name.removesuffix(".HEADER")
            if at in ("", "HEADER"):
                whole = await self._whole(ref)
                return whole if not at else mail.header_section(whole)
            if self._shown[0] != ref:
                self._shown = ref, mail.structure_of(await self._got(ref, mail.SHOWN))[1]
            found = self._shown[1].get(at) or self._shown[1].get(of_part)
            if found is None:
                raise MailMissing("no such part", at)
            if found.text is not None:
                return mail.shown_text(found.text)
            blob = await self.session.download(found.blob)
            return mail.header_section(blob) if at not in self._shown[1] else mail.encoded_part(part, blob)

    async def _got(self, ref: Hashable, asked: Mapping[str, Any]) -> Members:
        assert isinstance(ref, JmapRef), "a reference of another driver"
        found = (await self.session.ask([Call("Email/get", {"ids": [ref.email], **asked})]))[0].objects("list")
        if not found:
            raise MailMissing("notFound Email/get", ref.folder)
        return found[0]

    async def _whole(self, ref: Hashable) -> bytes:
        return await self.session.download((await self._got(ref, {"properties": ("id", "blobId")})).text("blobId"))

    # --- changing ---

    async def flag(self, refs: Sequence[Hashable], flag: Flag, on: bool = True) -> None:
        """Email/set of a keyword."""
        with self.session:
            await self.imports.update(_emails(refs), {f"keywords/{mail.KEYWORDS[flag]}": True if on else None})

    async def move(self, refs: Sequence[Hashable], folder: str) -> None:
        """Email/set of mailboxIds: out of one, into the other."""
        with self.session:
            target, left = await self.id_of(canonical(folder)), await self._left(refs)
            if target != left:
                await self.imports.update(_emails(refs), {f"mailboxIds/{left}": None, f"mailboxIds/{target}": True})

    async def copy(self, refs: Sequence[Hashable], folder: str) -> None:
        """Email/set of a further mailbox: copies within an account are one Email."""
        with self.session:
            await self.imports.update(_emails(refs), {f"mailboxIds/{await self.id_of(canonical(folder))}": True})

    async def expunge(self, refs: Sequence[Hashable]) -> None:
        """Email/get of the mailboxes, and Email/set, which destroys the Emails that are in no other one."""
        with self.session as resource:
            left, ids = await self._left(refs), _emails(refs)
            for portion in portions(ids, min(resource.objects_in_get, resource.objects_in_set)):
                got = await self.session.ask([Call("Email/get", {"ids": portion, "properties": ["id", "mailboxIds"]})])
                elsewhere = [
                    email.id("id") for email in got[0].objects("list") if email.names_in("mailboxIds") - {left}
                ]
                alone = [email_id for email_id in portion if email_id not in elsewhere]
                update = {email_id: {f"mailboxIds/{left}": None} for email_id in elsewhere}
                answer = (await self.session.ask([Call("Email/set", {"update": update, "destroy": alone})]))[0]
                check_set(answer, "Email/set", updated=elsewhere, destroyed=alone)

    async def try_if_in_state(self, ref: Hashable) -> None:
        """Email/set with an outdated ifInState (RFC 8620 section 5.3); the check of states gets it if it is made."""
        with self.session:
            update = {email_id: {"keywords/$seen": True} for email_id in _emails([ref])}
            try:
                (await self.session.ask([Call("Email/set", {"ifInState": "outdated", "update": update})]))[0]
            except ServerRefused:
                return
            if self.session.check is not None:
                self.session.check.ignored_if_in_state()

    async def _left(self, refs: Sequence[Hashable]) -> str:
        """Return the mailbox of these messages, which are in one folder."""
        folder = next((ref.folder for ref in refs if isinstance(ref, JmapRef)), INBOX)
        return await self.id_of(folder)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> JmapRef | None:
        """Upload and Email/import, except for a sent message's copy, which submission has put there."""
        folder = canonical(folder)
        with self.session:
            if folder == SENT_ITEMS and (sent := self.sent.pop(message_id_of(message), None)) is not None:
                return JmapRef(folder, sent)
            (stored,) = await self.imports.store(await self.id_of(folder), [NewMessage(message, flags)])
            return JmapRef(folder, stored)

    # --- for initialise and clean ---

    async def create(self, folder: str) -> None:
        """Mailbox/set (RFC 8621 section 2.5)."""
        with self.session:
            parent, _, name = self.path(folder).rpartition(SEPARATOR)
            above = await self.id_of(self.folder_at(parent)) if parent else None
            made = {"name": name_of(name), "parentId": above}
            answers = await self.session.ask([Call("Mailbox/set", {"create": {"m": made}})])
            check_set(answers[0], "Mailbox/set", created=["m"])
            self._folders = replace(self._folders, ids={})

    async def delete(self, folder: str) -> None:
        """Mailbox/set with onDestroyRemoveEmails."""
        with self.session:
            gone = [await self.id_of(folder)]
            arguments = {"destroy": gone, "onDestroyRemoveEmails": True}
            check_set((await self.session.ask([Call("Mailbox/set", arguments)]))[0], "Mailbox/set", destroyed=gone)
            self._folders = replace(self._folders, ids={})

    @property
    def names(self) -> FolderNames:
        return self._folders.names

    @property
    def offer(self) -> ServerOffer:
        """The largest upload, and the log-on method."""
        resource = self.session.logon
        return ServerOffer(frozenset([f"APPENDLIMIT={resource.upload_bytes}"] if resource else ()), self._method)

    async def status(self) -> Mapping[str, FolderStatus | None]:
        """Return all folders, without a status: no number of JMAP tells if a mailbox has changed."""
        with self.session:
            return dict.fromkeys((await self._list_folders()).ids)

    async def message_count(self, folder: str) -> int:
        with self.session:
            counts = (await self._list_folders()).messages
        if canonical(folder) not in counts:
            raise ServerRefused("no such folder", folder)
        return counts[canonical(folder)]

    async def folder_status(self, folder: str) -> FolderStatus | None:
        return None

    async def listing(self, folders: Iterable[str]) -> Mapping[str, Sequence[Stored]]:
        """Email/query and Email/get of all Emails in each folder, the oldest first, by their tags within a second."""
        stored: dict[str, Sequence[Stored]] = {}
        with self.session:
            for folder in dict.fromkeys(map(canonical, folders)):
                sought = {"inMailbox": await self.id_of(folder)}
                pages = self.lists.pages(sought, mail.STORED, newest_first=False)
                found = [(mail.age_of(e), mail.stored_of(folder, e)) async for _, page in pages for e in page]
                stored[folder] = [each for _, each in sorted(found, key=itemgetter(0))]
        return stored

    async def texts(self, refs: Sequence[Hashable]) -> dict[Hashable, bytes | None]:
        """Download each message."""
        texts: dict[Hashable, bytes | None] = {}
        with self.session:
            for ref in refs:
                with suppress(MailMissing):
                    texts[ref] = (await self._whole(ref)).partition(b"\r\n\r\n")[2]
        return texts

    async def append_many(self, folder: str, messages: Sequence[NewMessage]) -> Sequence[JmapRef | None]:
        """Store messages without a date as received when sent: a list goes by seconds, and has ties in any order."""
        folder = canonical(folder)
        dated = [new._replace(received_us=new.received_us or sent_us_of(new.message)) for new in messages]
        with self.session:
            stored = await self.imports.store(await self.id_of(folder), dated)
            return [JmapRef(folder, email_id) for email_id in stored]

    async def set_flags(self, refs: Sequence[Hashable], flags: Sequence[Flag]) -> None:
        with self.session:
            kept = {flag: f"keywords/{word}" for flag, word in mail.KEYWORDS.items() if flag in RESET_FLAGS}
            await self.imports.update(_emails(refs), {path: flag in flags or None for flag, path in kept.items()})


def _emails(refs: Sequence[Hashable]) -> list[str]:
    """Return the Emails' ids. All are in one folder."""
    own = own_refs(refs, JmapRef)
    assert len({ref.folder for ref in own}) < 2, "messages of several folders"
    return list(dict.fromkeys(ref.email for ref in own))
