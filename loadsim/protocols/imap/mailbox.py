"""One user's mailbox over IMAP: the port's calls as commands, and their answers as the port's values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model.ports import INBOX, RESET_FLAGS, Flag, Header, Part, SearchKey, Structure
from loadsim.model.provisioning_ports import FolderStatus, NewMessage, Quota, ServerOffer, Stored, batches
from loadsim.protocols.imap.answers import expunged_in, fetched_in, references_of, sent_instead, status_of
from loadsim.protocols.imap.commands import Argument, append_arguments, astring, flag_list, number_sets
from loadsim.protocols.imap.connection_port import ImapConnection
from loadsim.protocols.imap.folder_names import SEPARATOR, canonical
from loadsim.protocols.imap.grammar import numbers_of
from loadsim.protocols.imap.header_lists import HeaderCache, HeaderLists, Ref, portions
from loadsim.protocols.imap.listing import EVERY, FLAGS_ITEMS, list_folder
from loadsim.protocols.imap.reading import structure_of
from loadsim.protocols.imap.requests import DEFAULT_REQUESTS, Requests
from loadsim.protocols.imap.responses import (
    Condition,
    Fetched,
    ListEntry,
    MailboxStatus,
    QuotaLimits,
    Response,
    Rights,
    Search,
)
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.imap.sets import NumberSet
from loadsim.protocols.imap.under_way import Answer
from loadsim.protocols.imap.whole_message import MessageStore, WholeMessage

BATCH_MESSAGES = 16
BATCH_BYTES = 1 << 20
"""The most messages and bytes of one MULTIAPPEND."""


@dataclass(frozen=True, slots=True, eq=False)
class ImapMailbox:
    """Implements `Provisioning`, which includes `ports.Mailbox`, over a session that no other mailbox uses."""

    session: ImapSession
    requests: Requests = DEFAULT_REQUESTS
    cache: HeaderCache | None = None  # if the program has one
    store: MessageStore | None = None  # if the program fetches whole messages

    def over_another_connection(self) -> ImapMailbox:
        """Return the user's mailbox over another connection; both share the caches of headers and messages."""
        return replace(self, session=self.session.over_another_connection())

    async def log_on(self) -> None:
        await self.session.log_on()

    async def log_off(self) -> None:
        """LOGOUT (RFC 9051 section 6.1.3), and wait until the socket is closed."""
        await self.session.log_off()

    def abandon(self) -> None:
        self.session.abandon()

    # --- looking ---

    @property
    def messages(self) -> int:
        return self.session.count

    async def folders(self) -> Sequence[str]:
        """LIST (RFC 9051 section 6.3.9); folders that hold only folders are left out."""
        names: dict[str, None] = {}  # a server may list one twice
        with self.session as connection:
            answer = await connection.send("LIST", b'""', b'"*"')
            self.session.take_listed(answer.data)
            async for portion in portions(answer.data):
                names |= {name: None for entry in portion if (name := self._own_folder(entry)) is not None}
        if self.session.rounds is not None:
            self.session.rounds.listed([*names])
        return [*names]

    async def open(self, folder: str) -> None:
        """SELECT (RFC 9051 section 6.3.2), unless the folder is open."""
        with self.session as connection:
            await self.session.select(connection, canonical(folder))

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """FETCH of headers; see `HeaderLists.newest`."""
        folder = canonical(folder)
        with self.session as connection:
            await self._open_to_list(connection, folder)
            if not self.session.count or newest == 0:
                return []
            return await self._lists.newest(connection, folder, newest)

    async def batches(self, folder: str, size: int) -> AsyncGenerator[Sequence[Header], None]:
        """FETCH of all flags, and of headers by UID; see `HeaderLists.batches` (RFC 4549 section 4.3.1)."""
        folder = canonical(folder)
        with self.session as connection:
            await self._open_to_list(connection, folder)
            uids = [*await self._lists.all_flags(connection, folder)] if self.session.count else []
        async for batch in self._lists.batches(folder, uids, size):
            yield batch

    async def fetch_whole(self, headers: Sequence[Header]) -> int:
        """UID FETCH of the first messages that fit into the store."""
        assert self.store is not None
        refs = {ref.uid: ref for header in self.store.fitting(headers) if isinstance(ref := header.ref, Ref)}
        if refs:
            with self.session as connection:
                await self._opened_for(connection, [*refs.values()])
                await self._store_messages(connection, self.store, refs)
        return len(refs)

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        """UID SEARCH (RFC 9051 section 6.4.4), and UID FETCH of the headers of the newest messages found."""
        folder = canonical(folder)
        with self.session as connection:
            await self.session.refresh(connection, folder)
            answer = await connection.send("UID SEARCH", key.encode(), astring(words))
            results = [response.numbers for response in answer.data if isinstance(response, Search)]
            if not results:
                raise ServerRefused("SEARCH without data", f"{folder}{sent_instead([answer])}")
            uids = sorted(NumberSet.union(results))[-newest:]
            return await self._lists.these(connection, folder, uids)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """UID FETCH of new mail; see `HeaderLists.arrived`."""
        with self.session as connection:
            if reopen:
                self.session.leave()
            await self._open_to_list(connection, INBOX)
            if not self.session.count:
                return []
            headers = await self._lists.arrived(connection, reopen)
            if self.requests.prefetch and not reopen:
                await self._prefetch(connection, headers)
        return headers

    async def watch(self, inbox: bool = True) -> None:
        """IDLE (RFC 2177), or NOOP at intervals; the session renews either until the next call.

        Without `inbox`, it waits in the open folder; if none is open, NOOPs keep the connection alive.
        """
        with self.session as connection:
            if inbox:
                await self._look(connection)
            if self.session.waits_by_idle:
                await connection.idle()
        self.session.keep_watching()

    async def look(self) -> None:
        """Open the Inbox as `watch` does, without waiting for new mail."""
        with self.session as connection:
            await self._look(connection)

    def holds(self, ref: Hashable) -> bool:
        """Return whether the store has the whole message, so that showing it takes no command."""
        return self.store is not None and self.store.get(ref) is not None

    def forget(self) -> None:
        """Drop all whole messages from the store."""
        if self.store is not None:
            self.store.clear()

    async def structure(self, ref: Hashable) -> Structure:
        """UID FETCH of BODYSTRUCTURE, or of the whole message (RFC 9051 section 6.4.5)."""
        if self.store is not None:
            return (await self._whole_message(self.store, ref)).structure
        with self.session as connection:
            folder, uids = await self._opened_for(connection, (ref,))
            answer = await connection.send("UID FETCH", b"%d" % uids[0], b"(BODYSTRUCTURE)")
        for fetched in answer.data:
            if isinstance(fetched, Fetched) and fetched.uid == uids[0] and fetched.structure is not None:
                return structure_of(fetched.structure)
        raise MailMissing("FETCH without data", f"no BODYSTRUCTURE of UID {uids[0]} in {folder}")

    async def part(self, ref: Hashable, part: Part) -> bytes:
        """UID FETCH of BODY.PEEK[...] (RFC 9051 section 6.4.5), or a part of the whole message."""
        if self.store is not None:
            data = (await self._whole_message(self.store, ref)).part(part.name)
            if data is None:
                raise MailMissing("FETCH without data", f"no part {part.name} in the message")
            return data
        with self.session as connection:
            folder, uids = await self._opened_for(connection, (ref,))
            answer = await connection.send("UID FETCH", b"%d" % uids[0], b"(BODY.PEEK[%b])" % part.name.encode())
        for fetched in answer.data:
            if isinstance(fetched, Fetched) and fetched.uid == uids[0]:
                data = fetched.sections.get(part.name)
                if data is not None:
                    return data
        raise MailMissing("FETCH without data", f"no part {part.name} of UID {uids[0]} in {folder}")

    # --- changing ---

    async def flag(self, refs: Sequence[Hashable], flag: Flag, on: bool = True) -> None:
        """UID STORE (RFC 9051 6.4.6), except for keywords that the folder does not keep: Exchange refuses these."""
        if not refs:
            return
        with self.session as connection:
            _, uids = await self._opened_for(connection, refs)
            if not flag.startswith("\\") and not self.keeps(flag):
                return
            item = b"+FLAGS.SILENT" if on else b"-FLAGS.SILENT"
            await self._over_sets(connection, "UID STORE", uids, item, flag_list([flag]))

    async def move(self, refs: Sequence[Hashable], folder: str) -> None:
        """UID MOVE (RFC 6851), or COPY, STORE and EXPUNGE of these messages only (RFC 6851 section 3.3)."""
        if not refs:
            return
        target = self.session.argument(canonical(folder))
        with self.session as connection:
            _, uids = await self._opened_for(connection, refs)
            if "MOVE" in self.session.offered:
                answers = await self._over_sets(connection, "UID MOVE", uids, target)
                are_gone = expunged_in(answers) >= len(uids)
                self._check_copied("UID MOVE", answers, uids, are_gone)
                if not are_gone:
                    left = fetched_in(await self._over_sets(connection, "UID FETCH", uids, b"(UID)"))
                    if any(message.uid in uids for message in left):
                        raise ServerRefused("UID MOVE leaves messages", f"some of {len(uids)}")
                return
            await self._check_expungeable(connection, uids)
            answers = await self._over_sets(connection, "UID COPY", uids, target)
            self._check_copied("UID COPY", answers, uids, "UIDPLUS" not in self.session.offered)
            await self._expunge(connection, uids)

    async def copy(self, refs: Sequence[Hashable], folder: str) -> None:
        """UID COPY (RFC 9051 section 6.4.7)."""
        if not refs:
            return
        with self.session as connection:
            _, uids = await self._opened_for(connection, refs)
            answers = await self._over_sets(connection, "UID COPY", uids, self.session.argument(canonical(folder)))
            self._check_copied("UID COPY", answers, uids, "UIDPLUS" not in self.session.offered)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Ref | None:
        """APPEND (RFC 9051 section 6.3.12). Return the reference from APPENDUID (RFC 4315)."""
        folder = canonical(folder)
        with self.session as connection:
            answer = await connection.send("APPEND", self.session.argument(folder), *append_arguments(message, flags))
            return references_of(folder, answer, 1)[0]

    async def expunge(self, refs: Sequence[Hashable]) -> None:
        """STORE \\Deleted and UID EXPUNGE (RFC 4315), or EXPUNGE if that deletes nothing else."""
        if not refs:
            return
        with self.session as connection:
            _, uids = await self._opened_for(connection, refs)
            await self._check_expungeable(connection, uids)
            await self._expunge(connection, uids)

    # --- for initialise and clean ---

    async def create(self, folder: str) -> None:
        """CREATE (RFC 9051 section 6.3.4)."""
        with self.session as connection:
            await connection.send("CREATE", self.session.argument(folder))

    async def delete(self, folder: str) -> None:
        """DELETE (RFC 9051 section 6.3.5), with the Inbox open: servers differ about deleting the open folder."""
        with self.session as connection:
            if self.session.open == folder:
                await self.session.select(connection, INBOX)
            await connection.send("DELETE", self.session.argument(folder))
            self.session.validity.pop(folder, None)

    def path(self, folder: str) -> str:
        return self.session.names.path(folder)

    def folder_at(self, path: str) -> str:
        return self.session.names.folder_at(path)

    def name_on_server(self, folder: str) -> str:
        return self.session.names.on_server(canonical(folder))

    @property
    def offer(self) -> ServerOffer:
        """The capabilities after log-on, the log-on method, and PERMANENTFLAGS."""
        connection = self.session.connection
        method = "" if connection is None else connection.method
        return ServerOffer(self.session.offered, method, self.session.lasting or "")

    async def quotas(self) -> Sequence[Quota]:
        """GETQUOTAROOT of the Inbox (RFC 9208 section 4.1.2); none without QUOTA."""
        if "QUOTA" not in self.session.offered:
            return []
        with self.session as connection:
            answer = await connection.send("GETQUOTAROOT", self.session.argument(INBOX))
        return [Quota(*limit) for quota in answer.data if isinstance(quota, QuotaLimits) for limit in quota.limits]

    async def rights(self, folder: str) -> str | None:
        """MYRIGHTS (RFC 4314 section 3.5); None without ACL."""
        if "ACL" not in self.session.offered:
            return None
        with self.session as connection:
            answer = await connection.send("MYRIGHTS", self.session.argument(folder))
        return next((response.rights for response in answer.data if isinstance(response, Rights)), "")

    async def status(self) -> dict[str, FolderStatus | None]:
        """LIST with STATUS (RFC 5819), or LIST and then a STATUS of each folder, all at once.

        The open folder is closed first, as STATUS is meant for other folders (RFC 9051 section 6.3.11).
        """
        await self._leave()
        items = self._status_items
        if "LIST-STATUS" in self.session.offered:
            with self.session as connection:
                answer = await connection.send("LIST", b'""', b'"*"', b"RETURN (STATUS %b)" % items)
            self.session.take_listed(answer.data)
            folders = [name for entry in answer.data if (name := self._own_folder(entry)) is not None]
            status = self._statuses(answer.data, folders)
            unknown = [folder for folder in self._parents(folders) if status[folder] is None]
        else:
            folders = unknown = list(await self.folders())
            status = self._statuses((), folders)
        # Dovecot 2.3 does not mark a deleted folder that contains others \NonExistent, but refuses its STATUS.
        parents = self._parents(folders)
        with self.session as connection:
            calls = [connection.send("STATUS", self.session.argument(folder), items) for folder in unknown]
            ends = await asyncio.gather(*calls, return_exceptions=True)
        for folder, end in zip(unknown, ends, strict=True):
            if isinstance(end, ServerRefused) and folder in parents:
                del status[folder]
            elif isinstance(end, BaseException):
                raise end
            else:
                status |= self._statuses(end.data, [folder])
        return status

    def _parents(self, folders: Sequence[str]) -> set[str]:
        """Return the folders among these that contain others."""
        paths = {self.path(folder): folder for folder in folders}
        above = {path[:at] for path in paths for at, letter in enumerate(path) if letter == SEPARATOR}
        return {folder for path, folder in paths.items() if path in above}

    def _statuses(self, data: Iterable[Response], folders: Iterable[str]) -> dict[str, FolderStatus | None]:
        """Return these folders' status; None if the answer is missing or incomplete."""
        status: dict[str, FolderStatus | None] = dict.fromkeys(folders)
        for response in data:
            if isinstance(response, MailboxStatus):
                folder = self.session.names.folder(response.name)
                if folder in status:
                    status[folder] = status_of(response.items)
        return status

    @property
    def _status_items(self) -> bytes:
        modseq = b" HIGHESTMODSEQ" if "CONDSTORE" in self.session.offered else b""
        return b"(UIDVALIDITY UIDNEXT MESSAGES UNSEEN%b)" % modseq

    async def _leave(self) -> None:
        """Close the open folder with UNSELECT (RFC 9051 section 6.4.2), or else by starting a new session."""
        if self.session.open is None:
            return
        if "UNSELECT" in self.session.offered:
            with self.session as connection:
                self.session.leave()
                await connection.send("UNSELECT")
        else:
            await self.log_off()
            await self.log_on()

    async def message_count(self, folder: str) -> int:
        """Ask for the number of messages in a folder by STATUS. Raises `ServerRefused` if the number is missing."""
        items = await self._status_of(canonical(folder), b"(MESSAGES)")
        if "MESSAGES" not in items:
            raise ServerRefused("STATUS without MESSAGES", folder)
        return items["MESSAGES"]

    async def folder_status(self, folder: str) -> FolderStatus | None:
        """STATUS of one folder; None if a number is missing."""
        return status_of(await self._status_of(canonical(folder), self._status_items))

    async def _status_of(self, folder: str, items: bytes) -> Mapping[str, int]:
        """STATUS (RFC 9051 section 6.3.11). Raises `ServerRefused` if the answer is missing.

        An open folder is closed first, since servers answer from the session's view of it. CLOSE is never used, as it
        expunges.
        """
        with self.session as connection:
            if self.session.open == folder:
                self.session.leave()
                if "UNSELECT" in self.session.offered:
                    await connection.send("UNSELECT")
                else:
                    await self.session.select(connection, INBOX)
            answer = await connection.send("STATUS", self.session.argument(folder), items)
        for response in answer.data:
            if isinstance(response, MailboxStatus) and self.session.names.folder(response.name) == folder:
                return response.items
        raise ServerRefused("STATUS without data", f"{folder}{sent_instead([answer])}")

    def keeps(self, flag: str) -> bool:
        """Return whether PERMANENTFLAGS (RFC 9051 7.1) has the flag; if it is missing, all flags are kept (6.3.2)."""
        if self.session.lasting is None:
            return True
        lasting = self.session.lasting.lower().strip("()").split()
        return flag.lower() in lasting or (r"\*" in lasting and not flag.startswith("\\"))

    async def texts(self, refs: Sequence[Hashable]) -> dict[Hashable, bytes]:
        """UID FETCH of BODY.PEEK[TEXT] (RFC 9051 section 6.4.5.1)."""
        texts: dict[Hashable, bytes] = {}
        if not refs:
            return texts
        with self.session as connection:
            _, uids = await self._opened_for(connection, refs)
            by_uid = dict(zip(uids, refs, strict=True))
            for fetched in fetched_in(await self._over_sets(connection, "UID FETCH", uids, b"(BODY.PEEK[TEXT])")):
                text = fetched.sections.get("TEXT")
                if fetched.uid in by_uid and text is not None:
                    texts[by_uid[fetched.uid]] = text
        return texts

    async def append_many(self, folder: str, messages: Sequence[NewMessage]) -> Sequence[Ref | None]:
        """MULTIAPPEND (RFC 3502), or one APPEND after another; references as in `append`.

        Each is awaited: James 3.8 mistakes a pipelined second message for commands, and closes the connection.
        """
        folder = canonical(folder)
        refs: list[Ref | None] = []
        with self.session as connection:
            joins = "MULTIAPPEND" in self.session.offered
            for batch in batches(messages, BATCH_MESSAGES if joins else 1, BATCH_BYTES):
                arguments = [argument for message in batch for argument in append_arguments(*message)]
                answer = await connection.send("APPEND", self.session.argument(folder), *arguments)
                refs += references_of(folder, answer, len(batch))
        return refs

    async def listing(self, folders: Iterable[str]) -> dict[str, list[Stored]]:
        """SELECT and FETCH (`list_folder`), one folder after another.

        Each is awaited: James 3.8 answers a pipelined FETCH from the previous folder. It also rejects a FETCH of all
        messages in an empty folder (RFC 9051 section 6.4.5 allows neither).
        """
        stored: dict[str, list[Stored]] = {}
        for folder in dict.fromkeys(map(canonical, folders)):
            try:
                stored[folder] = await list_folder(self.session, folder)
            except ServerRefused as failure:
                raise ServerRefused(failure.kind, f"folder {folder}: {failure.line}") from None
            if not self.session.validity[folder]:  # a later EXPUNGE could not use its UIDs
                raise ServerRefused("SELECT without UIDVALIDITY", folder)
        return stored

    async def set_flags(self, refs: Sequence[Hashable], flags: Sequence[Flag]) -> None:
        """UID STORE of each flag by name: other keywords stay, and GreenMail 2.1 removes keywords only this way."""
        if not refs:
            return
        with self.session as connection:
            _, uids = await self._opened_for(connection, refs)
            kept = [flag for flag in RESET_FLAGS if self.keeps(flag)]
            for item, on in ((b"-FLAGS.SILENT", False), (b"+FLAGS.SILENT", True)):
                if named := [flag for flag in kept if (flag in flags) == on]:
                    await self._over_sets(connection, "UID STORE", uids, item, flag_list(named))

    # --- pieces of commands ---

    async def _look(self, connection: ImapConnection) -> None:
        """Open the Inbox, and ask about the other folders if that is due; the server may refuse any answer."""
        await self.session.select(connection, INBOX)
        calls = [connection.send("STATUS", *arguments) for arguments in self.session.status_due()]
        for end in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(end, BaseException) and not isinstance(end, ServerRefused):
                raise end

    async def _open_to_list(self, connection: ImapConnection, folder: str) -> None:
        """Open a folder for a listing; GETQUOTAROOT (RFC 9208 section 4.1.3) if the program asks. It may be refused."""
        await self.session.refresh(connection, folder)
        if self.requests.quota and "QUOTA" in self.session.offered:
            with suppress(ServerRefused):
                await connection.send("GETQUOTAROOT", self.session.argument(folder))

    @property
    def _lists(self) -> HeaderLists:
        return HeaderLists(self.session, self.requests, self.cache)

    def _own_folder(self, entry: Response) -> str | None:
        """Return the folder in an answer to LIST; None if it is not the user's, or holds only folders."""
        if not isinstance(entry, ListEntry) or entry.attributes & {"\\noselect", "\\nonexistent"}:
            return None
        return self.session.names.folder(entry.name)

    async def _whole_message(self, store: MessageStore, ref: Hashable) -> WholeMessage:
        """Return a whole message, from the store or by UID FETCH (RFC 9051 section 6.4.5)."""
        message = store.get(ref)
        if message is None:
            with self.session as connection:
                folder, uids = await self._opened_for(connection, (ref,))
                await self._store_messages(connection, store, {uids[0]: ref})
            message = store.get(ref)
            if message is None:
                raise MailMissing("FETCH without data", f"no BODY[] of UID {uids[0]} in {folder}")
        return message

    async def _prefetch(self, connection: ImapConnection, headers: Sequence[Header]) -> None:
        """Fetch new messages with one command, as many as fit into the store."""
        assert self.store is not None
        refs = {ref.uid: ref for header in self.store.fitting(headers) if isinstance(ref := header.ref, Ref)}
        if refs:
            with suppress(ServerRefused):  # the messages are listed anyway, and fetched when read
                await self._store_messages(connection, self.store, refs)

    async def _store_messages(
        self, connection: ImapConnection, store: MessageStore, refs: Mapping[int, Hashable]
    ) -> None:
        items = self.requests.message
        assert items is not None
        for numbers in number_sets(refs):
            for fetched in (await connection.send("UID FETCH", numbers, items)).data:
                if isinstance(fetched, Fetched) and fetched.uid is not None and fetched.uid in refs:
                    store.take(refs[fetched.uid], fetched.sections.get(""))

    async def _opened_for(self, connection: ImapConnection, refs: Sequence[Hashable]) -> tuple[str, list[int]]:
        """Open these messages' folder. Return its name and their UIDs."""
        if len(refs) == 1:
            (ref,) = refs
            assert isinstance(ref, Ref), "a reference of another driver"
            if ref.folder == self.session.open and ref.validity == self.session.validity[ref.folder]:
                return ref.folder, [ref.uid]
        own = [ref for ref in refs if isinstance(ref, Ref)]
        assert len(own) == len(refs), "a reference of another driver"
        folder = own[0].folder
        assert all(ref.folder == folder for ref in own), "messages of several folders"
        await self.session.select(connection, folder)
        if any(ref.validity != self.session.validity[folder] for ref in own):
            raise ServerRefused("UIDVALIDITY changed", folder)
        return folder, [ref.uid for ref in own]

    async def _over_sets(
        self, connection: ImapConnection, name: str, uids: Sequence[int], *arguments: Argument
    ) -> list[Answer]:
        """Send, all at once, one command per set of message numbers that fits into a line.

        Return their answers, or raise the first failure once all have ended.
        """
        if len(uids) == 1:
            return [await connection.send(name, b"%d" % uids[0], *arguments)]
        calls = [connection.send(name, numbers, *arguments) for numbers in number_sets(uids)]
        await asyncio.gather(*calls, return_exceptions=True)
        return [call.result() for call in calls]

    def _check_copied(self, name: str, answers: Sequence[Answer], uids: Sequence[int], evident: bool) -> None:
        """Raise `MailMissing` unless all were copied: servers answer OK even for missing messages (RFC 9051 6.4.9).

        COPYUID lists the copied messages (RFC 4315; after MOVE in an untagged OK). If it is missing, `evident` states
        whether all were copied.
        """
        copied: list[NumberSet] = []
        for answer in answers:
            for response in (answer.tagged, *answer.data):
                code = response.code if isinstance(response, Condition) or response is answer.tagged else None
                if code is not None and code.name == "COPYUID":
                    copied.append(numbers_of(code.arguments.split(" ")[1] if code.arguments.count(" ") == 2 else ""))
        if copied:
            whole = NumberSet.union(copied)
            evident = all(uid in whole for uid in uids)
        if not evident:
            raise MailMissing(f"{name} without effect", f"on some of {len(uids)} messages{sent_instead(answers)}")

    async def _check_expungeable(self, connection: ImapConnection, uids: Sequence[int]) -> None:
        """Raise `ServerRefused` if, for lack of UIDPLUS, a plain EXPUNGE would delete others' messages."""
        if "UIDPLUS" in self.session.offered:
            return
        answer = await connection.send("UID SEARCH", b"DELETED")
        results = [response.numbers for response in answer.data if isinstance(response, Search)]
        marked = NumberSet.union(results)
        if results and marked.size == sum(uid in marked for uid in set(uids)):
            return
        # maddy 0.8.1 also lists unmarked messages, so check the flags.
        answers = [await connection.send("UID FETCH", EVERY, FLAGS_ITEMS)]
        flagged = {message.uid: message.flags for message in fetched_in(answers)}
        if len(flagged) < self.session.count or None in (*flagged, *flagged.values()):
            might = f"EXPUNGE might delete others' messages{sent_instead([answer])}"
            raise ServerRefused("UID FETCH without data", might)
        others = [
            uid for uid, flags in flagged.items() if uid not in uids and "\\deleted" in map(str.lower, flags or ())
        ]
        if others:
            raise ServerRefused("EXPUNGE would delete others", f"{len(others)} messages marked by others")

    async def _expunge(self, connection: ImapConnection, uids: Sequence[int]) -> None:
        """Mark and expunge messages. Raises `MailMissing` if some were missing, although servers answer OK."""
        answers = await self._over_sets(connection, "UID STORE", uids, b"+FLAGS.SILENT", b"(\\Deleted)")
        if "UIDPLUS" in self.session.offered:
            answers += await self._over_sets(connection, "UID EXPUNGE", uids)
        else:
            answers.append(await connection.send("EXPUNGE"))
        gone = expunged_in(answers)
        if gone < len(set(uids)):
            on = f"on {len(set(uids)) - gone} of {len(set(uids))} messages{sent_instead(answers)}"
            raise MailMissing("EXPUNGE without effect", on)
