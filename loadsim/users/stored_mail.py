"""The mail that must be in a user's folders, held against what the server lists: nothing to do is never done.

The start state puts messages there, and so do the user's own tasks. Each message that a list lacks is recorded once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import initial_id
from loadsim.model.ports import INBOX, Header, MessageRef


@dataclass(slots=True, eq=False)
class _Folder:
    """The messages of a folder, by id, since the start state."""

    put: list[str] = field(default_factory=list)  # by the user's tasks, in the order of the folder
    looked: int = 0  # the number of these that a list has had since
    gone: set[str] = field(default_factory=set)  # removed by the user; not known of the Inbox
    left: int = 0  # the number of these
    lacking: set[str] = field(default_factory=set)  # recorded as missing


class StoredMail:
    """The messages of user `number` by folder.

    `start` returns a user's counts in the start state; None: the mailboxes were left as they were, and nothing is held
    against them. `missing` records a message id and the folder that lacks it.
    """

    __slots__ = ("_folders", "_missing", "_number", "_place", "_start", "_unlisted")

    def __init__(
        self, number: int, start: Callable[[int], Mapping[str, int]] | None, missing: Callable[[str, str], object]
    ) -> None:
        self._number = number
        self._start = start
        self._missing = missing
        self._folders: defaultdict[str, _Folder] = defaultdict(_Folder)
        self._unlisted: set[str] = set()
        self._place: dict[MessageRef, str] = {}  # of messages outside of the Inbox that tasks may remove

    @property
    def is_known(self) -> bool:
        """True if the start state is known."""
        return self._start is not None

    @property
    def unlooked(self) -> Sequence[str]:
        """The folders that the user has put messages into since they were last listed."""
        return [name for name, each in self._folders.items() if each.looked < len(each.put) and name != INBOX]

    def put(self, folder: str, ids: Iterable[str]) -> None:
        """Note messages that the server has stored in a folder by its own account, outside of the Inbox once each."""
        if self._start is not None:
            put = self._folders[folder].put
            put.extend(each for each in ids if folder == INBOX or each not in put)

    def chosen(self, header: Header, folder: str) -> None:
        """Note the folder of a message that the user may remove."""
        self._place[header.ref] = folder

    def leaves(self, headers: Iterable[Header]) -> None:
        """Note messages that the server is asked to remove: from now on they may be gone, also if it refuses."""
        for header in headers:
            place = self._place.pop(header.ref, INBOX)
            folder, name = self._folders[place], header.evidence.id if header.evidence else ""
            folder.left += name not in folder.gone
            if place != INBOX:
                folder.gone.add(name)

    def holds(self, name: str) -> bool:
        """Return whether the folder should have a message, whether the server has lost it or not."""
        if self._start is None:
            return False
        folder = self._folders[name]
        return self._start(self._number).get(name, 0) + len(folder.put) > folder.left

    def look_for(self, names: Iterable[str], listed: Iterable[str]) -> None:
        """Take the list of all folders. Raises `ServerRefused` once for folders of these names that it lacks."""
        lacking = {*names} - {*listed} - self._unlisted
        self._unlisted |= lacking
        if lacking:
            raise ServerRefused("folders are missing", f"{len(lacking)} folders, such as {min(lacking)}")

    def look(self, name: str, shown: Sequence[Header], newest: int | None, messages: int) -> None:
        """Take a list of the `newest` messages of a folder (None: of all), which holds a number of `messages`.

        Raises `ServerRefused` if it lacks messages, which are recorded, or if what the user has put there is unread.
        """
        if self._start is None:
            return
        folder, start = self._folders[name], self._start(self._number).get(name, 0)
        recent = folder.put[folder.looked :]
        folder.looked = len(folder.put)
        seen = _seen(shown[max(0, len(shown) - len(recent)) :])
        unread = 0 if name == INBOX else sum(seen.get(each) is False for each in recent)
        missing: list[str] = []
        if newest is None or len(shown) < newest:
            seen = _seen(shown)
            wanted, messages = recent, sum(each.evidence is not None for each in shown) if name == INBOX else len(seen)
            if messages < start + len(folder.put) - folder.left - len(folder.lacking):
                wanted = [*(initial_id(self._number, name, at) for at in range(start)), *folder.put]
            missing = [each for each in dict.fromkeys(wanted) if each not in seen and each not in folder.gone]
        self._lacks(name, missing, messages)
        if unread:
            raise ServerRefused("flags are not kept", f"{unread} read messages are unread in {name}")

    def count(self, name: str, messages: int) -> None:
        """Take the number of messages of a folder. Raises `ServerRefused` if it is too small."""
        if self._start is not None:
            self._lacks(name, [], messages)

    def lacks(self, name: str, message_id: str) -> None:
        """Record a message that was found to be missing or incomplete, once."""
        folder = self._folders[name]
        if message_id not in folder.lacking:
            folder.lacking.add(message_id)
            self._missing(message_id, name)

    def _lacks(self, name: str, missing: Sequence[str], messages: int) -> None:
        """Record messages that are missing, and as many without a name as the number of messages is too small."""
        folder, before = self._folders[name], len(self._folders[name].lacking)
        for each in missing:
            self.lacks(name, each)
        assert self._start is not None
        least = self._start(self._number).get(name, 0) + len(folder.put) - folder.left - len(folder.lacking)
        for number in range(len(folder.lacking), len(folder.lacking) + max(0, least - messages)):
            self.lacks(name, f"unknown{number}")
        found = len(folder.lacking) - before
        if found:
            raise ServerRefused("stored mail is missing", f"{found} messages in {name}")


def _seen(headers: Sequence[Header]) -> dict[str, bool]:
    """Return for each message of loadsim, by id, if it is flagged as seen."""
    return {header.evidence.id: header.seen for header in headers if header.evidence}
