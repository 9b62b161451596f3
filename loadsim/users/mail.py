"""A user's mail as tasks and activities see it: ports, Inbox, folders, and records of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model.calendar_event import EVENTS, CalendarEvent
from loadsim.model.content.prose import long_word
from loadsim.model.draws import draw
from loadsim.model.message_tag import INITIAL_RUN, MessageTag, initial_id
from loadsim.model.ports import (
    CALENDAR,
    DELETED_ITEMS,
    DRAFTS,
    INBOX,
    OF_ALL_USERS,
    PUBLIC,
    SENT_ITEMS,
    Account,
    Driver,
    Flag,
    Header,
    Mailbox,
    PublicFolder,
    SearchKey,
)
from loadsim.model.records import BY_LIST, INDIVIDUALLY
from loadsim.model.terms import CALDAV, ONE_COPY
from loadsim.users.host import Host, TaskObserver
from loadsim.users.inbox import Inbox, Unread
from loadsim.users.public_folder import FolderInMailbox
from loadsim.users.receipts import DeliveryReceipts, Record
from loadsim.users.stored_mail import StoredMail

HEADERS_A_TURN = 500
"""The most headers of a list to process in one turn of the event loop, which takes about a millisecond."""


class Sought(NamedTuple):
    """A message to search for, and the words that it has there."""

    header: Header
    key: SearchKey
    words: str


class UserMail:
    """The mail of one user, accessed through their driver.

    `observer` receives the driver's callbacks. `listed` is called with unread messages as they are listed in the Inbox,
    `receipt` for each delivery receipt.
    `shown` has an entry for each part that the task has fetched: message, folder, and a check for altered bytes. `call`
    is the kind of an assistant's activities; None for users.
    """

    call: str | None = None

    def __init__(
        self,
        host: Host,
        account: Account,
        driver: Driver,
        observer: TaskObserver,
        listed: Callable[[Sequence[Unread]], object],
        receipt: Record = lambda *_: None,
    ) -> None:
        self.host = host
        self.account = account
        self.number = account.number
        self.observer = observer
        self.workload = host.workload
        self.contents = host.contents
        self.run_id = host.run_id
        self.domain = host.workload.scenario.domain
        self.now = host.now_ns
        self.group = host.workload.population.group(account.number)
        self.profile = self.group.profile
        self._open(driver)
        opens_book = host.apart.directory
        self.directory = None if opens_book is None else opens_book(account, observer)
        opens = host.apart.calendar if self.group.calendar == CALDAV else None
        self.calendar_server = None if opens is None else opens(account, observer)
        self.events: list[tuple[str, CalendarEvent]] = []  # on the calendar server, oldest first, each with its id
        self.folders = () if self.maildrop else host.workload.own_folders(account.number)
        old_mail = host.workload.scenario.mailbox.inbox is not None
        tracks = self.profile.receipts.delivery > 0
        self.inbox = Inbox(self.run_id, host.workload.last_sender, self.profile.inbox_limit, old_mail, tracks)
        self.receipts = DeliveryReceipts(self.number, host, self.inbox, receipt)
        start = None if host.workload.scenario.initialise == "never" else host.workload.start_state
        self.stored = StoredMail(account.number, start, self._record_fault, self.group.protocol in ONE_COPY)
        self.shown: list[tuple[MessageTag, str, Callable[[], bool]]] = []
        self.posts = 0  # in the public folder
        self.was_on = False  # the user has had a session
        self.first_sync = self.group.program.first_sync
        copies = self.first_sync is not None
        self.uncopied = [INBOX, *self._named, *self.folders] if copies else []  # folders yet to copy
        self.watching = False  # the server has been asked to announce new mail
        self._recorder = host.recorder
        self._listed = listed

    def _open(self, driver: Driver) -> None:
        session = driver.session(self.account, self.observer)
        self.mailbox, self.submission, self.calendar = session.mailbox, session.submission, session.calendar
        apart = self.host.apart.newsgroup
        self.public = FolderInMailbox(self.mailbox) if apart is None else apart(self.account, self.observer)
        self.poll_s, self.copied, self.maildrop = session.poll_s, session.copied, session.maildrop

    def of_assistant(self, call: str, driver: Driver, observer: TaskObserver) -> UserMail:
        """Return this mail as seen by the user's assistant, which has a session of its own."""
        own = copy(self)
        own.call, own.observer, own.shown = call, observer, []
        own._open(driver)
        return own

    def does(self, kind: str) -> bool:
        """Return whether an activity of this kind is the user's own, or the assistant's."""
        return kind not in self.group.calls if self.call is None else kind == self.call

    @property
    def _named(self) -> tuple[str, ...]:
        """The folders with special uses."""
        if self.maildrop:
            return ()
        return (SENT_ITEMS, DELETED_ITEMS, CALENDAR, *([DRAFTS] if self.group.writes_drafts else []))

    @property
    def flags_not_kept(self) -> Collection[Flag]:
        """The flags that the server does not keep; a maildrop has none to keep."""
        return () if self.maildrop else self.stored.not_kept

    def find_folders(self, names: Collection[str]) -> None:
        """Check the list of all folders at log-on. Raises `ServerRefused` if any folder of the start state is missing.

        If the start state is unknown, the user takes the listed folders as theirs.
        """
        if self.stored.is_known:
            self.stored.look_for((*self._named, *self.folders), names)
        else:
            self.folders = tuple(name for name in self.workload.own_folders(self.number) if name in names)
            self.uncopied = [name for name in self.uncopied if name in (INBOX, *names)]

    def at_start(self, headers: Iterable[Header]) -> Iterator[Header]:
        """Yield the Inbox's messages that count as read in the start state, with that flag."""
        old = self.workload.start_state(self.number).get(INBOX, 0) - self.workload.initially_unread(self.number)
        read = {initial_id(self.number, INBOX, at) for at in range(old)}
        for header in headers:
            if header.tag and header.tag.run == INITIAL_RUN and header.tag.id in read:
                yield header._replace(flags=frozenset([Flag.SEEN]))

    def source(self, header: Header) -> Mailbox | PublicFolder:
        """Return the place from which a listed message is fetched."""
        return self.public if self.stored.place(header) == PUBLIC else self.mailbox

    def random_folder(self, stream: str, header: Header) -> str:
        """Return the folder for a message, a function of the message alone. Raises `ServerRefused` if there is none."""
        if not self.folders:
            raise ServerRefused("no folder to put mail into")
        name = header.tag.id if header.tag else ""
        return self.folders[self.workload.choose(self.number, stream + ".folder", name, len(self.folders))]

    def individuals(self, addresses: Iterable[str]) -> list[int]:
        """Return the users among a message's addressees, leaving out lists and strangers."""
        users = (self.workload.population.number(address) for address in addresses)
        return [user for user in users if user is not None]

    def read_note_delay_ms(self, header: Header) -> float:
        """Return how long the user looks at a message before opening the next."""
        delay_ms = self.profile.process_inbox.read_note_delay_ms
        if delay_ms.min == delay_ms.max:
            return delay_ms.min
        name = header.tag.id if header.tag else ""
        return delay_ms.at(draw(self.workload.seed, self.number, "read note delay", name))

    def sought(self, index: int | str) -> Sought | None:
        """Choose a message in the Inbox to search for, and the words by which it is found; None without a message."""
        held = self.inbox.held
        if not held:
            return None
        header = held[self.workload.choose(self.number, "search.message", index, len(held))]
        key = self.workload.search_key(self.number, self.profile, index)
        words = None if key is SearchKey.SENDER else long_word(header.subject)
        if key is SearchKey.TEXT and header.tag:
            u = draw(self.workload.seed, self.number, "search.word", index)
            words = self.contents.word(header.tag, u) or words
        return Sought(header, key, words) if words else Sought(header, SearchKey.SENDER, header.sender)

    async def watch(self) -> None:
        await self.mailbox.watch()
        self.watching = True

    async def take_in(self, headers: Sequence[Header], *, announced: int | None) -> int:
        """Take in messages listed in the Inbox, yielding to the event loop between portions.

        Return the number of new messages. For `announced`, see `Inbox.stamps`.
        """
        event, taken = "found" if announced is None else "seen", 0
        stamps = self.inbox.stamps(len(headers), announced, self.now())
        for at in range(0, len(headers), HEADERS_A_TURN):
            if at:
                await asyncio.sleep(0)
            portion, unread = slice(at, at + HEADERS_A_TURN), len(self.inbox.unread)
            new = self.inbox.take_in(headers[portion], stamps[portion])
            self._take_in(event, new)
            arrived = {tag.id for tag, _ in new if tag.sender != self.number}
            for header in headers[portion]:
                if header.flags and header.tag and header.tag.id in arrived:
                    self.stored.lacks(INBOX, header.tag.id)  # no user can have read or answered it yet
            self._listed(self.inbox.unread[unread:])
            taken += len(new)
        return taken

    def _take_in(self, event: str, new: Iterable[tuple[MessageTag, int]]) -> None:
        for tag, at_ns in new:
            self._record(event, tag.id, self.number, tag.sender, INBOX, at_ns)
            self.stored.put(INBOX, tag.id)
            self.host.mail_seen(tag.id, self.number, tag.sender)

    def record_received(self, event: str, header: Header, folder: str) -> None:
        """Record an event for a message of this run or the start state; other runs' messages may have the same ids."""
        tag = header.tag
        if tag is not None and tag.run in (self.run_id, INITIAL_RUN):
            self._record(event, tag.id, self.number, tag.sender, folder, self.now())

    def compare_shown(self) -> None:
        """Record messages of which a fetched part is not as it was sent.

        Call it only when no task is being timed, or when a task waits for no command: then the time is the generator's.
        """
        for tag, folder, is_altered in self.shown:
            if tag.run in (self.run_id, INITIAL_RUN) and is_altered():
                self._record_fault("altered", tag.id, folder)
        self.shown.clear()

    def record_stored(self, event: str, headers: Sequence[Header], folder: str, left: str = INBOX) -> None:
        for header in headers:
            if left != INBOX:
                self.record_received("left", header, left)
            self.record_received(event, header, folder)
            if header.tag:
                self.stored.put(folder, header.tag.id, header)

    def _record_fault(self, event: str, message_id: str, folder: str) -> None:
        self._record(event, message_id, self.number, self.number, folder, self.now())

    def record_sent(self, event: str, message_id: str, folder: str) -> None:
        self._record(event, message_id, self.number, self.number, folder, self.now())
        self.stored.put(folder, message_id)

    def record_post(self, message_id: str) -> None:
        self.posts += 1
        self._record("saved", message_id, OF_ALL_USERS, self.number, PUBLIC, self.now())

    def record_schedule(self, schedule_id: str) -> None:
        self._record("saved", schedule_id, self.number, self.number, CALENDAR, self.now())

    def record_event(self, event: str, event_id: str) -> None:
        """Record what happened to an event on the calendar server, in the words of `records.EVENTS`."""
        self._record(event, event_id, self.number, self.number, EVENTS, self.now())

    @contextmanager
    def must_be_whole(self, header: Header) -> Iterator[None]:
        """Record a listed message as missing if `MailMissing` is raised.

        An assistant's message may be gone because its user has moved it meanwhile, a post because others removed it.
        """
        try:
            yield
        except MailMissing:
            place = self.stored.place(header)
            if place != PUBLIC and (self.call is None or self.inbox.holds(header)):
                self.stored.lacks(place, header.tag.id if header.tag else "unknown")
            raise

    @contextmanager
    def unless_sure(self, headers: Sequence[Header], *folders: str, expunges: bool = False) -> Iterator[None]:
        """If a command on messages fails, record the folders where it may have added, changed or expunged copies."""
        try:
            yield
        except BaseException:
            for folder in folders:
                for header in headers:
                    if expunges:
                        self.record_received("left", header, folder)
                    self.record_received("unsure", header, folder)
            raise

    @contextmanager
    def unless_stored(self, message_id: str, folder: str, reached: Iterable[int] | None = None) -> Iterator[None]:
        """If storing this user's message fails, record that the users it reaches (None: this user) may have it."""
        try:
            yield
        except BaseException:
            for user in (self.number,) if reached is None else reached:
                self._record("unsure", message_id, user, self.number, folder, self.now())
            raise

    @contextmanager
    def unless_submitted(self, message_id: str, reached: Iterable[int]) -> Iterator[None]:
        """If submitting a message fails, record that its recipients may have it.

        By JMAP, which submits a draft, it may still be in Drafts, too.
        """
        try:
            with self.unless_stored(message_id, INBOX, reached):
                yield
        except BaseException:
            if self.group.protocol in ONE_COPY:
                self._record("unsure", message_id, self.number, self.number, DRAFTS, self.now())
            raise

    def record_accepted(self, message_id: str, reached: Iterable[int], individuals: Collection[int]) -> None:
        at_ns = self.observer.answered_ns or self.now()
        for user in reached:
            addressed = INDIVIDUALLY if user in individuals else BY_LIST
            self._record("accepted", message_id, user, self.number, addressed, at_ns)
            self.host.mail_accepted(message_id, user, self.number)

    def _record(self, event: str, message_id: str, user: int, sender: int, folder: str, at_ns: int) -> None:
        self._recorder.mail((event, message_id, user, sender, at_ns, folder))
