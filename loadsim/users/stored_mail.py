"""The mail that must be in a user's folders, compared with what the server lists.

The problem: a server that loses mail looks fast, because its users have less to do. So each list that a user fetches
anyway is compared with what must be in that folder. Only LOGOFF adds commands: it lists the Inbox, and folders not
listed since mail was put there. Users have thousands of messages, and a list shows the newest 50, so keeping all ids
would take too much memory:

    _KnownFolder.held     the number of messages that must be there, without the `lost` ones, which were recorded
    _KnownFolder.put      the ids that the user's own tasks put there, with the number of copies
    _KnownFolder.recent   those put since the folder was last listed, with their flags
    initial ids           computed from user, folder and position, but only when something is missing

An example: folder 01 has 4 messages of the start state, and the user moves `n3.1` there. Now `held` is 5, `put` is
{n3.1: 1} and `recent` is {n3.1}. BROWSE lists the folder, and the server says 5 EXISTS. All is well: nothing is
recorded, and `recent` is empty again. With 4 EXISTS and no `n3.1`, that message is missing. With 4 EXISTS and `n3.1`,
one from the start state is missing; only now is its id computed. A missing message is recorded once, and later lists
need not have it.

If a folder has more than 50 messages, its list is partial. The count still shows whether any are missing, unless other
mail has come meanwhile (only an audit tells), and the ids whether the recent ones are there. In a complete list, copies
are counted, so a second copy of one message never makes up for another.

`look` asks three questions of each list: what is missing, what is there twice, and what is foreign (belongs to another
folder or user). It also records messages that are truncated or have lost flags.

Doubt is never a fault. Messages that a command may put, move or remove are noted before it is sent (`tries`, `leaves`);
if it fails, they may be there or not. Those that were put there but never listed before the end are `unlisted`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from loadsim.errors import ServerRefused
from loadsim.model.content.compose import least_bytes
from loadsim.model.message_tag import INITIAL_RUN, MessageTag, initial_id
from loadsim.model.ports import DRAFTS, INBOX, SYSTEM_FLAGS, Flag, Header, MessageRef

SEEN = frozenset((Flag.SEEN,))
SAVED_DRAFT = frozenset((Flag.SEEN, Flag.DRAFT))
DECODED = 57 / 78
"""The decoded size of a byte of base64, including line ends: some servers state sizes with the parts decoded."""


@dataclass(slots=True, eq=False)
class _KnownFolder:
    """The number of messages a folder must have, and those that tasks put there (except in the Inbox)."""

    held: int
    lost: int = 0  # recorded as missing, and no longer held
    put: Counter[str] = field(default_factory=Counter)  # copies by id, not counting removed ones
    recent: dict[str, frozenset[Flag]] = field(default_factory=dict)  # put since the last list, with their flags
    known: bool = False  # a list has shown whether the folder's start state belongs to it


@dataclass(frozen=True, slots=True)
class _Listed:
    """A list of a folder; `recent` are the messages put there since the previous one.

    `own` has loadsim's messages in the list, or only in its end, where recent ones are. `copies` counts them by id,
    except for mail delivered to the Inbox. `messages` counts all that are compared with `held`.
    """

    name: str
    folder: _KnownFolder
    recent: Mapping[str, frozenset[Flag]]
    own: Sequence[tuple[Header, MessageTag]]
    copies: Counter[str]
    messages: int
    is_whole: bool


@lru_cache(maxsize=4)  # a task moves many messages into one folder
def _initial_ids(user: int, folder: str, count: int) -> Mapping[str, None]:
    return dict.fromkeys(initial_id(user, folder, at) for at in range(count))


class StoredMail:
    """The messages of user `number`, by folder.

    `start` returns a user's message counts in the start state. If it is None, mailboxes were left as they were, and
    nothing is expected. `record` receives `missing`, `doubled` or `unlisted`, a message id and its folder. With
    `one_copy`, a folder has at most one copy of a message.
    """

    def __init__(
        self,
        number: int,
        start: Callable[[int], Mapping[str, int]] | None,
        record: Callable[[str, str, str], object],
        one_copy: bool = False,
    ) -> None:
        self._one_copy = one_copy
        self._number = number
        self._start = start
        self._record = record
        self._folders: dict[str, _KnownFolder] = {}
        self._gone: set[tuple[str, str]] = set()  # folder and id of removed mail; in the Inbox, only the start state's
        self._recorded: set[tuple[str, str, str]] = set()  # event, folder, id
        self._tried: Counter[tuple[str, str]] = Counter()  # folder and id, per task that may have put it there
        self.not_kept: set[Flag] = set()  # flags that some folder does not keep; mail may have been there
        self._unlisted: set[str] = set()
        self._unread: set[str] = set()  # of these, some copy was put into a folder unread
        self._place: dict[MessageRef, str] = {}  # the folder of each browsed message; all others are in the Inbox

    @property
    def is_known(self) -> bool:
        return self._start is not None

    @property
    def unlooked(self) -> Sequence[str]:
        """The folders into which the user has put messages since they were last listed."""
        return [name for name, folder in self._folders.items() if folder.recent]

    def put(self, folder: str, message_id: str, original: Header | None = None) -> None:
        """Note that the server has stored a message, or a copy of `original`. In the Inbox, each copy counts."""
        if self._start is None:
            return
        into, copies = self._folder(folder), self._copies(folder, message_id, original)
        into.held += folder == INBOX or not copies
        if folder != INBOX:
            into.put[message_id] += not (self._one_copy and copies)
            into.recent[message_id] = original.flags if original else SAVED_DRAFT if folder == DRAFTS else SEEN
            if Flag.SEEN not in into.recent[message_id]:
                self._unread.add(message_id)

    def choose(self, headers: Iterable[Header], folder: str) -> Header | None:
        """Return the folder's first message that no other activity has chosen, and reserve it until `release`."""
        header = next((header for header in headers if header.ref not in self._place), None)
        if header is not None:
            self._place[header.ref] = folder
        return header

    def release(self, header: Header) -> None:
        """Note that the activity which chose a message is over."""
        self._place.pop(header.ref, None)

    def place(self, header: Header) -> str:
        """Return the folder from which a message was chosen; the Inbox for all others."""
        return self._place.get(header.ref, INBOX)

    def tries(self, headers: Iterable[Header], folder: str) -> None:
        """Note messages that the server is asked to put into a folder: from now on they may be there."""
        self._tried.update((folder, tag.id) for header in headers if (tag := header.tag))

    def leaves(self, headers: Iterable[Header]) -> None:
        """Note messages that the server is asked to remove: from now on they may be gone, even if it refuses."""
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
        """Return whether the folder should have messages, including those that the server has lost."""
        return self._start is not None and self._folder(name).held + self._folder(name).lost > 0

    def look_for(self, names: Iterable[str], listed: Iterable[str]) -> None:
        """Check the list of all folders. Raises `ServerRefused` once for each missing folder that must have mail."""
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
        """Compare a list of a folder's `newest` messages (None: all) with what must be there; it has `messages` in all.

        Records messages that are missing, duplicated, foreign, truncated, or have lost flags: those of the start state,
        those set when the user put them there, and those in `known`. A flag counts only if every folder `keeps` it.
        Raises `ServerRefused` if anything was wrong.
        """
        if self._start is None:
            return
        flags = (*SYSTEM_FLAGS, Flag.DRAFT) if name == DRAFTS else SYSTEM_FLAGS
        self.not_kept |= {flag for flag in flags if not keeps(flag)}
        listed = self._listed(name, shown, newest, messages)
        copies, put = listed.copies, listed.folder.put
        several = [message for message, count in copies.items() if count > max(1, put[message])]
        repeated = [message for message in several if (name, message) not in self._gone]
        cut = [tag.id for header, tag in listed.own if 0 < header.size_bytes < sum(least_bytes(tag)) * DECODED]
        faults = {
            "stored mail is missing": self._missing(listed, repeated),
            "stored mail is another's": self._foreign(listed),
            "stored mail is truncated": sum([self.lacks(name, message) for message in cut]),
            "stored mail is doubled": self._doubled(listed, repeated),
            "flags are not kept": self._unflagged(listed, known),
        }
        for kind, count in faults.items():
            if count:
                raise ServerRefused(kind, f"{count} messages in {name}")

    def _listed(self, name: str, shown: Sequence[Header], newest: int | None, messages: int) -> _Listed:
        folder = self._folder(name)
        recent, folder.recent = folder.recent, {}
        is_whole = newest is None or len(shown) < newest
        # In a partial list, the recent messages come last, perhaps twice.
        counted = shown[0 if is_whole or name == INBOX else max(0, len(shown) - 2 * len(recent)) :]
        own = [(header, header.tag) for header in counted if header.tag]
        named = [tag.id for _, tag in own if name != INBOX or tag.run == INITIAL_RUN]
        copies = Counter(named)
        if is_whole:
            messages = len(copies) + len(own) - len(named)  # each delivered copy counts
        return _Listed(name, folder, recent, own, copies, messages, is_whole)

    def _missing(self, listed: _Listed, repeated: Collection[str]) -> int:
        """Record the messages missing from the list. Return their number."""
        name, folder, lost = listed.name, listed.folder, listed.folder.lost
        wanted: Iterable[str] = listed.recent if listed.is_whole else ()
        if listed.is_whole and (repeated or listed.messages < folder.held):
            wanted = [*self._initial(name), *folder.put]
        for message in wanted:
            if message not in listed.copies and (name, message) not in self._gone:
                self.lacks(name, message)
        while folder.held > listed.messages:
            self.lacks(name, f"unknown{folder.lost}")
        return folder.lost - lost

    def _doubled(self, listed: _Listed, repeated: Iterable[str]) -> int:
        """Record `repeated` messages of which the folder has more copies than tasks may have put there."""
        name, put, doubled = listed.name, listed.folder.put, 0
        for message in repeated:
            most = max(put[message], self._tried[name, message]) + (message in self._initial(name))
            doubled += listed.copies[message] > max(1, most) and self._records("doubled", name, message)
        return doubled

    def _foreign(self, listed: _Listed) -> int:
        """Record start-state messages that belong to another folder or user; the first list shows them."""
        name, folder = listed.name, listed.folder
        if folder.known:
            return 0
        folder.known = True
        initial = (tag.id for _, tag in listed.own if tag.run == INITIAL_RUN)
        left = dict.fromkeys(message for message in initial if (name, message) not in self._tried)
        for at in reversed(range(self._at_start(name))):  # a list shows the newest, which come last
            if not left:
                break
            left.pop(initial_id(self._number, name, at), None)
        return sum([self.lacks(name, message) for message in left])

    def _unflagged(self, listed: _Listed, known: Iterable[Header]) -> int:
        """Record the messages of which no copy has the required flags."""
        flags = {header.ref: header.flags for header in known}
        at_start = (Flag.SEEN,) if listed.name != INBOX else ()
        unflagged: dict[str, bool] = {}
        for header, tag in listed.own:
            start = at_start if tag.run == INITIAL_RUN and tag.id not in self._unread else ()
            needed = flags.get(header.ref, listed.recent.get(tag.id, start))
            lacks = bool({*needed} - header.flags - self.not_kept - {Flag.FORWARDED})
            unflagged[tag.id] = unflagged.get(tag.id, True) and lacks
        return sum([self.lacks(listed.name, message) for message, lacks in unflagged.items() if lacks])

    def end(self) -> None:
        """Record the messages that the user put into folders and has not listed since: they may be there."""
        for name in self.unlooked:
            for message in self._folders[name].recent:
                self._records("unlisted", name, message)

    def lacks(self, name: str, message_id: str) -> bool:
        """Record, once, that a message is missing or not as it was stored. Return True the first time."""
        is_new, folder = self._records("missing", name, message_id), self._folder(name)
        folder.held, folder.lost = folder.held - is_new, folder.lost + is_new
        return is_new

    def _records(self, event: str, name: str, message_id: str) -> bool:
        """Record a message's fault once. Return True the first time."""
        if (event, name, message_id) in self._recorded:
            return False
        self._recorded.add((event, name, message_id))
        self._record(event, message_id, name)
        return True

    def _copies(self, name: str, message_id: str, header: Header | None) -> int:
        """Return how many copies of a message, old or new, a folder must have."""
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
