"""The mail that must be in a user's folders, held against what the server lists: nothing to do is never done.

The problem: a server that loses mail is fast, and its users have less to do. So each list that a user fetches anyway is
held against what must be in that folder, without a command of its own. A user has thousands of messages, and a list
shows the newest 50, so the memory has no list of all:

    _KnownFolder.held     how many messages the folder must have; `lost` ones are taken off, and recorded
    _KnownFolder.put      ids that the user's own tasks have put there, with their number
    _KnownFolder.recent   those of them that no list was fetched of since, with the flags that they had
    initial ids           computed from user, folder and place, when a list lacks something

An example. Folder 01 has 4 messages of the start state, and the user moves `n3.1` there: held 5, put {n3.1: 1}, recent
{n3.1}. BROWSE then lists it, and the server says 5 EXISTS. All ids are there: nothing is recorded, and `recent` is
empty again. Had it said 4 EXISTS without `n3.1`, `n3.1` would be missing; with 4 EXISTS and `n3.1`, one of the start
state would, and only now are the ids of the start state computed, to name it. Once recorded, it is no longer held, so
that the next list is held against what is left.

A list of more than 50 shows a part. Then its number tells if something lacks, and the ids what was put there lately.
Copies count one by one if the list is whole, so that no second copy of one message stands for another one.

Doubt is never a fault: what a failed command may have put, moved or removed is noted before it is sent (`tries`,
`leaves`), and may be there or not. What no list was fetched of at the end is `unlisted`: it may be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model.content.compose import least_bytes
from loadsim.model.message_tag import INITIAL_RUN, MessageTag, initial_id
from loadsim.model.ports import INBOX, SYSTEM_FLAGS, Flag, Header, MessageRef, flags_among

DECODED = 57 / 78
"""The size of a file by its size in lines of base64: some servers state the sizes of messages from decoded parts."""


@dataclass(slots=True, eq=False)
class _KnownFolder:
    """The number of messages that a folder must have, and those that the user's tasks have put outside of the Inbox."""

    held: int
    lost: int = 0  # recorded as missing, and no longer held
    put: Counter[str] = field(default_factory=Counter)  # copies by id, less those removed
    recent: dict[str, frozenset[Flag]] = field(default_factory=dict)  # put since the last list, with their flags
    known: bool = False  # the messages of the start state that a list showed are those of this folder


@lru_cache(maxsize=4)  # a task moves many messages into one folder
def _initial_ids(user: int, folder: str, count: int) -> Mapping[str, None]:
    return dict.fromkeys(initial_id(user, folder, at) for at in range(count))


