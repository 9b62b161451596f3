"""The mail that must be in a user's folders, held against what the server lists: nothing to do is never done.

The start state puts messages there, and so do the user's own tasks. What a list lacks or has twice is recorded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import INITIAL_RUN, initial_id
from loadsim.model.ports import INBOX, Header, MessageRef


@dataclass(slots=True, eq=False)
class _Folder:
    """The number of messages that a folder must have, and those that the user's tasks have put outside of the Inbox."""

    held: int
    lost: int = 0  # recorded as missing, and no longer held
    put: Counter[str] = field(default_factory=Counter)  # copies by id, in the order of the folder
    recent: list[str] = field(default_factory=list)  # put since the folder was last listed


class StoredMail:
    """The messages of user `number` by folder.

    `start` returns a user's counts in the start state; None: the mailboxes were left as they were, and nothing is held
    against them. `record` takes `missing` or `doubled`, a message id and its folder.
    """

    __slots__ = ("_folders", "_gone", "_number", "_place", "_record", "_recorded", "_start", "_unlisted")

    def __init__(
        self, number: int, start: Callable[[int], Mapping[str, int]] | None, record: Callable[[str, str, str], object]
    ) -> None:
        self._number = number
        self._start = start
        self._record = record
        self._folders: dict[str, _Folder] = {}
        self._gone: set[tuple[str, str]] = set()  # folder and id, removed by the user; of the Inbox, the start state's
        self._recorded: set[tuple[str, str, str]] = set()  # event, folder and id
        self._unlisted: set[str] = set()
        self._place: dict[MessageRef, str] = {}  # of messages outside of the Inbox that tasks may remove

    @property
    def is_known(self) -> bool:
        """True if the start state is known."""
        return self._start is not None

    @property
    def unlooked(self) -> Sequence[str]:
        """The folders that the user has put messages into since they were last listed."""
        return [name for name, each in self._folders.items() if each.recent]

    def put(self, folder: str, message_id: str, of: MessageRef | None = None) -> None:
        """Note that the server has stored a message, perhaps a copy `of` another; the Inbox holds each copy."""
        if self._start is None:
            return
        into, key = self._folder(folder), (folder, message_id)
        is_there = folder != INBOX and (message_id in into.put or self._place.get(of) == folder)
        into.held += not is_there or key in self._gone
        self._gone.discard(key)
        if folder != INBOX:
            into.put[message_id] += 1
            into.recent.append(message_id)

    def chosen(self, header: Header, folder: str) -> None:
        """Note the folder of a message that the user may remove."""
        self._place[header.ref] = folder

    def leaves(self, headers: Iterable[Header]) -> None:
        """Note messages that the server is asked to remove: from now on they may be gone, also if it refuses."""
        for header in headers if self._start is not None else ():
            place, evidence = self._place.pop(header.ref, INBOX), header.evidence
            key = (place, evidence.id if evidence else "")
            self._folder(place).held -= key not in self._gone and ("missing", *key) not in self._recorded
            if place != INBOX or (evidence and evidence.run == INITIAL_RUN):
                self._gone.add(key)

    def holds(self, name: str) -> bool:
        """Return whether the folder should have a message, whether the server has lost it or not."""
        return self._start is not None and self._folder(name).held + self._folder(name).lost > 0

    def look_for(self, names: Iterable[str], listed: Iterable[str]) -> None:
        """Take the list of all folders. Raises `ServerRefused` once for folders of these names that it lacks."""
        lacking = {*names} - {*listed} - self._unlisted
        self._unlisted |= lacking
        if lacking:
            raise ServerRefused("folders are missing", f"{len(lacking)} folders, such as {min(lacking)}")

    def look(self, name: str, shown: Sequence[Header], newest: int | None, messages: int) -> None:
        """Take a list of the `newest` messages of a folder (None: of all), which holds a number of `messages`.

        Raises `ServerRefused` if it lacks or doubles messages, which are recorded, or if what the user has put there is
        unread. A list of all counts itself: no other mail, and no second copy, stands for a message.
        """
        if self._start is None:
            return
        folder = self._folder(name)
        recent, folder.recent = folder.recent, []
        # Count copies: of all messages, or at the end of the folder, where recent ones are, perhaps twice.
        is_whole = newest is None or len(shown) < newest
        listed = shown[0 if is_whole else max(0, len(shown) - 2 * len(recent)) :]
        own = [(each.evidence, each.seen) for each in listed if each.evidence]
        named = [(tag.id, seen) for tag, seen in own if name != INBOX or tag.run == INITIAL_RUN]
        copies = Counter([each for each, _ in named])
        unread = {*recent}.intersection([each for each, seen in named if not seen])
        if is_whole:
            messages = len(copies) + len(own) - len(named)  # each copy that was delivered counts
        # Name what is wrong.
        doubled = [each for each, count in copies.items() if count > max(1, folder.put[each])]
        wanted: Sequence[str] = recent if is_whole else ()
        if doubled or (is_whole and messages < folder.held):
            initial = [initial_id(self._number, name, at) for at in range(self._start(self._number).get(name, 0))]
            doubled = [each for each in doubled if copies[each] > max(1, folder.put[each] + (each in initial))]
            wanted = [*initial, *folder.put] if is_whole else ()
        # Record each fault once.
        lost = folder.lost
        for each in wanted:
            if each not in copies and (name, each) not in self._gone:
                self.lacks(name, each)
        while folder.held > messages:
            self.lacks(name, f"unknown{folder.lost}")
        faults = {
            "stored mail is missing": folder.lost - lost,
            "stored mail is doubled": sum([self._records("doubled", name, each) for each in doubled]),
            "flags are not kept": len(unread),
        }
        for kind, count in faults.items():
            if count:
                raise ServerRefused(kind, f"{count} messages in {name}")

    def lacks(self, name: str, message_id: str) -> None:
        """Record a message that was found to be missing or incomplete, once."""
        if self._records("missing", name, message_id):
            folder = self._folder(name)
            folder.held, folder.lost = folder.held - 1, folder.lost + 1

    def _records(self, event: str, name: str, message_id: str) -> bool:
        """Record a fault of a message, once; return True the first time."""
        is_new = (event, name, message_id) not in self._recorded
        if is_new:
            self._recorded.add((event, name, message_id))
            self._record(event, message_id, name)
        return is_new

    def _folder(self, name: str) -> _Folder:
        found = self._folders.get(name)
        if found is None:
            start = {} if self._start is None else self._start(self._number)
            found = self._folders[name] = _Folder(start.get(name, 0))
        return found
