"""The headers that a mail program keeps, by folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadsim.model.ports import Flag, Header


@dataclass(slots=True)
class HeaderCache:
    """Headers by folder and UID; UIDs mean something only together with the folder's UIDVALIDITY."""

    _folders: dict[str, tuple[int, dict[int, Header]]] = field(default_factory=dict)

    def of(self, folder: str, validity: int) -> dict[int, Header]:
        """Return the headers of a folder by UID; none if its UIDVALIDITY has changed."""
        known, headers = self._folders.get(folder, (validity, {}))
        if known != validity or folder not in self._folders:
            headers = {}
            self._folders[folder] = (validity, headers)
        return headers

    def compared(self, folder: str, validity: int, flags: Mapping[int, frozenset[Flag]]) -> dict[int, Header]:
        """Take the flags of all messages of a folder: forget those that are gone. Return the headers by UID."""
        headers = self.of(folder, validity)
        for uid, header in list(headers.items()):
            if uid not in flags:
                del headers[uid]
            elif flags[uid] != header.flags:
                headers[uid] = header._replace(flags=flags[uid])
        return headers