class StoredMail:
    """The messages of user `number` by folder.

    `start` returns a user's counts in the start state; None: the mailboxes were left as they were, and nothing is held
    against them. `record` takes `missing`, `doubled` or `unlisted`, a message id and its folder.
    """

    def __init__(
        self, number: int, start: Callable[[int], Mapping[str, int]] | None, record: Callable[[str, str, str], object]
    ) -> None:
        self._number = number
        self._start = start
        self._record = record
        self._folders: dict[str, _KnownFolder] = {}
        self._gone: set[tuple[str, str]] = set()  # folder and id, removed by the user; of the Inbox, the start state's
        self._recorded: set[tuple[str, str, str]] = set()  # event, folder, id
        self._tried: Counter[tuple[str, str]] = Counter()  # folder and id, for each task that may have put it there
        self.not_kept: set[Flag] = set()  # by a folder, as the server states: mail may have been there
        self._unlisted: set[str] = set()
        self._place: dict[MessageRef, str] = {}  # of messages that are browsed; others are in the Inbox

    @property
    def is_known(self) -> bool:
        return self._start is not None

    @property
    def unlooked(self) -> Sequence[str]:
        """The folders that the user has put messages into since they were last listed."""
        return [name for name, folder in self._folders.items() if folder.recent]

    def put(self, folder: str, message_id: str, of: Header | None = None) -> None:
        """Note that the server has stored a message, perhaps `of` a listed one; the Inbox holds each copy."""
        if self._start is None:
            return
        into = self._folder(folder)
        into.held += folder == INBOX or not self._copies(folder, message_id, of)
        if folder != INBOX:
            into.put[message_id] += 1
            into.recent[message_id] = flags_among([*(of.flags if of else ()), Flag.SEEN])

    def choose(self, headers: Iterable[Header], folder: str) -> Header | None:
        """Return the first of the folder's messages that no other activity may still remove, until `release`."""
        header = next((header for header in headers if header.ref not in self._place), None)
        if header is not None:
            self._place[header.ref] = folder
        return header

    def release(self, header: Header) -> None:
        """Note that the activity which has chosen a message is over."""
        self._place.pop(header.ref, None)

    def place(self, header: Header) -> str:
        """Return the folder that a message was chosen from; the Inbox for all others."""
        return self._place.get(header.ref, INBOX)

    def tries(self, headers: Iterable[Header], folder: str) -> None:
        """Note messages that the server is asked to put into a folder: from now on they may be there."""
        self._tried.update((folder, tag.id) for header in headers if (tag := header.tag))

    def leaves(self, headers: Iterable[Header]) -> None:
        """Note messages that the server is asked to remove: from now on they may be gone, also if it refuses."""
        for header in headers if self._start is not None else ():
            place, tag = self.place(header), header.tag
            key = (place, tag.id if tag else "")
            copies = 1 if place == INBOX else self._copies(*key, header)
            self._folder(place).held -= copies == 1 and ("missing", *key) not in self._recorded
            if place != INBOX:
                self._folder(place).put[key[1]] -= copies > 0
            if place != INBOX or (tag and tag.run == INITIAL_RUN):
                self._gone.add(key)

    def holds(self, name: str) -> bool:
        """Return whether the folder should have a message, whether the server has lost it or not."""
        return self._start is not None and self._folder(name).held + self._folder(name).lost > 0

    def look_for(self, names: Iterable[str], listed: Iterable[str]) -> None:
        """Take the list of all folders. Raises `ServerRefused` once for those that it lacks; their mail is missing."""
        lacking = {*names} - {*listed} - self._unlisted
        self._unlisted |= lacking
        for name in lacking:
            with suppress(ServerRefused):
                self.look(name, (), None, 0)
        if lacking:
            raise ServerRefused("folders are missing", f"{len(lacking)} folders, such as {min(lacking)}")

    def look(
        self,
        name: str,
        shown: Sequence[Header],
        newest: int | None,
        messages: int,
        known: Iterable[Header] = (),
        keeps: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Take a list of the `newest` messages of a folder (None: of all), which holds a number of `messages`.

        Raises `ServerRefused` if it lacks or doubles messages, has others' ones, or if some are not whole, or lack
        flags that all folders `keep` and that they had at the start, when the user put them there, or by what is
        `known`. All are recorded. A list of all counts itself: no other mail, and no second copy, stands for a message.
        """
        if self._start is None:
            return
        self.not_kept |= {flag for flag in SYSTEM_FLAGS if not keeps(flag)}
        folder = self._folder(name)
        recent, folder.recent = folder.recent, {}
        # Count copies: of all messages, or at the end of the folder, where recent ones are, perhaps twice.
        is_whole = newest is None or len(shown) < newest
        listed = shown[0 if is_whole or name == INBOX else max(0, len(shown) - 2 * len(recent)) :]
        own = [(header, header.tag) for header in listed if header.tag]
        named = [tag.id for _, tag in own if name != INBOX or tag.run == INITIAL_RUN]
        copies = Counter(named)
        if is_whole:
            messages = len(copies) + len(own) - len(named)  # each copy that was delivered counts
        # Name what is wrong.
        several = [message for message, count in copies.items() if count > max(1, folder.put[message])]
        doubled = [message for message in several if (name, message) not in self._gone]
        wanted: Iterable[str] = recent if is_whole else ()
        if doubled or (is_whole and messages < folder.held):
            initial = self._initial(name)
            more = {message: max(folder.put[message], self._tried[name, message]) for message in doubled}
            doubled = [message for message in doubled if copies[message] > max(1, more[message] + (message in initial))]
            wanted = [*initial, *folder.put] if is_whole else ()
        flags = {header.ref: header.flags for header in known}
        at_start = (Flag.SEEN,) if name != INBOX else ()
        kept = {
            tag.id
            for header, tag in own
            for start in [at_start if tag.run == INITIAL_RUN else ()]
            for needed in [flags.get(header.ref, recent.get(tag.id, start))]
            if not {*needed} - header.flags - self.not_kept - {Flag.FORWARDED}
        }
        unflagged = [message for message in dict.fromkeys(tag.id for _, tag in own) if message not in kept]
        others = [] if folder.known else self._others(name, own)
        folder.known = True
        cut = [tag.id for header, tag in own if 0 < header.size_bytes < sum(least_bytes(tag)) * DECODED]
        # Record each fault once.
        lost = folder.lost
        for message in wanted:
            if message not in copies and (name, message) not in self._gone:
                self.lacks(name, message)
        while folder.held > messages:
            self.lacks(name, f"unknown{folder.lost}")
        faults = {
            "stored mail is missing": folder.lost - lost,
            "stored mail is another's": sum([self.lacks(name, message) for message in others]),
            "stored mail is truncated": sum([self.lacks(name, message) for message in cut]),
            "stored mail is doubled": sum([self._records("doubled", name, message) for message in doubled]),
            "flags are not kept": sum([self.lacks(name, message) for message in unflagged]),
        }
        for kind, count in faults.items():
            if count:
                raise ServerRefused(kind, f"{count} messages in {name}")

    def _others(self, name: str, own: Iterable[tuple[Header, MessageTag]]) -> Sequence[str]:
        """Return the ids of the start state that belong to another folder or user."""
        left = dict.fromkeys(tag.id for _, tag in own if tag.run == INITIAL_RUN and (name, tag.id) not in self._tried)
        for at in reversed(range(self._at_start(name))):  # a list shows the newest, which are the last
            if not left:
                break
            left.pop(initial_id(self._number, name, at), None)
        return [*left]

    def end(self) -> None:
        """Record the messages that their user has put into folders and not listed since: they may be there."""
        for name in self.unlooked:
            for message in self._folders[name].recent:
                self._records("unlisted", name, message)

    @contextmanager
    def must_be_whole(self, header: Header) -> Iterator[None]:
        """Record a listed message if `MailMissing` is raised."""
        try:
            yield
        except MailMissing:
            self.lacks(self.place(header), header.tag.id if header.tag else "unknown")
            raise

    def lacks(self, name: str, message_id: str) -> bool:
        """Record a message that is missing or not as it was stored, once; return True the first time."""
        is_new, folder = self._records("missing", name, message_id), self._folder(name)
        folder.held, folder.lost = folder.held - is_new, folder.lost + is_new
        return is_new

    def _records(self, event: str, name: str, message_id: str) -> bool:
        """Record a fault of a message, once; return True the first time."""
        if (event, name, message_id) in self._recorded:
            return False
        self._recorded.add((event, name, message_id))
        self._record(event, message_id, name)
        return True

    def _copies(self, name: str, message_id: str, header: Header | None) -> int:
        """Return the number of copies of a message, listed before or new, that a folder must have."""
        is_old = header is not None and header.tag is not None and header.tag.run == INITIAL_RUN
        return self._folder(name).put[message_id] + (is_old and message_id in self._initial(name))

    def _initial(self, name: str) -> Mapping[str, None]:
        """Return the ids of a folder's start state, as keys."""
        return _initial_ids(self._number, name, self._at_start(name))

    def _at_start(self, name: str) -> int:
        return 0 if self._start is None else self._start(self._number).get(name, 0)

    def _folder(self, name: str) -> _KnownFolder:
        if name not in self._folders:
            self._folders[name] = _KnownFolder(self._at_start(name))
        return self._folders[name]
