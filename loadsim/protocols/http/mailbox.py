"""A mailbox in a session over HTTP: the calls of the port that are the same for JMAP and MAPI."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from loadsim.model.provisioning_ports import Quota
from loadsim.protocols.http.session import HttpSession
from loadsim.protocols.imap.folder_names import SEPARATOR, FolderNames, canonical

T = TypeVar("T")


class HttpMailbox(ABC):
    """Within a level of a path, "/" is "%2F", and "%" is "%25"."""

    __slots__ = ()

    session: HttpSession[Any]

    @property
    @abstractmethod
    def names(self) -> FolderNames: ...

    @abstractmethod
    def _leave(self) -> None:
        """Forget what is known of a session that is over."""

    async def log_off(self) -> None:
        self._leave()
        await self.session.log_off()

    def abandon(self) -> None:
        self._leave()
        self.session.abandon()

    def path(self, folder: str) -> str:
        return self.names.path(folder)

    def folder_at(self, path: str) -> str:
        return self.names.folder_at(path)

    def name_on_server(self, folder: str) -> str:
        return self.path(canonical(folder))

    @property
    def _method(self) -> str:
        """The log-on method."""
        return (self.session.endpoint.methods or ("basic",))[0].upper()

    async def quotas(self) -> Sequence[Quota]:
        return []

    def keeps(self, flag: str) -> bool:
        return True


def level(name: str) -> str:
    """Return a folder's name as a level of a path."""
    return name.replace("%", "%25").replace(SEPARATOR, "%2F")


def name_of(level: str) -> str:
    return level.replace("%2F", SEPARATOR).replace("%25", "%")


def own_refs(refs: Sequence[Hashable], kind: type[T]) -> list[T]:
    """Return references of this driver; any other is an error in loadsim."""
    own = [ref for ref in refs if isinstance(ref, kind)]
    assert len(own) == len(refs), "references of another driver"
    return own
